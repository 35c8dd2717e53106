//! Attributes and constants as text.

use std::fmt::Write;

use tpusim_isa::num::{DType, DTypeKind};

use super::number::{decode_float, encode_float};
use super::{Attr, AttrList, ConvDims, DotDims, Literal, Opcode, ReplicaGroups, Type};

/// Constants with more elements than this are printed as their bytes.
const MAX_LISTED: u64 = 256;

fn is_bare(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && s.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.'))
}

/// A string in quotes.
pub(super) fn quoted(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\22"),
            '\\' => out.push_str("\\5C"),
            c if c.is_control() => {
                let mut buffer = [0; 4];
                for b in c.encode_utf8(&mut buffer).bytes() {
                    let _ = write!(out, "\\{b:02X}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The name of an attribute.
pub(super) fn name(s: &str) -> String {
    if is_bare(s) { s.to_owned() } else { quoted(s) }
}

/// A symbol with its `@`.
pub(super) fn symbol(s: &str) -> String {
    if is_bare(s) { format!("@{s}") } else { format!("@{}", quoted(s)) }
}

/// `{a = 1, b}` of an op of kind `opcode`.
pub(super) fn attr_dict(list: &AttrList, opcode: Option<Opcode>) -> String {
    let item = |(n, a): (&str, &Attr)| match a {
        Attr::Unit => name(n),
        _ => format!("{} = {}", name(n), attr(n, a, opcode)),
    };
    format!("{{{}}}", list.iter().map(item).collect::<Vec<_>>().join(", "))
}

pub(super) fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

/// The attribute called `name`: the name tells which enum a value is of.
pub(super) fn attr(name: &str, a: &Attr, opcode: Option<Opcode>) -> String {
    match a {
        Attr::Unit => "unit".to_owned(),
        Attr::Bool(b) => b.to_string(),
        Attr::Int(i, t) => match t {
            Type::Scalar(DType::U64) => format!("{} : {t}", *i as u64),
            _ => format!("{i} : {t}"),
        },
        Attr::Float(v, t) => match t {
            Type::Scalar(d) => format!("{} : {t}", float(*d, encode_float(*d, *v))),
            _ => format!("{v:?} : {t}"),
        },
        Attr::Str(s) => quoted(s),
        Attr::Type(t) => t.to_string(),
        Attr::Symbol(s) => s.split("::").map(symbol).collect::<Vec<_>>().join("::"),
        Attr::Ints(v) if name.ends_with("layouts") || name.ends_with("tilings") => {
            if v.is_empty() {
                "dense<> : tensor<0xindex>".to_owned()
            } else {
                format!("dense<[{}]> : tensor<{}xindex>", join(v), v.len())
            }
        }
        Attr::Ints(v) if v.is_empty() => "array<i64>".to_owned(),
        Attr::Ints(v) => format!("array<i64: {}>", join(v)),
        Attr::Bools(v) if v.is_empty() => "array<i1>".to_owned(),
        Attr::Bools(v) => format!("array<i1: {}>", join(v)),
        Attr::Pairs(p) => table(&p.iter().map(|x| x.to_vec()).collect::<Vec<_>>(), 2),
        Attr::Array(v) => format!("[{}]", v.iter().map(|x| attr(name, x, opcode)).collect::<Vec<_>>().join(", ")),
        Attr::Dict(d) => attr_dict(d, opcode),
        Attr::Dense(l) => dense(l),
        Attr::Enum(s) => {
            let dialect = if opcode.is_some_and(|o| o.name().starts_with("chlo.")) { "chlo" } else { "stablehlo" };
            format!("#{dialect}<{} {s}>", enum_kind(name))
        }
        Attr::Dot(d) => dot(d),
        Attr::DotAlgorithm(d) => format!(
            "#stablehlo.dot_algorithm<lhs_precision_type = {}, rhs_precision_type = {}, accumulation_type = {}, \
             lhs_component_count = {}, rhs_component_count = {}, num_primitive_operations = {}, \
             allow_imprecise_accumulation = {}>",
            d.lhs_precision,
            d.rhs_precision,
            d.accumulation,
            d.lhs_components,
            d.rhs_components,
            d.primitive_operations,
            d.imprecise_accumulation
        ),
        Attr::Conv(c) => conv(c),
        Attr::Gather(g) => structure(
            "gather",
            &[
                ("offset_dims", &g.offset_dims),
                ("collapsed_slice_dims", &g.collapsed_slice_dims),
                ("operand_batching_dims", &g.operand_batching_dims),
                ("start_indices_batching_dims", &g.start_indices_batching_dims),
                ("start_index_map", &g.start_index_map),
            ],
            g.index_vector_dim,
        ),
        Attr::Scatter(s) => structure(
            "scatter",
            &[
                ("update_window_dims", &s.update_window_dims),
                ("inserted_window_dims", &s.inserted_window_dims),
                ("input_batching_dims", &s.input_batching_dims),
                ("scatter_indices_batching_dims", &s.scatter_indices_batching_dims),
                ("scatter_dims_to_operand_dims", &s.scatter_dims_to_operand_dims),
            ],
            s.index_vector_dim,
        ),
        Attr::Channel { handle, kind } => format!("#stablehlo.channel_handle<handle = {handle}, type = {kind}>"),
        Attr::Alias(x) => format!(
            "#stablehlo.output_operand_alias<output_tuple_indices = [{}], operand_index = {}, operand_tuple_indices = [{}]>",
            join(&x.output_tuple_indices),
            x.operand_index,
            join(&x.operand_tuple_indices)
        ),
        Attr::Groups(ReplicaGroups::Listed(rows)) => table(rows, rows.iter().map(Vec::len).max().unwrap_or(0)),
        Attr::Groups(ReplicaGroups::MeshAxes(mesh, axes)) => format!(
            "#stablehlo.replica_group_mesh_axes<mesh = {}, axes = [{}]>",
            attr("mesh", mesh, opcode),
            axes.iter().map(|x| attr("axes", x, opcode)).collect::<Vec<_>>().join(", ")
        ),
        Attr::Opaque(s) => format!("#{s}"),
    }
}

fn enum_kind(name: &str) -> &str {
    match name {
        "compare_type" => "comparison_type",
        "precision_config" => "precision",
        "transpose_a" => "transpose",
        "comparison_direction" | "fft_type" | "rng_algorithm" | "rng_distribution" => name,
        "api_version" => "custom_call_api_version",
        _ => "precision",
    }
}

/// Rows of integers; short rows are filled with -1 as groups are.
fn table(rows: &[Vec<i64>], width: usize) -> String {
    if rows.is_empty() || width == 0 {
        return format!("dense<> : tensor<{}x{width}xi64>", rows.len());
    }
    let row = |r: &Vec<i64>| {
        let mut r = r.clone();
        r.resize(width, -1);
        format!("[{}]", join(&r))
    };
    let all: Vec<String> = rows.iter().map(row).collect();
    format!("dense<[{}]> : tensor<{}x{width}xi64>", all.join(", "), rows.len())
}

fn dot(d: &DotDims) -> String {
    let fields = [
        ("lhs_batching_dimensions", &d.lhs_batch),
        ("rhs_batching_dimensions", &d.rhs_batch),
        ("lhs_contracting_dimensions", &d.lhs_contract),
        ("rhs_contracting_dimensions", &d.rhs_contract),
    ];
    let text: Vec<String> =
        fields.iter().filter(|(_, v)| !v.is_empty()).map(|(n, v)| format!("{n} = [{}]", join(v))).collect();
    format!("#stablehlo.dot<{}>", text.join(", "))
}

fn structure(kind: &str, lists: &[(&str, &Vec<i64>)], index_vector_dim: i64) -> String {
    let mut fields: Vec<String> =
        lists.iter().filter(|(_, v)| !v.is_empty()).map(|(n, v)| format!("{n} = [{}]", join(v))).collect();
    if index_vector_dim != 0 {
        fields.push(format!("index_vector_dim = {index_vector_dim}"));
    }
    format!("#stablehlo.{kind}<{}>", fields.join(", "))
}

/// The field form, which can say everything.
fn conv(c: &ConvDims) -> String {
    format!(
        "#stablehlo.conv<raw input_batch_dimension = {}, input_feature_dimension = {}, input_spatial_dimensions = [{}], \
         kernel_input_feature_dimension = {}, kernel_output_feature_dimension = {}, kernel_spatial_dimensions = [{}], \
         output_batch_dimension = {}, output_feature_dimension = {}, output_spatial_dimensions = [{}]>",
        c.input_batch,
        c.input_feature,
        join(&c.input_spatial),
        c.kernel_input_feature,
        c.kernel_output_feature,
        join(&c.kernel_spatial),
        c.output_batch,
        c.output_feature,
        join(&c.output_spatial)
    )
}

/// A float of type `d` by its bits: the shortest decimal that gives the same bits, or the bits for what is no number.
fn float(d: DType, bits: u64) -> String {
    let v = decode_float(d, bits);
    let hex = || format!("0x{bits:0width$X}", width = d.bytes() * 2);
    if !v.is_finite() {
        return hex();
    }
    let short = if d == DType::F32 { format!("{:?}", v as f32) } else { format!("{v:?}") };
    let text = match short.split_once('e') {
        Some((m, e)) if !m.contains('.') => format!("{m}.0e{e}"),
        _ => short,
    };
    let back = text.parse().map(|v| encode_float(d, v));
    if back == Ok(bits) { text } else { hex() }
}

fn raw(bytes: &[u8]) -> u64 {
    let mut b = [0u8; 8];
    for (to, from) in b.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(b)
}

fn element(d: DType, bytes: &[u8]) -> String {
    let part = |d: DType, b: &[u8]| float(d, raw(b));
    match d.kind() {
        DTypeKind::Bool => (raw(bytes) != 0).to_string(),
        DTypeKind::Unsigned => raw(bytes).to_string(),
        DTypeKind::Signed => {
            let shift = 64 - 8 * bytes.len().clamp(1, 8);
            ((raw(bytes) << shift) as i64 >> shift).to_string()
        }
        DTypeKind::Float => part(d, bytes),
        DTypeKind::Complex => {
            let (d, (re, im)) =
                (if d == DType::C64 { DType::F32 } else { DType::F64 }, bytes.split_at(bytes.len() / 2));
            format!("({}, {})", part(d, re), part(d, im))
        }
    }
}

fn dense(l: &Literal) -> String {
    let d = l.ty.dtype;
    let count = l.ty.elements().unwrap_or(0);
    if l.bytes.is_empty() || count == 0 {
        return format!("dense<> : {}", l.ty);
    }
    if l.is_splat() {
        return format!("dense<{}> : {}", element(d, &l.bytes), l.ty);
    }
    if count > MAX_LISTED && d.kind() != DTypeKind::Bool {
        let mut hex = String::with_capacity(l.bytes.len() * 2);
        for b in l.bytes.iter() {
            let _ = write!(hex, "{b:02X}");
        }
        return format!("dense<\"0x{hex}\"> : {}", l.ty);
    }
    let mut out = String::from("dense<");
    list(l, 0, 0, count as usize, &mut out);
    let _ = write!(out, "> : {}", l.ty);
    out
}

/// Elements `from..from + count`, as dimension `dim` and those inside it.
fn list(l: &Literal, dim: usize, from: usize, count: usize, out: &mut String) {
    let Some(&size) = l.ty.dims.get(dim) else {
        out.push_str(&element(l.ty.dtype, l.element(from)));
        return;
    };
    let inner = count / (size.max(1) as usize);
    out.push('[');
    for i in 0..size.max(0) as usize {
        if i > 0 {
            out.push_str(", ");
        }
        list(l, dim + 1, from + i * inner, inner, out);
    }
    out.push(']');
}
