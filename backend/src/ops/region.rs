//! Regions that work on scalars: the bodies of `reduce`, `sort`, `scatter` and their like.
//!
//! Such a body is almost always a few elementwise ops on rank-0 tensors. It is translated once into a list of steps on plain
//! numbers; any other body is interpreted.

use rustc_hash::FxHashMap;
use tpusim_isa::num::DType;
use tpusim_isa::num::convert::{decode_f64, decode_i64, encode_f64, encode_i64, f64_to_int, int_to_f64_odd, wrap};

use super::compare::{Direction, int_order, total_order};
use super::elementwise::{C, Class, decode_complex, encode_complex};
use super::rules::part;
use super::unary::{ABS, round_to};
use super::{BinaryFns, Eval, Site, UnaryFns, binary, lookup, shape};
use crate::eval::{Fault, Frame, Tensor, Value};
use crate::hlo::{Block, Op, Opcode, TensorType, ValueId};

/// One element: a float of any width (exactly, as a double), an integer or `i1`, or a complex number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Num {
    F(f64),
    I(i64),
    C(C),
}

impl Num {
    fn f(self) -> f64 {
        match self {
            Num::F(v) | Num::C((v, _)) => v,
            Num::I(v) => v as f64,
        }
    }

    fn i(self) -> i64 {
        match self {
            Num::F(v) | Num::C((v, _)) => v as i64,
            Num::I(v) => v,
        }
    }

    fn c(self) -> C {
        match self {
            Num::C(v) => v,
            other => (other.f(), 0.0),
        }
    }

    /// Whether it is a number other than zero: the truth of an `i1`.
    pub(super) fn truth(self) -> bool {
        self.i() != 0
    }
}

/// The elements of `t`.
pub(super) fn decode(t: &Tensor) -> Vec<Num> {
    match Class::of(t.dtype()) {
        Class::F32 | Class::F64 => decode_f64(t.dtype(), t.bytes()).into_iter().map(Num::F).collect(),
        Class::Int => decode_i64(t.dtype(), t.bytes()).into_iter().map(Num::I).collect(),
        Class::Complex => decode_complex(t).into_iter().map(Num::C).collect(),
    }
}

/// A tensor of `values`.
pub(super) fn encode(ty: &TensorType, values: &[Num]) -> Tensor {
    let bytes = match Class::of(ty.dtype) {
        Class::Int => encode_i64(ty.dtype, &values.iter().map(|v| v.i()).collect::<Vec<_>>()),
        Class::Complex => return encode_complex(ty.clone(), &values.iter().map(|v| v.c()).collect::<Vec<_>>()),
        _ => encode_f64(ty.dtype, &values.iter().map(|v| v.f()).collect::<Vec<_>>()),
    };
    Tensor::make(ty.clone(), bytes)
}

/// If the block is `op(a, b)` of its two arguments, and `op` commutes: the op.
pub(super) fn single_op<'m>(site: &Site<'m>, block: &'m Block) -> Option<&'m Op> {
    if block.args.iter().any(|v| site.func.ty(*v).tensor().is_none_or(|t| t.quant.is_some())) {
        return None;
    }
    let ([a, b], [op, ret]) = (block.args.as_slice(), block.ops.as_slice()) else { return None };
    let operands = op.operands == [*a, *b] || op.operands == [*b, *a];
    let commutes = matches!(
        op.opcode,
        Opcode::Add | Opcode::Multiply | Opcode::Maximum | Opcode::Minimum | Opcode::And | Opcode::Or | Opcode::Xor
    );
    (operands && commutes && ret.opcode == Opcode::Return && ret.operands == op.results).then_some(op)
}

enum Step {
    Unary(&'static UnaryFns, DType),
    Binary(&'static BinaryFns, DType),
    Compare(Direction, bool, DType),
    Select,
    Clamp(DType),
    Convert(DType, DType),
    Copy,
}

struct Instr {
    step: Step,
    operands: [usize; 3],
}

/// A translated body. Slots hold arguments, then constants and captured values, then one result per step.
struct Program {
    fixed: Vec<Num>,
    steps: Vec<Instr>,
    results: Vec<usize>,
}

enum Kind<'m> {
    Program(Program),
    Block(&'m Block),
}

/// A region as a function of scalars.
pub(super) struct ScalarFn<'m> {
    kind: Kind<'m>,
    args: Vec<TensorType>,
    slots: Vec<Num>,
}

impl<'m> ScalarFn<'m> {
    /// The function that `block` of the op at `site` computes.
    pub(super) fn new(frame: &Frame<'m>, site: &Site<'m>, block: &'m Block) -> Result<ScalarFn<'m>, Fault> {
        let scalar = |v: &ValueId| site.func.ty(*v).tensor().filter(|t| t.rank() == 0).cloned();
        let args: Option<Vec<TensorType>> = block.args.iter().map(scalar).collect();
        let args = args.ok_or_else(|| Fault::Unsupported(" with a region on more than scalars".into()))?;
        let kind = translate(frame, site, block).map_or(Kind::Block(block), Kind::Program);
        Ok(ScalarFn { kind, args, slots: Vec::new() })
    }

    /// Applies it to `args`; the results go to `out`.
    pub(super) fn call(&mut self, frame: &mut Frame<'m>, args: &[Num], out: &mut Vec<Num>) -> Result<(), Fault> {
        out.clear();
        match &self.kind {
            Kind::Program(p) => {
                self.slots.clear();
                self.slots.extend_from_slice(args);
                self.slots.extend_from_slice(&p.fixed);
                for i in &p.steps {
                    let v = step(&i.step, i.operands.map(|s| self.slots[s]));
                    self.slots.push(v);
                }
                out.extend(p.results.iter().map(|&r| self.slots[r]));
            }
            Kind::Block(block) => {
                let tensors = self.args.iter().zip(args).map(|(t, v)| Value::Tensor(encode(t, &[*v]))).collect();
                for v in frame.region(block, tensors)? {
                    let t =
                        v.tensor().ok_or_else(|| Fault::invalid("a region returns something else than a tensor"))?;
                    out.extend(decode(t));
                }
            }
        }
        Ok(())
    }
}

fn translate(frame: &Frame<'_>, site: &Site<'_>, block: &Block) -> Option<Program> {
    let mut slot: FxHashMap<ValueId, usize> = block.args.iter().enumerate().map(|(i, &v)| (v, i)).collect();
    let mut fixed = Vec::new();
    let scalar = |v: ValueId| site.func.ty(v).tensor().filter(|t| t.rank() == 0 && t.quant.is_none());
    let (last, body) = block.ops.split_last()?;
    let inner = |v: ValueId| body.iter().any(|op| op.results.contains(&v));
    // Constants and values from outside come first.
    for op in &block.ops {
        if op.opcode == Opcode::Constant {
            let l = shape::literal(&Site { op, ..*site }).ok()?;
            scalar(*op.results.first()?)?;
            slot.insert(*op.results.first()?, block.args.len() + fixed.len());
            fixed.push(*decode(&Tensor::from_literal(l).ok()?).first()?);
            continue;
        }
        for &v in &op.operands {
            if slot.contains_key(&v) || inner(v) {
                continue;
            }
            scalar(v)?;
            slot.insert(v, block.args.len() + fixed.len());
            fixed.push(*decode(frame.value(v)?.tensor()?).first()?);
        }
    }
    let mut steps = Vec::new();
    for op in body.iter().filter(|op| op.opcode != Opcode::Constant) {
        let (&[result], [first, ..]) = (op.results.as_slice(), op.operands.as_slice()) else { return None };
        let (from, to) = (scalar(*first)?.dtype, scalar(result)?.dtype);
        let mut operands = [0; 3];
        for (o, v) in operands.iter_mut().zip(&op.operands) {
            *o = *slot.get(v)?;
        }
        let inner_site = Site { op, ..*site };
        let step = match (op.opcode, lookup(op.opcode)?.eval) {
            (Opcode::Compare, _) => Step::Compare(Direction::of(&inner_site).ok()?, total_order(&inner_site), from),
            (Opcode::Select, _) => Step::Select,
            (Opcode::Clamp, _) => Step::Clamp(to),
            (Opcode::Convert, _) if Class::of(from) != Class::Complex && Class::of(to) != Class::Complex => {
                Step::Convert(from, to)
            }
            (Opcode::Abs, _) if Class::of(from) != Class::Complex => Step::Unary(&ABS, from),
            (Opcode::Reshape | Opcode::BroadcastInDim, _) => Step::Copy,
            (_, Eval::Unary(f)) if unary_knows(f, from) => Step::Unary(f, from),
            (_, Eval::Binary(f)) if binary_knows(f, from) => Step::Binary(f, from),
            _ => return None,
        };
        slot.insert(result, block.args.len() + fixed.len() + steps.len());
        steps.push(Instr { step, operands });
    }
    let results = last.operands.iter().map(|v| slot.get(v).copied()).collect::<Option<_>>()?;
    Some(Program { fixed, steps, results })
}

fn unary_knows(f: &UnaryFns, d: DType) -> bool {
    match Class::of(d) {
        Class::F32 => f.f32.is_some(),
        Class::F64 => f.f64.is_some(),
        Class::Int => f.int.is_some(),
        Class::Complex => f.complex.is_some(),
    }
}

fn binary_knows(f: &BinaryFns, d: DType) -> bool {
    match Class::of(d) {
        Class::F32 => f.f32.is_some(),
        Class::F64 => f.f64.is_some(),
        Class::Int => f.int.is_some(),
        Class::Complex => f.complex.is_some(),
    }
}

fn round_parts(d: DType, v: C) -> C {
    (round_to(part(d), v.0), round_to(part(d), v.1))
}

/// Applies `f` to one element of type `d`.
fn unary(f: &UnaryFns, d: DType, a: Num) -> Num {
    if let (Class::Complex, Some(f)) = (Class::of(d), f.complex) {
        return Num::C(round_parts(d, f(a.c())));
    }
    match (Class::of(d), f.f32, f.f64, f.int) {
        (Class::F32, Some(f), ..) => Num::F(round_to(d, f(a.f() as f32).into())),
        (Class::F64, _, Some(f), _) => Num::F(f(a.f())),
        (Class::Int, _, _, Some(f)) => Num::I(wrap(d, f(d, a.i()))),
        _ => a,
    }
}

/// Applies `f` to two elements of type `d`.
pub(super) fn apply(f: &BinaryFns, d: DType, a: Num, b: Num) -> Num {
    if let (Class::Complex, Some(f)) = (Class::of(d), f.complex) {
        return Num::C(round_parts(d, f(a.c(), b.c())));
    }
    match (Class::of(d), f.f32, f.f64, f.int) {
        (Class::F32, Some(f), ..) => Num::F(round_to(d, f(a.f() as f32, b.f() as f32).into())),
        (Class::F64, _, Some(f), _) => Num::F(f(a.f(), b.f())),
        (Class::Int, _, _, Some(f)) => Num::I(wrap(d, f(d, a.i(), b.i()))),
        _ => a,
    }
}

fn step(s: &Step, [a, b, c]: [Num; 3]) -> Num {
    match *s {
        Step::Unary(f, d) => unary(f, d, a),
        Step::Binary(f, d) => apply(f, d, a, b),
        Step::Compare(direction, total, d) => {
            let order = match Class::of(d) {
                Class::Int => Some(int_order(d, a.i(), b.i())),
                Class::Complex => a.c().partial_cmp(&b.c()),
                _ if total => Some(a.f().total_cmp(&b.f())),
                _ => a.f().partial_cmp(&b.f()),
            };
            Num::I(direction.holds(order).into())
        }
        Step::Select => {
            if a.truth() {
                b
            } else {
                c
            }
        }
        Step::Clamp(d) => apply(&binary::MINIMUM, d, apply(&binary::MAXIMUM, d, b, a), c),
        Step::Convert(from, to) => convert(from, to, a),
        Step::Copy => a,
    }
}

fn convert(from: DType, to: DType, a: Num) -> Num {
    match (Class::of(from), Class::of(to)) {
        (Class::Int, Class::Int) if to == DType::I1 => Num::I(a.truth().into()),
        (Class::Int, Class::Int) => Num::I(wrap(to, a.i())),
        (Class::Int, _) => Num::F(round_to(to, int_to_f64_odd(from, a.i()))),
        (_, Class::Int) => Num::I(f64_to_int(to, a.f())),
        _ => Num::F(round_to(to, a.f())),
    }
}
