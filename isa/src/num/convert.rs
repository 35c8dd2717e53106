//! Elements as numbers: from bytes to `f32`, `f64` or `i64` and back, one at a time or a whole buffer.
//!
//! Buffers are little-endian and hold [`DType::bytes`] bytes an element. Integers come as `i64`: sign-extended for signed types,
//! zero-extended for unsigned ones, and `ui64` by its bits. Complex elements are pairs and have no scalar form; these functions
//! then see their real part.

use super::{DType, DTypeKind, FloatFormat};

/// Wraps `v` to the width of the integer (or `i1`) type `dtype`, in the form described at the module.
pub const fn wrap(dtype: DType, v: i64) -> i64 {
    let shift = 64 - dtype.bits();
    if dtype.bits() >= 64 {
        v
    } else if dtype.is_signed() {
        (v << shift) >> shift
    } else {
        (((v as u64) << shift) >> shift) as i64
    }
}

/// Smallest and largest value of an integer type (or `i1`), as `i128`.
pub const fn int_range(dtype: DType) -> (i128, i128) {
    let bits = dtype.bits();
    if dtype.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// The value of an integer in the form described at the module.
pub const fn int_value(dtype: DType, v: i64) -> i128 {
    if matches!(dtype, DType::U64) { v as u64 as i128 } else { v as i128 }
}

/// An integer as a double that rounds to any narrower float as the integer itself would: inexact values get an odd last bit.
pub fn int_to_f64_odd(dtype: DType, v: i64) -> f64 {
    let exact = int_value(dtype, v);
    let f = exact as f64;
    if f as i128 == exact {
        return f;
    }
    let towards_zero = if (f.abs() as i128) > exact.abs() { f64::from_bits(f.to_bits() - 1) } else { f };
    f64::from_bits(towards_zero.to_bits() | 1)
}

/// Float to integer: truncates, saturates, and gives 0 for NaN. For `i1`, whether `x` is not zero (NaN is not).
pub fn f64_to_int(dtype: DType, x: f64) -> i64 {
    if dtype == DType::I1 {
        return i64::from(x != 0.0);
    }
    let (lo, hi) = int_range(dtype);
    (x as i128).clamp(lo, hi) as i64
}

/// The `N` bytes at the start of `b`, zeros where it ends early.
fn le<const N: usize>(b: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let n = b.len().min(N);
    out[..n].copy_from_slice(&b[..n]);
    out
}

/// One integer (or `i1`) element; other types give their bits.
pub fn to_i64(dtype: DType, bytes: &[u8]) -> i64 {
    let raw = u64::from_le_bytes(le(&bytes[..bytes.len().min(dtype.bytes())]));
    wrap(dtype, raw as i64)
}

/// Bytes of one integer element; the first [`DType::bytes`] of them count. A signed type below a byte is sign-extended to it.
pub fn from_i64(dtype: DType, v: i64) -> [u8; 8] {
    wrap(dtype, v).to_le_bytes()
}

/// One element as a double: exact for every float type and for integers up to 53 bits.
pub fn to_f64(dtype: DType, bytes: &[u8]) -> f64 {
    match dtype {
        DType::F32 | DType::C64 => f64::from(f32::from_le_bytes(le(bytes))),
        DType::F64 | DType::C128 => f64::from_le_bytes(le(bytes)),
        _ => match FloatFormat::of(dtype) {
            Some(f) => f.decode(u16::from_le_bytes(le(&bytes[..bytes.len().min(dtype.bytes())]))),
            None => int_value(dtype, to_i64(dtype, bytes)) as f64,
        },
    }
}

/// Bytes of the element nearest to `x`; the first [`DType::bytes`] of them count. Rounds once, to nearest even for floats, as
/// [`f64_to_int`] for integers; a complex element gets a zero imaginary part.
pub fn from_f64(dtype: DType, x: f64) -> [u8; 16] {
    match dtype {
        DType::F32 | DType::C64 => le(&(x as f32).to_le_bytes()),
        DType::F64 | DType::C128 => le(&x.to_le_bytes()),
        _ => match FloatFormat::of(dtype) {
            Some(f) => le(&f.encode(x).to_le_bytes()),
            None => le(&f64_to_int(dtype, x).to_le_bytes()),
        },
    }
}

/// Rounds `x` to bfloat16 and widens it again.
pub fn round_bf16(x: f32) -> f32 {
    half::bf16::from_f32(x).to_f32()
}

// NaNs get the one payload of `ml_dtypes`: what `half` makes of a payload depends on the processor.

fn bf16_bits(x: f32) -> u16 {
    if x.is_nan() { 0x7fc0 | (x.to_bits() >> 31 << 15) as u16 } else { half::bf16::from_f32(x).to_bits() }
}

fn f16_bits(x: f32) -> u16 {
    if x.is_nan() { 0x7e00 | (x.to_bits() >> 31 << 15) as u16 } else { half::f16::from_f32(x).to_bits() }
}

/// All elements as `f32`: exact for float types up to 32 bits, rounded once for `f64` and integers.
pub fn decode_f32(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DType::F32 => bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        DType::BF16 => bytes.as_chunks::<2>().0.iter().map(|&b| half::bf16::from_le_bytes(b).to_f32()).collect(),
        DType::F16 => bytes.as_chunks::<2>().0.iter().map(|&b| half::f16::from_le_bytes(b).to_f32()).collect(),
        DType::I8 => bytes.iter().map(|&b| f32::from(b as i8)).collect(),
        DType::U8 => bytes.iter().map(|&b| f32::from(b)).collect(),
        _ => match FloatFormat::of(dtype) {
            Some(f) => {
                let table: Vec<f32> = (0..256).map(|c| f.decode(c) as f32).collect();
                bytes.iter().map(|&b| table[usize::from(b)]).collect()
            }
            None => bytes.chunks_exact(dtype.bytes()).map(|b| element_f32(dtype, b)).collect(),
        },
    }
}

fn element_f32(dtype: DType, b: &[u8]) -> f32 {
    match dtype.kind() {
        DTypeKind::Float | DTypeKind::Complex => to_f64(dtype, b) as f32,
        _ => int_to_f64_odd(dtype, to_i64(dtype, b)) as f32,
    }
}

/// Bytes of a buffer of `dtype` elements, each rounded once from `f32`.
pub fn encode_f32(dtype: DType, values: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|&v| bf16_bits(v).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&v| f16_bits(v).to_le_bytes()).collect(),
        _ => encode_with(dtype, values.len(), |i| from_f64(dtype, f64::from(values[i]))),
    }
}

/// All elements as doubles, see [`to_f64`].
pub fn decode_f64(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F64 => bytes.as_chunks::<8>().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
        DType::F32 => bytes.as_chunks::<4>().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect(),
        _ => bytes.chunks_exact(dtype.bytes()).map(|b| to_f64(dtype, b)).collect(),
    }
}

/// Bytes of a buffer of `dtype` elements, each rounded once from a double.
pub fn encode_f64(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        _ => encode_with(dtype, values.len(), |i| from_f64(dtype, values[i])),
    }
}

/// All elements as integers, see [`to_i64`].
pub fn decode_i64(dtype: DType, bytes: &[u8]) -> Vec<i64> {
    match dtype {
        DType::I32 => bytes.as_chunks::<4>().0.iter().map(|&b| i64::from(i32::from_le_bytes(b))).collect(),
        DType::U32 => bytes.as_chunks::<4>().0.iter().map(|&b| i64::from(u32::from_le_bytes(b))).collect(),
        DType::I64 | DType::U64 => bytes.as_chunks::<8>().0.iter().map(|&b| i64::from_le_bytes(b)).collect(),
        DType::I8 => bytes.iter().map(|&b| i64::from(b as i8)).collect(),
        DType::U8 | DType::I1 => bytes.iter().map(|&b| i64::from(b)).collect(),
        _ => bytes.chunks_exact(dtype.bytes()).map(|b| to_i64(dtype, b)).collect(),
    }
}

/// Bytes of a buffer of `dtype` elements, each wrapped to its width.
pub fn encode_i64(dtype: DType, values: &[i64]) -> Vec<u8> {
    match dtype {
        DType::I32 | DType::U32 => values.iter().flat_map(|&v| (v as u32).to_le_bytes()).collect(),
        DType::I64 | DType::U64 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        DType::I8 | DType::U8 => values.iter().map(|&v| v as u8).collect(),
        _ => encode_with(dtype, values.len(), |i| le(&from_i64(dtype, values[i]))),
    }
}

fn encode_with(dtype: DType, n: usize, f: impl Fn(usize) -> [u8; 16]) -> Vec<u8> {
    let w = dtype.bytes();
    let mut out = Vec::with_capacity(n * w);
    for i in 0..n {
        out.extend_from_slice(&f(i)[..w]);
    }
    out
}
