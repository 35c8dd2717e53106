//! Matrix-product kernels: which operand streams, which dimensions are rows, columns and batches.

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::{DType, Format};

use super::conv::conv_kernel;
use super::fuse::{Contraction, Fusion, Product};
use super::view::View;
use crate::graph::Graph;
use crate::lower::dot::{DotKernel, Operand};
use crate::lower::expr::{Access, Kind, Node};
use crate::lower::vector::Store;

/// One dimension of the output with its strides in everything the kernel touches.
#[derive(Clone, Debug)]
pub(super) struct Dim {
    pub(super) size: u64,
    /// Canonical dimensions of the fusion it stands for, outermost first.
    pub(super) fused: Vec<usize>,
    /// Strides in the operands, in bytes.
    pub(super) operand: [i64; 2],
}

/// The formats in which the MXU of `chip` takes the operands of a product of `a` by `b`. Floats of eight bits need not be of one kind.
pub fn formats_for(chip: &ChipSpec, a: DType, b: DType) -> [Format; 2] {
    let native = |f: Format| chip.mxu_rows_per_cycle(f) > 0;
    let bytes = |f: Format| f.dtype().is_float() && f.dtype().bits() == 8;
    match (Format::of(a), Format::of(b)) {
        (Some(f), Some(g)) if native(f) && native(g) && (f == g || bytes(f) && bytes(g)) => [f, g],
        _ => [Format::Bf16; 2],
    }
}

/// The kernel of a fusion with a product.
pub fn dot_kernel(g: &Graph, chip: &ChipSpec, f: &Fusion, p: &Product) -> DotKernel {
    let node = g.node(p.node);
    let spec = match &p.spec {
        Contraction::Dot(spec) => spec,
        Contraction::Conv(spec) => return conv_kernel(g, chip, f, p, spec),
    };
    let ops = [node.args[0], node.args[1]].map(|a| g.node(a));
    let views: [&View; 2] = [&p.operands[0].1, &p.operands[1].1];
    let bytes = ops.map(|o| o.dtype.bytes() as i64);
    let stride = |side: usize, d: usize| views[side].strides[d] * bytes[side];
    let nb = spec.batch[0].len();
    let free = [spec.free(0, ops[0].dims.len()), spec.free(1, ops[1].dims.len())];
    // The product's dimensions are batches, then the left operand's own, then the right's.
    let dim =
        |out: usize, operand: [i64; 2]| Dim { size: node.dims[out], fused: p.map[out].into_iter().collect(), operand };
    let mut batches: Vec<Dim> =
        (0..nb).map(|i| dim(i, [stride(0, spec.batch[0][i]), stride(1, spec.batch[1][i])])).collect();
    let mut own: [Vec<Dim>; 2] = [Vec::new(), Vec::new()];
    for (i, &d) in free[0].iter().enumerate() {
        own[0].push(dim(nb + i, [stride(0, d), 0]));
    }
    for (i, &d) in free[1].iter().enumerate() {
        own[1].push(dim(nb + free[0].len() + i, [0, stride(1, d)]));
    }
    merge(f, &mut batches);
    let mut main: [Dim; 2] = [unit_dim(), unit_dim()];
    for side in 0..2 {
        merge(f, &mut own[side]);
        // The largest own dimension is rows or columns; the others are batches that the other operand repeats over.
        if let Some(best) = (0..own[side].len()).max_by_key(|&i| (own[side][i].size, i)) {
            main[side] = own[side].remove(best);
            batches.append(&mut own[side]);
        }
    }
    // Columns should be contiguous in the output.
    let store = &f.stores[0].1;
    let out_bytes = f.nodes[f.stores[0].0].dtype.bytes() as i64;
    let contiguous = |d: &Dim| d.fused.last().is_some_and(|&c| store.strides[c] == out_bytes);
    let swap = if contiguous(&main[1]) {
        false
    } else if contiguous(&main[0]) {
        true
    } else {
        main[1].size == 1 && main[0].size > 1
    };
    let (rows, cols) = if swap { (1, 0) } else { (0, 1) };
    let k_dim = [spec.contract[0][0], spec.contract[1][0]];
    let operand = |side: usize, own: &Dim| {
        let mut strides: Vec<i64> = batches.iter().map(|b| b.operand[side]).collect();
        strides.push(own.operand[side]);
        strides.push(stride(side, k_dim[side]));
        let (buffer, offset) = (p.operands[side].0.ix(), views[side].offset * bytes[side]);
        let access = Access { buffer, offset, strides, shifts: p.shifts[side].clone() };
        Operand { access, dtype: ops[side].dtype }
    };
    let mut order: Vec<&Dim> = batches.iter().collect();
    order.push(&main[rows]);
    order.push(&main[cols]);
    let (nodes, stores) = renumber(f, &order);
    let formats = formats_for(chip, ops[0].dtype, ops[1].dtype);
    DotKernel {
        dims: order.iter().map(|d| d.size).collect(),
        k: ops[0].dims[k_dim[0]],
        stream: operand(rows, &main[rows]),
        weights: operand(cols, &main[cols]),
        format: formats[rows],
        weights_format: formats[cols],
        nodes,
        stores,
        scalars: f.scalars.clone(),
        slides: Vec::new(),
    }
}

fn unit_dim() -> Dim {
    Dim { size: 1, fused: Vec::new(), operand: [0, 0] }
}

/// Drops sizes of one and joins neighbours that operands and epilogue walk as one.
fn merge(f: &Fusion, dims: &mut Vec<Dim>) {
    dims.retain(|d| d.size > 1);
    let accesses: Vec<&Access> = f
        .nodes
        .iter()
        .filter_map(|n| if let Kind::Load(a) = &n.kind { Some(a) } else { None })
        .chain(f.stores.iter().map(|(_, a)| a))
        .collect();
    let mut i = 0;
    while i + 1 < dims.len() {
        let (a, b) = (&dims[i], &dims[i + 1]);
        let size = b.size as i64;
        let (Some(&ca), Some(&cb)) = (a.fused.last(), b.fused.first()) else {
            i += 1;
            continue;
        };
        let last_b = *b.fused.last().unwrap_or(&cb);
        let inner = |x: &Access| x.strides[last_b];
        let both = |mask: u32| mask >> ca & 1 == mask >> cb & 1;
        let ok = (0..2).all(|s| a.operand[s] == b.operand[s] * size)
            && accesses.iter().all(|x| x.strides[ca] == inner(x) * size)
            && f.nodes.iter().all(|n| both(n.varies))
            && !f.nodes.iter().any(|n| matches!(n.kind, Kind::Iota(d) if a.fused.contains(&d) || b.fused.contains(&d)))
            && a.size * b.size <= i32::MAX as u64;
        if ok {
            let b = dims.remove(i + 1);
            let a = &mut dims[i];
            a.size *= b.size;
            a.fused.extend(b.fused);
            a.operand = b.operand;
        } else {
            i += 1;
        }
    }
}

/// The epilogue over the kernel's dimensions.
pub(super) fn renumber(f: &Fusion, order: &[&Dim]) -> (Vec<Node>, Vec<Store>) {
    let access = |a: &Access| Access {
        strides: order.iter().map(|d| d.fused.last().map_or(0, |&c| a.strides[c])).collect(),
        ..a.clone()
    };
    let bits = |mask: u32| {
        order.iter().enumerate().fold(0u32, |m, (i, d)| m | u32::from(d.fused.iter().any(|&c| mask >> c & 1 == 1)) << i)
    };
    let nodes = f
        .nodes
        .iter()
        .map(|n| {
            let mut n = n.clone();
            n.varies = bits(n.varies);
            n.kind = match n.kind {
                Kind::Load(a) => Kind::Load(access(&a)),
                Kind::Iota(c) => match order.iter().position(|d| d.fused.contains(&c)) {
                    Some(d) => Kind::Iota(d),
                    None => Kind::Splat(0),
                },
                k => k,
            };
            n
        })
        .collect();
    let stores = f.stores.iter().map(|(node, a)| Store { node: *node, access: access(a) }).collect();
    (nodes, stores)
}
