//! The attributes of an operation, from the oldest version of VHLO on, as the IR has them.
//!
//! VHLO has no defaults, no dimension lists and no compound attributes: lists are tensors, `dimension_numbers` are taken apart,
//! symbols are strings, and every attribute is always there. All of that is undone here, so that the result equals what the
//! text of the program gives.

use super::decode::Decoder;
use super::dense::integers;
use super::error::{BytecodeError, ErrorKind, Result};
use super::ops::OpSpec;
use super::vhlo::ABSENT;
use crate::hlo::{
    Attr, AttrList, ConvDims, DotAlgorithm, DotDims, GatherDims, Literal, ReplicaGroups, ScatterDims, Type,
};

/// Attributes that hold a list of integers.
const INTS: &[&str] = &[
    "base_dilations",
    "broadcast_dimensions",
    "broadcast_sizes",
    "collapsed_slice_dims",
    "dimensions",
    "edge_padding_high",
    "edge_padding_low",
    "fft_length",
    "input_batching_dims",
    "input_spatial_dimensions",
    "inserted_window_dims",
    "interior_padding",
    "kernel_spatial_dimensions",
    "known_expanding_dimensions",
    "known_nonexpanding_dimensions",
    "lhs_batching_dimensions",
    "lhs_contracting_dimensions",
    "lhs_dilation",
    "limit_indices",
    "offset_dims",
    "operand_batching_dims",
    "output_spatial_dimensions",
    "permutation",
    "rhs_batching_dimensions",
    "rhs_contracting_dimensions",
    "rhs_dilation",
    "scatter_dims_to_operand_dims",
    "scatter_indices_batching_dims",
    "slice_sizes",
    "start_index_map",
    "start_indices",
    "start_indices_batching_dims",
    "strides",
    "update_window_dims",
    "window_dilations",
    "window_dimensions",
    "window_strides",
];

/// Attributes of which only `true` means something, and which StableHLO writes without a value.
const UNITS: &[&str] = &["has_dynamic_root", "use_global_device_ids"];

/// Attributes left out when false.
const FALSE_BY_DEFAULT: &[&str] =
    &["has_side_effect", "indices_are_sorted", "is_host_transfer", "is_stable", "unique_indices"];

/// Attributes left out when empty.
const EMPTY_BY_DEFAULT: &[&str] = &[
    "backend_config",
    "called_computations",
    "composite_attributes",
    "infeed_config",
    "known_expanding_dimensions",
    "known_nonexpanding_dimensions",
    "layout",
    "outfeed_config",
    "output_operand_aliases",
    "result_tilings",
    "source_target_pairs",
];

/// Attributes left out when all their numbers are 1.
const ONE_BY_DEFAULT: &[&str] =
    &["base_dilations", "lhs_dilation", "rhs_dilation", "window_dilations", "window_strides"];

/// Turns the properties of a VHLO operation into those of the IR's operation. `attrs` may hold discardable attributes too.
pub(super) fn vhlo(d: &mut Decoder<'_>, spec: OpSpec, attrs: AttrList, at: usize) -> Result<AttrList> {
    let mut u = Upgrade { d, spec, out: attrs, at };
    u.shape_lists()?;
    u.gather_parts()?;
    u.drop_defaults();
    Ok(u.out)
}

/// Turns the properties of a Shardy operation into those of the IR's operation.
pub(super) fn sdy(spec: OpSpec, mut attrs: AttrList, at: usize) -> Result<AttrList> {
    let enums: [(&str, &[&str]); 2] =
        [("allowed_direction", &["NONE", "FORWARD", "BACKWARD", "BOTH"]), ("reduction_op", &["SUM", "MAX", "MIN"])];
    for (name, values) in enums {
        if !spec.has(name) {
            continue;
        }
        if let Some(&Attr::Int(i, _)) = attrs.get(name) {
            let value = usize::try_from(i).ok().and_then(|i| values.get(i));
            let Some(value) = value else { return Err(BytecodeError::new(ErrorKind::Enum(i as u64, "sdy enum"), at)) };
            attrs.set(name, Attr::Enum((*value).to_owned()));
        }
    }
    if attrs.text("reduction_op") == Some("SUM") {
        attrs.remove("reduction_op");
    }
    Ok(attrs)
}

struct Upgrade<'d, 'a> {
    d: &'d mut Decoder<'a>,
    spec: OpSpec,
    out: AttrList,
    at: usize,
}

impl Upgrade<'_, '_> {
    fn fail<T>(&self, kind: ErrorKind) -> Result<T> {
        Err(BytecodeError::new(kind, self.at))
    }

    fn expected<T>(&self, name: &str, what: &str) -> Result<T> {
        self.fail(ErrorKind::Expected(format!("{what} as `{name}`")))
    }

    /// Takes the property `name` out of the list.
    fn take(&mut self, name: &str) -> Option<Attr> {
        if self.spec.has(name) { self.out.remove(name) } else { None }
    }

    fn integers(&mut self, name: &str, lit: &Literal) -> Result<Vec<i64>> {
        let n = lit.ty.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
        self.d.charge(n / 8, self.at)?;
        match integers(lit) {
            Some(v) => Ok(v.collect()),
            None => self.expected(name, "a tensor of integers"),
        }
    }

    /// Brings every property into its shape, one at a time.
    fn shape_lists(&mut self) -> Result<()> {
        for (name, _) in self.spec.properties() {
            let Some(attr) = self.out.remove(name) else { continue };
            let shaped = match (name, attr) {
                (_, Attr::Dense(lit)) if INTS.contains(&name) => Attr::Ints(self.integers(name, &lit)?),
                ("window_reversal", Attr::Dense(lit)) => {
                    Attr::Bools(self.integers(name, &lit)?.into_iter().map(|v| v != 0).collect())
                }
                ("padding" | "source_target_pairs", Attr::Dense(lit)) => {
                    Attr::Pairs(self.integers(name, &lit)?.chunks_exact(2).map(|p| [p[0], p[1]]).collect())
                }
                ("replica_groups", Attr::Dense(lit)) => self.groups(&lit)?,
                ("operand_layouts" | "result_layouts" | "result_tilings", a) => self.nested_ints(name, a, 0)?,
                ("callee" | "decomposition", Attr::Str(s)) => Attr::Symbol(s),
                ("called_computations", Attr::Array(items)) => Attr::Array(items.into_iter().map(symbol).collect()),
                (_, Attr::Bool(b)) if UNITS.contains(&name) => {
                    if !b {
                        continue;
                    }
                    Attr::Unit
                }
                (_, a) => a,
            };
            self.out.set(name, shaped);
        }
        Ok(())
    }

    fn groups(&mut self, lit: &Literal) -> Result<Attr> {
        let ids = self.integers("replica_groups", lit)?;
        let &[groups, size] = lit.ty.dims.as_slice() else { return self.expected("replica_groups", "a matrix") };
        self.d.charge(usize::try_from(groups).unwrap_or(usize::MAX), self.at)?;
        let rows = match usize::try_from(size) {
            Ok(0) | Err(_) => (0..groups).map(|_| Vec::new()).collect(),
            Ok(size) => ids.chunks(size).map(<[i64]>::to_vec).collect(),
        };
        Ok(Attr::Groups(ReplicaGroups::Listed(rows)))
    }

    /// Layouts: tensors of integers within lists.
    fn nested_ints(&mut self, name: &str, attr: Attr, depth: usize) -> Result<Attr> {
        Ok(match attr {
            Attr::Dense(lit) => Attr::Ints(self.integers(name, &lit)?),
            Attr::Array(items) if depth < super::decode::MAX_DEPTH => {
                Attr::Array(items.into_iter().map(|a| self.nested_ints(name, a, depth + 1)).collect::<Result<_>>()?)
            }
            other => other,
        })
    }

    fn ints(&mut self, name: &str) -> Result<Vec<i64>> {
        match self.take(name) {
            Some(Attr::Ints(v)) => Ok(v),
            // Batching dimensions came with later versions.
            None => Ok(Vec::new()),
            Some(_) => self.expected(name, "a list of integers"),
        }
    }

    fn int(&mut self, name: &str) -> Result<i64> {
        match self.take(name) {
            Some(Attr::Int(i, _)) => Ok(i),
            Some(_) => self.expected(name, "an integer"),
            None => self.fail(ErrorKind::Missing(format!("attribute `{name}`"))),
        }
    }

    /// Puts compound attributes together again.
    fn gather_parts(&mut self) -> Result<()> {
        match self.spec.name {
            "vhlo.dot_general" => {
                let dims = DotDims {
                    lhs_batch: self.ints("lhs_batching_dimensions")?,
                    rhs_batch: self.ints("rhs_batching_dimensions")?,
                    lhs_contract: self.ints("lhs_contracting_dimensions")?,
                    rhs_contract: self.ints("rhs_contracting_dimensions")?,
                };
                self.out.set("dot_dimension_numbers", Attr::Dot(dims));
                self.dot_algorithm()?;
            }
            "vhlo.convolution" | "vhlo.dynamic_conv" => {
                let dims = ConvDims {
                    input_batch: self.int("input_batch_dimension")?,
                    input_feature: self.int("input_feature_dimension")?,
                    input_spatial: self.ints("input_spatial_dimensions")?,
                    kernel_input_feature: self.int("kernel_input_feature_dimension")?,
                    kernel_output_feature: self.int("kernel_output_feature_dimension")?,
                    kernel_spatial: self.ints("kernel_spatial_dimensions")?,
                    output_batch: self.int("output_batch_dimension")?,
                    output_feature: self.int("output_feature_dimension")?,
                    output_spatial: self.ints("output_spatial_dimensions")?,
                };
                self.out.set("dimension_numbers", Attr::Conv(Box::new(dims)));
                if self.spec.name == "vhlo.dynamic_conv" {
                    // The first version had the padding twice; the operand counts.
                    self.take("padding");
                }
            }
            "vhlo.gather" | "vhlo.dynamic_gather" => {
                let dims = GatherDims {
                    offset_dims: self.ints("offset_dims")?,
                    collapsed_slice_dims: self.ints("collapsed_slice_dims")?,
                    operand_batching_dims: self.ints("operand_batching_dims")?,
                    start_indices_batching_dims: self.ints("start_indices_batching_dims")?,
                    start_index_map: self.ints("start_index_map")?,
                    index_vector_dim: self.int("index_vector_dim")?,
                };
                self.out.set("dimension_numbers", Attr::Gather(Box::new(dims)));
            }
            "vhlo.scatter" => {
                let dims = ScatterDims {
                    update_window_dims: self.ints("update_window_dims")?,
                    inserted_window_dims: self.ints("inserted_window_dims")?,
                    input_batching_dims: self.ints("input_batching_dims")?,
                    scatter_indices_batching_dims: self.ints("scatter_indices_batching_dims")?,
                    scatter_dims_to_operand_dims: self.ints("scatter_dims_to_operand_dims")?,
                    index_vector_dim: self.int("index_vector_dim")?,
                };
                self.out.set("scatter_dimension_numbers", Attr::Scatter(Box::new(dims)));
            }
            "vhlo.send" | "vhlo.recv" => {
                let (handle, kind) = (self.int("channel_id")?, self.int("channel_type")?);
                self.out.set("channel_handle", Attr::Channel { handle, kind });
            }
            _ if self.spec.has("channel_id") => match self.int("channel_id")? {
                0 => {}
                handle => self.out.set("channel_handle", Attr::Channel { handle, kind: 0 }),
            },
            _ => {}
        }
        Ok(())
    }

    fn dot_algorithm(&mut self) -> Result<()> {
        let (lhs, rhs) = (self.precision("lhs_precision_type")?, self.precision("rhs_precision_type")?);
        let sum = self.precision("accumulation_type")?;
        let mut counts = [None; 3];
        for (count, name) in
            counts.iter_mut().zip(["lhs_component_count", "rhs_component_count", "num_primitive_operations"])
        {
            *count = match self.take(name) {
                Some(Attr::Int(i, _)) => Some(i),
                None => None,
                Some(Attr::Opaque(s)) if s == ABSENT => None,
                Some(_) => return self.expected(name, "an integer"),
            };
        }
        let imprecise = match self.take("allow_imprecise_accumulation") {
            Some(Attr::Bool(b)) => Some(b),
            None => None,
            Some(Attr::Opaque(s)) if s == ABSENT => None,
            Some(_) => return self.expected("allow_imprecise_accumulation", "a boolean"),
        };
        match (lhs, rhs, sum, counts, imprecise) {
            (None, None, None, [None, None, None], None) => {}
            (Some(lhs), Some(rhs), Some(sum), [Some(l), Some(r), Some(ops)], Some(imprecise)) => {
                let algorithm = DotAlgorithm {
                    lhs_precision: lhs,
                    rhs_precision: rhs,
                    accumulation: sum,
                    lhs_components: l,
                    rhs_components: r,
                    primitive_operations: ops,
                    imprecise_accumulation: imprecise,
                };
                self.out.set("algorithm", Attr::DotAlgorithm(Box::new(algorithm)));
            }
            _ => return self.fail(ErrorKind::Missing("parts of a dot algorithm".into())),
        }
        Ok(())
    }

    fn precision(&mut self, name: &str) -> Result<Option<Type>> {
        match self.take(name) {
            Some(Attr::Type(t)) => Ok(Some(t)),
            None => Ok(None),
            Some(Attr::Opaque(s)) if s == ABSENT => Ok(None),
            Some(_) => self.expected(name, "a type"),
        }
    }

    /// Removes what StableHLO leaves out.
    fn drop_defaults(&mut self) {
        let layouts = ["operand_layouts", "result_layouts"];
        let no_layouts = layouts.iter().all(|n| self.out.get(n).is_some_and(is_empty));
        let mut names: Vec<&str> = self.spec.properties().map(|(n, _)| n).collect();
        names.retain(|name| {
            let Some(attr) = self.out.get(name) else { return false };
            match attr {
                Attr::Bool(false) if FALSE_BY_DEFAULT.contains(name) => true,
                Attr::Bool(false) => *name == "lower" && self.spec.name == "vhlo.cholesky",
                _ if is_empty(attr) && EMPTY_BY_DEFAULT.contains(name) => true,
                Attr::Ints(v) if ONE_BY_DEFAULT.contains(name) => v.iter().all(|x| *x == 1),
                Attr::Pairs(v) if *name == "padding" => v.iter().all(|p| *p == [0, 0]),
                Attr::Bools(v) if *name == "window_reversal" => v.iter().all(|b| !b),
                Attr::Array(v) if *name == "precision_config" => v.iter().all(|p| is_enum(p, "DEFAULT")),
                Attr::Enum(e) => matches!(
                    (*name, e.as_str()),
                    ("compare_type", "NOTYPE") | ("rng_algorithm" | "result_accuracy", "DEFAULT")
                ),
                Attr::Int(1, _) => *name == "api_version",
                Attr::Int(0, _) => *name == "version" && self.spec.name == "vhlo.composite",
                Attr::Int(-1, _) => *name == "dimension" && self.spec.name == "vhlo.sort",
                _ => no_layouts && layouts.contains(name),
            }
        });
        for name in names {
            self.out.remove(name);
        }
    }
}

fn symbol(attr: Attr) -> Attr {
    match attr {
        Attr::Str(s) => Attr::Symbol(s),
        other => other,
    }
}

fn is_enum(attr: &Attr, value: &str) -> bool {
    matches!(attr, Attr::Enum(e) if e == value)
}

fn is_empty(attr: &Attr) -> bool {
    match attr {
        Attr::Str(s) => s.is_empty(),
        Attr::Array(v) => v.is_empty(),
        Attr::Dict(d) => d.is_empty(),
        Attr::Ints(v) => v.is_empty(),
        Attr::Pairs(v) => v.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tpusim_isa::num::DType;

    use super::*;

    #[test]
    fn lists_are_sorted_and_real() {
        for list in [INTS, UNITS, FALSE_BY_DEFAULT, EMPTY_BY_DEFAULT, ONE_BY_DEFAULT] {
            assert!(list.is_sorted());
        }
    }

    #[test]
    fn emptiness() {
        assert!(is_empty(&Attr::Str(String::new())));
        assert!(!is_empty(&Attr::Int(0, Type::Scalar(DType::I64))));
    }
}
