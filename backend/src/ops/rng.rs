//! Random bits.
//!
//! The specification leaves the mapping from state to output open. Here the state is a key (its first word) and a counter (the
//! others); `DEFAULT` is Threefry.

use tpusim_isa::num::convert::encode_i64;

use super::site::ensure;
use super::{Arity, Eval, OpDef, Rule, RuleError, Site, rules};
use crate::eval::{EvalOptions, Fault, Tensor};
use crate::hlo::Opcode;

pub(super) static OPS: &[OpDef] = &[
    OpDef::new(Opcode::RngBitGenerator, Arity::Exactly(1), Rule::Check(rule), Eval::Tensors(bits)),
    OpDef::new(Opcode::Rng, Arity::Exactly(3), Rule::Check(rules::any), Eval::Unsupported),
];

fn rule(site: &Site<'_>) -> Result<(), RuleError> {
    let (state, next, out) = (site.operand(0)?, site.result(0)?, site.result(1)?);
    ensure(state == next && state.rank() == 1, || {
        format!("the state {state} should be a vector, as its successor {next}")
    })?;
    let words = state.bytes().unwrap_or(0) / 8;
    let philox = site.op.attrs.text("rng_algorithm") == Some("PHILOX");
    let fits = state.dtype.is_int() && state.bytes().unwrap_or(0) % 8 == 0 && (words == 2 || philox && words == 3);
    ensure(fits, || format!("a state {state} has the wrong size"))?;
    ensure(out.dtype.is_int() || out.dtype.is_float(), || format!("cannot fill {out} with bits"))
}

fn bits(site: &Site<'_>, operands: &[&Tensor], _: &EvalOptions) -> Result<Vec<Tensor>, Fault> {
    let ty = site.result(1)?;
    let state: Vec<u64> = operands[0].bytes().as_chunks::<8>().0.iter().map(|&b| u64::from_le_bytes(b)).collect();
    let (key, mut counter) = (state[0], u128::from(state[1]));
    let wide = state.len() > 2;
    if wide {
        counter |= u128::from(state[2]) << 64;
    }
    let need = ty.bytes().unwrap_or(0) as usize;
    let mut bytes = Vec::with_capacity(need + 16);
    let philox = site.op.attrs.text("rng_algorithm") == Some("PHILOX");
    while bytes.len() < need {
        if philox {
            philox4x32(key, counter).iter().for_each(|w| bytes.extend(w.to_le_bytes()));
        } else {
            threefry2x32(key, counter as u64).iter().for_each(|w| bytes.extend(w.to_le_bytes()));
        }
        counter = counter.wrapping_add(1);
    }
    bytes.truncate(need);
    if ty.dtype.bits() < 8 {
        let values: Vec<i64> = bytes.iter().map(|&b| b.into()).collect();
        bytes = encode_i64(ty.dtype, &values);
    }
    let mut next = vec![key, counter as u64];
    if wide {
        next.push((counter >> 64) as u64);
    }
    let next: Vec<u8> = next.iter().flat_map(|w| w.to_le_bytes()).collect();
    Ok(vec![Tensor::make(site.result(0)?.clone(), next), Tensor::make(ty.clone(), bytes)])
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
