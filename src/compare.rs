//! A run's outputs against the reference evaluator.

use tpusim_backend::eval::{DotPrecision, EvalOptions, Tensor, eval_module_with};
use tpusim_backend::hlo::TensorType;
use tpusim_isa::num::DType;

use crate::failure::Failure;
use crate::program::Loaded;

/// Evaluates the program on `inputs`; gives a line per output, and fails if one is further from the reference than its type explains.
///
/// The distance is the root mean square of the differences over that of the reference. The evaluator rounds at other places than
/// fused code does, so floats may differ by a few units of their last place; integers may not.
pub fn against_reference(
    loaded: &Loaded,
    inputs: &[Vec<u8>],
    types: &[TensorType],
    outputs: &[Vec<u8>],
) -> Result<String, Failure> {
    let mut arguments = Vec::with_capacity(inputs.len());
    for ((_, ty), bytes) in loaded.params.iter().zip(inputs) {
        arguments.push(Tensor::new(ty.clone(), bytes.clone()).map_err(Failure::usage)?);
    }
    let options = EvalOptions { dot: DotPrecision::Tpu, ..EvalOptions::default() };
    let reference = eval_module_with(&loaded.module, &arguments, &options).map_err(Failure::program)?;
    let (mut text, mut wrong) = (String::from("\ncheck against the reference evaluator\n"), false);
    for (i, ((expected, ty), found)) in reference.iter().zip(types).zip(outputs).enumerate() {
        let found = Tensor::new(ty.clone(), found.clone()).map_err(Failure::program)?;
        let (distance, limit) = (distance(&found, expected), limit(ty.dtype));
        let good = distance <= limit;
        wrong |= !good;
        let verdict = if good { "ok" } else { "WRONG" };
        text.push_str(&format!("  out{i} {ty}  relative error {distance:.2e} (limit {limit:.0e})  {verdict}\n"));
    }
    if wrong { Err(Failure::program(text.trim_start())) } else { Ok(text) }
}

/// Largest distance that rounding explains: some units of the last place.
fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-11, // doubles are computed as sums of two f32, which hold 48 of their 53 bits, and sums lose some more
        DType::F32 => 5e-3,  // products are of bf16 operands, whose own rounding may fall to the other side
        DType::F16 => 5e-3,
        DType::BF16 => 2e-2,
        d if d.is_float() => 0.2,
        DType::C64 | DType::C128 => 5e-3,
        _ => 0.0,
    }
}

fn distance(found: &Tensor, expected: &Tensor) -> f64 {
    if found.bytes() == expected.bytes() {
        return 0.0;
    }
    let numbers = |t: &Tensor| match t.dtype() {
        DType::C64 => tpusim_isa::num::convert::decode_f64(DType::F32, t.bytes()),
        DType::C128 => tpusim_isa::num::convert::decode_f64(DType::F64, t.bytes()),
        _ => t.to_f64(),
    };
    let (mut difference, mut norm) = (0.0, 0.0);
    for (a, b) in numbers(found).into_iter().zip(numbers(expected)) {
        if a == b || (a.is_nan() && b.is_nan()) {
            norm += if b.is_finite() { b * b } else { 0.0 };
            continue;
        }
        difference += (a - b) * (a - b);
        norm += b * b;
    }
    if difference.is_nan() { f64::INFINITY } else { (difference / f64::max(norm, f64::MIN_POSITIVE)).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: the definition, by hand: |(0, 1)| / |(3, 4)|.
    #[test]
    fn distance_is_relative() {
        let t = |v: &[f32]| Tensor::from_f32(&[2], DType::F32, v).unwrap();
        assert_eq!(distance(&t(&[3.0, 5.0]), &t(&[3.0, 4.0])), 0.2);
        assert_eq!(distance(&t(&[f32::NAN, 1.0]), &t(&[f32::NAN, 1.0])), 0.0);
        assert_eq!(distance(&t(&[f32::NAN, 1.0]), &t(&[0.0, 1.0])), f64::INFINITY);
        assert_eq!(distance(&t(&[f32::INFINITY, 1.0]), &t(&[2.0, 1.0])), f64::INFINITY);
    }
}
