//! Square roots, logarithms and inverse functions of complex numbers that neither overflow nor cancel.
//!
//! The inverse sines and cosines follow Hull, Fairgrieve and Tang ("Implementing the complex arcsine and arccosine functions using
//! exception handling", ACM TOMS 23, 1997): with `r = |z + 1|`, `s = |z - 1|` and `a = (r + s) / 2`, the real part of an arcsine is
//! `asin(x / a)` and the imaginary part `log(a + sqrt(a^2 - 1))`, each rewritten where its argument would cancel.

use std::f64::consts::{FRAC_PI_2, LN_2};

use super::elementwise::C;

/// Beyond this 1 is lost beside the number.
const LARGE: f64 = 4.0 / f64::EPSILON;
/// Below this the number is its own sine.
const SMALL: f64 = 1e-9;

/// `a * b` and what rounding took from it.
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let p = a * b;
    (p, a.mul_add(b, -p))
}

/// `a + b` and what rounding took from it.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// The sum of terms that may cancel.
fn sum(terms: &[f64]) -> f64 {
    let (mut high, mut low) = (0.0, 0.0);
    for &t in terms {
        let (s, e) = two_sum(high, t);
        (high, low) = (s, low + e);
    }
    high + low
}

/// The logarithm of `|x + iy|`.
fn log_abs(x: f64, y: f64) -> f64 {
    let (a, b) = (x.abs().max(y.abs()), x.abs().min(y.abs()));
    if a.is_infinite() || b.is_infinite() {
        return f64::INFINITY;
    }
    if x.is_nan() || y.is_nan() || a == 0.0 {
        return libm::log(libm::hypot(x, y));
    }
    if (0.5..2.0).contains(&a) && b < 2.0 {
        // Near the unit circle: log1p(a^2 + b^2 - 1) / 2.
        let ((p, e), (q, f)) = (two_product(a, a), two_product(b, b));
        return 0.5 * libm::log1p(sum(&[p, -1.0, q, e, f]));
    }
    // Scaled by a power of two, so that the sum of squares neither overflows nor vanishes.
    let k = libm::ilogb(a);
    if k.abs() > 400 {
        let (a, b) = (libm::scalbn(a, -k), libm::scalbn(b, -k));
        return libm::log(libm::hypot(a, b)) + f64::from(k) * LN_2;
    }
    libm::log(libm::hypot(a, b))
}

pub(super) fn log(x: C) -> C {
    (log_abs(x.0, x.1), libm::atan2(x.1, x.0))
}

/// `log(1 + x)`.
pub(super) fn log1p(x: C) -> C {
    let (re, im) = x;
    let angle = libm::atan2(im, 1.0 + re);
    if re.abs() > 2.0 || im.abs() > 2.0 || re.is_nan() || im.is_nan() {
        // The rounding of 1 + re matters where that is near the unit circle, which it is not.
        let (s, e) = two_sum(1.0, re);
        let whole = log_abs(s, im);
        let correction = if whole.is_finite() { s * e / libm::hypot(s, im).powi(2) } else { 0.0 };
        return (if correction.is_finite() { whole + correction } else { whole }, angle);
    }
    // |1 + x|^2 - 1 = 2 re + re^2 + im^2.
    let ((p, e), (q, f)) = (two_product(re, re), two_product(im, im));
    let excess = sum(&[2.0 * re, p, q, e, f]);
    let real = if excess > -0.5 { 0.5 * libm::log1p(excess) } else { log_abs(1.0 + re, im) };
    (real, angle)
}

/// The root in the right half plane.
pub(super) fn sqrt(x: C) -> C {
    let (re, im) = x;
    if re == 0.0 && im == 0.0 {
        return (0.0, im);
    }
    if im.is_infinite() {
        return (f64::INFINITY, im);
    }
    if re.is_infinite() && !im.is_nan() {
        return if re > 0.0 { (re, 0f64.copysign(im)) } else { (0.0, f64::INFINITY.copysign(im)) };
    }
    if re.is_infinite() {
        return if re > 0.0 { (re, im) } else { (im, f64::INFINITY) };
    }
    // Scaled by a power of four, the parts neither overflow nor vanish.
    let k = libm::ilogb(re.abs().max(im.abs())) & !1;
    let (a, b) = (libm::scalbn(re.abs(), -k), libm::scalbn(im, -k));
    // The part that does not cancel first.
    let t = (f64::midpoint(libm::hypot(a, b), a)).sqrt();
    let u = libm::scalbn(t, k / 2);
    let v = im / (2.0 * u);
    if re >= 0.0 { (u, v) } else { (v.abs(), u.copysign(im)) }
}

/// `(hypot(a, b) - b) / 2` for `a >= 0`, without cancellation; `h` is the hypotenuse.
fn half_excess(a: f64, b: f64, h: f64) -> f64 {
    if b <= 0.0 { (h - b) / 2.0 } else { a / (h + b) * a / 2.0 }
}

/// The angle of an arcsine as sine and cosine that are right up to a common factor, and the real part of the arc hyperbolic sine:
/// for `x, y >= 0`, of `asinh(y + ix)`.
struct Arc {
    sine: f64,
    cosine: f64,
    growth: f64,
}

fn arc(x: f64, y: f64) -> Arc {
    let (r, s) = (libm::hypot(x + 1.0, y), libm::hypot(x - 1.0, y));
    let a = ((r + s) / 2.0).max(1.0);
    // What is lost in 1 + x is lost in x, too; what is lost in x - 1 is nothing for x near 1.
    let tiny = y < f64::EPSILON * (x - 1.0).abs();
    let growth = if a >= 10.0 {
        libm::log(a + (a * a - 1.0).sqrt())
    } else if tiny && x < 1.0 {
        y / ((1.0 - x) * (1.0 + x)).sqrt()
    } else if tiny {
        libm::log1p((x - 1.0) + ((x - 1.0) * (x + 1.0)).sqrt())
    } else if x == 1.0 && y < f64::EPSILON * f64::EPSILON {
        y.sqrt()
    } else {
        let m = half_excess(y, 1.0 + x, r) + half_excess(y, 1.0 - x, s);
        libm::log1p(m + (m * (a + 1.0)).sqrt())
    };
    // cos = sqrt(a^2 - x^2) / a with a - x from what r and s exceed.
    let cosine = if tiny && x < 1.0 {
        ((1.0 - x) * (1.0 + x)).sqrt()
    } else if tiny && x > 1.0 {
        // a = x up to y^2: a^2 - x^2 = y^2 x^2 / (x^2 - 1).
        return Arc { sine: 1.0, cosine: y / ((x - 1.0) * (x + 1.0)).sqrt(), growth };
    } else if x == 1.0 && y < f64::EPSILON * f64::EPSILON {
        y.sqrt() * ((a + x) / 2.0).sqrt()
    } else {
        ((half_excess(y, x + 1.0, r) + half_excess(y, x - 1.0, s)) * (a + x)).sqrt()
    };
    Arc { sine: x, cosine, growth }
}

/// Infinite and undefined parts of an arcsine; `None` for finite numbers.
fn asin_special(x: f64, y: f64) -> Option<C> {
    if x.is_finite() && y.is_finite() {
        return None;
    }
    Some(match (x.is_infinite(), y.is_infinite()) {
        (true, true) => (std::f64::consts::FRAC_PI_4.copysign(x), y),
        (true, false) if y.is_nan() => (y, x),
        (true, false) => (FRAC_PI_2.copysign(x), f64::INFINITY.copysign(y)),
        (false, true) if x.is_nan() => (x, y),
        (false, true) => (0f64.copysign(x), y),
        _ if x == 0.0 => (x, f64::NAN),
        _ => (f64::NAN, f64::NAN),
    })
}

pub(super) fn asin(z: C) -> C {
    let (x, y) = z;
    if let Some(special) = asin_special(x, y) {
        return special;
    }
    let (ax, ay) = (x.abs(), y.abs());
    if ax > LARGE || ay > LARGE {
        return (libm::atan2(ax, ay).copysign(x), (log_abs(x, y) + LN_2).copysign(y));
    }
    if ax < SMALL && ay < SMALL {
        return z;
    }
    let arc = arc(ax, ay);
    (libm::atan2(arc.sine, arc.cosine).copysign(x), arc.growth.copysign(y))
}

pub(super) fn acos(z: C) -> C {
    let (x, y) = z;
    if let Some((_, im)) = asin_special(x, y) {
        // On the left of the axis the angle is beyond a right one.
        let angle = match (x.is_infinite(), y.is_infinite()) {
            (true, true) => libm::atan2(1.0, 1f64.copysign(x)),
            (true, false) if y.is_nan() => f64::NAN,
            (true, false) => libm::atan2(0.0, x),
            (false, true) if !x.is_nan() => FRAC_PI_2,
            _ if x == 0.0 => FRAC_PI_2,
            _ => f64::NAN,
        };
        return (angle, -im);
    }
    let (ax, ay) = (x.abs(), y.abs());
    if ax > LARGE || ay > LARGE {
        return (libm::atan2(ay, x), -(log_abs(x, y) + LN_2).copysign(y));
    }
    let arc = arc(ax, ay);
    (libm::atan2(arc.cosine, arc.sine.copysign(x)), -arc.growth.copysign(y))
}

pub(super) fn asinh(z: C) -> C {
    let (re, im) = asin((z.1, z.0));
    (im, re)
}

pub(super) fn acosh(z: C) -> C {
    let (re, im) = acos(z);
    // The half plane on the right.
    (im.abs(), re.copysign(z.1))
}

pub(super) fn atanh(z: C) -> C {
    let (x, y) = z;
    let (ax, ay) = (x.abs(), y.abs());
    if x.is_nan() || y.is_nan() {
        return match (x.is_infinite() || x == 0.0, y.is_infinite()) {
            (_, true) => (0f64.copysign(x), FRAC_PI_2.copysign(y)),
            (true, _) => (0f64.copysign(x), f64::NAN),
            _ => (f64::NAN, f64::NAN),
        };
    }
    if ax > LARGE || ay > LARGE {
        // Re(1/z): scaled, so that the squares do not overflow.
        let k = if ax.is_infinite() || ay.is_infinite() { 0 } else { libm::ilogb(ax.max(ay)) };
        let (a, b) = (libm::scalbn(ax, -k), libm::scalbn(ay, -k));
        let re = if ax.is_infinite() || ay.is_infinite() { 0.0 } else { libm::scalbn(a / (a * a + b * b), -k) };
        return (re.copysign(x), FRAC_PI_2.copysign(y));
    }
    if ax < SMALL && ay < SMALL {
        return z;
    }
    // |1 + z|^2 / |1 - z|^2 = 1 + 4x / ((1 - x)^2 + y^2).
    let re = if ax == 1.0 && ay < f64::EPSILON {
        if ay == 0.0 { f64::INFINITY } else { (LN_2 - libm::log(ay)) / 2.0 }
    } else {
        libm::log1p(4.0 * ax / ((ax - 1.0) * (ax - 1.0) + ay * ay)) / 4.0
    };
    let opposite = sum(&{
        let ((p, e), (q, f)) = (two_product(ax, ax), two_product(ay, ay));
        [1.0, -p, -q, -e, -f]
    });
    let im = libm::atan2(2.0 * ay, if ax == 1.0 { -ay * ay } else { opposite }) / 2.0;
    let im = if ax == 1.0 { libm::atan2(2.0, -ay) / 2.0 } else { im };
    // On the axis beyond 1 the cut is reached from the side that the sign of zero says.
    (re.copysign(x), im.copysign(y))
}

pub(super) fn atan(z: C) -> C {
    let (re, im) = atanh((z.1, z.0));
    (im, re)
}
