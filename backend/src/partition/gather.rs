//! Rules of `gather` and `scatter`.

use super::rule::{Kind, Rule, reducer};
use crate::hlo::{Attr, Func, Op, TensorType};

fn at(v: i64) -> usize {
    usize::try_from(v).unwrap_or(usize::MAX)
}

/// Operands: the operand, the indices. Result: batch dimensions where the indices' are, offset dimensions where windows are.
pub(super) fn gather_rule(r: &mut Rule, types: &[TensorType], op: &Op) {
    let Some(Attr::Gather(g)) = op.attrs.get("dimension_numbers") else { return };
    let sizes = op.attrs.ints("slice_sizes").unwrap_or_default();
    let window =
        |d: usize| !g.collapsed_slice_dims.contains(&(d as i64)) && !g.operand_batching_dims.contains(&(d as i64));
    // Dimensions of the indices but for that of the index vector are the result's that are no offsets, in order.
    let batch: Vec<usize> = (0..types[2].rank()).filter(|&d| !g.offset_dims.contains(&(d as i64))).collect();
    let index_dims: Vec<usize> = (0..types[1].rank()).filter(|&d| d != at(g.index_vector_dim)).collect();
    for (&i, &b) in index_dims.iter().zip(&batch) {
        let own = g.start_indices_batching_dims.iter().position(|&d| at(d) == i);
        match own.and_then(|k| g.operand_batching_dims.get(k)) {
            Some(&o) => r.tie(types, Kind::Pass, &[(0, at(o)), (1, i), (2, b)]),
            None => r.tie(types, Kind::Pass, &[(1, i), (2, b)]),
        }
    }
    let windows: Vec<usize> = (0..types[0].rank()).filter(|&d| window(d)).collect();
    for (&o, &f) in windows.iter().zip(&g.offset_dims) {
        if sizes.get(o) == types[0].dims.get(o) {
            r.tie(types, Kind::Pass, &[(0, o), (2, at(f))]);
        }
    }
    for &o in &g.start_index_map {
        if sizes.get(at(o)) == Some(&1) {
            r.tie(types, Kind::Indexed, &[(0, at(o))]);
        }
    }
}

/// Operands: the operand, the indices, the updates. More than one operand is left whole.
pub(super) fn scatter_rule(r: &mut Rule, types: &[TensorType], func: &Func, op: &Op) {
    let Some(Attr::Scatter(s)) = op.attrs.get("scatter_dimension_numbers") else { return };
    if op.operands.len() != 3 {
        return;
    }
    let window =
        |d: usize| !s.inserted_window_dims.contains(&(d as i64)) && !s.input_batching_dims.contains(&(d as i64));
    let batch: Vec<usize> = (0..types[2].rank()).filter(|&d| !s.update_window_dims.contains(&(d as i64))).collect();
    let index_dims: Vec<usize> = (0..types[1].rank()).filter(|&d| d != at(s.index_vector_dim)).collect();
    let kind = reducer(func, op);
    for (&i, &u) in index_dims.iter().zip(&batch) {
        let own = s.scatter_indices_batching_dims.iter().position(|&d| at(d) == i);
        match (own.and_then(|k| s.input_batching_dims.get(k)), kind) {
            (Some(&o), _) => r.tie(types, Kind::Pass, &[(0, at(o)), (1, i), (2, u), (3, at(o))]),
            (None, Some(kind)) => r.tie(types, Kind::Reduce(kind), &[(1, i), (2, u)]),
            (None, None) => {}
        }
    }
    let windows: Vec<usize> = (0..types[0].rank()).filter(|&d| window(d)).collect();
    for (&o, &u) in windows.iter().zip(&s.update_window_dims) {
        if types[0].dims.get(o) == types[2].dims.get(at(u)) {
            r.tie(types, Kind::Pass, &[(0, o), (2, at(u)), (3, o)]);
        }
    }
    for &o in s.scatter_dims_to_operand_dims.iter().filter(|o| s.inserted_window_dims.contains(o)) {
        r.tie(types, Kind::Indexed, &[(0, at(o)), (3, at(o))]);
    }
}
