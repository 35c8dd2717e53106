//! The simulator as a driver.

use tpusim_backend::compile::compile;
use tpusim_backend::hlo::{Module, TensorType, Type, Verified};
use tpusim_isa::check::check;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_sim::RunOptions;

use crate::{Device, Driver, DriverError, Executable, Execution};

/// What a run computes. Both take the same cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Results and time.
    #[default]
    Execute,
    /// Time only: inputs may be missing, outputs are.
    Time,
}

/// Simulated devices of one chip.
#[derive(Clone, Debug)]
pub struct SimDriver {
    chip: ChipSpec,
    mode: Mode,
    options: RunOptions,
}

impl SimDriver {
    /// A driver for `chip` that executes.
    pub fn new(chip: ChipSpec) -> SimDriver {
        SimDriver { chip, mode: Mode::Execute, options: RunOptions::default() }
    }

    /// The same driver in another mode.
    pub fn with_mode(self, mode: Mode) -> SimDriver {
        SimDriver { mode, ..self }
    }

    /// The same driver with other options.
    pub fn with_options(self, options: RunOptions) -> SimDriver {
        SimDriver { options, ..self }
    }

    /// The simulated chip.
    pub fn chip(&self) -> &ChipSpec {
        &self.chip
    }

    /// As [`Driver::compile`], typed.
    ///
    /// # Errors
    /// As [`Driver::compile`].
    pub fn build(&self, module: &Verified<Module>) -> Result<SimExecutable, DriverError> {
        let (inputs, outputs) = signature(module)?;
        let program = compile(module, &self.chip)?;
        // What the compiler makes is checked where tests run; a user's run does not pay for it.
        if cfg!(debug_assertions) {
            validate(&program, &self.chip)?;
        }
        Ok(self.executable(program, inputs, outputs))
    }

    /// Makes an assembled program ready to run. `inputs` and `outputs` are what its buffers hold.
    ///
    /// # Errors
    /// [`DriverError::Check`] if the program breaks a rule of the machine.
    pub fn load(
        &self,
        program: Program,
        inputs: Vec<TensorType>,
        outputs: Vec<TensorType>,
    ) -> Result<SimExecutable, DriverError> {
        validate(&program, &self.chip)?;
        Ok(self.executable(program, inputs, outputs))
    }

    fn executable(&self, program: Program, inputs: Vec<TensorType>, outputs: Vec<TensorType>) -> SimExecutable {
        SimExecutable {
            program,
            chip: self.chip.clone(),
            mode: self.mode,
            options: self.options.clone(),
            inputs,
            outputs,
        }
    }
}

pub(crate) fn validate(program: &Program, chip: &ChipSpec) -> Result<(), DriverError> {
    let errors = check(program, chip);
    let count = errors.len();
    match errors.into_iter().next() {
        Some(first) => Err(DriverError::Check { first: Box::new(first), count }),
        None => Ok(()),
    }
}

pub(crate) type Signature = (Vec<TensorType>, Vec<TensorType>);

/// Types of the entry function's parameters and results.
pub(crate) fn signature(module: &Verified<Module>) -> Result<Signature, DriverError> {
    let main = match (module.func("main"), module.funcs.as_slice()) {
        (Some(f), _) | (None, [f]) => f,
        _ => return Err(DriverError::NoMain),
    };
    let fixed = |what: &str, index: usize, ty: &Type| match ty {
        Type::Tensor(t) if t.bytes().is_some() => Ok(t.clone()),
        other => Err(DriverError::Type { what: format!("{what} {index}"), ty: other.to_string() }),
    };
    let inputs = main.params.iter().enumerate().map(|(i, p)| fixed("parameter", i, main.ty(p.value)));
    let outputs = main.results.iter().enumerate().map(|(i, r)| fixed("result", i, &r.ty));
    Ok((inputs.collect::<Result<_, _>>()?, outputs.collect::<Result<_, _>>()?))
}

impl Driver for SimDriver {
    fn devices(&self) -> Vec<Device> {
        let device =
            |id| Device { id, kind: self.chip.device_kind.clone(), memory_bytes: *self.chip.hbm.usable_bytes_device };
        (0..self.chip.devices_per_chip()).map(device).collect()
    }

    fn compile(&self, module: &Verified<Module>) -> Result<Box<dyn Executable>, DriverError> {
        Ok(Box::new(self.build(module)?))
    }
}

/// A program for simulated devices.
#[derive(Clone, Debug)]
pub struct SimExecutable {
    program: Program,
    chip: ChipSpec,
    mode: Mode,
    options: RunOptions,
    inputs: Vec<TensorType>,
    outputs: Vec<TensorType>,
}

impl Executable for SimExecutable {
    fn inputs(&self) -> &[TensorType] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorType] {
        &self.outputs
    }

    fn execute(&self, inputs: &[Vec<u8>]) -> Result<Execution, DriverError> {
        if self.mode == Mode::Time {
            let profile = tpusim_sim::time(&self.program, &self.chip, &self.options)?;
            return Ok(Execution { outputs: Vec::new(), profile: Some(profile) });
        }
        if inputs.len() != self.inputs.len() {
            return Err(DriverError::Inputs { expected: self.inputs.len(), found: inputs.len() });
        }
        for (index, (ty, data)) in self.inputs.iter().zip(inputs).enumerate() {
            let (expected, found) = (ty.bytes().unwrap_or(u64::MAX), data.len() as u64);
            if expected != found {
                return Err(DriverError::InputBytes { index, expected, found });
            }
        }
        let run = tpusim_sim::execute(&self.program, &self.chip, inputs, &self.options)?;
        Ok(Execution { outputs: run.outputs, profile: Some(run.profile) })
    }

    fn program(&self) -> Option<&Program> {
        Some(&self.program)
    }
}

#[cfg(test)]
mod tests {
    use tpusim_backend::hlo::{ModuleBuilder, Opcode};
    use tpusim_isa::num::DType;

    use super::*;

    fn driver(mode: Mode) -> Box<dyn Driver> {
        Box::new(SimDriver::new(ChipSpec::load("v5e").unwrap()).with_mode(mode))
    }

    fn square() -> Verified<Module> {
        let mut m = ModuleBuilder::new("square");
        let mut f = m.func("main");
        let x = f.param("x", TensorType::new([16, 128], DType::F32));
        let y = f.binary(Opcode::Multiply, x, x);
        f.ret(&[y]);
        m.finish().unwrap()
    }

    // Oracle: 3 * 3 = 9, and the engines' promise that both modes take the same cycles.
    #[test]
    fn runs_a_program_in_both_modes() {
        let module = square();
        let input = 3.0f32.to_le_bytes().repeat(16 * 128);
        let run = driver(Mode::Execute).compile(&module).unwrap().execute(&[input]).unwrap();
        assert_eq!(run.outputs, [9.0f32.to_le_bytes().repeat(16 * 128)]);
        let timed = driver(Mode::Time).compile(&module).unwrap().execute(&[]).unwrap();
        assert!(timed.outputs.is_empty());
        assert_eq!(run.profile.unwrap().cycles, timed.profile.unwrap().cycles);
    }

    // Oracle: the parameter's own size.
    #[test]
    fn refuses_wrong_inputs() {
        let program = driver(Mode::Execute).compile(&square()).unwrap();
        assert_eq!(program.inputs()[0].bytes(), Some(8192));
        assert!(matches!(program.execute(&[]), Err(DriverError::Inputs { expected: 1, found: 0 })));
        let short = program.execute(&[vec![0; 3]]);
        assert!(matches!(short, Err(DriverError::InputBytes { index: 0, expected: 8192, found: 3 })));
    }

    // Oracle: the chip file: two cores of a v7x are two devices, two of a v5p are one.
    #[test]
    fn lists_the_devices_of_a_chip() {
        let count = |chip| SimDriver::new(ChipSpec::load(chip).unwrap()).devices().len();
        assert_eq!((count("v5p"), count("v7x")), (1, 2));
    }
}
