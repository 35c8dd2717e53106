//! Axes: scales, ticks and the frame around a plot.

use super::palette::{BLACK, GREY};
use super::{Align, Figure, TEXT};

/// A scale from values to the length of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    pub low: f64,
    pub high: f64,
    pub log: bool,
}

impl Axis {
    /// A linear axis.
    pub fn linear(low: f64, high: f64) -> Axis {
        Axis { low, high, log: false }
    }

    /// A logarithmic axis. Both ends must be positive.
    pub fn log(low: f64, high: f64) -> Axis {
        Axis { low, high, log: true }
    }

    /// Where `value` is, 0 at the low end and 1 at the high end.
    pub fn share(&self, value: f64) -> f64 {
        let f = |v: f64| if self.log { v.log10() } else { v };
        let span = f(self.high) - f(self.low);
        if span == 0.0 { 0.0 } else { (f(value) - f(self.low)) / span }
    }

    /// Values to label, about `count` of them: 1, 2 or 5 times a power of ten, or powers of ten.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        if self.log {
            let (from, to) = (self.low.log10().ceil() as i32, self.high.log10().floor() as i32);
            let step = ((to - from) as usize / count.max(1) + 1).min(1000);
            return (from..=to).step_by(step).map(|e| 10f64.powi(e)).collect();
        }
        let rough = (self.high - self.low) / count.max(1) as f64;
        if !(rough.is_finite() && rough > 0.0) {
            return vec![self.low];
        }
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough * 0.999).unwrap_or(rough);
        let first = (self.low / step - 1e-9).ceil();
        let last = (self.high / step + 1e-9).floor();
        // Whole multiples, so that 0.3 is not 0.30000000000000004 from adding.
        (0..=(last - first) as usize).map(|i| (first + i as f64) * step).collect()
    }

    /// Unlabelled values between powers of ten.
    fn minor(&self) -> Vec<f64> {
        if !self.log || (self.high / self.low).log10() > 8.0 {
            return Vec::new();
        }
        let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let all = (from..to).flat_map(|e| (2..10).map(move |m| f64::from(m) * 10f64.powi(e)));
        all.filter(|v| *v >= self.low && *v <= self.high).collect()
    }
}

/// A number at a tick, without superfluous zeros; a power of ten if it would be long.
pub(super) fn label(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    let exponent = size.log10().floor();
    if !(1e-3..1e5).contains(&size) {
        let factor = value / 10f64.powf(exponent);
        let times = if (factor - 1.0).abs() < 1e-9 { String::new() } else { format!("{}·", label(factor)) };
        return format!("{times}10{}", superscript(exponent as i32));
    }
    let text = format!("{value:.*}", (3.0 - exponent).clamp(0.0, 6.0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn superscript(n: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let one = |c: char| c.to_digit(10).and_then(|d| DIGITS.get(d as usize).copied()).unwrap_or('⁻');
    n.to_string().chars().map(one).collect()
}

/// A rectangle of a figure with a scale on each side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plot {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
    pub x: Axis,
    pub y: Axis,
}

impl Plot {
    /// The point of two values.
    pub fn point(&self, x: f64, y: f64) -> (f64, f64) {
        let px = self.left + self.x.share(x) * (self.right - self.left);
        (px, self.bottom - self.y.share(y) * (self.bottom - self.top))
    }

    /// Frame, ticks and tick labels; those of the x axis only if it `names_x`.
    pub fn frame(&self, figure: &mut Figure, x_ticks: &[f64], y_ticks: &[(f64, String)], names_x: bool) {
        const TICK: f64 = 2.5;
        let thin = 0.5;
        for (v, name) in y_ticks {
            let (_, y) = self.point(self.x.low, *v);
            figure.line(vec![(self.left - TICK, y), (self.left, y)], BLACK, thin);
            figure.text((self.left - TICK - 1.5, y + 0.36 * TEXT), name, Align::Right, BLACK);
        }
        for v in x_ticks {
            let (x, _) = self.point(*v, self.y.low);
            figure.line(vec![(x, self.bottom), (x, self.bottom + TICK)], BLACK, thin);
            if names_x {
                figure.text((x, self.bottom + TICK + 1.0 + TEXT), &label(*v), Align::Center, BLACK);
            }
        }
        for v in self.x.minor() {
            let (x, _) = self.point(v, self.y.low);
            figure.line(vec![(x, self.bottom), (x, self.bottom + 0.5 * TICK)], GREY, 0.3);
        }
        for v in self.y.minor() {
            let (_, y) = self.point(self.x.low, v);
            figure.line(vec![(self.left - 0.5 * TICK, y), (self.left, y)], GREY, 0.3);
        }
        let corners = [(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)];
        figure.line(corners.to_vec(), BLACK, thin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: ticks written out by hand.
    #[test]
    fn ticks_are_round() {
        assert_eq!(Axis::linear(0.0, 64.7).ticks(5), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(
            Axis::linear(0.0, 1.0).ticks(5).iter().map(|v| label(*v)).collect::<Vec<_>>(),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        assert_eq!(Axis::log(0.05, 2000.0).ticks(8), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(Axis::log(1e-3, 1e9).ticks(6).len(), 5);
        assert_eq!(Axis::linear(0.0, 0.0).ticks(5), [0.0]);
        assert_eq!(["1000", "0.01", "250", "10⁶", "2·10⁻⁴"], [1000.0, 0.01, 250.0, 1e6, 2e-4].map(label));
    }
}
