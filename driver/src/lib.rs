//! One interface to simulated and real TPUs.
//!
//! A [`Driver`] stands for the devices of one kind: it compiles a verified module to an [`Executable`], which takes whole arrays and
//! gives whole arrays back. Both traits block and are object-safe, so that a command does not care what it runs on.
//!
//! - [`SimDriver`]: our own compiler and the simulator;
//! - [`PodExecutable`]: the same for all devices of a pod, which one program is cut over.
//!
//! Arrays cross the interface as bytes: dense, row-major, little-endian, [`DType::bytes`](tpusim_isa::num::DType::bytes) an element.
//!
//! ```
//! use tpusim_backend::hlo::{ModuleBuilder, TensorType};
//! use tpusim_driver::{Driver, SimDriver};
//! use tpusim_isa::{chip::ChipSpec, num::DType};
//!
//! let mut m = ModuleBuilder::new("double");
//! let mut f = m.func("main");
//! let x = f.param("x", TensorType::new([8, 128], DType::F32));
//! let y = f.add(x, x);
//! f.ret(&[y]);
//! let module = m.finish().expect("a valid program");
//!
//! let driver = SimDriver::new(ChipSpec::load("v5e")?);
//! let run = driver.compile(&module)?.execute(&[2.5f32.to_le_bytes().repeat(1024)])?;
//! assert_eq!(run.outputs[0][..4], 5.0f32.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

mod layout;
mod pod;
mod sim;
mod traffic;

use tpusim_backend::compile::CompileError;
use tpusim_backend::hlo::{Module, TensorType, Verified};
use tpusim_isa::check::CheckError;
use tpusim_isa::program::Program;
use tpusim_sim::Fault;
use tpusim_sim::profile::Profile;

pub use layout::{assign, placement};
pub use pod::{PodExecutable, PodExecution};
pub use sim::{Mode, SimDriver, SimExecutable};
pub use traffic::AxisUse;

/// A device that programs run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Number of the device, from 0.
    pub id: u32,
    /// What frameworks call it, e.g. `TPU v5 lite`.
    pub kind: String,
    /// Bytes of HBM that programs may use.
    pub memory_bytes: u64,
}

/// Compiles programs for its devices.
pub trait Driver {
    /// The devices, in order of their numbers; at least one.
    fn devices(&self) -> Vec<Device>;

    /// Makes `module` ready to run.
    ///
    /// # Errors
    /// [`DriverError::Compile`], [`DriverError::Type`].
    fn compile(&self, module: &Verified<Module>) -> Result<Box<dyn Executable>, DriverError>;
}

/// A program that is ready to run.
pub trait Executable {
    /// Types of the inputs, by parameter number.
    fn inputs(&self) -> &[TensorType];

    /// Types of the outputs.
    fn outputs(&self) -> &[TensorType];

    /// Runs the program and waits for its end.
    ///
    /// # Errors
    /// [`DriverError::Inputs`], [`DriverError::InputBytes`], [`DriverError::Fault`].
    fn execute(&self, inputs: &[Vec<u8>]) -> Result<Execution, DriverError>;

    /// The code that runs, where it can be seen.
    fn program(&self) -> Option<&Program> {
        None
    }
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Execution {
    /// Outputs by number; empty if the driver only takes the time.
    pub outputs: Vec<Vec<u8>>,
    /// How the run went, where that can be seen.
    pub profile: Option<Profile>,
}

/// A program could not be made ready or run.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The compiler refused the program.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A parameter or result of the entry function that is no array of fixed size.
    #[error("{what} of the program is {ty}; only arrays of fixed size can be passed")]
    Type {
        /// Which one.
        what: String,
        /// Its type.
        ty: String,
    },
    /// The module has no entry function.
    #[error("the program has no function `main`")]
    NoMain,
    /// The compiled program breaks a rule of the machine.
    #[error("the program is not valid code for the chip: {first}{}", more(*.count))]
    Check {
        /// The first error.
        first: Box<CheckError>,
        /// Number of errors.
        count: usize,
    },
    /// The program cannot be cut over devices.
    #[error("{0}")]
    Partition(String),
    /// Mesh and slice differ in size.
    #[error(
        "the program's mesh ({mesh}) has {wanted} devices, the slice {slice} has {has}; choose a slice with as many devices"
    )]
    Mesh {
        /// Axes.
        mesh: String,
        /// Its devices.
        wanted: u64,
        /// Shape of the slice.
        slice: String,
        /// Devices of the slice.
        has: u64,
    },
    /// Wrong number of inputs.
    #[error("the program takes {expected} inputs, {found} were given")]
    Inputs {
        /// Inputs of the program.
        expected: usize,
        /// Inputs given.
        found: usize,
    },
    /// An input of the wrong size.
    #[error("input {index} takes {expected} bytes, {found} were given")]
    InputBytes {
        /// Which one, from 0.
        index: usize,
        /// Bytes of its type.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// The program did something the machine cannot do.
    #[error(transparent)]
    Fault(#[from] Fault),
}

fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}
