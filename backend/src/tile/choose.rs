//! Block sizes by estimated cost.

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;

use super::windows::window_tilings;
use crate::lower::dot::{DotKernel, DotTiling, MAX_SLIDES};
use crate::lower::expr::Kind;
use crate::lower::vector::{Tiling, VectorKernel};

/// Share of VMEM that blocks may take; the rest is for accumulators, scratch and rounding.
pub(super) const VMEM_SHARE: f64 = 0.85;

/// Tilings to try for a vector kernel, best first: smaller unrolling where registers run short, smaller blocks where VMEM does.
pub fn vector_tilings(k: &VectorKernel, chip: &ChipSpec) -> Vec<Tiling> {
    let n = k.dims.len();
    let (r, c) = (k.dims[n - 2], k.dims[n - 1]);
    let planes_total = if n >= 3 { k.dims[n - 3] } else { 1 };
    let reduced = k.col_reduced();
    let bytes = k.bytes_per_element().max(1);
    let total: u64 = k.dims.iter().product::<u64>().saturating_mul(bytes);
    let cores_want = *chip.tensorcores_per_device;
    let step = best_step(k, chip, total / u64::from(cores_want));
    let scratch = scratch_factor(k);
    let vmem = (*chip.scoped_vmem_bytes as f64 * VMEM_SHARE) as u64;
    let step = step.min(vmem / (2 + scratch));
    let group = u64::from(k.group_rows());
    let mut out = Vec::new();
    for shrink in [1u64, 4, 16, 64] {
        let want = (step / bytes / shrink).max(1);
        let padded_cols = |c: u64| c.next_multiple_of(128);
        let cols = if k.reduces_rows() || padded_cols(c) * group <= want {
            c
        } else {
            let fit = (want / group / 128 * 128).max(128);
            balanced(c, fit.min(4096.max(fit.min(8192))), 128)
        };
        // A transpose works on 128 x 128 tiles: blocks of whole ones in both directions.
        let crossed = scratch > 0;
        let cols = if crossed && !k.reduces_rows() { cols.min(512) } else { cols };
        let fit_rows = (want / padded_cols(cols)).max(if crossed { 128 } else { 1 });
        let group = if crossed { group.max(128) } else { group };
        let mut rows = if fit_rows >= r { r } else { (fit_rows / group * group).max(group).min(r) };
        if r > rows {
            rows = balanced(r, rows, group);
        }
        let row_reduced = n >= 3 && reduced >> (n - 3) & 1 == 1;
        let fit_planes = (want / (padded_cols(cols) * rows.next_multiple_of(group))).max(1);
        let planes = if rows < r || (reduced != 0 && !row_reduced) {
            1
        } else if row_reduced {
            (1..=fit_planes.min(planes_total)).rev().find(|p| planes_total.is_multiple_of(*p)).unwrap_or(1)
        } else {
            fit_planes.min(planes_total)
        };
        let mut t = Tiling { planes, rows, cols, row_unroll: 1, lane_unroll: 8, cores: 1 };
        t = split_cores(k, t, cores_want);
        let lane_tiles = (t.cols.div_ceil(128)) as u32;
        let groups = t.rows.div_ceil(u64::from(k.group_rows())) as u32;
        let group = u64::from(k.group_rows());
        let base_parts = group as u32 / 8;
        // Row reductions hide the XLU's latency behind several row groups, others want enough independent cells.
        let want_parts = if k.reduces_rows() { 8 } else { 8u32.div_ceil(lane_tiles.min(8)) };
        let rows_unroll = (want_parts / base_parts).clamp(1, groups.max(1));
        for ru in halvings(rows_unroll) {
            let lanes = (32 / (ru * base_parts)).clamp(1, 8).min(lane_tiles);
            for lu in halvings(lanes) {
                out.push(Tiling { row_unroll: ru, lane_unroll: lu, ..t });
            }
        }
    }
    out.dedup();
    out
}

/// Bytes per step at which transfers overlap best: few steps leave the first load and the last store exposed, many pay the DMA latency
/// each, because a step's loads are requested one step ahead.
fn best_step(k: &VectorKernel, chip: &ChipSpec, total: u64) -> u64 {
    let rate = chip.hbm_rate_per_core(*chip.tensorcores_per_device).to_num::<f64>();
    let latency = *chip.hbm.latency_s * *chip.clock_hz as f64 + 60.0;
    let loads =
        k.nodes.iter().filter(|n| matches!(n.kind, Kind::Load(_))).map(|n| n.dtype.bytes()).sum::<usize>() as f64;
    let share = loads / k.bytes_per_element() as f64;
    let (read, write) = (rate * *chip.hbm.read_efficiency, rate * *chip.hbm.write_efficiency);
    let time = |n: u64| {
        let b = total as f64 / n as f64;
        let (load, store) = (b * share / read, b * (1.0 - share) / write);
        let step = (load + store).max(if n > 1 { latency + load } else { 0.0 });
        latency + load + step * n as f64 + store + latency
    };
    let counts = [
        1u64, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192,
        16384,
    ];
    let best = counts.into_iter().min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or(1);
    (total / best).max(32 << 10)
}

fn halvings(x: u32) -> Vec<u32> {
    let mut v = vec![x.max(1)];
    while let Some(&l) = v.last() {
        if l == 1 {
            break;
        }
        v.push(l / 2);
    }
    v
}

/// A block of about `want` rows, a multiple of `group`, such that the blocks differ little in size.
fn balanced(total: u64, want: u64, group: u64) -> u64 {
    let count = total.div_ceil(want);
    total.div_ceil(count).next_multiple_of(group).min(total)
}

/// VMEM bytes of scratch per byte of block, roughly: transposed copies.
fn scratch_factor(k: &VectorKernel) -> u64 {
    let transposed =
        k.nodes.iter().filter(|n| matches!(&n.kind, Kind::Load(a) if k.transposed(a, n.dtype))).count() as u64;
    2 * transposed
}

/// Splits the outermost parallel dimension over the cores if there is one with two blocks, halving a block if need be.
fn split_cores(k: &VectorKernel, t: Tiling, cores: u32) -> Tiling {
    if cores < 2 {
        return t;
    }
    let n = k.dims.len();
    let reduced = k.col_reduced();
    let parallel = |d: usize| reduced >> d & 1 == 0;
    // The outermost level that steps is the one that is split.
    for d in 0..n {
        if !parallel(d) {
            continue;
        }
        let block = match n - d {
            1 => t.cols,
            2 => t.rows,
            3 => t.planes,
            _ => 1,
        };
        if k.dims[d].div_ceil(block) >= 2 {
            return Tiling { cores, ..t };
        }
    }
    let group = u64::from(k.group_rows());
    if n >= 3 && parallel(n - 3) && t.planes >= 2 {
        return Tiling { planes: t.planes.div_ceil(2), cores, ..t };
    }
    if parallel(n - 2) && t.rows >= 2 * group {
        return Tiling { rows: t.rows.div_ceil(2).next_multiple_of(group), cores, ..t };
    }
    if parallel(n - 1) && !k.reduces_rows() && t.cols >= 256 {
        return Tiling { cols: t.cols.div_ceil(2).next_multiple_of(128), cores, ..t };
    }
    t
}

/// Estimated cost of a product's tiling in cycles, as the planner sees it; not simulated time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    pub(super) cycles: f64,
    pub(super) vmem: u64,
}

/// Tilings to try for a product, best estimate first.
pub fn dot_tilings(k: &DotKernel, chip: &ChipSpec) -> Vec<DotTiling> {
    if !k.slides.is_empty() {
        return window_tilings(k, chip);
    }
    let n = k.dims.len();
    let (m, c) = (k.dims[n - 2], k.dims[n - 1]);
    let dim = u64::from(*chip.mxu.dim);
    let mxus = *chip.mxu.count;
    let push = k.push_rows();
    let interval = u64::from(chip.mxu_interval(k.format));
    let cores_want = *chip.tensorcores_per_device;
    let vmem_cap = (*chip.scoped_vmem_bytes as f64 * VMEM_SHARE) as u64;
    let mut all: Vec<(f64, DotTiling)> = Vec::new();
    for (ks, cs, rs) in splits(mxus) {
        // Splits that only multiply padding are never best.
        if u64::from(ks) > k.k.div_ceil(dim).next_power_of_two()
            || u64::from(cs) > c.div_ceil(dim).next_power_of_two()
            || u64::from(rs) > m.div_ceil(push).next_power_of_two()
        {
            continue;
        }
        for k_block in k_blocks(k, dim * u64::from(ks)) {
            for cols in blocks(c, dim * u64::from(cs)) {
                for rows in blocks(m, push * u64::from(rs)) {
                    for cores in [cores_want, 1] {
                        for cols_outer in [false, true] {
                            let t = DotTiling {
                                rows,
                                cols,
                                k: k_block,
                                chunk: chunk(rows, k.chunk_unit(rs), interval),
                                outer: 1,
                                boxes: [1; MAX_SLIDES],
                                k_split: ks,
                                col_split: cs,
                                row_split: rs,
                                cols_outer,
                                cores,
                            };
                            if cores > 1 && outer_trip(k, &t) < 2 {
                                continue;
                            }
                            let e = estimate(k, chip, &t);
                            if e.vmem <= vmem_cap {
                                all.push((e.cycles, t));
                            }
                        }
                        if cores_want == 1 {
                            break;
                        }
                    }
                }
            }
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| order_key(&a.1).cmp(&order_key(&b.1))));
    all.dedup_by(|a, b| a.1 == b.1);
    all.into_iter().map(|(_, t)| t).take(24).collect()
}

pub(super) fn order_key(t: &DotTiling) -> (u64, u64, u64, u32, u32, bool) {
    (t.rows, t.cols, t.k, t.k_split, t.col_split, t.cols_outer)
}

pub(super) fn splits(mxus: u32) -> Vec<(u32, u32, u32)> {
    let mut out = Vec::new();
    for ks in 1..=mxus {
        for cs in 1..=mxus / ks {
            let rs = mxus / ks / cs;
            if ks * cs * rs == mxus {
                out.push((ks, cs, rs));
            }
        }
    }
    // An array may also stand idle.
    out.push((1, 1, 1));
    out
}

/// Blocks of the contraction: divisors that are whole passes, or all of it.
pub(super) fn k_blocks(k: &DotKernel, pass: u64) -> Vec<u64> {
    let mut v = vec![k.k];
    if k.k.is_multiple_of(pass) {
        let passes = k.k / pass;
        v.extend((1..passes).filter(|p| passes.is_multiple_of(*p)).map(|p| p * pass).filter(|b| *b >= 256));
    }
    v.sort_unstable_by(|a, b| b.cmp(a));
    v.truncate(10);
    v
}

/// Block sizes of a dimension: all of it, or multiples of `unit` that split it evenly.
pub(super) fn blocks(total: u64, unit: u64) -> Vec<u64> {
    let mut v = Vec::new();
    for parts in [1u64, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128] {
        let b = total.div_ceil(parts).next_multiple_of(unit).min(total);
        if (b >= 128 || parts == 1) && b <= 8192 && !v.contains(&b) {
            v.push(b);
        }
    }
    if v.is_empty() {
        v.push(unit.min(total).max(1));
    }
    v
}

/// Rows of a step: enough to hide weight pushes, few enough that the step's code stays short.
fn chunk(rows: u64, unit: u64, interval: u64) -> u64 {
    let pushes = rows.div_ceil(unit);
    let steps = pushes.div_ceil((512 / interval.max(1)).clamp(16, 64));
    pushes.div_ceil(steps) * unit
}

pub(super) fn outer_trip(k: &DotKernel, t: &DotTiling) -> u64 {
    let n = k.dims.len();
    if let Some(&b) = k.dims[..n - 2].iter().find(|&&b| b > 1) {
        return b;
    }
    let (m, c) = (k.dims[n - 2].div_ceil(t.rows), k.dims[n - 1].div_ceil(t.cols));
    let (first, second) = if t.cols_outer { (c, m) } else { (m, c) };
    if first > 1 { first } else { second }
}

/// What a step does besides streaming, per register that each array takes.
pub(super) struct StepLoad {
    /// Registers that each array takes in a step.
    pub pushes: f64,
    /// Registers loaded.
    pub lhs: f64,
    /// Vector operations that prepare what is streamed.
    pub valu: f64,
    /// Whether results are added to earlier ones.
    pub accumulates: bool,
}

/// Loads and vector operations that make a register of the array's format from what is stored as `dtype`.
fn converted(k: &DotKernel, dtype: DType) -> (f64, f64) {
    let (q, src_q) = (k.format.packing() as f64, dtype.packing() as f64);
    let integers = k.format.dtype().is_float() && dtype.is_int();
    (q / src_q.min(q), q * (1.0 + f64::from(src_q > 1.0) + f64::from(integers)))
}

/// Estimated cycles of a step, and of filling the pipeline of steps.
pub(super) fn step_cycles(k: &DotKernel, chip: &ChipSpec, t: &DotTiling, s: &StepLoad) -> (f64, f64) {
    let dim = u64::from(*chip.mxu.dim);
    let (halves, pushes) = (dim as f64 / 128.0, s.pushes);
    let interval = f64::from(chip.mxu_interval(k.format));
    let q = k.format.packing() as f64;
    let slots = |s| f64::from(chip.slots(s)).max(1.0);
    use tpusim_isa::op::Slot;
    // Per push position (one register per array): loads, pops, adds, stores.
    let outs = q * halves * f64::from(t.row_split) * f64::from(t.col_split);
    let weights = (dim as f64 / (8.0 * q)) * halves * f64::from(t.k_split * t.col_split);
    let acc = if s.accumulates { outs } else { 0.0 };
    let (weight_loads, weight_valu) =
        if k.weights_route().convert { converted(k, k.weights.dtype) } else { (1.0, 0.0) };
    let loads = (s.lhs + acc + weights * weight_loads / pushes) / slots(Slot::VLoad);
    let pops = outs * f64::from(t.k_split) / slots(Slot::Pop);
    let extended = (f64::from(t.k_split * t.col_split * t.row_split) + weights * f64::from(t.row_split) / pushes)
        / slots(Slot::Extended);
    let adds = (outs * f64::from(t.k_split) + s.valu + weights * weight_valu / pushes) / slots(Slot::Valu);
    let stores = outs / slots(Slot::VStore);
    // Slots that are all nearly full cannot all be filled: a soft maximum.
    let per_push = [interval, loads, pops, extended, adds, stores].iter().map(|x| x.powi(8)).sum::<f64>().powf(0.125);
    let push_weights = f64::from(*chip.mxu.push_interval) * (dim as f64 / (8.0 * q)) * halves;
    // Weights are pushed while a step's own rows stream; what the lagging rows leave no time for is exposed.
    let lag = ((f64::from(*chip.mxu.latency) + 32.0) / interval).ceil() + 1.0;
    let room = (pushes - lag).max(0.0) * per_push;
    let step = per_push * pushes + (push_weights - room).max(0.0) + 6.0 + f64::from(*chip.latency.branch);
    (step, f64::from(*chip.mxu.latency) + push_weights + 40.0)
}

/// Time as the larger of the arrays', the vector unit's and the memory's, plus what does not overlap: the first blocks in, the last
/// one out, and the pipeline's fill in every segment.
fn estimate(k: &DotKernel, chip: &ChipSpec, t: &DotTiling) -> Estimate {
    let n = k.dims.len();
    let (m, c) = (k.dims[n - 2], k.dims[n - 1]);
    let dim = u64::from(*chip.mxu.dim);
    let batches: u64 = k.dims[..n - 2].iter().product();
    let (mb, cb, kb) = (m.div_ceil(t.rows), c.div_ceil(t.cols), k.k.div_ceil(t.k));
    let push = k.push_rows();
    let pushes = (t.chunk / push / u64::from(t.row_split)) as f64;
    let chunks = t.rows.div_ceil(t.chunk) as f64;
    let k_groups = t.k.div_ceil(dim * u64::from(t.k_split)) as f64;
    let c_groups = t.cols.div_ceil(dim * u64::from(t.col_split)) as f64;
    let halves = dim as f64 / 128.0;
    let lhs = halves * f64::from(t.row_split * t.k_split);
    let single_k = k_groups * kb as f64 <= 1.0;
    let convert = k.stream_route().convert && !k.stream_route().transpose;
    let (loads, valu) = if convert { converted(k, k.stream.dtype) } else { (1.0, 0.0) };
    let load = StepLoad { pushes, lhs: lhs * loads, valu: lhs * valu, accumulates: !single_k };
    let (step, fill) = step_cycles(k, chip, t, &load);
    let mut block = chunks * (k_groups * c_groups * step + fill) + 60.0;
    let (sb, wb) = (k.stream.dtype.bytes() as u64, k.weights.dtype.bytes() as u64);
    // Preparing operands costs a pass of the vector unit over the block.
    let registers = |rows: u64, cols: u64| (rows * cols) as f64 / 1024.0;
    if k.stream_route().transpose {
        block += registers(t.rows, t.k) * 2.2 * 8.0;
    }
    // The outermost level is shared out in whole blocks.
    let outer = outer_trip(k, t);
    let share = outer.div_ceil(u64::from(t.cores)) as f64 / outer as f64;
    let blocks = (batches * mb * cb * kb) as f64 * share;
    // HBM traffic: operands are read again unless their block stays.
    let stays = kb == 1;
    let stream_reads = if stays && !t.cols_outer { 1 } else { cb };
    let weight_reads = if stays && t.cols_outer { 1 } else { mb };
    let in_bytes = (batches * (m * k.k * sb * stream_reads + c * k.k * wb * weight_reads)) as f64;
    let extra =
        k.nodes.iter().filter(|x| matches!(x.kind, Kind::Load(_))).map(|x| x.dtype.bytes()).sum::<usize>() as f64;
    let out_width = k.stores.iter().map(|s| k.nodes[s.node].dtype.bytes()).sum::<usize>() as f64;
    let elements = (batches * m * c) as f64;
    let rate = chip.hbm_rate_per_core(t.cores).to_num::<f64>();
    let (re, we) = (*chip.hbm.read_efficiency, *chip.hbm.write_efficiency);
    let cores = f64::from(t.cores);
    let load = (in_bytes + elements * extra) / re / rate / cores / blocks;
    let store = elements * out_width / we / rate / cores / blocks;
    let first = (t.rows * t.k * sb + t.cols * t.k * wb) as f64 / re / rate;
    let last = t.rows as f64 * t.cols as f64 * out_width / we / rate;
    let latency = *chip.hbm.latency_s * *chip.clock_hz as f64;
    // A block's loads are requested one block ahead, so each pays the DMA's latency unless computing takes longer.
    let waits = if blocks > 1.0 { latency + load } else { 0.0 };
    let step = (block + 40.0).max(load + store).max(waits);
    let cycles = blocks * step + first + last + 2.0 * latency;
    // VMEM: double-buffered blocks, accumulators, scratch.
    let pad = |x: u64, to: u64| x.next_multiple_of(to);
    let (rp, cp) = (pad(t.rows, t.chunk.max(push)), pad(t.cols, dim * u64::from(t.col_split)));
    let kp = pad(t.k, dim * u64::from(t.k_split));
    let f = k.format.dtype().bytes() as u64;
    let mut vmem = 2 * (rp * kp * sb + cp * kp * wb) + rp * cp * 4;
    vmem += 2 * rp * cp * (extra + out_width) as u64;
    if k.stream_route().transpose {
        vmem += pad(rp, 128) * kp * f;
    }
    Estimate { cycles, vmem }
}
