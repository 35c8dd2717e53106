//! How the dimensions of an op's operands and results belong together.
//!
//! An op is described as Shardy describes it: by *factors*, the loops of its definition. Each dimension of an operand or result
//! is made of factors, the major one first; cutting a factor cuts every dimension that it is part of. A dimension without
//! factors must be whole on each device.

use super::MAX_FACTORS;
use crate::hlo::{Attr, Func, Op, Opcode, ReduceKind, TensorType, ValueId};
use crate::ops::attention::is_target;

/// What cutting a factor means for the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Devices compute different parts.
    Pass,
    /// Devices compute parts of a sum (product, maximum, ...), which are still to be combined.
    Reduce(ReduceKind),
    /// An indexed dimension: devices serve the indices that fall into their part.
    Indexed,
    /// Devices reduce their part by a reducer without a name; it is applied again to what they get.
    Fold,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    pub size: i64,
    pub kind: Kind,
}

/// Factors of the dimensions of one tensor.
pub(super) type Dims = Vec<Vec<usize>>;

/// The factors of one op.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub factors: Vec<Factor>,
    /// Operands, then results.
    pub tensors: Vec<Dims>,
    /// Moves or maps elements without mixing them: what propagates first.
    pub plain: bool,
}

impl Rule {
    fn new(types: &[TensorType]) -> Rule {
        let tensors = types.iter().map(|t| vec![Vec::new(); t.rank()]).collect();
        Rule { factors: Vec::new(), tensors, plain: false }
    }

    /// A factor that is dimension `d` of each tensor `t` of `at`; nothing where sizes differ or are 1.
    fn link(&mut self, types: &[TensorType], kind: Kind, at: &[(usize, usize)]) {
        let size = |&(t, d): &(usize, usize)| types.get(t).and_then(|t| t.dims.get(d)).copied();
        let Some(n) = at.first().and_then(size) else { return };
        if n <= 1 || at.iter().any(|a| size(a) != Some(n)) || self.factors.len() >= MAX_FACTORS {
            return;
        }
        // The parameters of a quantized type along its axis would have to be cut too.
        if at.iter().any(|&(t, d)| types[t].quant.as_ref().is_some_and(|q| q.axis == Some(d))) {
            return;
        }
        self.factors.push(Factor { size: n, kind });
        for &(t, d) in at {
            self.tensors[t][d] = vec![self.factors.len() - 1];
        }
    }

    /// Every dimension of these tensors is the same in all of them, but for those in `not`.
    fn link_all(&mut self, types: &[TensorType], tensors: &[usize], not: &[usize]) {
        let rank = tensors.iter().filter_map(|&t| types.get(t)).map(TensorType::rank).max().unwrap_or(0);
        for d in (0..rank).filter(|d| !not.contains(d)) {
            let at: Vec<_> = tensors.iter().map(|&t| (t, d)).collect();
            self.link(types, Kind::Pass, &at);
        }
    }
}

/// The rule that ties values of one type: what a loop carries, what a branch returns.
pub(super) fn same(ty: &TensorType, n: usize) -> Rule {
    let types = vec![ty.clone(); n];
    let mut r = Rule::new(&types);
    r.link_all(&types, &(0..n).collect::<Vec<_>>(), &[]);
    r.plain = true;
    r
}

fn dims_of(v: Option<&[i64]>) -> Vec<usize> {
    v.unwrap_or_default().iter().filter_map(|&d| usize::try_from(d).ok()).collect()
}

/// What the single op of a reducer `(a, b) -> op(a, b)` computes.
pub(super) fn reducer(func: &Func, op: &Op) -> Option<ReduceKind> {
    let block = &op.regions.first()?.block;
    let [body, ret] = block.ops.as_slice() else { return None };
    let ([a, b], [x, y]) = (block.args.as_slice(), body.operands.as_slice()) else { return None };
    if ret.operands != body.results || !((x, y) == (a, b) || (x, y) == (b, a)) {
        return None;
    }
    let boolean = func.ty(*a).tensor().is_some_and(|t| t.dtype == tpusim_isa::num::DType::I1);
    Some(match (body.opcode, boolean) {
        (Opcode::Add, false) => ReduceKind::Sum,
        (Opcode::Multiply, false) => ReduceKind::Product,
        (Opcode::Maximum, _) => ReduceKind::Max,
        (Opcode::Minimum, _) => ReduceKind::Min,
        (Opcode::And, true) | (Opcode::Multiply, true) => ReduceKind::And,
        (Opcode::Or, true) | (Opcode::Add, true) => ReduceKind::Or,
        _ => return None,
    })
}

/// The rule of `op`, which is not a loop, a branch or a manual computation.
pub(super) fn rule(func: &Func, op: &Op) -> Rule {
    let tensor =
        |v: &ValueId| func.ty(*v).tensor().cloned().unwrap_or_else(|| TensorType::new([], tpusim_isa::num::DType::I1));
    let types: Vec<TensorType> = op.operands.iter().chain(&op.results).map(tensor).collect();
    let (n, all) = (op.operands.len(), types.len());
    let mut r = Rule::new(&types);
    let everything: Vec<usize> = (0..all).collect();
    let a = &op.attrs;
    use Opcode::*;
    match op.opcode {
        _ if elementwise(op.opcode) => {
            let rank = types.last().map_or(0, TensorType::rank);
            let shaped: Vec<usize> = (0..all).filter(|&t| types[t].rank() == rank).collect();
            // Scalars next to tensors (the predicate of a selection) have no dimensions; anything else is left whole.
            let scalar = |t: usize| types[t].rank() == 0;
            if (0..all).all(|t| scalar(t) || types[t].dims == types[all - 1].dims) {
                r.link_all(&types, &shaped, &[]);
                r.plain = true;
            }
        }
        AllReduce if n == all - n => {
            for i in 0..n {
                r.link_all(&types, &[i, n + i], &[]);
            }
            r.plain = true;
        }
        CollectivePermute | CollectiveBroadcast if n == 1 => r.link_all(&types, &[0, 1], &[]),
        AllGather | ReduceScatter | AllToAll if n == all - n => {
            let names = ["all_gather_dim", "scatter_dimension", "split_dimension", "concat_dimension"];
            let not: Vec<usize> = names.iter().filter_map(|n| usize::try_from(a.int(n)?).ok()).collect();
            for i in 0..n {
                r.link_all(&types, &[i, n + i], &not);
            }
        }
        Transpose => {
            for (to, from) in dims_of(a.ints("permutation")).into_iter().enumerate() {
                r.link(&types, Kind::Pass, &[(0, from), (1, to)]);
            }
            r.plain = true;
        }
        BroadcastInDim => {
            let dims = dims_of(a.ints("broadcast_dimensions"));
            for d in 0..types[1].rank() {
                match dims.iter().position(|&x| x == d) {
                    Some(from) if types[0].dims.get(from) == types[1].dims.get(d) => {
                        r.link(&types, Kind::Pass, &[(0, from), (1, d)]);
                    }
                    _ => r.link(&types, Kind::Pass, &[(1, d)]),
                }
            }
            r.plain = true;
        }
        Reshape => {
            reshape(&mut r, &types);
            r.plain = true;
        }
        Constant => {
            if matches!(a.get("value"), Some(Attr::Dense(l)) if l.is_splat()) {
                r.link_all(&types, &[0], &[]);
            }
        }
        Iota => r.link_all(&types, &[0], &[]),
        Reverse => r.link_all(&types, &everything, &dims_of(a.ints("dimensions"))),
        Sort => r.link_all(&types, &everything, &dims_of(a.int("dimension").as_ref().map(std::slice::from_ref))),
        ChloTopK => r.link_all(&types, &everything, &[types[0].rank().saturating_sub(1)]),
        Concatenate => {
            r.link_all(&types, &everything, &dims_of(a.int("dimension").as_ref().map(std::slice::from_ref)));
        }
        // Dimensions that keep their size are whole in operand and result.
        Slice | DynamicSlice | Pad => {
            let (x, y) = (types[0].clone(), types[all - 1].clone());
            let padded = |d: usize| {
                op.opcode == Pad
                    && ["edge_padding_low", "edge_padding_high", "interior_padding"]
                        .iter()
                        .any(|n| a.ints(n).is_some_and(|v| v.get(d).is_some_and(|&p| p != 0)))
            };
            for d in (0..x.rank()).filter(|&d| x.dims[d] == y.dims[d] && !padded(d)) {
                r.link(&types, Kind::Pass, &[(0, d), (all - 1, d)]);
            }
            if op.opcode == DynamicSlice {
                for d in (0..x.rank()).filter(|&d| y.dims[d] == 1) {
                    r.link(&types, Kind::Indexed, &[(0, d)]);
                }
            }
        }
        DynamicUpdateSlice => {
            for d in (0..types[0].rank()).filter(|&d| types[0].dims[d] == types[1].dims[d]) {
                r.link(&types, Kind::Pass, &[(0, d), (1, d), (all - 1, d)]);
            }
            for d in (0..types[0].rank()).filter(|&d| types[1].dims[d] == 1) {
                r.link(&types, Kind::Indexed, &[(0, d), (all - 1, d)]);
            }
        }
        Reduce => reduce(&mut r, &types, func, op),
        ReduceWindow | SelectAndScatter => window(&mut r, &types, op),
        DotGeneral => dot(&mut r, &types, op),
        Dot => {
            let (l, k) = (types[0].rank(), types[1].rank());
            let out = types[2].rank();
            if l == 2 {
                r.link(&types, Kind::Pass, &[(0, 0), (2, 0)]);
            }
            if k == 2 {
                r.link(&types, Kind::Pass, &[(1, 1), (2, out - 1)]);
            }
            r.link(&types, Kind::Reduce(ReduceKind::Sum), &[(0, l - 1), (1, 0)]);
        }
        Convolution => convolution(&mut r, &types, op),
        CustomCall if a.text("call_target_name").is_some_and(is_target) => attention(&mut r, &types, n),
        Gather => super::gather::gather_rule(&mut r, &types, op),
        Scatter => super::gather::scatter_rule(&mut r, &types, func, op),
        Fft => {
            let inner = a.ints("fft_length").map_or(1, <[i64]>::len);
            for d in 0..types[0].rank().saturating_sub(inner) {
                r.link(&types, Kind::Pass, &[(0, d), (1, d)]);
            }
        }
        Cholesky | TriangularSolve => {
            for d in 0..types[0].rank().saturating_sub(2) {
                r.link(&types, Kind::Pass, &everything.iter().map(|&t| (t, d)).collect::<Vec<_>>());
            }
        }
        BitcastConvert => {
            for d in 0..types[0].rank().min(types[1].rank()) {
                r.link(&types, Kind::Pass, &[(0, d), (1, d)]);
            }
        }
        _ => {}
    }
    r
}

impl Rule {
    /// As [`Self::link`], for the rules of other files.
    pub(super) fn tie(&mut self, types: &[TensorType], kind: Kind, at: &[(usize, usize)]) {
        self.link(types, kind, at);
    }
}

/// Whether each element of the results is computed from the elements of the operands at the same place.
pub(super) fn elementwise(opcode: Opcode) -> bool {
    use Opcode::*;
    let chlo = opcode.name().starts_with("chlo.");
    match opcode {
        ChloConstant | ChloRaggedDot | ChloScan | ChloTopK => false,
        Abs | Add | And | Atan2 | Cbrt | Ceil | Clamp | Compare | Complex | Convert | Cosine | CountLeadingZeros
        | Divide | Exponential | ExponentialMinusOne | Floor | Imag | IsFinite | Log | LogPlusOne | Logistic | Map
        | Maximum | Minimum | Multiply | Negate | Not | Or | Popcnt | Power | Real | ReducePrecision | Remainder
        | RoundNearestAfz | RoundNearestEven | Rsqrt | Select | ShiftLeft | ShiftRightArithmetic
        | ShiftRightLogical | Sign | Sine | Sqrt | Subtract | Tan | Tanh | UniformDequantize | UniformQuantize
        | Xor => true,
        SdyAllGather
        | SdyAllReduce
        | SdyAllSlice
        | SdyAllToAll
        | SdyCollectivePermute
        | SdyReduceScatter
        | SdyReshard
        | SdyShardingConstraint => true,
        _ => chlo,
    }
}

/// Attention and its gradient: sequences, and key heads with the query heads that share them.
fn attention(r: &mut Rule, types: &[TensorType], operands: usize) {
    let logs = 4;
    let all: Vec<(usize, usize)> = (0..types.len()).map(|t| (t, 0)).collect();
    r.link(types, Kind::Pass, &all);
    let Some(&kv_heads) = types.get(1).and_then(|t| t.dims.get(2)).filter(|n| **n > 1) else { return };
    let heads = types.first().and_then(|t| t.dims.get(2)).copied().unwrap_or(0);
    r.factors.push(Factor { size: kv_heads, kind: Kind::Pass });
    // Query heads of one key head may be apart where nothing is added up over them.
    let mut own = vec![r.factors.len() - 1];
    if operands == 3 && heads > kv_heads {
        r.factors.push(Factor { size: heads / kv_heads, kind: Kind::Pass });
        own.push(r.factors.len() - 1);
    }
    let keys = if operands == 3 { vec![1, 2] } else { vec![1, 2, operands + 1, operands + 2] };
    for (t, dims) in r.tensors.iter_mut().enumerate() {
        let d = if t == logs { 1 } else { 2 };
        if let Some(slot) = dims.get_mut(d) {
            *slot = if keys.contains(&t) { own[..1].to_vec() } else { own.clone() };
        }
    }
}

/// Groups of dimensions with equal products, cut into common factors from the major end.
fn reshape(r: &mut Rule, types: &[TensorType]) {
    if types.iter().any(|t| t.quant.as_ref().is_some_and(|q| q.axis.is_some()) || t.elements() == Some(0)) {
        return;
    }
    let (x, y) = (&types[0].dims, &types[1].dims);
    let (mut i, mut j) = (0, 0);
    // What is left of the current dimensions.
    let (mut a, mut b) = (x.first().copied().unwrap_or(1), y.first().copied().unwrap_or(1));
    // Whether the rest of the dimension is still made of common factors.
    while i < x.len() && j < y.len() && r.factors.len() < MAX_FACTORS {
        if a == 1 {
            i += 1;
            a = x.get(i).copied().unwrap_or(1);
            continue;
        }
        if b == 1 {
            j += 1;
            b = y.get(j).copied().unwrap_or(1);
            continue;
        }
        let size = a.min(b);
        if a.max(b) % size != 0 {
            // No common factor from here: skip to where the products meet again.
            let (mut p, mut q) = (a, b);
            while p != q {
                if p < q {
                    i += 1;
                    let Some(&d) = x.get(i) else { return };
                    p = p.saturating_mul(d);
                } else {
                    j += 1;
                    let Some(&d) = y.get(j) else { return };
                    q = q.saturating_mul(d);
                }
            }
            (i, j) = (i + 1, j + 1);
            (a, b) = (x.get(i).copied().unwrap_or(1), y.get(j).copied().unwrap_or(1));
            continue;
        }
        r.factors.push(Factor { size, kind: Kind::Pass });
        r.tensors[0][i].push(r.factors.len() - 1);
        r.tensors[1][j].push(r.factors.len() - 1);
        (a, b) = (a / size, b / size);
    }
}

fn reduce(r: &mut Rule, types: &[TensorType], func: &Func, op: &Op) {
    let n = op.operands.len() / 2;
    let reduced = dims_of(op.attrs.ints("dimensions"));
    let kind = if n == 1 { reducer(func, op) } else { None }.map_or(Kind::Fold, Kind::Reduce);
    let mut to = 0;
    for d in 0..types[0].rank() {
        if reduced.contains(&d) {
            r.link(types, kind, &(0..n).map(|i| (i, d)).collect::<Vec<_>>());
        } else {
            let at: Vec<_> = (0..n).map(|i| (i, d)).chain((0..n).map(|i| (2 * n + i, to))).collect();
            r.link(types, Kind::Pass, &at);
            to += 1;
        }
    }
}

/// Dimensions that the window does not reach beyond.
fn window(r: &mut Rule, types: &[TensorType], op: &Op) {
    let trivial = |d: usize| {
        let one = |n: &str| op.attrs.ints(n).is_none_or(|v| v.get(d).is_none_or(|&x| x == 1));
        let unpadded = match op.attrs.get("padding") {
            Some(Attr::Pairs(p)) => p.get(d).is_none_or(|p| *p == [0, 0]),
            _ => true,
        };
        unpadded && ["window_dimensions", "window_strides", "base_dilations", "window_dilations"].iter().all(|n| one(n))
    };
    let inits = if op.opcode == Opcode::ReduceWindow { op.operands.len() / 2 } else { 1 };
    let shaped: Vec<usize> = (0..op.operands.len() - inits).chain(op.operands.len()..types.len()).collect();
    let not: Vec<usize> = (0..types[0].rank()).filter(|&d| !trivial(d)).collect();
    r.link_all(types, &shaped, &not);
}

fn dot(r: &mut Rule, types: &[TensorType], op: &Op) {
    let Some(Attr::Dot(dims)) = op.attrs.get("dot_dimension_numbers") else { return };
    let list = |v: &[i64]| dims_of(Some(v));
    let (lb, rb) = (list(&dims.lhs_batch), list(&dims.rhs_batch));
    let (lc, rc) = (list(&dims.lhs_contract), list(&dims.rhs_contract));
    let mut out = 0;
    for (&a, &b) in lb.iter().zip(&rb) {
        r.link(types, Kind::Pass, &[(0, a), (1, b), (2, out)]);
        out += 1;
    }
    for (t, batch, contract) in [(0, &lb, &lc), (1, &rb, &rc)] {
        for d in (0..types[t].rank()).filter(|d| !batch.contains(d) && !contract.contains(d)) {
            r.link(types, Kind::Pass, &[(t, d), (2, out)]);
            out += 1;
        }
    }
    for (&a, &b) in lc.iter().zip(&rc) {
        r.link(types, Kind::Reduce(ReduceKind::Sum), &[(0, a), (1, b)]);
    }
}

fn convolution(r: &mut Rule, types: &[TensorType], op: &Op) {
    let Some(Attr::Conv(c)) = op.attrs.get("dimension_numbers") else { return };
    let groups = |n: &str| op.attrs.int(n).unwrap_or(1);
    let d = |v: i64| usize::try_from(v).unwrap_or(usize::MAX);
    if groups("batch_group_count") != 1 {
        return;
    }
    r.link(types, Kind::Pass, &[(0, d(c.input_batch)), (2, d(c.output_batch))]);
    if groups("feature_group_count") == 1 {
        r.link(types, Kind::Pass, &[(1, d(c.kernel_output_feature)), (2, d(c.output_feature))]);
        r.link(types, Kind::Reduce(ReduceKind::Sum), &[(0, d(c.input_feature)), (1, d(c.kernel_input_feature))]);
    }
}
