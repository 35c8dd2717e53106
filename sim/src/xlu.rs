//! Cross-lane units: timing, and what they compute.

use std::collections::VecDeque;

use tpusim_isa::op::Op;

use crate::fault::FaultKind;
use crate::vpu::lanes;
use crate::vpu::regs::{LANES, Reg, SUBLANES, Words};

/// Results a unit may hold. The chip files name no limit; this one only bounds memory.
pub(crate) const MAX_RESULTS: usize = 4096;

/// Timing state of one XLU. Times are absolute cycles.
#[derive(Clone, Debug, Default)]
pub(crate) struct XluTiming {
    free: u64,
    queue: VecDeque<u64>,
    pushes: u32,
}

impl XluTiming {
    pub fn accepts_at(&self) -> u64 {
        self.free
    }

    /// When the `nth` next pop finds its result.
    pub fn pop_at(&self, nth: usize) -> Result<u64, FaultKind> {
        self.queue.get(nth).copied().ok_or(FaultKind::EmptyQueue { unit: "XLU result" })
    }

    pub fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// A rotate, broadcast or reduction starts at `t`. Returns until when the unit is busy with it.
    pub fn single(&mut self, xlu: usize, t: u64, latency: u64, interval: u64) -> Result<u64, FaultKind> {
        if self.pushes > 0 {
            return Err(FaultKind::BrokenTranspose { xlu: xlu as u32, pushes: self.pushes });
        }
        self.room(1)?;
        self.queue.push_back(t + latency);
        self.free = t + interval;
        Ok(self.free)
    }

    /// A transpose push at `t`. With the 16th the results are on their way, and nothing else is taken until the last is out.
    /// Returns until when the unit is busy with it.
    pub fn transpose(&mut self, t: u64, latency: u64, interval: u64) -> Result<u64, FaultKind> {
        self.pushes += 1;
        self.free = t + interval;
        if self.pushes == 16 {
            self.room(16)?;
            self.pushes = 0;
            self.queue.extend((0..16).map(|k| t + latency + k * interval));
            self.free = self.free.max(t + latency + 15 * interval);
        }
        Ok(self.free)
    }

    fn room(&self, added: usize) -> Result<(), FaultKind> {
        let queued = self.queue.len();
        if queued + added > MAX_RESULTS {
            return Err(FaultKind::QueueFull { unit: "XLU", queued, added, limit: MAX_RESULTS });
        }
        Ok(())
    }

    pub fn snapshot(&self, now: u64, out: &mut Vec<u64>) {
        out.extend([self.free.saturating_sub(now), u64::from(self.pushes), self.queue.len() as u64]);
        out.extend(self.queue.iter().map(|t| t.saturating_sub(now)));
    }

    pub fn shift(&mut self, by: u64) {
        self.free += by;
        self.queue.iter_mut().for_each(|t| *t += by);
    }
}

/// Data of one XLU.
#[derive(Debug, Default)]
pub(crate) struct XluData {
    pending: Vec<Reg>,
    queue: VecDeque<Reg>,
}

impl XluData {
    pub fn pop(&mut self) -> Result<Reg, FaultKind> {
        self.queue.pop_front().ok_or(FaultKind::EmptyQueue { unit: "XLU result" })
    }

    /// Pushes `a` for `op` with immediate `imm`.
    pub fn push(&mut self, op: Op, a: &Words, imm: i32) {
        match op {
            Op::XPose => {
                self.pending.push(Reg(*a));
                if self.pending.len() == 16 {
                    transpose(&self.pending, &mut self.queue);
                    self.pending.clear();
                }
            }
            Op::XRot => self.queue.push_back(by_sublane(a, |row, out| {
                let by = imm.rem_euclid(LANES as i32) as usize;
                out[by..].copy_from_slice(&row[..LANES - by]);
                out[..by].copy_from_slice(&row[LANES - by..]);
            })),
            Op::XBcast => self.queue.push_back(by_sublane(a, |row, out| out.fill(row[imm.rem_euclid(128) as usize]))),
            Op::XSumF => self.queue.push_back(reduce(a, lanes::add_f)),
            Op::XMaxF => self.queue.push_back(reduce(a, lanes::max_f)),
            Op::XMinF => self.queue.push_back(reduce(a, lanes::min_f)),
            Op::XSumI => self.queue.push_back(reduce(a, u32::wrapping_add)),
            Op::XMaxI => self.queue.push_back(reduce(a, |x, y| (x as i32).max(y as i32) as u32)),
            Op::XMinI => self.queue.push_back(reduce(a, |x, y| (x as i32).min(y as i32) as u32)),
            _ => {}
        }
    }
}

#[inline(always)]
fn by_sublane(a: &Words, f: impl Fn(&[u32; LANES], &mut [u32; LANES])) -> Reg {
    let mut out = Reg::default();
    let (rows, _) = a.as_chunks::<LANES>();
    let (outs, _) = out.0.as_chunks_mut::<LANES>();
    rows.iter().zip(outs).for_each(|(r, o)| f(r, o));
    out
}

/// Balanced tree: lane `l` with lane `l + 64`, then 32, ... 1.
fn reduce(a: &Words, f: impl Fn(u32, u32) -> u32) -> Reg {
    by_sublane(a, |row, out| {
        let mut v = *row;
        let mut half = LANES / 2;
        while half > 0 {
            let (low, high) = v.split_at_mut(half);
            low.iter_mut().zip(high.iter()).for_each(|(x, y)| *x = f(*x, *y));
            half /= 2;
        }
        out.fill(v[0]);
    })
}

fn transpose(rows: &[Reg], out: &mut VecDeque<Reg>) {
    for k in 0..rows.len() {
        let mut r = Reg::default();
        for s in 0..SUBLANES {
            for l in 0..LANES {
                r.0[s * LANES + l] = rows[l / SUBLANES].0[(l % SUBLANES) * LANES + k * SUBLANES + s];
            }
        }
        out.push_back(r);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iota() -> Reg {
        let mut r = Reg::default();
        r.0.iter_mut().enumerate().for_each(|(i, x)| *x = i as u32);
        r
    }

    // Oracle: the definition, element by element.
    #[test]
    fn transposes_a_tile() {
        let mut x = XluData::default();
        for g in 0..16u32 {
            let mut r = iota();
            r.0.iter_mut().for_each(|w| *w += g * 1024);
            x.push(Op::XPose, &r.0, 0);
        }
        for g in 0..16u32 {
            let r = x.pop().unwrap();
            for (i, w) in r.0.iter().enumerate() {
                let (row, col) = (g * 8 + i as u32 / 128, i as u32 % 128);
                assert_eq!(*w, col * 128 + row);
            }
        }
        assert!(x.pop().is_err());
    }

    // Oracle: lane l of the result is lane l - imm; sums of 0..127 are 8128 plus the row's offset.
    #[test]
    fn rotates_and_sums() {
        let mut x = XluData::default();
        x.push(Op::XRot, &iota().0, 3);
        x.push(Op::XSumI, &iota().0, 0);
        let (r, s) = (x.pop().unwrap(), x.pop().unwrap());
        for i in 0..1024u32 {
            assert_eq!(r.0[i as usize], i / 128 * 128 + (i % 128 + 125) % 128);
            assert_eq!(s.0[i as usize], 8128 + (i / 128) * 128 * 128);
        }
    }
}
