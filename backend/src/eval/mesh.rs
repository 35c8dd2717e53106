//! The little of Shardy that the evaluator needs: full meshes and how a manual computation cuts its operands.

use crate::hlo::{Attr, Module};
use crate::ops::RuleError;

/// Axes of a mesh, outermost first. Device ids are positions in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mesh {
    pub axes: Vec<(String, usize)>,
}

impl Mesh {
    /// The mesh called `name` in `module`.
    pub fn find(module: &Module, name: &str) -> Result<Mesh, RuleError> {
        let unknown = |what: &str| RuleError(format!("{what} mesh `{name}`"));
        let (_, attr) = module.meshes.iter().find(|(n, _)| n == name).ok_or_else(|| unknown("there is no"))?;
        let Attr::Opaque(text) = attr else { return Err(unknown("cannot read")) };
        if text.contains("device_ids") {
            return Err(unknown("cannot evaluate on the reordered"));
        }
        let mut axes = Vec::new();
        for axis in text.split_once('[').and_then(|(_, t)| t.split_once(']')).map_or("", |(t, _)| t).split(',') {
            let Some((axis, size)) = axis.split_once('=') else { continue };
            let size = size.trim().parse().map_err(|_| unknown("cannot read"))?;
            axes.push((axis.trim().trim_matches('"').to_owned(), size));
        }
        Ok(Mesh { axes })
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.axes.iter().fold(1, |n, (_, s)| n.saturating_mul(*s))
    }

    /// Position of device `id` along the axes `names`, taken as one axis, and its size.
    pub fn position(&self, id: usize, names: &[String]) -> Result<(usize, usize), RuleError> {
        let (mut at, mut size) = (0, 1);
        for name in names {
            let k = self.axes.iter().position(|(n, _)| n == name);
            let k = k.ok_or_else(|| RuleError(format!("cannot evaluate the axis `{name}`")))?;
            let inner: usize = self.axes[k + 1..].iter().map(|(_, s)| s).product();
            at = at * self.axes[k].1 + id / inner % self.axes[k].1;
            size *= self.axes[k].1;
        }
        Ok((at, size))
    }

    /// Groups of devices that differ only along the axes `names`, each in the order of those axes.
    pub fn groups(&self, names: &[String]) -> Result<Vec<Vec<usize>>, RuleError> {
        let rest: Vec<String> = self.axes.iter().map(|(n, _)| n.clone()).filter(|n| !names.contains(n)).collect();
        let (_, count) = self.position(0, &rest)?;
        let (_, size) = self.position(0, names)?;
        let mut groups = vec![vec![0; size]; count];
        for id in 0..self.devices() {
            groups[self.position(id, &rest)?.0][self.position(id, names)?.0] = id;
        }
        Ok(groups)
    }
}

/// How one value is cut: the mesh, and the axes of each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sharding {
    pub mesh: String,
    pub dims: Vec<Vec<String>>,
}

/// The text between the first `open` and its partner, and what follows.
fn bracketed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    let start = text.find(open)? + open.len_utf8();
    let mut depth = 1;
    for (i, c) in text[start..].char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return Some((&text[start..start + i], &text[start + i + close.len_utf8()..]));
            }
        }
    }
    None
}

/// The names in quotes.
pub(crate) fn names(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Parses `sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>, ...]>`.
pub(crate) fn shardings(attr: Option<&Attr>) -> Result<Vec<Sharding>, RuleError> {
    let Some(Attr::Opaque(text)) = attr else { return Err(RuleError("needs shardings".into())) };
    let bad = || RuleError(format!("cannot read the shardings `{text}`"));
    let (_, list) = text.split_once("sharding_per_value").ok_or_else(bad)?;
    let (list, _) = bracketed(list, '[', ']').ok_or_else(bad)?;
    let (mut rest, mut out) = (list, Vec::new());
    while let Some((one, after)) = bracketed(rest, '<', '>') {
        let (mesh, dims) = one.split_once(',').ok_or_else(bad)?;
        let mesh = mesh.trim().strip_prefix('@').ok_or_else(bad)?.to_owned();
        let (mut dims, _) = bracketed(dims, '[', ']').ok_or_else(bad)?;
        let mut axes = Vec::new();
        while let Some((d, after)) = bracketed(dims, '{', '}') {
            // A part of an axis is `"x":(1)2`.
            if d.contains('(') {
                return Err(bad());
            }
            axes.push(names(d));
            dims = after;
        }
        out.push(Sharding { mesh, dims: axes });
        rest = after;
    }
    Ok(out)
}
