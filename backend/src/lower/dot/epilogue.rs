//! What happens to finished results: elementwise values over the output block.

use std::collections::BTreeMap;

use tpusim_isa::num::DType;
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::cells::{Shape, load_parts, packing, store_parts, typed};
use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::expr::{Kind, NodeIx, Parts, map_parts, splat};
use super::super::math::{Val, iota};
use super::super::vcode::Place;
use super::*;

impl<'k> Lowering<'k> {
    /// Applies the epilogue to one cell: `parts` registers of rows at group `row` (in units of `parts` registers), lane tile `tile`
    /// relative to the site.
    pub(super) fn epilogue(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        row: u32,
        parts: u32,
        tile: u32,
        product: Parts,
    ) -> Result<(), EmitError> {
        let mut memo: BTreeMap<NodeIx, Parts> = BTreeMap::new();
        for (ix, shape) in self.stores.clone() {
            // A single row or column has one cell; the others are padding.
            if row > 0 && !shape.varies_row || tile > 0 && !shape.varies_col {
                continue;
            }
            let value = self.eval(e, s, ix, row, parts, tile, &product, &mut memo)?;
            let place = self.cell_place(s, &shape, row, parts, tile);
            store_parts(e, &shape, place, parts, &value);
        }
        Ok(())
    }

    pub(super) fn cell_place(&self, s: &Site<'_>, shape: &Shape, row: u32, parts: u32, tile: u32) -> Place {
        let base = s.blocks[&shape.stream];
        let rows = if shape.varies_row { row * parts / packing(shape.dtype) * shape.lane_tiles * 8 } else { 0 };
        let cols = if shape.varies_col { tile * 8 } else { 0 };
        Place { base, ..s.nest.place(shape.stream, s.it) }.at(rows + cols)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn eval(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        ix: NodeIx,
        row: u32,
        parts: u32,
        tile: u32,
        product: &Parts,
        memo: &mut BTreeMap<NodeIx, Parts>,
    ) -> Result<Parts, EmitError> {
        if let Some(p) = memo.get(&ix) {
            return Ok(p.clone());
        }
        let k = self.k;
        let node = &k.nodes[ix];
        let value: Parts = match &node.kind {
            Kind::Product => product.clone(),
            Kind::Splat(bits) => vec![splat(&mut e.code, *bits, node.dtype)],
            Kind::Load(_) => {
                let shape = self.loads[&ix];
                let place = self.cell_place(s, &shape, row, parts, tile);
                let regs = load_parts(e, &shape, place, parts, &mut self.xlu);
                regs.into_iter().map(|v| typed(e, v, node.dtype)).collect()
            }
            Kind::Iota(d) => self.iota(e, s, *d, node.dtype, row, parts, tile)?,
            Kind::Map(..) => {
                let mut vals = Vec::with_capacity(node.args.len());
                for &a in &node.args {
                    vals.push(self.eval(e, s, a, row, parts, tile, product, memo)?);
                }
                map_parts(&mut e.code, &k.nodes, ix, &vals)
            }
            Kind::RowReduce(_) | Kind::ColReduce(..) => product.clone(),
        };
        memo.insert(ix, value.clone());
        Ok(value)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn iota(
        &self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        d: usize,
        dtype: DType,
        row: u32,
        parts: u32,
        tile: u32,
    ) -> Result<Parts, EmitError> {
        let n = self.k.dims.len();
        let start = match self.level_dim.iter().position(|&x| x == d) {
            Some(l) => s.nest.start(e, s.it, l)?,
            None => e.affine(ZERO, 0, 0)?,
        };
        let value = if d == n - 1 {
            e.ss(Op::SAdd, start, start, s.first_col);
            vec![Val::V(iota(&mut e.code, dtype, Some(Op::VLaneId), start, (tile * 128) as i32))]
        } else if d == n - 2 {
            e.ss(Op::SAdd, start, start, s.first_row);
            let at = (row * parts * 8) as i32;
            (0..parts).map(|p| Val::V(iota(&mut e.code, dtype, Some(Op::VSubId), start, at + (p * 8) as i32))).collect()
        } else {
            vec![Val::V(iota(&mut e.code, dtype, None, start, 0))]
        };
        e.free(start);
        Ok(value)
    }

    /// Addresses of the accumulators and blocks for the step whose columns start `out` rows into a tile row.
    pub(super) fn site_addresses(&self, e: &mut Emitter<'_>, s: &mut Site<'_>, out: SReg) -> Result<(), EmitError> {
        s.acc = e.sreg()?;
        e.ss(Op::SAdd, s.acc, s.acc_chunk, out);
        let mut shared: BTreeMap<(SReg, u32, bool), SReg> = BTreeMap::new();
        let chunk_rows = self.t.chunk as u32;
        for shape in self.loads.values().chain(self.stores.iter().map(|(_, s)| s)) {
            let base = s.nest.place(shape.stream, s.it).base;
            let per_chunk =
                if shape.varies_row { chunk_rows / (8 * packing(shape.dtype)) * 8 * shape.lane_tiles } else { 0 };
            let key = (base, per_chunk, shape.varies_col);
            let reg = match shared.get(&key) {
                Some(&r) => r,
                None => {
                    let r = e.affine(s.chunk, per_chunk as i32, 0)?;
                    e.ss(Op::SAdd, r, r, base);
                    if shape.varies_col {
                        e.ss(Op::SAdd, r, r, out);
                    }
                    shared.insert(key, r);
                    r
                }
            };
            s.blocks.insert(shape.stream, reg);
        }
        s.first_col = e.sreg()?;
        e.si(Op::SMuli, s.first_col, out, 16);
        s.first_row = e.affine(s.chunk, chunk_rows as i32, 0)?;
        Ok(())
    }

    pub(super) fn drop_site(&self, e: &mut Emitter<'_>, s: &mut Site<'_>) {
        let mut regs: Vec<SReg> = std::mem::take(&mut s.blocks).into_values().collect();
        regs.sort();
        regs.dedup();
        for r in regs.into_iter().chain([s.acc, s.first_col, s.first_row]) {
            e.free(r);
        }
    }

    /// Epilogue over the finished accumulators, for outputs packed deeper than the pushes.
    pub(super) fn finish_block(&mut self, e: &mut Emitter<'_>, s: &mut Site<'_>) -> Result<(), EmitError> {
        let parts = FINISH_PARTS as u32;
        let groups = self.t.chunk as u32 / (8 * parts);
        let out = e.affine(ZERO, 0, 0)?;
        self.site_addresses(e, s, out)?;
        for g in 0..groups {
            for tile in 0..self.out_tiles {
                let product = (0..parts)
                    .map(|p| {
                        let offset = (((g * parts + p) * self.out_tiles + tile) * 8) as i32;
                        Val::V(e.code.load(Place { object: self.acc.1, base: s.acc, offset }))
                    })
                    .collect();
                self.epilogue(e, s, g, parts, tile, product)?;
                e.flush()?;
            }
        }
        self.drop_site(e, s);
        e.free(out);
        Ok(())
    }
}
