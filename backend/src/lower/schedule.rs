//! Packs a block into bundles: a list scheduler over the chip's slots, latencies and unit intervals that assigns registers as
//! it goes.
//!
//! The dependence graph has edges for registers (true, anti and output), for VMEM objects (store against load or store of the same
//! object, unless the rows are known to differ), for the order of pushes and of pops of each unit, from a unit's push to its
//! pop, and from the pop that frees a queue entry to the push that needs it. Ready instructions are taken by the length of the
//! longest path behind them. When registers run short, only the oldest instruction may take the last ones: the source order is
//! legal by itself, so this always makes progress if the source order fits the register file.
//!
//! Empty cycles are not written down: the core interlocks, so the next bundle waits by itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Field, Instr, Op, Slot, Timing};
use tpusim_isa::program::Bundle;

use super::vcode::{Code, CodeInstr, VIRTUAL};

/// The block needs more registers than there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a block needs more than the {available} free vector or {masks} mask registers")]
pub struct RegisterPressure {
    /// Vector registers that were free.
    pub available: u32,
    /// Mask registers.
    pub masks: u32,
}

/// Registers a block may use for its virtual registers: vector registers `0 .. vregs`, mask registers `0 .. masks`. Pinned
/// registers must lie above.
#[derive(Clone, Copy, Debug)]
pub struct RegFile {
    /// Free vector registers.
    pub vregs: u32,
    /// Free mask registers.
    pub masks: u32,
}

/// One unit that takes submissions at an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum UnitKey {
    Eup,
    Xlu(i32),
    MxuPush(i32),
    MxuMul(i32),
    ScalarLoad,
}

fn unit_of(i: &Instr, chip: &ChipSpec) -> Option<(UnitKey, u32)> {
    let l = &chip.latency;
    Some(match i.op.timing() {
        Timing::Eup => (UnitKey::Eup, *l.eup_interval),
        Timing::XluRotate | Timing::XluReduce | Timing::XluTranspose => (UnitKey::Xlu(i.args[0]), *l.xlu_interval),
        Timing::MxuPush => (UnitKey::MxuPush(i.args[0]), *chip.mxu.push_interval),
        Timing::MxuMul | Timing::MxuAcc => (UnitKey::MxuMul(i.args[0]), i.format().map_or(1, |f| chip.mxu_interval(f))),
        Timing::ScalarLoad => (UnitKey::ScalarLoad, *l.scalar_load_interval),
        _ => return None,
    })
}

/// Key of an ordered queue: pushes among themselves and pops among themselves keep their order.
fn queue_of(i: &Instr) -> Option<(u8, i32, bool)> {
    Some(match i.op.timing() {
        Timing::Eup => (0, 0, false),
        Timing::EupPop => (0, 0, true),
        Timing::XluRotate | Timing::XluReduce | Timing::XluTranspose => (1, i.args[0], false),
        Timing::XluPop => (1, i.args[0], true),
        Timing::MxuPush | Timing::MxuLatch | Timing::MxuMul | Timing::MxuAcc => (2, i.args[0], false),
        Timing::MxuPop => (2, i.args[0], true),
        Timing::MxuPopAcc => (3, i.args[0], true),
        _ => return None,
    })
}

/// Instructions after the oldest unscheduled one that may be scheduled before it.
pub(super) const WINDOW: usize = 320;

struct Node {
    succs: Vec<(u32, u32)>,
    preds: u32,
    height: u64,
    ready: u64,
}

struct Graph {
    nodes: Vec<Node>,
}

impl Graph {
    fn edge(&mut self, from: usize, to: usize, latency: u32) {
        if from != to {
            self.nodes[from].succs.push((to as u32, latency));
            self.nodes[to].preds += 1;
        }
    }
}

/// Results one vmatmul leaves in the queue, in registers.
fn mxu_results(i: &Instr, chip: &ChipSpec) -> u32 {
    i.format().map_or(1, |f| f.packing() as u32) * (*chip.mxu.dim / 128).max(1)
}

/// Results a push leaves in its unit's queue.
fn results_of(i: &Instr, chip: &ChipSpec) -> u32 {
    match i.op.timing() {
        Timing::MxuMul => mxu_results(i, chip),
        Timing::Eup | Timing::XluRotate | Timing::XluReduce | Timing::XluTranspose => 1,
        _ => 0,
    }
}

/// Results that wait in each unit's queue where a block starts: software pipelines carry them from block to block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queued(BTreeMap<(u8, i32), u32>);

impl Queued {
    /// What waits after `code`.
    pub fn after(&mut self, code: &Code, chip: &ChipSpec) {
        for ci in &code.instrs {
            if let Some((kind, unit, is_pop)) = queue_of(&ci.instr) {
                let n = self.0.entry((kind, unit)).or_default();
                *n = if is_pop { n.saturating_sub(1) } else { *n + results_of(&ci.instr, chip) };
            }
        }
    }
}

#[derive(Default)]
struct QueueState {
    last_push: Option<usize>,
    last_pop: Option<usize>,
    /// Pushes not yet matched with pops: (instruction, results left, position of the next result, transpose).
    pending: std::collections::VecDeque<(usize, u32, u32)>,
    transposes: Vec<usize>,
    /// Results from blocks before, which are popped first.
    carried: u32,
}

fn build(code: &[CodeInstr], chip: &ChipSpec, queued: &Queued) -> Graph {
    let mut g =
        Graph { nodes: code.iter().map(|_| Node { succs: Vec::new(), preds: 0, height: 0, ready: 0 }).collect() };
    // Registers: kind (0 vector, 1 mask, 2 scalar) and number to its last writer and the readers since.
    let mut writer: FxHashMap<(u8, i32), usize> = FxHashMap::default();
    let mut readers: FxHashMap<(u8, i32), Vec<usize>> = FxHashMap::default();
    let mut queues: FxHashMap<(u8, i32), QueueState> = FxHashMap::default();
    let mut memory: FxHashMap<u32, Accesses> = FxHashMap::default();
    let mut scalar_version: FxHashMap<i32, u32> = FxHashMap::default();
    let mut sync_last: Option<usize> = None;
    for (n, ci) in code.iter().enumerate() {
        let i = &ci.instr;
        let implicit = ci.implicit.iter().filter(|r| **r != 0).map(|&r| (Field::Ss, i32::from(r)));
        for (f, a) in i.operands().chain(implicit) {
            let kind = match f {
                Field::Vs => 0,
                Field::Ms => 1,
                Field::Ss => 2,
                _ => continue,
            };
            if let Some(&w) = writer.get(&(kind, a)) {
                g.edge(w, n, chip.latency(code[w].instr.op.timing()));
            }
            readers.entry((kind, a)).or_default().push(n);
        }
        for (f, a) in i.operands() {
            let kind = match f {
                Field::Vd => 0,
                Field::Md => 1,
                Field::Sd => 2,
                _ => continue,
            };
            if let Some(&w) = writer.get(&(kind, a)) {
                g.edge(w, n, 1);
            }
            for r in readers.remove(&(kind, a)).unwrap_or_default() {
                g.edge(r, n, 0);
            }
            writer.insert((kind, a), n);
            if kind == 2 {
                *scalar_version.entry(a).or_default() += 1;
            }
        }
        if let Some(object) = ci.object {
            let version = scalar_version.get(&base_of(i)).copied().unwrap_or(0);
            memory.entry(object.0).or_default().add(&mut g, code, n, version);
        }
        if i.op.slot() == Slot::Dma {
            if let Some(s) = sync_last {
                g.edge(s, n, 1);
            }
            sync_last = Some(n);
        }
        if let Some((kind, unit, is_pop)) = queue_of(i) {
            let q = queues.entry((kind, unit)).or_insert_with(|| QueueState {
                carried: queued.0.get(&(kind, unit)).copied().unwrap_or(0),
                ..QueueState::default()
            });
            queue_edges(&mut g, code, chip, q, n, is_pop);
        }
    }
    g
}

fn base_of(i: &Instr) -> i32 {
    i.args[1]
}

/// Accesses to one VMEM object so far: by base register and its version, then by first row.
#[derive(Default)]
struct Accesses {
    groups: BTreeMap<(i32, u32), BTreeMap<i64, Vec<usize>>>,
    /// Most rows any access spans.
    span: i64,
}

impl Accesses {
    /// Adds instruction `n`, with edges from earlier accesses it may conflict with: those whose rows overlap if the base is the same,
    /// all those with another base.
    fn add(&mut self, g: &mut Graph, code: &[CodeInstr], n: usize, version: u32) {
        let i = &code[n].instr;
        let (first, stride) = (i64::from(i.args[2]), i64::from(i.args[3]));
        let (low, high) = (first.min(first + 7 * stride), first.max(first + 7 * stride) + 1);
        self.span = self.span.max(high - low);
        let key = (base_of(i), version);
        let store = i.op.slot() == Slot::VStore;
        let mut conflict = |m: usize| {
            let earlier_stores = code[m].instr.op.slot() == Slot::VStore;
            if store || earlier_stores {
                g.edge(m, n, u32::from(earlier_stores));
            }
        };
        for (k, rows) in &self.groups {
            let range = if *k == key { low - self.span + 1..high } else { i64::MIN..i64::MAX };
            rows.range(range).flat_map(|(_, list)| list).for_each(|&m| conflict(m));
        }
        self.groups.entry(key).or_default().entry(low).or_default().push(n);
    }
}

fn queue_edges(g: &mut Graph, code: &[CodeInstr], chip: &ChipSpec, q: &mut QueueState, n: usize, is_pop: bool) {
    let i = &code[n].instr;
    if is_pop {
        if let Some(p) = q.last_pop {
            g.edge(p, n, 1);
        }
        q.last_pop = Some(n);
        if q.carried > 0 {
            q.carried -= 1;
        } else if let Some((push, left, index)) = q.pending.front_mut() {
            let p = &code[*push].instr;
            let delay = match p.op.timing() {
                Timing::XluTranspose => *chip.latency.xlu_transpose + *index * *chip.latency.xlu_interval,
                Timing::MxuMul => {
                    let halves = (*chip.mxu.dim / 128).max(1);
                    let rows = p.format().map_or(1, |f| chip.mxu_rows_per_cycle(f)).max(1);
                    *chip.mxu.latency + (*index / halves) * 8 / rows
                }
                t => chip.latency(t),
            };
            g.edge(*push, n, delay);
            *left -= 1;
            *index += 1;
            if *left == 0 {
                q.pending.pop_front();
            }
        }
        return;
    }
    if let Some(p) = q.last_push {
        g.edge(p, n, 1);
    }
    q.last_push = Some(n);
    match i.op.timing() {
        Timing::MxuPush | Timing::MxuLatch | Timing::MxuAcc => {}
        Timing::XluTranspose => {
            q.transposes.push(n);
            if q.transposes.len() == 16 {
                q.transposes.clear();
                q.pending.push_back((n, 16, 0));
            }
        }
        Timing::MxuMul => q.pending.push_back((n, mxu_results(i, chip), 0)),
        _ => q.pending.push_back((n, 1, 0)),
    }
}

/// Limits the results in flight of each queue: the pop that makes room comes before the push, as in source order.
fn capacity_edges(g: &mut Graph, code: &[CodeInstr], chip: &ChipSpec, queued: &Queued) {
    let mut pops: FxHashMap<(u8, i32), Vec<usize>> = FxHashMap::default();
    let mut pushed = queued.0.clone();
    let limit = *chip.mxu.result_queue;
    for (n, ci) in code.iter().enumerate() {
        if let Some((kind, unit, true)) = queue_of(&ci.instr) {
            pops.entry((kind, unit)).or_default().push(n);
        }
    }
    for (n, ci) in code.iter().enumerate() {
        let Some((kind, unit, false)) = queue_of(&ci.instr) else { continue };
        let results = results_of(&ci.instr, chip);
        if results == 0 {
            continue;
        }
        let count = pushed.entry((kind, unit)).or_default();
        *count += results;
        // The block's own pops up to here in source order bound what may be outstanding.
        if let Some(list) = pops.get(&(kind, unit)) {
            let before = list.iter().take_while(|&&p| p < n).count() as u32;
            let need = count.saturating_sub(limit).min(before);
            if need > 0 {
                g.edge(list[need as usize - 1], n, 1);
            }
        }
    }
}

/// When results that wait in the MXUs' queues from blocks before can be popped: their pushes are taken to have been issued at the
/// array's pace, the last one just before this block.
fn carried_results(g: &mut Graph, code: &[CodeInstr], chip: &ChipSpec, queued: &Queued) {
    let mut popped: FxHashMap<i32, u32> = FxHashMap::default();
    let Some(format) = code.iter().find(|c| c.instr.op.timing() == Timing::MxuMul).and_then(|c| c.instr.format())
    else {
        return;
    };
    let per_push = format.packing() as u32 * (*chip.mxu.dim / 128).max(1);
    let interval = i64::from(chip.mxu_interval(format));
    for (n, ci) in code.iter().enumerate() {
        if ci.instr.op.timing() != Timing::MxuPop {
            continue;
        }
        let unit = ci.instr.args[0];
        let waiting = queued.0.get(&(2, unit)).copied().unwrap_or(0);
        let index = popped.entry(unit).or_default();
        if *index < waiting {
            let pushes = i64::from(waiting.div_ceil(per_push));
            let push = i64::from(*index / per_push);
            let ready = (push - pushes) * interval + i64::from(*chip.mxu.latency);
            g.nodes[n].ready = ready.max(0) as u64;
        }
        *index += 1;
    }
}

fn heights(g: &mut Graph) {
    for n in (0..g.nodes.len()).rev() {
        let h = g.nodes[n].succs.iter().map(|&(s, l)| g.nodes[s as usize].height + u64::from(l)).max();
        g.nodes[n].height = h.unwrap_or(0);
    }
}

struct Regs {
    free: Vec<i32>,
    map: FxHashMap<i32, i32>,
    uses: FxHashMap<i32, u32>,
}

impl Regs {
    fn new(count: u32) -> Regs {
        Regs { free: (0..count as i32).rev().collect(), map: FxHashMap::default(), uses: FxHashMap::default() }
    }
}

/// Packs `code` into bundles for `chip`. `queued` is what waits in result queues when the block starts. Only instructions less than
/// `window` behind the oldest unscheduled one may overtake it: [`WINDOW`] where registers allow, 1 for the source order.
///
/// # Errors
/// [`RegisterPressure`] if even the source order needs more registers than `regs` has.
pub(super) fn schedule(
    code: &[CodeInstr],
    chip: &ChipSpec,
    regs: RegFile,
    queued: &Queued,
    window: usize,
) -> Result<Vec<Bundle>, RegisterPressure> {
    let live = live_code(code);
    let code = &live[..];
    let mut g = build(code, chip, queued);
    capacity_edges(&mut g, code, chip, queued);
    carried_results(&mut g, code, chip, queued);
    heights(&mut g);
    let mut files = [Regs::new(regs.vregs), Regs::new(regs.masks)];
    for ci in code {
        for (f, a) in ci.instr.operands() {
            match f {
                Field::Vs if a >= VIRTUAL => *files[0].uses.entry(a).or_default() += 1,
                Field::Ms if a >= VIRTUAL => *files[1].uses.entry(a).or_default() += 1,
                _ => {}
            }
        }
    }
    let n = code.len();
    let width: u32 = Slot::ALL.iter().map(|&s| chip.slots(s)).sum();
    let mut done = vec![false; n];
    let mut oldest = 0;
    // Instructions whose operands are ready, in order of preference, and those that become ready at a known cycle.
    let mut ready: BTreeSet<(Reverse<u64>, usize)> = BTreeSet::new();
    let mut waiting: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    // Instructions far behind the oldest wait: they would only fill registers early.
    let mut beyond: BTreeSet<usize> = (0..n).filter(|&i| g.nodes[i].preds == 0).collect();
    let mut unit_free: FxHashMap<UnitKey, u64> = FxHashMap::default();
    let mut bundles = Vec::new();
    let mut cycle = 0u64;
    let mut left = n;
    let reserve = (regs.vregs / 6).max(2) as usize;
    while left > 0 {
        while let Some(&Reverse((at, i))) = waiting.peek() {
            if at > cycle {
                break;
            }
            waiting.pop();
            if i < oldest + window {
                ready.insert((Reverse(g.nodes[i].height), i));
            } else {
                beyond.insert(i);
            }
        }
        while let Some(&i) = beyond.first().filter(|&&i| i < oldest + window) {
            beyond.remove(&i);
            if g.nodes[i].ready > cycle {
                waiting.push(Reverse((g.nodes[i].ready, i)));
            } else {
                ready.insert((Reverse(g.nodes[i].height), i));
            }
        }
        let mut bundle: Vec<Instr> = Vec::new();
        let mut used = [0u32; Slot::ALL.len()];
        let mut immediates = 0;
        let mut dead: Vec<(usize, i32)> = Vec::new();
        let mut pressure_only = true;
        // Instructions that become ready without delay can join the bundle, so scan until nothing changes.
        loop {
            let mut taken: Vec<(Reverse<u64>, usize)> = Vec::new();
            let mut joined: Vec<usize> = Vec::new();
            for &(height, c) in &ready {
                let i = &code[c].instr;
                let slot = i.op.slot();
                let imm = immediates_of(i);
                let unit = unit_of(i, chip);
                let busy = unit.is_some_and(|(u, _)| unit_free.get(&u).copied().unwrap_or(0) > cycle);
                if used[slot as usize] >= chip.slots(slot) || immediates + imm > *chip.slots.immediates || busy {
                    pressure_only = false;
                    continue;
                }
                let defs = |f: Field| i.operands().filter(|(g, a)| *g == f && *a >= VIRTUAL).count();
                let (dv, dm) = (defs(Field::Vd), defs(Field::Md));
                let frees = frees_of(i, &files);
                let keep = if c == oldest || frees[0] >= dv { 0 } else { reserve.min(oldest_distance(c, oldest)) };
                if files[0].free.len() + frees[0] < dv + keep
                    || files[1].free.len() + frees[1] < dm + usize::from(keep > 0 && dm > 0)
                {
                    continue;
                }
                taken.push((height, c));
                used[slot as usize] += 1;
                immediates += imm;
                if let Some((u, interval)) = unit {
                    unit_free.insert(u, cycle + u64::from(interval));
                }
                bundle.push(assign(i, &mut files, &mut dead));
                done[c] = true;
                left -= 1;
                while oldest < n && done[oldest] {
                    oldest += 1;
                }
                for (s, l) in std::mem::take(&mut g.nodes[c].succs) {
                    let node = &mut g.nodes[s as usize];
                    node.preds -= 1;
                    node.ready = node.ready.max(cycle + u64::from(l));
                    if node.preds == 0 {
                        joined.push(s as usize);
                    }
                }
                if bundle.len() as u32 >= width {
                    break;
                }
            }
            for t in &taken {
                ready.remove(t);
            }
            let mut again = false;
            for j in joined {
                if g.nodes[j].ready <= cycle && j < oldest + window {
                    ready.insert((Reverse(g.nodes[j].height), j));
                    again = true;
                } else {
                    waiting.push(Reverse((g.nodes[j].ready, j)));
                }
            }
            if !again || bundle.len() as u32 >= width {
                break;
            }
        }
        for (file, phys) in dead {
            files[file].free.push(phys);
        }
        if bundle.is_empty() {
            if pressure_only && waiting.is_empty() && beyond.first().is_none_or(|&i| i >= oldest + window) {
                return Err(RegisterPressure { available: regs.vregs, masks: regs.masks });
            }
        } else {
            bundle.sort_by_key(|i| i.op.slot());
            bundles.push(Bundle { instrs: bundle });
        }
        cycle += 1;
    }
    Ok(bundles)
}

fn oldest_distance(c: usize, oldest: usize) -> usize {
    // Instructions close to the oldest may use more of the file than those scheduled far ahead.
    (c - oldest.min(c)) / 8 + 1
}

/// Immediates that need one of the bundle's shared 32-bit slots: those beyond 0..=31 or negative.
pub(super) fn immediates_of(i: &Instr) -> u32 {
    i.operands().filter(|(f, a)| *f == Field::Imm && !(0..32).contains(a)).count() as u32
}

/// Registers of each file that issuing `i` frees because it is their last reader.
fn frees_of(i: &Instr, files: &[Regs; 2]) -> [usize; 2] {
    let mut out = [0, 0];
    for (k, (f, a)) in i.operands().enumerate() {
        let file = match f {
            Field::Vs if a >= VIRTUAL => 0,
            Field::Ms if a >= VIRTUAL => 1,
            _ => continue,
        };
        // Count a register at its first operand only.
        if i.operands().take(k).any(|x| x == (f, a)) {
            continue;
        }
        let here = i.operands().filter(|x| *x == (f, a)).count() as u32;
        if files[file].uses.get(&a) == Some(&here) {
            out[file] += 1;
        }
    }
    out
}

/// Gives physical registers to one instruction. A result nobody reads holds its register until the bundle is complete.
fn assign(i: &Instr, files: &mut [Regs; 2], dead: &mut Vec<(usize, i32)>) -> Instr {
    let mut out = *i;
    for (k, &f) in i.op.fields().iter().enumerate() {
        let file = match f {
            Field::Vs => 0,
            Field::Ms => 1,
            _ => continue,
        };
        let a = i.args[k];
        if a < VIRTUAL {
            continue;
        }
        let regs = &mut files[file];
        let phys = regs.map.get(&a).copied().unwrap_or(0);
        out.args[k] = phys;
        if let Some(u) = regs.uses.get_mut(&a) {
            *u -= 1;
            if *u == 0 {
                regs.map.remove(&a);
                regs.free.push(phys);
            }
        }
    }
    for (k, &f) in i.op.fields().iter().enumerate() {
        let file = match f {
            Field::Vd => 0,
            Field::Md => 1,
            _ => continue,
        };
        let a = i.args[k];
        if a < VIRTUAL {
            continue;
        }
        let regs = &mut files[file];
        // A register was found free before this was called.
        let phys = regs.free.pop().unwrap_or(0);
        out.args[k] = phys;
        if regs.uses.get(&a).copied().unwrap_or(0) == 0 {
            dead.push((file, phys));
        } else {
            regs.map.insert(a, phys);
        }
    }
    out
}

/// Drops instructions whose only effect is a virtual register nobody reads.
fn live_code(code: &[CodeInstr]) -> Vec<CodeInstr> {
    let mut needed: rustc_hash::FxHashSet<(Field, i32)> = Default::default();
    let mut keep = vec![false; code.len()];
    for (n, ci) in code.iter().enumerate().rev() {
        let i = &ci.instr;
        let effect = matches!(i.op.slot(), Slot::VStore | Slot::Extended | Slot::Pop | Slot::Dma | Slot::Scalar);
        let wanted = i.operands().any(|(f, a)| match f {
            Field::Vd | Field::Md => a < VIRTUAL || needed.contains(&(f, a)),
            _ => false,
        });
        if effect || wanted || i.op == Op::FlagAdd {
            keep[n] = true;
            for (f, a) in i.operands() {
                match f {
                    Field::Vs => drop(needed.insert((Field::Vd, a))),
                    Field::Ms => drop(needed.insert((Field::Md, a))),
                    _ => {}
                }
            }
        }
    }
    code.iter().zip(keep).filter(|(_, k)| *k).map(|(c, _)| *c).collect()
}
