//! Random StableHLO programs from genes, one op or so a gene.
#![allow(dead_code)]

mod control;
mod dynamic;
mod float;
mod places;
mod shape;
mod special;
mod value;

use std::rc::Rc;

use tpusim_backend::eval::Tensor;
use tpusim_backend::hlo::{
    Attr, FuncBuilder, Literal, Module, ModuleBuilder, Opcode, ReduceKind, ResultInfo, TensorType, Type, ValueId,
    Verified, verify,
};
use tpusim_isa::num::{DType, convert};
use value::{Rng, Rule, Stat, Val, max_of, moved, ulp};

/// Types that programs compute with.
pub const DTYPES: [DType; 20] = [
    DType::F32,
    DType::BF16,
    DType::F16,
    DType::F8E5M2,
    DType::F8E4M3FN,
    DType::F8E4M3,
    DType::F8E3M4,
    DType::F8E4M3B11FNUZ,
    DType::F8E4M3FNUZ,
    DType::F8E5M2FNUZ,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::I1,
    DType::F32,
];

/// Types of what is only moved.
pub const MOVED: [DType; 2] = [DType::C64, DType::F32];

/// An attribute that is a number.
pub fn int(n: i64) -> Attr {
    Attr::Int(n, Type::Scalar(DType::I64))
}

/// Most elements of a tensor.
const LIMIT: i64 = 12_000;

/// A program with its inputs.
pub struct Generated {
    /// As it is compiled.
    pub module: Verified<Module>,
    /// The same, every value a result.
    pub everything: Verified<Module>,
    /// Arguments.
    pub inputs: Vec<Tensor>,
    /// Which values are results of `module`.
    pub outputs: Vec<usize>,
    /// Chip to run on.
    pub chip: &'static str,
    /// Bytes of VMEM instead of the chip's own: little makes kernels of many blocks.
    pub vmem: Option<u64>,
    values: Vec<Val>,
}

impl Generated {
    /// How far each value may be from `all`, what the evaluator gave.
    pub fn bounds(&self, all: &[Tensor]) -> Vec<f64> {
        let mut stats: Vec<Stat> = Vec::new();
        for (v, t) in self.values.iter().zip(all) {
            let mag = crate::common::magnitude(&crate::common::numbers(t.dtype(), t.bytes()));
            let args: Vec<Stat> = v.args.iter().map(|&a| stats[a]).collect();
            let err = if v.exact { 0.0 } else { (v.rule)(&args, mag) };
            stats.push(Stat { mag, err });
        }
        stats.iter().map(|s| s.err).collect()
    }
}

/// The program of the genes.
pub fn program(head: u64, genes: &[u64]) -> Generated {
    let mut m = ModuleBuilder::new("random");
    let mut g = Gen { f: m.func("main"), values: Vec::new(), inputs: Vec::new(), rng: Rng(head) };
    let chip = g.rng.pick(&crate::common::CHIPS);
    let vmem = g.rng.pick(&[None, None, None, Some(96 << 10), Some(256 << 10), Some(512 << 10)]);
    let (dtype, dims) = (g.rng.pick(&DTYPES), g.dims());
    g.param(dtype, &dims);
    for &gene in genes {
        g.rng = Rng(gene);
        g.step();
    }
    g.rng = Rng(head ^ 1);
    let used: Vec<usize> = g.values.iter().flat_map(|v| v.args.clone()).collect();
    let mut outputs: Vec<usize> = (0..g.values.len()).filter(|i| !used.contains(i)).collect();
    for _ in 0..g.rng.below(3) {
        outputs.push(g.rng.below(g.values.len()));
    }
    let Gen { f, values, inputs, .. } = g;
    f.ret(&values.iter().map(|v| v.id).collect::<Vec<_>>());
    let everything = m.finish().unwrap_or_else(|e| panic!("an invalid program was generated: {e:?}"));
    let mut module: Module = (*everything).clone();
    let main = &mut module.funcs[0];
    main.results = outputs
        .iter()
        .map(|&o| ResultInfo { ty: Type::Tensor(values[o].ty.clone()), attrs: Default::default() })
        .collect();
    if let Some(ret) = main.body.ops.last_mut() {
        ret.operands = outputs.iter().map(|&o| values[o].id).collect();
    }
    let module = verify(module).unwrap_or_else(|e| panic!("an invalid program was generated: {e:?}"));
    Generated { module, everything, inputs, outputs, chip, vmem, values }
}

fn complex(dtype: DType) -> bool {
    dtype == DType::C64
}

struct Gen<'m> {
    f: FuncBuilder<'m>,
    values: Vec<Val>,
    inputs: Vec<Tensor>,
    rng: Rng,
}

impl Gen<'_> {
    fn step(&mut self) {
        match self.rng.below(140) {
            0..8 => self.float_unary(),
            8..14 => self.approximate(),
            14..20 => self.int_unary(),
            20..38 => self.binary(),
            38..46 => self.compare_select(),
            46..53 => self.convert(),
            53..58 => self.broadcast(),
            58..64 => self.reshape(),
            64..69 => self.transpose(),
            69..72 => self.slice(),
            72..74 => self.dynamic_slice(),
            74..75 => self.dynamic_update_slice(),
            75..77 => self.reverse(),
            77..81 => self.concatenate(),
            81..84 => self.pad(),
            84..92 => self.reduce(),
            92..98 => self.dot(),
            98 => self.leaf(),
            99 => self.clamp(),
            100..103 => self.reduce_window(),
            103..105 => self.select_and_scatter(),
            105..108 => self.gather(),
            108..111 => self.scatter(),
            111..113 => self.convolution(),
            113..116 => self.sort(),
            116..118 => self.top_k(),
            118..122 => self.function(),
            122..125 => self.exact_function(),
            125 => self.broadcast_binary(),
            126 => self.random_bits(),
            127 => self.cholesky(),
            128 => self.triangular_solve(),
            129 => self.fft(),
            130 => self.batch_norm(),
            131..134 => self.complex(),
            134..136 => self.loop_(),
            136..138 => self.branch(),
            _ => self.transparent(),
        }
    }

    fn dims(&mut self) -> Vec<i64> {
        let rank = self.rng.pick(&[0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6]);
        let mut dims: Vec<i64> = (0..rank).map(|_| self.size()).collect();
        while dims.iter().product::<i64>() > LIMIT {
            let largest = (0..rank).max_by_key(|&i| dims[i]).unwrap_or(0);
            dims[largest] = self.rng.pick(&[1, 2, 3, 5, 7]);
        }
        dims
    }

    fn size(&mut self) -> i64 {
        match self.rng.below(100) {
            0..2 => 0,
            2..14 => 1,
            14..60 => self.rng.pick(&[2, 3, 4, 5, 7, 8]),
            60..88 => self.rng.pick(&[9, 11, 13, 15, 16, 17, 19, 23, 31, 32, 33, 37]),
            _ => self.rng.pick(&[127, 128, 129, 131, 200, 256, 257, 300]),
        }
    }

    fn push(&mut self, id: ValueId, args: &[usize], exact: bool, whole: bool, mag: f64, rule: Rule) -> usize {
        let ty = self.f.ty(id);
        // What may overflow in rounding is not followed.
        let top = max_of(ty.dtype);
        let (whole, mag) = (whole && ty.dtype.is_float() && mag < top / 2.0, mag.min(top));
        self.values.push(Val { id, ty, exact, whole, mag, args: args.to_vec(), rule });
        let last = self.values.len() - 1;
        if !exact && mag > top * 0.45 && !complex(self.values[last].ty.dtype) {
            return self.clamped(last, 4.0);
        }
        last
    }

    /// A value that comes from operands without arithmetic.
    fn push_moved(&mut self, id: ValueId, args: &[usize]) -> usize {
        let of = |f: &dyn Fn(&Val) -> bool| args.iter().all(|&a| f(&self.values[a]));
        let (exact, whole) = (of(&|v| v.exact), of(&|v| v.whole));
        let mag = args.iter().fold(0.0f64, |m, &a| m.max(self.values[a].mag));
        self.push(id, args, exact, whole, mag, moved())
    }

    fn clamped(&mut self, a: usize, by: f64) -> usize {
        let v = self.values[a].clone();
        let (lo, hi) = (self.f.scalar(v.ty.dtype, -by), self.f.scalar(v.ty.dtype, by));
        let id = self.f.infer(Opcode::Clamp, &[lo, v.id, hi], &[]);
        self.push(id, &[a], v.exact, v.whole, by.min(v.mag), moved())
    }

    /// Random bytes of a type and the largest magnitude; whether they are whole floats.
    fn data(&mut self, dtype: DType, n: usize) -> (Vec<u8>, f64, bool) {
        if dtype == DType::I1 {
            return ((0..n).map(|_| self.rng.below(2) as u8).collect(), 1.0, false);
        }
        let wild = self.rng.percent(50);
        if complex(dtype) {
            return self.data(DType::F32, 2 * n);
        }
        if dtype.is_int() {
            let v: Vec<i64> = (0..n)
                .map(|_| {
                    let x = self.rng.next() as i64;
                    convert::wrap(dtype, if wild { x } else { x.rem_euclid(21) - 10 })
                })
                .collect();
            let mag = if wild || !dtype.is_signed() { max_of(dtype) } else { 10.0 };
            return (convert::encode_i64(dtype, &v), mag, false);
        }
        let v: Vec<f64> = (0..n)
            .map(|_| {
                let x = self.rng.unit() * 4.0;
                if wild { x } else { x.round() }
            })
            .collect();
        (convert::encode_f64(dtype, &v), 4.0, !wild)
    }

    fn param(&mut self, dtype: DType, dims: &[i64]) -> usize {
        let ty = TensorType::new(dims, dtype);
        let n = ty.elements().unwrap_or(0) as usize;
        let (bytes, mag, whole) = self.data(dtype, n);
        let id = self.f.param(&format!("p{}", self.inputs.len()), ty.clone());
        self.inputs.push(Tensor::new(ty, bytes).unwrap_or_else(|e| panic!("{e}")));
        self.push(id, &[], true, whole, mag, moved())
    }

    fn constant(&mut self, dtype: DType, dims: &[i64], splat: bool) -> usize {
        let ty = TensorType::new(dims, dtype);
        let n = if splat { 1 } else { ty.elements().unwrap_or(0) as usize };
        let (bytes, mag, whole) = self.data(dtype, n);
        let id = self.f.literal(Literal::new(ty, bytes));
        self.push(id, &[], true, whole, mag, moved())
    }

    fn iota(&mut self, dtype: DType, dims: &[i64]) -> Option<usize> {
        let ok = !dims.is_empty()
            && dtype != DType::I1
            && !complex(dtype)
            && dims.iter().all(|&d| (d as f64) < max_of(dtype));
        if !ok {
            return None;
        }
        let id = self.f.iota(TensorType::new(dims, dtype), self.rng.below(dims.len()) as i64);
        Some(self.push(id, &[], true, true, 300.0, moved()))
    }

    /// A random value that fits, or a new one.
    fn any(&mut self, fits: impl Fn(&Val) -> bool, dtypes: &[DType]) -> usize {
        if self.rng.percent(3) {
            self.leaf();
        }
        let fits = |v: &Val| fits(v) && (!complex(v.ty.dtype) || dtypes.contains(&DType::C64));
        let from: Vec<usize> = (0..self.values.len()).filter(|&i| fits(&self.values[i])).collect();
        if from.is_empty() {
            for _ in 0..100 {
                let (dtype, dims) = (self.rng.pick(dtypes), self.dims());
                let made = Val { ty: TensorType::new(dims.clone(), dtype), ..self.values[0].clone() };
                if fits(&Val { exact: true, ..made }) {
                    return self.param(dtype, &dims);
                }
            }
        }
        // Prefer what is new, so that chains grow.
        let skip = self.rng.below(from.len()).max(self.rng.below(from.len()));
        from[skip]
    }

    /// Another value of `a`'s type.
    fn partner(&mut self, a: usize, exact: bool) -> usize {
        let v = self.values[a].clone();
        let same: Vec<usize> =
            (0..self.values.len()).filter(|&i| self.values[i].ty == v.ty && (self.values[i].exact || !exact)).collect();
        match self.rng.below(10) {
            0..4 if !same.is_empty() => self.rng.pick(&same),
            0..5 => self.constant(v.ty.dtype, &v.ty.dims, true),
            5 => self.constant(v.ty.dtype, &v.ty.dims, false),
            6 | 7 if v.ty.rank() > 0 => {
                let keep: Vec<i64> = (0..v.ty.rank() as i64).filter(|_| self.rng.percent(50)).collect();
                let dims: Vec<i64> =
                    keep.iter().map(|&d| if self.rng.percent(15) { 1 } else { v.ty.dims[d as usize] }).collect();
                let small = self.param(v.ty.dtype, &dims);
                let id = self.f.broadcast_along(self.values[small].id, &keep, &v.ty.dims);
                self.push_moved(id, &[small])
            }
            8 => match self.iota(v.ty.dtype, &v.ty.dims) {
                Some(i) => i,
                None => self.param(v.ty.dtype, &v.ty.dims),
            },
            _ => self.param(v.ty.dtype, &v.ty.dims),
        }
    }

    fn leaf(&mut self) {
        let (dtype, dims) = (self.rng.pick(&DTYPES), self.dims());
        match self.rng.below(3) {
            0 if self.iota(dtype, &dims).is_some() => {}
            1 => _ = self.constant(dtype, &dims, false),
            _ => _ = self.param(dtype, &dims),
        }
    }

    fn int_unary(&mut self) {
        let ints = [DType::I8, DType::I16, DType::I32, DType::U8, DType::U16, DType::U32, DType::I64, DType::U64];
        let a = self.any(|v| !v.float(), &ints);
        let v = self.values[a].clone();
        use Opcode::*;
        let op = if v.int() { self.rng.pick(&[Abs, Negate, Sign, Not, Popcnt, CountLeadingZeros]) } else { Not };
        let id = self.f.unary(op, v.id);
        self.push(id, &[a], true, false, max_of(v.ty.dtype), moved());
    }

    fn binary(&mut self) {
        let a = self.any(|_| true, &DTYPES);
        let b = self.partner(a, false);
        let (x, y) = (self.values[a].clone(), self.values[b].clone());
        let (a, b) = if self.rng.percent(50) { (a, b) } else { (b, a) };
        let ids = [self.values[a].id, self.values[b].id];
        use Opcode::*;
        if !x.float() {
            let bools = [And, Or, Xor, Maximum, Minimum, Add, Multiply];
            let ints = [
                Add,
                Subtract,
                Multiply,
                Divide,
                Remainder,
                Maximum,
                Minimum,
                And,
                Or,
                Xor,
                ShiftLeft,
                ShiftRightArithmetic,
                ShiftRightLogical,
                Power,
            ];
            let op = if x.int() { self.rng.pick(&ints) } else { self.rng.pick(&bools) };
            let id = self.f.binary(op, ids[0], ids[1]);
            self.push(id, &[a, b], true, false, max_of(x.ty.dtype), moved());
            return;
        }
        let dtype = x.ty.dtype;
        let op = self.rng.pick(&[Add, Subtract, Multiply, Maximum, Minimum, Add, Multiply]);
        let id = self.f.binary(op, ids[0], ids[1]);
        let mag = match op {
            Add | Subtract => x.mag + y.mag,
            Multiply => x.mag * y.mag,
            _ => x.mag.max(y.mag),
        };
        let rule: Rule = match op {
            Add | Subtract => Rc::new(move |s, m| s[0].err + s[1].err + ulp(dtype, m)),
            Multiply => {
                Rc::new(move |s, m| s[0].mag * s[1].err + s[1].mag * s[0].err + s[0].err * s[1].err + ulp(dtype, m))
            }
            _ => moved(),
        };
        self.push(id, &[a, b], x.exact && y.exact, x.whole && y.whole, mag, rule);
    }

    fn compare_select(&mut self) {
        if self.rng.percent(50) {
            let a = self.any(|v| v.exact, &DTYPES);
            let b = self.partner(a, true);
            let direction = self.rng.pick(&["EQ", "NE", "LT", "LE", "GT", "GE"]);
            let mut attrs = vec![("comparison_direction", Attr::Enum(direction.into()))];
            // The total order tells signs of zeros and NaNs apart, which arithmetic may lose.
            let given = self.values[a].args.is_empty() && self.values[b].args.is_empty();
            if self.values[a].float() && given && self.rng.percent(50) {
                attrs.push(("compare_type", Attr::Enum("TOTALORDER".into())));
            }
            let id = self.f.infer(Opcode::Compare, &[self.values[a].id, self.values[b].id], &attrs);
            self.push(id, &[a, b], true, false, 1.0, moved());
            return;
        }
        let a = self.any(|_| true, &DTYPES);
        let b = self.partner(a, false);
        let dims = self.values[a].ty.dims.clone();
        let scalar = self.rng.percent(15);
        let wanted = TensorType::new(if scalar { vec![] } else { dims }, DType::I1);
        let have: Vec<usize> = (0..self.values.len()).filter(|&i| self.values[i].ty == wanted).collect();
        let p = if have.is_empty() || self.rng.percent(30) {
            self.param(DType::I1, &wanted.dims)
        } else {
            self.rng.pick(&have)
        };
        let id = self.f.select(self.values[p].id, self.values[a].id, self.values[b].id);
        let (x, y) = (&self.values[a], &self.values[b]);
        let (exact, whole, mag) = (x.exact && y.exact, x.whole && y.whole, x.mag.max(y.mag));
        self.push(id, &[p, a, b], exact, whole, mag, moved());
    }

    fn convert(&mut self) {
        let a = self.any(|_| true, &DTYPES);
        let v = self.values[a].clone();
        let to = self.rng.pick(&DTYPES);
        if to == v.ty.dtype || v.float() && !v.exact && !to.is_float() {
            return;
        }
        if v.exact && v.args.is_empty() != v.int() && to.bits() == v.ty.dtype.bits() && self.rng.percent(30) {
            // From integers, or of parameters: never of a NaN, whose bits are anyone's choice.
            let ty = TensorType::new(v.ty.dims.clone(), to);
            let id = self.f.op(Opcode::BitcastConvert, &[v.id], &[], &[ty])[0];
            if to.is_int() {
                self.push(id, &[a], true, false, max_of(to), moved());
            }
            return;
        }
        let id = self.f.convert(v.id, to);
        let whole = to.is_float() && (v.whole || !v.float());
        let mag = if v.float() && !to.is_float() { max_of(to) } else { v.mag };
        let mag = if to.is_int() { max_of(to).min(mag.max(1.0)) } else { mag };
        let mag = if to.is_int() && !to.is_signed() { max_of(to) } else { mag };
        self.push(id, &[a], v.exact, whole, mag, Rc::new(move |s, m| s[0].err + ulp(to, m)));
    }

    fn clamp(&mut self) {
        let a = self.any(|v| v.float() || v.int(), &DTYPES[..10]);
        let v = self.values[a].clone();
        let scalar = self.rng.percent(50);
        let dims = if scalar { vec![] } else { v.ty.dims.clone() };
        let (lo, hi) = (self.param(v.ty.dtype, &dims), self.param(v.ty.dtype, &dims));
        let id = self.f.infer(Opcode::Clamp, &[self.values[lo].id, v.id, self.values[hi].id], &[]);
        self.push_moved(id, &[lo, a, hi]);
    }

    fn reduce(&mut self) {
        let a = self.any(|v| v.elements() < 4000, &DTYPES);
        let v = self.values[a].clone();
        let dims: Vec<i64> = (0..v.ty.rank() as i64).filter(|_| self.rng.percent(50)).collect();
        let count: i64 = dims.iter().map(|&d| v.ty.dims[d as usize]).product();
        let k = count.max(1) as f64;
        use Opcode::*;
        let mut op = match (v.float(), v.int()) {
            (true, _) => self.rng.pick(&[Add, Add, Maximum, Minimum, Multiply]),
            (_, true) => self.rng.pick(&[Add, Add, Maximum, Minimum, Multiply, And, Or, Xor]),
            _ => self.rng.pick(&[And, Or, Xor, Maximum, Minimum, Add, Multiply]),
        };
        if op == Multiply && v.float() && (v.mag.max(4.0).powf(k + 1.0) > max_of(v.ty.dtype) * 0.4) {
            op = Maximum;
        }
        let dtype = v.ty.dtype;
        let scalar = TensorType::new([], dtype);
        let (init, init_mag, init_whole) = if self.rng.percent(60) {
            let kind = match op {
                Add => ReduceKind::Sum,
                Multiply => ReduceKind::Product,
                Maximum => ReduceKind::Max,
                Minimum => ReduceKind::Min,
                And if dtype == DType::I1 => ReduceKind::And,
                _ => ReduceKind::Or,
            };
            // The neutral elements of narrow floats may not be representable; they are then what conversion makes of them.
            let extreme = matches!(op, Maximum | Minimum);
            (self.f.scalar(dtype, kind.identity(dtype)), if extreme { 0.0 } else { 1.0 }, !extreme)
        } else {
            let p = self.param(dtype, &[]);
            (self.values[p].id, self.values[p].mag, self.values[p].whole)
        };
        let swap = self.rng.percent(20);
        let body = self.f.region(&[scalar.clone(), scalar], |f, x| {
            vec![if swap { f.binary(op, x[1], x[0]) } else { f.binary(op, x[0], x[1]) }]
        });
        let kept = (0..v.ty.rank()).filter(|&d| !dims.contains(&(d as i64))).map(|d| v.ty.dims[d]).collect::<Vec<_>>();
        let attrs = [("dimensions", Attr::Ints(dims))];
        let id = self.f.op_with_regions(Reduce, &[v.id, init], &attrs, vec![body], &[TensorType::new(kept, dtype)])[0];
        let mag = match op {
            Add => v.mag * k + init_mag,
            Multiply if v.float() => v.mag.max(1.0).powf(k) * init_mag.max(1.0),
            _ => v.mag.max(init_mag),
        };
        let whole = v.whole && init_whole;
        let order = matches!(op, Add | Multiply) && v.float();
        let exact = v.exact && (!order || whole && mag < (1 << 24) as f64);
        let rule: Rule = match op {
            Add => Rc::new(move |s, m| {
                k * s[0].err + (8.0 + k.sqrt()) * 2f64.powi(-24) * (k * s[0].mag + init_mag) + ulp(dtype, m)
            }),
            Multiply => Rc::new(move |s, m| {
                let one = s[0].mag.max(1.0);
                k * s[0].err * (one + s[0].err).powf(k - 1.0) * init_mag.max(1.0)
                    + k * 2f64.powi(-23) * m
                    + ulp(dtype, m)
            }),
            _ => moved(),
        };
        let mag = if v.int() { max_of(dtype) } else { mag };
        self.push(id, &[a], exact, whole, mag, rule);
    }
}
