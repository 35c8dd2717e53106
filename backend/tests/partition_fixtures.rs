//! Programs with shardings as JAX emits them, partitioned and run on eight devices by the reference evaluator. Oracle: JAX's own
//! outputs, within each fixture's tolerance (largest difference relative to the output's largest magnitude).

#![expect(clippy::print_stderr, reason = "a test that skips says so")]

mod partition_common;

use std::path::{Path, PathBuf};

use partition_common::run_partitioned;
use tpusim_backend::eval::Tensor;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{TensorType, verify};
use tpusim_backend::partition::partition;

fn shared(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = ["../../shared", "../../../shared"].iter().map(|s| root.join(s).join(name)).find(|p| p.is_dir());
    if found.is_none() {
        eprintln!("skipped: shared/{name} is absent");
    }
    found
}

fn read_npy(path: &Path, ty: &TensorType) -> Tensor {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&bytes[..6], b"\x93NUMPY", "{}", path.display());
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    Tensor::new(ty.clone(), bytes[start..].to_vec()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn tolerance(dir: &Path) -> f64 {
    let meta = std::fs::read_to_string(dir.join("meta.json")).unwrap();
    let (_, rest) = meta.split_once("\"tolerance\":").expect("a tolerance");
    rest.trim_start().split([',', '\n']).next().unwrap().trim().parse().expect("a number")
}

fn distance(got: &Tensor, want: &Tensor) -> f64 {
    let (got, want) = (got.to_f64(), want.to_f64());
    let scale = want.iter().fold(0f64, |m, v| m.max(v.abs())).max(f64::MIN_POSITIVE);
    got.iter().zip(&want).fold(0f64, |m, (a, b)| m.max(if a == b { 0.0 } else { (a - b).abs() / scale }))
}

#[test]
fn fixtures_agree_with_jax() {
    let Some(dir) = shared("fixtures") else { return };
    let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|d| d.unwrap().path()).collect();
    names.retain(|d| {
        let name = d.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("spmd_") || name.starts_with("auto_spmd_")
    });
    names.sort();
    assert_eq!(names.len(), 8);
    let mut failures = Vec::new();
    for dir in names {
        for file in ["program.mlir", "program.mlirbc"] {
            let path = dir.join(file);
            let module = verify(parse_program(&std::fs::read(&path).unwrap(), file).unwrap()).unwrap();
            let p = match partition(&module) {
                Ok(p) => p,
                Err(e) => {
                    failures.push(format!("{}: {e}", path.display()));
                    continue;
                }
            };
            assert_eq!(p.devices, 8);
            let main = module.func("main").unwrap();
            let inputs: Vec<Tensor> = (main.params.iter().enumerate())
                .map(|(i, p)| read_npy(&dir.join(format!("in{i}.npy")), main.ty(p.value).tensor().unwrap()))
                .collect();
            let got = run_partitioned(&module, &p, &inputs);
            for (i, got) in got.iter().enumerate() {
                let want = read_npy(&dir.join(format!("out{i}.npy")), got.ty());
                let d = distance(got, &want);
                if d > tolerance(&dir) {
                    failures.push(format!("{}: output {i} is off by {d:e}", path.display()));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
