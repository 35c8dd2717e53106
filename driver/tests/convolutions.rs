//! Random convolutions on random chips: ranks, sizes, strides, padding of both signs, dilations, groups, reversal, layouts, types, and
//! what follows them.
//!
//! Oracle: the reference evaluator, to the bit: inputs are whole numbers from -3 to 3, so that sums are exact.
//! `TPUSIM_CONV_CASES` sets the number of programs, `TPUSIM_CONV_SEED` chooses others.

mod common;

use tpusim_backend::eval::Tensor;
use tpusim_backend::hlo::{Attr, ConvDims, Module, ModuleBuilder, Opcode, TensorType, Type, Verified};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;

/// A small generator of numbers: what it gives is the test.
struct Genes(u64);

impl Genes {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = (self.0 >> 18 ^ self.0) >> 27;
        x.rotate_right((self.0 >> 59) as u32) & 0xffff_ffff
    }

    fn below(&mut self, n: u64) -> i64 {
        (self.next() % n) as i64
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.next() as usize % of.len()]
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// An order of `n` dimensions, the usual one mostly.
    fn order(&mut self, n: usize) -> Vec<i64> {
        let mut order: Vec<i64> = (0..n as i64).collect();
        if self.one_in(4) {
            for i in (1..n).rev() {
                order.swap(i, self.below(i as u64 + 1) as usize);
            }
        }
        order
    }
}

/// Sizes in standard order, put where `order` wants them: dimension `i` of the standard order is dimension `order[i]`.
fn placed(standard: &[i64], order: &[i64]) -> Vec<i64> {
    let mut dims = vec![0; standard.len()];
    standard.iter().zip(order).for_each(|(&s, &d)| dims[d as usize] = s);
    dims
}

fn program(g: &mut Genes) -> Option<Verified<Module>> {
    let n = g.pick(&[1usize, 2, 2, 2, 2, 3]);
    let dtype = g.pick(&[DType::BF16, DType::BF16, DType::F32, DType::F32, DType::I8]);
    let out_type = match dtype {
        DType::I8 => DType::I32,
        t => g.pick(&[t, DType::F32]),
    };
    let (feature_groups, batch_groups) = match g.below(8) {
        0 => (g.pick(&[2, 3, 4]), 1),
        1 => (1, g.pick(&[2, 3])),
        _ => (1, 1),
    };
    let batch = batch_groups * g.pick(&[1, 2, 3, 8, 8, 16, 17, 24]);
    let features = g.pick(&[1, 3, 5, 40, 64, 130, 260]);
    let outputs = g.pick(&[1, 7, 32, 130]);
    let total_out = outputs * feature_groups * batch_groups;
    let mut x = vec![batch];
    let mut w = Vec::new();
    let mut y = vec![batch / batch_groups];
    let (mut strides, mut padding, mut base, mut dilation, mut reversal) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..n {
        let (size, k) = (g.pick(&[1, 2, 5, 6, 9, 12]), g.pick(&[1, 1, 2, 3, 3, 5]));
        let (s, l, r) = (g.pick(&[1, 1, 2, 3]), g.pick(&[1, 1, 1, 2, 3]), g.pick(&[1, 1, 1, 2]));
        let pad = |g: &mut Genes| if g.one_in(8) { -1 } else { g.pick(&[0, 0, 1, 1, 2, 4]) };
        let p = [pad(g), pad(g)];
        let padded = (size - 1) * l + 1 + p[0] + p[1];
        let window = (k - 1) * r + 1;
        if padded < window || (size - 1) * l + 1 + p[0] <= 0 || (size - 1) * l + 1 + p[1] <= 0 {
            return None;
        }
        x.push(size);
        w.push(k);
        y.push((padded - window) / s + 1);
        strides.push(s);
        padding.push(p);
        base.push(l);
        dilation.push(r);
        reversal.push(g.one_in(6));
    }
    x.push(features * feature_groups);
    w.extend([features, total_out]);
    y.push(total_out);
    let work: i64 = y.iter().product::<i64>() * w[..=n].iter().product::<i64>();
    if work > 6_000_000 || x.iter().product::<i64>() > 200_000 {
        return None;
    }
    let (xo, wo, yo) = (g.order(n + 2), g.order(n + 2), g.order(n + 2));
    let conv = ConvDims {
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
    let count = |n: i64| Attr::Int(n, Type::Scalar(DType::I64));
    let precision = g.pick(&["DEFAULT", "DEFAULT", "DEFAULT", "HIGH", "HIGHEST"]);
    let attrs = [
        ("dimension_numbers", Attr::Conv(Box::new(conv))),
        ("window_strides", Attr::Ints(strides)),
        ("padding", Attr::Pairs(padding)),
        ("lhs_dilation", Attr::Ints(base)),
        ("rhs_dilation", Attr::Ints(dilation)),
        ("window_reversal", Attr::Bools(reversal)),
        ("feature_group_count", count(feature_groups)),
        ("batch_group_count", count(batch_groups)),
        ("precision_config", Attr::Array(vec![Attr::Enum(precision.to_owned()); 2])),
    ];
    let mut m = ModuleBuilder::new("convolution");
    let mut f = m.func("main");
    let a = f.param("x", TensorType::new(placed(&x, &xo), dtype));
    let b = f.param("w", TensorType::new(placed(&w, &wo), dtype));
    let to = placed(&y, &yo);
    let mut r = f.op(Opcode::Convolution, &[a, b], &attrs, &[TensorType::new(to.clone(), out_type)])[0];
    if g.one_in(2) {
        // A bias along the features, another array of the result's shape, and something that needs no operand.
        let bias = f.param("bias", TensorType::new([total_out], out_type));
        let bias = f.broadcast_along(bias, &[yo[n + 1]], &to);
        r = f.add(r, bias);
        if g.one_in(2) {
            let other = f.param("other", TensorType::new(to.clone(), out_type));
            r = f.add(r, other);
        }
        r = f.binary_scalar(Opcode::Maximum, r, 0.0);
    }
    if g.one_in(6) {
        let index = f.iota(TensorType::new(to, out_type), yo[g.below(n as u64 + 2) as usize]);
        r = f.add(r, index);
    }
    f.ret(&[r]);
    Some(m.finish().unwrap_or_else(|e| panic!("{e:?}")))
}

fn input(module: &Module, index: usize) -> Tensor {
    let main = module.func("main").expect("a function main");
    let ty = main.ty(main.params[index].value).tensor().expect("a tensor").clone();
    let n = ty.dims.iter().product::<i64>();
    let value = |i: i64| (i * 5 + i / 7 + i / 11 + i / 64 + index as i64).rem_euclid(7) - 3;
    let tensor = if ty.dtype.is_float() {
        Tensor::from_f64(&ty.dims, ty.dtype, &(0..n).map(|i| value(i) as f64).collect::<Vec<_>>())
    } else {
        Tensor::from_i64(&ty.dims, ty.dtype, &(0..n).map(value).collect::<Vec<_>>())
    };
    tensor.unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn random_convolutions_agree_with_the_evaluator() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let (cases, seed) = (number("TPUSIM_CONV_CASES").unwrap_or(60), number("TPUSIM_CONV_SEED").unwrap_or(1));
    let (mut done, mut too_small) = (0, 0);
    for case in 0.. {
        if done == cases {
            break;
        }
        assert!(too_small * 8 <= cases, "{too_small} of {done} programs did not fit a small VMEM");
        let mut g = Genes(seed.wrapping_mul(1_000_003).wrapping_add(case).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        g.next();
        let name = g.pick(&common::CHIPS);
        // Little VMEM makes blocks that are parts of a spatial dimension.
        let vmem = g.pick(&[None, None, Some(2u64 << 20), Some(4 << 20)]);
        let Some(module) = program(&mut g) else { continue };
        done += 1;
        let sizes = ["vmem_bytes", "scoped_vmem_bytes"];
        let set: Vec<(String, String)> =
            vmem.iter().flat_map(|v| sizes.map(|name| (name.to_owned(), v.to_string()))).collect();
        let chip = ChipSpec::load_with(name, &set).unwrap_or_else(|e| panic!("{e}"));
        let fail = |e: String| panic!("case {case} on {name} with VMEM {vmem:?}: {e}\n{}", module.to_text(false));
        let inputs: Vec<Tensor> =
            (0..module.func("main").map_or(0, |f| f.params.len())).map(|i| input(&module, i)).collect();
        let program = match common::compiled(&module, &chip) {
            // Some windows cannot do with so little.
            Err(e) if vmem.is_some() && e.contains("of VMEM") => {
                too_small += 1;
                continue;
            }
            result => result.unwrap_or_else(fail),
        };
        let bytes: Vec<Vec<u8>> = inputs.iter().map(|t| t.bytes().to_vec()).collect();
        let got = common::run(&program, &chip, &bytes).unwrap_or_else(|e| panic!("case {case} on {name}: {e}"));
        let want = common::reference(&module, &inputs);
        if let Some(e) = common::differs(want[0].dtype(), &got[0], want[0].bytes(), 0.0) {
            panic!("case {case} on {name} with VMEM {vmem:?}: {e}\n{}", module.to_text(false));
        }
    }
}
