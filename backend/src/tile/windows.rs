//! Block sizes of convolutions by estimated cost.

use tpusim_isa::chip::ChipSpec;

use super::choose::{Estimate, StepLoad, VMEM_SHARE, blocks, k_blocks, order_key, splits, step_cycles};
use crate::lower::dot::{DotKernel, DotTiling, MAX_SLIDES, slack};
use crate::lower::expr::Kind;

/// Tilings to try for a convolution, best estimate first.
pub(super) fn window_tilings(k: &DotKernel, chip: &ChipSpec) -> Vec<DotTiling> {
    let n = k.dims.len();
    let first = n - 2 - k.slides.len();
    let (m, c) = (k.dims[n - 2], k.dims[n - 1]);
    let dim = u64::from(*chip.mxu.dim);
    let interval = u64::from(chip.mxu_interval(k.format)).max(1);
    let vmem_cap = (*chip.scoped_vmem_bytes as f64 * VMEM_SHARE) as u64;
    let cores_want = *chip.tensorcores_per_device;
    let mut outers = vec![k.dims[first]];
    if k.slides[0].divisible() {
        outers.extend([2u64, 3, 4, 6, 8, 16, 32, 64].iter().map(|p| k.dims[first].div_ceil(*p)));
        outers.push(1);
    }
    outers.dedup();
    let mut all: Vec<(f64, DotTiling)> = Vec::new();
    for (ks, cs, rs) in splits(*chip.mxu.count) {
        if u64::from(ks) > k.k.div_ceil(dim).next_power_of_two() || u64::from(cs) > c.div_ceil(dim).next_power_of_two()
        {
            continue;
        }
        for k_block in k_blocks(k, dim * u64::from(ks)).into_iter().take(3) {
            for cols in blocks(c, dim * u64::from(cs)) {
                for rows in row_blocks(k, m) {
                    for &outer in &outers {
                        let mut t = DotTiling {
                            rows,
                            cols,
                            k: k_block,
                            chunk: 0,
                            outer,
                            boxes: [1; MAX_SLIDES],
                            k_split: ks,
                            col_split: cs,
                            row_split: rs,
                            cols_outer: false,
                            cores: 1,
                        };
                        boxes(k, &mut t, (512 / interval).clamp(16, 64));
                        for cols_outer in [false, true] {
                            for cores in if cores_want > 1 { vec![cores_want, 1] } else { vec![1] } {
                                let t = DotTiling { cols_outer, cores, ..t };
                                if cores > 1 && grid(k, &t).0 < 2 {
                                    continue;
                                }
                                let e = estimate(k, chip, &t);
                                if e.vmem <= vmem_cap {
                                    all.push((e.cycles, t));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    let key = |t: &DotTiling| (order_key(t), t.outer, t.boxes, t.cores);
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| key(&a.1).cmp(&key(&b.1))));
    all.dedup_by(|a, b| a.1 == b.1);
    all.into_iter().map(|(_, t)| t).take(24).collect()
}

/// Rows of a block: all, or parts that fill registers.
fn row_blocks(k: &DotKernel, m: u64) -> Vec<u64> {
    let unit = 8 * (k.format.packing() as u64).max(u64::from(k.widest()));
    let mut out = vec![m];
    for parts in [2u64, 4, 8, 16] {
        let b = m.div_ceil(parts).next_multiple_of(unit);
        if b < m && !out.contains(&b) {
            out.push(b);
        }
    }
    out
}

/// Chooses how many planes a step streams: about `pushes` registers for each array.
fn boxes(k: &DotKernel, t: &mut DotTiling, pushes: u64) {
    let first = k.dims.len() - 2 - k.slides.len();
    let groups = t.rows.div_ceil(8);
    let unit = k.format.packing() as u64 * u64::from(t.row_split);
    let mut left = (pushes * unit / groups).max(1);
    for i in (0..k.slides.len()).rev() {
        let count = if i == 0 { t.outer } else { k.dims[first + i] };
        let trips = count.div_ceil(left.min(count));
        t.boxes[i] = count.div_ceil(trips) as u32;
        left = (left / u64::from(t.boxes[i])).max(1);
    }
    let planes: u64 = t.boxes.iter().map(|&b| u64::from(b)).product();
    t.chunk = (planes * groups).next_multiple_of(unit) * 8;
}

/// Blocks of the outermost level that steps, and in all but the contraction.
fn grid(k: &DotKernel, t: &DotTiling) -> (u64, u64) {
    let n = k.dims.len();
    let first = n - 2 - k.slides.len();
    let hb = k.dims[first].div_ceil(t.outer);
    let (mb, cb) = (k.dims[n - 2].div_ceil(t.rows), k.dims[n - 1].div_ceil(t.cols));
    let order = if t.cols_outer { [cb, hb, mb] } else { [hb, mb, cb] };
    let levels: Vec<u64> = k.dims[..first].iter().copied().chain(order).collect();
    let outermost = levels.iter().copied().find(|&l| l > 1).unwrap_or(1);
    (outermost, levels.iter().product())
}

/// Time as the larger of the arrays', the vector unit's and the memory's, plus what does not overlap, as for products.
fn estimate(k: &DotKernel, chip: &ChipSpec, t: &DotTiling) -> Estimate {
    let n = k.dims.len();
    let first = n - 2 - k.slides.len();
    let dim = u64::from(*chip.mxu.dim);
    let halves = dim as f64 / 128.0;
    let q = k.format.packing() as u64;
    let (sb, wb) = (k.stream.dtype.bytes() as u64, k.weights.dtype.bytes() as u64);
    let src_q = k.stream.dtype.packing() as u64;
    let (mb, cb, kb) = (k.dims[n - 2].div_ceil(t.rows), k.dims[n - 1].div_ceil(t.cols), k.k.div_ceil(t.k));
    let hb = k.dims[first].div_ceil(t.outer);
    let positions: u64 = k.slides.iter().map(|s| s.size).product();
    let groups = t.rows.div_ceil(8);
    let count = |i: usize| if i == 0 { t.outer } else { k.dims[first + i] };
    // Planes: of the input as transferred and as they lie in VMEM, of the output, in whole chunks, and chunks.
    let (mut seen, mut held, mut planes, mut padded, mut chunks) = (1.0, 1.0, 1.0, 1.0, 1.0);
    let mut zeroed = 0.0;
    for (i, s) in k.slides.iter().enumerate() {
        let span = s.span(count(i));
        let cut = i == 0 && hb > 1 && s.pads(k.dims[first]);
        let (before, after, high) = if cut { slack(s, k.dims[first], t.outer) } else { (0, 0, 0) };
        seen *= if cut { span.min(s.extent) } else { s.seen(count(i)) } as f64;
        held *= (span + if cut { before + after + 1 } else { 0 }) as f64;
        zeroed = if cut { (s.low + high) as f64 } else { zeroed * span as f64 };
        planes *= count(i) as f64;
        let trips = count(i).div_ceil(u64::from(t.boxes[i]));
        padded *= (trips * u64::from(t.boxes[i])) as f64;
        chunks *= trips as f64;
    }
    let k_groups = t.k.div_ceil(dim * u64::from(t.k_split)) * k.positions(dim);
    let pair = k.paired(dim).is_some();
    let c_groups = t.cols.div_ceil(dim * u64::from(t.col_split));
    let pushes = (t.chunk / 8 / q / u64::from(t.row_split)) as f64;
    let registers = halves * f64::from(t.row_split * t.k_split);
    let packed = groups.is_multiple_of(q) && src_q == q && !k.stream_route().convert;
    let (lhs, mut valu) = match packed {
        true => (registers, 0.0),
        false => (registers * q as f64, registers * q as f64 * if src_q > 1 { 2.0 } else { 1.0 }),
    };
    if pair || !t.k.is_multiple_of(dim * u64::from(t.k_split)) {
        valu += registers;
    }
    let accumulates = k_groups * kb > 1;
    let (step, fill) = step_cycles(k, chip, t, &StepLoad { pushes, lhs, valu, accumulates });
    let lanes = if pair { t.k } else { t.k.next_multiple_of(dim * u64::from(t.k_split)) };
    let cp = t.cols.next_multiple_of(dim * u64::from(t.col_split));
    let mut block = chunks * ((k_groups * c_groups) as f64 * step + fill) + 60.0;
    block += zeroed * (groups * lanes / 128) as f64;
    let widest = u64::from(k.widest());
    let rows_held = match k.plane_parts(t.rows) {
        Some(_) => t.rows.next_multiple_of(8 * widest),
        None => {
            // A pass over the finished chunk.
            block += padded * (groups * cp / 128) as f64 * 2.0;
            t.rows.next_multiple_of(32)
        }
    };
    let (outer, blocks) = grid(k, t);
    let share = outer.div_ceil(u64::from(t.cores)) as f64 / outer as f64;
    let blocks = (blocks * kb) as f64 * share;
    // HBM traffic: operands are read again unless their block stays.
    let stays = kb == 1;
    let stream_reads = if stays && (!t.cols_outer || mb * hb == 1) { 1 } else { cb };
    let weight_reads = if stays && (t.cols_outer || cb == 1) { 1 } else { mb * hb };
    let granule = u64::from(*chip.hbm.granule_bytes).max(1);
    let size = |d: &[u64]| d.iter().map(|&d| d as f64).product::<f64>();
    let row = (t.k * sb).next_multiple_of(granule) as f64;
    let stream_block = seen * t.rows as f64 * row;
    let weights_block = (positions * t.k * t.cols * wb) as f64;
    let reads = |block: f64, times: u64| block * times as f64 * kb as f64 * size(&k.dims[..first]);
    let in_bytes = reads(stream_block, mb * hb * stream_reads) + reads(weights_block, cb * weight_reads);
    let extra = k.nodes.iter().filter(|x| matches!(x.kind, Kind::Load(_)) && x.varies >> (n - 2) & 1 == 1);
    let extra = extra.map(|x| x.dtype.bytes() as u64).sum::<u64>();
    let out_width = k.stores.iter().map(|s| k.nodes[s.node].dtype.bytes() as u64).sum::<u64>();
    let elements = size(&k.dims);
    let rate = chip.hbm_rate_per_core(t.cores).to_num::<f64>();
    let (re, we) = (*chip.hbm.read_efficiency, *chip.hbm.write_efficiency);
    let cores = f64::from(t.cores);
    let load = (in_bytes + elements * extra as f64) / re / rate / cores / blocks;
    let store = elements * out_width as f64 / we / rate / cores / blocks;
    let first_load = (stream_block + weights_block) / re / rate;
    let last_store = planes * (t.rows * t.cols * out_width) as f64 / we / rate;
    let latency = *chip.hbm.latency_s * *chip.clock_hz as f64;
    let waits = if blocks > 1.0 { latency + load } else { 0.0 };
    let cycles = blocks * (block + 40.0).max(load + store).max(waits) + first_load + last_store + 2.0 * latency;
    // VMEM: double-buffered blocks, accumulators, converted weights.
    // A block that steps, or lies inside a level that does, has two halves.
    let steps = |levels: u64| if levels > 1 { 2.0f64 } else { 1.0 };
    let around = k.dims[..first].iter().product::<u64>().max(kb).max(u64::from(t.cores));
    let (stream_twice, weights_twice) = (steps(around.max(hb * mb)), steps(around.max(cb)));
    let out_twice = if blocks > 1.0 { 2.0 } else { stream_twice.max(weights_twice) };
    let rows_in = rows_held.next_multiple_of(8 * src_q);
    let weights_held = ((positions + u64::from(pair)) * lanes * cp) as f64;
    let mut vmem = stream_twice * held * (rows_in * lanes * sb) as f64 + weights_twice * weights_held * wb as f64;
    vmem += padded * (groups * 8 * cp * 4) as f64;
    vmem += out_twice * padded * (rows_held * cp * (extra + out_width)) as f64;
    let vmem = vmem as u64;
    Estimate { cycles, vmem }
}
