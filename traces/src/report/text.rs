//! The report for people: a head of totals, the longest operations, and what to do. At most 100 columns.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Color, LineStyle, Table};
use tpusim_sim::profile::{Stall, Unit};

use super::{Bound, OpReport, PerStall, PerUnit, Report, ratio};
use crate::held;
use crate::units::{grouped, memory, percent, percent_digits, seconds, si};

/// Columns of the text.
const WIDTH: usize = 100;
/// Assumptions shown at most.
const ASSUMPTIONS: usize = 8;

/// How a report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Operations shown at most.
    pub top: usize,
    /// Whether bounds are coloured with terminal codes.
    pub color: bool,
}

impl Default for TextOptions {
    fn default() -> Self {
        TextOptions { top: 15, color: false }
    }
}

/// All runs of one operation.
struct Row<'a> {
    first: &'a OpReport,
    runs: u32,
    cycles: u64,
    utilization: PerUnit,
    stalls: PerStall,
    modelled: bool,
}

impl Report {
    /// The report as text, ending in a newline. Runs of the same operation share a line.
    pub fn text(&self, options: TextOptions) -> String {
        let mut out = head(self);
        let rows = rows(self);
        if !rows.is_empty() {
            out.push_str("\nlongest operations (units in % of their capacity)\n");
            out.push_str(&table(self, &rows, options));
            let hidden = rows.get(options.top..).unwrap_or_default();
            if !hidden.is_empty() {
                let cycles: u64 = hidden.iter().map(|r| r.cycles).sum();
                let share = percent(ratio(cycles as f64, self.cycles as f64));
                let s = if hidden.len() == 1 { "" } else { "s" };
                out.push_str(&format!("... and {} more operation{s}, {share} of the time\n", hidden.len()));
            }
            if rows.iter().take(options.top).any(|r| r.modelled) {
                out.push_str("* modelled: time from a formula, not from generated code\n");
            }
        }
        out.push_str(&held::text(&self.hbm_at_peak, self.hbm_peak_bytes, self.hbm_capacity_bytes));
        out.push('\n');
        for sentence in &self.advice {
            wrap(sentence, &mut out);
        }
        out
    }
}

fn head(r: &Report) -> String {
    let cores = if r.cores == 1 { "1 core".to_owned() } else { format!("{} cores", r.cores) };
    let name = if r.program.is_empty() { "program" } else { r.program.as_str() };
    let title = format!("{} on {} ({}, {cores}), {}", clip(name, 48), r.chip, r.device_kind, r.mode);
    let mut out = format!("{}\n", clip(&title, WIDTH));
    let mut line = |name: &str, value: String| out.push_str(&format!("  {name:<12}{value}\n"));
    let clock = si(r.clock_hz as f64, "Hz");
    line("time", format!("{} ({} cycles at {clock})", seconds(r.time_s), grouped(r.cycles)));
    line("MFU", format!("{} ({} useful, {})", percent(r.mfu), si(r.flops as f64, "FLOP"), si(r.flops_per_s, "FLOP/s")));
    line(
        "HBM traffic",
        format!(
            "{} of {} ({}); {} read, {} written",
            si(r.hbm_bandwidth_bytes_per_s, "B/s"),
            si(r.hbm_bandwidth_peak_bytes_per_s, "B/s"),
            percent(r.hbm_bandwidth_fraction),
            si(r.hbm_bytes_read as f64, "B"),
            si(r.hbm_bytes_written as f64, "B")
        ),
    );
    let used = |peak: u64, capacity: u64| {
        format!("{} of {} ({})", memory(peak), memory(capacity), percent(ratio(peak as f64, capacity as f64)))
    };
    line("HBM memory", used(r.hbm_peak_bytes, r.hbm_capacity_bytes));
    line("VMEM", used(r.vmem_peak_bytes, r.vmem_capacity_bytes));
    if r.modelled_fraction > 0.0 {
        line("modelled", format!("{} of the time comes from formulas", percent(r.modelled_fraction)));
    }
    for (i, text) in r.assumptions.iter().take(ASSUMPTIONS).enumerate() {
        line(if i == 0 { "assumed" } else { "" }, clip(text, WIDTH - 14));
    }
    if r.assumptions.len() > ASSUMPTIONS {
        line("", format!("and {} more", r.assumptions.len() - ASSUMPTIONS));
    }
    if let Some(share) = r.control_fraction {
        line("control", format!("{} of the time outside operations", percent(share)));
    }
    let mut stalls: Vec<(Stall, u64)> = Stall::ALL.iter().map(|s| (*s, r.stall_cycles.get(*s))).collect();
    stalls.retain(|(_, n)| *n > 0);
    stalls.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    if !stalls.is_empty() {
        let part = |(s, n): &(Stall, u64)| format!("{} {}", s.name(), percent(ratio(*n as f64, r.cycles as f64)));
        line("stalls", stalls.iter().take(5).map(part).collect::<Vec<_>>().join(", "));
    }
    out
}

fn rows(r: &Report) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let mut of_op = std::collections::BTreeMap::new();
    for o in &r.ops {
        let at = *of_op.entry(o.op).or_insert(rows.len());
        match rows.get_mut(at) {
            Some(row) => {
                let (old, new) = (row.cycles as f64, o.cycles as f64);
                for (a, b) in row.utilization.0.iter_mut().zip(&o.utilization.0) {
                    *a = ratio(*a * old + *b * new, old + new);
                }
                row.runs += 1;
                row.cycles = row.cycles.saturating_add(o.cycles);
                row.stalls.add(&o.stall_cycles);
                row.modelled |= o.modelled_cycles > 0;
            }
            None => rows.push(Row {
                first: o,
                runs: 1,
                cycles: o.cycles,
                utilization: o.utilization,
                stalls: o.stall_cycles,
                modelled: o.modelled_cycles > 0,
            }),
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.cycles));
    rows
}

fn table(r: &Report, rows: &[Row<'_>], options: TextOptions) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING.header_separator(LineStyle::none().fill('-')));
    table.set_width(WIDTH as u16);
    if options.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(["operation", "time", "share", "bound", "MXU", "VPU", "XLU", "EUP", "HBM", "top stall", "source"]);
    for row in rows.iter().take(options.top) {
        let star = if row.modelled { "*" } else { "" };
        let runs = if row.runs > 1 { format!(" x{}", row.runs) } else { String::new() };
        let suffix = format!("{star}{runs}");
        let name = format!("{}{suffix}", clip(&row.first.name, 21usize.saturating_sub(suffix.len())));
        let bound = Bound::of(&row.utilization);
        let share = |unit| format!("{:.0}", row.utilization.get(unit) * 100.0);
        let stall = match row.stalls.top() {
            Some((s, n)) => format!("{} {}%", s.name(), percent_digits(ratio(n as f64, row.cycles as f64))),
            None => String::new(),
        };
        let whence = if row.first.location.is_empty() { &row.first.source } else { &row.first.location };
        let bound_cell = Cell::new(bound.name());
        table.add_row([
            Cell::new(name),
            Cell::new(seconds(ratio(row.cycles as f64, r.clock_hz as f64))),
            Cell::new(format!("{}%", percent_digits(ratio(row.cycles as f64, r.cycles as f64)))),
            if options.color { bound_cell.fg(color(bound)) } else { bound_cell },
            Cell::new(share(Unit::Mxu)),
            Cell::new(share(Unit::Vpu)),
            Cell::new(share(Unit::Xlu)),
            Cell::new(share(Unit::Eup)),
            Cell::new(share(Unit::Hbm)),
            Cell::new(stall),
            Cell::new(clip_start(whence, 19)),
        ]);
    }
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if matches!(i, 1 | 2 | 4..=8) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

fn color(bound: Bound) -> Color {
    match bound {
        Bound::Mxu => Color::Green,
        Bound::Vpu | Bound::Xlu | Bound::Eup => Color::Cyan,
        Bound::Hbm => Color::Yellow,
        Bound::Latency => Color::Red,
    }
}

/// Names come from programs and may hold anything; a line break or terminal code would break tables and SVG.
fn printable(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().map(|c| if c.is_control() { ' ' } else { c })
}

/// The first characters of `text`.
pub(crate) fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return printable(text).collect();
    }
    let kept: String = printable(text).take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// The last characters of `text`: of a path the end says most.
fn clip_start(text: &str, most: usize) -> String {
    let n = text.chars().count();
    if n <= most {
        return printable(text).collect();
    }
    let kept: String = printable(text).skip(n - most.saturating_sub(1)).collect();
    format!("…{kept}")
}

/// Appends `sentence` as a list item, broken between words.
fn wrap(sentence: &str, out: &mut String) {
    let mut line = "-".to_owned();
    for word in sentence.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > 1 {
            out.push_str(&line);
            out.push('\n');
            line = " ".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}
