//! Small kernels, VMEM to VMEM, scheduled by hand as a good compiler would, against cycles measured on a real v4 TensorCore.

#![allow(clippy::print_stderr)]

mod common;

use std::collections::BTreeMap;

use common::*;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Instr, Op};
use tpusim_isa::program::Node;
use tpusim_sim::{RunOptions, time};

/// Largest distance from the measurement, in percent.
const TOLERANCE: f64 = 10.0;
/// Cycles from a load to its first use.
const LOAD: u64 = 4;
/// Cycles from a pack or unpack to its first use.
const CONVERT: u64 = 2;
/// Cycles between submissions to an MXU's weight port or an XLU.
const INTERVAL: u64 = 8;

/// A plan: what is meant to issue in which cycle. The engine waits where a plan is too hopeful, so that only the order counts.
struct Plan {
    chip: ChipSpec,
    cycles: BTreeMap<u64, Vec<Instr>>,
}

impl Plan {
    fn new() -> Plan {
        // The measurements begin and end on the core: they hold the entry of a kernel, but not its launch by the host.
        let launch = ("overhead.op_launch_s".to_owned(), "0.0".to_owned());
        Plan { chip: ChipSpec::load_with("v4", &[launch]).unwrap(), cycles: BTreeMap::new() }
    }

    /// Puts an instruction into the first cycle from `earliest` that has a slot for it. Returns that cycle.
    fn put(&mut self, earliest: u64, op: Op, operands: &[i32]) -> u64 {
        let limit = self.chip.slots(op.slot()) as usize;
        let full = |c: &u64| {
            let used = self.cycles.get(c).map_or(0, |b| b.iter().filter(|i| i.op.slot() == op.slot()).count());
            used >= limit
        };
        let cycle = (earliest..).find(|c| !full(c)).unwrap();
        self.cycles.entry(cycle).or_default().push(i(op, operands));
        cycle
    }

    /// Loads register `d` from block `block` in time for `use_at`. Returns when it can be used.
    fn load(&mut self, use_at: u64, d: i32, block: i32) -> u64 {
        self.put(use_at.saturating_sub(LOAD), Op::VLd, &[d, 0, block * 8, 1]) + LOAD
    }

    fn store(&mut self, at: u64, s: i32, block: i32) {
        self.put(at, Op::VSt, &[s, 0, 1000 + block * 8, 1]);
    }

    /// Cycles the plan takes on the simulated core.
    fn run(self) -> u64 {
        let body: Vec<Node> = self.cycles.into_values().map(bundle).collect();
        time(&program(&self.chip, body), &self.chip, &RunOptions::default()).unwrap().cycles
    }
}

/// `rows` x 128 times 128 x 128 in bf16 over `n` MXUs: 8 weight pushes and a latch for each, then `rows / 16` packed products in
/// turn. Each gives 2 results, which are packed into one register and stored.
fn matmul(rows: i32, n: i32) -> u64 {
    let mut p = Plan::new();
    let latency = u64::from(*p.chip.mxu.latency);
    for slot in 0..8 {
        let ready = p.load(0, slot, slot);
        for m in 0..n {
            p.put(ready.max(LOAD + INTERVAL * slot as u64), Op::MxPush, &[m, slot, 0, slot]);
        }
    }
    let passes = rows / 16;
    let latched: Vec<u64> = (0..n).map(|m| p.put(LOAD + 8 * INTERVAL, Op::MxLatch, &[m])).collect();
    for pass in 0..passes {
        let (m, step) = (pass % n, pass / n);
        let bank = step % 2;
        let (lhs, low, high) = (8 + m + 4 * bank, 16 + m + 8 * bank, 20 + m + 8 * bank);
        let start = latched[m as usize] + 1 + 16 * step as u64;
        let ready = p.load(start, lhs, 8 + pass);
        let start = p.put(start.max(ready), Op::MxMul, &[m, lhs, lhs, 0]);
        let first = p.put(start + latency, Op::MxPop, &[m, low]);
        let first = p.put(first + 1, Op::VPack, &[low, low, low, 0, 0]);
        let second = p.put(start + latency + INTERVAL, Op::MxPop, &[m, high]);
        let packed = p.put((first + CONVERT).max(second + 1), Op::VPack, &[low, low, high, 0, 1]);
        p.store(packed + CONVERT, low, pass);
    }
    p.run()
}

/// Transposes a 128 x 128 tile on each XLU of the list, at the same time on different ones. In bf16 two packed rows share a
/// register, which is taken apart before and put together after.
fn transposes(xlus: &[i32], bf16: bool) -> u64 {
    let mut p = Plan::new();
    let mut start = 0;
    for (tile, &x) in xlus.iter().enumerate() {
        let (tile, reg) = (tile as i32, 16 * x);
        let mut last = 0;
        for k in 0..16 {
            let at = start + LOAD + INTERVAL * k as u64;
            let (from, ready) = (reg + k % 4, at + if bf16 { CONVERT } else { 0 });
            let mut push = ready;
            if bf16 {
                let packed = reg + 4 + k / 2 % 2;
                if k % 2 == 0 {
                    p.load(at, packed, tile * 8 + k / 2);
                }
                push = push.max(p.put(at, Op::VUnpack, &[from, packed, 0, k % 2]) + CONVERT);
            } else {
                push = push.max(p.load(at, from, tile * 16 + k));
            }
            last = p.put(push, Op::XPose, &[x, from]);
        }
        for k in 0..16 {
            let result = reg + 8 + k % 4;
            let popped = p.put(last + INTERVAL * (k as u64 + 1), Op::XPop, &[x, result]) + 1;
            if !bf16 {
                p.store(popped, result, tile * 16 + k);
                continue;
            }
            let packed = reg + 12 + k / 2 % 2;
            let done = p.put(popped, Op::VPack, &[packed, packed, result, 0, k % 2]) + CONVERT;
            if k % 2 == 1 {
                p.store(done, packed, tile * 8 + k / 2);
            }
        }
        // A unit takes the next tile when the last result of this one is out.
        if xlus.get(tile as usize + 1) == Some(&x) {
            start = last + 16 * INTERVAL - LOAD;
        }
    }
    p.run()
}

fn row_sum() -> u64 {
    let mut p = Plan::new();
    let ready = p.load(0, 0, 0);
    let pushed = p.put(ready, Op::XSumF, &[0, 0]);
    let popped = p.put(pushed + u64::from(*p.chip.latency.xlu_reduce), Op::XPop, &[0, 1]);
    p.store(popped + 1, 1, 0);
    p.run()
}

// Oracle: shared/silicon/units.toml, measured on silicon: every kernel of its table.
#[test]
fn kernels_take_what_silicon_takes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/silicon/units.toml");
    let Ok(text) = std::fs::read_to_string(path) else {
        eprintln!("skipped: {path} is not there");
        return;
    };
    let table: toml::Table = toml::from_str(&text).unwrap();
    let mut wrong = Vec::new();
    eprintln!("{:36} {:>9} {:>9} {:>7}", "kernel (v4, cycles)", "simulated", "measured", "error");
    for (name, measured) in table["v4"]["kernel"].as_table().unwrap() {
        let got = match name.as_str() {
            "matmul_bf16_16x128_128x128" => matmul(16, 1),
            "matmul_bf16_128x128_128x128" => matmul(128, 4),
            "matmul_bf16_1024x128_128x128" => matmul(1024, 4),
            "transpose_f32_128x128" => transposes(&[0], false),
            "transpose_bf16_128x128" => transposes(&[0], true),
            "transpose_two_f32_128x128_one_xlu" => transposes(&[0, 0], false),
            "transpose_two_f32_128x128_two_xlus" => transposes(&[0, 1], false),
            "row_sum_f32_8x128" => row_sum(),
            other => panic!("no kernel for {other}"),
        };
        let measured = measured.as_integer().unwrap();
        let off = 100.0 * (got as f64 / measured as f64 - 1.0);
        eprintln!("{name:36} {got:9} {measured:9} {off:+6.1}%");
        if off.abs() > TOLERANCE {
            wrong.push(name.clone());
        }
    }
    assert!(wrong.is_empty(), "off by more than {TOLERANCE} %: {wrong:?}");
}
