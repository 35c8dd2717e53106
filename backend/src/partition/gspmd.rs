//! The older way to write shardings, `mhlo.sharding = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"`.
//!
//! It has no mesh: devices are an iota, reshaped, transposed, and dealt to the tiles of the dimensions. The mesh is the coarsest
//! one in which every sharding of the program cuts by whole axes.

use super::mesh::{DimSpec, MAX_AXES, Mesh};
use crate::hlo::{Attr, Block, Module};

/// Devices `stride` apart, `size` of them.
type Atom = (u64, u64);

/// Reads `<name>=[1,2,3]`-like lists after `open`.
fn list(text: &str, open: &str, close: char) -> Option<Vec<u64>> {
    let (_, t) = text.split_once(open)?;
    let (t, _) = t.split_once(close)?;
    t.split(',').map(|n| n.trim().parse().ok()).collect()
}

/// The devices of each dimension's tiles, outermost first; nothing for a replicated value.
fn tiles(text: &str) -> Result<Vec<Vec<Atom>>, String> {
    let bad = || format!("cannot read the sharding `{text}`");
    let body = text.trim();
    if body == "{replicated}" || body.is_empty() {
        return Ok(Vec::new());
    }
    if body.starts_with("{{") || body.contains("maximal") || body.contains("manual") {
        return Err(format!(
            "the sharding `{text}` is not supported; export the program with Shardy's annotations (sdy.sharding)"
        ));
    }
    let dims = list(body, "devices=[", ']').ok_or_else(bad)?;
    let total = dims.iter().fold(1u64, |n, &d| n.saturating_mul(d));
    let (shape, perm) = match body.split_once("<=[") {
        Some(_) => {
            let shape = list(body, "<=[", ']').ok_or_else(bad)?;
            let perm = match body.contains("]T(") {
                true => list(body, "]T(", ')').ok_or_else(bad)?,
                false => (0..shape.len() as u64).collect(),
            };
            (shape, perm)
        }
        None => {
            let (_, rest) = body.split_once(']').ok_or_else(bad)?;
            let ids = rest.split([' ', '}']).next().unwrap_or("").split(',');
            let iota = ids.enumerate().all(|(i, d)| d.trim().parse() == Ok(i));
            if !iota {
                return Err(format!(
                    "the sharding `{text}` lists devices in an order of its own, which is not supported"
                ));
            }
            (vec![total], vec![0])
        }
    };
    let mut sorted = perm.clone();
    sorted.sort_unstable();
    if sorted.iter().enumerate().any(|(i, &p)| p != i as u64)
        || perm.len() != shape.len()
        || shape.iter().fold(1u64, |n, &d| n.saturating_mul(d)) != total
        || total == 0
    {
        return Err(bad());
    }
    let stride = |k: usize| shape[k + 1..].iter().product::<u64>();
    // What is left to deal out: (stride, size) of each axis, in the order of the transpose.
    let mut left: Vec<Atom> = perm.iter().map(|&k| (stride(k as usize), shape[k as usize])).rev().collect();
    let mut out = Vec::new();
    for &d in &dims {
        let (mut need, mut atoms) = (d, Vec::new());
        while need > 1 {
            let (stride, size) = left.pop().ok_or_else(bad)?;
            if size <= need && need % size == 0 {
                atoms.push((stride, size));
                need /= size;
            } else if size % need == 0 {
                // The outer part goes to this dimension.
                atoms.push((stride * (size / need), need));
                left.push((stride, size / need));
                need = 1;
            } else {
                return Err(format!("the sharding `{text}` cuts by a part of an axis, which is not supported"));
            }
        }
        out.push(atoms.into_iter().filter(|a| a.1 > 1).collect());
    }
    Ok(out)
}

fn texts<'m>(module: &'m Module, out: &mut Vec<&'m str>) {
    fn block<'m>(b: &'m Block, out: &mut Vec<&'m str>) {
        for op in &b.ops {
            if let Some(Attr::Str(t)) = op.attrs.get("mhlo.sharding") {
                out.push(t);
            }
            op.regions.iter().for_each(|r| block(&r.block, out));
        }
    }
    for f in &module.funcs {
        let attrs = f.params.iter().map(|p| &p.attrs).chain(f.results.iter().map(|r| &r.attrs));
        out.extend(attrs.filter_map(|a| match a.get("mhlo.sharding") {
            Some(Attr::Str(t)) => Some(t.as_str()),
            _ => None,
        }));
        block(&f.body, out);
    }
}

/// The mesh of a program without one.
pub(super) fn mesh(module: &Module, devices: u64) -> Result<Mesh, String> {
    let mut all = Vec::new();
    texts(module, &mut all);
    let mut cuts = vec![devices, 1];
    for text in all {
        for (stride, size) in tiles(text)?.into_iter().flatten() {
            cuts.extend([stride, stride.saturating_mul(size)]);
        }
    }
    cuts.sort_unstable();
    cuts.dedup();
    let mut axes: Vec<(String, u64)> = Vec::new();
    for w in cuts.windows(2) {
        if w[1] > devices || w[1] % w[0] != 0 {
            return Err(format!("the shardings of the program do not fit one mesh of {devices} devices"));
        }
        axes.push((String::new(), w[1] / w[0]));
    }
    axes.reverse();
    if axes.len() > MAX_AXES {
        return Err(format!("the shardings of the program need a mesh of {} axes", axes.len()));
    }
    axes.iter_mut().enumerate().for_each(|(i, a)| a.0 = format!("axis_{i}"));
    Ok(Mesh { name: "mesh".to_owned(), axes, device_ids: None })
}

/// The sharding `text` of a value of rank `rank` over `mesh`, which [`mesh`] made.
pub(super) fn sharding(text: &str, mesh: &Mesh, rank: usize) -> Result<Vec<DimSpec>, String> {
    let mut dims = Vec::new();
    for atoms in tiles(text)?.into_iter().take(rank) {
        let mut spec = DimSpec::default();
        for (stride, size) in atoms {
            for a in 0..mesh.axes.len() as u8 {
                let s = mesh.stride(a);
                if s >= stride && s < stride.saturating_mul(size) && mesh.size(a) > 1 {
                    spec.axes.push(a);
                }
            }
        }
        dims.push(spec);
    }
    dims.resize(rank, DimSpec::default());
    Ok(dims)
}
