//! Utilization over time: a panel each for MXU, VPU and HBM.

use std::path::Path;

use plotters::style::RGBColor;
use tpusim_sim::profile::{Profile, Unit};

use super::axes::{Axis, Plot};
use super::palette::{BLACK, BLUE, GREEN, GREY, VERMILLION};
use super::{Align, COLUMN, Figure, FigureError, TEXT};
use crate::perfetto::windows;
use crate::report::Report;
use crate::tables;
use crate::units::percent;

const PANELS: [(Unit, RGBColor); 3] = [(Unit::Mxu, BLUE), (Unit::Vpu, GREEN), (Unit::Hbm, VERMILLION)];
/// Steps drawn at most: about one per half point.
const STEPS: usize = 400;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 8.0;
const PANEL: f64 = 36.0;
/// From one panel's bottom to the next one's top: room for its heading.
const GAP: f64 = 16.0;
const HEAD: f64 = 27.0;
const FOOT: f64 = 25.0;

/// Draws the utilization of MXU, VPU and HBM over the run's time to `path` (`.svg` or `.png`), and all units as CSV beside it.
/// More windows than the figure has room for are averaged.
pub fn utilization(path: &Path, report: &Report, profile: &Profile) -> Result<(), FigureError> {
    let mut csv = Vec::new();
    tables::series(report.clock_hz, profile, &mut csv).map_err(|e| FigureError::Draw(e.to_string()))?;
    draw(report, profile)?.write(path, &csv)
}

fn draw(report: &Report, profile: &Profile) -> Result<Figure, FigureError> {
    if profile.series.busy.is_empty() || profile.cycles == 0 {
        return Err(FigureError::Empty("the run has no utilization over time"));
    }
    let (scale, unit) = time_unit(report.time_s);
    let x = Axis::linear(0.0, report.time_s * scale);
    let n = PANELS.len() as f64;
    let mut figure = Figure::new(COLUMN, HEAD + n * PANEL + (n - 1.0) * GAP + FOOT);
    figure.text((LEFT, TEXT + 1.0), &super::roofline::title(report, COLUMN - LEFT - RIGHT), Align::Left, GREY);
    let ticks = x.ticks(7);
    let to_time = |cycle: f64| cycle / report.clock_hz.max(1) as f64 * scale;
    for (i, (u, color)) in PANELS.into_iter().enumerate() {
        let top = HEAD + i as f64 * (PANEL + GAP);
        let y = Axis::linear(0.0, 1.0);
        let plot = Plot { left: LEFT, top, right: COLUMN - RIGHT, bottom: top + PANEL, x, y };
        for v in [0.5, 1.0] {
            let ends = vec![plot.point(x.low, v), plot.point(x.high, v)];
            figure.line(ends, RGBColor(225, 225, 225), 0.4);
        }
        let outline: Vec<(f64, f64)> =
            steps(profile, u).into_iter().map(|(cycle, share)| plot.point(to_time(cycle), share)).collect();
        let mut filled = vec![plot.point(0.0, 0.0)];
        filled.extend(&outline);
        filled.push(plot.point(x.high, 0.0));
        figure.area(filled, color, 0.25);
        figure.line(outline, color, 0.8);
        figure.text((LEFT, top - 3.0), u.name(), Align::Left, color);
        let mean = format!("mean {}", percent(report.utilization.get(u)));
        figure.text((plot.right, top - 3.0), &mean, Align::Right, color);
        let names = [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")].map(|(v, name)| (v, name.to_owned()));
        plot.frame(&mut figure, &ticks, &names, i + 1 == PANELS.len());
        if i + 1 == PANELS.len() {
            let middle = (plot.left + plot.right) / 2.0;
            figure.text((middle, plot.bottom + FOOT - 2.5), &format!("time ({unit})"), Align::Center, BLACK);
        }
    }
    Ok(figure)
}

/// What makes seconds readable, and its name.
pub(super) fn time_unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        t if t < 1e-6 => (1e9, "ns"),
        t if t < 1e-3 => (1e6, "µs"),
        t if t < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    }
}

/// Corners of the step line of `unit`: cycles and shares.
fn steps(profile: &Profile, unit: Unit) -> Vec<(f64, f64)> {
    let all: Vec<(u64, f64)> = windows(&profile.series, profile).map(|(start, s)| (start, s.get(unit))).collect();
    let per_step = all.len().div_ceil(STEPS).max(1);
    let mut corners = Vec::new();
    for (i, group) in all.chunks(per_step).enumerate() {
        let start = group.first().map_or(0, |w| w.0);
        let end = all.get((i + 1) * per_step).map_or(profile.cycles, |w| w.0).min(profile.cycles);
        if end <= start {
            break;
        }
        // The last window may be shorter than the others.
        let weigh = |(j, w): (usize, &(u64, f64))| {
            let until = group.get(j + 1).map_or(end, |next| next.0);
            w.1 * until.saturating_sub(w.0) as f64
        };
        let mean = group.iter().enumerate().map(weigh).sum::<f64>() / (end - start) as f64;
        corners.extend([(start as f64, mean), (end as f64, mean)]);
    }
    corners
}
