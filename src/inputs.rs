//! Inputs of a run: `.npy` files, or seeded random numbers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tpusim_backend::hlo::TensorType;
use tpusim_isa::num::convert::{encode_f32, encode_f64, encode_i64};
use tpusim_isa::num::{DType, DTypeKind};
use tpusim_traces::npy;
use tpusim_workloads::Draw;

use crate::failure::Failure;
use crate::program::Loaded;

/// `--input` and `--seed`.
#[derive(Args, Clone, Debug)]
pub struct InputArgs {
    /// An .npy file for the next parameter, or for the one called NAME; without any, all inputs are random
    #[arg(long = "input", value_name = "[NAME=]FILE", help_heading = "Inputs and outputs")]
    inputs: Vec<String>,
    /// Seed of what is random: inputs, and clocks with --jitter
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Inputs and outputs")]
    seed: u64,
}

impl InputArgs {
    /// The seed of what is random.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether files are given.
    pub fn given(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// The data of every parameter.
    pub fn load(&self, program: &Loaded) -> Result<Vec<Vec<u8>>, Failure> {
        let params = &program.params;
        if !self.given() {
            return Ok(random_all(program, self.seed));
        }
        let mut loaded = Vec::with_capacity(params.len());
        for ((_, ty), path) in params.iter().zip(self.assign(params)?) {
            let array = npy::read_as(&path, ty.dtype, &ty.dims).map_err(Failure::usage)?;
            loaded.push(array.data);
        }
        Ok(loaded)
    }

    /// The file of every parameter.
    fn assign(&self, params: &[(String, TensorType)]) -> Result<Vec<PathBuf>, Failure> {
        let mut files: Vec<Option<PathBuf>> = vec![None; params.len()];
        let mut next = 0;
        for text in &self.inputs {
            let (index, path) = match text.split_once('=') {
                Some((name, path)) if !Path::new(text).exists() => {
                    let index = params.iter().position(|(n, _)| n == name).ok_or_else(|| {
                        Failure::usage(format!("--input {text}: no parameter `{name}`; {}", describe(params)))
                    })?;
                    (index, path)
                }
                _ => {
                    next += 1;
                    (next - 1, text.as_str())
                }
            };
            match files.get_mut(index) {
                Some(slot @ None) => *slot = Some(PathBuf::from(path)),
                Some(Some(_)) => {
                    return Err(Failure::usage(format!("--input {text}: parameter {index} has two files")));
                }
                None => {
                    return Err(Failure::usage(format!("--input {text}: one file too many; {}", describe(params))));
                }
            }
        }
        let missing: Vec<String> =
            files.iter().enumerate().filter(|(_, f)| f.is_none()).map(|(i, _)| label(params, i)).collect();
        if !missing.is_empty() {
            return Err(Failure::usage(format!("no --input for {}; {}", missing.join(", "), describe(params))));
        }
        Ok(files.into_iter().flatten().collect())
    }
}

fn label(params: &[(String, TensorType)], index: usize) -> String {
    match params.get(index) {
        Some((name, _)) if !name.is_empty() => format!("parameter {index} (`{name}`)"),
        _ => format!("parameter {index}"),
    }
}

fn describe(params: &[(String, TensorType)]) -> String {
    let one = |(i, (name, ty)): (usize, &(String, TensorType))| {
        let name = if name.is_empty() { i.to_string() } else { name.clone() };
        format!("{name}: {ty}")
    };
    let list: Vec<String> = params.iter().enumerate().map(one).collect();
    format!("the program takes {} ({})", list.len(), list.join(", "))
}

/// Random values of all parameters. Each has a stream of its own, so how many threads make them does not show.
fn random_all(program: &Loaded, seed: u64) -> Vec<Vec<u8>> {
    let next = AtomicUsize::new(0);
    let make = || {
        let mut made = Vec::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some((_, ty)) = program.params.get(n) else { return made };
            let draw = program.draws.get(n).copied().flatten();
            made.push((n, random(ty, draw, seed, n as u64)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(program.params.len());
    let mut all: Vec<(usize, Vec<u8>)> = std::thread::scope(|s| {
        let others: Vec<_> = (1..threads).map(|_| s.spawn(make)).collect();
        let mut all = make();
        all.extend(others.into_iter().flat_map(|t| t.join().unwrap_or_default()));
        all
    });
    all.sort_by_key(|(n, _)| *n);
    all.into_iter().map(|(_, data)| data).collect()
}

/// Random elements of `ty`, the same on every machine. Without `draw`: floats of mean 0 and variance 1, integers from -8 to 7 or 0 to
/// 15, fair coins.
fn random(ty: &TensorType, draw: Option<Draw>, seed: u64, stream: u64) -> Vec<u8> {
    let n = ty.elements().unwrap_or(0) as usize;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(stream);
    let mut bytes = Vec::with_capacity(n.saturating_mul(ty.dtype.bytes()));
    // In blocks, so that numbers in a wider type never take much memory beside the result.
    const BLOCK: usize = 1 << 16;
    for start in (0..n).step_by(BLOCK) {
        block(ty.dtype, draw, BLOCK.min(n - start), &mut rng, &mut bytes);
    }
    bytes
}

/// Appends `n` random elements of `dtype`.
fn block(dtype: DType, draw: Option<Draw>, n: usize, rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>) {
    match dtype.kind() {
        DTypeKind::Bool => bytes.extend((0..n).map(|_| (rng.next_u32() & 1) as u8)),
        DTypeKind::Signed | DTypeKind::Unsigned if let Some(Draw::Below(limit)) = draw => {
            let values: Vec<i64> =
                (0..n).map(|_| ((u128::from(rng.next_u64()) * u128::from(limit)) >> 64) as i64).collect();
            bytes.extend(encode_i64(dtype, &values));
        }
        DTypeKind::Signed | DTypeKind::Unsigned => {
            // Types narrower than four bits have a range of their own.
            let bits = dtype.bits().min(4);
            let low = if dtype.is_signed() { -(1i64 << (bits - 1)) } else { 0 };
            let values: Vec<i64> = (0..n).map(|_| low + i64::from(rng.next_u32() >> (32 - bits))).collect();
            bytes.extend(encode_i64(dtype, &values));
        }
        DTypeKind::Float if dtype == DType::F64 => {
            let values: Vec<f64> = (0..n).map(|_| f64::from(normal(rng))).collect();
            bytes.extend(encode_f64(dtype, &values));
        }
        DTypeKind::Float => {
            let (mean, deviation) = match draw {
                Some(Draw::Normal { mean, deviation }) => (mean as f32, deviation as f32),
                _ => (0.0, 1.0),
            };
            let values: Vec<f32> = (0..n).map(|_| mean + deviation * normal(rng)).collect();
            bytes.extend(encode_f32(dtype, &values));
        }
        DTypeKind::Complex => {
            let part = if dtype == DType::C128 { DType::F64 } else { DType::F32 };
            block(part, None, 2 * n, rng, bytes);
        }
    }
}

/// The sum of four uniform numbers, scaled to variance 1: exact in integers and near enough to a normal one.
fn normal(rng: &mut ChaCha8Rng) -> f32 {
    let r = rng.next_u64();
    let sum: i64 = (0..4).map(|i| (r >> (16 * i) & 0xffff) as i64).sum();
    let centred = (2 * sum - 4 * 0xffff) as f32;
    centred * (1.732_050_8 / 131_072.0)
}

/// Random bytes for arrays of unknown type: moderate numbers whether read as f32 or as bf16.
pub fn random_untyped(bytes: u64, seed: u64, stream: u64) -> Vec<u8> {
    let mut data = random(&TensorType::new([(bytes / 2) as i64], DType::BF16), None, seed, stream);
    data.resize(bytes as usize, 0);
    data
}

/// `--input` and `--seed` of assembled programs, whose arrays have a size but no type.
pub fn load_untyped(args: &InputArgs, sizes: &[u64]) -> Result<Vec<Vec<u8>>, Failure> {
    if !args.given() {
        return Ok(sizes.iter().zip(0..).map(|(&n, i)| random_untyped(n, args.seed, i)).collect());
    }
    if args.inputs.len() != sizes.len() {
        let text = format!("the program takes {} inputs, {} are given", sizes.len(), args.inputs.len());
        return Err(Failure::usage(text));
    }
    let mut loaded = Vec::with_capacity(sizes.len());
    for (text, &bytes) in args.inputs.iter().zip(sizes) {
        let array = npy::read(Path::new(text)).map_err(Failure::usage)?;
        if array.data.len() as u64 != bytes {
            let found = array.data.len();
            return Err(Failure::usage(format!("`{text}`: expected {bytes} bytes of data, found {found}")));
        }
        loaded.push(array.data);
    }
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: mean 0 and variance 1 within the error of 10,000 draws; another seed or parameter gives other numbers.
    #[test]
    fn random_floats_are_normal_and_seeded() {
        let ty = TensorType::new([100, 100], DType::F32);
        let bytes = random(&ty, None, 7, 0);
        let x = tpusim_isa::num::convert::decode_f64(DType::F32, &bytes);
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        assert!(mean.abs() < 0.04 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        assert_eq!(bytes, random(&ty, None, 7, 0));
        assert_ne!(bytes, random(&ty, None, 7, 1));
        assert_ne!(bytes, random(&ty, None, 8, 0));
    }

    // Oracle: the size of the type, and the ranges promised.
    #[test]
    fn random_data_fits_every_type() {
        for &dtype in DType::ALL {
            let ty = TensorType::new([33], dtype);
            let bytes = random(&ty, None, 0, 0);
            assert_eq!(Some(bytes.len() as u64), ty.bytes(), "{dtype}");
            if dtype.is_int() {
                let values = tpusim_isa::num::convert::decode_i64(dtype, &bytes);
                assert!(values.iter().all(|v| (-8..16).contains(v)), "{dtype}: {values:?}");
            }
        }
    }
}
