//! Units of time: core cycles inside a chip, picoseconds at its edges.
//!
//! Both are whole numbers, so sums do not depend on their order and results are the same on every machine.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

const PICOS_PER_SECOND: u128 = 1_000_000_000_000;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl Add for $name {
            type Output = $name;
            /// The sum, at most `u64::MAX`.
            fn add(self, other: $name) -> $name {
                $name(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: $name) {
                *self = *self + other;
            }
        }

        impl Sub for $name {
            type Output = $name;
            /// The difference, at least 0.
            fn sub(self, other: $name) -> $name {
                $name(self.0.saturating_sub(other.0))
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = $name>>(items: I) -> $name {
                items.fold($name(0), |a, b| a + b)
            }
        }
    };
}

unit! {
    /// A number of core clock cycles. Sums saturate.
    Cycles
}

unit! {
    /// A number of picoseconds. Sums saturate; the range is 213 days.
    Picos
}

impl Cycles {
    /// The time these cycles take at a clock of `hz`, rounded up to whole picoseconds; `Picos(u64::MAX)` if that does not fit or
    /// `hz` is 0.
    pub fn picos(self, hz: u64) -> Picos {
        Picos(scale(self.0, PICOS_PER_SECOND, u128::from(hz)))
    }
}

impl Picos {
    /// The cycles of a clock of `hz` that cover this time, rounded up; `Cycles(u64::MAX)` if that does not fit. At clocks of up to
    /// 1 THz `c.picos(hz).cycles(hz)` is `c` again, and the conversion is monotonic.
    pub fn cycles(self, hz: u64) -> Cycles {
        // The inverse of rounding up is rounding down: the last cycle that has begun when the time is over.
        let exact = u128::from(self.0) * u128::from(hz) / PICOS_PER_SECOND;
        let back = u64::try_from(exact).unwrap_or(u64::MAX);
        // A time between two edges ends at the later one.
        if Cycles(back).picos(hz) >= self { Cycles(back) } else { Cycles(back.saturating_add(1)) }
    }

    /// Seconds, for reports.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / PICOS_PER_SECOND as f64
    }

    /// Nearest whole picoseconds of a time in seconds; 0 for negative ones and NaN.
    pub fn from_seconds(seconds: f64) -> Picos {
        Picos((seconds * PICOS_PER_SECOND as f64).round() as u64)
    }
}

fn scale(n: u64, times: u128, over: u128) -> u64 {
    if over == 0 {
        return u64::MAX;
    }
    // Below 2^64 * 10^12 < 2^104: no overflow.
    u64::try_from((u128::from(n) * times).div_ceil(over)).unwrap_or(u64::MAX)
}

impl fmt::Display for Cycles {
    /// `1234 cycles`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, if self.0 == 1 { "cycle" } else { "cycles" })
    }
}

impl fmt::Display for Picos {
    /// Four significant digits in the unit that keeps the number below 1000: `512.0 ns`, `1.235 us`, `20.00 ms`, `3.000 s`; below a
    /// nanosecond whole picoseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1_000, "ns"), (1_000_000, "us"), (1_000_000_000, "ms"), (1_000_000_000_000, "s")];
        if self.0 < 1_000 {
            return write!(f, "{} ps", self.0);
        }
        // A number that rounds to 1000.0 belongs to the next unit.
        let fits = |unit: u64| (self.0 as f64 / unit as f64) < 999.95;
        let (unit, name) = UNITS.into_iter().find(|(unit, _)| fits(*unit)).unwrap_or(UNITS[3]);
        let value = self.0 as f64 / unit as f64;
        let decimals = match value {
            v if v < 9.9995 => 3,
            v if v < 99.995 => 2,
            _ => 1,
        };
        write!(f, "{value:.decimals$} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: the definition, ceil(cycles * 10^12 / hz), worked by hand.
    #[test]
    fn cycles_become_picoseconds_rounded_up() {
        assert_eq!(Cycles(0).picos(1_050_000_000), Picos(0));
        assert_eq!(Cycles(1).picos(1_050_000_000), Picos(953)); // 952.38
        assert_eq!(Cycles(21).picos(1_050_000_000), Picos(20_000)); // exact
        assert_eq!(Cycles(u64::MAX).picos(1_000_000_000), Picos(u64::MAX));
        assert_eq!(Cycles(1).picos(0), Picos(u64::MAX));
    }

    // Oracle: a clock slower than 1 THz has cycles longer than the rounding, so the way back is exact.
    #[test]
    fn the_way_back_is_exact() {
        for hz in [700_000_000, 940_000_000, 1_050_000_000, 1_750_000_000, 2_200_000_000, 999_999_999_999] {
            for c in (0..2000).chain((0..60).map(|b| (1u64 << 53) / 10_000 + b)) {
                assert_eq!(Cycles(c).picos(hz).cycles(hz), Cycles(c), "{c} cycles at {hz} Hz");
            }
        }
    }

    // Oracle: rounding up to the next clock edge.
    #[test]
    fn times_between_edges_round_up() {
        assert_eq!(Picos(1).cycles(1_000_000_000), Cycles(1));
        assert_eq!(Picos(1000).cycles(1_000_000_000), Cycles(1));
        assert_eq!(Picos(1001).cycles(1_000_000_000), Cycles(2));
    }

    // Oracle: the same times written by hand.
    #[test]
    fn times_print_in_the_unit_that_fits() {
        let cases = [
            (0, "0 ps"),
            (999, "999 ps"),
            (1_000, "1.000 ns"),
            (512_000, "512.0 ns"),
            (999_960, "1.000 us"),
            (1_234_567, "1.235 us"),
            (20_000_000_000, "20.00 ms"),
            (3_000_000_000_000, "3.000 s"),
            (12_345_000_000_000_000, "12345.0 s"),
        ];
        for (ps, text) in cases {
            assert_eq!(Picos(ps).to_string(), text);
        }
        assert_eq!(Cycles(1).to_string(), "1 cycle");
        assert_eq!(Cycles(16).to_string(), "16 cycles");
    }
}
