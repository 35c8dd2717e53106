//! Row groups: elementwise values and row reductions, phase by phase.

use std::collections::BTreeMap;

use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::cells::{Shape, finish_reduce, next_xlu};
use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::expr::{Kind, NodeIx};
use super::super::math::{Combine, as_v, reduce_lanes};
use super::super::vcode::{M, Place, V};
use super::*;

/// What a cell of one phase produces.
pub(super) struct Work<'w> {
    pub(super) reduces: &'w [(NodeIx, Combine)],
    pub(super) acc: &'w [V],
    pub(super) keeps: &'w [NodeIx],
    pub(super) stores: &'w [(NodeIx, Shape)],
}

impl<'k> Lowering<'k> {
    /// Values of phase `p` that do not vary over columns and that code after this point reads.
    pub(super) fn row_values(&self, p: u32) -> Vec<NodeIx> {
        let k = self.k;
        let mut used = vec![false; k.nodes.len()];
        for (ix, n) in k.nodes.iter().enumerate() {
            for &a in &n.args {
                used[a] |= self.is_col(ix) || self.phase[ix] > self.phase[a];
            }
        }
        for &(ix, s) in &self.stores {
            used[ix] |= s.varies_col;
        }
        let wanted = |i: usize| matches!(k.nodes[i].kind, Kind::Load(_) | Kind::Map(..) | Kind::Iota(_));
        (0..k.nodes.len()).filter(|&i| !self.is_col(i) && used[i] && self.phase[i] == p && wanted(i)).collect()
    }

    /// Emits phase `f.phase` and those after it for one row group.
    pub(super) fn phases_from(&mut self, e: &mut Emitter<'_>, f: &Frame<'_>) -> Result<(), EmitError> {
        let last = self.phase.iter().copied().max().unwrap_or(0);
        let row_values = self.row_values(f.phase);
        let count: u32 = row_values.iter().map(|&i| if self.is_row(i) { self.parts } else { 1 }).sum();
        let reduces: Vec<(NodeIx, Combine)> = (0..self.k.nodes.len())
            .filter(|&i| self.phase[i] == f.phase + 1)
            .filter_map(|i| if let Kind::RowReduce(how) = self.k.nodes[i].kind { Some((i, how)) } else { None })
            .collect();
        let width = self.parts as usize;
        e.with_pinned(count + reduces.len() as u32 * self.parts, |e, regs| {
            let mut f = f.clone();
            let (row_regs, acc) = regs.split_at(count as usize);
            let mut free = row_regs.iter().copied();
            let mut memo = Memo::default();
            for ix in row_values {
                let parts = self.eval(e, &f, ix, 0, &mut memo)?;
                let want = if self.is_row(ix) { width } else { 1 };
                let home: Vec<V> = free.by_ref().take(want).collect();
                for (i, &r) in home.iter().enumerate() {
                    let v = as_v(&mut e.code, parts[i % parts.len()]);
                    e.code.set(Op::VMov, r, &[v]);
                }
                f.pinned.insert(ix, home);
            }
            for (ix, s) in self.stores.clone() {
                // Outputs without columns are written once, in the phase that has them.
                if !s.varies_col && !self.is_col(ix) && self.phase[ix] == f.phase {
                    self.store(e, &f, ix, s, 0, &mut memo)?;
                }
            }
            for (k, &(ix, how)) in reduces.iter().enumerate() {
                let id = how.identity(self.k.nodes[ix].dtype);
                for &r in &acc[k * width..(k + 1) * width] {
                    e.code.raw(Op::VImm, &[r.0, id]);
                }
            }
            e.flush()?;
            self.walk_tiles(e, &f, &reduces, acc)?;
            for (k, &(ix, how)) in reduces.iter().enumerate() {
                let dtype = self.k.nodes[ix].dtype;
                let home = acc[k * width..(k + 1) * width].to_vec();
                for &r in &home {
                    let x = next_xlu(e, &mut self.xlu);
                    let v = reduce_lanes(&mut e.code, how, dtype, r, x);
                    let v = finish_reduce(e, v, dtype);
                    e.code.set(Op::VMov, r, &[v]);
                }
                f.pinned.insert(ix, home);
            }
            if f.phase < last {
                f.phase += 1;
                self.phases_from(e, &f)?;
            }
            Ok(())
        })
    }

    /// Walks the lane tiles of a row group for one phase.
    pub(super) fn walk_tiles(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        reduces: &[(NodeIx, Combine)],
        acc: &[V],
    ) -> Result<(), EmitError> {
        let phase = f.phase;
        let stores = self.stores.iter().copied();
        let stores: Vec<(NodeIx, Shape)> =
            stores.filter(|&(ix, s)| (s.varies_col || self.is_col(ix)) && self.phase[ix] == phase).collect();
        let keeps: Vec<NodeIx> = self.kept.keys().copied().filter(|&ix| self.phase[ix] == phase).collect();
        if stores.is_empty() && reduces.is_empty() && keeps.is_empty() {
            return Ok(());
        }
        let work = Work { reduces, acc, keeps: &keeps, stores: &stores };
        let ragged = !self.t.cols.is_multiple_of(128) && !reduces.is_empty();
        let whole = self.lane_tiles - u32::from(ragged);
        let unroll = self.t.lane_unroll.min(whole).max(1);
        let chunks = whole / unroll;
        let mut done = 0;
        if chunks > 1 {
            e.repeat(chunks, |e, counter| {
                let mut g = f.clone();
                g.tiles = Some((counter, unroll));
                // Targets that stay put keep their register; the others move with the loop.
                let step = e.affine(counter, (unroll * 8) as i32, 0)?;
                let mut copies: BTreeMap<SReg, SReg> = BTreeMap::new();
                for (t, r) in &mut g.addresses {
                    if self.steps(*t)[2] == 0 {
                        continue;
                    }
                    let c = match copies.get(r) {
                        Some(&c) => c,
                        None => {
                            let c = e.sreg()?;
                            e.ss(Op::SAdd, c, *r, step);
                            copies.insert(*r, c);
                            c
                        }
                    };
                    *r = c;
                }
                if !self.kept.is_empty() {
                    g.kept = e.affine(counter, (unroll * self.parts * 8) as i32, 0)?;
                }
                for tile in 0..unroll {
                    self.cell(e, &g, tile, None, &work)?;
                }
                e.flush()?;
                if g.kept != ZERO {
                    e.free(g.kept);
                }
                e.free(step);
                for c in copies.into_values() {
                    e.free(c);
                }
                Ok(())
            })?;
            done = chunks * unroll;
        }
        for tile in done..whole {
            self.cell(e, f, tile, None, &work)?;
            if (tile - done) % unroll == unroll - 1 {
                e.flush()?;
            }
        }
        if ragged {
            let m = e.code.below(Op::MLaneLt, ZERO, (self.t.cols % 128) as i32);
            self.cell(e, f, whole, Some(m), &work)?;
        }
        e.flush()
    }

    /// One cell of one phase.
    pub(super) fn cell(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        tile: u32,
        mask: Option<M>,
        w: &Work<'_>,
    ) -> Result<(), EmitError> {
        let mut memo = Memo::default();
        let width = self.parts as usize;
        for (k, &(ix, how)) in w.reduces.iter().enumerate() {
            let parts = self.eval(e, f, self.k.nodes[ix].args[0], tile, &mut memo)?;
            let dtype = self.k.nodes[ix].dtype;
            for (p, &r) in w.acc[k * width..(k + 1) * width].iter().enumerate() {
                let mut v = as_v(&mut e.code, parts[p % parts.len()]);
                if let Some(m) = mask {
                    let id = e.code.imm(how.identity(dtype));
                    v = e.code.sel(m, v, id);
                }
                e.code.set(how.op(dtype), r, &[r, v]);
            }
        }
        for &ix in w.keeps {
            let parts = self.eval(e, f, ix, tile, &mut memo)?;
            let (at, object) = self.kept[&ix];
            let place = Place { object, base: f.kept, offset: (at + tile * self.parts * 8) as i32 };
            for (p, val) in parts.iter().enumerate() {
                let v = as_v(&mut e.code, *val);
                e.code.store(v, place.at(p as u32 * 8));
            }
        }
        for &(ix, s) in w.stores {
            self.store(e, f, ix, s, tile, &mut memo)?;
        }
        Ok(())
    }
}
