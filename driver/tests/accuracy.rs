//! Times against what is known of real chips: libtpu's estimates for matmuls and convolutions, measured silicon, and bandwidth.
//!
//! Oracles: `shared/oracle/oracle.jsonl` (estimates of Google's compiler, in core cycles) and points of
//! `shared/silicon/measured.jsonl`, named where they are used.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};

use tpusim_backend::compile::compile;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{ModuleBuilder, TensorType, Verified, verify};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::program::Program;
use tpusim_sim::{RunOptions, time};

fn shared(sub: &str) -> Option<PathBuf> {
    let p = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(sub);
    if !p.exists() {
        println!("skipped: ../shared/{sub} is not here");
        return None;
    }
    Some(p)
}

fn cycles(program: &Program, chip: &ChipSpec) -> u64 {
    time(program, chip, &RunOptions::default()).unwrap().cycles
}

/// Chips as the oracle has them: a v4 plan is for one TensorCore.
fn oracle_chip(name: &str) -> ChipSpec {
    let one_core = [("tensorcores_per_device".to_owned(), "1".to_owned())];
    ChipSpec::load_with(name, if name == "v4" { &one_core } else { &[] }).unwrap()
}

/// The three sizes in a name such as `matmul_bf16_512x4096x4096` or `matmul_bf16_512`.
fn sides(name: &str) -> Option<Vec<u64>> {
    let sizes: Vec<u64> =
        name.strip_prefix("matmul_bf16_")?.split('x').map(|s| s.parse().ok()).collect::<Option<_>>()?;
    Some(if sizes.len() == 1 { vec![sizes[0]; 3] } else { sizes })
}

#[test]
fn matmuls_agree_with_libtpus_estimates() {
    let Some(root) = shared("oracle") else { return };
    let mut errors = Vec::new();
    for line in std::fs::read_to_string(root.join("oracle.jsonl")).unwrap().lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = row["program"].as_str().unwrap();
        let Some(s) = sides(name).filter(|s| s.iter().all(|d| (512..=8192).contains(d))) else { continue };
        let chip = oracle_chip(row["chip"].as_str().unwrap());
        let text = std::fs::read(root.join(format!("programs/{name}.mlir"))).unwrap();
        let module = verify(parse_program(&text, name).unwrap()).unwrap();
        let program = compile(&module, &chip).unwrap();
        let ours = cycles(&program, &chip) as f64;
        let oracle = row["estimated_cycles"].as_f64().unwrap();
        let error = ours / oracle - 1.0;
        println!("{name:28} {:4} {ours:9} estimate {oracle:9} {:+6.1} %", chip.name, error * 100.0);
        let (m, k, n) = (s[0] as f64, s[1] as f64, s[2] as f64);
        let seconds = ours / *chip.clock_hz as f64;
        let bytes = 2.0 * (m * k + k * n + m * n);
        let bps = *chip.hbm.bps_chip as f64 / f64::from(chip.devices_per_chip());
        let roof = (2.0 * m * n * k / chip.peak_flops_device(DType::BF16)).max(bytes / bps);
        assert!(seconds >= roof, "{name} on {}: {seconds} s is below the roofline's {roof} s", chip.name);
        assert!(error.abs() <= 0.35, "{name} on {}: {:+.1} %", chip.name, error * 100.0);
        errors.push(error.abs().max(1e-3));
    }
    let mean = (errors.iter().map(|e| e.ln()).sum::<f64>() / errors.len() as f64).exp();
    println!("{} points, geometric mean of |error| {:.1} %", errors.len(), mean * 100.0);
    assert!(errors.len() >= 30 && mean <= 0.12, "geometric mean {mean}");
}

// The 1 x 1 convolution is left out: libtpu's estimate for it is four times what its bytes take, copies between layouts included.
#[test]
fn convolutions_agree_with_libtpus_estimates() {
    let Some(root) = shared("oracle") else { return };
    let mut count = 0;
    for line in std::fs::read_to_string(root.join("oracle.jsonl")).unwrap().lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let name = row["program"].as_str().unwrap();
        if !name.starts_with("conv_") || !name.contains("_3x3x") {
            continue;
        }
        let chip = oracle_chip(row["chip"].as_str().unwrap());
        let text = std::fs::read(root.join(format!("programs/{name}.mlir"))).unwrap();
        let module = verify(parse_program(&text, name).unwrap()).unwrap();
        let program = compile(&module, &chip).unwrap();
        let ours = cycles(&program, &chip) as f64;
        let ratio = ours / row["estimated_cycles"].as_f64().unwrap();
        println!("{name:30} {:4} {ours:9} {ratio:.2} times the estimate", chip.name);
        let flops: f64 = program.ops.iter().map(|o| o.mxu_flops as f64).sum();
        let roof = flops / chip.peak_flops_device(DType::BF16);
        assert!(ours / *chip.clock_hz as f64 >= roof, "{name} on {}: below the roofline", chip.name);
        // 128 features fill half of a wide array, in pairs of positions of which each row of the window has one and a half.
        let limit = if name.contains("x128_") && *chip.mxu.dim > 128 { 1.35 } else { 1.2 };
        assert!((0.9..limit).contains(&ratio), "{name} on {}: {ratio:.2}", chip.name);
        count += 1;
    }
    assert_eq!(count, 15);
}

fn matmul(n: i64) -> Verified {
    let mut b = ModuleBuilder::new("matmul");
    let mut f = b.func("main");
    let x = f.param("x", TensorType::new([n, n], DType::BF16));
    let y = f.param("y", TensorType::new([n, n], DType::BF16));
    let z = f.matmul(x, y, DType::BF16);
    f.ret(&[z]);
    b.finish().unwrap()
}

// Oracle: measured.jsonl v5e-mm-xla-{4096,8192}-t less 0.12 ms of host dispatch (host_dispatch_s in chips.toml), v7x-gemm-{128, 256, 512, 4096},
// and 1.33 ms for 8192 cubed on v6e.
#[test]
fn matmuls_agree_with_silicon() {
    let points = [
        ("v5e", 4096, 707.3e-6),
        ("v5e", 8192, 5927e-6),
        ("v6e", 8192, 1.33e-3),
        ("v7x", 128, 1.62e-6),
        ("v7x", 256, 1.83e-6),
        ("v7x", 512, 2.55e-6),
        ("v7x", 4096, 153.92e-6),
    ];
    for (chip, n, seconds) in points {
        let chip = ChipSpec::load(chip).unwrap();
        let program = compile(&matmul(n), &chip).unwrap();
        let ours = cycles(&program, &chip) as f64 / *chip.clock_hz as f64;
        let error = ours / seconds - 1.0;
        println!(
            "{} {n:5}: {:.2} us, measured {:.2} us, {:+.1} %",
            chip.name,
            ours * 1e6,
            seconds * 1e6,
            error * 100.0
        );
        assert!(error.abs() <= 0.15, "{} {n}: {:+.1} %", chip.name, error * 100.0);
    }
}

// Oracle: real chips stream at 75 to 95 % of their peak bandwidth (v5e copies 82 %, v7x copies 86 %).
#[test]
fn streams_reach_the_bandwidth_of_real_chips() {
    for name in ["v4", "v5e", "v5p", "v6e", "v7x"] {
        let chip = ChipSpec::load(name).unwrap();
        let bps = *chip.hbm.bps_chip as f64 / f64::from(chip.devices_per_chip());
        for (arrays, dtype) in [(2, DType::F32), (3, DType::F32), (2, DType::BF16), (3, DType::BF16)] {
            let mut b = ModuleBuilder::new("stream");
            let mut f = b.func("main");
            let n = 64 << 20 >> 12;
            let t = TensorType::new([n, (1 << 12) / dtype.bytes() as i64], dtype);
            let x = f.param("x", t.clone());
            let y = if arrays == 3 { f.param("y", t.clone()) } else { x };
            let z = if arrays == 3 { f.add(x, y) } else { x };
            f.ret(&[z]);
            let program = compile(&b.finish().unwrap(), &chip).unwrap();
            let seconds = cycles(&program, &chip) as f64 / *chip.clock_hz as f64;
            let share = f64::from(arrays) * t.bytes().unwrap() as f64 / seconds / bps;
            println!("{name} {arrays} arrays of 64 MiB {dtype}: {:.1} % of peak", share * 100.0);
            assert!((0.75..=0.95).contains(&share), "{name} {arrays} arrays of {dtype}: {share}");
        }
    }
}
