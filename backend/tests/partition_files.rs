//! File tests of the partitioner: programs in `filetests/partition/*.mlir`, what each device runs in `*.local` beside them.
//! `TPUSIM_BLESS=1` writes the expected files anew. What a device runs is also held against the reference evaluator on the whole
//! program, and printed text must read back as the same module.

mod partition_common;

use std::fs;
use std::path::Path;

use partition_common::run_partitioned;
use tpusim_backend::eval::{Tensor, eval_module};
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{Module, Verified, verify};
use tpusim_backend::partition::{partition, partition_shuffled};

fn read(text: &[u8], name: &str) -> Verified<Module> {
    verify(parse_program(text, name).unwrap_or_else(|e| panic!("{name}: {e:?}")))
        .unwrap_or_else(|e| panic!("{name}: {}", e[0]))
}

/// Small integers, so that sums are exact in any order.
fn input(ty: &tpusim_backend::hlo::TensorType, seed: u64) -> Tensor {
    let n = ty.elements().unwrap();
    let value = |i: u64| ((i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed * 77) >> 40) % 9) as i64;
    if ty.dtype.is_float() {
        let values: Vec<f32> = (0..n).map(|i| value(i) as f32 - 4.0).collect();
        Tensor::from_f32(&ty.dims, ty.dtype, &values).unwrap()
    } else {
        let values: Vec<i64> = (0..n).map(|i| value(i) * 150 - 100).collect();
        Tensor::from_i64(&ty.dims, ty.dtype, &values).unwrap()
    }
}

#[test]
fn local_programs_are_as_expected() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/partition");
    let bless = std::env::var_os("TPUSIM_BLESS").is_some();
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "mlir"));
    files.sort();
    assert!(files.len() >= 8);
    for file in files {
        let name = file.display().to_string();
        let module = read(&fs::read(&file).unwrap(), &name);
        let p = partition(&module).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = p.module.to_string();
        let again = read(text.as_bytes(), &name);
        for (a, b) in again.to_string().lines().zip(text.lines()) {
            assert_eq!(a, b, "{name}");
        }
        let expected = file.with_extension("local");
        if bless {
            fs::write(&expected, &text).unwrap();
        } else {
            let want = fs::read_to_string(&expected).unwrap_or_default();
            assert_eq!(text, want, "{name}: TPUSIM_BLESS=1 accepts the new text");
        }
        // A manual computation over some axes is beyond the evaluator; its parts are not.
        if name.contains("partly_manual") {
            continue;
        }
        let main = module.func("main").unwrap();
        let types = main.params.iter().map(|p| main.ty(p.value).tensor().unwrap());
        let inputs: Vec<Tensor> = types.enumerate().map(|(i, t)| input(t, i as u64)).collect();
        let want = eval_module(&module, &inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
        for seed in 0..20 {
            let p = if seed == 0 { p.clone() } else { partition_shuffled(&module, seed).unwrap() };
            let got = run_partitioned(&module, &p, &inputs);
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                // Softmax divides by a sum of exponentials, rounded in another order.
                let close = |(a, b): (f64, f64)| a == b || name.contains("softmax") && (a - b).abs() <= 1e-6;
                let same = got.to_f64().into_iter().zip(want.to_f64()).all(close);
                assert!(same, "{name}, result {i}, seed {seed}:\n{}", *p.module);
            }
        }
    }
}
