//! Random bits and numbers.
//!
//! `rng_bit_generator` gives the bits that XLA gives, state and all: the specification leaves the mapping open, but programs that
//! are tested elsewhere expect these. `DEFAULT` is Philox, as where XLA has no generator in hardware. `rng` has no seed, so its
//! numbers are those of Philox keyed by how many operations ran before.

use tpusim_isa::num::convert::{encode_f64, encode_i64, wrap};

use super::site::ensure;
use super::unary::round_to;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules};
use crate::eval::{EvalOptions, Fault, Frame, Tensor, Value};
use crate::hlo::{Opcode, TensorType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::RngBitGenerator, Arity::Exactly(1), Rule::Check(rule), Eval::Tensors(bits)),
    OpDef::new(Opcode::Rng, Arity::Exactly(3), Rule::Infer(rng_rule), Eval::Values(rng)),
];

fn rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (state, next, out) = (site.operand(0)?, site.result(0)?, site.result(1)?);
    ensure(state == next && state.rank() == 1, || {
        format!("the state {state} should be a vector, as its successor {next}")
    })?;
    let words = state.bytes().unwrap_or(0) / 8;
    let threefry = site.op.attrs.text("rng_algorithm") == Some("THREE_FRY");
    let fits = state.dtype.is_int() && state.bytes().unwrap_or(0) % 8 == 0 && (words == 2 || !threefry && words == 3);
    ensure(fits, || format!("a state {state} has the wrong size"))?;
    ensure(out.dtype.is_int() || out.dtype.is_float(), || format!("cannot fill {out} with bits"))
}

fn bits(site: &Site<'_>, operands: &[&Tensor], _: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let ty = site.result(1)?;
    let mut state: Vec<u64> = operands[0].bytes().as_chunks::<8>().0.iter().map(|&b| u64::from_le_bytes(b)).collect();
    let values = if site.op.attrs.text("rng_algorithm") == Some("THREE_FRY") {
        let dims: Vec<usize> = ty.dims.iter().map(|&d| d as usize).collect();
        let (values, used) = threefry(state[0], state[1], &dims, ty.dtype.bits());
        state[1] = state[1].wrapping_add(used);
        values
    } else {
        // A state of two words has the key above the counter, too.
        let high = if state.len() > 2 { state[2] } else { state[0] };
        let mut counter = u128::from(state[1]) | u128::from(high) << 64;
        let values = philox(state[0], &mut counter, ty.elements().unwrap_or(0) as usize, ty.dtype.bits());
        state[1] = counter as u64;
        if let Some(high) = state.get_mut(2) {
            *high = (counter >> 64) as u64;
        }
        values
    };
    let bytes = if ty.dtype.is_int() {
        encode_i64(ty.dtype, &values.iter().map(|&v| wrap(ty.dtype, v as i64)).collect::<Vec<_>>())
    } else {
        let w = ty.dtype.bytes();
        // A type below a byte has only its own bits set.
        let mask = u64::MAX >> (64 - ty.dtype.bits().min(64));
        values.iter().flat_map(|v| (v & mask).to_le_bytes().into_iter().take(w)).collect()
    };
    let next: Vec<u8> = state.iter().flat_map(|w| w.to_le_bytes()).collect();
    Ok(vec![Tensor::make(site.result(0)?.clone(), next), Tensor::make(ty.clone(), bytes)])
}

/// Words for the elements of an array of shape `dims`, and how many counters they took. A block is a word of 64 bits, or two of 32 bits:
/// those are neighbours along the first even dimension, else along the longest.
fn threefry(key: u64, counter: u64, dims: &[usize], width: u32) -> (Vec<u64>, u64) {
    let count: usize = dims.iter().product();
    let block = |i: usize| threefry2x32(key, counter.wrapping_add(i as u64));
    if width > 32 {
        let word = |i| block(i)[0] as u64 | (block(i)[1] as u64) << 32;
        return ((0..count).map(word).collect(), count as u64);
    }
    let longest = || (0..dims.len()).rev().max_by_key(|&d| dims[d]);
    let Some(split) = dims.iter().position(|d| d.is_multiple_of(2)).or_else(longest) else {
        return (vec![block(0)[0].into()], 1);
    };
    let inner: usize = dims[split + 1..].iter().product();
    let half = dims[split].div_ceil(2);
    let word = |i: usize| {
        let (outer, at, rest) = (i / inner / dims[split], i / inner % dims[split], i % inner);
        u64::from(block((outer * half + at / 2) * inner + rest)[at % 2])
    };
    let used = if count == 0 { 0 } else { count / dims[split] * half };
    ((0..count).map(word).collect(), used as u64)
}

/// `count` words of up to 64 bits, one behind another; the counter moves on by a whole number of blocks.
fn philox(key: u64, counter: &mut u128, count: usize, width: u32) -> Vec<u64> {
    let mut out = Vec::with_capacity(count + 4);
    while out.len() < count {
        let w = philox4x32(key, *counter);
        *counter = counter.wrapping_add(1);
        if width > 32 {
            out.extend(w.as_chunks::<2>().0.iter().map(|[a, b]| u64::from(*a) | u64::from(*b) << 32));
        } else {
            out.extend(w.map(u64::from));
        }
    }
    out.truncate(count);
    out
}

fn rng_rule(site: &Site<'_>) -> Result<Vec<Type>, RuleError> {
    let (a, b, shape, r) = (site.operand(0)?, site.operand(1)?, site.operand(2)?, site.result(0)?);
    let scalars = a.rank() == 0 && b == a && a.quant.is_none();
    ensure(scalars, || format!("the parameters should be two scalars of one type, not {a} and {b}"))?;
    ensure(shape.rank() == 1 && shape.dtype.is_int() && shape.dims[0] == r.rank() as i64, || {
        format!("the shape should be {} integers, not {shape}", r.rank())
    })?;
    let normal = site.op.attrs.text("rng_distribution") == Some("NORMAL");
    ensure(a.dtype.is_float() || !normal, || format!("a normal distribution needs floats, not {a}"))?;
    Ok(vec![rules::tensor(&r.dims, a.dtype)])
}

/// `UNIFORM` from `a` up to but not `b`, or `NORMAL` of mean `a` and deviation `b`.
fn rng<'m>(frame: &mut Frame<'m>, site: &Site<'m>, operands: Vec<Value>) -> Result<Vec<Value>, Fault> {
    let [Value::Tensor(a), Value::Tensor(b), Value::Tensor(shape)] = operands.as_slice() else {
        return Err(Fault::invalid("needs three tensors"));
    };
    let ty = site.result(0)?;
    if shape.to_i64() != ty.dims {
        return Err(Fault::invalid("the computed shape is not the declared one"));
    }
    let n = ty.elements().unwrap_or(0) as usize;
    let key = frame.spent() ^ (frame.device().unwrap_or(0) as u64) << 48;
    let words = philox(key, &mut 0, n, 64);
    Ok(vec![numbers(ty, a, b, &words, site.op.attrs.text("rng_distribution") == Some("NORMAL")).into()])
}

fn numbers(ty: &TensorType, a: &Tensor, b: &Tensor, words: &[u64], normal: bool) -> Tensor {
    let d = ty.dtype;
    if !d.is_float() {
        let (low, high) = (a.to_i64()[0], b.to_i64()[0]);
        let span = wrap(d, high.wrapping_sub(low)) as u64 & (u64::MAX >> (64 - d.bits().max(1)));
        let value = |w: &u64| if span == 0 { low } else { wrap(d, low.wrapping_add((w % span) as i64)) };
        return Tensor::make(ty.clone(), encode_i64(d, &words.iter().map(value).collect::<Vec<_>>()));
    }
    let (a, b) = (a.to_f64()[0], b.to_f64()[0]);
    let value = |w: &u64| {
        // From 0 up to but not 1, in steps that a double holds.
        let u = (w >> 11) as f64 / (1u64 << 53) as f64;
        if normal {
            return a + b * std::f64::consts::SQRT_2 * super::math::erf_inv((2.0 * u - 1.0).max(-1.0 + f64::EPSILON));
        }
        let v = round_to(d, a + u * (b - a));
        // Rounding must not reach the end.
        if v >= b && b > a { a } else { v }
    };
    Tensor::make(ty.clone(), encode_f64(d, &words.iter().map(value).collect::<Vec<_>>()))
}

/// Threefry-2x32 with 20 rounds (Salmon et al. 2011).
fn threefry2x32(key: u64, counter: u64) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let (k0, k1) = (key as u32, (key >> 32) as u32);
    let keys = [k0, k1, k0 ^ k1 ^ 0x1bd1_1bda];
    let (mut a, mut b) = ((counter as u32).wrapping_add(k0), ((counter >> 32) as u32).wrapping_add(k1));
    for group in 0..5u32 {
        for r in ROTATIONS[group as usize % 2] {
            a = a.wrapping_add(b);
            b = b.rotate_left(r) ^ a;
        }
        a = a.wrapping_add(keys[(group as usize + 1) % 3]);
        b = b.wrapping_add(keys[(group as usize + 2) % 3]).wrapping_add(group + 1);
    }
    [a, b]
}

/// Philox-4x32 with 10 rounds (Salmon et al. 2011).
fn philox4x32(key: u64, counter: u128) -> [u32; 4] {
    let (mut k0, mut k1) = (key as u32, (key >> 32) as u32);
    let mut c = [counter as u32, (counter >> 32) as u32, (counter >> 64) as u32, (counter >> 96) as u32];
    for _ in 0..10 {
        let (p, q) = (u64::from(c[0]) * 0xd251_1f53, u64::from(c[2]) * 0xcd9e_8d57);
        c = [(q >> 32) as u32 ^ c[1] ^ k0, q as u32, (p >> 32) as u32 ^ c[3] ^ k1, p as u32];
        k0 = k0.wrapping_add(0x9e37_79b9);
        k1 = k1.wrapping_add(0xbb67_ae85);
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: the known-answer vectors of the Random123 library.
    #[test]
    fn known_answers() {
        assert_eq!(threefry2x32(0, 0), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry2x32(u64::MAX, u64::MAX), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(philox4x32(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32(u64::MAX, u128::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }
}
