//! What scalar registers hold: sums of multiples of independent unknowns, each with exact bounds.

use std::collections::BTreeMap;

use crate::op::Op;

/// Index of an unknown.
type Id = u32;

/// An unknown: a loop counter, the core's number, or a clamped value of these. Every value it is said to reach is reached.
#[derive(Clone, Debug)]
struct Unknown {
    low: i64,
    high: i64,
    /// Every integer between the bounds is reached.
    dense: bool,
    /// Independent unknowns that decide its value, itself if it is one.
    from: Vec<Id>,
}

/// `base + sum(unknown * factor)`, with no factor of 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    base: i64,
    terms: BTreeMap<Id, i64>,
}

impl Sum {
    pub fn constant(base: i64) -> Sum {
        Sum { base, terms: BTreeMap::new() }
    }

    fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.base)
    }

    /// `self + other * factor`.
    pub fn plus(&self, other: &Sum, factor: i64) -> Option<Sum> {
        let mut sum = self.clone();
        sum.base = sum.base.checked_add(other.base.checked_mul(factor)?)?;
        for (id, f) in &other.terms {
            let slot = sum.terms.entry(*id).or_default();
            *slot = slot.checked_add(f.checked_mul(factor)?)?;
        }
        sum.terms.retain(|_, f| *f != 0);
        Some(sum)
    }
}

/// All unknowns of a walk.
#[derive(Default)]
pub(super) struct Unknowns(Vec<Unknown>);

impl Unknowns {
    /// A new independent unknown that takes every value of `0..count`.
    pub fn counter(&mut self, count: u32) -> Sum {
        let id = self.0.len() as Id;
        if count <= 1 {
            return Sum::constant(0);
        }
        self.0.push(Unknown { low: 0, high: i64::from(count) - 1, dense: true, from: vec![id] });
        Sum { base: 0, terms: BTreeMap::from([(id, 1)]) }
    }

    fn derived(&mut self, (low, high): (i64, i64), dense: bool, of: &[&Sum]) -> Sum {
        if low == high {
            return Sum::constant(low);
        }
        let mut from: Vec<Id> = of.iter().flat_map(|s| self.from(s)).collect();
        from.sort_unstable();
        from.dedup();
        let id = self.0.len() as Id;
        self.0.push(Unknown { low, high, dense, from });
        Sum { base: 0, terms: BTreeMap::from([(id, 1)]) }
    }

    /// Independent unknowns behind a sum, once per term.
    fn from(&self, s: &Sum) -> Vec<Id> {
        s.terms.keys().filter_map(|id| self.0.get(*id as usize)).flat_map(|u| u.from.iter().copied()).collect()
    }

    /// Whether no independent unknown is behind more than one term.
    fn independent(&self, sums: &[&Sum]) -> bool {
        let mut from: Vec<Id> = sums.iter().flat_map(|s| self.from(s)).collect();
        let all = from.len();
        from.sort_unstable();
        from.dedup();
        from.len() == all
    }

    /// Bounds that hold, but are perhaps not reached.
    fn outer(&self, s: &Sum) -> (i128, i128) {
        let mut bounds = (i128::from(s.base), i128::from(s.base));
        for (id, f) in &s.terms {
            let Some(u) = self.0.get(*id as usize) else { continue };
            let (a, b) = (i128::from(u.low) * i128::from(*f), i128::from(u.high) * i128::from(*f));
            bounds = (bounds.0 + a.min(b), bounds.1 + a.max(b));
        }
        bounds
    }

    /// Least and greatest value, both reached; `None` if that cannot be said.
    pub fn bounds(&self, s: &Sum) -> Option<(i128, i128)> {
        self.independent(&[s]).then(|| self.outer(s))
    }

    fn bounds64(&self, s: &Sum) -> Option<(i64, i64)> {
        let (low, high) = self.bounds(s)?;
        Some((i64::try_from(low).ok()?, i64::try_from(high).ok()?))
    }

    /// The sum, unless it may wrap around 32 bits.
    fn fits(&self, s: Sum) -> Option<Sum> {
        let (low, high) = self.outer(&s);
        (low >= i128::from(i32::MIN) && high <= i128::from(i32::MAX)).then_some(s)
    }

    /// Whether the sum takes every value between its bounds.
    fn dense(&self, s: &Sum) -> bool {
        let mut terms = s.terms.iter();
        match (terms.next(), terms.next()) {
            (None, _) => true,
            (Some((id, 1 | -1)), None) => self.0.get(*id as usize).is_some_and(|u| u.dense),
            _ => false,
        }
    }

    /// The sum after the loop that `counter` counts, which left it at `last`. `None` if that cannot be said.
    pub fn after(&self, s: &Sum, counter: &Sum, last: i64) -> Option<Sum> {
        let Some(id) = counter.terms.keys().next() else { return Some(s.clone()) };
        let mut out = s.clone();
        if let Some(factor) = out.terms.remove(id) {
            out.base = out.base.checked_add(factor.checked_mul(last)?)?;
        }
        (!self.from(&out).contains(id)).then_some(out)
    }

    /// The value of a scalar instruction with these operands, read from registers or immediates. `None` if it cannot be said.
    pub fn eval(&mut self, op: Op, args: &[Sum]) -> Option<Sum> {
        let value = match (op, args) {
            (Op::SLi, [a]) => Some(a.clone()),
            (Op::SAdd | Op::SAddi, [a, b]) => a.plus(b, 1),
            (Op::SSub, [a, b]) => a.plus(b, -1),
            (Op::SMul | Op::SMuli, [a, b]) => match (a.as_constant(), b.as_constant()) {
                (_, Some(k)) => Sum::default().plus(a, k),
                (Some(k), _) => Sum::default().plus(b, k),
                _ => None,
            },
            (Op::SMin | Op::SMini, [a, b]) => self.extreme(a, b, i64::min),
            (Op::SMax | Op::SMaxi, [a, b]) => self.extreme(a, b, i64::max),
            (Op::SAnd, [a, b]) => match (a.as_constant(), b.as_constant()) {
                (Some(a), Some(b)) => Some(Sum::constant(a & b)),
                (Some(mask), None) => self.mask(b, mask),
                (None, Some(mask)) => self.mask(a, mask),
                _ => None,
            },
            (Op::SOr, [a, b]) => Some(Sum::constant(a.as_constant()? | b.as_constant()?)),
            (Op::SXor | Op::SXori, [a, b]) => self.xor(a, b),
            (Op::SShl, [a, b]) => match b.as_constant()? {
                k @ 0..=31 => Sum::default().plus(a, 1 << k),
                _ => Some(Sum::constant(0)),
            },
            (Op::SShr, [a, b]) => self.shift(a, b.as_constant()?),
            (Op::SEq | Op::SEqi, [a, b]) => self.equal(&a.plus(b, -1)?),
            (Op::SLt | Op::SLti, [a, b]) => self.negative(&a.plus(b, -1)?),
            (Op::SSel, [c, a, b]) => self.select(c, a, b),
            _ => None,
        };
        value.and_then(|v| self.fits(v))
    }

    fn extreme(&mut self, a: &Sum, b: &Sum, pick: fn(i64, i64) -> i64) -> Option<Sum> {
        // If one always wins, the result is that one.
        let (low, high) = self.outer(&a.plus(b, -1)?);
        if low >= 0 || high <= 0 {
            let a_is_less = high <= 0;
            let less_wins = pick(0, 1) == 0;
            return Some(if a_is_less == less_wins { a.clone() } else { b.clone() });
        }
        let (x, y) = (self.bounds64(a)?, self.bounds64(b)?);
        let dense = self.dense(a) && b.as_constant().is_some() || self.dense(b) && a.as_constant().is_some();
        self.independent(&[a, b]).then(|| self.derived((pick(x.0, y.0), pick(x.1, y.1)), dense, &[a, b]))
    }

    /// `a & mask` for a mask of low bits.
    fn mask(&mut self, a: &Sum, mask: i64) -> Option<Sum> {
        if mask < 0 || mask & (mask + 1) != 0 {
            return None;
        }
        let (low, high) = self.bounds64(a)?;
        if low >= 0 && high <= mask {
            return Some(a.clone());
        }
        (self.dense(a) && high - low >= mask).then(|| self.derived((0, mask), true, &[a]))
    }

    fn xor(&mut self, a: &Sum, b: &Sum) -> Option<Sum> {
        let (a, k) = match (a.as_constant(), b.as_constant()) {
            (Some(a), Some(b)) => return Some(Sum::constant(a ^ b)),
            (None, Some(k)) => (a, k),
            (Some(k), None) => (b, k),
            _ => return None,
        };
        let (low, high) = self.outer(a);
        match k {
            0 => Some(a.clone()),
            // Swaps 0 and 1.
            1 if low >= 0 && high <= 1 => Sum::constant(1).plus(a, -1),
            _ => None,
        }
    }

    fn shift(&mut self, a: &Sum, k: i64) -> Option<Sum> {
        if !(0..32).contains(&k) {
            return Some(Sum::constant(0));
        }
        let (low, high) = self.bounds64(a)?;
        let dense = self.dense(a);
        (low >= 0).then(|| self.derived((low >> k, high >> k), dense, &[a]))
    }

    fn equal(&mut self, difference: &Sum) -> Option<Sum> {
        let (low, high) = self.outer(difference);
        if low > 0 || high < 0 {
            return Some(Sum::constant(0));
        }
        if difference.as_constant() == Some(0) {
            return Some(Sum::constant(1));
        }
        self.dense(difference).then(|| self.derived((0, 1), true, &[difference]))
    }

    fn negative(&mut self, difference: &Sum) -> Option<Sum> {
        let (low, high) = self.outer(difference);
        if low >= 0 || high < 0 {
            return Some(Sum::constant(i64::from(high < 0)));
        }
        self.bounds(difference)?;
        Some(self.derived((0, 1), true, &[difference]))
    }

    fn select(&mut self, c: &Sum, a: &Sum, b: &Sum) -> Option<Sum> {
        if let Some(c) = c.as_constant() {
            return Some(if c != 0 { a.clone() } else { b.clone() });
        }
        let (low, high) = self.bounds64(c)?;
        if low > 0 || high < 0 {
            return Some(a.clone());
        }
        // 0 is certainly reached only as a bound or by a dense sum.
        if low != 0 && high != 0 && !self.dense(c) || !self.independent(&[c, a, b]) {
            return None;
        }
        let (x, y) = (self.bounds64(a)?, self.bounds64(b)?);
        Some(self.derived((x.0.min(y.0), x.1.max(y.1)), false, &[c, a, b]))
    }
}
