//! Column reductions of a block.

use tpusim_isa::op::Op;
use tpusim_isa::program::SReg;

use super::super::cells::finish_reduce;
use super::super::emit::{EmitError, Emitter, ZERO};
use super::super::expr::{Kind, NodeIx};
use super::super::math::{Combine, as_v, reduce_sublanes};
use super::super::nest::{Iter, Nest};
use super::super::vcode::{M, Place, V};
use super::*;

impl<'k> Lowering<'k> {
    /// Column reductions of one block: one accumulator per lane tile and reduction while planes and row groups are walked.
    pub(super) fn columns(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        let reduces: Vec<(NodeIx, Combine)> = (0..self.k.nodes.len())
            .filter_map(|i| if let Kind::ColReduce(how, _) = self.k.nodes[i].kind { Some((i, how)) } else { None })
            .collect();
        let unroll = self.t.lane_unroll.min(self.lane_tiles).max(1);
        let chunks = self.lane_tiles / unroll;
        e.repeat(chunks, |e, counter| self.column_chunk(e, nest, it, &reduces, Some((counter, unroll)), 0, unroll))?;
        let rest = self.lane_tiles - chunks * unroll;
        if rest > 0 {
            self.column_chunk(e, nest, it, &reduces, None, chunks * unroll, rest)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn column_chunk(
        &mut self,
        e: &mut Emitter<'_>,
        nest: &Nest,
        it: &Iter,
        reduces: &[(NodeIx, Combine)],
        tiles: Option<(SReg, u32)>,
        first_tile: u32,
        count: u32,
    ) -> Result<(), EmitError> {
        let tiles = tiles.filter(|(c, _)| *c != ZERO);
        let frame = |plane: SReg, group: SReg| Frame {
            nest,
            it,
            plane,
            group,
            phase: 0,
            pinned: Pinned::new(),
            addresses: Addresses::new(),
            tiles,
            kept: ZERO,
        };
        let reduce_level = |l: usize| self.levels[l].ends;
        let levels: Vec<usize> = (0..self.levels.len()).filter(|&l| reduce_level(l)).collect();
        let is_first = levels.iter().all(|&l| it.ends[l].first);
        let is_last = levels.iter().all(|&l| it.ends[l].last);
        let repeats = self.repeated_rows(it);
        let masked = repeats > 0 || u64::from(self.padded_rows()) != self.t.rows;
        e.with_pinned(reduces.len() as u32 * count, |e, acc| {
            for (k, &(ix, how)) in reduces.iter().enumerate() {
                for t in 0..count as usize {
                    e.code.raw(Op::VImm, &[acc[k * count as usize + t].0, how.identity(self.k.nodes[ix].dtype)]);
                }
            }
            e.flush()?;
            let planes = self.t.planes as u32;
            e.repeat(planes, |e, plane| {
                e.repeat(self.groups(), |e, group| {
                    let mut f = frame(plane, group);
                    self.set_addresses(e, &mut f)?;
                    let masks = if masked { self.row_masks(e, group, repeats)? } else { Vec::new() };
                    for t in 0..count {
                        let mut memo = Memo::default();
                        for (k, &(ix, how)) in reduces.iter().enumerate() {
                            let dtype = self.k.nodes[ix].dtype;
                            let parts = self.eval(e, &f, self.k.nodes[ix].args[0], first_tile + t, &mut memo)?;
                            let r = acc[k * count as usize + t as usize];
                            let mut sum: Option<V> = None;
                            for p in 0..self.parts as usize {
                                let mut v = as_v(&mut e.code, parts[p % parts.len()]);
                                if let Some(&m) = masks.get(p) {
                                    let id = e.code.imm(how.identity(dtype));
                                    v = e.code.sel(m, v, id);
                                }
                                sum = Some(match sum {
                                    None => v,
                                    Some(s) => e.code.v(how.op(dtype), &[s, v]),
                                });
                            }
                            if let Some(s) = sum {
                                e.code.set(how.op(dtype), r, &[r, s]);
                            }
                        }
                    }
                    e.flush()?;
                    self.drop_addresses(e, &mut f);
                    Ok(())
                })
            })?;
            // Across blocks the accumulators live in VMEM; the last block reduces the sublanes and writes the result.
            let mut f = frame(ZERO, ZERO);
            self.set_addresses(e, &mut f)?;
            let vmem = match tiles {
                Some((c, unroll)) => e.affine(c, (unroll * 8) as i32, 0)?,
                None => ZERO,
            };
            for t in 0..count {
                for (k, &(ix, how)) in reduces.iter().enumerate() {
                    let dtype = self.k.nodes[ix].dtype;
                    let (at, object) = self.accumulators[&ix];
                    let place = Place { object, base: vmem, offset: (at + (first_tile + t) * 8) as i32 };
                    let r = acc[k * count as usize + t as usize];
                    let mut v = r;
                    if !is_first {
                        let old = e.code.load(place);
                        v = e.code.v(how.op(dtype), &[old, v]);
                    }
                    if is_last {
                        v = reduce_sublanes(&mut e.code, how, dtype, v);
                        v = finish_reduce(e, v, dtype);
                        e.code.set(Op::VMov, r, &[v]);
                        f.pinned.insert(ix, vec![r]);
                    } else {
                        e.code.store(v, place);
                    }
                }
                if is_last {
                    let mut memo = Memo::default();
                    for (ix, s) in self.stores.clone() {
                        self.store(e, &f, ix, s, first_tile + t, &mut memo)?;
                    }
                }
            }
            e.flush()?;
            if vmem != ZERO {
                e.free(vmem);
            }
            self.drop_addresses(e, &mut f);
            Ok(())
        })
    }

    /// Leading rows of this block that the block before has reduced already.
    pub(super) fn repeated_rows(&self, it: &Iter) -> u64 {
        let rows = self.k.n() - 2;
        match self.level_dim.iter().position(|&d| d == rows) {
            Some(l) if self.levels[l].ends && it.ends[l].last => {
                let l = self.levels[l];
                l.trip() * l.block - l.extent
            }
            _ => 0,
        }
    }

    /// One mask per part of a row group: true for rows inside the block that were not reduced before.
    pub(super) fn row_masks(&self, e: &mut Emitter<'_>, group: SReg, repeats: u64) -> Result<Vec<M>, EmitError> {
        let rows = (self.parts * 8) as i32;
        let end = e.affine(group, -rows, self.t.rows as i32)?;
        let start = e.affine(group, -rows, repeats as i32)?;
        let masks = (0..self.parts as i32)
            .map(|p| {
                let inside = e.code.below(Op::MSubLt, end, -8 * p);
                if repeats == 0 {
                    return inside;
                }
                let before = e.code.below(Op::MSubLt, start, -8 * p);
                let new = e.code.mnot(before);
                e.code.m2(Op::MAnd, inside, new)
            })
            .collect();
        e.free(end);
        e.free(start);
        Ok(masks)
    }
}
