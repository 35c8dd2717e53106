//! Products of floats of eight bits: operands are scaled by fixed factors, held to the range of their type and rounded; results are scaled
//! back. Activations and weights are F8E4M3FN, gradients F8E5M2, which MaxText calls `fp8_full`.

use tpusim_backend::hlo::{DotDims, FuncBuilder, Opcode, TensorType, ValueId};
use tpusim_isa::num::DType;

use super::layer::Block;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// What the operands of a layer's products are rounded to. Scores of experts and logits keep the type of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// The type of activations.
    Plain,
    /// Eight bits.
    Fp8,
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// An activation or a weight.
    Value,
    /// A gradient.
    Gradient,
}

/// Largest activation and weight that is not cut off, as in the recipes of MaxText (`fixed,-224,224`).
pub(super) const BOUND: f64 = 224.0;
/// Largest numbers of F8E4M3FN and F8E5M2.
const LARGEST: [f64; 2] = [448.0, 57_344.0];

impl Block<'_> {
    /// What operands are multiplied by before they are rounded: for gradients about the number of tokens that the loss is the mean of.
    fn factor(&self, of: Of) -> f64 {
        let tokens = self.batch.saturating_mul(self.seq).max(1);
        match of {
            Of::Value => LARGEST[0] / BOUND,
            Of::Gradient => 2f64.powi(i32::try_from(tokens.ilog2()).unwrap_or(0)),
        }
    }

    /// A product of two operands of a layer, as type `out`.
    pub(super) fn dot(
        &self,
        f: F<'_, '_>,
        (a, of_a): (ValueId, Of),
        (b, of_b): (ValueId, Of),
        dims: DotDims,
        out: DType,
    ) -> ValueId {
        if self.products == Products::Plain {
            return f.dot_general(a, b, dims, out);
        }
        let (a, b) = (self.rounded(f, a, of_a), self.rounded(f, b, of_b));
        let y = f.dot_general(a, b, dims, DType::F32);
        let y = f.binary_scalar(Opcode::Multiply, y, 1.0 / (self.factor(of_a) * self.factor(of_b)));
        f.convert(y, out)
    }

    fn rounded(&self, f: F<'_, '_>, x: ValueId, of: Of) -> ValueId {
        let (dtype, largest) = match of {
            Of::Value => (DType::F8E4M3FN, LARGEST[0]),
            Of::Gradient => (DType::F8E5M2, LARGEST[1]),
        };
        let wide = TensorType::new(f.dims(x), DType::F32);
        let x = f.convert(x, DType::F32);
        let x = f.binary_scalar(Opcode::Multiply, x, self.factor(of));
        let (low, high) = (f.splat(wide.clone(), -largest), f.splat(wide, largest));
        let x = f.binary(Opcode::Maximum, x, low);
        let x = f.binary(Opcode::Minimum, x, high);
        f.convert(x, dtype)
    }

    /// The dimensions `over` of two operands contracted.
    pub(super) fn contract(
        &self,
        f: F<'_, '_>,
        a: (ValueId, Of),
        b: (ValueId, Of),
        over: (&[i64], &[i64]),
        out: DType,
    ) -> ValueId {
        let dims = DotDims { lhs_contract: over.0.to_vec(), rhs_contract: over.1.to_vec(), ..DotDims::default() };
        self.dot(f, a, b, dims, out)
    }
}
