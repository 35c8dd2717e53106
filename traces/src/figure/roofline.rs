//! The roofline: operations per second over operations per byte of HBM traffic, under the roofs of the chip.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::style::RGBColor;

use super::axes::{Axis, Plot, label};
use super::palette::{BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION};
use super::{Align, COLUMN, Figure, FigureError, TEXT};
use crate::report::{Bound, OpReport, Report, ratio};
use crate::units::{digits, si};

const HEIGHT: f64 = 196.0;
const LEFT: f64 = 34.0;
const RIGHT: f64 = 9.0;
const TOP: f64 = 29.0;
const BOTTOM: f64 = 27.0;
/// Operations labelled, by time.
const LABELLED: usize = 5;
/// Points lower than this share of the ridge or of the roof are left out: they would squeeze the rest to nothing.
const MOST_BELOW: f64 = 1e-7;
/// Characters of a label.
const NAME: usize = 18;

/// All runs of an operation.
struct Point<'a> {
    first: &'a OpReport,
    runs: u32,
    time_s: f64,
    flops: f64,
    bytes: f64,
}

impl Point<'_> {
    fn intensity(&self) -> f64 {
        ratio(self.flops, self.bytes)
    }

    fn rate(&self) -> f64 {
        ratio(self.flops, self.time_s)
    }
}

/// Draws the roofline of the run to `path` (`.svg` or `.png`) and its numbers as CSV beside it. A point is an operation, its area the
/// time of all its runs, its colour what bounds it. FLOPs are useful MXU and elementwise ones. Operations without FLOPs or without
/// HBM traffic, and those far below all roofs, are in the CSV only.
pub fn roofline(path: &Path, report: &Report) -> Result<(), FigureError> {
    let points = points(report);
    let csv = table(report, &points).map_err(|e| FigureError::Draw(e.to_string()))?;
    draw(report, &points)?.write(path, &csv)
}

fn points(report: &Report) -> Vec<Point<'_>> {
    let mut by_op: BTreeMap<u32, Point<'_>> = BTreeMap::new();
    for o in &report.ops {
        let p = by_op.entry(o.op).or_insert(Point { first: o, runs: 0, time_s: 0.0, flops: 0.0, bytes: 0.0 });
        p.runs += 1;
        p.time_s += o.time_s;
        p.flops += o.flops as f64 + o.vector_flops as f64;
        p.bytes += o.hbm_bytes_read as f64 + o.hbm_bytes_written as f64;
    }
    let mut points: Vec<Point<'_>> = by_op.into_values().collect();
    points.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
    points
}

fn table(report: &Report, points: &[Point<'_>]) -> Result<Vec<u8>, csv::Error> {
    let mut out = Vec::new();
    let mut csv = csv::Writer::from_writer(&mut out);
    csv.write_record([
        "name",
        "location",
        "dtype",
        "bound",
        "runs",
        "time_s",
        "flops",
        "hbm_bytes",
        "flop_per_byte",
        "flop_per_s",
        "mxu_roof_flop_per_s",
        "vpu_roof_flop_per_s",
        "hbm_roof_bytes_per_s",
    ])?;
    for p in points {
        let o = p.first;
        let intensity = if p.bytes > 0.0 { p.intensity().to_string() } else { String::new() };
        csv.write_record([
            o.name.clone(),
            o.location.clone(),
            o.dtype.to_owned(),
            o.bound.name().to_owned(),
            p.runs.to_string(),
            p.time_s.to_string(),
            p.flops.to_string(),
            p.bytes.to_string(),
            intensity,
            p.rate().to_string(),
            o.peak_flops_per_s.to_string(),
            report.vpu_peak_flops_per_s.to_string(),
            report.hbm_bandwidth_peak_bytes_per_s.to_string(),
        ])?;
    }
    csv.flush()?;
    drop(csv);
    Ok(out)
}

pub(super) fn color(bound: Bound) -> RGBColor {
    match bound {
        Bound::Mxu => BLUE,
        Bound::Vpu => GREEN,
        Bound::Xlu => PURPLE,
        Bound::Eup => SKY,
        Bound::Hbm => VERMILLION,
        Bound::Latency => ORANGE,
    }
}

/// What was run, cut to `width` points.
pub(super) fn title(report: &Report, width: f64) -> String {
    let text = crate::report::clip(&format!("{} on {}, {}", report.program, report.chip, report.mode), 200);
    let mut chars = text.chars().count();
    let mut cut = text.clone();
    while Figure::text_width(&cut) > width && chars > 1 {
        chars -= 1;
        cut = crate::report::clip(&text, chars);
    }
    cut
}

fn draw(report: &Report, points: &[Point<'_>]) -> Result<Figure, FigureError> {
    let shown: Vec<&Point<'_>> = points.iter().filter(|p| p.flops > 0.0 && p.bytes > 0.0 && p.time_s > 0.0).collect();
    if shown.is_empty() {
        return Err(FigureError::Empty("no operation has both FLOPs and HBM traffic"));
    }
    let bandwidth = report.hbm_bandwidth_peak_bytes_per_s;
    let mut roofs: Vec<(String, f64)> = Vec::new();
    for p in shown.iter().filter(|p| p.first.flops > 0) {
        let peak = p.first.peak_flops_per_s;
        match roofs.iter_mut().find(|(_, r)| *r == peak) {
            None => roofs.push((p.first.dtype.to_owned(), peak)),
            Some((names, _)) if names.split(", ").any(|n| n == p.first.dtype) => {}
            Some((names, _)) => *names = format!("{names}, {}", p.first.dtype),
        }
    }
    roofs.sort_by(|a, b| b.1.total_cmp(&a.1));
    // Roofs of different types lie close together: the topmost carries the names of all.
    let all = match roofs.as_slice() {
        [(names, r)] => format!("MXU {names}: {}", si(*r, "FLOP/s")),
        many => {
            let each = many.iter().map(|(names, r)| format!("{names} {}", digits(r / 1e12)));
            format!("MXU TFLOP/s: {}", each.collect::<Vec<_>>().join(", "))
        }
    };
    let name = |i: usize| if i == 0 { all.clone() } else { String::new() };
    let mut lines: Vec<(String, f64, bool)> =
        roofs.iter().enumerate().map(|(i, (_, r))| (name(i), *r, false)).collect();
    let vpu = report.vpu_peak_flops_per_s;
    lines.push((format!("VPU: {}", si(vpu, "FLOP/s")), vpu, true));
    let top = lines.iter().map(|l| l.1).fold(0.0, f64::max);
    let plot = plot(&shown, top, bandwidth);
    let shown: Vec<&Point<'_>> =
        shown.into_iter().filter(|p| p.intensity() >= plot.x.low && p.rate() >= plot.y.low).collect();

    let mut figure = Figure::new(COLUMN, HEIGHT);
    figure.text((LEFT, TEXT + 1.0), &title(report, COLUMN - LEFT - RIGHT), Align::Left, GREY);
    legend(&mut figure, &shown);
    let longest = shown.iter().map(|p| p.time_s).fold(0.0, f64::max);
    let radius = |p: &Point<'_>| (4.0 * (p.time_s / longest).sqrt()).max(1.5);
    let mut taken: Vec<Box> = shown
        .iter()
        .map(|p| Box::around(plot.point(p.intensity(), p.rate()), radius(p) + 0.5, radius(p) + 0.5))
        .collect();
    roof_lines(&mut figure, &plot, &lines, top, bandwidth, &mut taken);
    for p in &shown {
        figure.dot(plot.point(p.intensity(), p.rate()), radius(p), color(p.first.bound));
    }
    for p in shown.iter().take(LABELLED) {
        let name = crate::report::clip(&p.first.name, NAME);
        place(&mut figure, &plot, &mut taken, plot.point(p.intensity(), p.rate()), radius(p), &name);
    }
    let teras: Vec<(f64, String)> = plot.y.ticks(6).into_iter().map(|v| (v, label(v / 1e12))).collect();
    let x_ticks = plot.x.ticks(7);
    plot.frame(&mut figure, &x_ticks, &teras, true);
    let middle = ((plot.left + plot.right) / 2.0, (plot.top + plot.bottom) / 2.0);
    figure.text((middle.0, HEIGHT - 3.5), "intensity (FLOP per HBM byte)", Align::Center, BLACK);
    figure.upright((TEXT + 0.5, middle.1), "TFLOP/s", BLACK);
    Ok(figure)
}

/// Axes that hold every point, the ridge and all roofs, in whole decades below and with room for a label above.
fn plot(shown: &[&Point<'_>], top: f64, bandwidth: f64) -> Plot {
    let ridge = ratio(top, bandwidth).max(1e-6);
    let span = |f: &dyn Fn(&Point<'_>) -> f64, with: f64| {
        shown.iter().map(|p| f(p)).fold((with, with), |(a, b), v| (a.min(v), b.max(v)))
    };
    let (x_low, x_high) = span(&|p| p.intensity(), ridge);
    let (y_low, y_high) = span(&|p| p.rate(), top);
    let decade = |v: f64| 10f64.powf((v * 0.7).log10().floor());
    let x = Axis::log(decade(x_low.max(ridge * MOST_BELOW)), (x_high * 5.0).max(ridge * 10.0));
    let y = Axis::log(decade(y_low.max(y_high * MOST_BELOW)), y_high * 4.0);
    Plot { left: LEFT, top: TOP, right: COLUMN - RIGHT, bottom: HEIGHT - BOTTOM, x, y }
}

/// The bounds that occur, each with its colour, in a row under the title.
fn legend(figure: &mut Figure, shown: &[&Point<'_>]) {
    let mut x = LEFT;
    let y = 2.0 * TEXT + 5.0;
    for bound in Bound::ALL {
        if shown.iter().any(|p| p.first.bound == bound) {
            let name = if bound == Bound::Latency { "latency-bound" } else { bound.name() };
            figure.dot((x + 2.5, y - 0.36 * TEXT), 2.5, color(bound));
            figure.text((x + 7.5, y), name, Align::Left, BLACK);
            x += 7.5 + Figure::text_width(name) + 8.0;
        }
    }
}

/// Space that is used.
#[derive(Clone, Copy)]
struct Box {
    /// A roof: texts keep off, but a leader may cross it.
    roof: bool,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Box {
    fn of_text(at: (f64, f64), width: f64, align: Align) -> Box {
        let left = match align {
            Align::Left => at.0,
            Align::Center => at.0 - width / 2.0,
            Align::Right => at.0 - width,
        };
        Box { roof: false, left, right: left + width, top: at.1 - 0.8 * TEXT, bottom: at.1 + 0.25 * TEXT }
    }

    fn around(center: (f64, f64), x: f64, y: f64) -> Box {
        Box { roof: false, left: center.0 - x, right: center.0 + x, top: center.1 - y, bottom: center.1 + y }
    }

    fn holds(&self, p: (f64, f64)) -> bool {
        p.0 > self.left && p.0 < self.right && p.1 > self.top && p.1 < self.bottom
    }

    fn meets(&self, other: &Box) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }
}

/// Draws the roofs with their names where no point is, and adds the space of both to `taken`.
fn roof_lines(
    figure: &mut Figure,
    plot: &Plot,
    lines: &[(String, f64, bool)],
    top: f64,
    bandwidth: f64,
    taken: &mut Vec<Box>,
) {
    let mut named: Vec<(&str, (f64, f64))> = Vec::new();
    for (name, peak, dashed) in lines {
        let (from, to) = (plot.point(peak / bandwidth, *peak), plot.point(plot.x.high, *peak));
        if from.1 > plot.bottom {
            continue;
        }
        let from = (from.0.max(plot.left), from.1);
        if *dashed {
            figure.dashed(from, to, BLACK, 0.7)
        } else {
            figure.line(vec![from, to], BLACK, 0.9)
        }
        taken.push(Box { roof: true, left: from.0, right: to.0, top: from.1 - 0.5, bottom: from.1 + 0.5 });
        if !name.is_empty() {
            named.push((name, to));
        }
    }
    let low = (plot.y.low / bandwidth).max(plot.x.low);
    let (start, end) = (plot.point(low, low * bandwidth), plot.point(top / bandwidth, top));
    figure.line(vec![start, end], BLACK, 0.9);
    let along = |f: f64| between(start, end, f);
    let parts = 40;
    for i in 0..parts {
        let (a, b) = (along(f64::from(i) / f64::from(parts)), along(f64::from(i + 1) / f64::from(parts)));
        taken.push(Box { roof: true, left: a.0, right: b.0, top: b.1, bottom: a.1 });
    }
    for (name, end) in named {
        // Above the line or below it, as far right as possible.
        let places: Vec<(f64, f64)> = (0..24)
            .map(|i| end.0 - 5.0 * f64::from(i))
            .flat_map(|x| [(x, end.1 - 3.0), (x, end.1 + 1.5 + 0.8 * TEXT)])
            .collect();
        name_roof(figure, taken, name, Align::Right, &places);
    }
    let name = format!("HBM: {}", si(bandwidth, "B/s"));
    let room = |f: &f64| along(*f).0 - plot.left - 6.0 > Figure::text_width(&name);
    let left: Vec<(f64, f64)> = [0.5, 0.6, 0.7, 0.8, 0.9].into_iter().filter(room).map(along).collect();
    if left.is_empty() {
        name_roof(figure, taken, &name, Align::Left, &[0.1, 0.2, 0.3].map(|f| (along(f).0 + 8.0, along(f).1 + 2.0)));
    } else {
        let left: Vec<(f64, f64)> = left.into_iter().map(|p| (p.0 - 4.0, p.1)).collect();
        name_roof(figure, taken, &name, Align::Right, &left);
    }
}

/// Writes the name of a roof at the first of `places` that is free, or else where it
/// covers least: a roof must have its name.
fn name_roof(figure: &mut Figure, taken: &mut Vec<Box>, name: &str, align: Align, places: &[(f64, f64)]) {
    let width = Figure::text_width(name);
    let covered = |at: &(f64, f64)| {
        let space = Box::of_text(*at, width, align);
        taken.iter().filter(|t| t.meets(&space)).map(|t| if t.roof { 1 } else { 4 }).sum::<u32>()
    };
    // The first of equals is kept.
    if let Some(at) = places.iter().min_by_key(|at| covered(at)).copied() {
        figure.text(at, name, align, BLACK);
        taken.push(Box::of_text(at, width, align));
    }
}

/// Writes `name` near a point where nothing else is; leaves it out if there is no such place.
fn place(figure: &mut Figure, plot: &Plot, taken: &mut Vec<Box>, at: (f64, f64), radius: f64, name: &str) {
    let width = Figure::text_width(name);
    // Eighths of a turn from the right, counterclockwise; beside the point reads best, then below.
    const ANGLES: [f64; 12] = [0.0, 4.0, 6.0, 2.0, 7.0, 5.0, 1.0, 3.0, 6.5, 5.5, 1.5, 2.5];
    for gap in [2.0, 7.0, 12.0, 18.0, 26.0, 36.0, 48.0] {
        for angle in ANGLES {
            let (sin, cos) = (angle * std::f64::consts::FRAC_PI_4).sin_cos();
            let direction = (cos, -sin);
            let tip = (at.0 + direction.0 * (radius + gap), at.1 + direction.1 * (radius + gap));
            let align = if cos > 0.2 {
                Align::Left
            } else if cos < -0.2 {
                Align::Right
            } else {
                Align::Center
            };
            // The baseline: level beside the point, its top or bottom at the tip above and below.
            let position = (tip.0, tip.1 + TEXT * (0.3 - 0.45 * sin));
            let space = Box::of_text(position, width, align);
            let inside = space.left > plot.left
                && space.right < COLUMN - 1.0
                && space.top > plot.top
                && space.bottom < plot.bottom;
            let start = (at.0 + direction.0 * (radius + 1.0), at.1 + direction.1 * (radius + 1.0));
            let leader = gap > 4.0;
            let crosses =
                |t: &Box| leader && !t.roof && (0..=8).any(|i| t.holds(between(start, tip, f64::from(i) / 8.0)));
            if inside && !taken.iter().any(|t| t.meets(&space) || crosses(t)) {
                if leader {
                    figure.line(vec![start, tip], GREY, 0.4);
                }
                figure.text(position, name, align, BLACK);
                taken.push(space);
                return;
            }
        }
    }
}

fn between(a: (f64, f64), b: (f64, f64), f: f64) -> (f64, f64) {
    (a.0 + (b.0 - a.0) * f, a.1 + (b.1 - a.1) * f)
}
