//! Types of values.

use std::fmt;

use tpusim_isa::num::DType;

/// A dimension whose size is not known at compile time. Front ends accept it, `verify` names it in its error.
pub const DYNAMIC: i64 = -1;

/// Parameters of a quantized element type, `!quant.uniform<storage:expressed[:axis], {scale:zero_point, ...}>`.
#[derive(Clone, Debug, PartialEq)]
pub struct Quant {
    /// Type of the stored integers.
    pub storage: DType,
    /// Type of the numbers they stand for.
    pub expressed: DType,
    /// Smallest stored value.
    pub storage_min: i64,
    /// Largest stored value.
    pub storage_max: i64,
    /// Dimension the scales run along; `None` for one scale per tensor.
    pub axis: Option<usize>,
    /// One scale, or one per index of `axis`.
    pub scales: Vec<f64>,
    /// As many zero points as scales.
    pub zero_points: Vec<i64>,
}

/// A ranked tensor type. For a quantized tensor `dtype` is the storage type.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    /// Sizes, outermost first; [`DYNAMIC`] where unknown.
    pub dims: Vec<i64>,
    /// Element type.
    pub dtype: DType,
    /// Present for quantized element types.
    pub quant: Option<Box<Quant>>,
}

impl TensorType {
    /// A tensor type without quantization.
    pub fn new(dims: impl Into<Vec<i64>>, dtype: DType) -> Self {
        TensorType { dims: dims.into(), dtype, quant: None }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Number of elements; `None` if a dimension is dynamic or the product overflows.
    pub fn elements(&self) -> Option<u64> {
        self.dims.iter().try_fold(1u64, |n, &d| u64::try_from(d).ok().and_then(|d| n.checked_mul(d)))
    }

    /// Bytes of a dense row-major copy; `None` as for [`Self::elements`].
    pub fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.dtype.bytes() as u64)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor<")?;
        for &d in &self.dims {
            if d == DYNAMIC { f.write_str("?x")? } else { write!(f, "{d}x")? }
        }
        match &self.quant {
            None => write!(f, "{}>", self.dtype),
            Some(q) => write!(f, "{q}>"),
        }
    }
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "!quant.uniform<{}<{}:{}>:{}", self.storage, self.storage_min, self.storage_max, self.expressed)?;
        let item = |i: usize| format!("{:?}:{}", self.scales[i], self.zero_points[i]);
        match self.axis {
            None => write!(f, ", {}>", item(0)),
            Some(a) => {
                let all: Vec<_> = (0..self.scales.len()).map(item).collect();
                write!(f, ":{a}, {{{}}}>", all.join(", "))
            }
        }
    }
}

/// A function type.
#[derive(Clone, Debug, PartialEq)]
pub struct FuncType {
    /// Types of the arguments.
    pub inputs: Vec<Type>,
    /// Types of the results.
    pub outputs: Vec<Type>,
}

/// The type of a value or of a type attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A ranked tensor.
    Tensor(TensorType),
    /// A bare scalar type, as in `7 : i32` attributes.
    Scalar(DType),
    /// MLIR's `index`.
    Index,
    /// `!stablehlo.token`.
    Token,
    /// `tuple<...>`.
    Tuple(Vec<Type>),
    /// `(...) -> ...`.
    Func(FuncType),
}

impl Type {
    /// The tensor type, if it is one.
    pub fn tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ts: &[Type]| ts.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ");
        match self {
            Type::Tensor(t) => write!(f, "{t}"),
            Type::Scalar(d) => write!(f, "{d}"),
            Type::Index => f.write_str("index"),
            Type::Token => f.write_str("!stablehlo.token"),
            Type::Tuple(ts) => write!(f, "tuple<{}>", list(ts)),
            Type::Func(t) => write!(f, "({}) -> ({})", list(&t.inputs), list(&t.outputs)),
        }
    }
}
