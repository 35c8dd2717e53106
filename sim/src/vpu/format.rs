//! Widening and narrowing of packed formats.

use tpusim_isa::num::Format;

/// A float format of at most 16 bits.
#[derive(Clone, Copy)]
pub(crate) struct Small {
    /// Bits without the sign.
    body: u32,
    mantissa: u32,
    bias: u32,
    kind: Kind,
}

/// What the top codes of a format mean.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Infinities and NaN as IEEE has them.
    Ieee,
    /// No infinity; all ones is NaN.
    Fn,
    /// No infinity, no negative zero; the code of negative zero is NaN.
    Fnuz,
}

/// The float format of `f`, except bf16 (which is half of an f32) and integers.
pub(crate) fn small(f: Format) -> Option<Small> {
    let (mantissa, bias, kind) = match f {
        Format::F16 => return Some(Small { body: 15, mantissa: 10, bias: 15, kind: Kind::Ieee }),
        Format::E4M3Fn => (3, 7, Kind::Fn),
        Format::E5M2 => (2, 15, Kind::Ieee),
        Format::E4M3B11 => (3, 11, Kind::Fnuz),
        Format::E4M3Fnuz => (3, 8, Kind::Fnuz),
        Format::E5M2Fnuz => (2, 16, Kind::Fnuz),
        Format::E4M3 => (3, 7, Kind::Ieee),
        Format::E3M4 => (4, 3, Kind::Ieee),
        _ => return None,
    };
    Some(Small { body: 7, mantissa, bias, kind })
}

impl Small {
    /// f32 bits of a code.
    #[inline(always)]
    pub fn decode(self, code: u32) -> u32 {
        let body = code & ((1 << self.body) - 1);
        let sign = (code >> self.body & 1) << 31;
        let inf = (u32::MAX << self.mantissa) & ((1 << self.body) - 1);
        // The code as an f32 with a bias too large; one exact multiplication puts it right, denormals included.
        let scale = f32::from_bits((254 - self.bias) << 23);
        let number = (f32::from_bits(body << (23 - self.mantissa)) * scale).to_bits() | sign;
        let nan = match self.kind {
            Kind::Ieee => body > inf,
            Kind::Fn => body + 1 == 1 << self.body,
            Kind::Fnuz => code == 1 << self.body,
        };
        let infinite = self.kind == Kind::Ieee && body == inf;
        if nan {
            0x7fc0_0000 | if self.kind == Kind::Fnuz { 0 } else { sign }
        } else if infinite {
            0x7f80_0000 | sign
        } else {
            number
        }
    }

    /// The code nearest to an f32, ties to even.
    #[inline(always)]
    pub fn encode(self, word: u32) -> u32 {
        let magnitude = word & 0x7fff_ffff;
        let sign = (word >> 31) << self.body;
        let inf = (u32::MAX << self.mantissa) & ((1 << self.body) - 1);
        let drop = 23 - self.mantissa;
        let rounded = (magnitude + ((1 << (drop - 1)) - 1) + (magnitude >> drop & 1)) >> drop;
        let normal = rounded.wrapping_sub((127 - self.bias) << self.mantissa);
        // Added to a power of two whose last place is the format's smallest step, a small number rounds to steps.
        let magic = (127 + 1 - self.bias + drop) << 23;
        let steps = (f32::from_bits(magnitude) + f32::from_bits(magic)).to_bits().wrapping_sub(magic);
        let body = if magnitude < (127 + 1 - self.bias) << 23 { steps } else { normal };
        let (max, overflow, nan) = match self.kind {
            Kind::Ieee => (inf - 1, sign | inf, sign | inf | 1 << (self.mantissa - 1)),
            Kind::Fn => ((1 << self.body) - 2, sign | ((1 << self.body) - 1), sign | ((1 << self.body) - 1)),
            Kind::Fnuz => ((1 << self.body) - 1, 1 << self.body, 1 << self.body),
        };
        let signed = if self.kind == Kind::Fnuz && body == 0 { 0 } else { sign | body };
        let finite = if body > max { overflow } else { signed };
        if magnitude > 0x7f80_0000 { nan } else { finite }
    }
}

/// The 32-bit word of a packed element: f32 bits of a float, sign- or zero-extension of an integer.
#[inline(always)]
pub(crate) fn widen(f: Format, bits: u32) -> u32 {
    match f {
        Format::Bf16 => bits << 16,
        Format::S8 => bits as u8 as i8 as i32 as u32,
        Format::U8 => u32::from(bits as u8),
        Format::S16 => bits as u16 as i16 as i32 as u32,
        Format::U16 => u32::from(bits as u16),
        _ => small(f).map_or(0, |s| s.decode(bits)),
    }
}

/// bf16 bits of an f32, nearest even; NaN stays NaN.
#[inline(always)]
pub(crate) fn to_bf16(word: u32) -> u32 {
    let rounded = (word.wrapping_add(0x7fff + ((word >> 16) & 1))) >> 16;
    if word & 0x7fff_ffff > 0x7f80_0000 { (word >> 16) | 0x40 } else { rounded }
}

/// Widened values of all codes of an 8-bit format.
pub(crate) fn table8(f: Format) -> [u32; 256] {
    std::array::from_fn(|c| widen(f, c as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};
    use tpusim_isa::num::FloatFormat;

    fn narrow(f: Format, word: u32) -> u32 {
        small(f).unwrap().encode(word)
    }

    // Oracle: every code that is a number is nearest to its own value, and half way between two codes the even one wins.
    #[test]
    fn small_floats_round_trip() {
        for &f in Format::ALL.iter().filter(|f| small(**f).is_some()) {
            let mut numbers: Vec<(f32, u32)> = Vec::new();
            for c in 0..1u32 << (32 / f.packing()) {
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
                let middle = (w[0].0 + w[1].0) / 2.0;
                let even = if w[0].1 % 2 == 0 { w[0].1 } else { w[1].1 };
                assert_eq!(narrow(f, middle.to_bits()), even, "{f:?} {w:?}");
                assert_eq!(narrow(f, middle.to_bits() - 1), w[0].1, "{f:?} {w:?}");
                assert_eq!(narrow(f, middle.to_bits() + 1), w[1].1, "{f:?} {w:?}");
            }
        }
    }

    // Oracle: the formats as the instruction set's crate defines them, by way of doubles.
    #[test]
    fn agrees_with_the_definition() {
        for &f in Format::ALL.iter().filter(|f| small(**f).is_some() && f.packing() == 4) {
            let definition = FloatFormat::of(f.dtype()).unwrap();
            for c in 0..256u32 {
                let (got, want) = (f32::from_bits(widen(f, c)), definition.decode(c as u16) as f32);
                assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{f:?} {c:#x}");
            }
            for i in 0..300_000u32 {
                let w = i.wrapping_mul(2_654_435_761).rotate_left(7) ^ (i << 13);
                let x = f32::from_bits(w);
                let (got, want) = (narrow(f, w), u32::from(definition.encode(f64::from(x))));
                assert!(
                    got == want || x.is_nan() && f32::from_bits(widen(f, got)).is_nan(),
                    "{f:?} {x} {got:#x} {want:#x}"
                );
            }
        }
    }

    // Oracle: values from the formats' definitions (OCP OFP8; ml_dtypes for the others).
    #[test]
    fn known_values() {
        let value = |f, c| f32::from_bits(widen(f, c));
        assert_eq!(value(Format::E4M3Fn, 0x7e), 448.0);
        assert_eq!(value(Format::E4M3Fn, 0x01), 0.001953125);
        assert_eq!(value(Format::E5M2, 0x7b), 57344.0);
        assert_eq!(value(Format::E4M3Fnuz, 0x7f), 240.0);
        assert_eq!(value(Format::E4M3B11, 0x7f), 30.0);
        assert_eq!(value(Format::E5M2Fnuz, 0x7f), 57344.0);
        assert_eq!(value(Format::E4M3, 0x77), 240.0);
        assert_eq!(value(Format::E3M4, 0x6f), 15.5);
        assert_eq!(narrow(Format::E4M3Fn, 1e9f32.to_bits()), 0x7f);
        assert_eq!(narrow(Format::E5M2, (-1e9f32).to_bits()), 0xfc);
        assert_eq!(narrow(Format::E4M3Fnuz, (-0f32).to_bits()), 0);
        assert_eq!(narrow(Format::E4M3Fnuz, f32::INFINITY.to_bits()), 0x80);
    }

    // Oracle: the `half` crate, for numbers.
    #[test]
    fn halves_round_like_half() {
        for i in 0..200_000u32 {
            let w = i.wrapping_mul(2_654_435_761).rotate_left(7) ^ (i << 13);
            assert_eq!(to_bf16(w), u32::from(bf16::from_f32(f32::from_bits(w)).to_bits()), "{w:#x}");
            if !f32::from_bits(w).is_nan() {
                assert_eq!(narrow(Format::F16, w), u32::from(f16::from_f32(f32::from_bits(w)).to_bits()), "{w:#x}");
            }
        }
        for c in 0..0x1_0000u32 {
            let (a, b) = (f32::from_bits(widen(Format::F16, c)), f16::from_bits(c as u16).to_f32());
            assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{c:#x}");
        }
    }
}
