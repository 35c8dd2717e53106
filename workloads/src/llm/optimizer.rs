//! What becomes of weights and optimizer state.

use tpusim_backend::hlo::{FuncBuilder, Opcode, ValueId};
use tpusim_isa::num::DType;

/// How weights follow their gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optimizer {
    /// Adam (arXiv:1412.6980) with its corrections for the first steps: two moments of each weight.
    Adam,
    /// Against the gradient, without state.
    Sgd,
}

/// Step size.
pub const RATE: f64 = 3e-4;
/// Decay of the first moment.
pub const BETA1: f64 = 0.9;
/// Decay of the second moment.
pub const BETA2: f64 = 0.95;
/// What Adam adds to the root of the second moment.
pub const EPSILON: f64 = 1e-8;

impl Optimizer {
    /// Arrays of the size of the weights.
    pub fn moments(self) -> usize {
        match self {
            Optimizer::Adam => 2,
            Optimizer::Sgd => 0,
        }
    }
}

/// `1 / (1 - beta^step)` for both moments, from how many steps there were with this one, an f32 scalar.
pub(super) fn corrections(f: &mut FuncBuilder<'_>, step: ValueId) -> [ValueId; 2] {
    [BETA1, BETA2].map(|beta| {
        let power = f.binary_scalar(Opcode::Multiply, step, beta.ln());
        let power = f.unary(Opcode::Exponential, power);
        let one = f.constant_f32(1.0);
        let left = f.binary(Opcode::Subtract, one, power);
        f.binary(Opcode::Divide, one, left)
    })
}

/// `keep * a + take * b`.
fn mix(f: &mut FuncBuilder<'_>, a: ValueId, keep: f64, b: ValueId, take: f64) -> ValueId {
    let a = f.binary_scalar(Opcode::Multiply, a, keep);
    let b = f.binary_scalar(Opcode::Multiply, b, take);
    f.add(a, b)
}

/// The weight and its moments after this step.
pub(super) fn update(
    f: &mut FuncBuilder<'_>,
    weight: ValueId,
    gradient: ValueId,
    moments: &[ValueId],
    corrections: [ValueId; 2],
) -> (ValueId, Vec<ValueId>) {
    let dtype = f.ty(weight).dtype;
    let (w, g) = (f.convert(weight, DType::F32), f.convert(gradient, DType::F32));
    let (change, state) = match moments {
        &[m, v] => {
            let held_as = [m, v].map(|x| f.ty(x).dtype);
            let (m, v) = (f.convert(m, DType::F32), f.convert(v, DType::F32));
            let m = mix(f, m, BETA1, g, 1.0 - BETA1);
            let squares = f.mul(g, g);
            let v = mix(f, v, BETA2, squares, 1.0 - BETA2);
            // The weight follows the moments as they are held, so that none is stored twice.
            let held = [f.convert(m, held_as[0]), f.convert(v, held_as[1])];
            let [m, v] = held.map(|x| f.convert(x, DType::F32));
            let dims = f.dims(w);
            let [cm, cv] = corrections.map(|c| f.broadcast_along(c, &[], &dims));
            let (mean, square) = (f.mul(m, cm), f.mul(v, cv));
            let root = f.unary(Opcode::Sqrt, square);
            let root = f.binary_scalar(Opcode::Add, root, EPSILON);
            let change = f.binary(Opcode::Divide, mean, root);
            (change, held.to_vec())
        }
        _ => (g, Vec::new()),
    };
    let change = f.binary_scalar(Opcode::Multiply, change, RATE);
    let w = f.binary(Opcode::Subtract, w, change);
    (f.convert(w, dtype), state)
}
