//! Programs to try the simulator on: parts of models, with their shapes and types as parameters.
//!
//! Each workload is one file with one line in [`ALL`]. A workload is data: its name, what it computes, its parameters with their
//! defaults, and a function that builds the module from them. How it is run is not known here.
//!
//! ```
//! let matmul = tpusim_workloads::find("matmul")?;
//! let module = matmul.build(&[("m".into(), "64".into()), ("dtype".into(), "f32".into())])?;
//! assert_eq!(module.funcs[0].params.len(), 2);
//! # Ok::<(), tpusim_workloads::WorkloadError>(())
//! ```
#![deny(missing_docs)]

mod attention;
mod blocks;
mod draw;
pub mod llm;
mod matmul;
mod mlp;
mod params;
mod qwen3;
mod qwen3_block;
mod resnet50;
mod rmsnorm;
mod softmax;

use tpusim_backend::hlo::{Module, Verified};

pub use draw::Draw;
pub use params::{MAX_SIZE, ParamSpec, ParamValue, Params};

/// Every workload, in the order they are listed to users.
pub static ALL: &[Workload] = &[
    matmul::WORKLOAD,
    mlp::WORKLOAD,
    softmax::WORKLOAD,
    rmsnorm::WORKLOAD,
    attention::WORKLOAD,
    qwen3_block::WORKLOAD,
    qwen3::WORKLOAD,
    resnet50::WORKLOAD,
    llm::WORKLOAD,
];

/// Published measurements of training language models on TPUs, a JSON object a line: id, chip, chips, topology, configuration, metric,
/// value, unit, how sure the configuration is (`exact`, `partly`), how FLOPs were counted where that is known, and the source.
pub static TRAINING_RUNS: &str = include_str!("../data/training.jsonl");

/// A program with parameters.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Name on the command line.
    pub name: &'static str,
    /// What it computes, in one line.
    pub about: &'static str,
    /// Its parameters.
    pub params: &'static [ParamSpec],
    build: fn(&Params) -> Result<Verified<Module>, WorkloadError>,
}

/// A workload cannot be built as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// No such workload.
    #[error("unknown workload `{name}`; there are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No such parameter.
    #[error("workload `{workload}` has no parameter `{name}`; it has: {known}")]
    UnknownParam {
        /// Workload.
        workload: &'static str,
        /// What was asked for.
        name: String,
        /// What there is, with defaults.
        known: String,
    },
    /// A parameter is given twice.
    #[error("parameter `{name}` is given twice")]
    Twice {
        /// Its name.
        name: String,
    },
    /// A value that the parameter cannot have.
    #[error("{name}={value}: expected {expected}")]
    Value {
        /// Parameter.
        name: String,
        /// Value text.
        value: String,
        /// What it can be.
        expected: String,
    },
    /// Values that do not go together.
    #[error("{0}")]
    Combination(String),
    /// An array of more bytes than any pod holds.
    #[error("an array of type {ty} is too large; the limit is {} TiB", MAX_ARRAY_BYTES >> 40)]
    TooLarge {
        /// Its type.
        ty: String,
    },
    /// The verifier refused the program.
    #[error("workload `{workload}` does not take these parameters: {message}")]
    Invalid {
        /// Workload.
        workload: &'static str,
        /// What the verifier says.
        message: String,
    },
}

/// Largest array of a workload.
pub(crate) const MAX_ARRAY_BYTES: u64 = 1 << 46;

/// The workload called `name`.
///
/// # Errors
/// [`WorkloadError::Unknown`].
pub fn find(name: &str) -> Result<&'static Workload, WorkloadError> {
    ALL.iter().find(|w| w.name == name).ok_or_else(|| WorkloadError::Unknown {
        name: name.to_owned(),
        known: ALL.iter().map(|w| w.name).collect::<Vec<_>>().join(", "),
    })
}

impl Workload {
    /// The program for the given parameters; the others have their defaults.
    ///
    /// # Errors
    /// Parameters that do not exist, do not parse, do not go together or ask for absurd sizes.
    pub fn build(&self, given: &[(String, String)]) -> Result<Verified<Module>, WorkloadError> {
        let params = Params::parse(self, given)?;
        let module = (self.build)(&params)?;
        let values = module.funcs.iter().flat_map(|f| f.values.iter());
        let tensors = values.filter_map(|(_, v)| v.ty.tensor());
        for ty in tensors {
            if ty.bytes().is_none_or(|b| b > MAX_ARRAY_BYTES) {
                return Err(WorkloadError::TooLarge { ty: ty.to_string() });
            }
        }
        Ok(module)
    }

    /// What [`ModuleBuilder::finish`](tpusim_backend::hlo::ModuleBuilder::finish) says, with the verifier's first error named.
    fn finish(
        name: &'static str,
        module: tpusim_backend::hlo::ModuleBuilder,
    ) -> Result<Verified<Module>, WorkloadError> {
        module.finish().map_err(|errors| WorkloadError::Invalid {
            workload: name,
            message: errors.first().map(ToString::to_string).unwrap_or_default(),
        })
    }
}
