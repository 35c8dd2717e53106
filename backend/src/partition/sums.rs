//! Sums of products, `x·a + y·b + z·c`: partial products along the same axes are added first and combined once.

use rustc_hash::FxHashMap;

use crate::hlo::{Block, Func, Opcode, ValueId};

/// Which values are terms of one sum.
pub(super) struct Sums {
    /// Products in the sum that a value is a term of.
    terms: FxHashMap<ValueId, u64>,
}

impl Sums {
    /// The sums of `func`.
    pub fn of(func: &Func) -> Sums {
        let mut uses = vec![0u32; func.values.len()];
        count(&func.body, &mut uses);
        let mut sums = Sums { terms: FxHashMap::default() };
        sums.block(&func.body, &uses);
        sums
    }

    fn block(&mut self, block: &Block, uses: &[u32]) {
        // Products below each value of this block.
        let mut leaves: FxHashMap<ValueId, u64> = FxHashMap::default();
        for op in &block.ops {
            let Some(&r) = op.results.first() else { continue };
            match op.opcode {
                Opcode::DotGeneral | Opcode::Dot => {
                    leaves.insert(r, 1);
                }
                Opcode::Add => {
                    let of = |v: &ValueId| leaves.get(v).copied().filter(|_| uses[usize::from(*v)] == 1);
                    // Only where both are sums of products is there something to put off.
                    if let (Some(a), Some(b)) = (of(&op.operands[0]), of(&op.operands[1])) {
                        leaves.insert(r, a + b);
                    }
                }
                _ => op.regions.iter().for_each(|r| self.block(&r.block, uses)),
            }
        }
        for op in block.ops.iter().rev().filter(|op| op.opcode == Opcode::Add) {
            let Some(n) = op.results.first().and_then(|r| leaves.get(r)).copied() else { continue };
            let n = op.results.first().and_then(|r| self.terms.get(r)).copied().unwrap_or(n);
            self.terms.extend(op.operands.iter().map(|&v| (v, n)));
        }
    }

    /// Products in the sum that `v` is a term of.
    pub fn terms(&self, v: ValueId) -> u64 {
        self.terms.get(&v).copied().unwrap_or(1)
    }

    /// Whether `v` is only added to another term of its sum.
    pub fn continues(&self, v: ValueId) -> bool {
        self.terms.contains_key(&v)
    }
}

fn count(block: &Block, uses: &mut [u32]) {
    for op in &block.ops {
        op.operands.iter().for_each(|&v| uses[usize::from(v)] += 1);
        op.regions.iter().for_each(|r| count(&r.block, uses));
    }
}
