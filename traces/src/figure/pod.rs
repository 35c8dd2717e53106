//! A step of a pod: where its time goes, over the step too, and how much of HBM is taken when.

use std::path::Path;

use plotters::style::RGBColor;
use tpusim_isa::program::Program;
use tpusim_sim::pod::PodProfile;
use tpusim_sim::pod::profile::{DeviceProfile, Run};

use super::axes::{Axis, Plot, label};
use super::palette::{BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION};
use super::utilization::time_unit;
use super::{Align, COLUMN, Figure, FigureError, TEXT};
use crate::pod::{PodReport, slowest};

/// Windows that the step is cut into.
const WINDOWS: usize = 240;
const LEFT: f64 = 38.0;
const RIGHT: f64 = 10.0;
const PANEL: f64 = 56.0;
const GAP: f64 = 20.0;
/// Title, the bar and its legend.
const HEAD: f64 = 62.0;
const FOOT: f64 = 26.0;

/// What a device does at a time, and how that is drawn.
const CLASSES: [(&str, RGBColor); 4] = [("MXU", BLUE), ("vector", GREEN), ("network", VERMILLION), ("control", GREY)];

/// Draws time by class and the memory of the slowest device to `path` (`.svg` or `.png`), and both over time as CSV beside it.
pub fn pod(path: &Path, report: &PodReport, program: &Program, profile: &PodProfile) -> Result<(), FigureError> {
    let device = slowest(profile).filter(|d| report.time_s > 0.0 && !d.ops.is_empty());
    let device = device.ok_or(FigureError::Empty("nothing ran"))?;
    let shares = classes(program, device, report.time_s);
    let memory = allocated(program, device, report.time_s);
    let mut csv = String::from("from_s,mxu,vector,network,control,hbm_bytes\n");
    let width = report.time_s / WINDOWS as f64;
    for (i, s) in shares.iter().enumerate() {
        let from = i as f64 * width;
        let bytes = memory.iter().take_while(|(t, _)| *t <= from + width / 2.0).last().map_or(0, |m| m.1);
        csv.push_str(&format!("{from},{},{},{},{},{bytes}\n", s[0], s[1], s[2], s[3]));
    }
    draw(report, &shares, &memory).write(path, csv.as_bytes())
}

/// Shares of the classes in each window.
fn classes(program: &Program, device: &DeviceProfile, time_s: f64) -> Vec<[f64; 4]> {
    let width = time_s / WINDOWS as f64;
    let mut shares = vec![[0.0; 4]; WINDOWS];
    let mut add = |class: usize, from: f64, to: f64| {
        let first = ((from / width) as usize).min(WINDOWS - 1);
        for (i, s) in shares.iter_mut().enumerate().skip(first) {
            let (low, high) = (i as f64 * width, (i + 1) as f64 * width);
            if low >= to {
                break;
            }
            if let Some(share) = s.get_mut(class) {
                *share += (to.min(high) - from.max(low)).max(0.0) / width;
            }
        }
    };
    // Between operations a device waits for a transfer if one is under way.
    let flying = union(device.transfers.iter().map(span).collect());
    let mut at = 0.0;
    let gap = |add: &mut dyn FnMut(usize, f64, f64), from: f64, to: f64| {
        let mut left = from;
        for (a, b) in flying.iter().filter(|(a, b)| *b > from && *a < to) {
            let (a, b) = (a.max(left), b.min(to));
            add(3, left, a);
            add(2, a, b);
            left = b.max(left);
        }
        add(3, left, to);
    };
    for run in &device.ops {
        let (from, to) = span(run);
        if from > at {
            gap(&mut add, at, from);
        }
        let mxu = program.ops.get(run.index as usize).is_some_and(|o| o.mxu_flops > 0);
        add(usize::from(!mxu), from, to);
        at = to.max(at);
    }
    if time_s > at {
        gap(&mut add, at, time_s);
    }
    shares
}

fn span(run: &Run) -> (f64, f64) {
    (run.start.seconds(), run.end.seconds())
}

/// Intervals joined where they meet, in order.
fn union(mut all: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut out: Vec<(f64, f64)> = Vec::new();
    for (from, to) in all {
        match out.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

/// Bytes of HBM that hold something, from each moment on at which that changes.
fn allocated(program: &Program, device: &DeviceProfile, time_s: f64) -> Vec<(f64, u64)> {
    // When each operation first started and last ended.
    let mut ran: Vec<Option<(f64, f64)>> = vec![None; program.ops.len()];
    for run in &device.ops {
        let (from, to) = span(run);
        if let Some(slot) = ran.get_mut(run.index as usize) {
            *slot = Some(slot.map_or((from, to), |(a, b)| (a.min(from), b.max(to))));
        }
    }
    let end = program.ops.len().saturating_sub(1) as u32;
    let lives: Vec<(f64, f64, u64, u64)> = program
        .buffers
        .iter()
        .filter_map(|b| {
            let whole = b.live.0 == 0 && b.live.1 >= end;
            let times = || ran.iter().skip(b.live.0 as usize).take((b.live.1 - b.live.0) as usize + 1).flatten();
            let from = times().map(|t| t.0).reduce(f64::min);
            let to = times().map(|t| t.1).reduce(f64::max);
            let (from, to) = if whole { (0.0, time_s) } else { from.zip(to)? };
            Some((from, to, b.offset, b.offset + b.bytes))
        })
        .collect();
    let mut moments: Vec<f64> = lives.iter().flat_map(|l| [l.0, l.1]).collect();
    moments.sort_by(f64::total_cmp);
    moments.dedup();
    let held = |t: f64| {
        let mut alive: Vec<(u64, u64)> = lives.iter().filter(|l| l.0 <= t && t < l.1).map(|l| (l.2, l.3)).collect();
        alive.sort_unstable();
        let (mut bytes, mut top) = (0, 0);
        for (from, to) in alive {
            bytes += to.saturating_sub(from.max(top));
            top = top.max(to);
        }
        bytes
    };
    moments.into_iter().map(|t| (t, held(t))).collect()
}

fn draw(report: &PodReport, shares: &[[f64; 4]], memory: &[(f64, u64)]) -> Figure {
    let (scale, unit) = time_unit(report.time_s);
    let x = Axis::linear(0.0, report.time_s * scale);
    let mut figure = Figure::new(COLUMN, HEAD + 2.0 * PANEL + GAP + FOOT);
    let right = COLUMN - RIGHT;
    let what = report.training.as_ref().map_or(report.program.as_str(), |t| t.model.as_str());
    let title = format!("{what} on {} {} ({} devices)", report.chip, report.topology, report.devices);
    figure.text((LEFT, TEXT + 1.0), &title, Align::Left, GREY);
    bar(&mut figure, report, right);
    let ticks = x.ticks(6);
    let top = HEAD;
    let plot = Plot { left: LEFT, top, right, bottom: top + PANEL, x, y: Axis::linear(0.0, 1.0) };
    figure.text((LEFT, top - 4.0), "what the device does", Align::Left, BLACK);
    let width = report.time_s * scale / shares.len().max(1) as f64;
    let mut below = vec![0.0; shares.len()];
    for (class, (_, color)) in CLASSES.iter().enumerate() {
        let value = |i: usize| shares.get(i).and_then(|s| s.get(class)).copied().unwrap_or(0.0);
        let edge = |i: usize, v: f64| {
            let (a, b) = (i as f64 * width, (i + 1) as f64 * width);
            [plot.point(a, v.min(1.0)), plot.point(b, v.min(1.0))]
        };
        let lower: Vec<(f64, f64)> = below.iter().enumerate().flat_map(|(i, v)| edge(i, *v)).collect();
        below.iter_mut().enumerate().for_each(|(i, v)| *v += value(i));
        let upper: Vec<(f64, f64)> = below.iter().enumerate().flat_map(|(i, v)| edge(i, *v)).collect();
        if upper != lower {
            figure.area(upper.into_iter().chain(lower.into_iter().rev()).collect(), *color, 0.85);
        }
    }
    let names = [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")].map(|(v, n)| (v, n.to_owned()));
    plot.frame(&mut figure, &ticks, &names, false);
    hbm(&mut figure, report, memory, (x, scale), top + PANEL + GAP);
    let bottom = top + 2.0 * PANEL + GAP;
    figure.text(((LEFT + right) / 2.0, bottom + FOOT - 3.0), &format!("time ({unit})"), Align::Center, BLACK);
    figure
}

/// The whole time as one bar, with a legend.
fn bar(figure: &mut Figure, report: &PodReport, right: f64) {
    let all = [report.mxu_s, report.vector_s, report.exposed_s, report.control_s];
    let (top, bottom) = (TEXT + 8.0, TEXT + 18.0);
    let mut from = LEFT;
    let mut at = 2.0;
    for ((name, color), s) in CLASSES.iter().zip(all) {
        let share = s / report.time_s;
        let to = from + share * (right - LEFT);
        figure.area(vec![(from, top), (to, top), (to, bottom), (from, bottom)], *color, 0.85);
        from = to;
        let text = format!("{name} {:.0} %", 100.0 * share);
        figure.dot((at + 2.5, bottom + 10.0 - 0.36 * TEXT), 2.5, *color);
        figure.text((at + 7.0, bottom + 10.0), &text, Align::Left, BLACK);
        at += 7.0 + Figure::text_width(&text) + 6.0;
    }
}

/// Memory over the step, with what there is.
fn hbm(figure: &mut Figure, report: &PodReport, memory: &[(f64, u64)], (x, scale): (Axis, f64), top: f64) {
    const GIB: f64 = (1u64 << 30) as f64;
    let has = report.hbm_capacity_bytes as f64 / GIB;
    let most = memory.iter().map(|m| m.1 as f64 / GIB).fold(0.0, f64::max);
    // What there is, if that leaves something to see of what is used.
    let high = if most > 0.25 * has { most.max(has) * 1.08 } else { most.max(1e-6) * 1.2 };
    let plot = Plot { left: LEFT, top, right: COLUMN - RIGHT, bottom: top + PANEL, x, y: Axis::linear(0.0, high) };
    let mut line = Vec::new();
    let mut last = 0.0;
    for (t, bytes) in memory {
        let v = *bytes as f64 / GIB;
        line.extend([plot.point(t * scale, last), plot.point(t * scale, v)]);
        last = v;
    }
    let area = [vec![plot.point(0.0, 0.0)], line.clone(), vec![plot.point(x.high, 0.0)]].concat();
    figure.area(area, ORANGE, 0.35);
    figure.line(line, ORANGE, 0.9);
    let kept = report.hbm_arguments_bytes as f64 / GIB;
    figure.dashed(plot.point(0.0, kept), plot.point(x.high, kept), BLACK, 0.5);
    let named = if report.training.is_some() { "dashed: weights and optimizer state" } else { "dashed: parameters" };
    figure.text((plot.right, top - 4.0), named, Align::Right, GREY);
    if has <= high {
        figure.line(vec![plot.point(0.0, has), plot.point(x.high, has)], VERMILLION, 0.7);
    }
    figure.text((LEFT, top - 4.0), "HBM (GiB)", Align::Left, BLACK);
    let names: Vec<(f64, String)> = plot.y.ticks(4).into_iter().map(|v| (v, label(v))).collect();
    plot.frame(figure, &x.ticks(6), &names, true);
}
