//! Throughput of a chip and MFU over the number of chips, with the line of a chip that never slows down.

use std::path::Path;

use plotters::style::RGBColor;

use super::axes::{Axis, Plot, label};
use super::palette::{BLACK, BLUE, GREY, VERMILLION};
use super::{Align, COLUMN, Figure, FigureError, TEXT};

const LEFT: f64 = 38.0;
const RIGHT: f64 = 12.0;
const PANEL: f64 = 72.0;
const GAP: f64 = 18.0;
const HEAD: f64 = 28.0;
const FOOT: f64 = 27.0;

/// One number of chips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalePoint {
    /// Chips.
    pub chips: u32,
    /// Tokens a second and chip.
    pub tokens_per_s_chip: f64,
    /// MFU, 1 for all of the peak.
    pub mfu: f64,
}

/// Draws `points`, in order of their chips, to `path` (`.svg` or `.png`) and the numbers as CSV beside it.
pub fn scaling(path: &Path, title: &str, points: &[ScalePoint]) -> Result<(), FigureError> {
    let mut csv = String::from("chips,tokens_per_s_chip,mfu\n");
    for p in points {
        csv.push_str(&format!("{},{},{}\n", p.chips, p.tokens_per_s_chip, p.mfu));
    }
    draw(title, points)?.write(path, csv.as_bytes())
}

fn draw(title: &str, points: &[ScalePoint]) -> Result<Figure, FigureError> {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err(FigureError::Empty("no number of chips"));
    };
    let x = Axis::log(f64::from(first.chips) / 1.15, f64::from(last.chips) * 1.15);
    let mut figure = Figure::new(COLUMN, HEAD + 2.0 * PANEL + GAP + FOOT);
    figure.text((LEFT, TEXT + 1.0), title, Align::Left, GREY);
    type Value = fn(&ScalePoint) -> f64;
    let panels: [(&str, Value, RGBColor); 2] = [
        ("tokens/s/chip", |p| p.tokens_per_s_chip, BLUE),
        ("MFU (%), half of attention counted", |p| 100.0 * p.mfu, VERMILLION),
    ];
    for (i, (name, value, color)) in panels.into_iter().enumerate() {
        let top = HEAD + i as f64 * (PANEL + GAP);
        let most = points.iter().map(value).fold(0.0, f64::max);
        let y = Axis::linear(0.0, if most > 0.0 { most * 1.15 } else { 1.0 });
        let plot = Plot { left: LEFT, top, right: COLUMN - RIGHT, bottom: top + PANEL, x, y };
        let ideal = value(first);
        figure.dashed(plot.point(x.low, ideal), plot.point(x.high, ideal), GREY, 0.6);
        let line = points.iter().map(|p| plot.point(f64::from(p.chips), value(p))).collect();
        figure.line(line, color, 1.0);
        for p in points {
            figure.dot(plot.point(f64::from(p.chips), value(p)), 2.0, color);
        }
        figure.text((LEFT, top - 3.5), name, Align::Left, color);
        if i == 0 {
            figure.text((plot.right, top - 3.5), "dashed: as the first", Align::Right, GREY);
        }
        let names: Vec<(f64, String)> = y.ticks(4).into_iter().map(|v| (v, label(v))).collect();
        plot.frame(&mut figure, &[], &names, false);
        // Numbers of chips by name, as far as they have room.
        let mut free = f64::NEG_INFINITY;
        for p in points {
            let (at, bottom) = plot.point(f64::from(p.chips), 0.0);
            figure.line(vec![(at, bottom), (at, bottom + 2.5)], BLACK, 0.5);
            let text = p.chips.to_string();
            let half = Figure::text_width(&text) / 2.0;
            if i == 1 && at - half > free {
                figure.text((at, bottom + 3.5 + TEXT), &text, Align::Center, BLACK);
                free = at + half + 3.0;
            }
        }
    }
    let middle = (LEFT + COLUMN - RIGHT) / 2.0;
    figure.text((middle, HEAD + 2.0 * PANEL + GAP + FOOT - 3.5), "chips", Align::Center, BLACK);
    Ok(figure)
}
