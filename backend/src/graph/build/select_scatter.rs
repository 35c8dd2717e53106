//! Gradients of max pooling: each window of the operand selects an element, to which its element of the source is added.
//!
//! First the position that every window selects is found, by comparing strided slices in the window's order. Then every element of
//! the result looks at the windows that hold it, in their order: those are a few, since windows start a stride apart. With
//! every dimension split into whole strides and the place inside of one, neighbouring windows are shifted slices, so that nothing is
//! scattered at all.

use tpusim_isa::num::DType;

use super::super::NodeId;
use super::contract::{combination, elementwise};
use super::gather::Ints;
use super::window::{Names, Window};
use super::*;
use crate::hlo::Op;
use crate::lower::math::{Combine, Direction, MapOp};

/// Most positions of a window, and most windows that hold one element.
const MOST: u64 = 4096;

/// How the windows lie along one dimension of the result.
struct Side {
    window: Window,
    /// From one window to the next; for a single window, its size.
    stride: u64,
    /// Windows that hold an element, at most.
    depth: u64,
    /// The first whole stride that holds an element, counted from the first window.
    first: i64,
    /// Whole strides that hold elements.
    count: u64,
    /// Elements of the result.
    size: u64,
}

impl Side {
    fn new(window: Window, size: u64) -> Side {
        let stride = if window.count == 1 { window.size } else { window.stride };
        let first = window.low.div_euclid(stride as i64);
        let last = (window.low + size as i64 - 1).div_euclid(stride as i64);
        Side { window, stride, depth: window.size.div_ceil(stride), first, count: (last - first + 1) as u64, size }
    }
}

impl Builder<'_> {
    pub(super) fn select_and_scatter(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let (&[x, source, init], [select, scatter]) = (args, &op.regions[..]) else {
            return Err(self.error(op.opcode.name(), op.loc, "needs three operands and two regions"));
        };
        let (Some(better), Some(how)) = (self.better(&select.block), combination(&scatter.block, t.dtype)) else {
            let m = "is lowered for a selection by one comparison and a combination by add, multiply, maximum, minimum, \
                     and, or, xor only; write it as reduce_window with indices and scatter";
            return Err(self.error(op.opcode.name(), op.loc, m));
        };
        let counts = self.node(source).dims.clone();
        if t.dims.contains(&0) || counts.contains(&0) {
            return Ok(self.broadcast(init, vec![], t, name, site.clone()));
        }
        let sizes: Vec<u64> = match op.attrs.ints("window_dimensions") {
            Some(v) => v.iter().map(|&v| v.max(1) as u64).collect(),
            None => vec![1; t.dims.len()],
        };
        let names = Names { base: "base_dilations", dilation: "window_dilations" };
        let windows = self.windows(op, &names, &t.dims, &sizes, &counts)?;
        let sides: Vec<Side> = windows.iter().zip(&t.dims).map(|(&w, &n)| Side::new(w, n)).collect();
        let product = |f: &dyn Fn(&Side) -> u64| sides.iter().try_fold(1u64, |n, s| n.checked_mul(f(s)));
        let small = |n: Option<u64>| n.is_some_and(|n| n <= MOST);
        let codes = product(&|s| s.depth * s.stride).is_some_and(|n| n <= i32::MAX as u64);
        let rank = sides.len() + sides.iter().filter(|s| s.stride > 1).count();
        let dilated = windows.iter().any(|w| w.dilation != 1 || w.base != 1);
        if dilated || !codes || rank > MAX_RANK || !small(product(&|s| s.window.size)) || !small(product(&|s| s.depth))
        {
            let m = format!("is lowered for windows of up to {MOST} positions without dilation only");
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        let chosen = self.chosen(op, x, &sides, better, name, site)?;
        Ok(self.spread_back(chosen, source, init, how, &sides, t, name, site))
    }

    /// The comparison that keeps what was selected before, and whether it takes that as its second operand.
    fn better(&self, block: &Block) -> Option<(MapOp, bool)> {
        let ([body, ret], &[old, new]) = (&block.ops[..], &block.args[..]) else { return None };
        let map = self.map_of(body).filter(|m| matches!(m, MapOp::Compare(..)))?;
        let swapped = body.operands == [new, old];
        (ret.operands == body.results && (swapped || body.operands == [old, new])).then_some((map, swapped))
    }

    /// Which position each window selects, as a number that says its place in whole strides too; -1 if it has none.
    fn chosen(
        &mut self,
        op: &Op,
        x: NodeId,
        sides: &[Side],
        (better, swapped): (MapOp, bool),
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let dtype = self.node(x).dtype;
        let windows: Vec<Window> = sides.iter().map(|s| s.window).collect();
        let scalar = Shape { dims: vec![], dtype };
        let zero = self.constant(vec![0; dtype.bytes()].into(), &scalar, name, site.clone());
        let padded = self.padded(op, x, zero, &windows, name, site)?;
        let dims: Vec<u64> = windows.iter().map(|w| w.count).collect();
        let mut c = Ints { b: self, dims, name, site: site.clone() };
        // Value, position and whether there is any yet; `None` stands for always.
        let mut best: Option<(NodeId, NodeId, Option<NodeId>)> = None;
        for at in positions(&windows.iter().map(|w| w.size).collect::<Vec<_>>()) {
            let mut value = padded;
            for (d, (w, &k)) in windows.iter().zip(&at).enumerate() {
                value = c.b.cut(value, d, [k, w.stride, w.count], name, site);
            }
            let valid = c.inside(sides, &at);
            let here = c.value(code(sides, &at) as i64, DType::I32);
            let Some((old, place, any)) = best else {
                let none = c.value(-1, DType::I32);
                let place = valid.map_or(here, |v| c.map(MapOp::Select, &[v, here, none], DType::I32));
                best = Some((value, place, valid));
                continue;
            };
            let pair = if swapped { [value, old] } else { [old, value] };
            let mut keep = c.map(better, &pair, DType::I1);
            if let Some(any) = any {
                keep = c.map(MapOp::And, &[keep, any], DType::I1);
            }
            if let Some(valid) = valid {
                let outside = c.map(MapOp::Not, &[valid], DType::I1);
                keep = c.map(MapOp::Or, &[keep, outside], DType::I1);
            }
            let value = c.map(MapOp::Select, &[keep, old, value], dtype);
            let place = c.map(MapOp::Select, &[keep, place, here], DType::I32);
            let any = match (any, valid) {
                (Some(a), Some(v)) => Some(c.map(MapOp::Or, &[a, v], DType::I1)),
                _ => None,
            };
            best = Some((value, place, any));
        }
        Ok(best.map_or(x, |b| b.1))
    }

    /// Combines into every element what the windows that selected it have to give.
    #[allow(clippy::too_many_arguments)]
    fn spread_back(
        &mut self,
        chosen: NodeId,
        source: NodeId,
        init: NodeId,
        how: Combine,
        sides: &[Side],
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        // Windows from before the first stride to the last, with neutral ones where there are none.
        let low: Vec<i64> = sides.iter().map(|s| s.depth as i64 - 1 - s.first).collect();
        let none = vec![0; sides.len()];
        let long: Vec<u64> = sides.iter().map(|s| s.count + s.depth - 1).collect();
        let mut extend = |x: NodeId, bytes: Vec<u8>| {
            let dtype = self.node(x).dtype;
            let v = self.constant(bytes.into(), &Shape { dims: vec![], dtype }, name, site.clone());
            self.pad_with(x, v, &low, &none, &Shape { dims: long.clone(), dtype }, name, site.clone())
        };
        let chosen = extend(chosen, (-1i32).to_le_bytes().to_vec());
        let source = extend(source, vec![0; t.dtype.bytes()]);
        // Every dimension as whole strides and places inside of one.
        let (mut split, mut whole) = (Vec::new(), Vec::new());
        for s in sides {
            whole.push(split.len());
            split.push(s.count);
            split.extend((s.stride > 1).then_some(s.stride));
        }
        let mut c = Ints { b: self, dims: split, name, site: site.clone() };
        let mut sum = c.spread(init, vec![]);
        let mut depths = positions(&sides.iter().map(|s| s.depth).collect::<Vec<_>>());
        // Of the windows that hold an element, the first is the one that starts farthest from it.
        depths.reverse();
        for at in depths {
            let take = |c: &mut Ints<'_, '_>, x: NodeId| {
                let mut y = x;
                for (d, (s, &j)) in sides.iter().zip(&at).enumerate() {
                    y = c.b.cut(y, d, [s.depth - 1 - j, 1, s.count], name, site);
                }
                c.spread(y, whole.clone())
            };
            let (place, value) = (take(&mut c, chosen), take(&mut c, source));
            let start: Vec<u64> = sides.iter().zip(&at).map(|(s, j)| s.stride * j).collect();
            let mut wanted = c.value(code(sides, &start) as i64, DType::I32);
            for d in 0..sides.len() {
                let unit: Vec<u64> = (0..sides.len()).map(|k| u64::from(k == d)).collect();
                if sides[d].stride > 1 {
                    let (step, inside) = (c.value(code(sides, &unit) as i64, DType::I32), c.iota(whole[d] + 1));
                    let part = c.map(MapOp::Mul, &[inside, step], DType::I32);
                    wanted = c.map(MapOp::Add, &[wanted, part], DType::I32);
                }
            }
            let mine = c.map(MapOp::Compare(Direction::Eq, false), &[place, wanted], DType::I1);
            let more = c.map(elementwise(how), &[sum, value], t.dtype);
            sum = c.map(MapOp::Select, &[mine, more, sum], t.dtype);
        }
        let joined: Vec<u64> = sides.iter().map(|s| s.count * s.stride).collect();
        let y = self.reshape(sum, &Shape { dims: joined, dtype: t.dtype }, name, site.clone());
        let start = sides.iter().map(|s| (s.window.low - s.first * s.stride as i64) as u64).collect();
        self.slice(y, start, vec![1; sides.len()], t, name, site.clone())
    }
}

impl Ints<'_, '_> {
    /// Whether position `at` of each window is inside of the operand; `None` if it always is.
    fn inside(&mut self, sides: &[Side], at: &[u64]) -> Option<NodeId> {
        let mut all = None;
        for (d, (s, &k)) in sides.iter().zip(at).enumerate() {
            let first = k as i64 - s.window.low;
            let last = first + (s.window.count - 1) as i64 * s.window.stride as i64;
            if first >= 0 && last < s.size as i64 {
                continue;
            }
            // The windows it is inside of follow each other.
            let stride = s.window.stride as i64;
            let from = (-first).max(0).div_euclid(stride) + i64::from((-first).max(0).rem_euclid(stride) != 0);
            let to = (s.size as i64 - 1 - first).div_euclid(stride);
            let index = self.iota(d);
            for (direction, limit) in [(Direction::Ge, from), (Direction::Le, to.max(-1))] {
                let limit = self.value(limit.min(i64::from(i32::MAX)), DType::I32);
                let fits = self.map(MapOp::Compare(direction, false), &[index, limit], DType::I1);
                all = Some(match all {
                    Some(a) => self.map(MapOp::And, &[a, fits], DType::I1),
                    None => fits,
                });
            }
        }
        all
    }
}

/// A number for a place in a window; places up to whole strides have different ones.
fn code(sides: &[Side], at: &[u64]) -> u64 {
    sides.iter().zip(at).fold(0, |n, (s, k)| n * s.depth * s.stride + k)
}

/// All indices of an array of `sizes`, in row-major order.
fn positions(sizes: &[u64]) -> Vec<Vec<u64>> {
    sizes
        .iter()
        .fold(vec![vec![]], |all, &n| all.iter().flat_map(|p| (0..n).map(|k| [&p[..], &[k]].concat())).collect())
}
