//! Reductions over sliding windows, as slices of the padded operand that are combined elementwise.
//!
//! A window is a box, and all reductions are associative and commutative, so each dimension is reduced by itself. Short windows
//! combine one slice for each position. Long ones double: from sums of `n` neighbours come sums of `2 n`, and a window is put together
//! from powers of two. Running sums shift and add in a number of steps that grows with the size's
//! logarithm.

use super::super::NodeId;
use super::contract::{elementwise, reducer};
use super::special::Chain;
use super::wide::Value;
use super::*;
use crate::hlo::{Attr, Op};
use crate::lower::math::Combine;

/// Longest window whose positions are combined one by one.
const SHORT: u64 = 8;

/// How many neighbouring sums a step of a running sum adds.
const RADIX: u64 = 4;

/// Largest padding that is taken seriously.
const MAX_PADDING: u64 = 1 << 40;

/// How windows lie along one dimension.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Positions of a window.
    pub size: u64,
    /// From one window to the next.
    pub stride: u64,
    /// From one position of a window to the next.
    pub dilation: u64,
    /// From one element of the operand to the next.
    pub base: u64,
    /// Padding in front.
    pub low: i64,
    /// Number of windows.
    pub count: u64,
}

impl Window {
    /// Leaves the dimension as it is.
    pub fn unit(count: u64) -> Window {
        Window { size: 1, stride: 1, dilation: 1, base: 1, low: 0, count }
    }

    /// Length that all windows together cover.
    pub fn span(&self) -> Option<u64> {
        let windows = self.count.checked_sub(1)?.checked_mul(self.stride)?;
        let inside = self.size.checked_sub(1)?.checked_mul(self.dilation)?;
        windows.checked_add(inside)?.checked_add(1).filter(|&n| n <= i32::MAX as u64)
    }
}

/// Names of the attributes that describe windows.
pub(super) struct Names {
    pub base: &'static str,
    pub dilation: &'static str,
}

impl Builder<'_> {
    /// The windows over dimensions of `sizes`, given positions and numbers of windows.
    pub(super) fn windows(
        &self,
        op: &Op,
        names: &Names,
        sizes: &[u64],
        positions: &[u64],
        counts: &[u64],
    ) -> Result<Vec<Window>, LowerError> {
        let at = |name: &str, i: usize| op.attrs.ints(name).and_then(|v| v.get(i)).map_or(1, |&v| v.max(1) as u64);
        let low = |i: usize| match op.attrs.get("padding") {
            Some(Attr::Pairs(v)) => v.get(i).map_or(0, |p| p[0]),
            _ => 0,
        };
        let mut out = Vec::new();
        for (i, ((&n, &size), &count)) in sizes.iter().zip(positions).zip(counts).enumerate() {
            // Steps that are never taken do not matter, whatever they are.
            let step = |name: &str, steps: u64| if steps > 1 { at(name, i) } else { 1 };
            let w = Window {
                size,
                count,
                stride: step("window_strides", count),
                dilation: step(names.dilation, size),
                base: step(names.base, n),
                low: low(i),
            };
            if w.span().is_none() || w.base > i32::MAX as u64 || w.low.unsigned_abs() > MAX_PADDING {
                return Err(self.error(op.opcode.name(), op.loc, "the padded operand is too large for any chip"));
            }
            out.push(w);
        }
        Ok(out)
    }

    /// `x`, dilated and padded with `value` to just what the windows see.
    pub(super) fn padded(
        &mut self,
        op: &Op,
        x: NodeId,
        value: NodeId,
        windows: &[Window],
        name: &'static str,
        site: &(String, String),
    ) -> Result<NodeId, LowerError> {
        let dtype = self.node(x).dtype;
        let dims: Option<Vec<u64>> = windows.iter().map(Window::span).collect();
        let bytes = |d: &Vec<u64>| d.iter().try_fold(4u64, |n, &d| n.checked_mul(d));
        let Some(dims) = dims.filter(|d| bytes(d).is_some_and(|b| b <= 1 << 46)) else {
            return Err(self.error(op.opcode.name(), op.loc, "the padded operand is too large for any chip"));
        };
        let low: Vec<i64> = windows.iter().map(|w| w.low).collect();
        let interior: Vec<i64> = windows.iter().map(|w| w.base as i64 - 1).collect();
        Ok(self.pad_with(x, value, &low, &interior, &Shape { dims, dtype }, name, site.clone()))
    }

    /// Every `step`-th of `count` elements of dimension `d` from `start`.
    pub(super) fn cut(
        &mut self,
        x: NodeId,
        d: usize,
        [start, step, count]: [u64; 3],
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let (mut dims, dtype) = (self.node(x).dims.clone(), self.node(x).dtype);
        let (mut from, mut steps) = (vec![0; dims.len()], vec![1; dims.len()]);
        (dims[d], from[d], steps[d]) = (count, start, step as i64);
        self.slice(x, from, steps, &Shape { dims, dtype }, name, site.clone())
    }

    pub(super) fn reduce_window(
        &mut self,
        op: &Op,
        args: &[NodeId],
        t: &Shape,
        name: &'static str,
        site: (String, String),
    ) -> Result<NodeId, LowerError> {
        let (Some(how), &[x, init]) = (reducer(op, t.dtype), args) else {
            let m =
                "only windows of one operand reduced by add, multiply, maximum, minimum, and, or, xor are lowered yet";
            return Err(self.error(op.opcode.name(), op.loc, m));
        };
        // What is only chosen among needs no more bits than it has.
        let chosen = matches!(how, Combine::Max | Combine::Min) && matches!(t.dtype, DType::BF16 | DType::F16);
        let wide = if t.dtype.is_float() && !chosen { DType::F32 } else { t.dtype };
        let scalar = Shape { dims: vec![], dtype: wide };
        let neutral = self.constant(bits_to_bytes(how.identity(wide), wide), &scalar, name, site.clone());
        let full = Shape { dims: self.node(x).dims.clone(), dtype: wide };
        let x = self.map(MapOp::Convert, &[x], &full, name, site.clone());
        let y = self.windows_of(op, how, Value::One(x), Value::One(neutral), Value::One(init), t, name, &site)?;
        let Some(mut y) = y.one() else { return Err(self.error(op.opcode.name(), op.loc, "has no code")) };
        let natural = self.splat_of(init).is_some_and(|b| register_bits(&b, t.dtype) == how.identity(t.dtype));
        // Windows over nothing are the initial value already.
        if !natural && full.dims.iter().all(|&d| d > 0) {
            let init = self.map(MapOp::Convert, &[init], &scalar, name, site.clone());
            let whole = Shape { dims: t.dims.clone(), dtype: wide };
            y = self.map(elementwise(how), &[y, init], &whole, name, site.clone());
        }
        Ok(self.map(MapOp::Convert, &[y], t, name, site))
    }

    /// All windows of `x`, reduced; `init` alone where there are none to reduce.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn windows_of(
        &mut self,
        op: &Op,
        how: Combine,
        x: Value,
        neutral: Value,
        init: Value,
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Value, LowerError> {
        let sizes = self.sizes(x);
        if t.dims.contains(&0) || sizes.contains(&0) {
            return Ok(self.each(init, |b, i, _| {
                let t = Shape { dims: t.dims.clone(), dtype: b.node(i).dtype };
                b.broadcast(i, vec![], &t, name, site.clone())
            }));
        }
        let positions: Vec<u64> = match op.attrs.ints("window_dimensions") {
            Some(v) => v.iter().map(|&v| v.max(1) as u64).collect(),
            None => vec![1; sizes.len()],
        };
        let names = Names { base: "base_dilations", dilation: "window_dilations" };
        let mut windows = self.windows(op, &names, &sizes, &positions, &t.dims)?;
        let neutral: Vec<NodeId> = neutral.nodes().collect();
        let mut y = x;
        for (d, w) in windows.iter_mut().enumerate() {
            let whole =
                w.size >= sizes[d] && w.size > 1 && w.count == sizes[d] && (w.stride, w.dilation, w.base) == (1, 1, 1);
            // What running sums pad is at most as long again.
            let short = sizes[d] <= 1 << 30;
            if whole && short && (w.low == 0 || w.low as u64 == w.size - 1) {
                y = self.running(how, y, d, w.low == 0, &neutral, name, site);
                *w = Window::unit(w.count);
            }
        }
        let mut failed = None;
        y = self.each(y, |b, x, i| match b.padded(op, x, neutral[i], &windows, name, site) {
            Ok(x) => x,
            Err(e) => {
                failed = Some(e);
                x
            }
        });
        if let Some(e) = failed {
            return Err(e);
        }
        for (d, w) in windows.iter().enumerate() {
            y = self.windowed(how, y, d, w, name, site);
        }
        Ok(y)
    }

    fn sizes(&self, v: Value) -> Vec<u64> {
        v.nodes().next().map(|n| self.node(n).dims.clone()).unwrap_or_default()
    }

    /// `how` of two values of one shape; the second may be a scalar.
    pub(super) fn join(
        &mut self,
        how: Combine,
        a: Value,
        b: Value,
        name: &'static str,
        site: &(String, String),
    ) -> Value {
        let dims = self.sizes(a);
        match (a, b) {
            (Value::Pair(t, p), Value::Pair(_, q)) => {
                let mut c = Chain { b: self, dims, name, site: site.clone() };
                wide::combine(&mut c, how, t, p, q).map_or(a, |p| Value::Pair(t, p))
            }
            (Value::One(p), Value::One(q)) => {
                let t = Shape { dims, dtype: self.node(p).dtype };
                Value::One(self.map(elementwise(how), &[p, q], &t, name, site.clone()))
            }
            _ => a,
        }
    }

    /// Everything up to each element of dimension `d`, or from it on.
    #[allow(clippy::too_many_arguments)]
    fn running(
        &mut self,
        how: Combine,
        x: Value,
        d: usize,
        from: bool,
        neutral: &[NodeId],
        name: &'static str,
        site: &(String, String),
    ) -> Value {
        let sizes = self.sizes(x);
        let none = vec![0; sizes.len()];
        let size = sizes[d];
        let (mut y, mut step) = (x, 1);
        while step < size {
            // Padded once, the operand gives all shifted ones as slices.
            let shifts = (1..RADIX).filter(|i| i * step < size).count() as u64;
            let (mut low, mut dims) = (none.clone(), sizes.clone());
            low[d] = if from { 0 } else { (shifts * step) as i64 };
            dims[d] += shifts * step;
            let long = self.each(y, |b, y, i| {
                let t = Shape { dims: dims.clone(), dtype: b.node(y).dtype };
                b.pad_with(y, neutral[i], &low, &none, &t, name, site.clone())
            });
            for i in 1..=shifts {
                let start = if from { i } else { shifts - i } * step;
                let shifted = self.each(long, |b, v, _| b.cut(v, d, [start, 1, size], name, site));
                y = self.join(how, y, shifted, name, site);
            }
            step *= RADIX;
        }
        y
    }

    /// Reduces the windows along dimension `d` of what is padded already.
    fn windowed(
        &mut self,
        how: Combine,
        x: Value,
        d: usize,
        w: &Window,
        name: &'static str,
        site: &(String, String),
    ) -> Value {
        let mut sum: Option<Value> = None;
        let (mut level, mut covers, mut done) = (x, 1, 0);
        while done < w.size {
            if w.size <= SHORT || w.size & covers != 0 {
                let at = [done * w.dilation, w.stride, w.count];
                let part = self.each(level, |b, v, _| b.cut(v, d, at, name, site));
                sum = Some(match sum {
                    None => part,
                    Some(s) => self.join(how, s, part, name, site),
                });
                done += covers;
            }
            if w.size > SHORT && done < w.size {
                let rest = self.sizes(level)[d] - covers * w.dilation;
                let [near, far] =
                    [0, covers * w.dilation].map(|s| self.each(level, |b, v, _| b.cut(v, d, [s, 1, rest], name, site)));
                level = self.join(how, near, far, name, site);
                covers *= 2;
            }
        }
        sum.unwrap_or(x)
    }
}
