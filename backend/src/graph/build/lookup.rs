//! Gathers from small tables and scatters into small arrays, as reductions on the vector unit.
//!
//! A DMA for each window costs some 15 cycles whatever its size. Comparing a place with every place there is takes about as long for
//! 1024 pairs, most of it broadcasts along lanes, so for tables of a few hundred elements the vector unit is faster: every place
//! selects its element, and all others count as nothing.

use tpusim_isa::num::{DType, DTypeKind};

use super::super::NodeId;
use super::gather::{Axis, Ints, row_major};
use super::*;
use crate::hlo::GatherDims;
use crate::lower::math::{Combine, Direction, MapOp};

/// Cycles of the DMA of one window, and of one update with its two DMAs, on any chip about.
const WINDOW: u64 = 15;
const UPDATE: u64 = 50;

/// Cycles that the operations on DMAs take besides: launch and latency.
const START: u64 = 3000;

/// Cycles of comparing and selecting in `pairs` lanes, as measured on v5e.
fn cycles(pairs: u64) -> u64 {
    pairs.div_ceil(1024).saturating_mul(16)
}

impl Builder<'_> {
    /// A gather from a table so small that every place is compared with all; `None` if it is not, or if windows are neither whole
    /// dimensions nor single elements of them. `batch` is the shape of the places.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn lookup(
        &mut self,
        d: &GatherDims,
        slice: &[u64],
        x: NodeId,
        indices: Value,
        batch: &[u64],
        t: &Shape,
        site: &(String, String),
    ) -> Option<NodeId> {
        let dims = self.node(x).dims.clone();
        let whole = |k: usize| slice[k] == dims[k];
        let single = (0..dims.len()).all(|k| whole(k) || slice[k] == 1);
        if !single || !d.operand_batching_dims.is_empty() || batch.len() + 2 > MAX_RANK || t.dtype.bytes() > 4 {
            return None;
        }
        let (outer, inner): (Vec<usize>, Vec<usize>) = (0..dims.len()).partition(|&k| !whole(k));
        let size = |of: &[usize]| of.iter().map(|&k| dims[k]).product::<u64>();
        let (places, width) = (size(&outer), size(&inner));
        let count = batch.iter().try_fold(1u64, |n, &d| n.checked_mul(d))?;
        let pairs = count.next_multiple_of(128).checked_mul(places)?.checked_mul(width)?;
        if cycles(pairs) > count * WINDOW + START {
            return None;
        }
        let name = "gather";
        // Places of the table, in the order of the dimensions that are indexed.
        let strides = row_major(&outer.iter().map(|&k| dims[k]).collect::<Vec<_>>());
        let map: Vec<usize> = (0..batch.len()).collect();
        let mut c = Ints { b: self, dims: batch.to_vec(), name, site: site.clone() };
        let mut axes = Vec::new();
        for (k, &a) in d.start_index_map.iter().enumerate() {
            let a = a as usize;
            if let Some(i) = outer.iter().position(|&o| o == a) {
                let index = c.index(indices, d.index_vector_dim as usize, k, &map);
                axes.push(Axis { index, limit: dims[a] - 1, stride: strides[i] });
            }
        }
        let (place, unit) = c.places(&axes)?;
        c.dims = [&[places, width], batch].concat();
        let place = c.spread(place, (2..2 + batch.len()).collect());
        let step = c.value(unit as i64, DType::I32);
        let place = if unit == 1 { place } else { c.map(MapOp::Mul, &[place, step], DType::I32) };
        let here = c.iota(0);
        let hit = c.map(MapOp::Compare(Direction::Eq, false), &[place, here], DType::I1);

        let perm: Vec<usize> = outer.iter().chain(&inner).copied().collect();
        let moved = Shape { dims: perm.iter().map(|&k| dims[k]).collect(), dtype: t.dtype };
        let table = c.b.transpose(x, perm, &moved, name, site.clone());
        let flat = Shape { dims: vec![places, width], dtype: t.dtype };
        let table = c.b.reshape(table, &flat, name, site.clone());
        let mut small = Ints { b: c.b, dims: flat.dims, name, site: site.clone() };
        let table = small.bits(table);
        let table = c.spread(table, vec![0, 1]);
        let none = c.value(0, DType::I32);
        let found = c.map(MapOp::Select, &[hit, table, none], DType::I32);
        let words = c.b.reduce_dims(Combine::Or, found, &[0], DType::I32, name, site);
        c.dims.remove(0);
        let y = c.with_bits(words, t.dtype);

        let kept: Vec<u64> =
            (0..dims.len()).filter(|&k| !d.collapsed_slice_dims.contains(&(k as i64))).map(|k| slice[k]).collect();
        let (mut at_window, mut at_batch) = (0..kept.len(), kept.len()..);
        let y = self.reshape(y, &Shape { dims: [&kept[..], batch].concat(), dtype: t.dtype }, name, site.clone());
        let perm: Vec<usize> = (0..t.dims.len())
            .filter_map(|k| if d.offset_dims.contains(&(k as i64)) { at_window.next() } else { at_batch.next() })
            .collect();
        Some(self.transpose(y, perm, t, name, site.clone()))
    }

    /// A scatter of rows of `width` elements into `array`, whose rows are the places, if it is so small that every update is compared
    /// with all of them and the order of updates does not matter.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn tally(
        &mut self,
        how: Combine,
        array: NodeId,
        place: NodeId,
        inside: Option<NodeId>,
        updates: NodeId,
        width: u64,
        site: &(String, String),
    ) -> Option<NodeId> {
        let name = "scatter";
        let t = Shape { dims: self.node(array).dims.clone(), dtype: self.node(array).dtype };
        let (places, count) = (self.node(array).elements() / width, self.node(place).elements());
        let pairs = places.next_multiple_of(128).checked_mul(width)?.checked_mul(count.next_multiple_of(8))?;
        let ordered = t.dtype.is_float() && !matches!(how, Combine::Max | Combine::Min);
        if ordered || cycles(pairs) > count * UPDATE + 2 * START {
            return None;
        }
        let mut c = Ints { b: self, dims: vec![count], name, site: site.clone() };
        let (place, inside) = (c.part(place, 0), inside.map(|i| c.part(i, 0)));
        // Types without infinities have no neutral element.
        let wide = if t.dtype.is_float() && t.dtype.bytes() == 1 { DType::F32 } else { t.dtype };
        let rows = Shape { dims: vec![count, width], dtype: t.dtype };
        let updates = c.b.reshape(updates, &rows, name, site.clone());
        let rows = Shape { dtype: wide, ..rows };
        let updates = c.b.map(MapOp::Convert, &[updates], &rows, name, site.clone());
        c.dims = vec![count, width, places];
        let (place, here) = (c.spread(place, vec![0]), c.iota(2));
        let mut hit = c.map(MapOp::Compare(Direction::Eq, false), &[place, here], DType::I1);
        if let Some(inside) = inside {
            let inside = c.spread(inside, vec![0]);
            hit = c.map(MapOp::And, &[hit, inside], DType::I1);
        }
        let full = c.shape(wide);
        let none = contract::bits_to_bytes(how.identity(wide), wide);
        let none = c.b.constant(none, &full, name, site.clone());
        let updates = c.spread(updates, vec![0, 1]);
        let counted = c.map(MapOp::Select, &[hit, updates, none], wide);
        let sums = self.reduce_dims(how, counted, &[0], wide, name, site);
        let turned = Shape { dims: vec![places, width], dtype: wide };
        let sums = self.transpose(sums, vec![1, 0], &turned, name, site.clone());
        let all = Shape { dims: t.dims.clone(), dtype: wide };
        let sums = self.reshape(sums, &all, name, site.clone());
        let array = self.map(MapOp::Convert, &[array], &all, name, site.clone());
        let sums = self.map(contract::elementwise(how), &[array, sums], &all, name, site.clone());
        Some(self.map(MapOp::Convert, &[sums], &t, name, site.clone()))
    }
}

impl Ints<'_, '_> {
    /// The bits of `x`, of up to 32, as i32.
    fn bits(&mut self, x: NodeId) -> NodeId {
        let dtype = self.b.node(x).dtype;
        match (dtype.kind(), dtype.bytes()) {
            (DTypeKind::Float, 4) => self.map(MapOp::Bitcast, &[x], DType::I32),
            (DTypeKind::Float, bytes) => {
                let bits = self.map(MapOp::Bitcast, &[x], if bytes == 2 { DType::U16 } else { DType::U8 });
                self.map(MapOp::Convert, &[bits], DType::I32)
            }
            _ => self.map(MapOp::Convert, &[x], DType::I32),
        }
    }

    /// What [`Self::bits`] made of values of `dtype`.
    fn with_bits(&mut self, x: NodeId, dtype: DType) -> NodeId {
        match (dtype.kind(), dtype.bytes()) {
            (DTypeKind::Float, 4) => self.map(MapOp::Bitcast, &[x], dtype),
            (DTypeKind::Float, bytes) => {
                let bits = self.map(MapOp::Convert, &[x], if bytes == 2 { DType::U16 } else { DType::U8 });
                self.map(MapOp::Bitcast, &[bits], dtype)
            }
            _ => self.map(MapOp::Convert, &[x], dtype),
        }
    }
}
