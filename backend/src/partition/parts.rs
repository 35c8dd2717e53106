//! Parts of mesh axes, `"x":(2)4`: the axis seen as several, outermost first, of which one is meant.
//!
//! The mesh that the partitioner works with has an axis for each part that a program names, or that is needed to cut a dimension
//! by as much of an axis as divides it. Such an axis is called `x:(2)4`: 4 devices, with 2 in what is outside of it.

use std::collections::{BTreeMap, BTreeSet};

use super::mesh::{Axis, Mesh};
use crate::hlo::{Attr, AttrList, Block, Module};

/// Where axes are cut, by name: products of the sizes of the parts outside.
pub(super) type Cuts = BTreeMap<String, BTreeSet<u64>>;

/// Name and devices outside of the part, of an axis `x` or `x:(2)4`.
fn part(name: &str) -> (&str, u64) {
    let of = |(base, rest): (_, &str)| Some((base, rest.split_once(')')?.0.parse().ok()?));
    name.split_once(":(").and_then(of).unwrap_or((name, 1))
}

impl Mesh {
    /// Names and sizes of the axes as the program has them, their parts put together.
    pub fn whole_axes(&self) -> Vec<(String, u64)> {
        let mut out: Vec<(String, u64)> = Vec::new();
        for (name, size) in &self.axes {
            match (part(name).0, out.last_mut()) {
                (base, Some((last, n))) if base == last => *n = n.saturating_mul(*size),
                (base, _) => out.push((base.to_owned(), *size)),
            }
        }
        out
    }

    /// The parts of the axis called `name`, outermost first.
    pub(super) fn parts(&self, name: &str) -> Vec<Axis> {
        let own = |a: &Axis| self.axes.get(usize::from(*a)).is_some_and(|(n, _)| part(n).0 == name);
        (0..self.axes.len() as Axis).filter(own).collect()
    }

    /// The parts of the axis called `name` from `(outside)size`; `None` where it is not cut there.
    pub(super) fn some_parts(&self, name: &str, outside: u64, size: u64) -> Option<Vec<Axis>> {
        let end = outside.checked_mul(size)?;
        let within = |a: &Axis| {
            self.axes.get(usize::from(*a)).is_some_and(|(n, s)| {
                let at = part(n).1;
                at >= outside && at.saturating_mul(*s) <= end
            })
        };
        let found: Vec<Axis> = self.parts(name).into_iter().filter(within).collect();
        (self.count(&found) == size).then_some(found)
    }

    /// Axes with neighbouring parts put together: names, and outside and size of what is only a part.
    pub(super) fn joined(&self, axes: &[Axis]) -> Vec<(String, Option<(u64, u64)>)> {
        let mut out: Vec<(&str, u64, u64)> = Vec::new();
        for &a in axes {
            let Some((name, size)) = self.axes.get(usize::from(a)) else { continue };
            let (base, outside) = part(name);
            match out.last_mut() {
                Some((n, o, s)) if *n == base && *o * *s == outside => *s *= size,
                _ => out.push((base, outside, *size)),
            }
        }
        let all = |name: &str| self.count(&self.parts(name));
        out.into_iter().map(|(n, o, s)| (n.to_owned(), (o != 1 || s != all(n)).then_some((o, s)))).collect()
    }

    /// A mesh of the same devices whose axes are cut.
    pub(super) fn refined(&self, cuts: &Cuts) -> Mesh {
        let mut axes = Vec::new();
        for (name, size) in &self.axes {
            let mut at = 1;
            for &c in cuts.get(name).into_iter().flatten() {
                // Cuts that do not fit the ones before are left out.
                if c > at && c < *size && c % at == 0 && size % c == 0 {
                    axes.push((format!("{name}:({at}){}", c / at), c / at));
                    at = c;
                }
            }
            axes.push(if at == 1 { (name.clone(), *size) } else { (format!("{name}:({at}){}", size / at), size / at) });
        }
        Mesh { axes, ..self.clone() }
    }

    /// Where the axis `a` is cut when its first `size` devices are a part.
    pub(super) fn cut(&self, a: Axis, size: u64) -> Option<(String, u64)> {
        let (name, _) = self.axes.get(usize::from(a))?;
        let (base, outside) = part(name);
        Some((base.to_owned(), outside.checked_mul(size)?))
    }
}

/// The axes that a text names, with outside and size of those of which a part is meant.
pub(super) fn references(text: &str) -> Vec<(String, Option<(u64, u64)>)> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((_, t)) = rest.split_once('"') {
        let Some((name, t)) = t.split_once('"') else { break };
        let of = |t: &str| {
            let (outside, t) = t.strip_prefix(":(")?.split_once(')')?;
            let digits = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
            Some((outside.parse().ok()?, t[..digits].parse().ok()?))
        };
        out.push((name.to_owned(), of(t)));
        rest = t;
    }
    out
}

/// The parts of axes that a program names.
pub(super) fn named(module: &Module) -> Cuts {
    fn list(attrs: &AttrList, cuts: &mut Cuts) {
        for (_, a) in attrs.iter() {
            let Attr::Opaque(text) = a else { continue };
            if !text.contains("\":(") {
                continue;
            }
            for (name, part) in references(text) {
                if let Some((outside, size)) = part {
                    cuts.entry(name).or_default().extend([outside, u64::saturating_mul(outside, size)]);
                }
            }
        }
    }
    fn block(b: &Block, cuts: &mut Cuts) {
        for op in &b.ops {
            list(&op.attrs, cuts);
            op.regions.iter().for_each(|r| block(&r.block, cuts));
        }
    }
    let mut cuts = Cuts::new();
    for f in &module.funcs {
        f.params.iter().for_each(|p| list(&p.attrs, &mut cuts));
        f.results.iter().for_each(|r| list(&r.attrs, &mut cuts));
        block(&f.body, &mut cuts);
    }
    cuts
}

/// Greatest common divisor.
pub(super) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
