//! How random values of a parameter should be drawn, so that what the program computes from them stays in range.
//!
//! It is an attribute of the parameter: whoever makes the inputs may follow it, and the program is the same without.

use tpusim_backend::hlo::{Attr, AttrList, FuncBuilder, TensorType, Type, ValueId};
use tpusim_isa::num::DType;

const MEAN: &str = "tpusim.mean";
const DEVIATION: &str = "tpusim.deviation";
const BELOW: &str = "tpusim.below";

/// A distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Draw {
    /// Floats of a mean and a standard deviation.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation.
        deviation: f64,
    },
    /// Integers from zero to below a limit, each as likely.
    Below(u64),
}

impl Draw {
    /// What a parameter's attributes ask for, if anything.
    pub fn of(attrs: &AttrList) -> Option<Draw> {
        let float = |name: &str| match attrs.get(name) {
            Some(Attr::Float(v, _)) => Some(*v),
            _ => None,
        };
        if let (Some(mean), Some(deviation)) = (float(MEAN), float(DEVIATION)) {
            return Some(Draw::Normal { mean, deviation });
        }
        attrs.int(BELOW).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).map(Draw::Below)
    }

    pub(crate) fn attrs(self) -> AttrList {
        let mut attrs = AttrList::default();
        match self {
            Draw::Normal { mean, deviation } => {
                attrs.set(MEAN, Attr::Float(mean, Type::Scalar(DType::F64)));
                attrs.set(DEVIATION, Attr::Float(deviation, Type::Scalar(DType::F64)));
            }
            Draw::Below(n) => attrs.set(BELOW, Attr::Int(n as i64, Type::Scalar(DType::I64))),
        }
        attrs
    }
}

/// A parameter drawn as `draw` says.
pub(crate) fn drawn(f: &mut FuncBuilder<'_>, name: &str, ty: TensorType, draw: Draw) -> ValueId {
    f.param_with(name, ty, draw.attrs())
}

/// Weights whose products with `fan_in` inputs of variance one have variance one.
pub(crate) fn weight(f: &mut FuncBuilder<'_>, name: &str, ty: TensorType, fan_in: i64) -> ValueId {
    drawn(f, name, ty, Draw::Normal { mean: 0.0, deviation: (fan_in.max(1) as f64).sqrt().recip() })
}

/// Factors around one.
pub(crate) fn scale(f: &mut FuncBuilder<'_>, name: &str, ty: TensorType) -> ValueId {
    drawn(f, name, ty, Draw::Normal { mean: 1.0, deviation: 0.1 })
}
