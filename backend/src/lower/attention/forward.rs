//! The kernel of attention itself.

use tpusim_isa::num::Format;
use tpusim_isa::op::Op;
use tpusim_isa::program::DmaDir;

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::nest::{Body, Iter, Nest, Stream};
use super::super::vcode::{Object, Place, V};
use super::TILE;
use super::bodies::{self, Kernel};
use super::geometry::{Array, Blocking};
use super::mask::{Hidden, Mask};
use super::pairs::Tiles;
use super::pipeline::{BODY, Lanes, Thread, Work};
use super::scores::{bounded, scaled};
use super::stages::{KEYS, LANES, Piece, Side, Spot, Stages, fill, prepare};
use super::transpose::{Identity, turn_keys, turn_queries};
use crate::ops::attention::Attention;

/// Score of a pair that the mask hides, and the maximum of nothing.
const HIDDEN: f32 = -1e30;
/// What lies at a place of its own for each tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Queries,
    Keys,
    Values,
    Maxima,
    Sums,
    Totals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// Scores: contracted tile of the head, tile of queries.
    Scores(u32, u32),
    /// Values: contracted tile of keys, tile of queries.
    Values(u32, u32),
}

pub(super) struct Forward<'k> {
    s: &'k Attention,
    st: Stages,
    /// Streams of queries, keys, values, the output and the logarithms.
    ix: [Option<usize>; 5],
    padded: Vec<usize>,
    halves: u32,
    /// Tiles of lanes of queries and keys, and of values.
    lanes_of: [u32; 2],
    identity: Identity,
    /// Transposed values by tile, totals, maxima and sums by tile.
    values: Piece,
    totals: Piece,
    maxima: Piece,
    sums: Piece,
    /// Buffers: scores, weights, maxima of a block, what fades old totals (twice), scaled output.
    scores: Piece,
    weights: Piece,
    tops: Piece,
    fades: [Piece; 2],
    outputs: Piece,
    jobs: Vec<Job>,
    lanes: Lanes,
    /// Lags of the pops of scores, of the new maxima, of the exponentials, and of the weights of values.
    lag: [u32; 4],
    // Of the body at hand.
    bases: [Place; 2],
    mask: Option<Mask>,
    /// By half of the queries: maxima so far, what masking needs, and what fades old totals.
    top: [Option<V>; 2],
    hidden: [Option<Hidden>; 2],
    fade: [Option<V>; 2],
}

impl<'k> Forward<'k> {
    /// Reserves what it needs.
    pub fn plan(
        s: &'k Attention,
        b: Blocking,
        e: &mut Emitter<'_>,
        loads: &[i64],
        stores: &[Option<i64>],
    ) -> Result<(Self, Vec<Stream>), EmitError> {
        let base = |i: usize| loads.get(i).copied().unwrap_or(0);
        let array =
            |dir, base, elem_bytes, dims, keys| Array { dir, base, elem_bytes, dims, keys, rows_of_heads: false };
        let (load, store) = (DmaDir::Load, DmaDir::Store);
        let mut arrays = vec![
            array(load, base(0), 2, [s.queries, s.heads, s.dim], false),
            array(load, base(1), 2, [s.keys, s.kv_heads, s.dim], true),
            array(load, base(2), 2, [s.keys, s.kv_heads, s.v_dim], true),
        ];
        let mut ix = [Some(0), Some(1), Some(2), None, None];
        if let Some(at) = stores.first().copied().flatten() {
            ix[3] = Some(arrays.len());
            arrays.push(array(store, at, 2, [s.queries, s.heads, s.v_dim], false));
        }
        if let Some(at) = stores.get(1).copied().flatten() {
            ix[4] = Some(arrays.len());
            let dims = [s.queries, s.heads, 1];
            arrays.push(Array { rows_of_heads: true, ..array(store, at, 4, dims, false) });
        }
        let padded = (0..3).filter(|&i| arrays[i].padded()).collect();
        let streams = arrays.iter().map(|a| a.stream(s, &b)).collect();
        let tiles = Tiles::new(s, [b.kv_heads as u32, b.group as u32]);
        let (halves, mxus) = ((*e.chip.mxu.dim / 128).max(1), (*e.chip.mxu.count).max(1));
        let lanes_of = [s.dim, s.v_dim].map(|d| (d as u32).div_ceil(128));
        let (jobs, on) = assign(halves, mxus, lanes_of[0]);
        let lanes = Lanes::new(&on);
        let pops = |want: fn(&Job) -> bool| {
            (0..jobs.len()).filter(|&j| want(&jobs[j])).map(|j| lanes.pop_lag(j)).max().unwrap_or(0)
        };
        let scored = pops(|j| matches!(j, Job::Scores(..)));
        let lag = [scored, scored + 1, scored + 2, scored + 3];
        let slots = tiles.queries() + 1;
        let v_rows = s.v_dim as u32;
        let f = Forward {
            s,
            st: Stages::new(e, tiles.clone(), b.spread)?,
            ix,
            padded,
            halves,
            lanes_of,
            identity: Identity::reserve(e),
            values: Piece::reserve(e, tiles.keys(), v_rows / 16 * LANES * 8),
            totals: Piece::reserve(e, slots, v_rows * LANES),
            maxima: Piece::reserve(e, slots, LANES * 8),
            sums: Piece::reserve(e, slots, LANES * 8),
            scores: Piece::buffers(e, TILE * LANES),
            weights: Piece::buffers(e, TILE / 2 * LANES),
            tops: Piece::buffers(e, LANES * 8),
            fades: [Piece::buffers(e, LANES * 8 * 2), Piece::buffers(e, LANES * 8)],
            outputs: Piece::buffers(e, v_rows / 2 * LANES),
            jobs,
            lanes,
            lag,
            bases: [Place { object: Object(0), base: ZERO, offset: 0 }; 2],
            mask: None,
            top: [None; 2],
            hidden: [None; 2],
            fade: [None; 2],
        };
        Ok((f, streams))
    }

    /// The tiles of an array that a stage `lag` bodies behind works on.
    fn spot(&self, of: Of, lag: u32) -> Spot {
        let spot = |side, rows, base, spare| Spot { side, lag, rows, base, spare };
        let rows = TILE / 2 * self.lanes_of[0];
        match of {
            Of::Queries => spot(Side::Query, rows, self.bases[0].base, false),
            Of::Keys => spot(Side::Key, rows, self.bases[1].base, false),
            Of::Values => spot(Side::Key, self.values.rows, ZERO, false),
            Of::Maxima => spot(Side::Query, self.maxima.rows, ZERO, true),
            Of::Sums => spot(Side::Query, self.sums.rows, ZERO, true),
            Of::Totals => spot(Side::Query, self.totals.rows, ZERO, true),
        }
    }

    /// Where the tile of the pair `lag` bodies ago lies.
    fn tile(&mut self, e: &mut Emitter<'_>, of: Of, lag: u32) -> Place {
        let base = self.st.address(self.spot(of, lag));
        let piece = match of {
            Of::Queries => return Place { base, ..self.bases[0] },
            Of::Keys => return Place { base, ..self.bases[1] },
            Of::Values => self.values,
            Of::Maxima => self.maxima,
            Of::Sums => self.sums,
            Of::Totals => self.totals,
        };
        Place { object: self.st.whole(e, piece), base, offset: piece.at as i32 }
    }

    fn buffer(&mut self, e: &mut Emitter<'_>, piece: Piece, lag: u32) -> Place {
        self.st.buffer(e, piece, lag)
    }

    /// The pair a job's weights, rows or results are of, by how many bodies ago it came in.
    fn lags(&self, job: usize) -> [u32; 3] {
        let start = if let Job::Scores(..) = self.jobs[job] { 0 } else { self.lag[3] };
        [start, start + self.lanes.stream_lag(job), start + self.lanes.pop_lag(job)]
    }

    /// What the scores in buffers are multiplied by to be those of the softmax: where they are bounded, that is already half done.
    fn unit(&self) -> f64 {
        self.s.form.softcap.unwrap_or(self.s.form.scale)
    }

    /// Exponents that one unit of a score is, and what exponentials of base two stand for.
    fn factor(&self) -> f32 {
        (self.unit() * std::f64::consts::LOG2_E) as f32
    }

    /// From the maxima of a block of scores to those of all so far, and what old totals are multiplied by.
    fn new_maxima(&mut self, e: &mut Emitter<'_>) -> Result<(), EmitError> {
        let lag = self.lag[1];
        let state = self.tile(e, Of::Maxima, lag);
        let (tops, fades) = (self.buffer(e, self.tops, lag), self.buffer(e, self.fades[0], lag));
        let factor = e.code.imm_f(self.factor());
        for h in 0..LANES {
            let mut top = e.code.load(tops.at(h * 8));
            for by in [4, 2, 1] {
                let other = e.code.vi(Op::VSubRot, top, by);
                top = e.code.v(Op::VMaxF, &[top, other]);
            }
            let old = e.code.load(state.at(h * 8));
            let new = e.code.v(Op::VMaxF, &[old, top]);
            e.code.store(new, state.at(h * 8));
            let x = e.code.v(Op::VSubF, &[old, new]);
            let x = e.code.v(Op::VMulF, &[x, factor]);
            let fade = e.code.eup(Op::EPow2, x);
            e.code.store(fade, fades.at(h * 16));
            e.code.store(new, fades.at(h * 16 + 8));
        }
        Ok(())
    }

    /// From scores to weights and their sums.
    fn exponentials(&mut self, e: &mut Emitter<'_>) -> Result<(), EmitError> {
        let lag = self.lag[2];
        let state = self.tile(e, Of::Sums, lag);
        let [scores, weights, fades, later] =
            [self.scores, self.weights, self.fades[0], self.fades[1]].map(|p| self.buffer(e, p, lag));
        let factor = e.code.imm_f(self.factor());
        let tops: Vec<V> = (0..LANES).map(|h| e.code.load(fades.at(h * 16 + 8))).collect();
        let mut sums: Vec<[V; 2]> = Vec::new();
        for h in 0..LANES {
            let fade = e.code.load(fades.at(h * 16));
            e.code.store(fade, later.at(h * 8));
            let old = e.code.load(state.at(h * 8));
            let zero = e.code.imm(0);
            sums.push([e.code.v(Op::VMulF, &[old, fade]), zero]);
        }
        for g in 0..KEYS / 2 {
            for h in 0..LANES {
                let mut parts = Vec::new();
                for i in 0..2 {
                    let x = e.code.load(scores.at(((2 * g + i) * LANES + h) * 8));
                    let x = e.code.v(Op::VSubF, &[x, tops[h as usize]]);
                    let x = e.code.v(Op::VMulF, &[x, factor]);
                    let p = e.code.eup(Op::EPow2, x);
                    let sum = &mut sums[h as usize][i as usize];
                    *sum = e.code.v(Op::VAddF, &[*sum, p]);
                    parts.push(p);
                }
                let v = e.code.pack(&parts, Format::Bf16);
                e.code.store(v, weights.at((g * LANES + h) * 8));
            }
        }
        for h in 0..LANES {
            let sum = e.code.v(Op::VAddF, &sums[h as usize]);
            e.code.store(sum, state.at(h * 8));
        }
        Ok(())
    }

    fn take_scores(&mut self, e: &mut Emitter<'_>, job: usize, [kt, ct]: [u32; 2], [j, c]: [u32; 2], cell: V) {
        let lag = self.lags(job)[2];
        let last = self.halves > 1 || kt + 1 == self.lanes_of[0];
        let to = self.buffer(e, self.scores, lag);
        let (g, h) = (2 * j + c / self.halves, ct + c % self.halves);
        let at = to.at((g * LANES + h) * 8);
        let mut x = cell;
        if kt > 0 {
            let part = e.code.load(at);
            x = e.code.v(Op::VAddF, &[part, x]);
        }
        if last {
            x = bounded(e, self.s.form, x);
            if let Some(m) = self.mask {
                let hidden = *self.hidden[h as usize].get_or_insert_with(|| Mask::registers(e, HIDDEN));
                x = m.apply(e, hidden, x, g, h);
            }
            let top = &mut self.top[h as usize];
            *top = Some(match *top {
                Some(t) => e.code.v(Op::VMaxF, &[t, x]),
                None => x,
            });
        }
        e.code.store(x, at);
        if last
            && g + 1 == KEYS
            && let Some(top) = self.top[h as usize]
        {
            let tops = self.buffer(e, self.tops, lag);
            e.code.store(top, tops.at(h * 8));
        }
    }

    fn take_values(&mut self, e: &mut Emitter<'_>, job: usize, [kt, ct]: [u32; 2], [j, c]: [u32; 2], cell: V) {
        let lag = self.lags(job)[2];
        let to = self.tile(e, Of::Totals, lag);
        let fades = self.buffer(e, self.fades[1], lag);
        let (g, h) = (2 * j + c / self.halves, ct + c % self.halves);
        let at = to.at((g * LANES + h) * 8);
        let fade = match kt {
            0 => Some(*self.fade[h as usize].get_or_insert_with(|| e.code.load(fades.at(h * 8)))),
            _ => None,
        };
        let mut old = e.code.load(at);
        if let Some(fade) = fade {
            old = e.code.v(Op::VMulF, &[old, fade]);
        }
        let new = e.code.v(Op::VAddF, &[old, cell]);
        e.code.store(new, at);
    }

    /// The state of every tile of queries before the first pair.
    fn clear(&mut self, e: &mut Emitter<'_>) -> Result<(), EmitError> {
        let count = self.st.tiles.queries() + 1;
        for (piece, v) in [(self.maxima, HIDDEN), (self.sums, 0.0), (self.totals, 0.0)] {
            fill(e, &mut self.st, piece, count, v.to_bits() as i32)?;
        }
        Ok(())
    }

    /// Output and logarithms of every tile of queries.
    fn finish(&mut self, e: &mut Emitter<'_>, out: Option<Place>, log: Option<Place>) -> Result<(), EmitError> {
        let (rows, identity, buffers) = (self.s.v_dim as u32, self.identity, self.outputs);
        let (pieces, scale) = ([self.totals, self.maxima, self.sums], self.unit() as f32);
        turn_queries(e, &mut self.st, identity, rows, buffers, out, &mut |e, st, index, to| {
            let mut places = Vec::new();
            for piece in pieces {
                let base = e.affine(index, piece.rows as i32, piece.at as i32)?;
                places.push(Place { object: st.whole(e, piece), base, offset: 0 });
            }
            if let Some(p) = log {
                let base = e.affine(index, (LANES * 8) as i32, 0)?;
                e.ss(Op::SAdd, base, base, p.base);
                places.push(Place { base, ..p });
            }
            scaled(e, &places, rows, scale, to);
            places.iter().for_each(|p| e.free(p.base));
            Ok(())
        })
    }
}

/// Jobs and the MXU of each: those of scores and of values on MXUs of their own, if there are enough.
fn assign(halves: u32, mxus: u32, dim_tiles: u32) -> (Vec<Job>, Vec<u32>) {
    let columns = if halves > 1 { 1 } else { LANES };
    let contracted = |tiles: u32| if halves > 1 { 1 } else { tiles };
    let first = if mxus >= 2 * columns { columns } else { 0 };
    let mut jobs: Vec<(Job, u32)> = Vec::new();
    for kt in 0..contracted(dim_tiles) {
        jobs.extend((0..columns).map(|ct| (Job::Scores(kt, ct), ct % mxus)));
    }
    for kt in 0..contracted(LANES) {
        jobs.extend((0..columns).map(|ct| (Job::Values(kt, ct), first + ct % mxus)));
    }
    jobs.into_iter().unzip()
}

impl Work for Forward<'_> {
    fn weights(&self, job: usize) -> u32 {
        match self.jobs[job] {
            Job::Scores(..) if self.halves > 1 => TILE / 16 * self.lanes_of[0],
            Job::Values(..) if self.halves > 1 => TILE / 16 * LANES,
            _ => 8,
        }
    }

    fn weight(&mut self, e: &mut Emitter<'_>, job: usize, i: u32) -> (V, u32, bool) {
        let lag = self.lags(job)[0];
        match self.jobs[job] {
            Job::Scores(kt, ct) => {
                let n = self.lanes_of[0];
                let (group, lane, slot) = match self.halves {
                    1 => (ct * 8 + i, kt, i),
                    _ => (i / n, i % n, i / n * self.halves + i % n),
                };
                let from = self.tile(e, Of::Queries, lag);
                (e.code.load(from.at((group * n + lane) * 8)), slot, true)
            }
            Job::Values(kt, ct) => {
                let (group, lane) = match self.halves {
                    1 => (kt * 8 + i, ct),
                    _ => (i / LANES, i % LANES),
                };
                let from = self.buffer(e, self.weights, lag);
                (e.code.load(from.at((group * LANES + lane) * 8)), i, false)
            }
        }
    }

    fn rows(&self, job: usize) -> u32 {
        match self.jobs[job] {
            Job::Scores(..) => TILE / 16,
            Job::Values(..) => self.s.v_dim as u32 / 16,
        }
    }

    fn row(&mut self, e: &mut Emitter<'_>, job: usize, j: u32) -> [V; 2] {
        let lag = self.lags(job)[1];
        let (from, lanes, first) = match self.jobs[job] {
            Job::Scores(kt, _) => (self.tile(e, Of::Keys, lag), self.lanes_of[0], kt),
            Job::Values(kt, _) => (self.tile(e, Of::Values, lag), LANES, kt),
        };
        let lo = e.code.load(from.at((j * lanes + first) * 8));
        let hi = match self.halves > 1 && lanes > 1 {
            true => e.code.load(from.at((j * lanes + 1) * 8)),
            false if self.halves > 1 => e.code.imm(0),
            false => lo,
        };
        [lo, hi]
    }

    fn result(&mut self, e: &mut Emitter<'_>, job: usize, j: u32, c: u32, cell: V) {
        match self.jobs[job] {
            Job::Scores(kt, ct) => self.take_scores(e, job, [kt, ct], [j, c], cell),
            Job::Values(kt, ct) => self.take_values(e, job, [kt, ct], [j, c], cell),
        }
    }
}

impl Kernel for Forward<'_> {
    fn stages(&mut self) -> &mut Stages {
        &mut self.st
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }

    fn wanted(&self) -> Vec<Spot> {
        let mut list = vec![self.spot(Of::Maxima, self.lag[1]), self.spot(Of::Sums, self.lag[2])];
        for (j, job) in self.jobs.iter().enumerate() {
            let [weights, rows, results] = self.lags(j);
            match job {
                Job::Scores(..) => list.extend([self.spot(Of::Queries, weights), self.spot(Of::Keys, rows)]),
                Job::Values(..) => list.extend([self.spot(Of::Values, rows), self.spot(Of::Totals, results)]),
            }
        }
        list
    }

    fn last(&self) -> u32 {
        (0..self.jobs.len()).map(|j| self.lags(j)[2]).max().unwrap_or(0)
    }

    fn masking(&self) -> u32 {
        self.lag[0]
    }

    fn longest(&self) -> u32 {
        self.lag[2]
    }

    fn mask(&mut self, mask: Option<Mask>) {
        self.mask = mask;
    }

    fn vector(&mut self, e: &mut Emitter<'_>, after: bool) -> Result<Vec<Thread>, EmitError> {
        if after {
            return Ok(vec![Thread::of(e, 0, BODY, |e| self.new_maxima(e))?]);
        }
        (self.top, self.hidden, self.fade) = ([None; 2], [None; 2], [None; 2]);
        Ok(vec![Thread::of(e, 0, BODY, |e| self.exponentials(e))?])
    }
}

impl Body for Forward<'_> {
    fn prepare(&mut self, e: &mut Emitter<'_>, nest: &Nest) -> Result<(), EmitError> {
        self.identity.write(e)?;
        let buffers = [self.scores, self.weights, self.tops, self.fades[0], self.fades[1], self.outputs];
        prepare(e, nest, &self.padded, &buffers, &mut self.st)
    }

    fn enter(&mut self, level: usize, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        if nest.attached(2) == level {
            turn_keys(e, &mut self.st, self.identity, self.s.v_dim as u32, nest.place(2, it), self.values)?;
        }
        Ok(())
    }

    fn compute(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        self.bases = [nest.place(0, it), nest.place(1, it)];
        self.clear(e)?;
        bodies::run(self, e)?;
        let place = |i: usize| self.ix[i].map(|s| nest.place(s, it));
        let (out, log) = (place(3), place(4));
        self.finish(e, out, log)
    }
}
