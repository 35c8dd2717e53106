//! Programs as JAX emits them, through the text front end, the verifier and the evaluator. Oracle: JAX's own outputs on a CPU,
//! within each fixture's tolerance (largest difference relative to the output's largest magnitude).

use std::path::{Path, PathBuf};

use tpusim_backend::eval::{Tensor, eval_module};
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{TensorType, verify};
use tpusim_isa::num::DType;

fn fixtures() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    let dir = if dir.is_dir() { dir } else { Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures") };
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("skipped: shared/fixtures is absent");
    None
}

/// The elements of a `.npy` file, raw. The header is a line of Python; its shape is in the caller's type already.
fn read_npy(path: &Path, ty: &TensorType) -> Tensor {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(&bytes[..6], b"\x93NUMPY", "{}", path.display());
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert!(!String::from_utf8_lossy(&bytes[10..header]).contains("True"), "{}: Fortran order", path.display());
    Tensor::new(ty.clone(), bytes[header..].to_vec()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn tolerance(dir: &Path) -> f64 {
    let meta = std::fs::read_to_string(dir.join("meta.json")).unwrap();
    let (_, rest) = meta.split_once("\"tolerance\":").expect("a tolerance");
    rest.trim_start().split([',', '\n']).next().unwrap().trim().parse().expect("a number")
}

/// Largest difference relative to the largest magnitude of `want`; infinite where one is NaN and the other is not.
fn distance(got: &Tensor, want: &Tensor) -> f64 {
    if got.bytes() == want.bytes() {
        return 0.0;
    }
    let (got, want) = (got.to_f64(), want.to_f64());
    let scale = want.iter().filter(|v| v.is_finite()).fold(0f64, |m, v| m.max(v.abs()));
    let differ = |(a, b): (&f64, &f64)| match (a.is_nan(), b.is_nan()) {
        (true, true) => 0.0,
        (false, false) if a == b => 0.0,
        (false, false) => (a - b).abs() / scale.max(f64::MIN_POSITIVE),
        _ => f64::INFINITY,
    };
    got.iter().zip(&want).map(differ).fold(0.0, f64::max)
}

fn check(name: &str) {
    let Some(dir) = fixtures().map(|d| d.join(name)) else { return };
    let text = std::fs::read(dir.join("program.mlir")).unwrap();
    let module = parse_program(&text, name).unwrap_or_else(|e| panic!("{name}: {e}"));
    let module =
        verify(module).unwrap_or_else(|e| panic!("{name}: {}", e.iter().map(|e| format!("{e}\n")).collect::<String>()));
    let main = module.func("main").expect("main");
    let ty = |t: &tpusim_backend::hlo::Type| t.tensor().expect("a tensor").clone();
    let inputs: Vec<Tensor> = (main.params.iter().enumerate())
        .map(|(i, p)| read_npy(&dir.join(format!("in{i}.npy")), &ty(main.ty(p.value))))
        .collect();
    let outputs = eval_module(&module, &inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
    let tolerance = tolerance(&dir);
    for (i, (got, r)) in outputs.iter().zip(&main.results).enumerate() {
        let want = read_npy(&dir.join(format!("out{i}.npy")), &ty(&r.ty));
        let d = distance(got, &want);
        eprintln!("{name} output {i}: {d:.2e} of {tolerance:.0e}");
        assert!(d <= tolerance, "{name}: output {i} is off by {d}, allowed is {tolerance}");
        if got.dtype() == DType::I1 {
            assert_eq!(got, &want, "{name}: output {i}");
        }
    }
}

macro_rules! fixtures {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name));
        }
    )*};
}

fixtures! {
    attention_causal auto_spmd_fsdp_block auto_spmd_mlp batched_dot cond_switch conv2d conv_depthwise_dilated
    decode_step_kv_cache elementwise_zoo gather_scatter integer_zoo layernorm matmul_bf16 matmul_f32_ragged matmul_fp8
    matmul_int8 maxpool_grad mlp moe_dense_dispatch moe_ragged_dot quantized_linear qwen3_block qwen3_tiny_train_step
    reduce_zoo resnet_block scan shape_zoo softmax sort_topk threefry while_loop
}
