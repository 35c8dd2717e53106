//! Programs with shardings as JAX emits them, partitioned and run on eight devices by the reference evaluator. Oracle: JAX's own
//! outputs, within each fixture's tolerance (largest difference relative to the output's largest magnitude).

#![expect(clippy::print_stderr, reason = "a test that skips says so")]

mod partition_common;

use std::path::{Path, PathBuf};

use partition_common::run_partitioned;
use tpusim_backend::eval::{Tensor, eval_module};
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{Attr, TensorType, verify};
use tpusim_backend::partition::{partition, partition_shuffled};

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
    let scale = want.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs())).max(f64::MIN_POSITIVE);
    let differ = |(a, b): (&f64, &f64)| match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (false, false) if a == b => 0.0,
        (false, false) => (a - b).abs() / scale,
        _ => f64::INFINITY,
    };
    got.iter().zip(&want).map(differ).fold(0.0, f64::max)
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

/// A sharding over axes of 4 and 2 that divides `dims`; `seed` says which.
fn some_sharding(dims: &[i64], seed: usize) -> String {
    let mut out = vec![String::new(); dims.len()];
    for (k, (name, n)) in [("x", 4), ("y", 2)].into_iter().enumerate() {
        let fits: Vec<usize> = (0..dims.len()).filter(|&d| dims[d] % n == 0 && out[d].is_empty()).collect();
        // Sometimes none.
        if let Some(&d) = fits.get((seed * (k + 1) + k) % (fits.len() + 1)) {
            out[d] = format!("\"{name}\"");
        }
    }
    let list: Vec<String> = out.iter().map(|o| format!("{{{o}}}")).collect();
    format!("sdy.sharding<@mesh, [{}]>", list.join(", "))
}

/// Inputs for parameters of the given types: each takes the next file of its size.
fn read_inputs(dir: &Path, types: &[TensorType]) -> Vec<Tensor> {
    let mut next = 0;
    let mut take = |ty: &TensorType| loop {
        let bytes = std::fs::read(dir.join(format!("in{next}.npy"))).expect("an input");
        next += 1;
        let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        if ty.bytes() == Some((bytes.len() - start) as u64) {
            break Tensor::new(ty.clone(), bytes[start..].to_vec()).unwrap();
        }
    };
    types.iter().map(&mut take).collect()
}

/// The programs of one device, their parameters cut somehow. Oracle: the evaluator on the whole program, within the fixture's
/// tolerance, as sums of rounded numbers differ with their order.
#[test]
fn programs_of_one_device_compute_the_same_on_eight() {
    let Some(dir) = shared("fixtures") else { return };
    let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|d| d.unwrap().path()).collect();
    names.sort();
    let only = std::env::var("TPUSIM_FIXTURE").ok();
    let (mut failures, mut done) = (Vec::new(), 0);
    for (k, dir) in names.iter().enumerate() {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        // Kernels are not the partitioner's.
        let skip = name.starts_with("pallas") || name.contains("spmd_");
        if skip || only.as_ref().is_some_and(|o| *o != name) {
            continue;
        }
        let mut module = parse_program(&std::fs::read(dir.join("program.mlir")).unwrap(), &name).unwrap();
        module.meshes.push(("mesh".into(), Attr::Opaque("sdy.mesh<[\"x\"=4, \"y\"=2]>".into())));
        let main = module.funcs.iter_mut().find(|f| f.name == "main").unwrap();
        let types: Vec<TensorType> = main.params.iter().map(|p| main.ty(p.value).tensor().unwrap().clone()).collect();
        for (i, (p, ty)) in main.params.iter_mut().zip(&types).enumerate() {
            p.attrs.set("sdy.sharding", Attr::Opaque(some_sharding(&ty.dims, k + i)));
        }
        let module = verify(module).unwrap_or_else(|e| panic!("{name}: {}", e[0]));
        let inputs = read_inputs(dir, &types);
        let start = std::time::Instant::now();
        let want = eval_module(&module, &inputs).unwrap();
        let whole = start.elapsed();
        for p in [partition(&module), partition_shuffled(&module, k as u64)] {
            let p = p.unwrap_or_else(|e| panic!("{name}: {e}"));
            let got = run_partitioned(&module, &p, &inputs);
            for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                let d = distance(got, want);
                if d > tolerance(dir) {
                    failures.push(format!("{name}: output {i} is off by {d:e}"));
                }
            }
        }
        done += 1;
        eprintln!("{name}: {whole:.1?} whole, {:.1?} in all", start.elapsed());
    }
    assert!(failures.is_empty() && (done > 25 || only.is_some()), "{}", failures.join("\n"));
}
