//! Convolution kernels: which dimensions are rows and columns, and how windows slide over the operand in memory.
//!
//! Output features are columns. Rows are images, and the spatial dimensions are planes, so that moving the window is moving by whole
//! planes in VMEM. Where there are few images and the window's last dimension is folded into the contraction, the last spatial
//! dimension is rows and the images are planes.

use tpusim_isa::chip::ChipSpec;

use super::fuse::{Fusion, Product};
use super::product::{Dim, formats_for, renumber};
use super::view::View;
use crate::graph::{ConvSpec, Graph, NodeId};
use crate::lower::dot::{DotKernel, Operand, Slide};
use crate::lower::expr::Access;

/// The operand that a convolution cannot read as it lies, if any: features of the left one must be neighbours, and those or the output
/// features of the right one. A folded window needs the whole rows it contracts in one run.
pub(super) fn unfit(g: &Graph, n: NodeId, spec: &ConvSpec, operands: &[(NodeId, View); 2]) -> Option<usize> {
    let args = &g.node(n).args;
    let [x, w] = [0, 1].map(|i| (&g.node(args[i]).dims, &operands[i].1.strides));
    // Nothing steps along dimensions of one.
    let along = |(dims, strides): (&Vec<u64>, &Vec<i64>), d: usize, step: i64| dims[d] == 1 || strides[d] == step;
    let last = x.0.len() - 1;
    let features = x.0[last] as i64;
    if !along(x, last, 1) || spec.folded && !along(x, last - 1, features) {
        return Some(0);
    }
    let (o, i) = (w.0.len() - 1, w.0.len() - 2);
    if !(along(w, o, 1) || along(w, i, 1)) || spec.folded && !along(w, i - 1, features * w.1[i]) {
        return Some(1);
    }
    None
}

/// How full registers of 8 rows are.
fn filling(rows: u64) -> f64 {
    rows as f64 / rows.next_multiple_of(8) as f64
}

/// The kernel of a fusion with a convolution.
pub(super) fn conv_kernel(g: &Graph, chip: &ChipSpec, f: &Fusion, p: &Product, spec: &ConvSpec) -> DotKernel {
    let node = g.node(p.node);
    let ops = [node.args[0], node.args[1]].map(|a| g.node(a));
    let views = [&p.operands[0].1, &p.operands[1].1];
    let bytes = ops.map(|o| o.dtype.bytes() as i64);
    let strides = |side: usize| views[side].strides.iter().map(|s| s * bytes[side]).collect::<Vec<i64>>();
    let (x, w) = (strides(0), strides(1));
    let n = spec.windows.len();
    let (images, features, outputs) = (1, n + 2, n + 2);
    let dim = |d: usize| Dim { size: node.dims[d], fused: p.map[d].into_iter().collect(), operand: [0, 0] };
    // Spatial dimensions, outermost first: output dimension `i + 2`, dimension `i + 2` of the operand and `i + 1` of the kernel.
    let mut slides: Vec<(usize, Slide)> = (0..n)
        .map(|i| {
            let v = spec.windows[i];
            let slide = Slide {
                size: v.size,
                stride: v.stride,
                dilation: v.dilation,
                base: v.base,
                low: v.low,
                extent: ops[0].dims[i + 2],
                step: x[i + 2],
                weights: w[i + 1],
            };
            (i + 2, slide)
        })
        .collect();
    let mut contracted = ops[0].dims[features];
    if spec.folded
        && let Some((_, last)) = slides.last_mut()
    {
        contracted *= last.size;
        // Windows that begin at the last elements would reach beyond the row: none does.
        last.extent = (last.extent + 1).saturating_sub(last.size);
        last.size = 1;
    }
    let (mut rows, mut row_stride) = (images, x[1]);
    // Rows are read one after the other, so none may lie outside the input.
    let free = slides
        .last()
        .is_some_and(|(_, s)| s.size == 1 && s.base == 1 && s.low == 0 && s.span(node.dims[n + 1]) <= s.extent);
    if free
        && filling(node.dims[n + 1]) > filling(node.dims[1])
        && let Some((d, last)) = slides.pop()
    {
        (rows, row_stride) = (d, last.step * last.stride as i64);
        let images =
            Slide { size: 1, stride: 1, dilation: 1, base: 1, low: 0, extent: node.dims[1], step: x[1], weights: 0 };
        slides.insert(0, (1, images));
    }
    // What has one plane and one position is no dimension.
    slides.retain(|(d, s)| node.dims[*d] > 1 || s.size > 1 || s.low > 0);
    let mut order = Vec::new();
    let (mut x_strides, mut w_strides) = (Vec::new(), Vec::new());
    if node.dims[0] > 1 {
        order.push(dim(0));
        x_strides.push(x[0]);
        w_strides.push(w[0]);
    }
    for (d, s) in &slides {
        order.push(dim(*d));
        x_strides.push(s.step * s.stride as i64);
        w_strides.push(0);
    }
    order.extend([dim(rows), dim(outputs)]);
    x_strides.extend([row_stride, bytes[0]]);
    // Windows folded into the contraction continue it.
    let k_stride = if w[n + 1] == 0 { w[n] } else { w[n + 1] };
    let k_stride = if k_stride == 0 { bytes[1] } else { k_stride };
    w_strides.extend([w[n + 2], k_stride]);
    let operand = |side: usize, strides: Vec<i64>| Operand {
        access: Access {
            buffer: p.operands[side].0.ix(),
            offset: views[side].offset * bytes[side],
            strides,
            shifts: p.shifts[side].clone(),
        },
        dtype: ops[side].dtype,
    };
    let (nodes, stores) = renumber(f, &order.iter().collect::<Vec<_>>());
    let formats = formats_for(chip, ops[0].dtype, ops[1].dtype);
    DotKernel {
        dims: order.iter().map(|d| d.size).collect(),
        k: contracted,
        stream: operand(0, x_strides),
        weights: operand(1, w_strides),
        format: formats[0],
        weights_format: formats[1],
        nodes,
        stores,
        scalars: f.scalars.clone(),
        slides: slides.into_iter().map(|(_, s)| s).collect(),
    }
}
