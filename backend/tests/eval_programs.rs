//! Programs of TorchTPU and of Google's TPU compiler's corpus. Oracle: they come from real frameworks, so the verifier must accept
//! them, and the evaluator must give results of the declared types or name what it lacks.

#![expect(clippy::print_stderr, reason = "a test that skips says so")]

use std::path::{Path, PathBuf};

use tpusim_backend::eval::{EvalError, EvalOptions, Tensor, eval_module_with};
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::verify;
use tpusim_isa::num::DTypeKind;

fn programs(under: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(dir) =
        ["../../shared", "../../../shared"].map(|s| root.join(s).join(under)).into_iter().find(|d| d.is_dir())
    else {
        eprintln!("skipped: shared/{under} is absent");
        return Vec::new();
    };
    let mut out = Vec::new();
    let mut todo = vec![dir];
    while let Some(d) = todo.pop() {
        for e in std::fs::read_dir(d).unwrap().map(|e| e.unwrap().path()) {
            if e.is_dir() {
                todo.push(e);
            } else if e.extension().is_some_and(|x| x == "mlir") && !e.to_string_lossy().ends_with(".mosaic.mlir") {
                out.push(e);
            }
        }
    }
    out.sort();
    out
}

#[test]
fn real_programs_pass_the_verifier() {
    let mut wrong = Vec::new();
    for under in ["torchtpu_programs", "oracle", "fixtures"] {
        let all = programs(under);
        for p in &all {
            let Ok(module) = parse_program(&std::fs::read(p).unwrap(), &p.display().to_string()) else {
                wrong.push(format!("{}: does not parse", p.display()));
                continue;
            };
            if let Err(e) = verify(module) {
                wrong.push(format!("{}: {}", p.display(), e[0]));
            }
        }
        eprintln!("{under}: {} programs", all.len());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn torchtpu_programs_run() {
    let options = EvalOptions { max_tensor_bytes: 4 << 20, ..EvalOptions::default() };
    let (mut ran, mut skipped) = (0, Vec::new());
    for p in programs("torchtpu_programs") {
        let Ok(module) = parse_program(&std::fs::read(&p).unwrap(), "program") else { continue };
        let Ok(module) = verify(module) else { continue };
        let Some(main) = module.func("main") else { continue };
        let inputs: Vec<Tensor> = (main.params.iter())
            .map(|p| {
                let ty = main.ty(p.value).tensor().unwrap().clone();
                let n = ty.elements().unwrap() as i64;
                match ty.dtype.kind() {
                    DTypeKind::Float => {
                        let v: Vec<f32> = (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 64.0).collect();
                        Tensor::from_f32(&ty.dims, ty.dtype, &v).unwrap()
                    }
                    _ => Tensor::from_i64(&ty.dims, ty.dtype, &(0..n).map(|i| i % 2).collect::<Vec<_>>()).unwrap(),
                }
            })
            .collect();
        match eval_module_with(&module, &inputs, &options) {
            Ok(_) => ran += 1,
            Err(e @ (EvalError::Unsupported { .. } | EvalError::TooLarge { .. })) => {
                skipped.push(format!("{}: {e}", p.display()));
            }
            Err(e) => panic!("{}: {e}", p.display()),
        }
    }
    eprintln!("{ran} ran, not run:\n{}", skipped.join("\n"));
}
