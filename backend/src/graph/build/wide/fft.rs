//! Fourier transforms as matrix products at the highest precision.
//!
//! A short transform is a product with the matrix of its roots of unity. A long one is cut into two factors (Cooley and Tukey): transforms
//! of one factor, a multiplication by roots, transforms of the other.

use std::f64::consts::TAU;

use super::super::super::DotSpec;
use super::*;

/// Longest transform that is one product if it can be cut.
const DIRECT: u64 = 256;

/// Longest transform of prime length.
const LONGEST: u64 = 4096;

/// A complex array whose imaginary part may be zero.
type Signal = (NodeId, Option<NodeId>);

/// The largest divisor of `n` not above its root.
fn factor(n: u64) -> u64 {
    (1..=n.isqrt()).rev().find(|d| n.is_multiple_of(*d)).unwrap_or(1)
}

impl Builder<'_> {
    pub(super) fn fft(
        &mut self,
        op: &Op,
        x: Value,
        t: &Shape,
        name: &'static str,
        site: &(String, String),
    ) -> Result<Value, LowerError> {
        let kind = op.attrs.text("fft_type").unwrap_or_default().to_owned();
        let lengths: Vec<u64> = op.attrs.ints("fft_length").unwrap_or(&[]).iter().map(|&n| n as u64).collect();
        let prime = |n: u64| n > LONGEST && factor(n) == 1;
        if let Some(n) = lengths.iter().find(|&&n| prime(n)) {
            let m = format!("of the prime length {n} is not lowered; primes up to {LONGEST} and products of them are");
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        let mut v: Signal = match x {
            Value::One(x) => (x, None),
            Value::Pair(_, [re, im]) => (re, Some(im)),
        };
        let (Some(&n), Some(first)) = (lengths.last(), self.node(v.0).dims.len().checked_sub(lengths.len())) else {
            return Err(self.error(op.opcode.name(), op.loc, "needs a length"));
        };
        let last = self.node(v.0).dims.len() - 1;
        if t.dims.contains(&0) || self.node(v.0).elements() == 0 {
            let zero = self.constant(
                vec![0; 4].into(),
                &Shape { dims: t.dims.clone(), dtype: DType::F32 },
                name,
                site.clone(),
            );
            return Ok(if t.dtype == DType::F32 { Value::One(zero) } else { Value::Pair(t.dtype, [zero, zero]) });
        }
        let inverse = matches!(&kind[..], "IFFT" | "IRFFT");
        let outer = first..last;
        if !inverse {
            v = self.transform(v, last, false, name, site);
            if kind == "RFFT" {
                let keep = n / 2 + 1;
                v = (
                    self.cut(v.0, last, [0, 1, keep], name, site),
                    v.1.map(|p| self.cut(p, last, [0, 1, keep], name, site)),
                );
            }
        }
        for d in outer.rev() {
            v = self.transform(v, d, inverse, name, site);
        }
        if kind == "IRFFT" {
            return Ok(Value::One(self.real_inverse(v, last, n, name, site)));
        }
        if inverse {
            v = self.transform(v, last, true, name, site);
        }
        let im = match v.1 {
            Some(im) => im,
            None => {
                self.constant(vec![0; 4].into(), &Shape { dims: t.dims.clone(), dtype: DType::F32 }, name, site.clone())
            }
        };
        Ok(Value::Pair(t.dtype, [v.0, im]))
    }

    /// `f(j k mod n)` for all `j` below `rows` and `k` below `columns`.
    fn roots(
        &mut self,
        [rows, columns, n]: [u64; 3],
        f: impl Fn(f64, u64) -> f64,
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let angle = |j: u64, k: u64| TAU * ((j * k % n) as f64) / n as f64;
        let bytes = (0..rows).flat_map(|j| (0..columns).map(move |k| (j, k)));
        let bytes: Vec<u8> = bytes.flat_map(|(j, k)| (f(angle(j, k), j) as f32).to_le_bytes()).collect();
        self.array(bytes, &[rows, columns], DType::F32, name, site)
    }

    /// The product of dimension `d` of `x` with a matrix, in place.
    fn along(&mut self, x: NodeId, d: usize, matrix: NodeId, name: &'static str, site: &(String, String)) -> NodeId {
        let mut dims = self.node(x).dims.clone();
        let columns = self.node(matrix).dims[1];
        let rank = dims.len();
        dims.remove(d);
        dims.push(columns);
        let spec = DotSpec { batch: [vec![], vec![]], contract: [vec![d], vec![0]], useful: true };
        let t = Shape { dims: dims.clone(), dtype: DType::F32 };
        let y = self.precise_product(spec, &[x, matrix], 3, &t, name, site);
        let perm: Vec<usize> = (0..rank)
            .map(|i| {
                if i == d {
                    rank - 1
                } else if i < d {
                    i
                } else {
                    i - 1
                }
            })
            .collect();
        let moved: Vec<u64> = perm.iter().map(|&p| dims[p]).collect();
        self.transpose(y, perm, &Shape { dims: moved, dtype: DType::F32 }, name, site.clone())
    }

    /// The complex product of dimension `d` with roots of unity.
    fn direct(&mut self, x: Signal, d: usize, inverse: bool, name: &'static str, site: &(String, String)) -> Signal {
        let n = self.node(x.0).dims[d];
        let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
        let sign = if inverse { scale } else { -scale };
        let cos = self.roots([n, n, n], |a, _| scale * a.cos(), name, site);
        let sin = self.roots([n, n, n], |a, _| sign * a.sin(), name, site);
        let (re, im) = (self.along(x.0, d, cos, name, site), self.along(x.0, d, sin, name, site));
        let Some(y) = x.1 else { return (re, Some(im)) };
        let (a, b) = (self.along(y, d, sin, name, site), self.along(y, d, cos, name, site));
        let mut c = Chain { dims: self.node(re).dims.clone(), b: self, name, site: site.clone() };
        (c.map(MapOp::Sub, &[re, a]), Some(c.map(MapOp::Add, &[im, b])))
    }

    fn transform(&mut self, x: Signal, d: usize, inverse: bool, name: &'static str, site: &(String, String)) -> Signal {
        let dims = self.node(x.0).dims.clone();
        let n = dims[d];
        let n1 = factor(n);
        if n <= DIRECT || n1 == 1 {
            return self.direct(x, d, inverse, name, site);
        }
        // Element j1 n2 + j2 lies at (j1, j2); result k1 + n1 k2 comes out at (k1, k2).
        let n2 = n / n1;
        let reshaped = |b: &mut Self, v: NodeId, dims: &[u64]| {
            b.reshape(v, &Shape { dims: dims.to_vec(), dtype: DType::F32 }, name, site.clone())
        };
        let apart = [&dims[..d], &[n1, n2], &dims[d + 1..]].concat();
        let x = (reshaped(self, x.0, &apart), x.1.map(|v| reshaped(self, v, &apart)));
        let y = self.transform(x, d, inverse, name, site);
        let sign = if inverse { 1.0 } else { -1.0 };
        let roots = [
            self.roots([n1, n2, n], |a, _| a.cos(), name, site),
            self.roots([n1, n2, n], |a, _| sign * a.sin(), name, site),
        ];
        let full = Shape { dims: apart.clone(), dtype: DType::F32 };
        let roots = roots.map(|r| self.broadcast(r, vec![d, d + 1], &full, name, site.clone()));
        let mut c = Chain { b: self, dims: apart.clone(), name, site: site.clone() };
        let turned = match y.1 {
            Some(im) => match complex::map(&mut c, Opcode::Multiply, Some(MapOp::Mul), &[[y.0, im], roots]) {
                Some(Value::Pair(_, [re, im])) => (re, Some(im)),
                _ => y,
            },
            None => (c.map(MapOp::Mul, &[y.0, roots[0]]), Some(c.map(MapOp::Mul, &[y.0, roots[1]]))),
        };
        let z = self.transform(turned, d + 1, inverse, name, site);
        let mut perm: Vec<usize> = (0..apart.len()).collect();
        perm.swap(d, d + 1);
        let crossed = [&dims[..d], &[n2, n1], &dims[d + 1..]].concat();
        let back = |b: &mut Self, v: NodeId| {
            let t = Shape { dims: crossed.clone(), dtype: DType::F32 };
            let v = b.transpose(v, perm.clone(), &t, name, site.clone());
            reshaped(b, v, &dims)
        };
        (back(self, z.0), z.1.map(|v| back(self, v)))
    }

    /// `n` real numbers whose transform begins with the `n / 2 + 1` elements of dimension `d`; the others are their conjugates.
    fn real_inverse(&mut self, x: Signal, d: usize, n: u64, name: &'static str, site: &(String, String)) -> NodeId {
        let stored = self.node(x.0).dims[d];
        if n <= DIRECT || factor(n) == 1 {
            // What stands for two elements counts twice.
            let weight = |k: u64| if k == 0 || 2 * k == n { 1.0 } else { 2.0 } / n as f64;
            let cos = self.roots([stored, n, n], |a, k| weight(k) * a.cos(), name, site);
            let re = self.along(x.0, d, cos, name, site);
            let Some(im) = x.1 else { return re };
            let sin = self.roots([stored, n, n], |a, k| -weight(k) * a.sin(), name, site);
            let im = self.along(im, d, sin, name, site);
            let mut c = Chain { dims: self.node(re).dims.clone(), b: self, name, site: site.clone() };
            return c.map(MapOp::Add, &[re, im]);
        }
        // Elements from the middle back to the second one are the mirrored rest.
        let mut full = |v: NodeId, negate: bool| {
            let dims = self.node(v).dims.clone();
            let (mut start, mut step, mut sizes) = (vec![0; dims.len()], vec![1; dims.len()], dims.clone());
            (start[d], step[d], sizes[d]) = (n - stored, -1, n - stored);
            let t = Shape { dims: sizes.clone(), dtype: DType::F32 };
            let mut m = self.slice(v, start, step, &t, name, site.clone());
            if negate {
                m = self.map(MapOp::Neg, &[m], &t, name, site.clone());
            }
            let mut whole = dims;
            whole[d] = n;
            self.push(NodeOp::Concat(d), vec![v, m], &Shape { dims: whole, dtype: DType::F32 }, name, site.clone())
        };
        let x = (full(x.0, false), x.1.map(|v| full(v, true)));
        self.transform(x, d, true, name, site).0
    }
}
