//! Operations on numbers that take two registers: 64-bit integers and double-floats.
//!
//! The vector unit has 32-bit lanes only. A 64-bit integer is two words, low and high. A double is the unevaluated sum of two f32, the
//! larger first: about 48 bits of precision in f32's range (what is larger becomes infinite, what is smaller loses bits and then
//! vanishes). An operation gives both registers of its result; a node of a graph is one of them, and the code of the other is shared
//! where both are wanted.
//!
//! Accuracy of double-floats, relative, for results well inside f32's range: `+ - *` 2^-46, quotients and roots 2^-45; `exp`, `log`,
//! `tanh`, sine and cosine (arguments up to 10^6) 2^-43; a power loses as many bits as its exponent's product with the logarithm has.
//! Integers are exact.

mod bits;
mod double;
mod elementary;
mod integer;
mod trigonometric;

use super::super::vcode::{Code, V};

/// An operation whose operands or results are pairs of registers. Operands are the registers of all pairs in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum WideOp {
    Shl,
    ShrLogical,
    ShrArith,
    /// Quotient; the flag is for signed operands.
    Divide(bool),
    Remainder(bool),
    Power(bool),
    /// 64-bit integer to f32, to nearest.
    IntToF32(bool),
    /// 64-bit integer to f32, inexact values with an odd last bit, so that narrower types round as the integer itself would.
    IntToF32Odd(bool),
    F32ToInt(bool),
    /// The bits of a double to a double-float.
    FromBits,
    ToBits,
    FromInt(bool),
    ToInt(bool),
    /// Double-float to f32 with an odd last bit where inexact.
    ToF32Odd,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Sqrt,
    Rsqrt,
    Cbrt,
    Exp,
    Expm1,
    Log,
    Log1p,
    Pow,
    Tanh,
    Logistic,
    Sin,
    Cos,
    Tan,
    Atan2,
    Floor,
    Ceil,
    RoundEven,
    RoundAway,
}

impl WideOp {
    /// Rough number of vector instructions.
    pub fn cost(self) -> u32 {
        use WideOp::*;
        match self {
            Shl | ShrLogical | ShrArith | IntToF32(_) | IntToF32Odd(_) | F32ToInt(_) | ToF32Odd => 16,
            FromBits | ToBits | FromInt(_) | ToInt(_) | Add | Sub | Mul | Floor | Ceil => 40,
            Divide(_) | Remainder(_) | Div | Sqrt | Rsqrt | RoundEven | RoundAway => 150,
            _ => 400,
        }
    }
}

/// The registers of a pair: low and high word, or the larger and the smaller f32.
pub type Registers = [V; 2];

/// Code of `op`; operations with a single result give it twice.
pub(super) fn wide(c: &mut Code, op: WideOp, a: &[V]) -> Registers {
    use WideOp as W;
    use double::{D, *};
    use elementary::*;
    use integer::L;
    use trigonometric::*;
    let at = |i: usize| a.get(i).copied().unwrap_or(a[0]);
    let (x, y) = (D { h: at(0), l: at(1) }, D { h: at(2), l: at(3) });
    let (i, j) = (L { l: at(0), h: at(1) }, L { l: at(2), h: at(3) });
    let words = |v: L| [v.l, v.h];
    let one = |v: V| [v, v];
    let d = match op {
        W::Shl => return words(integer::shift(c, i, j, integer::shl)),
        W::ShrLogical => return words(integer::shift(c, i, j, integer::shr)),
        W::ShrArith => return words(integer::shift_arith(c, i, j)),
        W::Divide(signed) => return words(integer::divide(c, signed, i, j).0),
        W::Remainder(signed) => return words(integer::divide(c, signed, i, j).1),
        W::Power(signed) => return words(integer::power(c, signed, i, j)),
        W::IntToF32(signed) => return one(integer::to_f32(c, signed, i, false)),
        W::IntToF32Odd(signed) => return one(integer::to_f32(c, signed, i, true)),
        W::F32ToInt(signed) => return words(integer::from_f32(c, signed, at(0))),
        W::FromBits => bits::from_bits(c, i),
        W::ToBits => return words(bits::to_bits(c, x)),
        W::FromInt(signed) => bits::from_int(c, signed, i),
        W::ToInt(signed) => return words(bits::to_int(c, signed, x)),
        W::ToF32Odd => return one(bits::to_f32_odd(c, x)),
        W::Add => add(c, x, y),
        W::Sub => sub(c, x, y),
        W::Mul => mul(c, x, y),
        W::Div => div(c, x, y),
        W::Rem => remainder(c, x, y),
        W::Sqrt => sqrt(c, x),
        W::Rsqrt => rsqrt(c, x),
        W::Cbrt => cbrt(c, x),
        W::Exp => exp(c, x),
        W::Expm1 => expm1(c, x),
        W::Log => log(c, x),
        W::Log1p => log1p(c, x),
        W::Pow => pow(c, x, y),
        W::Tanh => tanh(c, x),
        W::Logistic => logistic(c, x),
        W::Sin => sincos(c, x).0,
        W::Cos => sincos(c, x).1,
        W::Tan => tan(c, x),
        W::Atan2 => atan2(c, x, y),
        W::Floor => floor(c, x),
        W::Ceil => ceil(c, x),
        W::RoundEven => round_even(c, x),
        W::RoundAway => round_away(c, x),
    };
    [d.h, d.l]
}
