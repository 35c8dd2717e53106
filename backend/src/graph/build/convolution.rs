//! Convolutions as matrix products.
//!
//! Most are one product through which windows slide ([`super::conv_window`]). What that does not take, many spatial dimensions and
//! windows of many positions, goes through slices: the input, padded and dilated, is sliced with the strides of the window at each of
//! its positions. Where memory allows, the slices are put side by side and one product contracts positions and features together.
//! Otherwise, and with groups, which are batch dimensions, each slice is contracted with the kernel's slice, and the products are summed
//! in f32. With one input feature per group there is nothing to contract: the vector unit multiplies and adds.

use super::super::{DotSpec, NodeId, NodeOp};
use super::contract::precision_parts;
use super::window::{Names, Window};
use super::*;
use crate::hlo::{Attr, ConvDims, Op};

/// Most positions of a window.
pub(super) const MAX_POSITIONS: u64 = 512;

/// Most slices that are put side by side at once.
const MAX_PARTS: u64 = 64;

/// Most positions that are put side by side all at once.
const MAX_DIRECT: u64 = 16;

/// Most elements that slices put side by side have.
const MAX_PATCHES: u64 = 1 << 29;

/// A convolution in standard order: input (batch, spatial, feature), kernel (spatial, input feature, output feature).
#[derive(Clone)]
pub(super) struct Conv<'a> {
    pub op: &'a Op,
    pub name: &'static str,
    pub site: &'a (String, String),
    pub windows: Vec<Window>,
    /// Whether positions of the kernel run backwards.
    pub reversed: Vec<bool>,
    pub groups: u64,
    /// Groups share the batch, not the features.
    pub by_batch: bool,
    /// Type of the sums.
    pub wide: DType,
    /// Whether factors in f32 are rounded to bf16, as the matrix unit does by default.
    pub rounds: bool,
    /// Numbers in bf16 that f32 factors are cut into.
    pub parts: usize,
}

impl Conv<'_> {
    /// Whether all that the windows see fits in memory at once, and is put together in few steps.
    fn fits_patches(kernel: &[u64], positions: u64, out: &[u64]) -> bool {
        let elements = out[..out.len() - 1].iter().chain(kernel).try_fold(1u64, |n, &d| n.checked_mul(d));
        let parts = kernel[..kernel.len() - 1].iter().fold(0u64, |n, &d| n.saturating_add(d));
        (positions <= MAX_PARTS || parts <= 4 * MAX_PARTS) && elements.is_some_and(|n| n <= MAX_PATCHES)
    }
}

/// All indices of a box, in row-major order.
fn positions(sizes: &[u64]) -> Vec<Vec<u64>> {
    sizes
        .iter()
        .fold(vec![vec![]], |all, &n| all.iter().flat_map(|at| (0..n).map(|k| [&at[..], &[k]].concat())).collect())
}

fn order(first: Option<i64>, spatial: &[i64], last: &[i64]) -> Vec<usize> {
    first.iter().chain(spatial).chain(last).map(|&d| d as usize).collect()
}

impl Builder<'_> {
    pub(super) fn convolution(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let (Some(Attr::Conv(d)), &[x, w]) = (op.attrs.get("dimension_numbers"), args) else {
            return Err(self.error(op.opcode.name(), op.loc, "needs `dimension_numbers` and two operands"));
        };
        let d: &ConvDims = d;
        let kinds = [x, w].map(|a| self.node(a).dtype);
        let float = kinds.iter().all(|k| k.is_float()) && t.dtype.is_float();
        let int = kinds.iter().all(|k| k.is_int() && k.bits() == 8) && t.dtype.is_int() && t.dtype.bits() == 32;
        if !float && !int {
            let m = "products of these types are not lowered yet; floats, and 8-bit integers to 32 bits, are";
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        let x = self.ordered(x, &order(Some(d.input_batch), &d.input_spatial, &[d.input_feature]), name, site);
        let kernel = order(None, &d.kernel_spatial, &[d.kernel_input_feature, d.kernel_output_feature]);
        let w = self.ordered(w, &kernel, name, site);
        let output = order(Some(d.output_batch), &d.output_spatial, &[d.output_feature]);
        let (xs, ws) = (self.node(x).dims.clone(), self.node(w).dims.clone());
        let n = d.input_spatial.len();
        let out: Vec<u64> = output.iter().map(|&d| t.dims[d]).collect();
        let zero = bits_to_bytes(0, t.dtype);
        if out.contains(&0) || xs.contains(&0) || ws.contains(&0) {
            return Ok(self.constant(zero, t, name, site.clone()));
        }
        let names = Names { base: "lhs_dilation", dilation: "rhs_dilation" };
        let windows = self.windows(op, &names, &xs[1..=n], &ws[..n], &out[1..=n])?;
        let groups = |name: &str| op.attrs.int(name).unwrap_or(1).max(1) as u64;
        let (features, batches) = (groups("feature_group_count"), groups("batch_group_count"));
        let conv = Conv {
            op,
            name,
            site,
            windows,
            reversed: match op.attrs.get("window_reversal") {
                Some(Attr::Bools(v)) if v.len() == n => v.clone(),
                _ => vec![false; n],
            },
            groups: features.max(batches),
            by_batch: batches > 1,
            wide: if float { DType::F32 } else { DType::I32 },
            rounds: precision_parts(op) == 1,
            parts: precision_parts(op),
        };
        let y = self.conv_sum(&conv, x, w, &out)?;
        let mut back = vec![0; output.len()];
        output.iter().enumerate().for_each(|(i, &d)| back[d] = i);
        let y = self.ordered(y, &back, name, site);
        Ok(self.map(MapOp::Convert, &[y], t, name, site.clone()))
    }

    pub(super) fn ordered(&mut self, x: NodeId, perm: &[usize], name: &'static str, site: &(String, String)) -> NodeId {
        let n = self.node(x);
        let t = Shape { dims: perm.iter().map(|&d| n.dims[d]).collect(), dtype: n.dtype };
        self.transpose(x, perm.to_vec(), &t, name, site.clone())
    }

    pub(super) fn reshaped(
        &mut self,
        x: NodeId,
        dims: Vec<u64>,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let dtype = self.node(x).dtype;
        self.reshape(x, &Shape { dims, dtype }, name, site.clone())
    }

    /// The sum over the window of dimensions `out`, all in standard order.
    fn conv_sum(&mut self, c: &Conv<'_>, x: NodeId, w: NodeId, out: &[u64]) -> Result<NodeId, LowerError> {
        let (name, site, n) = (c.name, c.site, c.windows.len());
        let (xs, ws) = (self.node(x).dims.clone(), self.node(w).dims.clone());
        let single = ws[n] == 1;
        if !single && let Some(y) = self.conv_sliding(c, x, w, out) {
            return Ok(y);
        }
        if !single && c.parts > 1 {
            return self.conv_passes(c, x, w, out);
        }
        let [x, w] = if single { [x, w].map(|a| self.factor(c, a)) } else { [x, w] };
        let window = ws[..n].iter().try_fold(1u64, |p, &k| p.checked_mul(k)).unwrap_or(u64::MAX);
        let fits = Conv::fits_patches(&ws[..=n], window, out);
        let patches = !single && c.groups == 1 && window > 1 && fits;
        if !patches && window > MAX_POSITIONS {
            let m = format!("windows of more than {MAX_POSITIONS} positions are not lowered yet");
            return Err(self.error(c.op.opcode.name(), c.op.loc, m));
        }
        let [x, w] = if patches { self.rounded(c, [x, w]) } else { [x, w] };
        let dtype = self.node(x).dtype;
        let zero = self.constant(bits_to_bytes(0, dtype), &Shape { dims: vec![], dtype }, name, site.clone());
        let ends = [Window::unit(xs[0]), Window::unit(xs[n + 1])];
        let windows = [&ends[..1], &c.windows, &ends[1..]].concat();
        let x = self.padded(c.op, x, zero, &windows, name, site)?;
        let share = out[n + 1] / c.groups;
        let grouped = c.groups > 1;
        if patches {
            return Ok(self.conv_patches(c, x, w, out));
        }
        let mut sum: Option<NodeId> = None;
        for at in positions(&ws[..n]) {
            let (mut part, mut weights) = (x, w);
            for (i, v) in c.windows.iter().enumerate() {
                part = self.cut(part, i + 1, [at[i] * v.dilation, v.stride, v.count], name, site);
                let k = if c.reversed[i] { v.size - 1 - at[i] } else { at[i] };
                weights = self.cut(weights, i, [k, 1, 1], name, site);
            }
            let product = if single {
                self.conv_scaled(c, part, weights, share)
            } else {
                self.conv_product(c, part, weights, share)
            };
            let t = Shape { dims: self.node(product).dims.clone(), dtype: c.wide };
            sum = Some(match sum {
                None => product,
                Some(s) => self.map(MapOp::Add, &[s, product], &t, name, site.clone()),
            });
        }
        let mut y = sum.unwrap_or(x);
        if grouped && !single {
            // Groups came first, as batch dimension of the products.
            let rank = self.node(y).dims.len();
            let perm: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
            y = self.ordered(y, &perm, name, site);
        }
        Ok(self.reshaped(y, out.to_vec(), name, site))
    }

    /// As [`Self::conv_sum`], in several passes of operands that the matrix unit multiplies exactly.
    fn conv_passes(&mut self, c: &Conv<'_>, x: NodeId, w: NodeId, out: &[u64]) -> Result<NodeId, LowerError> {
        let [xs, ws] = [x, w].map(|a| self.bf16_parts(a, c.parts, c.name, c.site));
        let pass = Conv { parts: 1, ..c.clone() };
        let t = Shape { dims: out.to_vec(), dtype: c.wide };
        let mut sum: Option<NodeId> = None;
        for order in (0..xs.len().max(ws.len())).rev() {
            for i in 0..=order {
                let (Some(&a), Some(&b)) = (xs.get(i), ws.get(order - i)) else { continue };
                let y = self.conv_sum(&pass, a, b, out)?;
                sum = Some(match sum {
                    None => y,
                    Some(s) => self.map(MapOp::Add, &[s, y], &t, c.name, c.site.clone()),
                });
            }
        }
        Ok(sum.unwrap_or(x))
    }

    /// Operands as the matrix unit would round them: what is smaller moves faster.
    fn rounded(&mut self, c: &Conv<'_>, args: [NodeId; 2]) -> [NodeId; 2] {
        if !c.rounds || args.iter().any(|&a| self.node(a).dtype != DType::F32) {
            return args;
        }
        args.map(|a| self.rounded_one(c, a))
    }

    /// As [`Self::rounded`], one operand by itself.
    pub(super) fn rounded_one(&mut self, c: &Conv<'_>, a: NodeId) -> NodeId {
        if !c.rounds || self.node(a).dtype != DType::F32 {
            return a;
        }
        let t = Shape { dims: self.node(a).dims.clone(), dtype: DType::BF16 };
        self.map(MapOp::Convert, &[a], &t, c.name, c.site.clone())
    }

    /// One product of the slices for all positions, side by side, with the whole kernel.
    fn conv_patches(&mut self, c: &Conv<'_>, mut x: NodeId, w: NodeId, out: &[u64]) -> NodeId {
        let (name, site, n) = (c.name, c.site, c.windows.len());
        let ws = self.node(w).dims.clone();
        let depth: u64 = ws[..=n].iter().product();
        // Many positions are put together one dimension after the other, the last one first: more is copied, by fewer copies.
        let split = ws[..n].iter().product::<u64>() > MAX_DIRECT;
        let stages: Vec<Vec<usize>> =
            if split { (0..n).rev().map(|i| vec![i]).collect() } else { vec![(0..n).collect()] };
        for stage in stages {
            let sizes: Vec<u64> = stage.iter().map(|&i| c.windows[i].size).collect();
            let mut parts = Vec::new();
            for at in positions(&sizes) {
                let part = stage.iter().zip(at).fold(x, |part, (&i, k)| {
                    let v = c.windows[i];
                    self.cut(part, i + 1, [k * v.dilation, v.stride, v.count], name, site)
                });
                parts.push(part);
            }
            x = parts[0];
            if parts.len() > 1 {
                let (mut dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
                dims[n + 1] *= parts.len() as u64;
                x = self.push(NodeOp::Concat(n + 1), parts, &Shape { dims, dtype }, name, site.clone());
            }
        }
        let backwards = |i: usize| c.reversed.get(i).copied().unwrap_or(false);
        let start = (0..n + 2).map(|i| if backwards(i) { ws[i] - 1 } else { 0 }).collect();
        let step = (0..n + 2).map(|i| if backwards(i) { -1 } else { 1 }).collect();
        let t = Shape { dims: ws.clone(), dtype: self.node(w).dtype };
        let w = self.slice(w, start, step, &t, name, site.clone());
        let w = self.reshaped(w, vec![depth, ws[n + 1]], name, site);
        let spec = DotSpec { batch: [vec![], vec![]], contract: [vec![n + 1], vec![0]], useful: true };
        self.product(spec, &[x, w], &Shape { dims: out.to_vec(), dtype: c.wide }, name, site)
    }

    /// Products of one slice of the input with one of the kernel: ([groups], batch, spatial, output features).
    fn conv_product(&mut self, c: &Conv<'_>, x: NodeId, w: NodeId, share: u64) -> NodeId {
        let (name, site, n) = (c.name, c.site, c.windows.len());
        let (mut xs, ws) = (self.node(x).dims.clone(), self.node(w).dims.clone());
        let depth = ws[n];
        if c.groups == 1 {
            let w = self.reshaped(w, ws[n..].to_vec(), name, site);
            let spec = DotSpec { batch: [vec![], vec![]], contract: [vec![n + 1], vec![0]], useful: true };
            xs[n + 1] = ws[n + 1];
            return self.product(spec, &[x, w], &Shape { dims: xs, dtype: c.wide }, name, site);
        }
        let (mut split, group, contract) = (xs.clone(), if c.by_batch { 0 } else { n + 1 }, n + 2);
        if c.by_batch {
            split.splice(..1, [c.groups, xs[0] / c.groups]);
        } else {
            split.splice(n + 1.., [c.groups, depth]);
        }
        let x = self.reshaped(x, split.clone(), name, site);
        let w = self.reshaped(w, vec![depth, c.groups, share], name, site);
        let spec = DotSpec { batch: [vec![group], vec![1]], contract: [vec![contract], vec![0]], useful: true };
        let mut dims = vec![c.groups];
        dims.extend((0..split.len()).filter(|&d| d != group && d != contract).map(|d| split[d]));
        dims.push(share);
        self.product(spec, &[x, w], &Shape { dims, dtype: c.wide }, name, site)
    }

    /// With one input feature per group: (batch, spatial, groups, output features).
    fn conv_scaled(&mut self, c: &Conv<'_>, x: NodeId, w: NodeId, share: u64) -> NodeId {
        let (name, site, n) = (c.name, c.site, c.windows.len());
        let mut xs = self.node(x).dims.clone();
        let x = if c.by_batch {
            // (groups, batch, spatial, 1) with the groups where features of a group would be.
            let mut split = xs.clone();
            split.splice(..1, [c.groups, xs[0] / c.groups]);
            split.pop();
            let x = self.reshaped(x, split, name, site);
            let perm: Vec<usize> = (1..n + 2).chain([0]).collect();
            self.ordered(x, &perm, name, site)
        } else {
            x
        };
        if c.by_batch {
            xs[0] /= c.groups;
        }
        xs[n + 1] = c.groups;
        let narrow: Vec<usize> = (0..n + 2).collect();
        xs.push(share);
        if share == 1 {
            xs.pop();
        }
        let t = Shape { dims: xs, dtype: c.wide };
        let x = self.broadcast(x, narrow, &t, name, site.clone());
        let (wd, map) =
            if share == 1 { (vec![c.groups], vec![n + 1]) } else { (vec![c.groups, share], vec![n + 1, n + 2]) };
        let w = self.reshaped(w, wd, name, site);
        let w = self.broadcast(w, map, &t, name, site.clone());
        self.map(MapOp::Mul, &[x, w], &t, name, site.clone())
    }

    /// An operand of an elementwise product, rounded as the matrix unit would round it.
    fn factor(&mut self, c: &Conv<'_>, a: NodeId) -> NodeId {
        let (name, site) = (c.name, c.site);
        let (dims, dtype) = (self.node(a).dims.clone(), self.node(a).dtype);
        let mut y = a;
        if dtype == DType::F32 && c.rounds {
            y = self.map(MapOp::Convert, &[y], &Shape { dims: dims.clone(), dtype: DType::BF16 }, name, site.clone());
        }
        self.map(MapOp::Convert, &[y], &Shape { dims, dtype: c.wide }, name, site.clone())
    }
}
