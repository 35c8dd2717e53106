//! From one sharding of a value to another, as few and as small collectives as it takes.

use super::mesh::{Axis, Mesh, Sharding, bit};

/// One collective, or a local slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Each device keeps its part along `axes`: no communication.
    Slice { dim: usize, axes: Vec<Axis> },
    /// The axes at the minor end of dimension `from` move to the minor end of dimension `to`.
    AllToAll { from: usize, to: usize, axes: Vec<Axis> },
    /// The axes at the minor end of `dim` cut it no more.
    AllGather { dim: usize, axes: Vec<Axis> },
    /// Parts keep their shape and change their place.
    Permute { to: Sharding },
    /// Partial results along `axes` are combined, and each device keeps its part of `dim`.
    ReduceScatter { dim: usize, axes: Vec<Axis> },
    /// Partial results along `axes` are combined on every device.
    AllReduce { axes: Vec<Axis> },
}

/// Bytes read or written in HBM that cost as much as one byte between chips.
pub(super) const HBM_PER_ICI: u64 = 16;

fn shared(a: &[Axis], b: &[Axis]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The steps from one sharding to another.
pub(super) fn plan(from: &Sharding, to: &Sharding, mesh: &Mesh) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut cur = from.clone();
    while cur != *to {
        let Some(step) = next(&cur, to, mesh) else { break };
        apply(&mut cur, &step);
        steps.push(step);
    }
    steps
}

/// As [`plan`] for a value whose parts along the axes `partial` are still to be combined.
pub(super) fn combine(from: &Sharding, partial: &[Axis], to: &Sharding, mesh: &Mesh) -> Vec<Step> {
    let (mut cur, mut left, mut steps) = (from.clone(), partial.to_vec(), Vec::new());
    while !left.is_empty() {
        let used = cur.used() | left.iter().fold(0, |m, &a| m | bit(a));
        let wanted = |d: usize, ok: &dyn Fn(Axis) -> bool| -> Vec<Axis> {
            let (have, want) = (&cur.dims[d], &to.dims[d]);
            if !want.starts_with(have) {
                return Vec::new();
            }
            want[have.len()..].iter().copied().take_while(|&a| ok(a)).collect()
        };
        let find = |ok: &dyn Fn(Axis) -> bool| {
            (0..cur.dims.len()).map(|d| (d, wanted(d, ok))).find(|(_, axes)| !axes.is_empty())
        };
        let step = if let Some((dim, axes)) = find(&|a| left.contains(&a)) {
            Step::ReduceScatter { dim, axes }
        } else if let Some((dim, axes)) = find(&|a| used & bit(a) == 0) {
            Step::Slice { dim, axes }
        } else {
            Step::AllReduce { axes: left.clone() }
        };
        match &step {
            Step::ReduceScatter { axes, .. } => left.retain(|a| !axes.contains(a)),
            Step::AllReduce { .. } => left.clear(),
            _ => {}
        }
        apply(&mut cur, &step);
        steps.push(step);
    }
    steps.extend(plan(&cur, to, mesh));
    steps
}

/// What `step` makes of a sharding.
pub(super) fn apply(cur: &mut Sharding, step: &Step) {
    match step {
        Step::Slice { dim, axes } | Step::ReduceScatter { dim, axes } => cur.dims[*dim].extend(axes),
        Step::AllReduce { .. } => {}
        Step::AllGather { dim, axes } => {
            let n = cur.dims[*dim].len().saturating_sub(axes.len());
            cur.dims[*dim].truncate(n);
        }
        Step::AllToAll { from, to, axes } => {
            let n = cur.dims[*from].len().saturating_sub(axes.len());
            cur.dims[*from].truncate(n);
            cur.dims[*to].extend(axes);
        }
        Step::Permute { to } => cur.clone_from(to),
    }
}

fn next(cur: &Sharding, to: &Sharding, mesh: &Mesh) -> Option<Step> {
    let rank = cur.dims.len().min(to.dims.len());
    let used = cur.used();
    // Smaller first: what a device keeps of what it has.
    for e in 0..rank {
        let n = cur.dims[e].len();
        if to.dims[e].starts_with(&cur.dims[e]) {
            let axes: Vec<Axis> = to.dims[e][n..].iter().copied().take_while(|&a| used & bit(a) == 0).collect();
            if !axes.is_empty() {
                return Some(Step::Slice { dim: e, axes });
            }
        }
    }
    if (0..rank).all(|d| mesh.count(&cur.dims[d]) == mesh.count(&to.dims[d])) {
        return Some(Step::Permute { to: to.clone() });
    }
    for d in 0..rank {
        let common = shared(&cur.dims[d], &to.dims[d]);
        for start in common..cur.dims[d].len() {
            let tail = &cur.dims[d][start..];
            for e in (0..rank).filter(|&e| e != d && to.dims[e].starts_with(&cur.dims[e])) {
                if to.dims[e][cur.dims[e].len()..].starts_with(tail) {
                    return Some(Step::AllToAll { from: d, to: e, axes: tail.to_vec() });
                }
            }
        }
    }
    for d in 0..rank {
        let common = shared(&cur.dims[d], &to.dims[d]);
        if common < cur.dims[d].len() {
            return Some(Step::AllGather { dim: d, axes: cur.dims[d][common..].to_vec() });
        }
    }
    None
}

/// Bytes that a device receives over `steps`, for a value of `bytes` in all; what it only copies counts a little.
pub(super) fn cost(from: &Sharding, steps: &[Step], bytes: u64, mesh: &Mesh) -> u64 {
    let mut cur = from.clone();
    let mut total = 0u64;
    let local = |s: &Sharding| bytes / s.dims.iter().map(|a| mesh.count(a)).fold(1, u64::saturating_mul).max(1);
    for step in steps {
        let before = local(&cur);
        apply(&mut cur, step);
        let after = local(&cur);
        // All but its own part of what the group holds.
        let others = |whole: u64, axes: &[Axis]| whole - whole / mesh.count(axes).max(1);
        total = total.saturating_add(match step {
            Step::Slice { .. } => after / HBM_PER_ICI,
            Step::AllToAll { axes, .. } | Step::AllGather { axes, .. } => others(after, axes),
            Step::ReduceScatter { axes, .. } => others(before, axes),
            Step::AllReduce { axes } => others(before, axes).saturating_mul(2),
            Step::Permute { .. } => after,
        });
    }
    total
}
