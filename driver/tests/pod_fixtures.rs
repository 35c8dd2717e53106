//! Programs for eight devices as JAX emits them, cut, compiled and run on simulated slices. Oracle: JAX's own outputs, within each
//! fixture's tolerance; for time, the run without data and the unfolded one.

mod common;

use std::path::{Path, PathBuf};

use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::verify;
use tpusim_driver::{Mode, PodExecutable};
use tpusim_isa::num::{DType, convert};
use tpusim_isa::topology::Topology;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::PodOptions;
use tpusim_traces::npy;

const SLICES: [(&str, &str); 3] = [("v5e", "4x2"), ("v5p", "2x2x2"), ("v7x", "2x2x1")];

fn fixtures() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let Ok(all) = std::fs::read_dir(&dir) else {
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: there is no {}", dir.display());
        }
        return Vec::new();
    };
    let mut names: Vec<PathBuf> = all.map(|d| d.unwrap().path()).collect();
    names.retain(|d| d.file_name().unwrap().to_string_lossy().contains("spmd_"));
    names.sort();
    assert_eq!(names.len(), 8);
    names
}

fn doubles(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(dtype.bytes()).map(|b| convert::to_f64(dtype, b)).collect()
}

#[test]
fn fixtures_agree_with_jax() {
    for dir in fixtures() {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        let meta: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(dir.join("meta.json")).unwrap()).unwrap();
        let tolerance = meta["tolerance"].as_f64().unwrap();
        let program = std::fs::read(dir.join("program.mlir")).unwrap();
        let module = verify(parse_program(&program, "program.mlir").unwrap()).unwrap();
        for (chip, shape) in SLICES {
            let at = format!("{name} on {chip} {shape}");
            let chip = common::chip(chip);
            let cluster = Cluster { slice: Topology::parse(&chip, shape).unwrap(), slices: 1 };
            let pod = PodExecutable::new(&module, &chip, &cluster).unwrap_or_else(|e| panic!("{at}: {e}"));
            let read = |file: String| npy::read(&dir.join(file)).unwrap_or_else(|e| panic!("{at}: {e}"));
            let inputs: Vec<Vec<u8>> = (0..pod.inputs().len()).map(|i| read(format!("in{i}.npy")).data).collect();
            let opts = PodOptions::default();
            let run = pod.run(Mode::Execute, &inputs, &opts).unwrap_or_else(|e| panic!("{at}: {e}"));
            for (k, (got, ty)) in run.outputs.iter().zip(pod.outputs()).enumerate() {
                let got = doubles(ty.dtype, got);
                let want = doubles(ty.dtype, &read(format!("out{k}.npy")).data);
                let scale = want.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
                let off = got.iter().zip(&want).fold(0f64, |m, (a, b)| m.max((a - b).abs() / scale));
                assert!(got.len() == want.len() && off <= tolerance, "{at}: output {k} is off by {off:e}");
            }
            let timed = pod.run(Mode::Time, &[], &opts).unwrap().profile;
            let unfolded = pod.run(Mode::Time, &[], &PodOptions { fold: false, ..opts }).unwrap().profile;
            assert_eq!((timed.end, unfolded.end), (run.profile.end, run.profile.end), "{at}");
        }
    }
}
