//! One program of the suite: its checks taken out, the rest run, the results compared.

mod check;
mod split;

use tpusim_backend::eval::{DotPrecision, EvalError, EvalOptions, Grid, Tensor, Value, eval_module_with, eval_mpmd};
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::{Module, Type, Verified, verify};
use tpusim_driver::{Driver, DriverError, SimDriver};
use tpusim_isa::chip::ChipSpec;

use check::Check;
use split::{Parallel, Parts};

/// What runs the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The reference evaluator.
    Eval,
    /// Our compiler and a simulated v5e.
    Sim,
}

/// How a program went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All checks hold.
    Passed,
    /// Refused for its dynamic shapes, at a line.
    Dynamic,
    /// Refused, for a reason that groups it with others.
    Unsupported(String),
    /// A wrong result, or an error that is not a refusal.
    Failed(String),
}

/// Digits and names of values out of a message, so that alike ones fall into one group.
fn group(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.split_once(".mlir:").map_or(line, |(_, rest)| rest.split_once(": ").map_or(rest, |(_, r)| r));
    let mut out = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            _ => out.push(c),
        }
    }
    out.chars().take(150).collect()
}

pub fn run(name: &str, text: &str, engine: Engine) -> Outcome {
    let file = format!("{name}.mlir");
    let module = match parse_program(text.as_bytes(), &file) {
        Ok(m) => m,
        Err(e) => return Outcome::Unsupported(format!("parse: {}", group(&e.diags[0].message))),
    };
    let parts = match split::split(module) {
        Ok(p) => p,
        Err(e) => return Outcome::Unsupported(e),
    };
    match results(&parts, engine) {
        Err(outcome) => outcome,
        Ok(values) => match check::failure(&parts.checks, &values, engine == Engine::Sim) {
            None => Outcome::Passed,
            Some(e) if engine == Engine::Sim && as_an_mxu(&parts, &values) => {
                let _ = e;
                Outcome::Passed
            }
            Some(e) => Outcome::Failed(e),
        },
    }
}

fn verified(module: &Module) -> Result<Verified<Module>, Outcome> {
    verify(module.clone()).map_err(|e| match e[0].message.contains("of unknown size") && e[0].line.is_some() {
        true => Outcome::Dynamic,
        false => Outcome::Unsupported(format!("verify: {}", group(&e[0].to_string()))),
    })
}

fn eval(module: &Module, inputs: &[Tensor], dot: DotPrecision) -> Result<Vec<Tensor>, Outcome> {
    let options = EvalOptions { dot, ..EvalOptions::default() };
    eval_module_with(&verified(module)?, inputs, &options).map_err(refused)
}

fn refused(e: EvalError) -> Outcome {
    match &e {
        EvalError::Unsupported { op, what, .. } => {
            Outcome::Unsupported(format!("eval: {}", group(&format!("{op}{what}"))))
        }
        _ => Outcome::Failed(format!("eval: {e}")),
    }
}

/// The values that the checks look at.
fn results(parts: &Parts, engine: Engine) -> Result<Vec<Tensor>, Outcome> {
    let inputs = match &parts.parallel {
        None => Vec::new(),
        Some(p) => parallel(p)?,
    };
    match engine {
        Engine::Eval => eval(&parts.main, &inputs, DotPrecision::Exact),
        Engine::Sim if parts.parallel.is_some() => Err(Outcome::Unsupported("several devices".into())),
        Engine::Sim => simulate(&parts.main),
    }
}

/// Runs the programs of `interpreter.run_parallel` and returns the tensors they return.
fn parallel(p: &Parallel) -> Result<Vec<Tensor>, Outcome> {
    let mut given = eval(&p.operands, &[], DotPrecision::Exact)?.into_iter();
    let module = verified(&p.module)?;
    let mut inputs = Vec::new();
    for name in &p.programs {
        let Some(f) = module.func(name) else { return Err(Outcome::Failed(format!("there is no @{name}"))) };
        let mut value =
            |ty: &Type| if *ty == Type::Token { Some(Value::Token) } else { given.next().map(Value::Tensor) };
        inputs.push(f.params.iter().filter_map(|p| value(f.ty(p.value))).collect());
    }
    let grid = Grid { replicas: p.programs.len() / p.partitions.max(1), partitions: p.partitions };
    let names: Vec<&str> = p.programs.iter().map(String::as_str).collect();
    let results = eval_mpmd(&module, grid, &names, &inputs, &EvalOptions::default()).map_err(refused)?;
    Ok(results.into_iter().flatten().filter_map(|v| v.tensor().cloned()).collect())
}

fn simulate(module: &Module) -> Result<Vec<Tensor>, Outcome> {
    let module = verified(module)?;
    let driver = SimDriver::new(ChipSpec::load("v5e").expect("the chip is built in"));
    let program = driver.compile(&module).map_err(|e| match e {
        DriverError::Check { .. } => Outcome::Failed(e.to_string()),
        e => Outcome::Unsupported(format!("compile: {}", group(&e.to_string()))),
    })?;
    let run = program.execute(&[]).map_err(|e| Outcome::Failed(e.to_string()))?;
    let tensors = run.outputs.into_iter().zip(program.outputs()).map(|(b, t)| Tensor::new(t.clone(), b));
    tensors.collect::<Result<_, _>>().map_err(|e| Outcome::Failed(e.to_string()))
}

/// Whether each value that a check looks at is within the check's tolerance of the evaluator's with an MXU's products.
fn as_an_mxu(parts: &Parts, values: &[Tensor]) -> bool {
    let Ok(want) = eval(&parts.main, &[], DotPrecision::Tpu) else { return false };
    let near = |c: &Check| check::near(c, &values[c.actual], &want[c.actual], true).is_none();
    parts.checks.iter().all(near)
}
