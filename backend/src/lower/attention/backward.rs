//! The kernel of the gradient: all three gradients from one pass over the pairs.
//!
//! Scores `K Q^T` and the gradients of weights `V dO^T` are computed again, both with keys along rows. From them come `P^T` and `dS^T`,
//! whose rows stream through `dO` and `Q` into the gradients of values and keys, and `dS^T` is latched for `K^T` to stream through it
//! into that of queries, transposed. All three add up in VMEM in f32.

use tpusim_isa::num::Format;
use tpusim_isa::op::Op;
use tpusim_isa::program::{DmaDir, SReg};

use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::nest::{Body, Iter, Nest, Stream};
use super::super::vcode::{Object, Place, V};
use super::TILE;
use super::bodies::{self, Kernel};
use super::geometry::{Array, Blocking};
use super::jobs::{Job, What, assign, schedule};
use super::mask::Mask;
use super::pairs::Tiles;
use super::pipeline::{BODY, Lanes, Thread, Work};
use super::scores::bounded;
use super::stages::{KEYS, LANES, Piece, Side, Spot, Stages, fill, prepare};
use super::transpose::{Identity, turn_keys, turn_queries};
use crate::ops::attention::Attention;

/// Streams of the kernel: operands, then results that are wanted.
const QUERIES: usize = 0;
const KEY: usize = 1;
const VALUE: usize = 2;
const OUTPUT: usize = 3;
const LOGS: usize = 4;
const DELTAS: usize = 5;

pub(super) struct Backward<'k> {
    s: &'k Attention,
    st: Stages,
    /// Streams of the gradients of queries, keys and values.
    out: [Option<usize>; 3],
    padded: Vec<usize>,
    halves: u32,
    /// Tiles of lanes of queries and keys, and of values.
    lanes_of: [u32; 2],
    identity: Identity,
    /// Transposed keys.
    keys: Piece,
    /// Sums of the gradients: of queries transposed, of keys, of values.
    sums: [Piece; 3],
    /// Buffers: scores, gradients of weights, weights, gradients of scores, gradients of queries as they leave.
    scores: Piece,
    products: Piece,
    weights: Piece,
    slopes: Piece,
    outputs: Piece,
    jobs: Vec<Job>,
    lanes: Lanes,
    /// Lag of the exponentials.
    vector: u32,
    /// Level of the grid over query heads of a key head.
    group_level: Option<usize>,
    // Of the block and the body at hand.
    bases: [Place; 6],
    mask: Option<Mask>,
}

impl<'k> Backward<'k> {
    /// Reserves what it needs.
    pub fn plan(
        s: &'k Attention,
        b: Blocking,
        e: &mut Emitter<'_>,
        loads: &[i64],
        stores: &[Option<i64>],
    ) -> Result<(Self, Vec<Stream>), EmitError> {
        let base = |i: usize| loads.get(i).copied().unwrap_or(0);
        let array = |dir, base, dims, keys| Array { dir, base, elem_bytes: 2, dims, keys, rows_of_heads: false };
        let (load, store) = (DmaDir::Load, DmaDir::Store);
        let (q, k) = ([s.queries, s.heads, s.dim], [s.keys, s.kv_heads, s.dim]);
        let (v, o) = ([s.keys, s.kv_heads, s.v_dim], [s.queries, s.heads, s.v_dim]);
        let row = |i: usize| Array {
            rows_of_heads: true,
            elem_bytes: 4,
            ..array(load, base(i), [s.queries, s.heads, 1], false)
        };
        let mut arrays = vec![
            array(load, base(QUERIES), q, false),
            array(load, base(KEY), k, true),
            array(load, base(VALUE), v, true),
            array(load, base(OUTPUT), o, false),
            row(LOGS),
            row(DELTAS),
        ];
        let padded = (0..6).filter(|&i| arrays[i].padded()).collect();
        let mut out = [None; 3];
        for (i, (dims, keys)) in [(q, false), (k, true), (v, true)].into_iter().enumerate() {
            if let Some(at) = stores.get(i).copied().flatten() {
                out[i] = Some(arrays.len());
                arrays.push(array(store, at, dims, keys));
            }
        }
        let streams = arrays.iter().map(|a| a.stream(s, &b)).collect();
        let tiles = Tiles::new(s, [b.kv_heads as u32, b.group as u32]);
        let (halves, mxus) = ((*e.chip.mxu.dim / 128).max(1), (*e.chip.mxu.count).max(1));
        let lanes_of = [s.dim, s.v_dim].map(|d| (d as u32).div_ceil(128));
        let (mut jobs, on) = assign(halves, mxus, lanes_of, [s.dim, s.v_dim].map(|d| d as u32 / 16));
        let lanes = Lanes::new(&on);
        let vector = schedule(&mut jobs, &lanes);
        let (queries, key_tiles) = (tiles.queries() + 1, tiles.keys() + 1);
        let rows = s.dim as u32;
        let f = Backward {
            s,
            st: Stages::new(e, tiles.clone(), b.spread)?,
            out,
            padded,
            halves,
            lanes_of,
            identity: Identity::reserve(e),
            keys: Piece::reserve(e, tiles.keys(), rows / 16 * LANES * 8),
            sums: [
                Piece::reserve(e, queries, rows * LANES),
                Piece::reserve(e, key_tiles, TILE * lanes_of[0]),
                Piece::reserve(e, key_tiles, TILE * lanes_of[1]),
            ],
            scores: Piece::buffers(e, TILE * LANES),
            products: Piece::buffers(e, TILE * LANES),
            weights: Piece::buffers(e, TILE / 2 * LANES),
            slopes: Piece::buffers(e, TILE / 2 * LANES),
            outputs: Piece::buffers(e, rows / 2 * LANES),
            jobs,
            lanes,
            vector,
            group_level: b.group_level(s),
            bases: [Place { object: Object(0), base: ZERO, offset: 0 }; 6],
            mask: None,
        };
        Ok((f, streams))
    }

    /// The pair a job's weights, rows and results are of, by how many bodies ago it came in.
    fn lags(&self, job: usize) -> [u32; 3] {
        let start = self.jobs[job].start;
        [start, start + self.lanes.stream_lag(job), start + self.lanes.pop_lag(job)]
    }

    /// Tiles of a stream.
    fn block(&self, stream: usize, lag: u32) -> Spot {
        let side = if stream == KEY || stream == VALUE { Side::Key } else { Side::Query };
        let rows = match stream {
            QUERIES | KEY => TILE / 2 * self.lanes_of[0],
            VALUE | OUTPUT => TILE / 2 * self.lanes_of[1],
            _ => LANES * 8,
        };
        Spot { side, lag, rows, base: self.bases[stream].base, spare: false }
    }

    /// The tile of a stream of the pair `lag` bodies ago.
    fn tile(&self, stream: usize, lag: u32) -> Place {
        Place { base: self.st.address(self.block(stream, lag)), ..self.bases[stream] }
    }

    /// Tiles of the sums of gradient `i`.
    fn sum(&self, i: usize, lag: u32) -> Spot {
        let side = if i == 0 { Side::Query } else { Side::Key };
        Spot { side, lag, rows: self.sums[i].rows, base: ZERO, spare: true }
    }

    /// Tiles of transposed keys.
    fn turned(&self, lag: u32) -> Spot {
        Spot { side: Side::Key, lag, rows: self.keys.rows, base: ZERO, spare: false }
    }

    /// From scores and gradients of weights to weights and gradients of scores.
    fn exponentials(&mut self, e: &mut Emitter<'_>) {
        let lag = self.vector;
        let [scores, products, weights, slopes] =
            [self.scores, self.products, self.weights, self.slopes].map(|p| self.st.buffer(e, p, lag));
        let (logs, deltas) = (self.tile(LOGS, lag), self.tile(DELTAS, lag));
        let form = self.s.form;
        let factor = e.code.imm_f((form.softcap.unwrap_or(form.scale) * std::f64::consts::LOG2_E) as f32);
        let log2e = e.code.imm_f(std::f32::consts::LOG2_E);
        let logs: Vec<V> = (0..LANES)
            .map(|h| {
                let x = e.code.load_row(logs.at(h * 8));
                e.code.v(Op::VMulF, &[x, log2e])
            })
            .collect();
        let deltas: Vec<V> = (0..LANES).map(|h| e.code.load_row(deltas.at(h * 8))).collect();
        let hidden = self.mask.map(|m| (m, Mask::registers(e, 0.0)));
        for g in 0..KEYS / 2 {
            for h in 0..LANES {
                let (mut ps, mut ds) = (Vec::new(), Vec::new());
                for i in 0..2 {
                    let at = ((2 * g + i) * LANES + h) * 8;
                    let score = e.code.load(scores.at(at));
                    let score = bounded(e, form, score);
                    let x = e.code.v(Op::VMulF, &[score, factor]);
                    let x = e.code.v(Op::VSubF, &[x, logs[h as usize]]);
                    let mut p = e.code.eup(Op::EPow2, x);
                    if let Some((m, hidden)) = hidden {
                        p = m.apply(e, hidden, p, 2 * g + i, h);
                    }
                    let y = e.code.load(products.at(at));
                    let y = e.code.v(Op::VSubF, &[y, deltas[h as usize]]);
                    let mut slope = e.code.v(Op::VMulF, &[y, p]);
                    if form.softcap.is_some() {
                        // The derivative of the bound: 1 - tanh^2.
                        let square = e.code.v(Op::VMulF, &[score, score]);
                        let less = e.code.v(Op::VMulF, &[slope, square]);
                        slope = e.code.v(Op::VSubF, &[slope, less]);
                    }
                    ds.push(slope);
                    ps.push(p);
                }
                for (parts, to) in [(ps, weights), (ds, slopes)] {
                    let v = e.code.pack(&parts, Format::Bf16);
                    e.code.store(v, to.at((g * LANES + h) * 8));
                }
            }
        }
    }

    /// Adds results to what is at `at`.
    fn add(e: &mut Emitter<'_>, at: Place, x: V) {
        let old = e.code.load(at);
        let new = e.code.v(Op::VAddF, &[old, x]);
        e.code.store(new, at);
    }

    /// Sums of gradients of keys or values, times `scale`, as they leave.
    fn leave(&mut self, e: &mut Emitter<'_>, i: usize, lanes: u32, scale: f64, to: Place) -> Result<(), EmitError> {
        let piece = self.sums[i];
        let object = self.st.whole(e, piece);
        e.repeat(self.st.tiles.keys() * KEYS / 2, |e, c| {
            let from = e.affine(c, (16 * lanes) as i32, piece.at as i32)?;
            let base = e.affine(c, (8 * lanes) as i32, 0)?;
            e.ss(Op::SAdd, base, base, to.base);
            let factor = e.code.imm_f(scale as f32);
            for l in 0..lanes {
                let parts: Vec<V> = (0..2)
                    .map(|i| {
                        let x = e.code.load(Place { object, base: from, offset: ((i * lanes + l) * 8) as i32 });
                        e.code.v(Op::VMulF, &[x, factor])
                    })
                    .collect();
                let v = e.code.pack(&parts, Format::Bf16);
                e.code.store(v, Place { base, ..to }.at(l * 8));
            }
            e.flush()?;
            e.free(from);
            e.free(base);
            Ok(())
        })
    }

    /// Gradients of queries, as they leave.
    fn leave_queries(&mut self, e: &mut Emitter<'_>, out: Option<Place>) -> Result<(), EmitError> {
        let (rows, identity, buffers) = (self.s.dim as u32, self.identity, self.outputs);
        let (piece, scale) = (self.sums[0], self.s.form.scale as f32);
        turn_queries(e, &mut self.st, identity, rows, buffers, out, &mut |e, st, index: SReg, to| {
            let base = e.affine(index, piece.rows as i32, piece.at as i32)?;
            let from = Place { object: st.whole(e, piece), base, offset: 0 };
            let factor = e.code.imm_f(scale);
            for i in 0..rows / 16 * LANES {
                let (g, h) = (i / LANES, i % LANES);
                let part = |e: &mut Emitter<'_>, i: u32| {
                    let x = e.code.load(from.at(((2 * g + i) * LANES + h) * 8));
                    e.code.v(Op::VMulF, &[x, factor])
                };
                let parts = [part(e, 0), part(e, 1)];
                let v = e.code.pack(&parts, Format::Bf16);
                e.code.store(v, to.at(i * 8));
            }
            e.free(base);
            Ok(())
        })
    }
}

impl Work for Backward<'_> {
    fn weights(&self, job: usize) -> u32 {
        if self.halves == 1 {
            return 8;
        }
        TILE / 16
            * match self.jobs[job].what {
                What::Scores | What::Keys => self.lanes_of[0],
                What::Weights | What::Values => self.lanes_of[1],
                What::Queries => LANES,
            }
    }

    fn weight(&mut self, e: &mut Emitter<'_>, job: usize, i: u32) -> (V, u32, bool) {
        let lag = self.lags(job)[0];
        let Job { what, kt, ct, .. } = self.jobs[job];
        let (from, n) = match what {
            What::Scores | What::Keys => (self.tile(QUERIES, lag), self.lanes_of[0]),
            What::Weights | What::Values => (self.tile(OUTPUT, lag), self.lanes_of[1]),
            What::Queries => (self.st.buffer(e, self.slopes, lag), LANES),
        };
        let transposed = what == What::Scores || what == What::Weights;
        let (group, lane, slot) = match (self.halves, transposed) {
            (1, true) => (ct * 8 + i, kt, i),
            (1, false) => (kt * 8 + i, ct, i),
            _ => (i / n, i % n, i / n * self.halves + i % n),
        };
        (e.code.load(from.at((group * n + lane) * 8)), slot, transposed)
    }

    fn rows(&self, job: usize) -> u32 {
        match self.jobs[job].what {
            What::Queries => self.s.dim as u32 / 16,
            _ => TILE / 16,
        }
    }

    fn row(&mut self, e: &mut Emitter<'_>, job: usize, j: u32) -> [V; 2] {
        let lag = self.lags(job)[1];
        let Job { what, kt, .. } = self.jobs[job];
        let (from, lanes) = match what {
            What::Scores => (self.tile(KEY, lag), self.lanes_of[0]),
            What::Weights => (self.tile(VALUE, lag), self.lanes_of[1]),
            What::Values => (self.st.buffer(e, self.weights, lag), LANES),
            What::Keys => (self.st.buffer(e, self.slopes, lag), LANES),
            What::Queries => {
                let base = self.st.address(self.turned(lag));
                (Place { object: self.st.whole(e, self.keys), base, offset: self.keys.at as i32 }, LANES)
            }
        };
        let lo = e.code.load(from.at((j * lanes + kt) * 8));
        let hi = match self.halves > 1 && lanes > 1 {
            true => e.code.load(from.at((j * lanes + 1) * 8)),
            false if self.halves > 1 => e.code.imm(0),
            false => lo,
        };
        [lo, hi]
    }

    fn result(&mut self, e: &mut Emitter<'_>, job: usize, j: u32, c: u32, cell: V) {
        let lag = self.lags(job)[2];
        let Job { what, kt, ct, .. } = self.jobs[job];
        let (to, lanes) = match what {
            What::Scores => (self.st.buffer(e, self.scores, lag), LANES),
            What::Weights => (self.st.buffer(e, self.products, lag), LANES),
            What::Values | What::Keys | What::Queries => {
                let i = [What::Queries, What::Keys, What::Values].iter().position(|&w| w == what).unwrap_or(0);
                let base = self.st.address(self.sum(i, lag));
                let lanes = [LANES, self.lanes_of[0], self.lanes_of[1]][i];
                (Place { object: self.st.whole(e, self.sums[i]), base, offset: self.sums[i].at as i32 }, lanes)
            }
        };
        let (g, h) = (2 * j + c / self.halves, ct + c % self.halves);
        if h >= lanes {
            return;
        }
        let at = to.at((g * lanes + h) * 8);
        match matches!(what, What::Scores | What::Weights) && kt == 0 {
            true => e.code.store(cell, at),
            false => Self::add(e, at, cell),
        }
    }
}

impl Kernel for Backward<'_> {
    fn stages(&mut self) -> &mut Stages {
        &mut self.st
    }

    fn lanes(&self) -> Lanes {
        self.lanes.clone()
    }

    fn wanted(&self) -> Vec<Spot> {
        let mut list = vec![self.block(LOGS, self.vector), self.block(DELTAS, self.vector)];
        for (j, job) in self.jobs.iter().enumerate() {
            let [weights, rows, results] = self.lags(j);
            match job.what {
                What::Scores => list.extend([self.block(QUERIES, weights), self.block(KEY, rows)]),
                What::Weights => list.extend([self.block(OUTPUT, weights), self.block(VALUE, rows)]),
                What::Values => list.extend([self.block(OUTPUT, weights), self.sum(2, results)]),
                What::Keys => list.extend([self.block(QUERIES, weights), self.sum(1, results)]),
                What::Queries => list.extend([self.turned(rows), self.sum(0, results)]),
            }
        }
        list
    }

    fn last(&self) -> u32 {
        (0..self.jobs.len()).map(|j| self.lags(j)[2]).max().unwrap_or(0)
    }

    fn masking(&self) -> u32 {
        self.vector
    }

    fn longest(&self) -> u32 {
        self.vector
    }

    fn mask(&mut self, mask: Option<Mask>) {
        self.mask = mask;
    }

    fn vector(&mut self, e: &mut Emitter<'_>, after: bool) -> Result<Vec<Thread>, EmitError> {
        if after {
            return Ok(Vec::new());
        }
        Ok(vec![Thread::of(e, 0, BODY, |e| {
            self.exponentials(e);
            Ok(())
        })?])
    }
}

impl Body for Backward<'_> {
    fn prepare(&mut self, e: &mut Emitter<'_>, nest: &Nest) -> Result<(), EmitError> {
        self.identity.write(e)?;
        let buffers = [self.scores, self.products, self.weights, self.slopes, self.outputs];
        prepare(e, nest, &self.padded, &buffers, &mut self.st)
    }

    fn enter(&mut self, level: usize, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        if nest.attached(KEY) == level {
            turn_keys(e, &mut self.st, self.identity, self.s.dim as u32, nest.place(KEY, it), self.keys)?;
        }
        Ok(())
    }

    fn compute(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        for (i, b) in self.bases.iter_mut().enumerate() {
            *b = nest.place(i, it);
        }
        let ends = self.group_level.and_then(|l| it.ends.get(l)).copied();
        let (queries, keys) = (self.st.tiles.queries() + 1, self.st.tiles.keys() + 1);
        fill(e, &mut self.st, self.sums[0], queries, 0)?;
        if ends.is_none_or(|x| x.first) {
            fill(e, &mut self.st, self.sums[1], keys, 0)?;
            fill(e, &mut self.st, self.sums[2], keys, 0)?;
        }
        bodies::run(self, e)?;
        let place = |i: usize| self.out[i].map(|s| nest.place(s, it));
        let [dq, dk, dv] = [place(0), place(1), place(2)];
        self.leave_queries(e, dq)?;
        if ends.is_none_or(|x| x.last) {
            if let Some(to) = dk {
                self.leave(e, 1, self.lanes_of[0], self.s.form.scale, to)?;
            }
            if let Some(to) = dv {
                self.leave(e, 2, self.lanes_of[1], 1.0, to)?;
            }
        }
        Ok(())
    }
}
