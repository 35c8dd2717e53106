//! What happens to finished results: elementwise values over the output block.

use std::collections::BTreeMap;

use tpusim_isa::num::DType;
use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::cells::{Shape, load_parts, packing, store_parts, typed};
use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::expr::{Kind, NodeIx, Parts, counter, map_parts, splat};
use super::super::math::{Val, iota};
use super::super::vcode::Place;
use super::window::Planes;
use super::*;

/// Registers of the output that are finished together.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    /// The plane, from the chunk's first; empty if there are none.
    pub plane: Vec<u32>,
    /// First group of 8 rows, in units of `parts`.
    pub row: u32,
    /// Groups of 8 rows.
    pub parts: u32,
    /// Lane tile, from the site's first.
    pub tile: u32,
}

impl<'k> Lowering<'k> {
    /// Applies the epilogue to one cell.
    pub(super) fn epilogue(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        cell: &Cell,
        product: Parts,
    ) -> Result<(), EmitError> {
        let mut memo: BTreeMap<NodeIx, Parts> = BTreeMap::new();
        for (ix, shape) in self.stores.clone() {
            // A single row or column has one cell; the others are padding.
            if cell.row > 0 && !shape.varies_row || cell.tile > 0 && !shape.varies_col {
                continue;
            }
            let value = self.eval(e, s, ix, cell, &product, &mut memo)?;
            let place = self.cell_place(s, &shape, cell);
            store_parts(e, &shape, place, cell.parts.max(packing(shape.dtype)), &value);
        }
        Ok(())
    }

    pub(super) fn cell_place(&self, s: &Site<'_>, shape: &Shape, cell: &Cell) -> Place {
        let base = s.blocks[&shape.stream];
        let rows = cell.row * cell.parts / packing(shape.dtype) * shape.lane_tiles * 8;
        let rows = if shape.varies_row { rows } else { 0 };
        let cols = if shape.varies_col { cell.tile * 8 } else { 0 };
        let plane = self.planes.blocks.get(&shape.stream).map_or(0, |pitch| Planes::output(&cell.plane, pitch));
        Place { base, ..s.nest.place(shape.stream, s.it) }.at(plane + rows + cols)
    }

    pub(super) fn eval(
        &mut self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        ix: NodeIx,
        cell: &Cell,
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
            Kind::Counter(c) => vec![counter(e, *c)?],
            Kind::Splat(bits) => vec![splat(&mut e.code, *bits, node.dtype)],
            Kind::Load(_) => {
                let shape = self.loads[&ix];
                let place = self.cell_place(s, &shape, cell);
                let mut regs = load_parts(e, &shape, place, cell.parts.max(packing(shape.dtype)), &mut self.xlu);
                // A plane of one group leaves the rest of packed registers empty.
                regs.truncate(cell.parts as usize);
                regs.into_iter().map(|v| typed(e, v, node.dtype)).collect()
            }
            Kind::Iota(d) => self.iota(e, s, *d, node.dtype, cell)?,
            Kind::Map(..) => {
                let mut vals = Vec::with_capacity(node.args.len());
                for &a in &node.args {
                    vals.push(self.eval(e, s, a, cell, product, memo)?);
                }
                map_parts(&mut e.code, &k.nodes, ix, &vals)
            }
            Kind::RowReduce(_) | Kind::ColReduce(..) => product.clone(),
        };
        memo.insert(ix, value.clone());
        Ok(value)
    }

    pub(super) fn iota(
        &self,
        e: &mut Emitter<'_>,
        s: &Site<'_>,
        d: usize,
        dtype: DType,
        cell: &Cell,
    ) -> Result<Parts, EmitError> {
        let Cell { row, parts, tile, .. } = *cell;
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
        let mut shared: BTreeMap<(SReg, Vec<u32>, bool), SReg> = BTreeMap::new();
        let chunk_rows = self.t.chunk as u32;
        let steps = |shape: &Shape| -> Vec<u32> {
            if let Some(pitch) = self.planes.blocks.get(&shape.stream) {
                return (0..pitch.len()).map(|i| self.planes.chunk_out(i, pitch)).collect();
            }
            let rows = chunk_rows / (8 * packing(shape.dtype)) * 8 * shape.lane_tiles;
            vec![if shape.varies_row { rows } else { 0 }]
        };
        for shape in self.loads.values().chain(self.stores.iter().map(|(_, s)| s)) {
            let base = s.nest.place(shape.stream, s.it).base;
            let steps = steps(shape);
            let key = (base, steps.clone(), shape.varies_col);
            let reg = match shared.get(&key) {
                Some(&r) => r,
                None => {
                    let r = e.sreg()?;
                    e.si(Op::SAddi, r, base, 0);
                    for (&c, &step) in s.chunk.iter().zip(&steps).filter(|(c, step)| **c != ZERO && **step != 0) {
                        let t = e.affine(c, step as i32, 0)?;
                        e.ss(Op::SAdd, r, r, t);
                        e.free(t);
                    }
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
        let chunk = if self.planes.is_empty() { s.chunk.first().copied() } else { None };
        s.first_row = e.affine(chunk.unwrap_or(ZERO), chunk_rows as i32, 0)?;
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
        let out = e.affine(ZERO, 0, 0)?;
        self.site_addresses(e, s, out)?;
        // Planes, each with groups of rows of its own; without windows, all rows are one.
        let (planes, rows) = match self.planes.is_empty() {
            true => (1, self.t.chunk as u32 / 8),
            false => (self.planes.chunk_planes(), self.planes.groups),
        };
        for plane in 0..planes {
            let at = self.planes.group(plane * rows).map(|(at, _)| at).unwrap_or_default();
            let first = Planes::output(&at, &self.planes.acc_pitch);
            for g in 0..rows.div_ceil(parts) {
                for tile in 0..self.out_tiles {
                    let product = (0..parts)
                        .map(|p| {
                            let row = (g * parts + p).min(rows - 1);
                            let offset = (first + (row * self.out_tiles + tile) * 8) as i32;
                            Val::V(e.code.load(Place { object: self.acc.1, base: s.acc, offset }))
                        })
                        .collect();
                    self.epilogue(e, s, &Cell { plane: at.clone(), row: g, parts, tile }, product)?;
                    e.flush()?;
                }
            }
        }
        self.drop_site(e, s);
        e.free(out);
        Ok(())
    }
}
