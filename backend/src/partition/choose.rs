//! Which axes cut which factors of an op: the choice that costs least.
//!
//! For each axis that cuts an operand or a result, the factors it cuts there are the alternatives, and cutting nothing. Cost is
//! what devices receive to bring operands and results into place, and what they compute, in bytes.

#[cfg(debug_assertions)]
use super::mesh::bit;
use super::mesh::{Axis, Mesh, Sharding};
use super::propagate::split;
use super::reshard::{self, HBM_PER_ICI, Step};
use super::rule::{Dims, Kind, Rule};
use crate::hlo::TensorType;

/// Floating-point operations that take as long as one byte between chips: a chip has about 200 TFLOP/s and 200 GB/s of links.
const FLOPS_PER_ICI: u64 = 1000;
/// Bytes between chips that take as long as one window of a gather or scatter: each is a transfer of its own, of about 25 ns.
const ICI_PER_WINDOW: u64 = 5000;
/// Most combinations that are compared; beyond, axes are decided one after the other.
const MAX_COMBINATIONS: usize = 256;

/// How an op is cut.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// Axes of each factor.
    pub factors: Vec<Vec<Axis>>,
    /// How operands must be cut.
    pub operands: Vec<Sharding>,
    /// How results are cut.
    pub results: Vec<Sharding>,
    /// Axes whose devices hold partial results.
    pub partial: Vec<Axis>,
    /// Axes whose devices hold results that the op's own reducer has yet to combine.
    pub fold: Vec<Axis>,
}

/// What is known of the op's surroundings.
pub(super) struct Around<'a> {
    pub rule: &'a Rule,
    pub mesh: &'a Mesh,
    /// Types of operands, then results, uncut.
    pub types: &'a [TensorType],
    /// How operands are cut, then how results should be.
    pub shardings: Vec<&'a Sharding>,
    /// Number of operands.
    pub operands: usize,
    /// Multiplications and additions in all, of a product; else 0.
    pub flops: u64,
    /// The operand that says where windows lie, and its elements for each: of gathers and scatters.
    pub windows: Option<(usize, u64)>,
    /// How many partial results are added up before they are combined.
    pub terms: u64,
    /// Any choice instead of the cheapest: which one, for tests.
    pub shuffle: Option<u64>,
}

/// The sharding of a tensor by its factors; `None` where a minor factor is cut and a major one is not cut to pieces.
fn compose(dims: &Dims, factors: &[Vec<Axis>], a: &Around<'_>) -> Option<Sharding> {
    let mut out = Sharding { dims: Vec::with_capacity(dims.len()) };
    for d in dims {
        let (mut axes, mut full) = (Vec::new(), true);
        for &f in d {
            if !factors[f].is_empty() && !full {
                return None;
            }
            axes.extend(&factors[f]);
            full &= a.mesh.count(&factors[f]) as i64 == a.rule.factors[f].size;
        }
        out.dims.push(axes);
    }
    Some(out)
}

impl Around<'_> {
    fn choice(&self, factors: Vec<Vec<Axis>>) -> Option<Choice> {
        let fits = |(f, axes): (usize, &Vec<Axis>)| self.rule.factors[f].size % self.mesh.count(axes) as i64 == 0;
        if !factors.iter().enumerate().all(fits) {
            return None;
        }
        let all: Vec<Sharding> = self.rule.tensors.iter().map(|d| compose(d, &factors, self)).collect::<Option<_>>()?;
        let (operands, results) = all.split_at(self.operands);
        let (mut partial, mut fold): (Vec<Axis>, Vec<Axis>) = Default::default();
        for (f, axes) in factors.iter().enumerate() {
            let of = |ts: &[Dims]| ts.iter().flatten().any(|d| d.contains(&f));
            let missing = !of(&self.rule.tensors[self.operands..]);
            match self.rule.factors[f].kind {
                Kind::Fold => fold.extend(axes),
                kind if missing && kind != Kind::Pass => partial.extend(axes),
                _ => {}
            }
        }
        partial.sort_unstable();
        Some(Choice { operands: operands.to_vec(), results: results.to_vec(), factors, partial, fold })
    }

    fn cost(&self, c: &Choice) -> u64 {
        let mut total = 0u64;
        let bytes = |t: &TensorType| t.bytes().unwrap_or(0);
        let local = |s: &Sharding, b: u64| b / s.dims.iter().map(|a| self.mesh.count(a)).product::<u64>().max(1);
        if let Some((i, each)) = self.windows
            && let (Some(t), Some(s)) = (self.types.get(i), c.operands.get(i))
        {
            let windows = local(s, t.elements().unwrap_or(0)) / each.max(1);
            total = windows.saturating_mul(ICI_PER_WINDOW);
        }
        let mut touched = 0u64;
        for (i, t) in self.types.iter().enumerate() {
            let at = match i.checked_sub(self.operands) {
                None => {
                    let steps = reshard::plan(self.shardings[i], &c.operands[i], self.mesh);
                    total = total.saturating_add(reshard::cost(self.shardings[i], &steps, bytes(t), self.mesh));
                    &c.operands[i]
                }
                Some(r) => {
                    let steps = reshard::combine(&c.results[r], &c.partial, self.shardings[i], self.mesh);
                    let cost = reshard::cost(&c.results[r], &steps, bytes(t), self.mesh);
                    let shared = if c.partial.is_empty() { 1 } else { self.terms.max(1) };
                    let folded = local(&c.results[r], bytes(t)).saturating_mul(self.mesh.count(&c.fold) - 1);
                    total = total.saturating_add(cost / shared).saturating_add(folded);
                    &c.results[r]
                }
            };
            touched = touched.saturating_add(local(at, bytes(t)));
        }
        let cut: u64 = c.factors.iter().map(|a| self.mesh.count(a)).fold(1, u64::saturating_mul);
        total.saturating_add(touched / HBM_PER_ICI).saturating_add(self.flops / cut.max(1) / FLOPS_PER_ICI)
    }

    /// The cheapest choice.
    pub fn choose(&self) -> Choice {
        let none = || Choice {
            factors: vec![Vec::new(); self.rule.factors.len()],
            operands: self.rule.tensors[..self.operands].iter().map(|d| Sharding::replicated(d.len())).collect(),
            results: self.rule.tensors[self.operands..].iter().map(|d| Sharding::replicated(d.len())).collect(),
            partial: Vec::new(),
            fold: Vec::new(),
        };
        // The order of the axes of each factor, results first, and the factors of each axis.
        let mut order: Vec<Vec<Axis>> = vec![Vec::new(); self.rule.factors.len()];
        let results = self.operands..self.types.len();
        for i in results.chain(0..self.operands) {
            for (axes, factors) in self.shardings[i].dims.iter().zip(&self.rule.tensors[i]) {
                for (f, axes) in factors.iter().zip(split(axes, factors, self.rule, self.mesh)) {
                    axes.into_iter().for_each(|a| {
                        if !order[*f].contains(&a) {
                            order[*f].push(a)
                        }
                    });
                }
            }
        }
        let mut axes: Vec<(Axis, Vec<usize>)> = Vec::new();
        for a in 0..self.mesh.axes.len() as Axis {
            let of: Vec<usize> = (0..order.len()).filter(|&f| order[f].contains(&a)).collect();
            if !of.is_empty() {
                axes.push((a, of));
            }
        }
        if axes.is_empty() {
            return none();
        }
        let pick = |taken: &[usize]| {
            let cuts = |f: usize, a: Axis| axes.iter().zip(taken).any(|((x, of), &k)| *x == a && of.get(k) == Some(&f));
            let factors = order.iter().enumerate().map(|(f, o)| o.iter().copied().filter(|&a| cuts(f, a)).collect());
            self.choice(factors.collect())
        };
        // The first of equal cost stays: what cuts most.
        let mut best: Option<(u64, Vec<usize>, Choice)> = None;
        let mut taken = vec![0usize; axes.len()];
        let consider = |taken: &[usize], best: &mut Option<(u64, Vec<usize>, Choice)>| {
            if let Some(c) = pick(taken) {
                let cost = self.shuffle.map_or_else(|| self.cost(&c), |seed| shuffled(seed, taken));
                if best.as_ref().is_none_or(|b| cost < b.0) {
                    *best = Some((cost, taken.to_vec(), c));
                }
            }
        };
        let combinations = axes.iter().fold(1usize, |n, (_, of)| n.saturating_mul(of.len() + 1));
        if combinations <= MAX_COMBINATIONS {
            for mut n in 0..combinations {
                for (t, (_, of)) in taken.iter_mut().zip(&axes) {
                    *t = n % (of.len() + 1);
                    n /= of.len() + 1;
                }
                consider(&taken, &mut best);
            }
        } else {
            for i in 0..axes.len() {
                for k in 0..=axes[i].1.len() {
                    taken[i] = k;
                    consider(&taken, &mut best);
                }
                if let Some((_, t, _)) = &best {
                    taken.clone_from(t);
                }
            }
        }
        best.map_or_else(none, |b| b.2)
    }
}

/// A number that looks like any other.
fn shuffled(seed: u64, taken: &[usize]) -> u64 {
    let mix = |h: u64, k: u64| (h ^ k).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    taken.iter().fold(mix(seed, 1), |h, &k| mix(h, k as u64))
}

/// The steps that bring a result of an op into place.
pub(super) fn finish(c: &Choice, r: usize, want: &Sharding, mesh: &Mesh) -> Vec<Step> {
    reshard::combine(&c.results[r], &c.partial, want, mesh)
}

/// Axes of `s` as bits; an axis must not cut two dimensions.
#[cfg(debug_assertions)]
pub(super) fn valid(s: &Sharding) -> bool {
    let all: Vec<Axis> = s.dims.iter().flatten().copied().collect();
    all.iter().fold(0u32, |m, &a| m | bit(a)).count_ones() as usize == all.len()
}
