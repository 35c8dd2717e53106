//! Attributes of operations.

use std::sync::Arc;

use super::{Literal, Type};

/// `dot_dimension_numbers` (`#stablehlo.dot`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DotDims {
    /// Batching dimensions of the left operand.
    pub lhs_batch: Vec<i64>,
    /// Batching dimensions of the right operand.
    pub rhs_batch: Vec<i64>,
    /// Contracting dimensions of the left operand.
    pub lhs_contract: Vec<i64>,
    /// Contracting dimensions of the right operand.
    pub rhs_contract: Vec<i64>,
}

/// `algorithm` of `dot_general` (`#stablehlo.dot_algorithm`).
#[derive(Clone, Debug, PartialEq)]
pub struct DotAlgorithm {
    /// Type the left operand is rounded to.
    pub lhs_precision: Type,
    /// Type the right operand is rounded to.
    pub rhs_precision: Type,
    /// Type of the sums.
    pub accumulation: Type,
    /// Parts the left operand is split into.
    pub lhs_components: i64,
    /// Parts the right operand is split into.
    pub rhs_components: i64,
    /// Products computed.
    pub primitive_operations: i64,
    /// Whether imprecise accumulation is allowed.
    pub imprecise_accumulation: bool,
}

/// `dimension_numbers` of `convolution` (`#stablehlo.conv`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConvDims {
    /// Batch dimension of the input.
    pub input_batch: i64,
    /// Feature dimension of the input.
    pub input_feature: i64,
    /// Spatial dimensions of the input.
    pub input_spatial: Vec<i64>,
    /// Input-feature dimension of the kernel.
    pub kernel_input_feature: i64,
    /// Output-feature dimension of the kernel.
    pub kernel_output_feature: i64,
    /// Spatial dimensions of the kernel.
    pub kernel_spatial: Vec<i64>,
    /// Batch dimension of the output.
    pub output_batch: i64,
    /// Feature dimension of the output.
    pub output_feature: i64,
    /// Spatial dimensions of the output.
    pub output_spatial: Vec<i64>,
}

/// `dimension_numbers` of `gather` (`#stablehlo.gather`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatherDims {
    /// `offset_dims`.
    pub offset_dims: Vec<i64>,
    /// `collapsed_slice_dims`.
    pub collapsed_slice_dims: Vec<i64>,
    /// `operand_batching_dims`.
    pub operand_batching_dims: Vec<i64>,
    /// `start_indices_batching_dims`.
    pub start_indices_batching_dims: Vec<i64>,
    /// `start_index_map`.
    pub start_index_map: Vec<i64>,
    /// `index_vector_dim`.
    pub index_vector_dim: i64,
}

/// `scatter_dimension_numbers` (`#stablehlo.scatter`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScatterDims {
    /// `update_window_dims`.
    pub update_window_dims: Vec<i64>,
    /// `inserted_window_dims`.
    pub inserted_window_dims: Vec<i64>,
    /// `input_batching_dims`.
    pub input_batching_dims: Vec<i64>,
    /// `scatter_indices_batching_dims`.
    pub scatter_indices_batching_dims: Vec<i64>,
    /// `scatter_dims_to_operand_dims`.
    pub scatter_dims_to_operand_dims: Vec<i64>,
    /// `index_vector_dim`.
    pub index_vector_dim: i64,
}

/// One entry of `output_operand_aliases`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputAlias {
    /// Path into the results.
    pub output_tuple_indices: Vec<i64>,
    /// Which operand.
    pub operand_index: i64,
    /// Path into that operand.
    pub operand_tuple_indices: Vec<i64>,
}

/// `replica_groups`, either listed or as mesh axes.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaGroups {
    /// Explicit groups, padded with -1.
    Listed(Vec<Vec<i64>>),
    /// `#stablehlo.replica_group_mesh_axes`: mesh symbol or attribute, and the axes.
    MeshAxes(Box<Attr>, Vec<Attr>),
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attr {
    /// Present without a value.
    Unit,
    /// `true` / `false`.
    Bool(bool),
    /// An integer with its type (`Type::Index` for `index`).
    Int(i64, Type),
    /// A float with its type.
    Float(f64, Type),
    /// A string.
    Str(String),
    /// A type, or a function type.
    Type(Type),
    /// `@symbol` or `@a::@b` (joined with `::`).
    Symbol(String),
    /// `array<i64: ...>` or an integer `dense` of rank 1 in an attribute that holds dimensions.
    Ints(Vec<i64>),
    /// `array<i1: ...>`.
    Bools(Vec<bool>),
    /// A list of integer rows, such as `padding` (`dense<...> : tensor<Nx2xi64>`).
    Pairs(Vec<[i64; 2]>),
    /// `[a, b, ...]`.
    Array(Vec<Attr>),
    /// `{a = ..., b}`; sorted by name.
    Dict(AttrList),
    /// A tensor constant.
    Dense(Arc<Literal>),
    /// A StableHLO or CHLO enum by its spelling: `GE`, `SIGNED`, `HIGHEST`, `DEFAULT`, `RFFT`, ...
    Enum(String),
    /// `#stablehlo.dot`.
    Dot(DotDims),
    /// `#stablehlo.dot_algorithm`.
    DotAlgorithm(Box<DotAlgorithm>),
    /// `#stablehlo.conv`.
    Conv(Box<ConvDims>),
    /// `#stablehlo.gather`.
    Gather(Box<GatherDims>),
    /// `#stablehlo.scatter`.
    Scatter(Box<ScatterDims>),
    /// `#stablehlo.channel_handle<handle, type>`.
    Channel {
        /// Channel id.
        handle: i64,
        /// Channel type.
        kind: i64,
    },
    /// `#stablehlo.output_operand_alias`.
    Alias(OutputAlias),
    /// Device groups of a collective.
    Groups(ReplicaGroups),
    /// Any other dialect's attribute, by its canonical text without the leading `#` (Shardy's are kept this way until the
    /// partitioner parses them), e.g. `sdy.sharding<@mesh, [{"x"}, {}]>`.
    Opaque(String),
}

/// Attributes sorted by name, each name once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttrList {
    items: Vec<(String, Attr)>,
}

impl AttrList {
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.find(name).map(|i| &self.items[i].1)
    }

    /// Sets `name`, replacing what was there.
    pub fn set(&mut self, name: impl Into<String>, attr: Attr) {
        let name = name.into();
        match self.items.binary_search_by(|(n, _)| n.as_str().cmp(&name)) {
            Ok(i) => self.items[i].1 = attr,
            Err(i) => self.items.insert(i, (name, attr)),
        }
    }

    /// Removes `name` and returns what it was.
    pub fn remove(&mut self, name: &str) -> Option<Attr> {
        self.find(name).map(|i| self.items.remove(i).1)
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.items.binary_search_by(|(n, _)| n.as_str().cmp(name)).ok()
    }

    /// All attributes in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attr)> {
        self.items.iter().map(|(n, a)| (n.as_str(), a))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The integers of `name`, if it is a list of integers.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.get(name)? {
            Attr::Ints(v) => Some(v),
            _ => None,
        }
    }

    /// The integer `name`.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name)? {
            Attr::Int(i, _) => Some(*i),
            _ => None,
        }
    }

    /// The string, symbol or enum spelling of `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Attr::Str(s) | Attr::Symbol(s) | Attr::Enum(s) => Some(s),
            _ => None,
        }
    }

    /// The boolean `name`; absent is `false`.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some(Attr::Bool(true) | Attr::Unit))
    }
}

impl FromIterator<(String, Attr)> for AttrList {
    fn from_iter<T: IntoIterator<Item = (String, Attr)>>(iter: T) -> Self {
        let mut list = AttrList::default();
        for (n, a) in iter {
            list.set(n, a);
        }
        list
    }
}
