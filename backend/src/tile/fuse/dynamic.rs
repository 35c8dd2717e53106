//! Views that move when the program runs, and updates of a part of an array.

use super::*;
use crate::lower::scalar::{ScalarKind, computes};
use crate::tile::view::Shift as ViewShift;

/// Operations an index may take on the scalar unit; longer computations are stored by a vector kernel and loaded.
const MAX_OPERATIONS: u32 = 64;

/// Ways in which the loads of one kernel are moved, each of which takes a scalar register.
const MAX_MOVED: usize = 10;

/// A scalar that decides what runs, computed on the scalar unit.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The last one decides.
    pub scalars: Vec<Scalar>,
    /// Stored nodes that are read.
    pub reads: Vec<NodeId>,
}

impl Planner<'_> {
    /// How the value of `n`, a scalar, gets into a register.
    pub(super) fn decision(&self, n: NodeId) -> Decision {
        let kept = BTreeSet::new();
        let mut b = Build::new(self, n, n, &kept);
        b.scalar(n);
        Decision { reads: b.reads.iter().copied().collect(), scalars: std::mem::take(&mut b.scalars) }
    }
}

impl Build<'_, '_> {
    /// Whether the kernel has a register for another load that `shifts` moves.
    pub(super) fn holds(&mut self, shifts: &[Shift]) -> bool {
        if shifts.is_empty() || self.moved.iter().any(|m| m == shifts) {
            return true;
        }
        self.moved.push(shifts.to_vec());
        self.moved.len() <= MAX_MOVED
    }

    /// What moves a view, as shifts of an access of elements of `bytes` bytes.
    pub(super) fn shifts(&mut self, shifts: &[ViewShift], bytes: i64) -> Vec<Shift> {
        let limit = |l: u64| i32::try_from(l).unwrap_or(i32::MAX);
        shifts
            .iter()
            .map(|s| Shift { scalar: self.scalar(s.index), limit: limit(s.limit), stride: s.stride * bytes })
            .collect()
    }

    /// The scalar of node `n`, which has one element.
    fn scalar(&mut self, n: NodeId) -> ScalarIx {
        if let Some(&ix) = self.scalar_memo.get(&n) {
            return ix;
        }
        let g = self.p.g;
        // Only movement of one element lies between a node and the one behind it.
        let (base, view) = self.base(n);
        let behind = g.node(base);
        let dtype = behind.dtype;
        let scalar = if behind.elements() == 1 && self.operations(base).is_some_and(|o| o <= MAX_OPERATIONS) {
            match &behind.op {
                NodeOp::Const(l) => {
                    let bits = crate::graph::register_bits(l.element(0), dtype);
                    Scalar { kind: ScalarKind::Imm(bits), args: vec![], dtype }
                }
                NodeOp::Counter(c) => Scalar { kind: ScalarKind::Counter(*c), args: vec![], dtype },
                NodeOp::Map(op) => {
                    let args = behind.args.iter().map(|&a| self.scalar(a)).collect();
                    self.note(base);
                    Scalar { kind: ScalarKind::Map(*op, self.operand(base)), args, dtype }
                }
                _ => self.fetched(base, &view),
            }
        } else {
            self.fetched(base, &view)
        };
        self.scalars.push(scalar);
        self.scalar_memo.insert(n, self.scalars.len() - 1);
        self.scalars.len() - 1
    }

    /// The scalar that `view` reads from the stored node `base`.
    fn fetched(&mut self, base: NodeId, view: &View) -> Scalar {
        self.reads.insert(base);
        let dtype = self.p.g.node(base).dtype;
        let bytes = dtype.bytes() as i64;
        let shifts = self.shifts(&view.shifts, bytes);
        let access = Access { buffer: base.ix(), offset: view.offset * bytes, strides: vec![], shifts };
        Scalar { kind: ScalarKind::Load(access), args: vec![], dtype }
    }

    /// Type of the first operand of `n` that is not a predicate.
    fn operand(&self, n: NodeId) -> DType {
        let node = self.p.g.node(n);
        let skip = usize::from(matches!(node.op, NodeOp::Map(MapOp::Select)));
        node.args.get(skip).map_or(node.dtype, |&a| self.p.g.node(a).dtype)
    }

    /// How many operations the scalar unit needs for `n`, up to a little above the most there may be; `None` if it has no code for one.
    fn operations(&self, n: NodeId) -> Option<u32> {
        let node = self.p.g.node(n);
        if self.is_stored(n) {
            return Some(0);
        }
        match &node.op {
            NodeOp::Const(l) => l.is_splat().then_some(0),
            NodeOp::Counter(_) => Some(0),
            NodeOp::Map(op) if computes(*op, self.operand(n), node.dtype) => {
                let mut sum = 1;
                for &a in &node.args {
                    let (base, _) = self.base(a);
                    // What is no map is loaded.
                    let map = matches!(self.p.g.node(base).op, NodeOp::Map(_));
                    if map && self.p.g.node(base).elements() == 1 {
                        sum += self.operations(base)?;
                    }
                    if sum > MAX_OPERATIONS {
                        break;
                    }
                }
                Some(sum)
            }
            _ => None,
        }
    }
}

impl Planner<'_> {
    /// The kernels that store an update, the last one first. The array of the operand becomes that of the result if no later step, of
    /// which `later` are the reads, wants the operand; else the operand is copied.
    pub(super) fn update(&mut self, root: NodeId, later: &BTreeSet<NodeId>) -> Vec<Fusion> {
        let n = self.g.node(root);
        let (NodeOp::DynUpdate { start, axes }, [operand, value, indices @ ..]) = (&n.op, &n.args[..]) else {
            return Vec::new();
        };
        let (operand, value) = (self.owner(*operand), *value);
        let inner = &self.g.node(value).dims;
        let view = View { offset: 0, strides: full_strides(&n.dims), shifts: Vec::new() };
        let view = view.slice(start, &vec![1; start.len()]).dynamic_slice(&n.dims, inner, axes, indices);
        let view = View { strides: strides_for(inner, &view.strides), ..view };
        let mut update = self.part(root, value, view.clone());
        if !self.may_update(operand, later) {
            let wanted = later.contains(&operand) || self.g.outputs.contains(&operand);
            if wanted && self.cost[operand.ix()] > CHEAP {
                self.stored.insert(operand);
            }
            // What can be computed where it is wanted is not copied.
            return vec![update, self.part(root, operand, View::dense(&self.g.node(operand).dims))];
        }
        if update.reads.contains(&operand) {
            // Blocks that overlap would read what others have written.
            self.stored.insert(value);
            update = self.part(root, value, view);
        }
        update.updates = Some(operand);
        if !update.reads.contains(&operand) {
            update.reads.push(operand);
        }
        vec![update]
    }

    /// The node whose array holds what `n` reads in another shape only.
    fn owner(&self, mut n: NodeId) -> NodeId {
        while matches!(self.g.node(n).op, NodeOp::Reshape)
            && self.users[n.ix()].len() == 1
            && !self.g.outputs.contains(&n)
        {
            n = self.g.node(n).args[0];
        }
        n
    }

    /// Whether the array of `n` may be overwritten by a step when those after it read `later`.
    fn may_update(&self, n: NodeId, later: &BTreeSet<NodeId>) -> bool {
        let cheap = self.cost[n.ix()] <= CHEAP && !self.stored.contains(&n);
        let own = match &self.g.node(n).op {
            NodeOp::Param(_) => self.g.donated.contains(&n),
            NodeOp::Const(_) | NodeOp::Iota(_) | NodeOp::Broadcast(_) => false,
            // A part of another array.
            NodeOp::Reshape | NodeOp::Slice { .. } | NodeOp::DynSlice(_) | NodeOp::Transpose(_) => false,
            NodeOp::Map(_) => !cheap,
            _ => true,
        };
        own && !later.contains(&n) && !self.g.outputs.contains(&n)
    }
}
