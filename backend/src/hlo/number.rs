//! Floats of every width as bit patterns, for the text forms.

use tpusim_isa::num::DType;

/// How a float format spends its largest exponent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Infinities and NaNs, as IEEE 754.
    Ieee,
    /// One NaN of all ones, no infinity (`FN`).
    OneNan,
    /// The pattern of negative zero is NaN, no infinity (`FNUZ`).
    ZeroNan,
    /// Neither NaN nor infinity.
    Finite,
    /// Exponent only, no sign, no zero (`E8M0FNU`).
    Exponent,
}

struct Format {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    special: Special,
}

fn format(dtype: DType) -> Format {
    use Special::*;
    let (exponent, mantissa, bias, special) = match dtype {
        DType::F4E2M1FN => (2, 1, 1, Finite),
        DType::F6E2M3FN => (2, 3, 1, Finite),
        DType::F6E3M2FN => (3, 2, 3, Finite),
        DType::F8E3M4 => (3, 4, 3, Ieee),
        DType::F8E4M3 => (4, 3, 7, Ieee),
        DType::F8E4M3FN => (4, 3, 7, OneNan),
        DType::F8E4M3FNUZ => (4, 3, 8, ZeroNan),
        DType::F8E4M3B11FNUZ => (4, 3, 11, ZeroNan),
        DType::F8E5M2 => (5, 2, 15, Ieee),
        DType::F8E5M2FNUZ => (5, 2, 16, ZeroNan),
        DType::F8E8M0FNU => (8, 0, 127, Exponent),
        DType::BF16 => (8, 7, 127, Ieee),
        DType::F16 => (5, 10, 15, Ieee),
        DType::F32 => (8, 23, 127, Ieee),
        _ => (11, 52, 1023, Ieee),
    };
    Format { exponent, mantissa, bias, special }
}

/// `v` rounded to the float type `dtype` (to nearest, ties to even), as bits. Out of range gives infinity where the format has
/// one, else NaN, else the largest number.
pub(crate) fn encode_float(dtype: DType, v: f64) -> u64 {
    match dtype {
        DType::F64 => return v.to_bits(),
        // NaN payloads are not numbers: the text form gives them in hexadecimal.
        DType::F32 => return u64::from((v as f32).to_bits()),
        _ => {}
    }
    let f = format(dtype);
    let man = f.mantissa;
    let ones = (1u64 << f.exponent) - 1;
    let sign = if f.special == Special::Exponent { 0 } else { u64::from(v.is_sign_negative()) << (f.exponent + man) };
    let (infinity, nan, largest) = match f.special {
        Special::Ieee => (Some(ones << man), (ones << man) | (1 << (man - 1)), (ones << man) - 1),
        Special::OneNan => (None, (ones << man) | ((1 << man) - 1), (ones << man) | ((1 << man) - 2)),
        Special::ZeroNan => (None, 1 << (f.exponent + man), (ones << man) | ((1 << man) - 1)),
        Special::Finite => (None, (ones << man) | ((1 << man) - 1), (ones << man) | ((1 << man) - 1)),
        Special::Exponent => (None, ones, ones - 1),
    };
    let signed_nan = if f.special == Special::ZeroNan { nan } else { sign | nan };
    if v.is_nan() {
        return signed_nan;
    }
    let overflow = match (infinity, f.special) {
        (Some(i), _) => sign | i,
        (None, Special::Finite) => sign | largest,
        (None, _) => signed_nan,
    };
    if v.is_infinite() {
        return overflow;
    }
    let abs = v.abs();
    let lowest = if f.special == Special::Exponent { -f.bias } else { 1 - f.bias };
    let e = if abs == 0.0 { lowest } else { libm::ilogb(abs).max(lowest) };
    let n = libm::rint(libm::scalbn(abs, man as i32 - e)) as i64;
    // A normal number's implied leading one carries into the exponent field.
    let field = if f.special == Special::Exponent { e + f.bias } else { e + f.bias - 1 };
    let bits = if f.special == Special::Exponent {
        (i64::from(field) + n - 1).max(0) as u64
    } else {
        ((i64::from(field) << man) + n) as u64
    };
    if bits > largest {
        overflow
    } else if bits == 0 && f.special == Special::ZeroNan {
        0
    } else {
        sign | bits
    }
}

/// The number behind the bits of the float type `dtype`.
pub(crate) fn decode_float(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F64 => return f64::from_bits(bits),
        DType::F32 => return f64::from(f32::from_bits(bits as u32)),
        _ => {}
    }
    let f = format(dtype);
    let (man, ones) = (f.mantissa, (1u64 << f.exponent) - 1);
    let m = bits & ((1 << man) - 1);
    let e = (bits >> man) & ones;
    let negative = f.special != Special::Exponent && (bits >> (f.exponent + man)) & 1 == 1;
    let abs = match f.special {
        Special::Ieee if e == ones => {
            if m == 0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        Special::OneNan if e == ones && m == (1 << man) - 1 => f64::NAN,
        Special::ZeroNan if negative && e == 0 && m == 0 => f64::NAN,
        Special::Exponent if e == ones => f64::NAN,
        Special::Exponent => libm::scalbn(1.0, e as i32 - f.bias),
        _ if e == 0 => libm::scalbn(m as f64, 1 - f.bias - man as i32),
        _ => libm::scalbn((m | (1 << man)) as f64, e as i32 - f.bias - man as i32),
    };
    if negative { -abs } else { abs }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: every bit pattern of a narrow format is the nearest one to its own value.
    #[test]
    fn narrow_floats_round_trip() {
        for &d in DType::ALL.iter().filter(|d| d.is_float() && d.bits() <= 16) {
            for bits in 0..1u64 << d.bits() {
                let v = decode_float(d, bits);
                if !v.is_nan() {
                    assert_eq!(encode_float(d, v), bits, "{d} {bits:#x} = {v}");
                }
            }
        }
    }

    /// Oracle: the `half` crate on values a float holds exactly, where its own rounding is one step.
    #[test]
    fn rounding_agrees_with_half() {
        for i in 0..20_000u32 {
            // From 2^-31 to 2^31; both types overflow or underflow on the way.
            let v = f32::from_bits(0x3000_0000 + i * 25_997);
            assert_eq!(encode_float(DType::BF16, f64::from(v)), u64::from(half::bf16::from_f32(v).to_bits()), "{v}");
            assert_eq!(encode_float(DType::F16, f64::from(v)), u64::from(half::f16::from_f32(v).to_bits()), "{v}");
        }
    }

    /// Oracle: the range of each format as its definition states it.
    #[test]
    fn out_of_range() {
        assert_eq!(encode_float(DType::F8E4M3FN, 448.0), 0x7e);
        assert_eq!(encode_float(DType::F8E4M3FN, 1e9), 0x7f);
        assert_eq!(encode_float(DType::F8E5M2, -1e9), 0xfc);
        assert_eq!(encode_float(DType::F8E4M3FNUZ, -0.0), 0);
        assert_eq!(encode_float(DType::F8E8M0FNU, 1.0), 127);
        assert_eq!(encode_float(DType::F4E2M1FN, 100.0), 0x7);
    }
}
