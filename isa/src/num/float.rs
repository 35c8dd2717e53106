//! Small binary floats: one description per format, one decoder, one encoder.
//!
//! The formats are those of the OCP specifications and of `ml_dtypes`, whose results this module reproduces bit for bit (NaN
//! payloads included): rounding is to nearest with ties to even, and an overflow gives what the format has, an infinity, a NaN,
//! or, for the MX formats that have neither, the largest finite number.

use super::DType;

/// What a format does with the codes that are no ordinary number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// The largest exponent holds infinity and NaNs, as in IEEE 754.
    Ieee,
    /// No infinity; all ones below the sign is NaN.
    NanOnly,
    /// Neither infinity nor NaN: an overflow saturates.
    Finite,
    /// No infinity and no negative zero; the code of negative zero is NaN.
    UnsignedZero,
    /// Unsigned powers of two, no zero; all ones is NaN.
    PowersOfTwo,
}

/// A binary float of at most 16 bits: sign, exponent, mantissa from the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Bits of the exponent field.
    pub exponent_bits: u32,
    /// Bits of the mantissa field.
    pub mantissa_bits: u32,
    /// Exponent bias.
    pub bias: i32,
    /// Special codes.
    pub specials: Specials,
}

const fn format(exponent_bits: u32, mantissa_bits: u32, bias: i32, specials: Specials) -> Option<FloatFormat> {
    Some(FloatFormat { exponent_bits, mantissa_bits, bias, specials })
}

/// `2^e` for any `e` that a double can hold.
fn pow2(e: i32) -> f64 {
    if e >= -1022 {
        f64::from_bits(((e.min(1024) + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (e + 1074).max(0))
    }
}

impl FloatFormat {
    /// The format of a float type of at most 16 bits; `None` for every other type.
    pub const fn of(dtype: DType) -> Option<FloatFormat> {
        use Specials::*;
        match dtype {
            DType::F4E2M1FN => format(2, 1, 1, Finite),
            DType::F6E2M3FN => format(2, 3, 1, Finite),
            DType::F6E3M2FN => format(3, 2, 3, Finite),
            DType::F8E3M4 => format(3, 4, 3, Ieee),
            DType::F8E4M3 => format(4, 3, 7, Ieee),
            DType::F8E4M3FN => format(4, 3, 7, NanOnly),
            DType::F8E4M3FNUZ => format(4, 3, 8, UnsignedZero),
            DType::F8E4M3B11FNUZ => format(4, 3, 11, UnsignedZero),
            DType::F8E5M2 => format(5, 2, 15, Ieee),
            DType::F8E5M2FNUZ => format(5, 2, 16, UnsignedZero),
            DType::F8E8M0FNU => format(8, 0, 127, PowersOfTwo),
            DType::BF16 => format(8, 7, 127, Ieee),
            DType::F16 => format(5, 10, 15, Ieee),
            _ => None,
        }
    }

    /// Bit of the sign.
    const fn sign_bit(self) -> u32 {
        match self.specials {
            Specials::PowersOfTwo => 0,
            _ => 1 << (self.exponent_bits + self.mantissa_bits),
        }
    }

    /// Largest code (without sign) of a finite number.
    const fn max_code(self) -> u32 {
        let all = (1 << (self.exponent_bits + self.mantissa_bits)) - 1;
        match self.specials {
            Specials::Ieee => all - (1 << self.mantissa_bits),
            Specials::NanOnly | Specials::PowersOfTwo => all - 1,
            Specials::Finite | Specials::UnsignedZero => all,
        }
    }

    /// Value of `code`, whose bits above the format's width are ignored. Exact.
    pub fn decode(self, code: u16) -> f64 {
        let code = u32::from(code);
        let magnitude = code & ((1 << (self.exponent_bits + self.mantissa_bits)) - 1);
        let negative = code & self.sign_bit() != 0;
        if self.specials == Specials::PowersOfTwo {
            return if magnitude > self.max_code() { f64::NAN } else { pow2(magnitude as i32 - self.bias) };
        }
        let e = (magnitude >> self.mantissa_bits) as i32;
        let m = magnitude & ((1 << self.mantissa_bits) - 1);
        let value = if magnitude > self.max_code() {
            if self.specials == Specials::Ieee && m == 0 { f64::INFINITY } else { f64::NAN }
        } else if self.specials == Specials::UnsignedZero && negative && magnitude == 0 {
            return f64::NAN;
        } else if e == 0 {
            f64::from(m) * pow2(1 - self.bias - self.mantissa_bits as i32)
        } else {
            f64::from(m | 1 << self.mantissa_bits) * pow2(e - self.bias - self.mantissa_bits as i32)
        };
        if negative { -value } else { value }
    }

    /// Code of the number nearest to `x`, ties to even. One rounding: exact for `x` widened from `f32`.
    pub fn encode(self, x: f64) -> u16 {
        if self.specials == Specials::PowersOfTwo {
            return self.encode_power(x);
        }
        let sign = if x.is_sign_negative() { self.sign_bit() } else { 0 };
        if x.is_nan() {
            return self.nan(sign) as u16;
        }
        if x.is_infinite() {
            return self.overflow(sign) as u16;
        }
        let emin = 1 - self.bias;
        let a = x.abs();
        let e = (((a.to_bits() >> 52) as i32) - 1023).max(emin);
        // Scaling by a power of two is exact, and so is the rounded quotient as an integer.
        let quantum = self.mantissa_bits as i32 - e;
        let q = if quantum > 1000 { a * pow2(1000) * pow2(quantum - 1000) } else { a * pow2(quantum) };
        let code = i64::from((e - emin) as u32) << self.mantissa_bits;
        let code = code + q.round_ties_even() as i64;
        if code > i64::from(self.max_code()) {
            return self.overflow(sign) as u16;
        }
        if code == 0 && self.specials == Specials::UnsignedZero {
            return 0;
        }
        (sign | code as u32) as u16
    }

    /// The quiet NaN of the given sign, or what stands for it.
    fn nan(self, sign: u32) -> u32 {
        match self.specials {
            Specials::Ieee => sign | (self.max_code() + 1) | 1 << (self.mantissa_bits - 1),
            Specials::NanOnly => sign | (self.max_code() + 1),
            Specials::UnsignedZero => self.sign_bit(),
            // No NaN: ml_dtypes gives a zero of the opposite sign.
            Specials::Finite => sign ^ self.sign_bit(),
            Specials::PowersOfTwo => self.max_code() + 1,
        }
    }

    fn overflow(self, sign: u32) -> u32 {
        match self.specials {
            Specials::Ieee => sign | (self.max_code() + 1),
            Specials::Finite => sign | self.max_code(),
            _ => self.nan(sign),
        }
    }

    fn encode_power(self, x: f64) -> u16 {
        let nan = (self.max_code() + 1) as u16;
        if x.is_nan() || x.is_infinite() || x <= 0.0 {
            return nan;
        }
        let e = ((x.to_bits() >> 52) as i32) - 1023;
        let up = x.to_bits() & ((1 << 52) - 1) >= 1 << 51;
        let code = (e + self.bias + i32::from(up)).max(0);
        if code > self.max_code() as i32 { nan } else { code as u16 }
    }
}
