//! Predictions over measurements, both logarithmic, with the line where they agree and the band around it.

use std::path::Path;

use plotters::style::RGBColor;

use super::axes::{Axis, Plot, label};
use super::palette::{BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION};
use super::{Align, COLUMN, Figure, FigureError, TEXT};

/// Half the width of the band around agreement.
const BAND: f64 = 0.25;
const HEIGHT: f64 = 232.0;
const LEFT: f64 = 38.0;
const RIGHT: f64 = 9.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 27.0;
const COLORS: [RGBColor; 7] = [BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK];

/// A measurement and its prediction, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Correlation {
    /// What it is.
    pub name: String,
    /// What it is coloured by.
    pub group: String,
    /// Measured.
    pub measured: f64,
    /// Predicted.
    pub predicted: f64,
}

/// Draws predictions over measurements of `what`, both in seconds, to `path` (`.svg` or `.png`) and the numbers as CSV beside it.
pub fn correlation(path: &Path, what: &str, points: &[Correlation]) -> Result<(), FigureError> {
    let csv = table(points).map_err(|e| FigureError::Draw(e.to_string()))?;
    draw(what, points)?.write(path, &csv)
}

fn table(points: &[Correlation]) -> Result<Vec<u8>, csv::Error> {
    let mut out = Vec::new();
    let mut csv = csv::Writer::from_writer(&mut out);
    csv.write_record(["name", "group", "measured_s", "predicted_s"])?;
    for p in points {
        csv.write_record([&p.name, &p.group, &p.measured.to_string(), &p.predicted.to_string()])?;
    }
    csv.flush()?;
    drop(csv);
    Ok(out)
}

fn draw(what: &str, points: &[Correlation]) -> Result<Figure, FigureError> {
    let good = |v: f64| v.is_finite() && v > 0.0;
    let points: Vec<&Correlation> = points.iter().filter(|p| good(p.measured) && good(p.predicted)).collect();
    if points.is_empty() {
        return Err(FigureError::Empty("nothing was both measured and predicted"));
    }
    let all = || points.iter().flat_map(|p| [p.measured, p.predicted]);
    let (low, high) = (all().fold(f64::INFINITY, f64::min) / 1.5, all().fold(0.0, f64::max) * 1.5);
    let (x, y) = (Axis::log(low, high), Axis::log(low, high));
    let plot = Plot { left: LEFT, top: TOP, right: COLUMN - RIGHT, bottom: HEIGHT - BOTTOM, x, y };
    let mut figure = Figure::new(COLUMN, HEIGHT);
    // The band, cut where it leaves the plot.
    let inside = |v: f64| v.clamp(low, high);
    let edge = |f: f64, from: f64| plot.point(inside(from / f), inside(from));
    let (over, under) = (1.0 + BAND, 1.0 - BAND);
    let band = vec![
        plot.point(low, low),
        plot.point(low, low * over),
        edge(over, high),
        plot.point(high, high),
        plot.point(high, high * under),
        plot.point(low / under, low),
    ];
    figure.area(band, GREY, 0.15);
    figure.line(vec![plot.point(low, low), plot.point(high, high)], BLACK, 0.7);
    let mut groups: Vec<&str> = points.iter().map(|p| p.group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    let color = |group: &str| {
        let at = groups.iter().position(|g| *g == group).unwrap_or(0);
        COLORS.get(at % COLORS.len()).copied().unwrap_or(BLACK)
    };
    for p in &points {
        figure.dot(plot.point(p.measured, p.predicted), 2.0, color(&p.group));
    }
    figure.text((LEFT, TEXT + 1.0), &format!("{what}; the band is ±{:.0} %", 100.0 * BAND), Align::Left, GREY);
    let mut at = LEFT;
    for g in &groups {
        let n = points.iter().filter(|p| p.group == *g).count();
        let name = format!("{g} ({n})");
        let y = 2.0 * TEXT + 5.0;
        figure.dot((at + 2.5, y - 0.36 * TEXT), 2.5, color(g));
        figure.text((at + 7.5, y), &name, Align::Left, BLACK);
        at += 7.5 + Figure::text_width(&name) + 8.0;
    }
    let ticks = ticks(low, high);
    let names: Vec<(f64, String)> = ticks.iter().map(|v| (*v, label(*v))).collect();
    plot.frame(&mut figure, &ticks, &names, true);
    let middle = ((plot.left + plot.right) / 2.0, (plot.top + plot.bottom) / 2.0);
    figure.text((middle.0, HEIGHT - 3.5), "measured (s)", Align::Center, BLACK);
    figure.upright((TEXT + 0.5, middle.1), "predicted (s)", BLACK);
    Ok(figure)
}

/// Values to label: powers of ten, with their two- and fivefold if there are few.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let steps: &[f64] = if (high / low).log10() < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let all = decades.flat_map(|e| steps.iter().map(move |m| m * 10f64.powi(e)));
    all.filter(|v| *v >= low && *v <= high).collect()
}
