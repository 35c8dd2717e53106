//! The dependence graph of a block.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Field, Instr, Slot, Timing};

use super::super::vcode::CodeInstr;
use super::units::{Queued, mxu_results, queue_of, results_of};

/// An instruction and what must come after it.
pub(super) struct Node {
    /// Later instructions and the least cycles until they may issue.
    pub succs: Vec<(u32, u32)>,
    /// Earlier instructions not issued yet.
    pub preds: u32,
    /// Longest path to the end of the block.
    pub height: u64,
    /// First cycle it may issue in, as far as is known.
    pub ready: u64,
}

/// Dependences of a block, by position.
pub(super) struct Graph {
    pub nodes: Vec<Node>,
}

impl Graph {
    /// The graph of `code`, with heights. `queued` is what waits in result queues when the block starts.
    pub fn new(code: &[CodeInstr], chip: &ChipSpec, queued: &Queued) -> Graph {
        let mut g = build(code, chip, queued);
        capacity_edges(&mut g, code, chip, queued);
        carried_results(&mut g, code, chip, queued);
        heights(&mut g);
        g
    }

    fn edge(&mut self, from: usize, to: usize, latency: u32) {
        if from != to {
            self.nodes[from].succs.push((to as u32, latency));
            self.nodes[to].preds += 1;
        }
    }
}

#[derive(Default)]
struct QueueState {
    last_push: Option<usize>,
    last_pop: Option<usize>,
    /// Pushes not yet matched with pops: (instruction, results left, position of the next result, transpose).
    pending: VecDeque<(usize, u32, u32)>,
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
    let mut smem = Smem::default();
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
        smem.add(&mut g, i, n);
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

/// Accesses to SMEM, which is one object: DMAs and waits, that may move its data, the last store, and the loads since.
#[derive(Default)]
struct Smem {
    sync: Option<usize>,
    store: Option<usize>,
    loads: Vec<usize>,
}

impl Smem {
    fn add(&mut self, g: &mut Graph, i: &Instr, n: usize) {
        let load = i.op.timing() == Timing::ScalarLoad;
        let store = i.op.timing() == Timing::ScalarStore;
        let sync = i.op.slot() == Slot::Dma;
        if !(load || store || sync) {
            return;
        }
        if !sync {
            self.sync.into_iter().for_each(|m| g.edge(m, n, 1));
        }
        self.store.into_iter().for_each(|m| g.edge(m, n, 1));
        if load {
            self.loads.push(n);
            return;
        }
        self.loads.drain(..).for_each(|m| g.edge(m, n, 1));
        if sync {
            self.sync = Some(n);
            self.store = None;
        } else {
            self.store = Some(n);
        }
    }
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
