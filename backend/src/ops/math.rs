//! Scalar functions on reals that the standard library does not have in a form that is the same on every machine.

/// IEEE 754 `maximum`: NaN wins, and +0 is above -0.
pub(super) fn max32(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else if a == b {
        if a.is_sign_positive() { a } else { b }
    } else if a > b {
        a
    } else {
        b
    }
}

/// IEEE 754 `minimum`: NaN wins, and -0 is below +0.
pub(super) fn min32(a: f32, b: f32) -> f32 {
    -max32(-a, -b)
}

/// As [`max32`].
pub(super) fn max64(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == b {
        if a.is_sign_positive() { a } else { b }
    } else if a > b {
        a
    } else {
        b
    }
}

/// As [`min32`].
pub(super) fn min64(a: f64, b: f64) -> f64 {
    -max64(-a, -b)
}

/// -1, 0 (of either sign) or 1; NaN of NaN.
pub(super) fn sign32(x: f32) -> f32 {
    if x.is_nan() || x == 0.0 { x } else { 1f32.copysign(x) }
}

/// As [`sign32`].
pub(super) fn sign64(x: f64) -> f64 {
    if x.is_nan() || x == 0.0 { x } else { 1f64.copysign(x) }
}

/// `1 / (1 + exp(-x))`.
pub(super) fn logistic32(x: f32) -> f32 {
    logistic64(f64::from(x)) as f32
}

/// As [`logistic32`].
pub(super) fn logistic64(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// The inverse of `cosh`, NaN below 1.
pub(super) fn acosh32(x: f32) -> f32 {
    if x < 1.0 { f32::NAN } else { libm::acoshf(x) }
}

/// As [`acosh32`].
pub(super) fn acosh64(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// The inverse of `erf`: infinite at -1 and 1, NaN beyond.
pub(super) fn erf_inv(y: f64) -> f64 {
    let a = y.abs();
    if a >= 1.0 || y.is_nan() {
        return if a == 1.0 { f64::INFINITY.copysign(y) } else { f64::NAN };
    }
    if a == 0.0 {
        return y;
    }
    // A start good to some percent (from the expansion of log(1 - erf^2)), then Halley steps, each tripling the digits. The
    // residual uses erfc near 1, where erf itself has lost the digits.
    let l = libm::log1p(-a * a);
    let t = 2.0 / (std::f64::consts::PI * 0.147) + l / 2.0;
    let mut x = ((t * t - l / 0.147).sqrt() - t).sqrt();
    for _ in 0..4 {
        let residual = if a > 0.5 { (1.0 - a) - libm::erfc(x) } else { libm::erf(x) - a };
        let slope = std::f64::consts::FRAC_2_SQRT_PI * libm::exp(-x * x);
        if slope == 0.0 {
            break;
        }
        let step = residual / slope;
        x -= step / (1.0 + x * step);
    }
    x.copysign(y)
}

/// The logarithmic derivative of the gamma function.
pub(super) fn digamma(x: f64) -> f64 {
    if x.is_nan() || x == f64::NEG_INFINITY || (x <= 0.0 && x == x.floor()) {
        return if x == 0.0 { f64::NEG_INFINITY.copysign(-x) } else { f64::NAN };
    }
    if x < 0.5 {
        // Reflection.
        return digamma(1.0 - x) - std::f64::consts::PI / libm::tan(std::f64::consts::PI * (x - x.round()));
    }
    // Up by recurrence to where the asymptotic series (Bernoulli numbers) has full precision.
    let (mut x, mut sum) = (x, 0.0);
    while x < 12.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    let series = r * (1.0 / 12.0 - r * (1.0 / 120.0 - r * (1.0 / 252.0 - r * (1.0 / 240.0 - r * (1.0 / 132.0)))));
    sum + libm::log(x) - 0.5 / x - series
}

/// The Hurwitz zeta function: the sum of `(q + k)^-s` over `k >= 0`, for `s > 1` and `q > 0`; NaN elsewhere, except at poles.
pub(super) fn zeta(s: f64, q: f64) -> f64 {
    if s == 1.0 {
        return f64::INFINITY;
    }
    if s.is_nan() || q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        return if q == q.floor() { f64::INFINITY } else { f64::NAN };
    }
    // Euler-Maclaurin after summing the first terms.
    const TERMS: u32 = 14;
    let mut sum: f64 = (0..TERMS).map(|k| libm::pow(q + f64::from(k), -s)).sum();
    let a = q + f64::from(TERMS);
    let tail = libm::pow(a, -s);
    sum += tail * a / (s - 1.0) + 0.5 * tail;
    // Bernoulli numbers over factorials: B2/2!, B4/4!, ...
    const B: [f64; 7] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30240.0,
        -1.0 / 1209600.0,
        1.0 / 47900160.0,
        -691.0 / 1307674368000.0,
        1.0 / 74724249600.0,
    ];
    let (mut factor, mut power) = (s, tail / a);
    for (j, b) in B.iter().enumerate() {
        sum += b * factor * power;
        let k = 2.0 * j as f64 + 1.0;
        factor *= (s + k) * (s + k + 1.0);
        power /= a * a;
    }
    sum
}

/// The polygamma function of order `n`, a natural number, at `x > 0`.
pub(super) fn polygamma(n: f64, x: f64) -> f64 {
    if n < 0.0 || n != n.floor() {
        return f64::NAN;
    }
    if n == 0.0 {
        return digamma(x);
    }
    let sign = if n % 2.0 == 0.0 { -1.0 } else { 1.0 };
    sign * libm::tgamma(n + 1.0) * zeta(n + 1.0, x)
}

/// The exponentially scaled modified Bessel function of order 1, `exp(-|x|) I1(x)`.
pub(super) fn bessel_i1e(x: f64) -> f64 {
    let a = x.abs();
    if !a.is_finite() {
        return if a.is_nan() { f64::NAN } else { 0f64.copysign(x) };
    }
    let value = if a < 30.0 {
        // The power series has positive terms only, so nothing cancels.
        let (mut term, mut sum, mut k) = (a / 2.0, 0.0, 0.0);
        while term > sum * 1e-18 && k < 200.0 {
            sum += term;
            k += 1.0;
            term *= a * a / 4.0 / (k * (k + 1.0));
        }
        sum * libm::exp(-a)
    } else {
        // The asymptotic series.
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..20 {
            let m = 2.0 * f64::from(k) - 1.0;
            term *= -(4.0 - m * m) / (8.0 * a * f64::from(k));
            sum += term;
        }
        sum / (2.0 * std::f64::consts::PI * a).sqrt()
    };
    value.copysign(x)
}

/// The `f32` after `a` in the direction of `b`.
pub(super) fn next_after32(a: f32, b: f32) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else if a == b {
        b
    } else if a < b {
        a.next_up()
    } else {
        a.next_down()
    }
}

/// As [`next_after32`].
pub(super) fn next_after64(a: f64, b: f64) -> f64 {
    libm::nextafter(a, b)
}
