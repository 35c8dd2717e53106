//! The reference evaluator: what a StableHLO program means, op by op, on the host.
//!
//! It is the oracle of everything else in tpusim, so it prefers the plain definition over speed, and it is the same on every
//! machine: transcendental functions come from the `libm` crate, sums have a defined order, and threads never share a sum.
//!
//! - Floats below 32 bits are widened to `f32`, computed there, and rounded once per op.
//! - Integers wrap; division by zero gives -1, a remainder by zero the dividend; shifts past the width give 0 or the sign.
//! - Sums of `reduce` run in row-major order of the reduced elements, starting from the initial value: in `f64` for `f32` and
//!   `f64`, in `f32` for narrower floats, rounded once at the end.
//! - `dot_general` and `convolution` sum in increasing order of the contracting index: in `f64` for `f32` and `f64` operands, in
//!   `f32` for narrower ones, see [`DotPrecision`] for `f32`.
//!
//! `docs/float-semantics.md` lists these rules and the test of each.

mod devices;
mod frame;
pub(crate) mod mesh;
pub(crate) mod strided;
mod tensor;

pub use devices::{Grid, MAX_DEVICES};
pub(crate) use frame::terminator;
pub use frame::{Fault, Frame};
pub use tensor::{Tensor, TensorError, Value};

use crate::hlo::{Func, Module, Verified};

/// How products of `f32` matrices are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotPrecision {
    /// Exact products, summed in `f64` and rounded once.
    #[default]
    Exact,
    /// As an MXU does at `DEFAULT` precision: operands rounded to bf16, sums in `f32`. `HIGH` and `HIGHEST` stay exact.
    Tpu,
}

/// Knobs of the evaluator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalOptions {
    /// Precision of `f32` dots and convolutions.
    pub dot: DotPrecision,
    /// Give up after this many operations, so that an endless `while` ends.
    pub max_ops: u64,
    /// Refuse tensors of more bytes than this.
    pub max_tensor_bytes: u64,
}

impl Default for EvalOptions {
    fn default() -> Self {
        EvalOptions { dot: DotPrecision::Exact, max_ops: 100_000_000, max_tensor_bytes: 4 << 30 }
    }
}

/// The program could not be evaluated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvalError {
    /// An op, or a form of it, that the evaluator does not know.
    #[error("{loc}: the reference evaluator does not support {op}{what}")]
    Unsupported {
        /// Name of the op.
        op: &'static str,
        /// Where it comes from.
        loc: String,
        /// Which form of it, or nothing.
        what: String,
    },
    /// An op met operands it cannot work with.
    #[error("{loc}: {op}: {message}")]
    Invalid {
        /// Name of the op.
        op: &'static str,
        /// Where it comes from.
        loc: String,
        /// What is wrong.
        message: String,
    },
    /// There is no such function.
    #[error("the module has no function `{0}`")]
    NoFunction(String),
    /// Wrong number of inputs.
    #[error("the program takes {expected} inputs, got {got}")]
    InputCount {
        /// Parameters of the function.
        expected: usize,
        /// Inputs given.
        got: usize,
    },
    /// An input of the wrong type.
    #[error("input {index} should be {expected}, got {got}")]
    InputType {
        /// Which input.
        index: usize,
        /// Type of the parameter.
        expected: String,
        /// Type of the input.
        got: String,
    },
    /// A result that is no tensor.
    #[error("result {0} is not a tensor")]
    ResultType(usize),
    /// [`EvalOptions::max_ops`] was reached.
    #[error("{loc}: gave up after {limit} operations")]
    TooLong {
        /// Where.
        loc: String,
        /// The limit.
        limit: u64,
    },
    /// Calls and regions are nested too deeply.
    #[error("{loc}: more than {limit} calls and regions inside one another")]
    TooDeep {
        /// Where.
        loc: String,
        /// The limit.
        limit: u32,
    },
    /// More devices than [`MAX_DEVICES`].
    #[error("the reference evaluator runs at most {limit} devices, not {devices}")]
    TooManyDevices {
        /// Devices asked for.
        devices: usize,
        /// The limit.
        limit: usize,
    },
    /// A device ended without a result.
    #[error("a device ended without a result")]
    DeviceLost,
    /// [`EvalOptions::max_tensor_bytes`] would be exceeded.
    #[error("{loc}: {op} would need {bytes} bytes for one tensor, the limit is {limit}")]
    TooLarge {
        /// Name of the op.
        op: &'static str,
        /// Where it comes from.
        loc: String,
        /// Bytes needed.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
}

/// Runs the function `main` (or the only function) of `module` on `inputs`.
///
/// # Errors
/// When the inputs do not fit, when an op is not supported, or when a limit of the default [`EvalOptions`] is reached.
pub fn eval_module(module: &Verified<Module>, inputs: &[Tensor]) -> Result<Vec<Tensor>, EvalError> {
    eval_module_with(module, inputs, &EvalOptions::default())
}

/// As [`eval_module`] with options.
///
/// # Errors
/// As [`eval_module`].
pub fn eval_module_with(
    module: &Verified<Module>,
    inputs: &[Tensor],
    options: &EvalOptions,
) -> Result<Vec<Tensor>, EvalError> {
    let func = entry(module)?;
    check_inputs(func, inputs)?;
    let shared = devices::Shared::new(options, None);
    let args = inputs.iter().cloned().map(Value::Tensor).collect();
    tensors(frame::run(module, func, args, options, &shared)?)
}

/// Runs the per-device program `module` on as many devices as there are sets of inputs. Device ids are positions in `inputs`.
/// They are partitions, unless the module says how many replicas there are.
///
/// # Errors
/// As [`eval_module`], and when devices wait for one another in vain.
pub fn eval_spmd(
    module: &Verified<Module>,
    inputs: &[Vec<Tensor>],
    options: &EvalOptions,
) -> Result<Vec<Vec<Tensor>>, EvalError> {
    let func = entry(module)?;
    inputs.iter().try_for_each(|i| check_inputs(func, i))?;
    let module: &Module = module;
    let declared = module.attrs.int("mhlo.num_replicas").and_then(|r| usize::try_from(r).ok()).unwrap_or(1);
    let replicas = if declared > 1 && inputs.len().is_multiple_of(declared) { declared } else { 1 };
    let grid = Grid { replicas, partitions: inputs.len() / replicas };
    let results = devices::run_devices(grid, options, |shared, id| {
        let args = inputs[id].iter().cloned().map(Value::Tensor).collect();
        frame::run(module, func, args, options, shared)
    })?;
    results.into_iter().map(tensors).collect()
}

/// Runs functions of `module` on the devices of `grid`, one each: `programs` names them in the order of the devices, and `inputs`
/// are their arguments.
///
/// # Errors
/// As [`eval_spmd`], and when there is no such function.
pub fn eval_mpmd(
    module: &Verified<Module>,
    grid: Grid,
    programs: &[&str],
    inputs: &[Vec<Value>],
    options: &EvalOptions,
) -> Result<Vec<Vec<Value>>, EvalError> {
    let module: &Module = module;
    let find = |name: &&str| module.func(name).ok_or_else(|| EvalError::NoFunction((*name).to_owned()));
    let funcs: Vec<&Func> = programs.iter().map(find).collect::<Result<_, _>>()?;
    for n in [funcs.len(), inputs.len()] {
        if n != grid.devices() {
            return Err(EvalError::InputCount { expected: grid.devices(), got: n });
        }
    }
    for (f, args) in funcs.iter().zip(inputs) {
        if f.params.len() != args.len() {
            return Err(EvalError::InputCount { expected: f.params.len(), got: args.len() });
        }
        for (index, (p, v)) in f.params.iter().zip(args).enumerate() {
            if !v.has_type(f.ty(p.value)) {
                let expected = f.ty(p.value).to_string();
                return Err(EvalError::InputType { index, expected, got: v.type_name() });
            }
        }
    }
    devices::run_devices(grid, options, |shared, id| frame::run(module, funcs[id], inputs[id].clone(), options, shared))
}

fn entry(module: &Module) -> Result<&Func, EvalError> {
    match (module.func("main"), module.funcs.as_slice()) {
        (Some(f), _) | (None, [f]) => Ok(f),
        _ => Err(EvalError::NoFunction("main".into())),
    }
}

fn check_inputs(func: &Func, inputs: &[Tensor]) -> Result<(), EvalError> {
    if func.params.len() != inputs.len() {
        return Err(EvalError::InputCount { expected: func.params.len(), got: inputs.len() });
    }
    for (index, (p, t)) in func.params.iter().zip(inputs).enumerate() {
        if func.ty(p.value).tensor() != Some(t.ty()) {
            let expected = func.ty(p.value).to_string();
            return Err(EvalError::InputType { index, expected, got: t.ty().to_string() });
        }
    }
    Ok(())
}

fn tensors(values: Vec<Value>) -> Result<Vec<Tensor>, EvalError> {
    let tensor = |(i, v)| match v {
        Value::Tensor(t) => Ok(t),
        _ => Err(EvalError::ResultType(i)),
    };
    values.into_iter().enumerate().map(tensor).collect()
}
