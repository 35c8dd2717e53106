//! What the tests of the partitioner share: running a partitioned program on arrays of the whole one.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;

use tpusim_backend::eval::{EvalOptions, Tensor, eval_spmd};
use tpusim_backend::hlo::{Attr, Block, Module, Opcode, Verified};
use tpusim_backend::partition::{Partitioned, assemble, cut};

/// Cuts `inputs` of the whole program, runs each device's part with the evaluator, and puts the results together.
pub fn run_partitioned(whole: &Verified<Module>, p: &Partitioned, inputs: &[Tensor]) -> Vec<Tensor> {
    let local = p.module.func("main").unwrap();
    permutations_are_such(&local.body);
    let mut per_device: Vec<Vec<Tensor>> = vec![Vec::new(); p.devices as usize];
    for (i, (t, s)) in inputs.iter().zip(&p.params).enumerate() {
        let ty = local.ty(local.params[i].value).tensor().unwrap();
        let parts = cut(t.bytes(), t.dims(), t.dtype(), s, &p.mesh).unwrap();
        for (d, part) in per_device.iter_mut().zip(parts) {
            d.push(Tensor::new(ty.clone(), part).unwrap());
        }
    }
    let outputs = eval_spmd(&p.module, &per_device, &EvalOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let results = &whole.func("main").unwrap().results;
    let result = |(i, r): (usize, &tpusim_backend::hlo::ResultInfo)| {
        let ty = r.ty.tensor().unwrap();
        let parts: Vec<Vec<u8>> = outputs.iter().map(|o| o[i].bytes().to_vec()).collect();
        Tensor::new(ty.clone(), assemble(&parts, &ty.dims, ty.dtype, &p.results[i], &p.mesh).unwrap()).unwrap()
    };
    results.iter().enumerate().map(result).collect()
}

/// How many collectives of each kind a module has.
pub fn collectives(m: &Module) -> BTreeMap<&'static str, usize> {
    fn count(b: &Block, out: &mut BTreeMap<&'static str, usize>) {
        for op in &b.ops {
            use Opcode::*;
            if matches!(op.opcode, AllGather | AllReduce | ReduceScatter | AllToAll | CollectivePermute) {
                *out.entry(op.opcode.name()).or_default() += 1;
            }
            op.regions.iter().for_each(|r| count(&r.block, out));
        }
    }
    let mut out = BTreeMap::new();
    m.funcs.iter().for_each(|f| count(&f.body, &mut out));
    out
}

/// No device sends or receives twice, which the evaluator does not ask for but the specification does.
fn permutations_are_such(b: &Block) {
    for op in &b.ops {
        if let (Opcode::CollectivePermute, Some(Attr::Pairs(pairs))) = (op.opcode, op.attrs.get("source_target_pairs"))
        {
            for side in 0..2 {
                let mut ids: Vec<i64> = pairs.iter().map(|p| p[side]).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), pairs.len(), "{pairs:?}");
            }
        }
        op.regions.iter().for_each(|r| permutations_are_such(&r.block));
    }
}
