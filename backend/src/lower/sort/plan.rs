//! Layouts of a sort, chosen by an estimate of cycles.

use tpusim_isa::chip::ChipSpec;

use super::{Order, Place, SortSpec};

/// Cycles that a pass takes besides its work.
const PASS: u64 = 40;

/// Cycles until a rotation's result is there.
const ROTATION: u64 = 70;

/// Longest run that is selected by halving.
const LONGEST_RUN: u64 = 4096;

/// Where elements lie in VMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// The sorted dimension along rows, arrays of the batch along lanes.
    Columns,
    /// Eight arrays in sublanes: rows of 128 elements, eight rows apart. Low bits of the position are lanes.
    Tiles,
    /// Arrays one after the other as rows of 128 elements. Low bits are lanes.
    Rows,
    /// One array at a time. High bits are lanes, so that most exchanges are between rows; transposed when sorted.
    Spread,
}

/// How a sort is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub layout: Layout,
    /// Logarithm of the length of runs if the first elements are selected by halving.
    pub run: Option<u32>,
    /// Arrays (columns: lanes) of one block.
    pub block: u64,
    /// Rows of VMEM for each word.
    pub rows: u32,
    /// Rows of VMEM for each result besides.
    pub out_rows: u32,
    /// Estimate for one core.
    pub cycles: u64,
}

impl Plan {
    /// Where the bits of a position lie, lowest first.
    pub fn bits(&self, n: u64) -> Vec<Place> {
        if let Some(run) = self.run {
            return (0..run).map(Place::Row).collect();
        }
        let p = width(self.layout, n);
        let low_lanes = |first: u32| -> Vec<Place> {
            (0..7).map(Place::Lane).chain((7..p).map(|b| Place::Row(b - 7 + first))).collect()
        };
        match self.layout {
            Layout::Columns => (0..p).map(Place::Row).collect(),
            Layout::Tiles => low_lanes(3),
            Layout::Rows => low_lanes(0),
            Layout::Spread => (0..p - 7).map(Place::Row).chain((0..7).map(Place::Lane)).collect(),
        }
    }

    /// Rows that one array takes: for a sort the power of two, for a selection what holds its elements.
    pub fn array_rows(&self, n: u64) -> u64 {
        match (self.layout, self.run) {
            (Layout::Columns, None) => 1 << width(self.layout, n),
            (Layout::Columns, Some(run)) => n.next_multiple_of(1 << run),
            (_, None) => 1 << (width(self.layout, n) - 7),
            (_, Some(run)) => n.div_ceil(128).next_multiple_of(1 << run),
        }
    }
}

/// Bits of a position.
fn width(layout: Layout, n: u64) -> u32 {
    let least = if layout == Layout::Columns { 3 } else { 7 };
    n.next_power_of_two().trailing_zeros().max(least)
}

/// Cycles of exchanges: over a bit of the row for every register, over a bit of the lane for every register.
struct Rates {
    row: f64,
    lane: f64,
}

fn rates(words: u64, order: u64, alus: u32, xlus: u32, interval: u32) -> Rates {
    let (w, alus) = (words as f64, f64::from(alus.max(1)));
    let work = (order as f64 + 1.0 + 2.0 * w) / 2.0 / alus;
    let rotations = 2.0 * w * f64::from(interval) / f64::from(xlus.max(1));
    Rates { row: (w / 2.0).max(work), lane: rotations.max((order as f64 + 3.0 + 2.0 * w) / alus) }
}

/// Exchanges over bits of rows and of lanes, for bits from lowest: bit `j` is used in the stages above it.
fn exchanges(bits: &[Place]) -> (u64, u64) {
    let uses = |lane: bool| {
        let of = |(j, b): (usize, &Place)| (matches!(b, Place::Lane(_)) == lane).then_some((bits.len() - j) as u64);
        bits.iter().enumerate().filter_map(of).sum()
    };
    (uses(false), uses(true))
}

fn cycles(plan: &Plan, spec: &SortSpec, r: &Rates) -> u64 {
    let [o, n, i] = spec.dims;
    let bits = plan.bits(n);
    let (rows, lanes) = exchanges(&bits);
    let registers = u64::from(plan.rows / 8);
    let blocks = match plan.layout {
        Layout::Columns => o * i.div_ceil(plan.block),
        _ => o.div_ceil(plan.block),
    };
    let work = |registers: u64, rate: f64| (registers as f64 * rate) as u64;
    let one = match plan.run {
        None => {
            let turn = if plan.layout == Layout::Spread { registers * 16 * spec.words() as u64 } else { 0 };
            rows * (work(registers, r.row) + PASS / 2) + lanes * (work(registers, r.lane) + ROTATION) + turn
        }
        Some(run) => {
            let merge = u64::from(run) + 1;
            let mut total = rows * (work(registers, r.row) + PASS / 2);
            let (mut runs, length) = (plan.array_rows(n) >> run, 1u64 << run >> 3);
            while runs > 1 {
                runs = runs.div_ceil(2);
                total += merge * (work(runs * length, r.row) + PASS / 2);
            }
            if plan.layout == Layout::Spread {
                total += 7 * (merge * (work(length, r.row) + PASS / 2) + work(length, r.lane) + ROTATION);
            }
            total
        }
    };
    blocks.saturating_mul(one.saturating_add(500))
}

/// Plans that fit `vmem` bytes, best first.
pub(super) fn plans(spec: &SortSpec, chip: &ChipSpec) -> Vec<Plan> {
    let r = rates(spec.words() as u64, spec.order.cost(), *chip.slots.valu, *chip.xlus, *chip.latency.xlu_interval);
    let mut list: Vec<Plan> = all(spec).into_iter().map(|p| Plan { cycles: cycles(&p, spec, &r), ..p }).collect();
    let bytes = |p: &Plan| needed(spec, p);
    let vmem = *chip.vmem_bytes;
    let smallest = list.iter().copied().min_by_key(|p| bytes(p));
    list.retain(|p| bytes(p) <= vmem);
    list.sort_by_key(|p| p.cycles);
    if list.is_empty() {
        list.extend(smallest);
    }
    list
}

/// Bytes of VMEM.
pub(super) fn needed(spec: &SortSpec, p: &Plan) -> u64 {
    let words = spec.words().max(spec.loads + 1) as u64;
    512 * (words * u64::from(p.rows) + spec.results.len() as u64 * u64::from(p.out_rows))
}

fn all(spec: &SortSpec) -> Vec<Plan> {
    let [o, n, i] = spec.dims;
    let keep = spec.keep.next_power_of_two().max(8);
    let run = keep.trailing_zeros();
    let plan = |layout, run, block| {
        let p = Plan { layout, run, block, rows: 0, out_rows: 0, cycles: 0 };
        let arrays = match layout {
            Layout::Columns | Layout::Spread => 1,
            Layout::Tiles => block.next_multiple_of(8),
            Layout::Rows => block,
        };
        let rows = (arrays.saturating_mul(p.array_rows(n))).next_multiple_of(64);
        let rows = u32::try_from(rows).unwrap_or(u32::MAX / 1024);
        let out_rows = if layout == Layout::Spread && run.is_none() { rows } else { 0 };
        Plan { rows, out_rows, ..p }
    };
    let select = keep <= LONGEST_RUN;
    let mut list = Vec::new();
    if i > 1 {
        let block = i.min(128);
        list.push(plan(Layout::Columns, None, block));
        if select && keep * 2 <= n {
            list.push(plan(Layout::Columns, Some(run), block));
        }
        return list;
    }
    let array = 1u64 << (width(Layout::Rows, n) - 7);
    // Enough registers to hide the latency of rotations.
    let tiles = 64u64.div_ceil(array).next_power_of_two() * 8;
    list.push(plan(Layout::Tiles, None, o.min(tiles)));
    list.push(plan(Layout::Rows, None, o.min((512 / array).max(1))));
    if array >= 128 {
        list.push(plan(Layout::Spread, None, 1));
    }
    if select && keep * 2 <= n {
        list.push(plan(Layout::Spread, Some(run), 1));
    }
    list
}

/// Whether it is worth to transpose `loads` arrays of `batch x n` elements, and the results back, so that the batch lies along lanes.
pub fn prefers_columns(batch: u64, n: u64, keep: u64, loads: u64, results: u64) -> bool {
    // An ordinary chip will do for this choice.
    let r = rates(loads + 1, 5, 4, 2, 8);
    let spec = |dims| SortSpec { dims, keep, loads: loads as usize, order: Order::Key, index: true, results: vec![] };
    let best = |s: &SortSpec| {
        let fits = |p: &Plan| needed(s, p) <= 12 << 20;
        all(s).into_iter().filter(fits).map(|p| cycles(&p, s, &r)).min().unwrap_or(u64::MAX)
    };
    // Each transpose is a kernel that reads and writes what it moves.
    let moved = batch.saturating_mul(n * loads + keep * results).saturating_mul(8);
    let transposes = (loads + results) * 2500 + moved / 400;
    batch >= 32 && best(&spec([1, n, batch])).saturating_add(transposes) < best(&spec([batch, n, 1]))
}
