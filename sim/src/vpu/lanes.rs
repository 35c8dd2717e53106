//! Arithmetic of one lane where the instruction set's definition differs from the host's or has to be pinned down.

/// f32 addition on bits.
#[inline(always)]
pub(crate) fn add_f(a: u32, b: u32) -> u32 {
    (f32::from_bits(a) + f32::from_bits(b)).to_bits()
}

/// A key whose signed order is that of floats with -0 below +0.
#[inline(always)]
fn key(x: u32) -> i32 {
    let x = x as i32;
    x ^ (((x >> 31) as u32) >> 1) as i32
}

#[inline(always)]
fn is_nan(x: u32) -> bool {
    x & 0x7fff_ffff > 0x7f80_0000
}

/// NaN if either is NaN (the first of them), -0 below +0.
#[inline(always)]
pub(crate) fn min_f(a: u32, b: u32) -> u32 {
    let least = if key(b) < key(a) { b } else { a };
    let b_or = if is_nan(b) { b } else { least };
    if is_nan(a) { a } else { b_or }
}

/// NaN if either is NaN (the first of them), +0 above -0.
#[inline(always)]
pub(crate) fn max_f(a: u32, b: u32) -> u32 {
    let most = if key(b) > key(a) { b } else { a };
    let b_or = if is_nan(b) { b } else { most };
    if is_nan(a) { a } else { b_or }
}

/// Shift left; 0 for amounts of 32 and more.
#[inline(always)]
pub(crate) fn shl(a: u32, n: u32) -> u32 {
    if n < 32 { a << (n & 31) } else { 0 }
}

/// Logical shift right; 0 for amounts of 32 and more.
#[inline(always)]
pub(crate) fn shr(a: u32, n: u32) -> u32 {
    if n < 32 { a >> (n & 31) } else { 0 }
}

/// Arithmetic shift right; the sign for amounts of 32 and more.
#[inline(always)]
pub(crate) fn sra(a: u32, n: u32) -> u32 {
    ((a as i32) >> n.min(31)) as u32
}

/// Round to nearest, ties to even. Adding and taking away 2^23 rounds in the host's own mode, which is that one.
#[inline(always)]
pub(crate) fn rne(x: f32) -> f32 {
    let big = f32::from_bits(0x4b00_0000);
    let a = x.abs();
    let r = (a + big) - big;
    // At 2^23 and above (and for NaN) everything is whole already.
    let r = if a < big { r } else { a };
    f32::from_bits(r.to_bits() | (x.to_bits() & 0x8000_0000))
}

/// Round towards minus infinity.
#[inline(always)]
pub(crate) fn floor(x: f32) -> f32 {
    let r = rne(x);
    let one = if r > x { 1.0 } else { 0.0 };
    let f = r - one;
    // Keeps the zero's sign.
    if f == 0.0 { f32::from_bits(x.to_bits() & 0x8000_0000) } else { f }
}

/// Round towards plus infinity.
#[inline(always)]
pub(crate) fn ceil(x: f32) -> f32 {
    -floor(-x)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASES: [f32; 20] = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -1.5,
        -2.5,
        0.49999997,
        8388607.5,
        8388608.0,
        -8388609.0,
        1e30,
        f32::INFINITY,
        f32::NEG_INFINITY,
        1e-40,
        -1e-40,
        0.99999994,
        123456.79,
        -3.0,
    ];

    // Oracle: the standard library, which rounds as IEEE says.
    #[test]
    fn rounds_as_ieee() {
        for x in CASES {
            assert_eq!(rne(x).to_bits(), x.round_ties_even().to_bits(), "rne {x}");
            assert_eq!(floor(x).to_bits(), x.floor().to_bits(), "floor {x}");
            assert_eq!(ceil(x).to_bits(), x.ceil().to_bits(), "ceil {x}");
        }
        assert!(rne(f32::NAN).is_nan() && floor(f32::NAN).is_nan() && ceil(f32::NAN).is_nan());
    }

    // Oracle: IEEE 754-2019 minimum and maximum.
    #[test]
    fn minimum_and_maximum() {
        let order = [f32::NEG_INFINITY, -1.0, -1e-40, -0.0, 0.0, 1e-40, 1.0, f32::INFINITY].map(f32::to_bits);
        for (i, &a) in order.iter().enumerate() {
            for (j, &b) in order.iter().enumerate() {
                assert_eq!(min_f(a, b), order[i.min(j)]);
                assert_eq!(max_f(a, b), order[i.max(j)]);
            }
            for nan in [f32::NAN.to_bits(), f32::NAN.to_bits() | 0x8000_0000] {
                assert_eq!([min_f(a, nan), min_f(nan, a), max_f(a, nan), max_f(nan, a)], [nan; 4]);
            }
        }
    }

    // Oracle: the definition at the edges.
    #[test]
    fn shifts_saturate() {
        assert_eq!([shl(3, 31), shl(3, 32), shl(3, u32::MAX)], [1 << 31, 0, 0]);
        assert_eq!([shr(u32::MAX, 31), shr(u32::MAX, 32)], [1, 0]);
        assert_eq!([sra(0x8000_0000, 31), sra(0x8000_0000, 99), sra(7, 99)], [u32::MAX, u32::MAX, 0]);
    }
}
