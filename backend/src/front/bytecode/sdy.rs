//! Attributes of Shardy, spelled the way its printer spells them.
//!
//! The partitioner parses that text, so that it has one reader for programs that came as text and as bytecode.

use super::decode::Cursor;
use super::error::{ErrorKind, Result};
use crate::hlo::Attr;

/// Names of the dialect's attributes that nest in others without their names.
const NAMES: [&str; 18] = [
    "manual_axes",
    "mesh_axis",
    "mesh",
    "sub_axis_info",
    "axis_ref",
    "dimension_sharding",
    "sharding",
    "sharding_per_value",
    "dim_mapping",
    "tensor_mapping",
    "op_sharding_rule",
    "axis_ref_list",
    "list_of_axis_ref_lists",
    "all_to_all_param",
    "all_to_all_param_list",
    "sharding",
    "sharding_per_value",
    "sharding",
];

/// Decodes an attribute.
pub(super) fn attr(c: &mut Cursor<'_, '_>) -> Result<Attr> {
    let code = c.r.varint()?;
    let Some(name) = usize::try_from(code).ok().and_then(|i| NAMES.get(i)) else {
        return c.fail(ErrorKind::Code { what: "attribute", dialect: "sdy".into(), code });
    };
    let body = body(c, code)?;
    c.charge(body.len() / 64)?;
    // MLIR's rule: what is enclosed in angle brackets follows the name, all else goes with the name into brackets.
    Ok(Attr::Opaque(if body.starts_with('<') { format!("sdy.{name}{body}") } else { format!("sdy<{name}{body}>") }))
}

fn body(c: &mut Cursor<'_, '_>, code: u64) -> Result<String> {
    Ok(match code {
        0 => {
            let n = c.r.count("axes")?;
            let axes = (0..n).map(|_| Ok(quote(&c.str_attr()?))).collect::<Result<Vec<_>>>()?;
            format!("{{{}}}", axes.join(", "))
        }
        1 => format!("{}={}", quote(&c.string()?), c.r.svarint()?),
        2 => {
            let axes = list(c, &[1])?;
            let ids = c.r.svarints()?;
            let ids = if ids.is_empty() { String::new() } else { format!(", device_ids=[{}]", join(&ids)) };
            format!("<[{axes}]{ids}>")
        }
        3 => format!("({}){}", c.r.svarint()?, c.r.svarint()?),
        4 => {
            let name = quote(&c.string()?);
            match optional(c, &[3])? {
                Some(sub) => format!("{name}:{sub}"),
                None => name,
            }
        }
        5 => {
            let axes = list(c, &[4])?;
            let closed = c.r.byte()? != 0;
            let priority = c.r.optional()?.map(|p| format!("p{p}")).unwrap_or_default();
            let open = match (closed, axes.is_empty()) {
                (true, _) => "",
                (false, true) => "?",
                (false, false) => ", ?",
            };
            format!("{{{axes}{open}}}{priority}")
        }
        6 | 15 | 17 => sharding(c, code)?,
        7 | 16 => format!("<[{}]>", list(c, &[6, 15, 17])?),
        8 => c.r.svarints()?.iter().map(|f| factor(*f)).collect(),
        9 => format!("[{}]", list(c, &[8])?),
        10 => rule(c)?,
        11 => format!("{{{}}}", list(c, &[4])?),
        12 => format!("[{}]", list(c, &[11])?),
        13 => format!("{{{}}}:{}->{}", list(c, &[4])?, c.r.svarint()?, c.r.svarint()?),
        14 => format!("[{}]", list(c, &[13])?),
        _ => return c.expected("a Shardy attribute"),
    })
}

fn sharding(c: &mut Cursor<'_, '_>, code: u64) -> Result<String> {
    let mesh = match c.attr()? {
        Attr::Symbol(s) => format!("@{s}"),
        Attr::Opaque(s) => match s.strip_prefix("sdy.") {
            Some(mesh) if mesh.starts_with("mesh<") => mesh.to_owned(),
            _ => return c.expected("a mesh"),
        },
        _ => return c.expected("a mesh"),
    };
    let dims = list(c, &[5])?;
    let mut out = format!("<{mesh}, [{dims}]");
    let replicated = list(c, &[4])?;
    if !replicated.is_empty() {
        out += &format!(", replicated={{{replicated}}}");
    }
    if code != 6 {
        let unreduced = list(c, &[4])?;
        let op = match if code == 17 { c.r.svarint()? } else { 0 } {
            0 => "",
            1 => "max",
            2 => "min",
            v => return c.fail(ErrorKind::Enum(v as u64, "reduction_op")),
        };
        if !unreduced.is_empty() {
            out += &format!(", unreduced={op}{{{unreduced}}}");
        }
    }
    out.push('>');
    Ok(out)
}

fn rule(c: &mut Cursor<'_, '_>) -> Result<String> {
    let sizes = c.r.svarints()?;
    let mut out = format!("<({})->({})", list(c, &[9])?, list(c, &[9])?);
    if !sizes.is_empty() {
        let sizes: Vec<_> = sizes.iter().enumerate().map(|(i, s)| format!("{}={s}", factor(i as i64))).collect();
        out += &format!(" {{{}}}", sizes.join(", "));
    }
    for name in ["reduction", "need_replication", "permutation", "blocked_propagation"] {
        let factors: Vec<_> = c.r.svarints()?.iter().map(|f| factor(*f)).collect();
        if !factors.is_empty() {
            out += &format!(" {name}={{{}}}", factors.join(", "));
        }
    }
    if c.r.byte()? != 0 {
        out += ", custom";
    }
    out.push('>');
    Ok(out)
}

/// Factors are `i` to `z`, then `z_1`, `z_2`, ...
fn factor(i: i64) -> String {
    match u8::try_from(i).ok().and_then(|i| b'i'.checked_add(i)) {
        Some(letter @ b'i'..=b'z') => char::from(letter).to_string(),
        _ => format!("z_{}", i.wrapping_sub(17)),
    }
}

/// The bodies of attributes with one of `codes`, separated by commas.
fn list(c: &mut Cursor<'_, '_>, codes: &[u64]) -> Result<String> {
    let n = c.r.count("attributes")?;
    let mut out = String::new();
    for i in 0..n {
        let a = c.attr()?;
        if i > 0 {
            out += ", ";
        }
        out += &nested(c, a, codes)?;
        c.charge(out.len() / 1024)?;
    }
    Ok(out)
}

fn optional(c: &mut Cursor<'_, '_>, codes: &[u64]) -> Result<Option<String>> {
    let a = c.optional_attr()?;
    a.map(|a| nested(c, a, codes)).transpose()
}

/// The text of an attribute without its dialect and name.
fn nested(c: &Cursor<'_, '_>, attr: Attr, codes: &[u64]) -> Result<String> {
    let names = || codes.iter().filter_map(|k| NAMES.get(usize::try_from(*k).ok()?));
    let body = match &attr {
        Attr::Opaque(s) => names().find_map(|name| {
            let short = s.strip_prefix("sdy.").and_then(|s| s.strip_prefix(name)).filter(|s| s.starts_with('<'));
            let long = s.strip_prefix("sdy<").and_then(|s| s.strip_prefix(name)).and_then(|s| s.strip_suffix('>'));
            // A name may be the beginning of another one.
            short.or(long).filter(|s| !s.starts_with('_'))
        }),
        _ => None,
    };
    match body {
        Some(b) => Ok(b.to_owned()),
        None => c.expected(&format!("sdy.{}", names().next().unwrap_or(&""))),
    }
}

fn join(ids: &[i64]) -> String {
    ids.iter().map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
}

/// A quoted string with MLIR's escapes.
pub(super) fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for b in s.bytes() {
        match b {
            b'\\' => out += "\\\\",
            b'"' | 0..=0x1f | 0x7f.. => out += &format!("\\{b:02X}"),
            _ => out.push(char::from(b)),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_and_quotes() {
        assert_eq!([factor(0), factor(17), factor(18)], ["i", "z", "z_1"]);
        assert_eq!(quote("a\"b\n"), "\"a\\22b\\0A\"");
    }
}
