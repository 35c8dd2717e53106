//! Random programs with random shardings over several meshes, partitioned and run device by device. Oracle: the reference
//! evaluator on the whole program. Numbers are small integers, so sums are exact in any order and results must be equal.

#![expect(clippy::print_stderr, reason = "says what it covered")]

mod partition_common;

use std::collections::BTreeMap;

use partition_common::{collectives, run_partitioned};
use tpusim_backend::eval::{Tensor, eval_module};
use tpusim_backend::hlo::{
    Attr, AttrList, ConvDims, DotDims, FuncBuilder, GatherDims, ModuleBuilder, Opcode, ReduceKind, ScatterDims,
    TensorType, Type, ValueId,
};
use tpusim_backend::partition::{partition, partition_shuffled};
use tpusim_isa::num::DType;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n.max(1) as u64) as usize
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }
}

const MESHES: &[(&str, &[(&str, i64)])] = &[
    ("[\"x\"=2, \"y\"=2]", &[("x", 2), ("y", 2)]),
    ("[\"x\"=4, \"y\"=2]", &[("x", 4), ("y", 2)]),
    ("[\"a\"=2, \"b\"=2, \"c\"=2]", &[("a", 2), ("b", 2), ("c", 2)]),
    ("[\"x\"=3, \"y\"=2]", &[("x", 3), ("y", 2)]),
    ("[\"x\"=2, \"y\"=2], device_ids=[2, 0, 3, 1]", &[("x", 2), ("y", 2)]),
];

/// A sharding of a value of these sizes whose axes divide it.
fn sharding(r: &mut Rng, axes: &[(&str, i64)], dims: &[i64]) -> String {
    let mut left: Vec<_> = axes.to_vec();
    let mut out = Vec::new();
    for &d in dims {
        let (mut d, mut list) = (d, Vec::new());
        while r.below(2) == 0 && !left.is_empty() {
            let (name, n) = left.swap_remove(r.below(left.len()));
            if d % n == 0 {
                list.push(format!("\"{name}\""));
                d /= n;
            }
        }
        if r.below(4) == 0 {
            list.push("?".into());
        }
        out.push(format!("{{{}}}", list.join(", ")));
    }
    format!("sdy.sharding<@mesh, [{}]>", out.join(", "))
}

fn i64s(v: i64) -> Attr {
    Attr::Int(v, Type::Scalar(DType::I64))
}

/// Small again: whatever it was, now between -4 and 4.
fn small(f: &mut FuncBuilder<'_>, v: ValueId) -> ValueId {
    f.binary_scalar(Opcode::Remainder, v, 5.0)
}

/// One more value from those there are; `None` where the op does not fit.
fn step(f: &mut FuncBuilder<'_>, r: &mut Rng, pool: &[ValueId], axes: &[(&str, i64)]) -> Option<ValueId> {
    let x = r.pick(pool);
    let dims = f.dims(x);
    let rank = dims.len();
    let like = |f: &FuncBuilder<'_>, r: &mut Rng, d: &[i64]| {
        let same: Vec<ValueId> = pool.iter().copied().filter(|&v| f.dims(v) == d).collect();
        r.pick(&same)
    };
    if rank == 0 {
        let n = r.pick(&[4i64, 6, 12]);
        return Some(f.broadcast_along(x, &[], &[n, 4]));
    }
    let d = r.below(rank);
    Some(match r.below(30) {
        0 | 1 => {
            let y = like(f, r, &dims);
            let op = r.pick(&[Opcode::Add, Opcode::Subtract, Opcode::Maximum]);
            let v = f.binary(op, x, y);
            small(f, v)
        }
        2 => {
            let y = like(f, r, &dims);
            let p = f.compare("LT", x, y);
            f.select(p, y, x)
        }
        3 => {
            let mut perm: Vec<i64> = (0..rank as i64).collect();
            for i in (1..rank).rev() {
                perm.swap(i, r.below(i + 1));
            }
            let ty = TensorType::new(perm.iter().map(|&p| dims[p as usize]).collect::<Vec<_>>(), DType::F32);
            f.op(Opcode::Transpose, &[x], &[("permutation", Attr::Ints(perm))], &[ty])[0]
        }
        4 | 5 => {
            let n: i64 = dims.iter().product();
            let mut left = n;
            let mut shape = Vec::new();
            while shape.len() < 3 {
                let part = r.pick(&[1, 2, 3, 4, 6, 12]);
                if left % part == 0 {
                    shape.push(part);
                    left /= part;
                }
            }
            shape.insert(r.below(4), left);
            f.op(Opcode::Reshape, &[x], &[], &[TensorType::new(shape, DType::F32)])[0]
        }
        6 => {
            let n = r.pick(&[2i64, 4, 6]);
            let at = r.below(rank + 1);
            let mut to = dims.clone();
            to.insert(at, n);
            let along: Vec<i64> = (0..=rank as i64).filter(|&i| i != at as i64).collect();
            f.broadcast_along(x, &along, &to)
        }
        7 | 8 => {
            let over: Vec<i64> = (0..rank as i64).filter(|_| r.below(2) == 0).collect();
            let kind = r.pick(&[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min]);
            let v = f.reduce(kind, x, &over);
            small(f, v)
        }
        9..=11 => {
            let y = r.pick(pool);
            let to = f.dims(y);
            let mut dot = DotDims::default();
            for (a, size) in dims.iter().enumerate() {
                let free =
                    |b: &usize| !dot.rhs_batch.contains(&(*b as i64)) && !dot.rhs_contract.contains(&(*b as i64));
                let Some(b) = (0..to.len()).find(|b| to[*b] == *size && free(b)) else { continue };
                match r.below(3) {
                    0 => {
                        dot.lhs_batch.push(a as i64);
                        dot.rhs_batch.push(b as i64);
                    }
                    1 => {
                        dot.lhs_contract.push(a as i64);
                        dot.rhs_contract.push(b as i64);
                    }
                    _ => {}
                }
            }
            let v = f.dot_general(x, y, dot, DType::F32);
            if f.dims(v).iter().product::<i64>() > 3000 {
                return None;
            }
            small(f, v)
        }
        12 => {
            let (lo, hi) = (r.below(dims[d] as usize) as i64, dims[d]);
            let (mut start, mut limit) = (vec![0; rank], dims.clone());
            (start[d], limit[d]) = (lo, hi);
            let ty = TensorType::new((0..rank).map(|i| limit[i] - start[i]).collect::<Vec<_>>(), DType::F32);
            let attrs = [
                ("start_indices", Attr::Ints(start)),
                ("limit_indices", Attr::Ints(limit)),
                ("strides", Attr::Ints(vec![1; rank])),
            ];
            f.op(Opcode::Slice, &[x], &attrs, &[ty])[0]
        }
        13 => {
            let y = like(f, r, &dims);
            let mut to = dims.clone();
            to[d] *= 2;
            f.op(Opcode::Concatenate, &[x, y], &[("dimension", i64s(d as i64))], &[TensorType::new(to, DType::F32)])[0]
        }
        14 => {
            let mut sizes = dims.clone();
            sizes[d] = 1;
            let at = f.scalar(DType::I32, r.below(5) as f64);
            let zero = f.scalar(DType::I32, 0.0);
            let mut operands = vec![zero; rank + 1];
            operands[0] = x;
            operands[d + 1] = at;
            let ty = TensorType::new(sizes.clone(), DType::F32);
            let one = f.op(Opcode::DynamicSlice, &operands, &[("slice_sizes", Attr::Ints(sizes))], &[ty])[0];
            operands.insert(1, one);
            operands[d + 2] = f.scalar(DType::I32, r.below(5) as f64);
            f.op(Opcode::DynamicUpdateSlice, &operands, &[], &[TensorType::new(dims, DType::F32)])[0]
        }
        15 => {
            // Rows at indices that another value gives, some outside.
            let y = r.pick(pool);
            let table = if rank == 2 { x } else { return None };
            let i = f.convert(y, DType::I32);
            let v = f.take_rows(table, i);
            if f.dims(v).iter().product::<i64>() > 3000 {
                return None;
            }
            v
        }
        16 => {
            if rank != 2 {
                return None;
            }
            // Rows of one matrix are added to rows of another.
            let others: Vec<ValueId> = pool.iter().copied().filter(|&v| f.dims(v).len() == 2).collect();
            let u = r.pick(&others);
            let (rows, width) = (f.dims(u)[0], dims[1]);
            if f.dims(u)[1] != width {
                return None;
            }
            let i = f.iota(TensorType::new([rows, 1], DType::I32), 0);
            let i = f.binary_scalar(Opcode::Remainder, i, 3.0);
            let i = f.binary_scalar(Opcode::Multiply, i, 3.0);
            let scatter = ScatterDims {
                update_window_dims: vec![1],
                inserted_window_dims: vec![0],
                scatter_dims_to_operand_dims: vec![0],
                index_vector_dim: 1,
                ..ScatterDims::default()
            };
            let scalar = TensorType::new([], DType::F32);
            let body = f.region(&[scalar.clone(), scalar], |f, a| vec![f.add(a[0], a[1])]);
            let attrs = [("scatter_dimension_numbers", Attr::Scatter(Box::new(scatter)))];
            let ty = TensorType::new(dims, DType::F32);
            let v = f.op_with_regions(Opcode::Scatter, &[x, i, u], &attrs, vec![body], &[ty])[0];
            small(f, v)
        }
        17 => {
            let i = f.iota(TensorType::new(dims.clone(), DType::F32), d as i64);
            let v = f.add(i, x);
            small(f, v)
        }
        18 => {
            // The index of the largest element: a reducer without a name.
            let i = f.iota(TensorType::new(dims.clone(), DType::I32), d as i64);
            let (least, zero) = (f.scalar(DType::F32, f64::NEG_INFINITY), f.scalar(DType::I32, 0.0));
            let (s, n) = (TensorType::new([], DType::F32), TensorType::new([], DType::I32));
            let body = f.region(&[s.clone(), n.clone(), s, n], |f, a| {
                let more = f.compare("GT", a[0], a[2]);
                let same = f.compare("EQ", a[0], a[2]);
                let first = f.compare("LT", a[1], a[3]);
                let tie = f.binary(Opcode::And, same, first);
                let left = f.binary(Opcode::Or, more, tie);
                vec![f.select(left, a[0], a[2]), f.select(left, a[1], a[3])]
            });
            let kept: Vec<i64> = (0..rank).filter(|&i| i != d).map(|i| dims[i]).collect();
            let types = [TensorType::new(kept.clone(), DType::F32), TensorType::new(kept, DType::I32)];
            let attrs = [("dimensions", Attr::Ints(vec![d as i64]))];
            let v = f.op_with_regions(Opcode::Reduce, &[x, i, least, zero], &attrs, vec![body], &types);
            let index = f.convert(v[1], DType::F32);
            small(f, index)
        }
        19 => {
            // A loop that carries two values of one shape.
            let y = like(f, r, &dims);
            let zero = f.scalar(DType::I32, 0.0);
            let (swap, cut) = (r.below(2) == 0, sharding(r, axes, &dims));
            let out = f.while_loop(
                &[zero, x, y],
                |f, a| {
                    let n = f.scalar(DType::I32, 3.0);
                    f.compare("LT", a[0], n)
                },
                |f, a| {
                    let i = f.binary_scalar(Opcode::Add, a[0], 1.0);
                    let sum = f.add(a[1], a[2]);
                    let sum = small(f, sum);
                    let sum = if swap { f.sharding_constraint(sum, &cut) } else { sum };
                    if swap { vec![i, a[2], sum] } else { vec![i, sum, a[2]] }
                },
            );
            f.add(out[1], out[2])
        }
        21 => f.op(
            Opcode::Reverse,
            &[x],
            &[("dimensions", Attr::Ints(vec![d as i64]))],
            &[TensorType::new(dims, DType::F32)],
        )[0],
        22 => {
            let scalar = TensorType::new([], DType::F32);
            let body = f.region(&[scalar.clone(), scalar], |f, a| vec![f.compare("LT", a[0], a[1])]);
            let attrs = [("dimension", i64s(d as i64)), ("is_stable", Attr::Bool(true))];
            f.op_with_regions(Opcode::Sort, &[x], &attrs, vec![body], &[TensorType::new(dims, DType::F32)])[0]
        }
        23 => {
            let two = f.scalar(DType::F32, 2.0);
            let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
            (low[d], high[d]) = (1, r.below(2) as i64);
            let ty = TensorType::new((0..rank).map(|i| dims[i] + low[i] + high[i]).collect::<Vec<_>>(), DType::F32);
            let attrs = [
                ("edge_padding_low", Attr::Ints(low)),
                ("edge_padding_high", Attr::Ints(high)),
                ("interior_padding", Attr::Ints(vec![0; rank])),
            ];
            f.op(Opcode::Pad, &[x, two], &attrs, &[ty])[0]
        }
        24 => {
            // A reduction from a value that is not neutral.
            let over: Vec<i64> = (0..rank as i64).filter(|_| r.below(2) == 0).collect();
            let all: Vec<i64> = (0..rank as i64).collect();
            let init = f.reduce(ReduceKind::Max, x, &all);
            let scalar = TensorType::new([], DType::F32);
            let op = r.pick(&[Opcode::Add, Opcode::Minimum]);
            let body = f.region(&[scalar.clone(), scalar], |f, a| vec![f.binary(op, a[0], a[1])]);
            let kept = (0..rank).filter(|&i| !over.contains(&(i as i64))).map(|i| dims[i]).collect::<Vec<_>>();
            let ty = TensorType::new(kept, DType::F32);
            let v =
                f.op_with_regions(Opcode::Reduce, &[x, init], &[("dimensions", Attr::Ints(over))], vec![body], &[ty])
                    [0];
            small(f, v)
        }
        25 => {
            // One of two branches, by a value.
            let y = like(f, r, &dims);
            let all: Vec<i64> = (0..rank as i64).collect();
            let most = f.reduce(ReduceKind::Max, y, &all);
            let which = f.convert(most, DType::I32);
            let cut = sharding(r, axes, &dims);
            let branches = vec![
                f.region(&[], |f, _| vec![f.add(x, y)]),
                f.region(&[], |f, _| {
                    let v = f.sharding_constraint(y, &cut);
                    vec![f.binary(Opcode::Maximum, v, x)]
                }),
            ];
            let v = f.op_with_regions(Opcode::Case, &[which], &[], branches, &[TensorType::new(dims, DType::F32)])[0];
            small(f, v)
        }
        26 | 27 => {
            // Single elements at pairs of indices, read and added to.
            if !(2..=3).contains(&rank) {
                return None;
            }
            let y = r.pick(pool);
            let n = f.dims(y).iter().product::<i64>() / 2;
            if f.dims(y).iter().product::<i64>() % 2 != 0 || n > 300 {
                return None;
            }
            let pairs = f.op(Opcode::Reshape, &[y], &[], &[TensorType::new([n, 2], DType::F32)])[0];
            let pairs = f.convert(pairs, DType::I32);
            let pairs = f.binary_scalar(Opcode::Add, pairs, 2.0);
            let (p, q) = (r.below(rank), r.below(rank));
            if p == q {
                return None;
            }
            let window: Vec<i64> = (0..rank as i64).filter(|&i| i != p as i64 && i != q as i64).collect();
            let mut shape = vec![n];
            shape.extend(window.iter().map(|&w| dims[w as usize]));
            let offsets: Vec<i64> = (1..shape.len() as i64).collect();
            let mut inserted = vec![p as i64, q as i64];
            let map = inserted.clone();
            inserted.sort_unstable();
            let sizes = (0..rank).map(|i| if i == p || i == q { 1 } else { dims[i] }).collect();
            let gather = GatherDims {
                offset_dims: offsets.clone(),
                collapsed_slice_dims: inserted.clone(),
                start_index_map: map.clone(),
                index_vector_dim: 1,
                ..GatherDims::default()
            };
            let attrs = [("dimension_numbers", Attr::Gather(Box::new(gather))), ("slice_sizes", Attr::Ints(sizes))];
            let read = f.op(Opcode::Gather, &[x, pairs], &attrs, &[TensorType::new(shape, DType::F32)])[0];
            let scatter = ScatterDims {
                update_window_dims: offsets,
                inserted_window_dims: inserted,
                scatter_dims_to_operand_dims: map,
                index_vector_dim: 1,
                ..ScatterDims::default()
            };
            let scalar = TensorType::new([], DType::F32);
            let body = f.region(&[scalar.clone(), scalar], |f, a| vec![f.add(a[0], a[1])]);
            let attrs = [("scatter_dimension_numbers", Attr::Scatter(Box::new(scatter)))];
            let ty = TensorType::new(dims, DType::F32);
            let v = f.op_with_regions(Opcode::Scatter, &[x, pairs, read], &attrs, vec![body], &[ty])[0];
            small(f, v)
        }
        28 => {
            // One element of each row, and back.
            if rank != 2 {
                return None;
            }
            let at = f.iota(TensorType::new([dims[0], 3, 1], DType::I32), r.below(2) as i64);
            let gather = GatherDims {
                collapsed_slice_dims: vec![1],
                operand_batching_dims: vec![0],
                start_indices_batching_dims: vec![0],
                start_index_map: vec![1],
                index_vector_dim: 2,
                ..GatherDims::default()
            };
            let attrs =
                [("dimension_numbers", Attr::Gather(Box::new(gather))), ("slice_sizes", Attr::Ints(vec![1, 1]))];
            let read = f.op(Opcode::Gather, &[x, at], &attrs, &[TensorType::new([dims[0], 3], DType::F32)])[0];
            let scatter = ScatterDims {
                inserted_window_dims: vec![1],
                input_batching_dims: vec![0],
                scatter_indices_batching_dims: vec![0],
                scatter_dims_to_operand_dims: vec![1],
                index_vector_dim: 2,
                ..ScatterDims::default()
            };
            let scalar = TensorType::new([], DType::F32);
            let body = f.region(&[scalar.clone(), scalar], |f, a| vec![f.add(a[0], a[1])]);
            let attrs = [("scatter_dimension_numbers", Attr::Scatter(Box::new(scatter)))];
            let ty = TensorType::new(dims, DType::F32);
            let v = f.op_with_regions(Opcode::Scatter, &[x, at, read], &attrs, vec![body], &[ty])[0];
            small(f, v)
        }
        20 => {
            if rank != 3 {
                return None;
            }
            // Rows of features, with a window of one or three.
            let (k, o) = (r.pick(&[1i64, 3]), r.pick(&[2i64, 4]));
            let kernel = f.iota(TensorType::new([k, dims[2], o], DType::F32), r.below(3) as i64);
            let kernel = small(f, kernel);
            let conv = ConvDims {
                input_batch: 0,
                input_feature: 2,
                input_spatial: vec![1],
                kernel_input_feature: 1,
                kernel_output_feature: 2,
                kernel_spatial: vec![0],
                output_batch: 0,
                output_feature: 2,
                output_spatial: vec![1],
            };
            let attrs = [
                ("dimension_numbers", Attr::Conv(Box::new(conv))),
                ("padding", Attr::Pairs(vec![[k / 2, k / 2]])),
                ("feature_group_count", i64s(1)),
                ("batch_group_count", i64s(1)),
            ];
            let ty = TensorType::new([dims[0], dims[1], o], DType::F32);
            let v = f.op(Opcode::Convolution, &[x, kernel], &attrs, &[ty])[0];
            small(f, v)
        }
        _ => {
            let s = sharding(r, axes, &dims);
            f.sharding_constraint(x, &s)
        }
    })
}

fn check(seed: u64, seen: &mut BTreeMap<&'static str, usize>) {
    let mut r = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (text, axes) = MESHES[seed as usize % MESHES.len()];
    let mut m = ModuleBuilder::new("random");
    m.mesh("mesh", Attr::Opaque(format!("sdy.mesh<{text}>")));
    let mut f = m.func("main");
    let shapes: [&[i64]; 5] = [&[12, 4], &[4, 6, 2], &[8, 12], &[6], &[12, 4]];
    let mut pool: Vec<ValueId> = Vec::new();
    for (i, dims) in shapes.iter().enumerate() {
        let mut attrs = AttrList::default();
        if r.below(4) > 0 {
            attrs.set("sdy.sharding", Attr::Opaque(sharding(&mut r, axes, dims)));
        }
        pool.push(f.param_with(&format!("p{i}"), TensorType::new(*dims, DType::F32), attrs));
    }
    for _ in 0..4 + r.below(14) {
        if let Some(v) = step(&mut f, &mut r, &pool, axes)
            && f.dims(v).iter().product::<i64>() < 3000
            && f.dims(v).len() <= 5
        {
            pool.push(v);
        }
    }
    let results: Vec<ValueId> = pool.iter().rev().take(4).copied().collect();
    f.ret(&results);
    let module = m.finish().unwrap_or_else(|e| panic!("seed {seed}: {}", e[0]));
    let main = &module.funcs[0];
    let inputs: Vec<Tensor> = (main.params.iter())
        .map(|p| {
            let dims = &main.ty(p.value).tensor().unwrap().dims;
            let n = dims.iter().product::<i64>();
            let values: Vec<f32> = (0..n).map(|_| r.below(9) as f32 - 4.0).collect();
            Tensor::from_f32(dims, DType::F32, &values).unwrap()
        })
        .collect();
    let want = eval_module(&module, &inputs).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    // The cheapest way, and any way.
    for p in [partition(&module), partition_shuffled(&module, seed)] {
        let p = p.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", *module));
        collectives(&p.module).into_iter().for_each(|(k, n)| *seen.entry(k).or_default() += n);
        let got = run_partitioned(&module, &p, &inputs);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            // Zeros may differ in sign.
            let (a, b) = (got.to_f32(), want.to_f32());
            assert!(a == b, "seed {seed}, result {i}:\n{}\n{}\n{a:?}\n{b:?}", *module, *p.module);
        }
    }
}

#[test]
fn partitioned_programs_compute_the_same() {
    let seeds = std::env::var("TPUSIM_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(400);
    let mut seen = BTreeMap::new();
    (1..=seeds).for_each(|seed| check(seed, &mut seen));
    // The programs are worth the name only if devices talk in every way.
    assert!(seeds < 400 || seen.len() == 5 && seen.values().all(|&n| n > 20), "{seen:?}");
    eprintln!("{seen:?}");
}
