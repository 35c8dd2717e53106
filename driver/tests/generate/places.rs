//! Sliding windows, convolutions, and reads and writes at indices that are data.

use std::rc::Rc;

use tpusim_backend::hlo::{Attr, ConvDims, GatherDims, Opcode, ReduceKind, ScatterDims, TensorType, Type};
use tpusim_isa::num::DType;

use super::value::{Rule, Stat, Val, max_of, moved, ulp};
use super::{DTYPES, Gen, LIMIT, int};

/// Sizes along one dimension of a window.
struct Along {
    size: i64,
    stride: i64,
    base: i64,
    dilation: i64,
    pad: [i64; 2],
    out: i64,
}

/// What sums of `k` elements are off by.
fn summed(dtype: DType, k: f64) -> Rule {
    Rc::new(move |s: &[Stat], m| {
        let (err, mag) = s.iter().fold((0.0f64, 0.0f64), |(e, m), s| (e.max(s.err), m.max(s.mag)));
        k * err + (8.0 + k.sqrt()) * 2f64.powi(-24) * k * mag + ulp(dtype, m)
    })
}

impl Gen<'_> {
    fn along(&mut self, d: i64, dilated: bool) -> Along {
        let (size, stride) = (self.rng.pick(&[1, 1, 2, 2, 3, 5]), self.rng.pick(&[1, 1, 1, 2, 3]));
        let [base, dilation] =
            [1, 1].map(|one| if dilated && self.rng.percent(25) { self.rng.pick(&[2, 3]) } else { one });
        let pad = [self.rng.pick(&[0, 0, 1, 2]), self.rng.pick(&[0, 0, 1, 2])];
        let padded = if d > 0 { (d - 1) * base + 1 } else { 0 } + pad[0] + pad[1];
        let window = (size - 1) * dilation + 1;
        let out = if padded < window { 0 } else { (padded - window) / stride + 1 };
        Along { size, stride, base, dilation, pad, out }
    }

    pub fn reduce_window(&mut self) {
        let a = self.any(|v| v.ty.rank() > 0 && v.elements() < 3000, &DTYPES);
        let v = self.values[a].clone();
        let dims = v.ty.dims.clone();
        let mut all: Vec<Along> = dims.iter().map(|&d| self.along(d, true)).collect();
        // Running sums and the like.
        if self.rng.percent(30) {
            let along = self.rng.below(dims.len());
            let d = dims[along].max(1);
            for (i, w) in all.iter_mut().enumerate() {
                let (size, pad) = if i == along { (d, if d > 1 { [d - 1, 0] } else { [0, 0] }) } else { (1, [0, 0]) };
                *w = Along { size, stride: 1, base: 1, dilation: 1, pad, out: dims[i] };
            }
            all[along].out = if dims[along] == 0 { 0 } else { d };
        }
        let k: i64 = all.iter().map(|w| w.size).product();
        let out: Vec<i64> = all.iter().map(|w| w.out).collect();
        if out.iter().product::<i64>() > LIMIT || out.iter().product::<i64>() * k > 300_000 {
            return;
        }
        let dtype = v.ty.dtype;
        let mut kinds = vec![(Opcode::Maximum, ReduceKind::Max), (Opcode::Minimum, ReduceKind::Min)];
        if v.float() || v.int() {
            kinds.extend([(Opcode::Add, ReduceKind::Sum); 2]);
        }
        let (op, kind) = self.rng.pick(&kinds);
        let init = self.f.scalar(dtype, kind.identity(dtype));
        let scalar = TensorType::new([], dtype);
        let body = self.f.region(&[scalar.clone(), scalar], |f, x| vec![f.binary(op, x[0], x[1])]);
        let each = |of: fn(&Along) -> i64| Attr::Ints(all.iter().map(of).collect());
        let attrs = [
            ("window_dimensions", each(|w| w.size)),
            ("window_strides", each(|w| w.stride)),
            ("base_dilations", each(|w| w.base)),
            ("window_dilations", each(|w| w.dilation)),
            ("padding", Attr::Pairs(all.iter().map(|w| w.pad).collect())),
        ];
        let ty = TensorType::new(out, dtype);
        let id = self.f.op_with_regions(Opcode::ReduceWindow, &[v.id, init], &attrs, vec![body], &[ty])[0];
        let sums = op == Opcode::Add && v.float();
        let k = k as f64;
        let mag = if op == Opcode::Add { v.mag * k } else { v.mag };
        let exact = v.exact && (!sums || v.whole && mag < (1 << 24) as f64);
        let rule = if op == Opcode::Add { summed(dtype, k) } else { moved() };
        self.push(id, &[a], exact, v.whole && op == Opcode::Add, if v.int() { max_of(dtype) } else { mag }, rule);
    }

    pub fn select_and_scatter(&mut self) {
        let a = self.any(|v| v.ty.rank() > 0 && v.elements() < 2000 && v.exact && small(v), &DTYPES);
        let v = self.values[a].clone();
        let all: Vec<Along> = v.ty.dims.iter().map(|&d| self.along(d, false)).collect();
        // A window of padding alone selects nothing.
        let k: i64 = all.iter().map(|w| w.size).product();
        let out: Vec<i64> = all.iter().map(|w| w.out).collect();
        if k > 9
            || all.iter().any(|w| w.pad[0] >= w.size || w.pad[1] >= w.size)
            || out.iter().product::<i64>() * k > 60_000
        {
            return;
        }
        let dtype = v.ty.dtype;
        let source = self.param(dtype, &out);
        let w = self.values[source].clone();
        let init = self.f.scalar(dtype, 0.0);
        let scalar = TensorType::new([], dtype);
        let direction = self.rng.pick(&["GE", "GT", "LE"]);
        let select = self.f.region(&[scalar.clone(), scalar.clone()], |f, x| vec![f.compare(direction, x[0], x[1])]);
        let add = self.f.region(&[scalar.clone(), scalar], |f, x| vec![f.add(x[0], x[1])]);
        let attrs = [
            ("window_dimensions", Attr::Ints(all.iter().map(|w| w.size).collect())),
            ("window_strides", Attr::Ints(all.iter().map(|w| w.stride).collect())),
            ("padding", Attr::Pairs(all.iter().map(|w| w.pad).collect())),
        ];
        let operands = [v.id, w.id, init];
        let regions = vec![select, add];
        let id = self.f.op_with_regions(Opcode::SelectAndScatter, &operands, &attrs, regions, &[v.ty])[0];
        let k = k as f64;
        let mag = if dtype.is_int() { max_of(dtype) } else { w.mag * k };
        let summed = summed(dtype, k);
        let exact = dtype.is_int() || w.whole && mag < max_of(dtype).min(16.0);
        self.push(id, &[a, source], exact, w.whole, mag, Rc::new(move |s, m| summed(&s[1..], m)));
    }

    /// Which dimensions of an operand of rank `rank` are indexed, which of those leave the window, and the shape of the indices.
    fn index(&mut self, dims: &[i64]) -> (Vec<i64>, Vec<i64>, Vec<i64>, Vec<i64>, i64) {
        let rank = dims.len();
        let count = 1 + self.rng.below(rank.min(3));
        let map: Vec<i64> = self.rng.shuffled(rank)[..count].iter().map(|&d| d as i64).collect();
        let gone: Vec<i64> = (0..rank as i64).filter(|&d| dims[d as usize] > 0 && self.rng.percent(50)).collect();
        let batch: Vec<i64> = (0..self.rng.below(3)).map(|_| self.rng.pick(&[0, 1, 2, 3, 7, 11, 13, 40])).collect();
        let at = if count == 1 && self.rng.percent(50) { batch.len() } else { self.rng.below(batch.len() + 1) };
        let mut shape = batch.clone();
        if !(count == 1 && at == batch.len() && self.rng.percent(50)) {
            shape.insert(at, count as i64);
        }
        (map, gone, batch, shape, at as i64)
    }

    /// Sizes of a window, and the result's shape: window dimensions put among those of `batch`.
    fn window_of(&mut self, dims: &[i64], gone: &[i64], batch: &[i64]) -> (Vec<i64>, Vec<i64>, Vec<i64>) {
        let sizes: Vec<i64> = (0..dims.len())
            .map(|d| match gone.contains(&(d as i64)) {
                true => 1,
                false if self.rng.percent(50) => dims[d],
                false => self.rng.below(dims[d] as usize + 1) as i64,
            })
            .collect();
        let kept: Vec<i64> = (0..dims.len()).filter(|&d| !gone.contains(&(d as i64))).map(|d| sizes[d]).collect();
        let rank = kept.len() + batch.len();
        let mut places: Vec<i64> = self.rng.shuffled(rank)[..kept.len()].iter().map(|&d| d as i64).collect();
        places.sort_unstable();
        let (mut k, mut b) = (kept.iter(), batch.iter());
        let shape = (0..rank as i64).map(|d| if places.contains(&d) { k.next() } else { b.next() });
        let shape = shape.map(|d| d.copied().unwrap_or(0)).collect();
        (sizes, places, shape)
    }

    pub fn gather(&mut self) {
        let a = self.any(|v| v.ty.rank() > 0, &DTYPES);
        let v = self.values[a].clone();
        let (map, gone, batch, shape, at) = self.index(&v.ty.dims);
        let (sizes, places, out) = self.window_of(&v.ty.dims, &gone, &batch);
        if out.iter().product::<i64>() > LIMIT {
            return;
        }
        let dtype = self.rng.pick(&[DType::I32, DType::I32, DType::U32, DType::I8, DType::U16, DType::I64]);
        let i = self.param(dtype, &shape);
        let dims = GatherDims {
            offset_dims: places,
            collapsed_slice_dims: gone,
            start_index_map: map,
            index_vector_dim: at,
            ..GatherDims::default()
        };
        let attrs = [("dimension_numbers", Attr::Gather(Box::new(dims))), ("slice_sizes", Attr::Ints(sizes))];
        let ty = TensorType::new(out, v.ty.dtype);
        let id = self.f.op(Opcode::Gather, &[v.id, self.values[i].id], &attrs, &[ty])[0];
        self.push(id, &[a, i], v.exact, v.whole, v.mag, Rc::new(|s, _| s[0].err));
    }

    pub fn scatter(&mut self) {
        let a = self.any(|v| v.ty.rank() > 0, &DTYPES);
        let v = self.values[a].clone();
        let (map, gone, batch, shape, at) = self.index(&v.ty.dims);
        let (_, places, updates) = self.window_of(&v.ty.dims, &gone, &batch);
        if updates.iter().product::<i64>() > LIMIT {
            return;
        }
        let dtype = v.ty.dtype;
        let i = self.rng.pick(&[DType::I32, DType::I32, DType::U32, DType::I16, DType::U8, DType::I64]);
        let (i, u) = (self.param(i, &shape), self.param(dtype, &updates));
        let w = self.values[u].clone();
        let dims = ScatterDims {
            update_window_dims: places,
            inserted_window_dims: gone,
            scatter_dims_to_operand_dims: map,
            index_vector_dim: at,
            ..ScatterDims::default()
        };
        let mut ops = vec![None, Some(Opcode::Maximum), Some(Opcode::Minimum)];
        if v.float() || v.int() {
            ops.extend([Some(Opcode::Add); 3]);
        }
        let op = self.rng.pick(&ops);
        let scalar = TensorType::new([], dtype);
        let body =
            self.f.region(&[scalar.clone(), scalar], |f, x| vec![op.map_or(x[1], |op| f.binary(op, x[0], x[1]))]);
        let attrs = [("scatter_dimension_numbers", Attr::Scatter(Box::new(dims)))];
        let operands = [v.id, self.values[i].id, w.id];
        let id = self.f.op_with_regions(Opcode::Scatter, &operands, &attrs, vec![body], std::slice::from_ref(&v.ty))[0];
        let sums = op == Some(Opcode::Add);
        let k = batch.iter().product::<i64>() as f64;
        let mag = if sums { v.mag + k * w.mag } else { v.mag.max(w.mag) };
        let whole = v.whole && w.whole;
        let exact = v.exact && (!sums || !v.float() || whole && mag < 2f64.powi(3 + mantissa(dtype)));
        // Each update rounds.
        let rule: Rule = match sums {
            true => Rc::new(move |s, m| s[0].err + k * ulp(dtype, s[0].mag + k * s[2].mag) + ulp(dtype, m)),
            false => moved(),
        };
        self.push(id, &[a, i, u], exact, whole, if v.int() { max_of(dtype) } else { mag }, rule);
    }

    /// A convolution of a value with new weights.
    pub fn convolution(&mut self) {
        let types = [DType::F32, DType::BF16, DType::F8E5M2, DType::I8];
        let a = self.any(|v| types.contains(&v.ty.dtype) && (3..6).contains(&v.ty.rank()) && v.elements() > 0, &types);
        let v = self.values[a].clone();
        let n = v.ty.rank() - 2;
        let orders: Vec<Vec<i64>> =
            (0..3).map(|_| self.rng.shuffled(n + 2).into_iter().map(|d| d as i64).collect()).collect();
        let (xo, wo, yo) = (&orders[0], &orders[1], &orders[2]);
        let size = |d: i64| v.ty.dims[d as usize];
        let all: Vec<Along> = xo[1..=n].iter().map(|&d| self.along(size(d), true)).collect();
        let outputs = self.rng.pick(&[1, 3, 7, 16, 130]);
        let (mut w, mut y) = (vec![0; n + 2], vec![0; n + 2]);
        (w[wo[n] as usize], w[wo[n + 1] as usize]) = (size(xo[n + 1]), outputs);
        (y[yo[0] as usize], y[yo[n + 1] as usize]) = (size(xo[0]), outputs);
        for (i, s) in all.iter().enumerate() {
            (w[wo[i] as usize], y[yo[1 + i] as usize]) = (s.size, s.out);
        }
        let k = w.iter().product::<i64>() / outputs;
        if y.contains(&0) || y.iter().product::<i64>() > LIMIT || y.iter().product::<i64>() * k > 1_000_000 {
            return;
        }
        let b = self.param(v.ty.dtype, &w);
        let dims = ConvDims {
            input_batch: xo[0],
            input_spatial: xo[1..=n].to_vec(),
            input_feature: xo[n + 1],
            kernel_spatial: wo[..n].to_vec(),
            kernel_input_feature: wo[n],
            kernel_output_feature: wo[n + 1],
            output_batch: yo[0],
            output_spatial: yo[1..=n].to_vec(),
            output_feature: yo[n + 1],
        };
        let each = |of: fn(&Along) -> i64| Attr::Ints(all.iter().map(of).collect());
        let attrs = [
            ("dimension_numbers", Attr::Conv(Box::new(dims))),
            ("window_strides", each(|w| w.stride)),
            ("padding", Attr::Pairs(all.iter().map(|w| w.pad).collect())),
            ("lhs_dilation", each(|w| w.base)),
            ("rhs_dilation", each(|w| w.dilation)),
            ("feature_group_count", int(1)),
            ("batch_group_count", int(1)),
        ];
        let to = if v.int() { DType::I32 } else { DType::F32 };
        let u: Val = self.values[b].clone();
        let id = self.f.op(Opcode::Convolution, &[v.id, u.id], &attrs, &[TensorType::new(y, to)])[0];
        let (k, whole) = (k as f64, v.whole && u.whole);
        let mag = k * v.mag * u.mag;
        let sure = whole && mag < (1 << 24) as f64 && v.mag.max(u.mag) <= 256.0;
        let single = v.ty.dtype == DType::F32;
        let rule: Rule = Rc::new(move |s, m| {
            // An operand that is a little off may round to another bf16.
            let off = if s[0].err > 0.0 && single { s[0].err + s[0].mag / 128.0 } else { s[0].err };
            k * s[1].mag * off + (8.0 + k.sqrt()) * 2f64.powi(-23) * k * s[0].mag * s[1].mag + ulp(to, m)
        });
        self.push(id, &[a, b], v.exact && (v.int() || sure), whole, mag, rule);
    }

    /// By total order, of numbers whose bits are known: arithmetic may lose signs of zeros and NaNs.
    pub fn sort(&mut self) {
        let a = self.any(|v| v.ty.rank() > 0 && v.exact && (!v.float() || v.args.is_empty()), &DTYPES);
        let v = self.values[a].clone();
        let mut all = vec![a];
        if self.rng.percent(40) {
            let dtype = self.rng.pick(&DTYPES);
            all.push(self.param(dtype, &v.ty.dims));
        }
        let along = self.rng.below(v.ty.rank()) as i64;
        let types: Vec<TensorType> = all.iter().map(|&i| self.values[i].ty.clone()).collect();
        let scalars: Vec<TensorType> =
            types.iter().flat_map(|t| [TensorType::new([], t.dtype), TensorType::new([], t.dtype)]).collect();
        let direction = self.rng.pick(&["LT", "GT"]);
        let mut attrs = vec![("comparison_direction", Attr::Enum(direction.into()))];
        if v.float() {
            attrs.push(("compare_type", Attr::Enum("TOTALORDER".into())));
        }
        let body = self.f.region(&scalars, |f, x| vec![f.infer(Opcode::Compare, &x[..2], &attrs)]);
        let ids: Vec<_> = all.iter().map(|&i| self.values[i].id).collect();
        let attrs = [("dimension", int(along)), ("is_stable", Attr::Bool(true))];
        let sorted = self.f.op_with_regions(Opcode::Sort, &ids, &attrs, vec![body], &types);
        for (id, &i) in sorted.into_iter().zip(&all) {
            let v = self.values[i].clone();
            self.push(id, &all, true, v.whole, v.mag, moved());
        }
    }

    pub fn top_k(&mut self) {
        let a = self.any(|v| v.ty.rank() > 0 && v.exact && small(v) && (v.int() || v.args.is_empty()), &DTYPES);
        let v = self.values[a].clone();
        let last = v.ty.rank() - 1;
        let mut dims = v.ty.dims.clone();
        dims[last] = self.rng.below(dims[last] as usize + 1) as i64;
        let k = Attr::Int(dims[last], Type::Scalar(DType::I64));
        let types = [TensorType::new(dims.clone(), v.ty.dtype), TensorType::new(dims, DType::I32)];
        let found = self.f.op(Opcode::ChloTopK, &[v.id], &[("k", k)], &types);
        self.push(found[0], &[a], true, v.whole, v.mag, moved());
        self.push(found[1], &[a], true, false, max_of(DType::I32), moved());
    }
}

/// Bits of a type's fraction.
fn mantissa(dtype: DType) -> i32 {
    tpusim_isa::num::FloatFormat::of(dtype).map_or(20, |f| f.mantissa_bits as i32 - 2)
}

/// A number of one register.
fn small(v: &Val) -> bool {
    (v.float() || v.int()) && v.ty.dtype.bits() <= 32
}
