//! The EUP's functions on f32.
//!
//! Only IEEE additions, multiplications, divisions, square roots and bit operations, in a fixed order and without branches: every
//! machine gives the same bits, and a loop over a slice becomes vector code. Every NaN result is the canonical quiet NaN.
//!
//! The polynomials are minimax fits in the relative error of the function, found with the Remez exchange in 40-digit arithmetic and
//! rounded to f32; each says the error of the unrounded fit. Largest errors seen over every fifth f32: `pow2` 1.29, `log2` 1.78, `tanh`
//! 1.65, `rsqrt` 1.49 ulp. The real unit's bits are not public.

/// 1.5 * 2^23: adding it to a small number leaves the nearest integer in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;

/// `2^x`, within 2 ulp. `inf` from 128 up; results below 2^-126 are rounded to denormals, from -150 down to 0.
#[inline]
pub fn pow2(x: f32) -> f32 {
    // Beyond these bounds the result is inf or 0 anyway. NaN stays.
    let x = if x > 129.0 { 129.0 } else { x };
    let x = if x < -151.0 { -151.0 } else { x };
    let (mantissa, n) = pow2_parts(x);
    // Two factors, because 2^n alone need not be a normal number; only the last product rounds.
    let half = n >> 1;
    let y = mantissa * exponent(half) * exponent(n.wrapping_sub(half));
    if x.is_nan() { f32::NAN } else { y }
}

/// `2^x` as a number in about [0.7, 1.42] and an exponent.
#[inline]
fn pow2_parts(x: f32) -> (f32, i32) {
    let shifted = x + ROUND;
    let n = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let f = x - (shifted - ROUND);
    // (2^f - 1) / f on [-0.5, 0.5], relative error of 2^f: 2^-28.5.
    let q = 0.000_155_946_72_f32;
    let q = q * f + 0.001_340_664_3;
    let q = q * f + 0.009_617_693;
    let q = q * f + 0.055_503_104;
    let q = q * f + 0.240_226_52;
    let q = q * f + 0.693_147_24;
    (1.0 + f * q, n)
}

/// `2^n` for n in -126 ..= 127.
#[inline]
fn exponent(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// `log2 x`, within 2 ulp, denormal arguments included. `-inf` for both zeros, NaN below.
#[inline]
pub fn log2(x: f32) -> f32 {
    let tiny = x < f32::MIN_POSITIVE;
    let bits = (if tiny { x * 8_388_608.0 } else { x }).to_bits() as i32;
    let bias = if tiny { -23.0_f32 } else { 0.0 };
    // x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), so that results near 0 come from f alone.
    let e = bits.wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let f = f32::from_bits(bits.wrapping_sub(e << 23) as u32) - 1.0;
    // log2(1 + f) / f - 1, relative error of log2(1 + f): 2^-25.2.
    let r = 0.125_837_04_f32;
    let r = r * f - 0.207_269_67;
    let r = r * f + 0.215_715_56;
    let r = r * f - 0.238_944_83;
    let r = r * f + 0.287_916_24;
    let r = r * f - 0.360_703_68;
    let r = r * f + 0.480_910_63;
    let r = r * f - 0.721_347_33;
    let r = r * f + 0.442_695;
    let y = (e as f32 + bias) + (f + f * r);
    let y = if x == f32::INFINITY { f32::INFINITY } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    // Negative numbers and NaN.
    if x >= 0.0 { y } else { f32::NAN }
}

/// `1 / x`, correctly rounded.
#[inline]
pub fn rcp(x: f32) -> f32 {
    let y = 1.0 / x;
    if x.is_nan() { f32::NAN } else { y }
}

/// `1 / sqrt x`: a correctly rounded square root and a correctly rounded division, within 1.5 ulp. `inf` for 0, `-inf` for -0, NaN below.
#[inline]
pub fn rsqrt(x: f32) -> f32 {
    let y = 1.0 / x.sqrt();
    if x >= 0.0 { y } else { f32::NAN }
}

/// `tanh x`, within 2 ulp.
#[inline]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let u = x * x;
    // (tanh a / a - 1) / u on [0, 0.625], relative error of tanh: 2^-27.8.
    let t = -0.005_704_988_f32;
    let t = t * u + 0.020_639_088;
    let t = t * u - 0.053_739_715;
    let t = t * u + 0.133_314_42;
    let t = t * u - 0.333_332_8;
    let small = a + a * (u * t);
    // From here on the result is 1 to the last bit.
    let bounded = if a > 10.0 { 10.0 } else { a };
    let (mantissa, n) = pow2_parts(bounded * (2.0 * std::f32::consts::LOG2_E));
    let large = 1.0 - 2.0 / (mantissa * exponent(n) + 1.0);
    let y = (if a < 0.625 { small } else { large }).copysign(x);
    if x.is_nan() { f32::NAN } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance of `got` from the exact value, in units of the last place of the f32 nearest to it.
    fn ulps(got: f32, exact: f64) -> f64 {
        let near = exact as f32;
        if got == near {
            return 0.0;
        }
        let exponent = (((near.to_bits() >> 23) & 0xff) as i32).max(1);
        (f64::from(got) - exact).abs() / 2f64.powi(exponent - 150)
    }

    /// Worst error over `n` samples of each of the ranges, and over a walk through all bit patterns.
    fn worst(
        f: fn(f32) -> f32,
        exact: fn(f64) -> f64,
        ranges: &[(f32, f32)],
        bits: std::ops::Range<u32>,
    ) -> (f64, f32) {
        let n = 200_000;
        let lines = ranges.iter().flat_map(|(lo, hi)| (0..=n).map(move |i| lo + (hi - lo) * (i as f32 / n as f32)));
        let walk = bits.step_by(10_007).map(f32::from_bits);
        let mut worst = (0.0, 0.0);
        for x in lines.chain(walk) {
            let error = ulps(f(x), exact(f64::from(x)));
            if error > worst.0 || error.is_nan() {
                worst = (error, x);
            }
        }
        worst
    }

    const POSITIVE: std::ops::Range<u32> = 1..0x7f80_0000;

    // Oracle: the f64 functions of the platform, accurate far beyond f32.
    #[test]
    fn pow2_is_within_2_ulp() {
        let normal = worst(pow2, f64::exp2, &[(-126.0, 127.99), (-1.0, 1.0), (-1e-3, 1e-3)], 0..0x4300_0000);
        assert!(normal.0 <= 2.0, "{normal:?}");
        let denormal = worst(pow2, f64::exp2, &[(-149.0, -126.0)], 0..0);
        assert!(denormal.0 <= 2.0, "{denormal:?}");
    }

    // Oracle: IEEE's own special values.
    #[test]
    fn pow2_at_the_edges() {
        assert!(pow2(f32::NAN).is_nan());
        for x in [f32::INFINITY, 128.0, 1e30, f32::MAX] {
            assert_eq!(pow2(x), f32::INFINITY, "{x}");
        }
        for x in [f32::NEG_INFINITY, -151.0, -1e30, f32::MIN] {
            assert_eq!(pow2(x).to_bits(), 0, "{x}");
        }
        for n in -149..128 {
            assert_eq!(f64::from(pow2(n as f32)), 2f64.powi(n), "{n}");
        }
        assert_eq!(pow2(127.999_99), 2f64.powf(f64::from(127.999_99_f32)) as f32);
    }

    // Oracle: the f64 functions of the platform.
    #[test]
    fn log2_is_within_2_ulp() {
        let w =
            worst(log2, f64::log2, &[(0.5, 2.0), (0.9999, 1.0001), (0.7, 0.72), (1.4, 1.43), (1e-3, 1e3)], POSITIVE);
        assert!(w.0 <= 2.0, "{w:?}");
    }

    // Oracle: IEEE's own special values; powers of two are exact.
    #[test]
    fn log2_at_the_edges() {
        assert_eq!(log2(0.0), f32::NEG_INFINITY);
        assert_eq!(log2(-0.0), f32::NEG_INFINITY);
        assert_eq!(log2(f32::INFINITY), f32::INFINITY);
        for x in [-1.0, f32::NEG_INFINITY, f32::NAN, -f32::from_bits(1)] {
            assert!(log2(x).is_nan(), "{x}");
        }
        for n in -149..128 {
            assert_eq!(log2(2f64.powi(n) as f32), n as f32);
        }
    }

    // Oracle: the f64 functions of the platform.
    #[test]
    fn tanh_is_within_2_ulp() {
        let w = worst(tanh, f64::tanh, &[(-1.0, 1.0), (0.6, 0.65), (-10.0, 10.0), (-1e-3, 1e-3)], POSITIVE);
        assert!(w.0 <= 2.0, "{w:?}");
    }

    // Oracle: oddness and the limits of the function.
    #[test]
    fn tanh_at_the_edges() {
        for x in [0.0, 1e-40, 0.3, 0.625, 5.0, 9.1, 1e30, f32::INFINITY] {
            assert_eq!(tanh(-x).to_bits(), (-tanh(x)).to_bits(), "{x}");
            assert!(tanh(x) <= 1.0);
        }
        assert_eq!(tanh(f32::INFINITY), 1.0);
        assert_eq!(tanh(1e-40).to_bits(), 1e-40_f32.to_bits());
        assert!(tanh(f32::NAN).is_nan());
    }

    // Oracle: the f64 quotients.
    #[test]
    fn reciprocals_are_as_accurate_as_ieee() {
        let w = worst(rcp, |x| 1.0 / x, &[(0.5, 4.0), (-4.0, -0.5)], POSITIVE);
        assert!(w.0 <= 0.5, "{w:?}");
        let w = worst(rsqrt, |x| 1.0 / x.sqrt(), &[(0.5, 4.0)], POSITIVE);
        assert!(w.0 <= 1.5, "{w:?}");
        assert_eq!((rcp(0.0), rcp(-0.0), rcp(f32::INFINITY)), (f32::INFINITY, f32::NEG_INFINITY, 0.0));
        assert_eq!((rsqrt(0.0), rsqrt(-0.0), rsqrt(f32::INFINITY)), (f32::INFINITY, f32::NEG_INFINITY, 0.0));
        assert!(rsqrt(-1.0).is_nan() && rcp(f32::NAN).is_nan() && rsqrt(f32::NAN).is_nan());
    }
}
