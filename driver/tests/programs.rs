//! The small programs of `tests/programs`, each a case that once went wrong, on every chip.
//!
//! Inputs are whole numbers from -3 to 3, so that sums are exact. Oracle: the reference evaluator, to the bit; a first line
//! `// within R` allows errors of R times the largest magnitude, `// refused: TEXT` wants a compile error with that text, and
//! `// VMEM N` gives the chips only N bytes of it, which makes kernels of many blocks.

mod common;

use std::path::Path;

use tpusim_backend::eval::Tensor;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{TensorType, verify};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::{DType, DTypeKind};

fn input(index: usize, dims: &[i64], dtype: DType) -> Tensor {
    let n = dims.iter().product::<i64>();
    let value = |i: i64| (i * 5 + i / 7 + i / 11 + index as i64).rem_euclid(7) - 3;
    let tensor = if dtype.kind() == DTypeKind::Complex {
        let parts = match dtype {
            DType::C128 => (0..2 * n).flat_map(|i| (value(i) as f64).to_le_bytes()).collect(),
            _ => (0..2 * n).flat_map(|i| (value(i) as f32).to_le_bytes()).collect(),
        };
        Tensor::new(TensorType::new(dims, dtype), parts)
    } else if dtype.is_float() {
        Tensor::from_f64(dims, dtype, &(0..n).map(|i| value(i) as f64).collect::<Vec<_>>())
    } else {
        let least = if dtype.is_signed() { 0 } else { 3 };
        let wrap = |v: i64| if dtype == DType::I1 { v & 1 } else { v + least };
        Tensor::from_i64(dims, dtype, &(0..n).map(|i| wrap(value(i))).collect::<Vec<_>>())
    };
    tensor.unwrap_or_else(|e| panic!("{e}"))
}

fn check(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{name}: {e}"));
    let first = text.lines().next().unwrap_or("");
    let refused = first.strip_prefix("// refused: ");
    let within = first.strip_prefix("// within ").map_or(0.0, |r| r.parse().unwrap_or_else(|e| panic!("{name}: {e}")));
    let vmem = first
        .strip_prefix("// VMEM ")
        .map(|n| ["vmem_bytes", "scoped_vmem_bytes"].map(|k| (k.to_owned(), n.to_owned())));
    let set = vmem.map(Vec::from).unwrap_or_default();
    let chip = |name| ChipSpec::load_with(name, &set).unwrap_or_else(|e| panic!("{name}: {e}"));
    let module = parse_program(text.as_bytes(), &name).unwrap_or_else(|e| panic!("{name}: {e}"));
    let module = verify(module).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let main = module.func("main").unwrap_or_else(|| panic!("{name} has no main"));
    let types = main.params.iter().filter_map(|p| main.ty(p.value).tensor());
    let inputs: Vec<Tensor> = types.enumerate().map(|(i, t)| input(i, &t.dims, t.dtype)).collect();
    let want = if refused.is_some() { Vec::new() } else { common::reference(&module, &inputs) };
    let bytes: Vec<Vec<u8>> = inputs.iter().map(|t| t.bytes().to_vec()).collect();
    for chip in common::CHIPS.map(chip) {
        let program = match (common::compiled(&module, &chip), refused) {
            (Ok(p), None) => p,
            (Err(e), Some(text)) if e.contains(text) => continue,
            (Err(e), _) => panic!("{name} on {}: {e}", chip.name),
            (Ok(_), Some(text)) => panic!("{name} on {}: should be refused with {text}", chip.name),
        };
        let got = common::run(&program, &chip, &bytes).unwrap_or_else(|e| panic!("{name} on {}: {e}", chip.name));
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            let scale = common::magnitude(&common::numbers(want.dtype(), want.bytes()));
            if let Some(e) = common::differs(want.dtype(), got, want.bytes(), within * scale) {
                panic!("{name} on {}: output {i}, {}: {e}", chip.name, want.ty());
            }
        }
    }
}

#[test]
fn small_programs_agree_with_the_evaluator() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let only = std::env::var("TPUSIM_PROGRAM").unwrap_or_default();
    let mut paths: Vec<_> = std::fs::read_dir(&dir)
        .expect("the folder of programs can be listed")
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "mlir") && p.to_string_lossy().contains(&only))
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().for_each(|p| check(p));
}
