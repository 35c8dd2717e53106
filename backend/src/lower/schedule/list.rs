//! The list scheduler: cycle by cycle, the most urgent ready instructions of each slot class.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use rustc_hash::FxHashMap;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::op::{Field, Instr, Slot};
use tpusim_isa::program::Bundle;

use super::super::vcode::{CodeInstr, VIRTUAL};
use super::graph::Graph;
use super::regs::Files;
use super::units::{UnitKey, unit_of};
use super::{RegFile, RegisterPressure, immediates_of};

/// Candidates of a slot class that may fail for want of registers before the class is given up for this cycle.
const PATIENCE: u32 = 4;

/// Slot classes in the order they are filled: those that empty queues and registers first.
const ORDER: [Slot; 7] = [Slot::Pop, Slot::VStore, Slot::Extended, Slot::Valu, Slot::VLoad, Slot::Scalar, Slot::Dma];

/// What an instruction needs of a bundle.
struct Need {
    slot: Slot,
    immediates: u32,
    /// Unit (index into the table of units) and how long it is taken.
    unit: Option<(usize, u64)>,
    vectors: usize,
    masks: usize,
}

type Rank = (Reverse<u64>, usize);

pub(super) struct List<'a> {
    code: &'a [CodeInstr],
    g: Graph,
    needs: Vec<Need>,
    files: Files,
    chip: &'a ChipSpec,
    regs: RegFile,
    window: usize,
    /// Ready instructions by slot class, most urgent first.
    ready: [BTreeSet<Rank>; Slot::ALL.len()],
    /// Instructions that become ready at a known cycle.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// Ready or waiting instructions beyond the window: scheduled early they would only fill registers.
    beyond: BTreeSet<usize>,
    unit_free: Vec<u64>,
    done: Vec<bool>,
    oldest: usize,
    cycle: u64,
}

impl<'a> List<'a> {
    pub fn new(code: &'a [CodeInstr], g: Graph, chip: &'a ChipSpec, regs: RegFile, window: usize) -> Self {
        let mut units: FxHashMap<UnitKey, usize> = FxHashMap::default();
        let needs = code
            .iter()
            .map(|ci| {
                let i = &ci.instr;
                let defs = |f: Field| i.operands().filter(|(g, a)| *g == f && *a >= VIRTUAL).count();
                let unit = unit_of(i, chip).map(|(key, interval)| {
                    let next = units.len();
                    (*units.entry(key).or_insert(next), u64::from(interval))
                });
                Need {
                    slot: i.op.slot(),
                    immediates: immediates_of(i),
                    unit,
                    vectors: defs(Field::Vd),
                    masks: defs(Field::Md),
                }
            })
            .collect();
        List {
            code,
            needs,
            files: Files::new(code, regs),
            chip,
            regs,
            window,
            ready: Default::default(),
            waiting: BinaryHeap::new(),
            beyond: (0..code.len()).filter(|&i| g.nodes[i].preds == 0).collect(),
            unit_free: vec![0; units.len()],
            done: vec![false; code.len()],
            oldest: 0,
            cycle: 0,
            g,
        }
    }

    /// Schedules everything.
    pub fn run(mut self) -> Result<Vec<Bundle>, RegisterPressure> {
        let mut bundles = Vec::new();
        let mut left = self.code.len();
        while left > 0 {
            self.admit();
            let mut bundle: Vec<Instr> = Vec::new();
            let mut used = [0u32; Slot::ALL.len()];
            let mut immediates = 0;
            // Instructions that become ready without delay can join the bundle, so go on until none does.
            while self.fill(&mut bundle, &mut used, &mut immediates) {}
            self.files.end_bundle();
            left -= bundle.len();
            if bundle.is_empty() {
                let stuck = self.waiting.is_empty()
                    && self.beyond.first().is_none_or(|&i| i >= self.oldest + self.window)
                    && self.unit_free.iter().all(|&t| t <= self.cycle);
                if stuck {
                    return Err(RegisterPressure { available: self.regs.vregs, masks: self.regs.masks });
                }
            } else {
                bundle.sort_by_key(|i| i.op.slot());
                bundles.push(Bundle { instrs: bundle });
            }
            self.cycle += 1;
        }
        Ok(bundles)
    }

    fn place(&mut self, i: usize) {
        if i >= self.oldest + self.window {
            self.beyond.insert(i);
        } else if self.g.nodes[i].ready > self.cycle {
            self.waiting.push(Reverse((self.g.nodes[i].ready, i)));
        } else {
            self.ready[self.needs[i].slot as usize].insert((Reverse(self.g.nodes[i].height), i));
        }
    }

    /// Moves what has become ready, or has come into the window, to where it belongs.
    fn admit(&mut self) {
        while let Some(&Reverse((at, i))) = self.waiting.peek() {
            if at > self.cycle {
                break;
            }
            self.waiting.pop();
            self.place(i);
        }
        while let Some(&i) = self.beyond.first().filter(|&&i| i < self.oldest + self.window) {
            self.beyond.remove(&i);
            self.place(i);
        }
    }

    /// Adds what fits; whether anything that could still join became ready.
    fn fill(&mut self, bundle: &mut Vec<Instr>, used: &mut [u32; Slot::ALL.len()], immediates: &mut u32) -> bool {
        let mut again = false;
        for slot in ORDER {
            let mut failures = 0;
            let mut at: Option<Rank> = None;
            while used[slot as usize] < self.chip.slots(slot) && failures < PATIENCE {
                let set = &self.ready[slot as usize];
                let next = match at {
                    None => set.first(),
                    Some(r) => set.range((std::ops::Bound::Excluded(r), std::ops::Bound::Unbounded)).next(),
                };
                let Some(&rank) = next else { break };
                at = Some(rank);
                // The oldest may take the last registers, however many more urgent ones fail for want of them.
                let rank = if failures + 1 == PATIENCE { self.oldest_rank(slot).unwrap_or(rank) } else { rank };
                let c = rank.1;
                let need = &self.needs[c];
                let busy = need.unit.is_some_and(|(u, _)| self.unit_free[u] > self.cycle);
                if busy || *immediates + need.immediates > *self.chip.slots.immediates {
                    continue;
                }
                if !self.registers_for(c) {
                    failures += 1;
                    continue;
                }
                *immediates += need.immediates;
                used[slot as usize] += 1;
                if let Some((u, interval)) = need.unit {
                    self.unit_free[u] = self.cycle + interval;
                }
                self.ready[slot as usize].remove(&rank);
                bundle.push(self.files.assign(&self.code[c].instr));
                again |= self.issued(c);
            }
        }
        again
    }

    fn oldest_rank(&self, slot: Slot) -> Option<Rank> {
        let c = self.oldest;
        let here = c < self.code.len() && self.needs[c].slot == slot;
        let rank = (Reverse(self.g.nodes.get(c)?.height), c);
        (here && self.ready[slot as usize].contains(&rank)).then_some(rank)
    }

    /// Whether there are registers for `c`. Those far ahead of the oldest must leave some.
    fn registers_for(&self, c: usize) -> bool {
        let need = &self.needs[c];
        let (frees, free) = (self.files.frees(&self.code[c].instr), self.files.free());
        let reserve = (self.regs.vregs / 6).max(2) as usize;
        let ahead = c.saturating_sub(self.oldest) / 8 + 1;
        let keep = if c == self.oldest || frees[0] >= need.vectors { 0 } else { reserve.min(ahead) };
        let keep_masks = usize::from(keep > 0 && need.masks > 0);
        free[0] + frees[0] >= need.vectors + keep && free[1] + frees[1] >= need.masks + keep_masks
    }

    /// Releases the successors of `c`; whether one of them is ready in this very cycle.
    fn issued(&mut self, c: usize) -> bool {
        self.done[c] = true;
        while self.oldest < self.done.len() && self.done[self.oldest] {
            self.oldest += 1;
        }
        let mut now = false;
        for (s, latency) in std::mem::take(&mut self.g.nodes[c].succs) {
            let s = s as usize;
            let node = &mut self.g.nodes[s];
            node.preds -= 1;
            node.ready = node.ready.max(self.cycle + u64::from(latency));
            if node.preds == 0 {
                now |= node.ready <= self.cycle;
                self.place(s);
            }
        }
        now
    }
}
