//! A made-up run on one v5e core: a matmul at the MXU's limit, an elementwise pass at HBM's, a reduction that waits, a padded matmul
//! run twice, and a modelled sort.

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_isa::program::{OpInfo, Program};
use tpusim_sim::profile::{OpProfile, Profile, Series, Span, Stall, Unit};

pub fn chip() -> ChipSpec {
    ChipSpec::load("v5e").unwrap()
}

fn info(name: &str, location: &str, mxu_flops: u64, vector_flops: u64, dtype: DType) -> OpInfo {
    OpInfo {
        name: name.to_owned(),
        source: format!("jit(step)/{name}"),
        location: location.to_owned(),
        mxu_flops,
        vector_flops,
        dtype,
        cores: 1,
        modelled_cycles: 0,
    }
}

/// Busy cycles for shares of the capacity of `cycles`.
fn busy(cycles: u64, instances: &[u32; 8], shares: &[(Unit, f64)]) -> [u64; 8] {
    let mut out = [0; 8];
    for (u, share) in shares {
        out[*u as usize] = (share * cycles as f64 * f64::from(instances[*u as usize])).round() as u64;
    }
    out
}

fn stalls(list: &[(Stall, u64)]) -> [u64; 8] {
    let mut out = [0; 8];
    list.iter().for_each(|(s, n)| out[*s as usize] = *n);
    out
}

/// Units and the shares of their capacity.
type Shares = &'static [(Unit, f64)];

/// Cycles and unit shares of the run's operations, in order.
const RUN: [(u32, u64, Shares); 6] = [
    (0, 30_000, &[(Unit::Mxu, 0.92), (Unit::Vpu, 0.1), (Unit::VLoad, 0.5), (Unit::Hbm, 0.45)]),
    (1, 15_000, &[(Unit::Vpu, 0.12), (Unit::VLoad, 0.3), (Unit::VStore, 0.3), (Unit::Hbm, 0.95)]),
    (2, 12_000, &[(Unit::Vpu, 0.05), (Unit::Xlu, 0.3), (Unit::Hbm, 0.1)]),
    (3, 10_000, &[(Unit::Mxu, 0.7), (Unit::Vpu, 0.1), (Unit::Hbm, 0.3)]),
    (3, 10_000, &[(Unit::Mxu, 0.7), (Unit::Vpu, 0.1), (Unit::Hbm, 0.3)]),
    (4, 20_000, &[(Unit::Hbm, 0.2)]),
];

pub fn program() -> Program {
    let mut sort = info("sort.9", "", 0, 0, DType::F32);
    sort.modelled_cycles = 18_000;
    // Useful FLOPs of op 0: 90 % of what 0.92 * 30,000 cycles of 4 MXUs of 128 x 128 do; of op 3: 40 %.
    let full = |cycles: f64| cycles * 4.0 * 2.0 * 128.0 * 128.0;
    Program {
        name: "step".to_owned(),
        chip: "v5e".to_owned(),
        ops: vec![
            info("dot_general.1", "model.py:12", (0.9 * full(27_600.0)) as u64, 1_000_000, DType::BF16),
            info(
                "fusion.add_multiply_with_a_long_name.2",
                "/home/somebody/project/layers/mlp.py:118",
                0,
                3_000_000,
                DType::BF16,
            ),
            info("reduce.3", "model.py:40", 0, 400_000, DType::F32),
            info("dot_general.4", "model.py:41", (0.4 * full(7_000.0)) as u64, 0, DType::BF16),
            sort,
        ],
        hbm_peak_bytes: 3 << 30,
        vmem_peak_bytes: 40 << 20,
        ..Program::default()
    }
}

pub fn profile() -> Profile {
    let instances = [4, 4, 2, 1, 2, 1, 2, 1];
    let mut p = Profile { instances, ..Profile::default() };
    let bytes_per_cycle = 546.0;
    for (op, cycles, shares) in RUN {
        let start = p.cycles;
        let end = start + cycles;
        let moved =
            shares.iter().find(|(u, _)| *u == Unit::Hbm).map_or(0.0, |(_, s)| s * cycles as f64 * bytes_per_cycle);
        let b = busy(cycles, &instances, shares);
        let mut s = vec![(Stall::Launch, 1500), (Stall::Dma, cycles / 8)];
        match op {
            2 => s.push((Stall::Xlu, 7_000)),
            4 => s.push((Stall::Modelled, 18_000)),
            _ => s.push((Stall::Register, 300)),
        }
        p.ops.push(OpProfile {
            op,
            start,
            end,
            busy: b,
            stalls: stalls(&s),
            bundles: cycles / 2,
            hbm_read: (moved * 0.75) as u64,
            hbm_written: (moved * 0.25) as u64,
        });
        for (u, _) in shares {
            // HBM transfers overlap: two, each of two thirds of the time.
            let parts =
                if *u == Unit::Hbm { vec![(0, cycles * 2 / 3), (cycles / 3, cycles)] } else { vec![(1500, cycles)] };
            for (from, to) in parts {
                let bytes = if *u == Unit::Hbm { (moved / 2.0) as u64 } else { 0 };
                p.spans.push(Span {
                    unit: *u,
                    op,
                    start: start + from,
                    end: start + to,
                    bytes,
                    busy: b[*u as usize] / 2,
                });
            }
        }
        p.cycles = end;
    }
    p.series = series(&p, 400);
    p
}

/// Each operation's busy cycles spread evenly after its launch, with a ripple as real runs have.
fn series(p: &Profile, window: u64) -> Series {
    let n = p.cycles.div_ceil(window) as usize;
    let mut busy = vec![[0.0; 8]; n];
    for o in &p.ops {
        let from = o.start + 1500;
        for (w, slot) in busy.iter_mut().enumerate() {
            let (a, b) = (w as u64 * window, (w as u64 + 1) * window);
            let overlap = b.min(o.end).saturating_sub(a.max(from)) as f64;
            let ripple = 1.0 + 0.06 * ((w * 7) % 5) as f64 / 5.0 - 0.03;
            for (s, v) in slot.iter_mut().zip(o.busy) {
                *s += v as f64 * overlap / (o.end - from) as f64 * ripple;
            }
        }
    }
    Series { window, busy }
}

/// Where tests leave what they drew and wrote, to be looked at.
pub fn folder() -> std::path::PathBuf {
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("sample");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
