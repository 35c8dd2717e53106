//! Reductions of few short rows as elementwise operations on slices.
//!
//! The gradient of keys that several query heads share is a sum over these heads, of rows as short as a head. A kernel that steps through
//! such groups of rows moves little at a time; slices are strided reads of one elementwise kernel, which may be part of another one.

use tpusim_isa::num::DType;

use super::super::{NodeId, NodeOp};
use super::contract::elementwise;
use super::*;
use crate::lower::math::{Combine, MapOp};

/// Slices, at most: a kernel reads each for itself.
const MOST: u64 = 8;
/// Elements of a slice that lie together, from which on steps through groups are long enough.
const SHORT: u64 = 4096;

impl Builder<'_> {
    /// A reduction of dimension `d` of `x`, if that is short, lies between others, and `x` is an array in memory anyway.
    pub(super) fn few_rows(
        &mut self,
        how: Combine,
        x: NodeId,
        d: usize,
        name: &'static str,
        site: &(String, String),
    ) -> Option<NodeId> {
        let (dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        let behind: u64 = dims[d + 1..].iter().product();
        let between = d > 0 && d + 1 < dims.len() && dims[..d].iter().product::<u64>() > 1;
        if !between || !(2..=MOST).contains(&dims[d]) || behind > SHORT || !dtype.is_float() || !self.in_memory(x) {
            return None;
        }
        let thin = [&dims[..d], &[1], &dims[d + 1..]].concat();
        let out = [&dims[..d], &dims[d + 1..]].concat();
        let shape = |dims: &[u64], dtype| Shape { dims: dims.to_vec(), dtype };
        let mut sum = None;
        for i in 0..dims[d] {
            let mut start = vec![0; dims.len()];
            start[d] = i;
            let part = self.slice(x, start, vec![1; dims.len()], &shape(&thin, dtype), name, site.clone());
            let part = self.reshape(part, &shape(&out, dtype), name, site.clone());
            // Narrow floats are summed in f32.
            let part = self.map(MapOp::Convert, &[part], &shape(&out, DType::F32), name, site.clone());
            sum = Some(match sum {
                None => part,
                Some(s) => self.map(elementwise(how), &[s, part], &shape(&out, DType::F32), name, site.clone()),
            });
        }
        Some(self.map(MapOp::Convert, &[sum?], &shape(&out, dtype), name, site.clone()))
    }

    /// Whether a value is stored whatever reads it, if only as another type or in another shape.
    fn in_memory(&self, mut x: NodeId) -> bool {
        loop {
            let n = self.node(x);
            match &n.op {
                NodeOp::Param(_) | NodeOp::Result(_) | NodeOp::Dot(_) | NodeOp::Conv(_) => return true,
                NodeOp::Reshape | NodeOp::Transpose(_) | NodeOp::Slice { .. } | NodeOp::Map(MapOp::Convert) => {
                    x = n.args[0]
                }
                _ => return false,
            }
        }
    }
}
