//! What the tests of training steps on meshes share: small models and inputs of their steps.

use tpusim_backend::eval::Tensor;
use tpusim_backend::hlo::{Module, Param, Verified};
use tpusim_isa::num::DType;
use tpusim_workloads::llm::{Experts, Latent, Model};

/// Two layers of a model's form.
pub fn small(name: &str) -> Model {
    let m = *Model::find(name).unwrap();
    let experts = m.experts.map(|e| Experts { count: 8, active: 2, ff: 16, dense_layers: e.dense_layers.min(1), ..e });
    let latent = m.latent.map(|_| Latent { q_rank: 16, kv_rank: 16, nope: 6, rope: 4, value: 8 });
    let kv_heads = if m.kv_heads == m.heads { 4 } else { 2 };
    Model { layers: 2, d: 32, ff: 32, heads: 4, kv_heads, dim: 8, vocab: 64, experts, latent, ..m }
}

/// Inputs of a first step without a pattern: weights, no moments, tokens and targets.
pub fn inputs(module: &Verified<Module>) -> Vec<Tensor> {
    let main = module.func("main").unwrap();
    let tensor = |(k, p): (usize, &Param)| {
        let ty = main.ty(p.value).tensor().unwrap().clone();
        let n = ty.elements().unwrap() as usize;
        let name = module.locs.name(p.loc).unwrap();
        let draw = |i: usize| (i * 7919 + k * 104_729 + i * i * 13) % 1009;
        if ty.dtype == DType::I32 {
            let values: Vec<i64> = (0..n).map(|i| if n == 1 { 0 } else { (draw(i) % 64) as i64 }).collect();
            return Tensor::from_i64(&ty.dims, ty.dtype, &values).unwrap();
        }
        let value = |i: usize| match name {
            _ if name.starts_with("m/") || name.starts_with("v/") => 0.0,
            _ if name.ends_with("_norm") => 1.0 + draw(i) as f64 / 2500.0,
            _ => draw(i) as f64 / 2018.0 - 0.25,
        };
        Tensor::from_f64(&ty.dims, ty.dtype, &(0..n).map(value).collect::<Vec<_>>()).unwrap()
    };
    main.params.iter().enumerate().map(tensor).collect()
}

/// Checks that each of `found` is within `tolerance` of what is wanted, in the largest of it.
pub fn near(found: &[Tensor], want: &[Tensor], tolerance: f64, what: &str) {
    assert_eq!(found.len(), want.len(), "{what}");
    for (i, (found, want)) in found.iter().zip(want).enumerate() {
        let (found, want) = (found.to_f64(), want.to_f64());
        let largest = want.iter().fold(f64::MIN_POSITIVE, |a, v| a.max(v.abs()));
        let off = found.iter().zip(&want).fold(0f64, |m, (a, b)| m.max((a - b).abs() / largest));
        assert!(off < tolerance, "{what}: output {i} is off by {off:e}");
    }
}
