//! Transposes by the MXUs: the identity streams through the matrix as transposed weights, which gives its transpose exactly.

use tpusim_isa::num::Format;
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::vcode::{Object, Place, V};
use super::TILE;
use super::pipeline::{BODY, Lanes, Thread, Work, merge, unrolled};
use super::stages::{Piece, Stages, UNROLL};

/// The identity, as far as it differs from register to register: eight of 16 rows with ones in 16 lanes of their own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    at: u32,
    object: Object,
}

impl Identity {
    pub fn reserve(e: &mut Emitter<'_>) -> Identity {
        Identity { at: e.vmem(64), object: e.object() }
    }

    /// Writes it.
    pub fn write(&self, e: &mut Emitter<'_>) -> Result<(), EmitError> {
        let (lane, sublane) = (e.code.ids(Op::VLaneId), e.code.ids(Op::VSubId));
        let (one, zero) = (e.code.imm_f(1.0), e.code.imm(0));
        let place = e.code.v(Op::VSubI, &[lane, sublane]);
        for r in 0..8u32 {
            let parts: Vec<V> = (0..2u32)
                .map(|p| {
                    let at = e.code.imm((16 * r + 8 * p) as i32);
                    let m = e.code.cmp(Op::VEqI, place, at);
                    e.code.sel(m, one, zero)
                })
                .collect();
            let v = e.code.pack(&parts, Format::Bf16);
            e.code.store(v, self.place().at(8 * r));
        }
        e.flush()
    }

    fn place(&self) -> Place {
        Place { object: self.object, base: ZERO, offset: self.at as i32 }
    }
}

/// The transpose of a matrix of bf16, both in packed tiles of 16 x 128.
struct Turn {
    identity: Identity,
    /// Columns of an array, in groups of 128.
    halves: u32,
    /// Tiles of rows and of lanes of the matrix.
    from: [u32; 2],
    /// Tiles of rows and of lanes of the transpose.
    to: [u32; 2],
    jobs: Vec<Job>,
    /// Results of the first rows of a push, by half.
    upper: [Option<V>; 2],
    /// Where the matrix lies.
    source: Place,
    /// Where the transpose goes, for each job.
    target: Vec<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    mxu: u32,
    /// Which 128 rows, and which 128 lanes of the matrix, if it is cut.
    cut: Option<[u32; 2]>,
    /// Tiles of rows of the transpose.
    rows: [u32; 2],
}

impl Turn {
    /// Of a matrix of `rows` x `cols` elements.
    fn new(e: &Emitter<'_>, identity: Identity, rows: u32, cols: u32) -> Turn {
        let (halves, mxus) = ((*e.chip.mxu.dim / 128).max(1), (*e.chip.mxu.count).max(1));
        let from = [rows.div_ceil(16), cols.div_ceil(128)];
        let to = [cols.div_ceil(16), rows.div_ceil(128)];
        let jobs: Vec<Job> = if halves > 1 {
            let each = to[0].div_ceil(mxus);
            let part = |mxu: u32| Job { mxu, cut: None, rows: [mxu * each, (mxu * each + each).min(to[0])] };
            (0..mxus).map(part).collect()
        } else {
            let cuts = (0..to[1]).flat_map(|r| (0..from[1]).map(move |c| [r, c]));
            let job = |(i, cut): (usize, [u32; 2])| {
                let rows = [cut[1] * 8, (cut[1] * 8 + 8).min(to[0])];
                Job { mxu: i as u32 % mxus, cut: Some(cut), rows }
            };
            cuts.enumerate().map(job).collect()
        };
        let jobs: Vec<Job> = jobs.into_iter().filter(|j| j.rows[0] < j.rows[1]).collect();
        let nowhere = Place { object: identity.object, base: ZERO, offset: 0 };
        Turn { identity, halves, from, to, source: nowhere, target: vec![nowhere; jobs.len()], jobs, upper: [None; 2] }
    }

    fn lanes(&self) -> Lanes {
        Lanes::new(&self.jobs.iter().map(|j| j.mxu).collect::<Vec<_>>())
    }

    fn jobs(&self) -> usize {
        self.jobs.len()
    }

    fn last_lag(&self, lanes: &Lanes) -> u32 {
        (0..self.jobs()).map(|j| lanes.pop_lag(j)).max().unwrap_or(0)
    }
}

impl Work for Turn {
    fn weights(&self, job: usize) -> u32 {
        match self.jobs[job].cut {
            Some([r, _]) => (self.from[0] - r * 8).min(8),
            None => self.from[0] * self.from[1],
        }
    }

    fn weight(&mut self, e: &mut Emitter<'_>, job: usize, i: u32) -> (V, u32, bool) {
        let (row, lane, slot) = match self.jobs[job].cut {
            Some([r, c]) => (r * 8 + i, c, i),
            None => (i / self.from[1], i % self.from[1], i / self.from[1] * self.halves + i % self.from[1]),
        };
        (e.code.load(self.source.at((row * self.from[1] + lane) * 8)), slot, true)
    }

    fn rows(&self, job: usize) -> u32 {
        self.jobs[job].rows[1] - self.jobs[job].rows[0]
    }

    fn row(&mut self, e: &mut Emitter<'_>, job: usize, j: u32) -> [V; 2] {
        let r = self.jobs[job].rows[0] + j;
        let one = e.code.load(self.identity.place().at(r % 8 * 8));
        if self.halves == 1 {
            return [one, one];
        }
        let zero = e.code.imm(0);
        if r >= 8 { [zero, one] } else { [one, zero] }
    }

    fn result(&mut self, e: &mut Emitter<'_>, job: usize, j: u32, c: u32, cell: V) {
        let (g, h) = (c / self.halves, c % self.halves);
        if h >= self.to[1] {
            return;
        }
        // The first eight rows wait for the next.
        if g == 0 {
            self.upper[h as usize] = Some(cell);
            return;
        }
        let Some(upper) = self.upper[h as usize].take() else { return };
        let r = self.jobs[job].rows[0] + j;
        let first = self.jobs[job].cut.map_or(0, |c| c[0]);
        let v = e.code.pack(&[upper, cell], Format::Bf16);
        e.code.store(v, self.target[job].at((r * self.to[1] + first + h) * 8));
    }
}

/// Transposes every tile of keys of `from`, whose rows are `cols` elements, to `to`.
pub(super) fn turn_keys(
    e: &mut Emitter<'_>,
    st: &mut Stages,
    identity: Identity,
    cols: u32,
    from: Place,
    to: Piece,
) -> Result<(), EmitError> {
    let mut turn = Turn::new(e, identity, TILE, cols);
    let lanes = turn.lanes();
    let last = turn.last_lag(&lanes);
    let tiles = st.tiles.keys();
    let ends = (0, tiles as i32 - 1);
    lanes.prime(e, &turn)?;
    let object = st.whole(e, to);
    unrolled(e, 0, tiles + last, 1, |e, n, _| {
        let base = n.clamped(e, 0, ends, TILE / 2 * cols.div_ceil(128), 0)?;
        e.ss(Op::SAdd, base, base, from.base);
        turn.source = Place { base, ..from };
        let mut registers = vec![base];
        for j in 0..turn.jobs() {
            // What comes before the first tile goes where the first tile will go.
            let base = n.clamped(e, -(lanes.pop_lag(j) as i32), ends, to.rows, to.at)?;
            turn.target[j] = Place { object, base, offset: 0 };
            registers.push(base);
        }
        let threads = lanes.threads(e, &mut turn)?;
        merge(e, threads, st.spread);
        registers.into_iter().for_each(|r| e.free(r));
        e.flush()
    })?;
    lanes.drain(e, &turn)
}

/// Writes the matrix of the tile whose number a register holds to a place.
pub(super) type Make<'m> = dyn FnMut(&mut Emitter<'_>, &mut Stages, SReg, Place) -> Result<(), EmitError> + 'm;

/// For every tile of queries, by its number, `make` writes a matrix of `rows` rows and as many columns as the tile has queries to a
/// buffer of `buffers`; its transpose goes to `out`.
pub(super) fn turn_queries(
    e: &mut Emitter<'_>,
    st: &mut Stages,
    identity: Identity,
    rows: u32,
    buffers: Piece,
    out: Option<Place>,
    make: &mut Make<'_>,
) -> Result<(), EmitError> {
    let mut turn = Turn::new(e, identity, rows, TILE);
    let lanes = if out.is_some() { turn.lanes() } else { Lanes::new(&[]) };
    let tiles = st.tiles.queries();
    let ends = (0, tiles as i32 - 1);
    let last = turn.last_lag(&lanes) + 1;
    lanes.prime(e, &turn)?;
    unrolled(e, 0, tiles + last, UNROLL, |e, n, phase| {
        st.number = phase;
        let index = n.clamped(e, 0, ends, 1, 0)?;
        let mut registers = vec![index];
        turn.source = st.buffer(e, buffers, 1);
        for j in 0..turn.jobs() {
            let Some(p) = out else { break };
            let base = n.clamped(e, -1 - lanes.pop_lag(j) as i32, ends, TILE / 2 * rows.div_ceil(128), 0)?;
            e.ss(Op::SAdd, base, base, p.base);
            registers.push(base);
            turn.target[j] = Place { base, ..p };
        }
        let to = st.buffer(e, buffers, 0);
        let mut threads = vec![Thread::of(e, 0, BODY, |e| make(e, st, index, to))?];
        threads.extend(lanes.threads(e, &mut turn)?);
        merge(e, threads, st.spread);
        registers.into_iter().for_each(|r| e.free(r));
        e.flush()
    })?;
    lanes.drain(e, &turn)
}
