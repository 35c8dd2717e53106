//! What every front end does to the attributes of an op, so that spellings of all versions give the same op.
//!
//! Attributes come in as they were written: integers as [`Attr::Ints`] or as `dense` tensors, tables of integers as `dense`
//! tensors, defaults spelled out or not. They leave in the one form the rest of the compiler knows.

use tpusim_isa::num::DTypeKind;

use crate::hlo::{Attr, AttrList, Literal, Opcode, ReplicaGroups};

/// Elements a splat may stand for where its elements are written out: more than any rank or any group list of a splat has.
const MAX_SPLAT: u64 = 256;

/// Attributes that hold one integer per dimension.
const DIMENSIONS: &[&str] = &[
    "base_dilations",
    "broadcast_dimensions",
    "broadcast_sizes",
    "dimensions",
    "edge_padding_high",
    "edge_padding_low",
    "fft_length",
    "interior_padding",
    "known_expanding_dimensions",
    "known_nonexpanding_dimensions",
    "lhs_dilation",
    "limit_indices",
    "permutation",
    "rhs_dilation",
    "slice_sizes",
    "start_indices",
    "strides",
    "window_dilations",
    "window_dimensions",
    "window_strides",
];

/// Brings the attributes of an op into their one form and drops those that equal their default.
///
/// # Errors
///
/// What is wrong with an attribute, for the user.
pub fn normalize_attrs(opcode: Opcode, attrs: &mut AttrList) -> Result<(), String> {
    if attrs.is_empty() {
        return Ok(());
    }
    // Attributes of a custom call or a composite belong to whoever wrote them, whatever their names.
    if !matches!(opcode, Opcode::CustomCall | Opcode::Composite | Opcode::Call | Opcode::Return) {
        let names: Vec<String> = attrs.iter().map(|(n, _)| n.to_owned()).collect();
        for name in names {
            if let Some(attr) = attrs.get(&name)
                && let Some(new) = reform(&name, attr)?
            {
                attrs.set(name, new);
            }
        }
    }
    if is_collective(opcode)
        && let Some(Attr::Channel { handle, .. }) = attrs.get("channel_handle")
    {
        // The portable format keeps the id alone, and 0 for none.
        let handle = *handle;
        if handle == 0 {
            attrs.remove("channel_handle");
        } else {
            attrs.set("channel_handle", Attr::Channel { handle, kind: 0 });
        }
    }
    let defaults: Vec<String> =
        attrs.iter().filter(|(n, a)| is_default(opcode, n, a)).map(|(n, _)| n.to_owned()).collect();
    for name in defaults {
        attrs.remove(&name);
    }
    if opcode == Opcode::CustomCall && ["operand_layouts", "result_layouts"].iter().all(|n| is_empty(attrs.get(n))) {
        attrs.remove("operand_layouts");
        attrs.remove("result_layouts");
    }
    Ok(())
}

fn is_empty(attr: Option<&Attr>) -> bool {
    match attr {
        None => true,
        Some(Attr::Array(a)) => a.is_empty(),
        Some(Attr::Ints(a)) => a.is_empty(),
        Some(Attr::Str(s)) => s.is_empty(),
        Some(Attr::Dict(d)) => d.is_empty(),
        Some(Attr::Pairs(p)) => p.is_empty(),
        _ => false,
    }
}

fn is_collective(opcode: Opcode) -> bool {
    use Opcode::*;
    matches!(
        opcode,
        AllGather
            | AllReduce
            | AllToAll
            | CollectiveBroadcast
            | CollectivePermute
            | CollectiveReduce
            | CrossReplicaSum
            | ReduceScatter
    )
}

/// The value of attribute `name` in its one form, if it is not in it.
fn reform(name: &str, attr: &Attr) -> Result<Option<Attr>, String> {
    match (name, attr) {
        ("padding", Attr::Dense(l)) | ("source_target_pairs", Attr::Dense(l)) => {
            if l.ty.rank() == 1 && l.ty.dims == [0] {
                return Ok(Some(Attr::Pairs(Vec::new())));
            }
            if l.ty.rank() != 2 || l.ty.dims[1] != 2 {
                return Err(format!("`{name}` needs pairs of integers, not `{}`", l.ty));
            }
            let flat = integers(name, l)?;
            Ok(Some(Attr::Pairs(flat.chunks_exact(2).map(|p| [p[0], p[1]]).collect())))
        }
        ("replica_groups", Attr::Dense(l)) => {
            if l.ty.rank() != 2 {
                return Err(format!("`replica_groups` needs a table of integers, not `{}`", l.ty));
            }
            let width = l.ty.dims[1].max(0) as usize;
            let flat = integers(name, l)?;
            let rows = if width == 0 { Vec::new() } else { flat.chunks_exact(width).map(<[i64]>::to_vec).collect() };
            Ok(Some(Attr::Groups(ReplicaGroups::Listed(rows))))
        }
        ("window_reversal", Attr::Dense(l)) => {
            if l.ty.rank() != 1 || l.ty.dtype.kind() != DTypeKind::Bool {
                return Err(format!("`window_reversal` needs a list of booleans, not `{}`", l.ty));
            }
            Ok(Some(Attr::Bools(integers(name, l)?.into_iter().map(|b| b != 0).collect())))
        }
        ("use_global_device_ids" | "has_dynamic_root", Attr::Bool(true)) => Ok(Some(Attr::Unit)),
        (name, Attr::Dense(l)) if DIMENSIONS.contains(&name) => {
            if l.ty.rank() != 1 || !l.ty.dtype.is_int() {
                return Err(format!("`{name}` needs a list of integers, not `{}`", l.ty));
            }
            Ok(Some(Attr::Ints(integers(name, l)?)))
        }
        _ => Ok(None),
    }
}

/// All elements of an integer constant.
fn integers(name: &str, l: &Literal) -> Result<Vec<i64>, String> {
    if !l.ty.dtype.is_int() && l.ty.dtype.kind() != DTypeKind::Bool {
        return Err(format!("`{name}` needs integers, not `{}`", l.ty));
    }
    let count = l.ty.elements().unwrap_or(0);
    if count == 0 {
        return Ok(Vec::new());
    }
    if l.is_splat() && count > MAX_SPLAT {
        return Err(format!("`{name}` has {count} equal elements"));
    }
    let value = |i: u64| {
        let e = l.element(i as usize);
        let mut b = if l.ty.dtype.is_signed() && e.last().is_some_and(|&x| x & 0x80 != 0) { [0xff; 8] } else { [0; 8] };
        b[..e.len()].copy_from_slice(e);
        i64::from_le_bytes(b)
    };
    Ok((0..count).map(value).collect())
}

/// Whether attribute `name` says what its absence would.
fn is_default(opcode: Opcode, name: &str, attr: &Attr) -> bool {
    use Opcode::*;
    let ints = |v: i64| matches!(attr, Attr::Ints(all) if all.iter().all(|&x| x == v));
    let no = matches!(attr, Attr::Bool(false));
    let zero_pairs = matches!(attr, Attr::Pairs(p) if p.iter().all(|x| *x == [0, 0]));
    let all_default = |a: &[Attr]| a.iter().all(|e| matches!(e, Attr::Enum(s) if s == "DEFAULT"));
    match (opcode, name) {
        (Convolution | DynamicConv, "window_strides" | "lhs_dilation" | "rhs_dilation") => ints(1),
        (Convolution, "padding") => zero_pairs,
        (Convolution | DynamicConv, "window_reversal") => matches!(attr, Attr::Bools(b) if !b.contains(&true)),
        (Convolution | DynamicConv | Dot | DotGeneral | ChloRaggedDot, "precision_config") => {
            matches!(attr, Attr::Array(a) if all_default(a))
        }
        (ReduceWindow, "window_strides" | "base_dilations" | "window_dilations") => ints(1),
        (SelectAndScatter, "window_strides") => ints(1),
        (ReduceWindow | SelectAndScatter, "padding") => zero_pairs,
        (Cholesky, "lower") => no,
        (Compare, "compare_type") => matches!(attr, Attr::Enum(s) if s == "NOTYPE"),
        (Composite, "version") => matches!(attr, Attr::Int(0, _)),
        (Composite, "composite_attributes") => is_empty(Some(attr)),
        (CustomCall, "has_side_effect") => no,
        (CustomCall, "api_version") => {
            matches!(attr, Attr::Int(1, _)) || matches!(attr, Attr::Enum(s) if s == "API_VERSION_ORIGINAL")
        }
        (CustomCall, "backend_config" | "called_computations" | "output_operand_aliases" | "result_tilings") => {
            is_empty(Some(attr))
        }
        (DynamicBroadcastInDim, "known_expanding_dimensions" | "known_nonexpanding_dimensions") => is_empty(Some(attr)),
        (Gather | DynamicGather | Scatter, "indices_are_sorted") => no,
        (Scatter, "unique_indices") => no,
        (Infeed, "infeed_config" | "layout") => is_empty(Some(attr)),
        (Outfeed, "outfeed_config") => is_empty(Some(attr)),
        (Send | Recv, "is_host_transfer") => no,
        (Send | Recv, "source_target_pairs") => is_empty(Some(attr)),
        (Sort, "dimension") => matches!(attr, Attr::Int(-1, _)),
        (Sort, "is_stable") => no,
        (RngBitGenerator, "rng_algorithm") => matches!(attr, Attr::Enum(s) if s == "DEFAULT"),
        (ChloTopK, "is_stable") => matches!(attr, Attr::Bool(true)),
        (ChloScan, "is_reverse") => no,
        (_, "use_global_device_ids" | "has_dynamic_root") if is_collective(opcode) => no,
        (_, "result_accuracy") => {
            matches!(attr, Attr::Opaque(s) if s == "stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<DEFAULT>>")
        }
        _ => false,
    }
}

/// How many operands, results and regions an op has.
struct Counts {
    operands: (usize, usize),
    results: (usize, usize),
    regions: (usize, usize),
}

const MANY: usize = usize::MAX;

fn counts(opcode: Opcode) -> Counts {
    use Opcode::*;
    let make = |operands, results, regions| Counts { operands, results, regions };
    let fixed = |n| make((n, n), (1, 1), (0, 0));
    match opcode {
        Abs
        | BitcastConvert
        | Broadcast
        | BroadcastInDim
        | Cbrt
        | Ceil
        | Cholesky
        | CollectivePermute
        | Convert
        | Cosine
        | CountLeadingZeros
        | DynamicIota
        | Exponential
        | ExponentialMinusOne
        | Fft
        | Floor
        | GetDimensionSize
        | GetTupleElement
        | Imag
        | IsFinite
        | Log
        | LogPlusOne
        | Logistic
        | Negate
        | Not
        | Popcnt
        | Real
        | ReducePrecision
        | Reshape
        | Reverse
        | RoundNearestAfz
        | RoundNearestEven
        | Rsqrt
        | Sign
        | Sine
        | Slice
        | Sqrt
        | Tan
        | Tanh
        | Transpose
        | UnaryEinsum
        | UniformDequantize
        | UniformQuantize
        | CrossReplicaSum
        | SdyShardingConstraint
        | SdyReshard
        | SdyPropagationBarrier
        | SdyDataFlowEdge
        | SdyAllGather
        | SdyAllReduce
        | SdyAllSlice
        | SdyAllToAll
        | SdyCollectivePermute
        | SdyReduceScatter => fixed(1),
        Add
        | And
        | Atan2
        | Compare
        | Complex
        | Convolution
        | Divide
        | Dot
        | DotGeneral
        | DynamicBroadcastInDim
        | DynamicReshape
        | Einsum
        | Gather
        | Maximum
        | Minimum
        | Multiply
        | Or
        | Pad
        | Power
        | Remainder
        | SetDimensionSize
        | ShiftLeft
        | ShiftRightArithmetic
        | ShiftRightLogical
        | Subtract
        | TorchIndexSelect
        | TriangularSolve
        | Xor => fixed(2),
        Clamp | Select | DynamicConv | DynamicGather | Rng => fixed(3),
        RealDynamicSlice => fixed(4),
        DynamicPad | BatchNormInference => fixed(5),
        BatchNormTraining => make((3, 3), (3, 3), (0, 0)),
        BatchNormGrad => make((5, 5), (3, 3), (0, 0)),
        RngBitGenerator => make((1, 1), (2, 2), (0, 0)),
        Constant | Iota | CreateToken | PartitionId | ReplicaId | ChloConstant | SdyConstant => fixed(0),
        Return => make((0, MANY), (0, 0), (0, 0)),
        If => make((1, 1), (0, MANY), (2, 2)),
        Case => make((1, 1), (0, MANY), (1, MANY)),
        While => make((0, MANY), (0, MANY), (2, 2)),
        Reduce | ReduceWindow => make((2, MANY), (1, MANY), (1, 1)),
        AllReduce | CollectiveReduce | Map | Sort => make((1, MANY), (1, MANY), (1, 1)),
        ReduceScatter => make((1, 1), (1, 1), (1, 1)),
        Scatter => make((3, MANY), (1, MANY), (1, 1)),
        SelectAndScatter => make((3, 3), (1, 1), (2, 2)),
        DynamicSlice => make((1, MANY), (1, 1), (0, 0)),
        DynamicUpdateSlice => make((2, MANY), (1, 1), (0, 0)),
        Concatenate => make((1, MANY), (1, 1), (0, 0)),
        AllGather | AllToAll | CollectiveBroadcast => make((1, MANY), (1, MANY), (0, 0)),
        SdyManualComputation | SdyNamedComputation => make((0, MANY), (0, MANY), (1, 1)),
        SdyShardingGroup => make((1, 1), (0, 0), (0, 0)),
        ChloScan => make((0, MANY), (0, MANY), (1, 1)),
        Composite | AsyncStart => make((0, MANY), (0, MANY), (0, MANY)),
        _ => make((0, MANY), (0, MANY), (0, 0)),
    }
}

/// Checks that an op has as many operands, results and regions as its kind needs.
///
/// # Errors
///
/// Which number is wrong, for the user.
pub fn check_counts(opcode: Opcode, operands: usize, results: usize, regions: usize) -> Result<(), String> {
    let c = counts(opcode);
    for (what, n, (low, high)) in
        [("operand", operands, c.operands), ("result", results, c.results), ("region", regions, c.regions)]
    {
        if n < low || n > high {
            let (least, wanted) = if high == MANY { ("at least ", low) } else { ("", low) };
            let plural = if wanted == 1 { "" } else { "s" };
            return Err(format!("`{opcode}` needs {least}{wanted} {what}{plural}, {n} given"));
        }
    }
    Ok(())
}
