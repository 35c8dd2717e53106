//! Pretty forms of the common ops, each only where it says everything the generic form would.

use tpusim_isa::num::DType;

use super::print::Values;
use super::print_attr::{attr, join, symbol};
use super::{Attr, Op, Opcode, Type};

/// Whether the op has exactly the attributes `names`, but for those of `optional` that it lacks.
fn only(op: &Op, names: &[&str], optional: &[&str]) -> bool {
    names.iter().all(|n| op.attrs.get(n).is_some())
        && op.attrs.iter().all(|(n, _)| names.contains(&n) || optional.contains(&n))
}

fn ints(op: &Op, name: &str) -> Option<String> {
    op.attrs.ints(name).map(|v| format!("[{}]", join(v)))
}

/// An integer of the type the pretty form implies.
fn int(op: &Op, name: &str) -> Option<i64> {
    match op.attrs.get(name)? {
        Attr::Int(i, Type::Scalar(DType::I64)) => Some(*i),
        _ => None,
    }
}

fn word<'a>(op: &'a Op, name: &str) -> Option<&'a str> {
    match op.attrs.get(name)? {
        Attr::Enum(s) => Some(s),
        _ => None,
    }
}

/// ` : (types) -> type`.
pub(super) fn signature(op: &Op, values: &Values<'_>) -> String {
    let results = match op.results.as_slice() {
        &[v] => values.func.ty(v).to_string(),
        many => format!("({})", values.types(many)),
    };
    format!(" : ({}) -> {results}", values.types(&op.operands))
}

/// The op behind its results, if its pretty form says it all.
pub(super) fn pretty(op: &Op, values: &Values<'_>) -> Option<String> {
    use Opcode::*;
    if !op.regions.is_empty() {
        return None;
    }
    let operands = values.list(&op.operands);
    let opcode = op.opcode;
    let sig = || signature(op, values);
    let ty = |v: super::ValueId| values.func.ty(v);
    Some(match opcode {
        Abs | Add | And | Atan2 | Cbrt | Ceil | Clamp | Convert | Cosine | CountLeadingZeros | Divide | Exponential
        | ExponentialMinusOne | Floor | Imag | Log | LogPlusOne | Logistic | Maximum | Minimum | Multiply | Negate
        | Not | Or | Popcnt | Power | Real | Remainder | RoundNearestAfz | RoundNearestEven | Rsqrt | ShiftLeft
        | ShiftRightArithmetic | ShiftRightLogical | Sign | Sine | Sqrt | Subtract | Tan | Tanh | Xor
            if op.attrs.is_empty() =>
        {
            let &[result] = op.results.as_slice() else { return None };
            let same = op.operands.iter().all(|&v| ty(v) == ty(result));
            let end = if same { format!(" : {}", ty(result)) } else { sig() };
            format!("{opcode} {operands}{end}")
        }
        BitcastConvert | DynamicUpdateSlice | IsFinite | Reshape if op.attrs.is_empty() => {
            format!("{opcode} {operands}{}", sig())
        }
        Constant if only(op, &["value"], &[]) => {
            let (&[result], Some(Attr::Dense(l))) = (op.results.as_slice(), op.attrs.get("value")) else { return None };
            if *ty(result) != Type::Tensor(l.ty.clone()) {
                return None;
            }
            format!("{opcode} {}", attr("value", &Attr::Dense(l.clone()), None))
        }
        Iota if only(op, &["iota_dimension"], &[]) => {
            format!("{opcode} dim = {} : {}", int(op, "iota_dimension")?, ty(*op.results.first()?))
        }
        BroadcastInDim if only(op, &["broadcast_dimensions"], &[]) => {
            format!("{opcode} {operands}, dims = {}{}", ints(op, "broadcast_dimensions")?, sig())
        }
        Transpose if only(op, &["permutation"], &[]) => {
            format!("{opcode} {operands}, dims = {}{}", ints(op, "permutation")?, sig())
        }
        DynamicSlice if only(op, &["slice_sizes"], &[]) => {
            format!("{opcode} {operands}, sizes = {}{}", ints(op, "slice_sizes")?, sig())
        }
        Concatenate if only(op, &["dimension"], &[]) => {
            format!("{opcode} {operands}, dim = {}{}", int(op, "dimension")?, sig())
        }
        Pad if only(op, &["edge_padding_low", "edge_padding_high", "interior_padding"], &[]) => format!(
            "{opcode} {operands}, low = {}, high = {}, interior = {}{}",
            ints(op, "edge_padding_low")?,
            ints(op, "edge_padding_high")?,
            ints(op, "interior_padding")?,
            sig()
        ),
        Slice if only(op, &["start_indices", "limit_indices", "strides"], &[]) => {
            format!("{opcode} {operands} {}{}", ranges(op)?, sig())
        }
        Compare if only(op, &["comparison_direction"], &["compare_type"]) => {
            let kind = match op.attrs.get("compare_type") {
                None => String::new(),
                Some(_) => format!(", {}", word(op, "compare_type")?),
            };
            format!("{opcode} {}, {operands}{kind}{}", word(op, "comparison_direction")?, sig())
        }
        Select if op.attrs.is_empty() => {
            let (&[pred, a, b], &[result]) = (op.operands.as_slice(), op.results.as_slice()) else { return None };
            let same = ty(a) == ty(result) && ty(b) == ty(result);
            let end = if same { format!(" : {}, {}", ty(pred), ty(result)) } else { sig() };
            format!("{opcode} {operands}{end}")
        }
        DotGeneral if only(op, &["dot_dimension_numbers"], &["precision_config"]) => {
            format!("{opcode} {operands}, {}{}", contraction(op)?, sig())
        }
        Call if only(op, &["callee"], &[]) => {
            let Some(Attr::Symbol(callee)) = op.attrs.get("callee") else { return None };
            format!("call {}({operands}){}", symbol(callee), sig())
        }
        _ => return None,
    })
}

/// `[0:4, 1:9:2]`.
fn ranges(op: &Op) -> Option<String> {
    let (starts, limits) = (op.attrs.ints("start_indices")?, op.attrs.ints("limit_indices")?);
    let strides = op.attrs.ints("strides")?;
    if starts.len() != limits.len() || starts.len() != strides.len() {
        return None;
    }
    let range = |((a, b), s): ((&i64, &i64), &i64)| if *s == 1 { format!("{a}:{b}") } else { format!("{a}:{b}:{s}") };
    let all: Vec<String> = starts.iter().zip(limits).zip(strides).map(range).collect();
    Some(format!("[{}]", all.join(", ")))
}

/// Dimensions and precision of a `dot_general`.
fn contraction(op: &Op) -> Option<String> {
    let Some(Attr::Dot(d)) = op.attrs.get("dot_dimension_numbers") else { return None };
    let mut out = String::new();
    if !d.lhs_batch.is_empty() || !d.rhs_batch.is_empty() {
        out += &format!("batching_dims = [{}] x [{}], ", join(&d.lhs_batch), join(&d.rhs_batch));
    }
    out += &format!("contracting_dims = [{}] x [{}]", join(&d.lhs_contract), join(&d.rhs_contract));
    if let Some(precision) = op.attrs.get("precision_config") {
        let Attr::Array(list) = precision else { return None };
        let words: Option<Vec<&str>> =
            list.iter().map(|a| if let Attr::Enum(s) = a { Some(s.as_str()) } else { None }).collect();
        out += &format!(", precision = [{}]", words?.join(", "));
    }
    Some(out)
}

/// A reduction whose body is one op on its two arguments, in short form.
pub(super) fn short_reduce(op: &Op, values: &Values<'_>, locations: bool) -> Option<String> {
    use Opcode::*;
    let (&[input, init], [region]) = (op.operands.as_slice(), op.regions.as_slice()) else { return None };
    let ([inner, end], [a, b]) = (region.block.ops.as_slice(), region.block.args.as_slice()) else { return None };
    let element = values.func.ty(input).tensor()?;
    let scalar = |v: &super::ValueId| {
        values
            .func
            .ty(*v)
            .tensor()
            .is_some_and(|t| t.rank() == 0 && t.dtype == element.dtype && t.quant == element.quant)
    };
    let commutes = matches!(inner.opcode, Add | And | Maximum | Minimum | Multiply | Or | Xor);
    let forwards = inner.operands == [*a, *b] && end.operands == inner.results && inner.results.len() == 1;
    let plain = inner.attrs.is_empty() && end.attrs.is_empty() && inner.regions.is_empty();
    let typed = [a, b].into_iter().chain(&inner.results).all(scalar);
    let placed = !locations || (inner.loc == op.loc && end.loc == op.loc);
    if !(op.opcode == Reduce && commutes && forwards && plain && typed && placed && only(op, &["dimensions"], &[])) {
        return None;
    }
    Some(format!(
        "stablehlo.reduce({} init: {}) applies {} across dimensions = {}{}",
        values.name(input),
        values.name(init),
        inner.opcode,
        ints(op, "dimensions")?,
        signature(op, values)
    ))
}
