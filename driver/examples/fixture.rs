//! Runs one fixture folder on a chip and prints how far its outputs are from the expected ones.
use std::path::Path;
use tpusim_backend::{compile::compile, front::parse_program, hlo::verify};
use tpusim_isa::{
    chip::ChipSpec,
    num::{DType, convert},
};
use tpusim_sim::RunOptions;
use tpusim_traces::npy;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (dir, chip) = (Path::new(&args[1]), &args[2]);
    let verbose = args.len() > 3;
    let chip = ChipSpec::load(chip).unwrap();
    let text = std::fs::read(dir.join("program.mlir")).unwrap();
    let module = verify(parse_program(&text, "program.mlir").unwrap()).unwrap();
    let main = module.func("main").unwrap();
    let types: Vec<_> = main.params.iter().map(|p| main.ty(p.value).tensor().unwrap().clone()).collect();
    let outs: Vec<_> = main.results.iter().map(|r| r.ty.tensor().unwrap().clone()).collect();
    let t0 = std::time::Instant::now();
    let program = match compile(&module, &chip) {
        Ok(p) => p,
        Err(e) => {
            println!("compile: {e}");
            return;
        }
    };
    let t1 = t0.elapsed();
    if verbose {
        print!("{}", tpusim_isa::asm::print(&program));
    }
    let errors = tpusim_isa::check::check(&program, &chip);
    for e in errors.iter().take(5) {
        println!("check: {e}");
    }
    let inputs: Vec<Vec<u8>> = types
        .iter()
        .enumerate()
        .map(|(i, t)| npy::read_as(&dir.join(format!("in{i}.npy")), t.dtype, &t.dims).unwrap().data)
        .collect();
    let meta: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("meta.json")).unwrap()).unwrap();
    let tol = meta["tolerance"].as_f64().unwrap();
    let mut cycles = vec![];
    for (late, poison, fold) in [(false, false, true), (true, true, false)] {
        let opts = RunOptions { poison, dma_late: late, fold, ..Default::default() };
        let r = match tpusim_sim::execute(&program, &chip, &inputs, &opts) {
            Ok(r) => r,
            Err(e) => {
                println!("fault: {e}");
                return;
            }
        };
        cycles.push(r.profile.cycles);
        for (i, t) in outs.iter().enumerate() {
            let want = npy::read_as(&dir.join(format!("out{i}.npy")), t.dtype, &t.dims).unwrap().data;
            let f = |b: &[u8]| -> Vec<f64> {
                if t.dtype == DType::I1 {
                    b.iter().map(|x| *x as f64).collect()
                } else if t.dtype.is_int() {
                    convert::decode_i64(t.dtype, b).iter().map(|x| *x as f64).collect()
                } else {
                    convert::decode_f64(t.dtype, b)
                }
            };
            let (got, want) = (f(&r.outputs[i]), f(&want));
            let scale = want.iter().filter(|x| x.is_finite()).fold(0f64, |m, x| m.max(x.abs())).max(1e-30);
            let mut worst = (0f64, 0);
            for (k, (a, b)) in got.iter().zip(&want).enumerate() {
                let d = if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() / scale };
                let d = if d.is_nan() { f64::INFINITY } else { d };
                if d > worst.0 {
                    worst = (d, k);
                }
            }
            if worst.0 > tol {
                println!(
                    "  late/poison={late} out{i} {} worst {:.3e} at {} got {} want {} (tol {tol})",
                    t, worst.0, worst.1, got[worst.1], want[worst.1]
                );
            }
        }
    }
    let p = tpusim_sim::time(&program, &chip, &RunOptions::default()).unwrap();
    println!(
        "{} {}: ops {} cycles {:?} time {} compile {:?}",
        dir.file_name().unwrap().to_str().unwrap(),
        chip.name,
        program.ops.len(),
        cycles,
        p.cycles,
        t1
    );
}
