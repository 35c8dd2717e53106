//! Values in a cell: where its registers come from and go to.

use std::collections::BTreeMap;

use tpusim_isa::num::DType;
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::cells::{Shape, load_parts, packing, store_parts, typed};
use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::expr::{Kind, NodeIx, Parts, counter, map_parts, splat};
use super::super::math::{Val, iota};
use super::super::vcode::{Place, V};
use super::*;

impl<'k> Lowering<'k> {
    /// VMEM rows from one plane, one row group and one lane tile to the next.
    pub(super) fn steps(&self, t: Target) -> [u32; 3] {
        match t {
            Target::Transposed(w) => {
                let t = &self.transposes[w];
                let plane = if t.from.varies_plane { t.rows * self.lane_tiles } else { 0 };
                [plane, self.parts * self.lane_tiles * 8, 8]
            }
            Target::Stream(stream) => {
                let Some(s) = self.shape(stream) else { return [0; 3] };
                let plane = if s.varies_plane { s.plane_rows } else { 0 };
                let group = if s.varies_row { self.parts / packing(s.dtype) * s.lane_tiles * 8 } else { 0 };
                [plane, group, if s.varies_col { 8 } else { 0 }]
            }
        }
    }

    pub(super) fn shape(&self, stream: usize) -> Option<Shape> {
        let loads = self.loads.values().filter_map(|s| if let Source::Stream(s) = s { Some(*s) } else { None });
        loads.chain(self.stores.iter().map(|(_, s)| *s)).find(|s| s.stream == stream)
    }

    /// Address registers of everything cells touch at (plane, group), the loop over tiles included if there is one. Targets with
    /// the same base and steps share a register.
    pub(super) fn set_addresses(&self, e: &mut Emitter<'_>, f: &mut Frame<'_>) -> Result<(), EmitError> {
        let mut shared: BTreeMap<(u8, u32, [u32; 3]), SReg> = BTreeMap::new();
        let mut targets: Vec<Target> = self
            .loads
            .values()
            .map(|s| match s {
                Source::Stream(s) => Target::Stream(s.stream),
                Source::Transposed(w) => Target::Transposed(*w),
            })
            .collect();
        targets.extend(self.stores.iter().map(|(_, s)| Target::Stream(s.stream)));
        for t in targets {
            let steps = self.steps(t);
            let (base, fixed) = match t {
                Target::Stream(s) => (f.nest.place(s, f.it).base, 0),
                Target::Transposed(w) => (ZERO, self.transposes[w].at),
            };
            let r = match shared.get(&(base.0, fixed, steps)) {
                Some(&r) => r,
                None => {
                    let r = e.sreg()?;
                    e.si(Op::SAddi, r, base, fixed as i32);
                    let tile = f.tiles.map_or((ZERO, 0), |(c, unroll)| (c, unroll * steps[2]));
                    for (counter, step) in [(f.plane, steps[0]), (f.group, steps[1]), tile] {
                        if counter != ZERO && step != 0 {
                            let t = e.affine(counter, step as i32, 0)?;
                            e.ss(Op::SAdd, r, r, t);
                            e.free(t);
                        }
                    }
                    shared.insert((base.0, fixed, steps), r);
                    r
                }
            };
            f.addresses.insert(t, r);
        }
        Ok(())
    }

    /// Gives the address registers of `f` back.
    pub(super) fn drop_addresses(&self, e: &mut Emitter<'_>, f: &mut Frame<'_>) {
        let mut regs: Vec<SReg> = std::mem::take(&mut f.addresses).into_values().collect();
        regs.sort();
        regs.dedup();
        for r in regs {
            e.free(r);
        }
    }

    pub(super) fn place(&self, f: &Frame<'_>, s: &Shape, tile: u32) -> Place {
        let p = Place { base: f.addresses[&Target::Stream(s.stream)], ..f.nest.place(s.stream, f.it) };
        if s.varies_col { p.at(tile * 8) } else { p }
    }

    /// The parts of a load in a cell.
    pub(super) fn load(&mut self, e: &mut Emitter<'_>, f: &Frame<'_>, ix: NodeIx, tile: u32) -> Parts {
        let dtype = self.k.nodes[ix].dtype;
        let s = match self.loads[&ix] {
            Source::Transposed(w) => {
                let object = self.transposes[w].object;
                let place = Place { object, base: f.addresses[&Target::Transposed(w)], offset: (tile * 8) as i32 };
                let parts = (0..self.parts).map(|p| e.code.load(place.at(p * self.lane_tiles * 8)));
                let parts: Vec<V> = parts.collect();
                return parts.into_iter().map(|v| typed(e, v, dtype)).collect();
            }
            Source::Stream(s) => s,
        };
        let place = self.place(f, &s, tile);
        let parts = load_parts(e, &s, place, self.parts, &mut self.xlu);
        parts.into_iter().map(|v| typed(e, v, dtype)).collect()
    }

    pub(super) fn eval(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        ix: NodeIx,
        tile: u32,
        memo: &mut Memo,
    ) -> Result<Parts, EmitError> {
        if let Some(p) = memo.get(&ix) {
            return Ok(p.clone());
        }
        let k = self.k;
        let node = &k.nodes[ix];
        let parts: Parts = if let Some(regs) = f.pinned.get(&ix) {
            regs.iter().map(|&v| typed(e, v, node.dtype)).collect()
        } else if let Some(&(at, object)) = self.kept.get(&ix).filter(|_| self.phase[ix] < f.phase) {
            let place = Place { object, base: f.kept, offset: (at + tile * self.parts * 8) as i32 };
            let count = if self.is_row(ix) { self.parts } else { 1 };
            let regs: Vec<V> = (0..count).map(|p| e.code.load(place.at(p * 8))).collect();
            regs.into_iter().map(|v| typed(e, v, node.dtype)).collect()
        } else {
            match &node.kind {
                Kind::Load(_) => self.load(e, f, ix, tile),
                Kind::Counter(c) => vec![counter(e, *c)?],
                Kind::Splat(bits) => vec![splat(&mut e.code, *bits, node.dtype)],
                Kind::Iota(d) => self.iota(e, f, *d, node.dtype, tile)?,
                Kind::Map(..) => {
                    let mut vals = Vec::with_capacity(node.args.len());
                    for &a in &node.args {
                        vals.push(self.eval(e, f, a, tile, memo)?);
                    }
                    map_parts(&mut e.code, &k.nodes, ix, &vals)
                }
                // Reductions are pinned before anything reads them; products belong to matrix kernels.
                Kind::RowReduce(_) | Kind::ColReduce(..) | Kind::Product => vec![Val::V(e.code.imm(0))],
            }
        };
        memo.insert(ix, parts.clone());
        Ok(parts)
    }

    pub(super) fn iota(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        d: usize,
        dtype: DType,
        tile: u32,
    ) -> Result<Parts, EmitError> {
        let n = self.k.n();
        let start = match self.level_dim.iter().position(|&x| x == d) {
            Some(l) => f.nest.start(e, f.it, l)?,
            None => e.affine(ZERO, 0, 0)?,
        };
        let step = |e: &mut Emitter<'_>, counter: SReg, by: u32| -> Result<(), EmitError> {
            if counter != ZERO {
                let t = e.affine(counter, by as i32, 0)?;
                e.ss(Op::SAdd, start, start, t);
                e.free(t);
            }
            Ok(())
        };
        let parts = if d == n - 1 {
            if let Some((counter, unroll)) = f.tiles {
                step(e, counter, unroll * 128)?;
            }
            vec![Val::V(iota(&mut e.code, dtype, Some(Op::VLaneId), start, (tile * 128) as i32))]
        } else if d == n - 2 {
            step(e, f.group, self.parts * 8)?;
            (0..self.parts).map(|p| Val::V(iota(&mut e.code, dtype, Some(Op::VSubId), start, (p * 8) as i32))).collect()
        } else {
            if n >= 3 && d == n - 3 {
                step(e, f.plane, 1)?;
            }
            vec![Val::V(iota(&mut e.code, dtype, None, start, 0))]
        };
        e.free(start);
        Ok(parts)
    }

    pub(super) fn store(
        &mut self,
        e: &mut Emitter<'_>,
        f: &Frame<'_>,
        ix: NodeIx,
        s: Shape,
        tile: u32,
        memo: &mut Memo,
    ) -> Result<(), EmitError> {
        let parts = self.eval(e, f, ix, tile, memo)?;
        let place = self.place(f, &s, tile);
        store_parts(e, &s, place, self.parts, &parts);
        Ok(())
    }
}
