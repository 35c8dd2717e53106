//! Formulas of parts, written as operations.

use tpusim_isa::num::{DType, convert};

use super::Expander;
use crate::hlo::{Attr, Literal, Opcode, TensorType, ValueId};

/// Real and imaginary part.
pub(super) type Parts = [ValueId; 2];

/// Writes elementwise operations on values of the type of `like`.
pub(super) struct Formula<'e, 'm> {
    pub e: &'e mut Expander<'m>,
    pub like: ValueId,
}

impl Formula<'_, '_> {
    fn of_type(&self, dtype: DType) -> TensorType {
        TensorType::new(self.e.ty(self.like).dims, dtype)
    }

    pub fn op(&mut self, opcode: Opcode, args: &[ValueId]) -> ValueId {
        let ty = self.e.ty(self.like);
        self.e.emit(opcode, args, ty, &[])
    }

    /// `v` everywhere.
    pub fn number(&mut self, v: f64) -> ValueId {
        let ty = self.e.ty(self.like);
        let bytes = convert::from_f64(ty.dtype, v)[..ty.dtype.bytes()].to_vec();
        let value = Attr::Dense(Literal { ty: ty.clone(), bytes: bytes.into() }.into());
        self.e.emit(Opcode::Constant, &[], ty, &[("value", value)])
    }

    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op(Opcode::Add, &[a, b])
    }

    pub fn sub(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op(Opcode::Subtract, &[a, b])
    }

    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op(Opcode::Multiply, &[a, b])
    }

    pub fn div(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op(Opcode::Divide, &[a, b])
    }

    pub fn of(&mut self, opcode: Opcode, x: ValueId) -> ValueId {
        self.op(opcode, &[x])
    }

    pub fn neg(&mut self, x: ValueId) -> ValueId {
        self.of(Opcode::Negate, x)
    }

    pub fn plus(&mut self, x: ValueId, v: f64) -> ValueId {
        let v = self.number(v);
        self.add(x, v)
    }

    pub fn times(&mut self, x: ValueId, v: f64) -> ValueId {
        let v = self.number(v);
        self.mul(x, v)
    }

    pub fn is(&mut self, direction: &str, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.of_type(DType::I1);
        let attrs = [
            ("comparison_direction", Attr::Enum(direction.to_owned())),
            ("compare_type", Attr::Enum("FLOAT".to_owned())),
        ];
        self.e.emit(Opcode::Compare, &[a, b], ty, &attrs)
    }

    pub fn is_number(&mut self, direction: &str, a: ValueId, v: f64) -> ValueId {
        let v = self.number(v);
        self.is(direction, a, v)
    }

    pub fn flags(&mut self, opcode: Opcode, args: &[ValueId]) -> ValueId {
        let ty = self.of_type(DType::I1);
        self.e.emit(opcode, args, ty, &[])
    }

    pub fn pick(&mut self, p: ValueId, a: ValueId, b: ValueId) -> ValueId {
        self.op(Opcode::Select, &[p, a, b])
    }

    pub fn pick_parts(&mut self, p: ValueId, a: Parts, b: Parts) -> Parts {
        [self.pick(p, a[0], b[0]), self.pick(p, a[1], b[1])]
    }

    /// The magnitude of `a` with the sign of `b`; that of a zero is what `atan2` makes of it.
    pub fn copysign(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let size = self.of(Opcode::Abs, a);
        let minus = self.neg(size);
        let minus_one = self.number(-1.0);
        let angle = self.op(Opcode::Atan2, &[b, minus_one]);
        let negative = self.is_number("LT", angle, 0.0);
        self.pick(negative, minus, size)
    }
}
