//! Small floats. Oracle: hashes (64-bit FNV-1a) of what `ml_dtypes` 0.5 and numpy give for every code and for a sweep of
//! `f32` bit patterns (every upper half, with six lower halves around the ties), made once.

use proptest::prelude::*;
use tpusim_isa::num::convert::{decode_f32, encode_f32, from_f64, to_f64};
use tpusim_isa::num::{DType, FloatFormat};

const LOWER: [u32; 6] = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];

/// Format, hash of all decoded codes as f32 (NaN as 0x7fc00000), hash of the encoded sweep. NaN inputs are left
/// out, and for `f8E8M0FNU` subnormal ones: `ml_dtypes` rounds those up where the nearest power is below.
const TABLE: &[(DType, u64, u64)] = &[
    (DType::F4E2M1FN, 0x2403bb76b85dfea5, 0x38a989a842f9a18b),
    (DType::F6E2M3FN, 0x7ffacb24ad8b0aa5, 0x582a13e0f3c4c5e3),
    (DType::F6E3M2FN, 0x25da13434201d785, 0x7873dddb4b292e83),
    (DType::F8E3M4, 0xf47936f19e549625, 0x8535573170a484ed),
    (DType::F8E4M3, 0x225eaf4799a27e65, 0x6d7cb4dc634f49cd),
    (DType::F8E4M3FN, 0xdad1d9c50f749ca5, 0x640b299fa44a6d43),
    (DType::F8E4M3FNUZ, 0xf51851cb11c63018, 0x262186fa6542866d),
    (DType::F8E4M3B11FNUZ, 0xd90d7a600530d158, 0x24b273723de6866d),
    (DType::F8E5M2, 0x6c1e56b6fb09c905, 0x5ddecaedff565725),
    (DType::F8E5M2FNUZ, 0x94ae6fc493d49818, 0x587616a6a62cc56d),
    (DType::F8E8M0FNU, 0x6d2c8b41c3f0e5a5, 0xdc7f67e6273f7c51),
    (DType::BF16, 0xcf8e09175d8f5ba5, 0xdf49dda8afd8e7d5),
    (DType::F16, 0x1f87f165810ea7c5, 0x28919430d5b7b465),
];

/// Format and the codes of NaN, -NaN, inf, -inf, 0, -0, f32::MAX, f32::MIN, the least f32, -1.
const SPOTS: &[(DType, [u16; 10])] = &[
    (DType::F4E2M1FN, [0x8, 0x0, 0x7, 0xf, 0x0, 0x8, 0x7, 0xf, 0x0, 0xa]),
    (DType::F6E2M3FN, [0x20, 0x0, 0x1f, 0x3f, 0x0, 0x20, 0x1f, 0x3f, 0x0, 0x28]),
    (DType::F6E3M2FN, [0x20, 0x0, 0x1f, 0x3f, 0x0, 0x20, 0x1f, 0x3f, 0x0, 0x2c]),
    (DType::F8E3M4, [0x78, 0xf8, 0x70, 0xf0, 0x0, 0x80, 0x70, 0xf0, 0x0, 0xb0]),
    (DType::F8E4M3, [0x7c, 0xfc, 0x78, 0xf8, 0x0, 0x80, 0x78, 0xf8, 0x0, 0xb8]),
    (DType::F8E4M3FN, [0x7f, 0xff, 0x7f, 0xff, 0x0, 0x80, 0x7f, 0xff, 0x0, 0xb8]),
    (DType::F8E4M3FNUZ, [0x80, 0x80, 0x80, 0x80, 0x0, 0x0, 0x80, 0x80, 0x0, 0xc0]),
    (DType::F8E4M3B11FNUZ, [0x80, 0x80, 0x80, 0x80, 0x0, 0x0, 0x80, 0x80, 0x0, 0xd8]),
    (DType::F8E5M2, [0x7e, 0xfe, 0x7c, 0xfc, 0x0, 0x80, 0x7c, 0xfc, 0x0, 0xbc]),
    (DType::F8E5M2FNUZ, [0x80, 0x80, 0x80, 0x80, 0x0, 0x0, 0x80, 0x80, 0x0, 0xc0]),
    (DType::F8E8M0FNU, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0, 0xff]),
    (DType::BF16, [0x7fc0, 0xffc0, 0x7f80, 0xff80, 0x0, 0x8000, 0x7f80, 0xff80, 0x0, 0xbf80]),
    (DType::F16, [0x7e00, 0xfe00, 0x7c00, 0xfc00, 0x0, 0x8000, 0x7c00, 0xfc00, 0x0, 0xbc00]),
];

fn fnv(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf29ce484222325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100000001b3))
}

#[test]
fn every_code_decodes_as_ml_dtypes() {
    for &(dtype, decoded, _) in TABLE {
        let codes: Vec<u8> = match dtype.bytes() {
            1 => (0..1u16 << dtype.bits()).map(|c| c as u8).collect(),
            _ => (0..=u16::MAX).flat_map(u16::to_le_bytes).collect(),
        };
        let values = decode_f32(dtype, &codes);
        let canonical = values.iter().map(|v| if v.is_nan() { 0x7fc00000 } else { v.to_bits() });
        assert_eq!(fnv(canonical.flat_map(u32::to_le_bytes)), decoded, "{dtype}");
    }
}

#[test]
fn a_sweep_of_f32_encodes_as_ml_dtypes() {
    let sweep: Vec<f32> =
        (0..=0xffffu32).flat_map(|hi| LOWER.map(|lo| f32::from_bits(hi << 16 | lo))).filter(|v| !v.is_nan()).collect();
    for &(dtype, _, encoded) in TABLE {
        let keep = |v: &f32| dtype != DType::F8E8M0FNU || !v.is_subnormal();
        let sweep: Vec<f32> = sweep.iter().copied().filter(keep).collect();
        assert_eq!(fnv(encode_f32(dtype, &sweep)), encoded, "{dtype} from f32");
        let generic = sweep.iter().flat_map(|&v| from_f64(dtype, f64::from(v))[..dtype.bytes()].to_vec());
        assert_eq!(fnv(generic), encoded, "{dtype} from f64");
    }
}

#[test]
fn specials_encode_as_ml_dtypes() {
    let bits: [u32; 10] =
        [0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000, 0, 0x80000000, 0x7f7fffff, 0xff7fffff, 1, 0xbf800000];
    for &(dtype, expected) in SPOTS {
        for (b, e) in bits.iter().zip(expected) {
            let got = encode_f32(dtype, &[f32::from_bits(*b)]);
            assert_eq!(got, e.to_le_bytes()[..dtype.bytes()], "{dtype} of {b:#010x}");
        }
    }
}

#[test]
fn nan_payloads_are_dropped() {
    // Both ways of encoding agree, whatever the payload.
    for dtype in [DType::BF16, DType::F16, DType::F8E5M2] {
        for bits in [0x7f800001, 0x7fa12345, 0xffffffff] {
            let x = f32::from_bits(bits);
            assert_eq!(encode_f32(dtype, &[x]), from_f64(dtype, f64::from(x))[..dtype.bytes()], "{dtype} {bits:#x}");
        }
    }
}

#[test]
fn f64_rounds_once() {
    // 1 + 2^-8 is a tie of bf16; the 2^-40 above it must still round up, which a detour through f32 would lose.
    let x = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
    assert_eq!(from_f64(DType::BF16, x)[..2], 0x3f81u16.to_le_bytes());
}

proptest! {
    /// Oracle: a number of the format encodes to a code of the same value.
    #[test]
    fn codes_round_trip(code: u16) {
        for &dtype in DType::ALL {
            let Some(f) = FloatFormat::of(dtype) else { continue };
            let v = f.decode(code);
            let again = f.decode(f.encode(v));
            if v.is_nan() {
                prop_assert!(again.is_nan() || again == 0.0);
            } else {
                prop_assert_eq!(v.to_bits(), again.to_bits());
            }
        }
    }

    /// Oracle: no other code of the format is closer.
    #[test]
    fn encode_is_nearest(x in -600f32..600.0) {
        for dtype in [DType::F8E4M3FN, DType::F8E5M2, DType::F6E3M2FN, DType::F4E2M1FN] {
            let Some(f) = FloatFormat::of(dtype) else { continue };
            let got = f.decode(f.encode(f64::from(x)));
            if !got.is_finite() { continue }
            let best = (0..1u16 << dtype.bits()).map(|c| (f.decode(c) - f64::from(x)).abs())
                .filter(|d| d.is_finite()).fold(f64::INFINITY, f64::min);
            prop_assert_eq!((got - f64::from(x)).abs(), best, "{} of {}", dtype, x);
        }
    }

    /// Oracle: `as` conversions of Rust, which are defined as round to nearest and saturating truncation.
    #[test]
    fn scalars_agree_with_rust(v: i64, x: f64) {
        use tpusim_isa::num::convert::{f64_to_int, int_to_f64_odd};
        prop_assert_eq!(int_to_f64_odd(DType::I64, v) as f32, v as f32);
        prop_assert_eq!(int_to_f64_odd(DType::U64, v) as f32, v as u64 as f32);
        prop_assert_eq!(f64_to_int(DType::I32, x), i64::from(x as i32));
        prop_assert_eq!(f64_to_int(DType::U8, x), i64::from(x as u8));
        prop_assert_eq!(f64_to_int(DType::U64, x), x as u64 as i64);
        prop_assert_eq!(to_f64(DType::I64, &v.to_le_bytes()), v as f64);
    }
}
