//! Widening and narrowing of packed formats.

use half::{bf16, f16};
use tpusim_isa::num::Format;

/// Bits of a small float format: mantissa bits, bias, and what its top codes mean.
#[derive(Clone, Copy)]
struct Small {
    mantissa: u32,
    bias: i32,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Infinities and NaN as IEEE has them.
    Ieee,
    /// No infinity; all ones is NaN.
    Fn,
    /// No infinity, no negative zero; the code of negative zero is NaN.
    Fnuz,
}

fn small(f: Format) -> Option<Small> {
    let (mantissa, bias, kind) = match f {
        Format::E4M3Fn => (3, 7, Kind::Fn),
        Format::E5M2 => (2, 15, Kind::Ieee),
        Format::E4M3B11 => (3, 11, Kind::Fnuz),
        Format::E4M3Fnuz => (3, 8, Kind::Fnuz),
        Format::E5M2Fnuz => (2, 16, Kind::Fnuz),
        Format::E4M3 => (3, 7, Kind::Ieee),
        Format::E3M4 => (4, 3, Kind::Ieee),
        _ => return None,
    };
    Some(Small { mantissa, bias, kind })
}

fn pow2(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

impl Small {
    fn decode(self, code: u8) -> f32 {
        let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
        let body = u32::from(code & 0x7f);
        let top = (0x7f >> self.mantissa) as u32;
        let (e, m) = (body >> self.mantissa, body & ((1 << self.mantissa) - 1));
        let nan = match self.kind {
            Kind::Ieee => e == top && m != 0,
            Kind::Fn => body == 0x7f,
            Kind::Fnuz => code == 0x80,
        };
        if nan {
            return f32::NAN;
        }
        if self.kind == Kind::Ieee && e == top {
            return sign as f32 * f32::INFINITY;
        }
        let scale = pow2(e.max(1) as i32 - self.bias - self.mantissa as i32);
        let whole = if e == 0 { m } else { m | 1 << self.mantissa };
        (sign * f64::from(whole) * scale) as f32
    }

    fn encode(self, x: f32) -> u8 {
        let sign = if x.is_sign_negative() { 0x80u8 } else { 0 };
        let inf = ((0x7fu32 >> self.mantissa) << self.mantissa) as u8;
        let overflow = match self.kind {
            Kind::Ieee => sign | inf,
            Kind::Fn => sign | 0x7f,
            Kind::Fnuz => 0x80,
        };
        if x.is_nan() {
            return match self.kind {
                Kind::Ieee => sign | inf | 1 << (self.mantissa - 1),
                Kind::Fn => sign | 0x7f,
                Kind::Fnuz => 0x80,
            };
        }
        if x.is_infinite() {
            return overflow;
        }
        let a = f64::from(x.abs());
        let least = 1 - self.bias;
        let exponent = (((a.to_bits() >> 52) as i32) - 1023).max(least);
        let quantum = pow2(exponent - self.mantissa as i32);
        let steps = (a / quantum).round_ties_even() as u32;
        // Steps above a binade carry into the exponent by themselves.
        let body = steps as i64 + (i64::from(exponent - least) << self.mantissa);
        let max = match self.kind {
            Kind::Ieee => i64::from(inf) - 1,
            Kind::Fn => 0x7e,
            Kind::Fnuz => 0x7f,
        };
        if body > max {
            return overflow;
        }
        if body == 0 && self.kind == Kind::Fnuz { 0 } else { sign | body as u8 }
    }
}

/// The 32-bit word of a packed element: f32 bits of a float, sign- or zero-extension of an integer.
pub(crate) fn widen(f: Format, bits: u32) -> u32 {
    match f {
        Format::Bf16 => bits << 16,
        Format::F16 => f16::from_bits(bits as u16).to_f32().to_bits(),
        Format::S8 => bits as u8 as i8 as i32 as u32,
        Format::U8 => u32::from(bits as u8),
        Format::S16 => bits as u16 as i16 as i32 as u32,
        Format::U16 => u32::from(bits as u16),
        _ => small(f).map_or(0, |s| s.decode(bits as u8).to_bits()),
    }
}

/// bf16 bits of an f32, nearest even; NaN stays NaN.
#[inline(always)]
pub(crate) fn to_bf16(word: u32) -> u32 {
    let rounded = (word.wrapping_add(0x7fff + ((word >> 16) & 1))) >> 16;
    if word & 0x7fff_ffff > 0x7f80_0000 { (word >> 16) | 0x40 } else { rounded }
}

/// The packed bits nearest to a 32-bit word; integers wrap.
pub(crate) fn narrow(f: Format, word: u32) -> u32 {
    match f {
        Format::Bf16 => u32::from(bf16::from_f32(f32::from_bits(word)).to_bits()),
        Format::F16 => u32::from(f16::from_f32(f32::from_bits(word)).to_bits()),
        Format::S8 | Format::U8 => word & 0xff,
        Format::S16 | Format::U16 => word & 0xffff,
        _ => small(f).map_or(0, |s| u32::from(s.encode(f32::from_bits(word)))),
    }
}

/// Widened values of all codes of an 8-bit format.
pub(crate) fn table8(f: Format) -> [u32; 256] {
    std::array::from_fn(|c| widen(f, c as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: every code that is a number is nearest to its own value, and half way between two codes the even one wins.
    #[test]
    fn small_floats_round_trip() {
        for &f in Format::ALL.iter().filter(|f| small(**f).is_some()) {
            let mut numbers: Vec<(f32, u32)> = Vec::new();
            for c in 0..256u32 {
                let v = f32::from_bits(widen(f, c));
                if !v.is_nan() {
                    assert_eq!(narrow(f, v.to_bits()), c, "{f:?} {c:#x} {v}");
                    if v.is_finite() && v.is_sign_positive() {
                        numbers.push((v, c));
                    }
                }
            }
            numbers.sort_by(|a, b| a.0.total_cmp(&b.0));
            for w in numbers.windows(2) {
                let even = if w[0].1 % 2 == 0 { w[0].1 } else { w[1].1 };
                assert_eq!(narrow(f, ((w[0].0 + w[1].0) / 2.0).to_bits()), even, "{f:?} {w:?}");
            }
        }
    }

    // Oracle: the `half` crate.
    #[test]
    fn bf16_rounds_like_half() {
        for i in 0..200_000u32 {
            let w = i.wrapping_mul(2_654_435_761).rotate_left(7) ^ (i << 13);
            assert_eq!(to_bf16(w), u32::from(bf16::from_f32(f32::from_bits(w)).to_bits()), "{w:#x}");
        }
    }
}
