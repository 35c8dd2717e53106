//! Jobs of the matrix units, pipelined by hand, and stages merged into one block.
//!
//! A *job* is one set of weights and the rows that stream through it. A *lane* is an MXU with the jobs it does in every body, in turn:
//! while a job streams, the weights of the next one are pushed and the results of the one before are popped, so that neither the
//! time of weights nor the latency of the array is waited for. Jobs at the end of a body stream and are popped in the next bodies,
//! for what was then one item of work earlier: [`Lanes::stream_lag`] and [`Lanes::pop_lag`] say how many.

use tpusim_isa::num::Format;
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::vcode::{CodeInstr, V};

/// What jobs read and write.
pub(super) trait Work {
    /// Registers of weights of a job.
    fn weights(&self, job: usize) -> u32;
    /// Register `i` of a job's weights, its slot, and whether it is transposed.
    fn weight(&mut self, e: &mut Emitter<'_>, job: usize, i: u32) -> (V, u32, bool);
    /// Pushes of rows of a job.
    fn rows(&self, job: usize) -> u32;
    /// Operands of push `j`.
    fn row(&mut self, e: &mut Emitter<'_>, job: usize, j: u32) -> [V; 2];
    /// Takes result `c` of push `j`: groups of 8 rows, each in halves of columns.
    fn result(&mut self, e: &mut Emitter<'_>, job: usize, j: u32, c: u32, cell: V);
}

/// The MXUs and their jobs.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    lanes: Vec<(u32, Vec<usize>)>,
}

const FORMAT: Format = Format::Bf16;

impl Lanes {
    /// Jobs in order, by the MXU of each.
    pub fn new(mxus: &[u32]) -> Lanes {
        let mut lanes: Vec<(u32, Vec<usize>)> = Vec::new();
        for (job, &mxu) in mxus.iter().enumerate() {
            match lanes.iter_mut().find(|l| l.0 == mxu) {
                Some(l) => l.1.push(job),
                None => lanes.push((mxu, vec![job])),
            }
        }
        Lanes { lanes }
    }

    fn lag(&self, job: usize, phases: usize) -> u32 {
        let of = |l: &(u32, Vec<usize>)| l.1.iter().position(|&j| j == job).map(|i| ((i + phases) / l.1.len()) as u32);
        self.lanes.iter().find_map(of).unwrap_or(0)
    }

    /// Bodies from the push of a job's weights to its stream.
    pub fn stream_lag(&self, job: usize) -> u32 {
        self.lag(job, 1)
    }

    /// Bodies from the push of a job's weights to the pops of its results.
    pub fn pop_lag(&self, job: usize) -> u32 {
        self.lag(job, 2)
    }

    /// The job whose results a body of a lane finds in the queue.
    fn carried(jobs: &[usize]) -> Option<usize> {
        jobs.get((2 * jobs.len() - 2) % jobs.len()).copied()
    }

    fn cells(e: &Emitter<'_>) -> u32 {
        FORMAT.packing() as u32 * (*e.chip.mxu.dim / 128).max(1)
    }

    /// Fills the queues as a body expects them, with nothing.
    pub fn prime(&self, e: &mut Emitter<'_>, work: &dyn Work) -> Result<(), EmitError> {
        for (mxu, jobs) in &self.lanes {
            let zero = e.code.imm(0);
            let rows = Self::carried(jobs).map_or(0, |j| work.rows(j));
            (0..rows).for_each(|_| e.code.mxu_mul(*mxu, zero, zero, FORMAT));
        }
        e.flush()
    }

    /// Takes what the last body left.
    pub fn drain(&self, e: &mut Emitter<'_>, work: &dyn Work) -> Result<(), EmitError> {
        for (mxu, jobs) in &self.lanes {
            let rows = Self::carried(jobs).map_or(0, |j| work.rows(j));
            for _ in 0..rows * Self::cells(e) {
                e.code.mxu_pop(*mxu);
            }
        }
        e.flush()
    }

    /// The pushes and the pops of a body.
    pub fn threads(&self, e: &mut Emitter<'_>, work: &mut dyn Work) -> Result<Vec<Thread>, EmitError> {
        let mut out = Vec::new();
        for (mxu, jobs) in &self.lanes {
            let (mxu, n) = (*mxu, jobs.len());
            let cells = Self::cells(e);
            // Each phase has the time that its rows take.
            let streams = |p: usize| jobs[(p + n - 1) % n];
            let all: u64 = (0..n).map(|p| u64::from(work.rows(streams(p)))).sum();
            let mut past = 0;
            for p in 0..n {
                let (popped, stream, next) = (jobs[(p + 2 * n - 2) % n], streams(p), jobs[p]);
                let from = BODY * past / all.max(1);
                past += u64::from(work.rows(stream));
                let to = BODY * past / all.max(1);
                out.push(Thread::of(e, from, to, |e| {
                    for j in 0..work.rows(popped) {
                        for c in 0..cells {
                            let cell = e.code.mxu_pop(mxu);
                            work.result(e, popped, j, c, cell);
                        }
                    }
                    Ok(())
                })?);
                out.push(Thread::of(e, from + LATE, to + LATE, |e| {
                    e.code.mxu_latch(mxu);
                    let (rows, weights) = (work.rows(stream), work.weights(next));
                    for j in 0..rows {
                        let [lo, hi] = work.row(e, stream, j);
                        e.code.mxu_mul(mxu, lo, hi, FORMAT);
                        for i in j * weights / rows..(j + 1) * weights / rows {
                            let (w, slot, transposed) = work.weight(e, next, i);
                            e.code.mxu_push(mxu, w, FORMAT, slot, transposed);
                        }
                    }
                    Ok(())
                })?);
            }
        }
        Ok(out)
    }
}

/// Where a body ends, for the order of its instructions.
pub(super) const BODY: u64 = 1 << 32;
/// How far pushes lag behind the pops that make room for them.
const LATE: u64 = BODY / 64;

/// Instructions of one stage of a body, which depend on no other stage of it, and the part of the body that they are spread over.
pub(super) struct Thread {
    from: u64,
    to: u64,
    code: Vec<CodeInstr>,
}

impl Thread {
    /// What `f` emits, between two places of the body.
    pub fn of(
        e: &mut Emitter<'_>,
        from: u64,
        to: u64,
        f: impl FnOnce(&mut Emitter<'_>) -> Result<(), EmitError>,
    ) -> Result<Thread, EmitError> {
        let mark = e.code.instrs.len();
        f(e)?;
        Ok(Thread { from, to, code: e.code.instrs.split_off(mark) })
    }
}

/// For each instruction the one whose place it takes: the EUP's results leave in order, so a pop follows its push; and what is loaded,
/// changed and stored again is not changed by others in between.
fn leaders(code: &[CodeInstr]) -> Vec<usize> {
    /// Instructions that such a change takes at most.
    const CHANGE: usize = 8;
    let mut lead: Vec<usize> = (0..code.len()).collect();
    for (i, c) in code.iter().enumerate() {
        let first = match c.instr.op {
            Op::EPop => i.saturating_sub(1),
            Op::VSt => {
                let same = |j: &usize| {
                    let o = &code[*j];
                    o.instr.op == Op::VLd && o.object == c.object && o.instr.args[1..4] == c.instr.args[1..4]
                };
                (i.saturating_sub(CHANGE)..i).rev().find(same).unwrap_or(i)
            }
            _ => continue,
        };
        let with = lead[first];
        lead[first..=i].fill(with);
    }
    lead
}

/// Appends the instructions of all threads, each spread evenly, or, where registers are few, one thread after the other.
pub(super) fn merge(e: &mut Emitter<'_>, threads: Vec<Thread>, spread: bool) {
    let mut all: Vec<(u64, usize, usize)> = Vec::new();
    for (n, t) in threads.iter().enumerate() {
        let step = (t.to - t.from) / (2 * t.code.len() as u64).max(1);
        let places = leaders(&t.code).into_iter().enumerate();
        let step = if spread { step } else { 0 };
        all.extend(places.map(|(i, lead)| (t.from + step * (2 * lead as u64 + 1), n, i)));
    }
    all.sort_unstable();
    e.code.instrs.extend(all.into_iter().map(|(_, n, i)| threads[n].code[i]));
}

/// The number of a body: `counter * unroll + offset`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    pub counter: SReg,
    pub unroll: u32,
    pub offset: u32,
}

impl Number {
    /// `number * scale + add` in a fresh register; `number + shift` is at least `low` and at most `high` first.
    pub fn clamped(
        self,
        e: &mut Emitter<'_>,
        shift: i32,
        (low, high): (i32, i32),
        scale: u32,
        add: u32,
    ) -> Result<SReg, EmitError> {
        let r = e.affine(self.counter, self.unroll as i32, self.offset as i32 + shift)?;
        e.si(Op::SMaxi, r, r, low);
        e.si(Op::SMini, r, r, high);
        e.si(Op::SMuli, r, r, scale as i32);
        e.si(Op::SAddi, r, r, add as i32);
        Ok(r)
    }
}

/// Runs `body` for numbers `first .. first + count`, as a loop of `unroll` bodies and what is left. It gets the number, and what that is
/// modulo `unroll`.
pub(super) fn unrolled(
    e: &mut Emitter<'_>,
    first: u32,
    count: u32,
    unroll: u32,
    mut body: impl FnMut(&mut Emitter<'_>, Number, u32) -> Result<(), EmitError>,
) -> Result<(), EmitError> {
    let whole = if count >= 2 * unroll { count / unroll } else { 0 };
    e.repeat(whole, |e, counter| {
        for offset in first..first + unroll {
            body(e, Number { counter, unroll, offset }, offset % unroll)?;
            e.flush()?;
        }
        Ok(())
    })?;
    for offset in first + whole * unroll..first + count {
        body(e, Number { counter: ZERO, unroll, offset }, offset % unroll)?;
        e.flush()?;
    }
    Ok(())
}
