//! Batch normalisation.

use super::{Arity, Eval, OpDef, Rule, rules};
use crate::hlo::Opcode;

macro_rules! unsupported {
    ($op:ident) => {
        OpDef::new(Opcode::$op, Arity::AtLeast(0), Rule::Check(rules::any), Eval::Unsupported)
            .regions(Arity::AtLeast(0))
    };
}

pub(super) static OPS: &[OpDef] =
    &[unsupported!(BatchNormInference), unsupported!(BatchNormTraining), unsupported!(BatchNormGrad)];
