//! Convolutions as products through which windows slide: what is read at each position of the window is where it lies in memory already.

use super::super::{ConvSpec, ConvWindow, NodeId, NodeOp};
use super::convolution::{Conv, MAX_POSITIONS};
use super::window::Window;
use super::*;

/// Most spatial dimensions.
const MAX_SPATIAL: usize = 3;

/// Positions of a window whose weights take a good part of a small VMEM.
const MANY_POSITIONS: u64 = 64;

/// Lanes of a register: contracted features that a pass takes at once.
const LANES: u64 = 128;

/// How full registers of 8 rows are.
fn filling(rows: u64) -> f64 {
    rows as f64 / rows.next_multiple_of(8) as f64
}

impl Builder<'_> {
    /// The sum over the window of dimensions `out`, all in standard order, as a product that windows slide through. `None` if there is
    /// no such code for it.
    pub(super) fn conv_sliding(&mut self, c: &Conv<'_>, mut x: NodeId, w: NodeId, out: &[u64]) -> Option<NodeId> {
        let (name, site, n) = (c.name, c.site, c.windows.len());
        let ws = self.node(w).dims.clone();
        let positions = ws[..n].iter().try_fold(1u64, |p, &k| p.checked_mul(k))?;
        if n == 0 || n > MAX_SPATIAL || positions > MAX_POSITIONS {
            return None;
        }
        let mut windows = Vec::new();
        for (i, v) in c.windows.iter().enumerate() {
            let (cut, window) = self.seen(c, x, i + 1, v)?;
            x = cut;
            windows.push(window);
        }
        let plain =
            |i: usize, v: &ConvWindow| (v.size, v.stride, v.base, v.low) == (1, 1, 1, 0) && c.windows[i].stride == 1;
        if windows.iter().enumerate().all(|(i, v)| plain(i, v)) {
            // One position, and every point of the input: a product as any other.
            return None;
        }
        let folded = self.folds(c, &windows, ws[n], out);
        // With many positions of few features, what they see side by side makes a far shorter contraction; and where weights of many
        // positions do not fit, it can be cut anywhere.
        let last = if folded { ws[n - 1] } else { 1 };
        let passes = positions / last * (last * ws[n]).div_ceil(LANES);
        let together = (positions * ws[n]).div_ceil(LANES);
        if positions > MANY_POSITIONS && (self.pad_contraction || passes > 8 * together) {
            return None;
        }
        // Where blocks do not fit, what they need of padding and dilation is put into memory: then they can be any part of it.
        if folded || self.pad_contraction {
            x = self.with_zeros(c, x, &mut windows, out)?;
        }
        let w = self.forwards(c, w);
        let (x, w) = (self.grouped_input(c, x), self.grouped_kernel(c, w));
        let (xs, ws) = (self.cut_up(c, x), self.cut_up(c, w));
        let to = [vec![c.groups], out[..=n].to_vec(), vec![out[n + 1] / c.groups]].concat();
        let t = Shape { dims: to, dtype: c.wide };
        let parts = xs.len().max(ws.len());
        let mut sum: Option<NodeId> = None;
        // Parts `i` and `j` give products of order 2^-8(i + j): the smallest first.
        for order in (0..parts).rev() {
            for i in 0..=order {
                let (Some(&a), Some(&b)) = (xs.get(i), ws.get(order - i)) else { continue };
                let spec = ConvSpec { windows: windows.clone(), folded, useful: order == 0 };
                let y = self.push(NodeOp::Conv(spec), vec![a, b], &t, name, site.clone());
                sum = Some(match sum {
                    None => y,
                    Some(s) => self.map(MapOp::Add, &[s, y], &t, name, site.clone()),
                });
            }
        }
        let mut y = sum?;
        if c.groups > 1 {
            let perm: Vec<usize> = (1..n + 2).chain([0, n + 2]).collect();
            y = self.ordered(y, &perm, name, site);
        }
        Some(self.reshaped(y, out.to_vec(), name, site))
    }

    /// What windows `v` along dimension `d` of `x` can see of it, without what lies in front of them. `None` if that is nothing.
    fn seen(&mut self, c: &Conv<'_>, x: NodeId, d: usize, v: &Window) -> Option<(NodeId, ConvWindow)> {
        let size = self.node(x).dims[d];
        let in_front = u64::try_from(-v.low).unwrap_or(0).div_ceil(v.base);
        let low = u64::try_from(v.low + (in_front * v.base) as i64).ok()?;
        let extent = size.checked_sub(in_front).filter(|n| *n > 0)?;
        let span = v.span()?;
        if low >= span {
            return None;
        }
        let window = ConvWindow { size: v.size, stride: v.stride, dilation: v.dilation, base: v.base, low };
        if v.size == 1 && v.base == 1 && low == 0 && span <= extent {
            let x = self.cut(x, d, [in_front, v.stride, v.count], c.name, c.site);
            return Some((x, ConvWindow { stride: 1, ..window }));
        }
        Some((self.cut(x, d, [in_front, 1, extent], c.name, c.site), window))
    }

    /// Whether the window's last dimension is better contracted together with the features: where these are few, and where images are too
    /// few to fill registers but points of that dimension are not. Its operand is read once for each position.
    fn folds(&self, c: &Conv<'_>, windows: &[ConvWindow], features: u64, out: &[u64]) -> bool {
        let n = windows.len();
        let (Some(v), Some(false)) = (windows.last(), c.reversed.last()) else { return false };
        if v.size == 1 || v.dilation != 1 || v.base != 1 {
            return false;
        }
        let apart = v.size * features.div_ceil(LANES);
        let together = (v.size * features).div_ceil(LANES);
        apart >= 2 * together || filling(out[0]) * 1.5 < filling(out[n])
    }

    /// `x` with the zeros that `windows` see written out.
    fn with_zeros(&mut self, c: &Conv<'_>, x: NodeId, windows: &mut [ConvWindow], out: &[u64]) -> Option<NodeId> {
        let (name, site) = (c.name, c.site);
        let dims = self.node(x).dims.clone();
        let span = |v: &ConvWindow, count: u64| (count - 1) * v.stride + (v.size - 1) * v.dilation + 1;
        let complete = |i: usize, v: &ConvWindow| v.low == 0 && v.base == 1 && span(v, out[i + 1]) <= dims[i + 1];
        if windows.iter().enumerate().all(|(i, v)| complete(i, v)) {
            return Some(x);
        }
        // Rounded as the matrix unit would round it: what is smaller moves faster.
        let x = if c.parts == 1 { self.rounded_one(c, x) } else { x };
        let dtype = self.node(x).dtype;
        let zero = self.constant(bits_to_bytes(0, dtype), &Shape { dims: vec![], dtype }, name, site.clone());
        let mut all = vec![Window::unit(dims[0])];
        for (i, v) in windows.iter_mut().enumerate() {
            let (stride, size, low) = (v.stride, v.size, v.low as i64);
            all.push(Window { size, stride, dilation: v.dilation, base: v.base, low, count: out[i + 1] });
            (v.base, v.low) = (1, 0);
        }
        all.push(Window::unit(dims[dims.len() - 1]));
        self.padded(c.op, x, zero, &all, name, site).ok()
    }

    /// The kernel with its positions in the order in which the window passes them.
    fn forwards(&mut self, c: &Conv<'_>, w: NodeId) -> NodeId {
        let t = Shape { dims: self.node(w).dims.clone(), dtype: self.node(w).dtype };
        let backwards = |i: usize| c.reversed.get(i).copied().unwrap_or(false);
        let start = t.dims.iter().enumerate().map(|(i, &d)| if backwards(i) { d - 1 } else { 0 }).collect();
        let step = (0..t.dims.len()).map(|i| if backwards(i) { -1 } else { 1 }).collect();
        self.slice(w, start, step, &t, c.name, c.site.clone())
    }

    /// (batch, spatial, features) as (groups, batch, spatial, features).
    fn grouped_input(&mut self, c: &Conv<'_>, x: NodeId) -> NodeId {
        let (name, site) = (c.name, c.site);
        let mut dims = self.node(x).dims.clone();
        let last = dims.len() - 1;
        if c.groups == 1 || c.by_batch {
            dims.splice(..1, [c.groups, dims[0] / c.groups]);
            return self.reshaped(x, dims, name, site);
        }
        dims.splice(last.., [c.groups, dims[last] / c.groups]);
        let x = self.reshaped(x, dims, name, site);
        let perm: Vec<usize> = [last].into_iter().chain(0..last).chain([last + 1]).collect();
        self.ordered(x, &perm, name, site)
    }

    /// (spatial, features, output features) as (groups, spatial, features, output features).
    fn grouped_kernel(&mut self, c: &Conv<'_>, w: NodeId) -> NodeId {
        let (name, site) = (c.name, c.site);
        let mut dims = self.node(w).dims.clone();
        let last = dims.len() - 1;
        if c.groups == 1 {
            dims.insert(0, 1);
            return self.reshaped(w, dims, name, site);
        }
        dims.splice(last.., [c.groups, dims[last] / c.groups]);
        let w = self.reshaped(w, dims, name, site);
        let perm: Vec<usize> = [last].into_iter().chain(0..last).chain([last + 1]).collect();
        self.ordered(w, &perm, name, site)
    }

    /// An operand as numbers the matrix unit multiplies exactly, as many as the precision asks for.
    fn cut_up(&mut self, c: &Conv<'_>, x: NodeId) -> Vec<NodeId> {
        if c.parts == 1 { vec![x] } else { self.bf16_parts(x, c.parts, c.name, c.site) }
    }
}
