//! Meshes of devices and shardings over their axes.

use std::fmt::Write as _;

use super::parts::{Cuts, references};
use crate::hlo::{Attr, Module};

/// Position of an axis in [`Mesh::axes`].
pub type Axis = u8;

/// Most axes a mesh may have: sets of axes are bits of a word.
pub const MAX_AXES: usize = 32;

/// Devices arranged along named axes, outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mesh {
    /// Symbol of the mesh in the module.
    pub name: String,
    /// Names and sizes.
    pub axes: Vec<(String, u64)>,
    /// The device at each position in row-major order; `None` where position and device are the same.
    pub device_ids: Option<Vec<i64>>,
}

impl Mesh {
    /// Number of devices.
    pub fn devices(&self) -> u64 {
        self.axes.iter().fold(1, |n, (_, s)| n.saturating_mul(*s))
    }

    /// Size of an axis.
    pub fn size(&self, a: Axis) -> u64 {
        self.axes.get(usize::from(a)).map_or(1, |(_, s)| *s)
    }

    /// Devices along several axes taken as one.
    pub fn count(&self, axes: &[Axis]) -> u64 {
        axes.iter().fold(1, |n, &a| n.saturating_mul(self.size(a)))
    }

    /// How far apart neighbours along `a` are in row-major order.
    pub fn stride(&self, a: Axis) -> u64 {
        self.axes.iter().skip(usize::from(a) + 1).fold(1, |n, (_, s)| n.saturating_mul(*s))
    }

    /// Coordinate of position `at` along `a`.
    pub fn coordinate(&self, at: u64, a: Axis) -> u64 {
        at / self.stride(a).max(1) % self.size(a).max(1)
    }

    /// Coordinate of position `at` along several axes taken as one, the first outermost.
    pub fn place(&self, at: u64, axes: &[Axis]) -> u64 {
        axes.iter().fold(0, |n, &a| n * self.size(a) + self.coordinate(at, a))
    }

    /// The device at a position.
    pub fn device(&self, at: u64) -> u64 {
        let listed = self.device_ids.as_ref().and_then(|ids| ids.get(usize::try_from(at).ok()?));
        listed.and_then(|&d| u64::try_from(d).ok()).unwrap_or(at)
    }

    /// Names of axes, joined by commas; of a part of an axis `x:(2)4`.
    pub fn names(&self, axes: &[Axis]) -> String {
        let name = |(n, p): (String, Option<(u64, u64)>)| p.map_or(n.clone(), |(o, s)| format!("{n}:({o}){s}"));
        self.joined(axes).into_iter().map(name).collect::<Vec<_>>().join(",")
    }
}

/// Which axes cut each dimension of a value, outermost first. Axes that are not named replicate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sharding {
    /// Axes of each dimension.
    pub dims: Vec<Vec<Axis>>,
}

impl Sharding {
    /// Every device has all of a value of rank `rank`.
    pub fn replicated(rank: usize) -> Sharding {
        Sharding { dims: vec![Vec::new(); rank] }
    }

    /// Whether no axis cuts it.
    pub fn is_replicated(&self) -> bool {
        self.dims.iter().all(Vec::is_empty)
    }

    /// The axes used, as bits.
    pub(super) fn used(&self) -> u32 {
        self.dims.iter().flatten().fold(0, |m, &a| m | bit(a))
    }

    /// The part's shape; a dimension that does not divide is rounded up.
    pub fn local(&self, dims: &[i64], mesh: &Mesh) -> Vec<i64> {
        let n = |d: usize| self.dims.get(d).map_or(1, |axes| mesh.count(axes)).max(1);
        dims.iter().enumerate().map(|(d, &s)| s.div_euclid(n(d) as i64) + i64::from(s % n(d) as i64 != 0)).collect()
    }

    /// The text of Shardy: `[{"x"}, {}]`.
    pub fn text(&self, mesh: &Mesh) -> String {
        let mut out = String::from("[");
        for (i, axes) in self.dims.iter().enumerate() {
            let name = |(n, p): (String, Option<(u64, u64)>)| {
                format!("\"{n}\"{}", p.map(|(o, s)| format!(":({o}){s}")).unwrap_or_default())
            };
            let list = mesh.joined(axes).into_iter().map(name).collect::<Vec<_>>().join(", ");
            let _ = write!(out, "{}{{{list}}}", if i > 0 { ", " } else { "" });
        }
        out + "]"
    }
}

/// The bit of an axis.
pub(super) fn bit(a: Axis) -> u32 {
    1u32.checked_shl(a.into()).unwrap_or(0)
}

/// What a program asks of one dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DimSpec {
    pub axes: Vec<Axis>,
    /// Propagation may add axes.
    pub open: bool,
    /// User priority, 0 first.
    pub priority: u32,
}

/// The text between the first `open` and its partner, and what follows.
fn bracketed(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    let start = text.find(open)? + open.len_utf8();
    let mut depth = 1;
    let mut quoted = false;
    for (i, c) in text[start..].char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            c if c == open => depth += 1,
            c if c == close => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((&text[start..start + i], &text[start + i + close.len_utf8()..]));
        }
    }
    None
}

/// The meshes of a module, seen as one.
#[derive(Clone, Debug, Default)]
pub(super) struct Meshes {
    /// The mesh, its axes in parts.
    pub mesh: Mesh,
    /// The mesh as the program has it.
    pub whole: Mesh,
    cuts: Cuts,
    /// Names that stand for [`Self::mesh`].
    aliases: Vec<String>,
    /// Names of meshes without axes, whose shardings say nothing.
    empty: Vec<String>,
}

impl Meshes {
    /// Reads the `sdy.mesh` symbols.
    pub fn of(module: &Module) -> Result<Meshes, String> {
        let mut all = Meshes::default();
        let mut first = true;
        for (name, attr) in &module.meshes {
            let Attr::Opaque(text) = attr else { return Err(format!("cannot read the mesh @{name}")) };
            let mesh = mesh(name, text)?;
            if mesh.axes.is_empty() {
                all.empty.push(name.clone());
            } else if first {
                (all.mesh, first) = (mesh, false);
                all.aliases.push(name.clone());
            } else if mesh.axes == all.mesh.axes && mesh.device_ids == all.mesh.device_ids {
                all.aliases.push(name.clone());
            } else {
                return Err(format!(
                    "the meshes @{} and @{name} differ; a program is partitioned over one mesh, so give both the same axes",
                    all.mesh.name
                ));
            }
        }
        all.whole = all.mesh.clone();
        all.refine(super::parts::named(module));
        Ok(all)
    }

    /// Cuts axes into more parts; whether there are more now.
    pub fn refine(&mut self, cuts: Cuts) -> bool {
        for (name, at) in cuts {
            self.cuts.entry(name).or_default().extend(at);
        }
        let refined = self.whole.refined(&self.cuts);
        let more = refined.axes.len() > self.mesh.axes.len() && refined.axes.len() <= MAX_AXES;
        if more {
            self.mesh = refined;
        }
        more
    }

    /// Takes `mesh` for a program that declares none.
    pub fn set_mesh(&mut self, mesh: Mesh) {
        self.aliases.push(mesh.name.clone());
        self.whole = mesh.clone();
        self.mesh = mesh;
    }

    /// Whether `name` stands for the mesh.
    pub fn is_mesh(&self, name: &str) -> bool {
        self.aliases.iter().any(|n| n == name)
    }

    /// Parses `sdy.sharding<@mesh, [{"x", ?}p1, {}], replicated={"y"}>` or the part from `<` on.
    pub fn sharding(&self, text: &str) -> Result<Vec<DimSpec>, String> {
        let bad = || format!("cannot read the sharding `{text}`");
        let (body, _) = bracketed(text, '<', '>').ok_or_else(bad)?;
        let (name, rest) = body.split_once(',').ok_or_else(bad)?;
        let name = name.trim().strip_prefix('@').ok_or_else(bad)?.trim_matches('"');
        let empty = self.empty.iter().any(|n| n == name);
        if !empty && !self.is_mesh(name) {
            return Err(format!("the sharding `{text}` is over a mesh that is not in the module"));
        }
        let (mut list, after) = bracketed(rest, '[', ']').ok_or_else(bad)?;
        if after.contains("unreduced={\"") {
            return Err(format!(
                "the sharding `{text}` has unreduced axes, which are not supported; reduce the value first"
            ));
        }
        let mut dims = Vec::new();
        let mut used = 0u32;
        while let Some((d, after)) = bracketed(list, '{', '}') {
            let mut spec = DimSpec { open: d.contains('?'), ..DimSpec::default() };
            for (name, part) in references(d) {
                let axes = match part {
                    None => self.mesh.parts(&name),
                    Some((outside, size)) => self.mesh.some_parts(&name, outside, size).ok_or_else(|| {
                        format!("the sharding `{text}` takes a part of \"{name}\" that does not fit the others")
                    })?,
                };
                if axes.is_empty() {
                    return Err(format!("the mesh has no axis \"{name}\" (`{text}`)"));
                }
                for axis in axes {
                    if used & bit(axis) != 0 {
                        return Err(format!("the sharding `{text}` uses the axis \"{name}\" twice"));
                    }
                    used |= bit(axis);
                    // An axis of one device cuts nothing.
                    if self.mesh.size(axis) > 1 {
                        spec.axes.push(axis);
                    }
                }
            }
            let digits: String = match after.strip_prefix('p') {
                Some(p) => p.chars().take_while(char::is_ascii_digit).collect(),
                None => String::new(),
            };
            spec.priority = digits.parse().unwrap_or(0);
            dims.push(spec);
            list = after;
        }
        Ok(dims)
    }

    /// Parses `sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>, ...]>`.
    pub fn per_value(&self, text: &str) -> Result<Vec<Vec<DimSpec>>, String> {
        let bad = || format!("cannot read the shardings `{text}`");
        let (_, list) = text.split_once("sharding_per_value").ok_or_else(bad)?;
        let (list, _) = bracketed(list, '[', ']').ok_or_else(bad)?;
        let (mut rest, mut out) = (list, Vec::new());
        while let Some((one, after)) = bracketed(rest, '<', '>') {
            out.push(self.sharding(&format!("<{one}>"))?);
            rest = after;
        }
        Ok(out)
    }

    /// The axes named in `text`, as bits.
    pub fn set(&self, text: &str) -> Result<u32, String> {
        crate::eval::mesh::names(text).into_iter().try_fold(0, |m, n| match self.mesh.parts(&n).as_slice() {
            [] => Err(format!("the mesh has no axis \"{n}\"")),
            axes => Ok(axes.iter().fold(m, |m, &a| m | bit(a))),
        })
    }
}

/// Parses `sdy.mesh<["x"=4, "y"=2], device_ids=[...]>`.
fn mesh(name: &str, text: &str) -> Result<Mesh, String> {
    let bad = || format!("cannot read the mesh @{name}: `{text}`");
    let (list, rest) = bracketed(text, '[', ']').ok_or_else(bad)?;
    let mut axes = Vec::new();
    for axis in list.split(',').filter(|a| !a.trim().is_empty()) {
        let (n, size) = axis.rsplit_once('=').ok_or_else(bad)?;
        let size: u64 = size.trim().parse().map_err(|_| bad())?;
        if size == 0 {
            return Err(bad());
        }
        axes.push((n.trim().trim_matches('"').to_owned(), size));
    }
    let mut mesh = Mesh { name: name.to_owned(), axes, device_ids: None };
    if mesh.axes.len() > MAX_AXES {
        return Err(format!("the mesh @{name} has {} axes, at most {MAX_AXES} are supported", mesh.axes.len()));
    }
    if let Some((_, ids)) = rest.split_once("device_ids") {
        let (ids, _) = bracketed(ids, '[', ']').ok_or_else(bad)?;
        let ids: Vec<i64> = ids.split(',').map(|i| i.trim().parse()).collect::<Result<_, _>>().map_err(|_| bad())?;
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        if !mesh.axes.is_empty() {
            if sorted.len() as u64 != mesh.devices() || sorted.iter().enumerate().any(|(i, &d)| d != i as i64) {
                return Err(format!(
                    "the device_ids of the mesh @{name} should be its {} devices, each once",
                    mesh.devices()
                ));
            }
            mesh.device_ids = ids.iter().enumerate().any(|(i, &d)| d != i as i64).then_some(ids);
        }
    }
    Ok(mesh)
}
