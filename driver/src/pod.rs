//! Programs on simulated pods: cut over a mesh, compiled once for all devices, placed on the torus, run.

use tpusim_backend::compile::{HbmLimit, compile_placed};
use tpusim_backend::hlo::{Module, TensorType, Verified};
use tpusim_backend::partition::{Partitioned, assemble, cut, partition};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::{PodOptions, PodProfile, execute, time};

use crate::layout::{assign, place, placement};
use crate::sim::{signature, validate};
use crate::traffic::traffic;
use crate::{DriverError, Mode};

/// A program ready to run on a pod.
#[derive(Clone, Debug)]
pub struct PodExecutable {
    /// The local program and how arrays are cut.
    pub partitioned: Partitioned,
    /// The code of each device.
    pub program: Program,
    chip: ChipSpec,
    cluster: Cluster,
    /// The device at each position of the mesh.
    devices: Vec<u32>,
    inputs: Vec<TensorType>,
    outputs: Vec<TensorType>,
}

/// Results and time of a run on a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodExecution {
    /// Whole results; none in [`Mode::Time`].
    pub outputs: Vec<Vec<u8>>,
    /// How the run went.
    pub profile: PodProfile,
}

impl PodExecutable {
    /// Cuts `module` over its mesh, compiles the local program for `chip` and places the mesh on `cluster`.
    ///
    /// # Errors
    /// [`DriverError::Partition`], [`DriverError::Mesh`] where mesh and cluster differ in size, and as [`crate::Driver::compile`].
    pub fn new(module: &Verified<Module>, chip: &ChipSpec, cluster: &Cluster) -> Result<PodExecutable, DriverError> {
        PodExecutable::within(module, chip, cluster, HbmLimit::Kept)
    }

    /// As [`PodExecutable::new`], of a program that need not fit the devices' HBM.
    ///
    /// # Errors
    /// As [`PodExecutable::new`].
    pub fn within(
        module: &Verified<Module>,
        chip: &ChipSpec,
        cluster: &Cluster,
        limit: HbmLimit,
    ) -> Result<PodExecutable, DriverError> {
        let (inputs, outputs) = signature(module)?;
        let partitioned = partition(module).map_err(|e| DriverError::Partition(e.to_string()))?;
        let axes = partitioned.mesh.whole_axes();
        let devices = assign(cluster, &traffic(&partitioned.module, &axes)).ok_or_else(|| DriverError::Mesh {
            mesh: match axes.len() {
                0 => "none: nothing in it is sharded".to_owned(),
                _ => axes.iter().map(|(n, s)| format!("{n}={s}")).collect::<Vec<_>>().join(","),
            },
            wanted: partitioned.devices,
            slice: cluster.slice.to_string(),
            has: u64::from(cluster.devices()),
        })?;
        let mut program = compile_placed(&partitioned.module, chip, &placement(cluster, &devices), limit)?;
        let mut chip = chip.clone();
        // As if it fitted.
        chip.hbm.usable_bytes_device.v = (*chip.hbm.usable_bytes_device).max(program.hbm_peak_bytes);
        if cfg!(debug_assertions) {
            validate(&program, &chip)?;
        }
        place(&mut program, &devices);
        let cluster = cluster.clone();
        Ok(PodExecutable { partitioned, program, chip, cluster, devices, inputs, outputs })
    }

    /// Types of the whole inputs.
    pub fn inputs(&self) -> &[TensorType] {
        &self.inputs
    }

    /// Types of the whole outputs.
    pub fn outputs(&self) -> &[TensorType] {
        &self.outputs
    }

    /// Runs the program. In [`Mode::Time`] `inputs` are not looked at.
    ///
    /// # Errors
    /// [`DriverError::Inputs`], [`DriverError::InputBytes`], [`DriverError::Fault`].
    pub fn run(&self, mode: Mode, inputs: &[Vec<u8>], opts: &PodOptions) -> Result<PodExecution, DriverError> {
        if mode == Mode::Time {
            let profile = time(&self.program, &self.chip, &self.cluster, opts)?;
            return Ok(PodExecution { outputs: Vec::new(), profile });
        }
        if inputs.len() != self.inputs.len() {
            return Err(DriverError::Inputs { expected: self.inputs.len(), found: inputs.len() });
        }
        let p = &self.partitioned;
        let n = self.devices.len();
        let mut own: Vec<Vec<Vec<u8>>> = vec![Vec::new(); n];
        for (index, ((ty, data), sharding)) in self.inputs.iter().zip(inputs).zip(&p.params).enumerate() {
            let (expected, found) = (ty.bytes().unwrap_or(u64::MAX), data.len() as u64);
            if expected != found {
                return Err(DriverError::InputBytes { index, expected, found });
            }
            let parts = cut(data, &ty.dims, ty.dtype, sharding, &p.mesh);
            let parts = parts.map_err(|e| DriverError::Partition(e.to_string()))?;
            for (position, part) in parts.into_iter().enumerate() {
                own[self.devices[position] as usize].push(part);
            }
        }
        let run = execute(&self.program, &self.chip, &self.cluster, &own, opts)?;
        let mut outputs = Vec::new();
        for (k, (ty, sharding)) in self.outputs.iter().zip(&p.results).enumerate() {
            let parts: Vec<Vec<u8>> =
                self.devices.iter().map(|&d| run.outputs[d as usize].get(k).cloned().unwrap_or_default()).collect();
            let whole = assemble(&parts, &ty.dims, ty.dtype, sharding, &p.mesh);
            outputs.push(whole.map_err(|e| DriverError::Partition(e.to_string()))?);
        }
        Ok(PodExecution { outputs, profile: run.profile })
    }
}
