//! What the whole-program tests share: a compiled program run in every mode that must not matter, and tensors compared.
#![allow(dead_code)]

use tpusim_backend::compile::compile;
use tpusim_backend::eval::{DotPrecision, EvalOptions, Tensor, eval_module_with};
use tpusim_backend::hlo::{Module, Verified};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::{DType, convert};
use tpusim_isa::program::{Node, Program};
use tpusim_sim::profile::Profile;
use tpusim_sim::{RunOptions, TripCounts, execute, time};

/// Every chip there is.
pub const CHIPS: [&str; 7] = ["v2", "v3", "v4", "v5e", "v5p", "v6e", "v7x"];

pub fn chip(name: &str) -> ChipSpec {
    ChipSpec::load(name).unwrap_or_else(|e| panic!("chip {name}: {e}"))
}

/// The evaluator's results, with products of `f32` as an MXU rounds them.
pub fn reference(module: &Verified<Module>, inputs: &[Tensor]) -> Vec<Tensor> {
    let options = EvalOptions { dot: DotPrecision::Tpu, ..EvalOptions::default() };
    eval_module_with(module, inputs, &options).unwrap_or_else(|e| panic!("evaluator: {e}"))
}

/// Compiles `module` and checks the program against the rules of the chip.
pub fn compiled(module: &Verified<Module>, chip: &ChipSpec) -> Result<Program, String> {
    let program = compile(module, chip).map_err(|e| format!("compile: {e}"))?;
    checked(&program, chip)?;
    Ok(program)
}

/// Checks a program against the rules of the chip.
pub fn checked(program: &Program, chip: &ChipSpec) -> Result<(), String> {
    if let Some(e) = tpusim_isa::check::check(program, chip).first() {
        return Err(format!("check: {e}"));
    }
    match program.ops.iter().find(|o| o.modelled_cycles > 0) {
        Some(o) => Err(format!("{} is a modelled routine", o.name)),
        None => Ok(()),
    }
}

/// Executes `program` plainly; then with poisoned memory, late DMAs, unfolded loops and two threads; then without data. Outputs
/// must agree to the bit and cycles exactly.
pub fn run(program: &Program, chip: &ChipSpec, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
    let plain = RunOptions::default();
    let hard = RunOptions { poison: true, dma_late: true, fold: false, threads: 2, ..RunOptions::default() };
    let first = execute(program, chip, inputs, &plain).map_err(|e| format!("fault: {e}"))?;
    let second = execute(program, chip, inputs, &hard).map_err(|e| format!("fault with poison and late DMAs: {e}"))?;
    // Where data decides what runs, a run without data is told what it decided, if that can be told.
    let told = decided(program, &first.profile);
    let options = told.unwrap_or_else(|| RunOptions { trip_counts: any_trips(), ..plain.clone() });
    let without = time(program, chip, &options).map_err(|e| format!("fault without data: {e}"))?.cycles;
    let timed = if decided(program, &first.profile).is_some() { without } else { first.profile.cycles };
    let cycles = [first.profile.cycles, second.profile.cycles, timed];
    if cycles.iter().any(|&c| c != cycles[0]) {
        return Err(format!("cycles with data, unfolded and without data: {cycles:?}"));
    }
    let Some(i) = (0..first.outputs.len()).find(|&i| first.outputs[i] != second.outputs[i]) else {
        return Ok(first.outputs);
    };
    let single = [
        ("poison", RunOptions { poison: true, ..plain.clone() }),
        ("late DMAs", RunOptions { dma_late: true, ..plain.clone() }),
        ("unfolded loops", RunOptions { fold: false, ..plain.clone() }),
        ("threads", RunOptions { threads: 2, ..plain.clone() }),
    ];
    let changes = |o: &RunOptions| execute(program, chip, inputs, o).is_ok_and(|r| r.outputs[i] != first.outputs[i]);
    let cause = single.iter().find(|(_, o)| changes(o)).map_or("all options together", |(n, _)| n);
    let at = first.outputs[i].iter().zip(&second.outputs[i]).position(|(a, b)| a != b).unwrap_or(0);
    Err(format!("output {i} depends on {cause}, first at byte {at} of {}", first.outputs[i].len()))
}

fn any_trips() -> TripCounts {
    TripCounts { all: Some(1), ..TripCounts::default() }
}

/// Options for a run without data that does what `profile` says happened with data. Loops and branches that decide differently each
/// time they are reached cannot be told: `None`.
fn decided(program: &Program, profile: &Profile) -> Option<RunOptions> {
    let mut runs = vec![0u32; program.ops.len()];
    profile.ops.iter().for_each(|o| runs[o.op as usize] += 1);
    let mut options = RunOptions::default();
    tell(&program.body, 1, &runs, &mut options).then_some(options)
}

/// The runs of the first operation in `nodes`.
fn runs_of(nodes: &[Node], runs: &[u32]) -> Option<u32> {
    nodes.iter().find_map(|n| match n {
        Node::Op { op, .. } => Some(runs[*op as usize]),
        other => other.bodies().find_map(|b| runs_of(b, runs)),
    })
}

fn tell(nodes: &[Node], times: u32, runs: &[u32], options: &mut RunOptions) -> bool {
    nodes.iter().all(|n| match n {
        Node::Bundle(_) | Node::Op { .. } | Node::Start { .. } | Node::Done { .. } => true,
        Node::Loop { trip, body, .. } => tell(body, times * trip, runs, options),
        Node::While { info, cond, body, .. } => {
            let Some(tests) = runs_of(cond, runs) else { return false };
            let trips = tests.saturating_sub(1);
            options.trip_counts.by_name.insert(format!("while.{info}"), trips);
            times == 1 && tell(cond, tests, runs, options) && tell(body, trips, runs, options)
        }
        Node::Case { info, branches, .. } => {
            let taken = branches.iter().position(|b| runs_of(b, runs) == Some(times));
            let taken = taken.or_else(|| branches.iter().position(|b| runs_of(b, runs).is_none()));
            let Some(taken) = taken else { return false };
            options.branches.insert(format!("case.{info}"), taken as u32);
            tell(&branches[taken], times, runs, options)
        }
    })
}

/// Elements as doubles, whatever their type; complex ones as two each.
pub fn numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    if dtype == DType::C64 {
        convert::decode_f64(DType::F32, bytes)
    } else if dtype == DType::C128 {
        convert::decode_f64(DType::F64, bytes)
    } else if dtype.is_float() {
        convert::decode_f64(dtype, bytes)
    } else {
        convert::decode_i64(dtype, bytes).into_iter().map(|v| v as f64).collect()
    }
}

/// The first element of `got` that is further than `err` from `want`. NaNs equal each other.
pub fn differs(dtype: DType, got: &[u8], want: &[u8], err: f64) -> Option<String> {
    if got.len() != want.len() {
        return Some(format!("{} bytes instead of {}", got.len(), want.len()));
    }
    // Not every 64-bit integer is a double.
    if err == 0.0 && dtype.is_int() && got != want {
        let (got, want) = (convert::decode_i64(dtype, got), convert::decode_i64(dtype, want));
        let i = got.iter().zip(&want).position(|(a, b)| a != b)?;
        let count = got.iter().zip(&want).filter(|(a, b)| a != b).count();
        return Some(format!("element {i} is {} instead of {}; {count} of {} are wrong", got[i], want[i], got.len()));
    }
    let (got, want) = (numbers(dtype, got), numbers(dtype, want));
    let near = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= err;
    let wrong = |&i: &usize| !near(got[i], want[i]);
    let i = (0..got.len()).find(wrong)?;
    let count = (i..got.len()).filter(wrong).count();
    Some(format!("element {i} is {} instead of {} (+- {err:.3e}); {count} of {} are wrong", got[i], want[i], got.len()))
}

/// Largest finite magnitude.
pub fn magnitude(values: &[f64]) -> f64 {
    values.iter().filter(|v| v.is_finite()).fold(0.0, |m, v| m.max(v.abs()))
}
