//! Meshes and batches for the devices there are, from what is said of them, and what would work where something does not.

use std::str::FromStr;

use super::mesh::ROWS;
use super::{Axis, Mesh, Model};
use crate::WorkloadError;

/// Tokens of the whole batch for each device that has its own part, if nobody says how many: enough work to hide what weights cost.
const TOKENS_PER_DEVICE: i64 = 8192;

/// Sizes of some axes, as `fsdp=128,tensor=4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshRequest {
    axes: Vec<(Axis, i64)>,
}

impl FromStr for MeshRequest {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Self, WorkloadError> {
        let mut axes: Vec<(Axis, i64)> = Vec::new();
        for part in text.split(',') {
            let names = || Axis::ALL.iter().map(|a| a.name()).collect::<Vec<_>>().join(", ");
            let wrong = |expected: String| WorkloadError::Value { name: "mesh".into(), value: text.into(), expected };
            let (name, size) = part.split_once('=').ok_or_else(|| wrong("AXIS=N,...".into()))?;
            let axis = Axis::ALL.into_iter().find(|a| a.name() == name.trim());
            let axis = axis.ok_or_else(|| wrong(format!("axes {}", names())))?;
            let size = size.trim().parse().ok().filter(|n| (1..=crate::MAX_SIZE).contains(n));
            let size = size.ok_or_else(|| wrong(format!("sizes from 1 to {}", crate::MAX_SIZE)))?;
            if axes.iter().any(|(a, _)| *a == axis) {
                return Err(WorkloadError::Twice { name: format!("mesh axis {name}") });
            }
            axes.push((axis, size));
        }
        Ok(MeshRequest { axes })
    }
}

impl MeshRequest {
    /// The same with `axis` of another size.
    pub fn with(&self, axis: Axis, size: i64) -> MeshRequest {
        let others = self.axes.iter().filter(|(a, _)| *a != axis).copied();
        MeshRequest { axes: others.chain([(axis, size)]).collect() }
    }

    /// The size asked for.
    pub fn get(&self, axis: Axis) -> Option<i64> {
        self.axes.iter().find(|(a, _)| *a == axis).map(|(_, n)| *n)
    }

    /// The mesh of `model` over `slices` slices of `devices` devices each. Axes that are not named have size 1, but slices have each a
    /// copy of the model, and FSDP takes the devices that are left, as far as they divide the weights; copies take the rest.
    ///
    /// # Errors
    /// Sizes that do not multiply to the devices there are, with meshes that would work.
    pub fn resolve(&self, model: &Model, slices: i64, devices: i64) -> Result<Mesh, WorkloadError> {
        let all = slices.saturating_mul(devices);
        let mut mesh = Mesh::ONE;
        for (axis, size) in &self.axes {
            *mesh.size_mut(*axis) = *size;
        }
        let copies = self.get(Axis::Data).is_none();
        if copies && slices > 1 {
            // Stages of a pipeline are slices, if there are enough.
            mesh.data = if slices % mesh.pipeline.max(1) == 0 { slices / mesh.pipeline.max(1) } else { slices };
        }
        if self.get(Axis::Fsdp).is_none() && all % mesh.devices().max(1) == 0 {
            let left = all / mesh.devices().max(1);
            mesh.fsdp = if copies { largest_cut(model, left, mesh.context) } else { left };
            if copies {
                mesh.data = mesh.data.saturating_mul(left / mesh.fsdp.max(1));
            }
        }
        if mesh.devices() == all {
            return Ok(mesh);
        }
        let fits = fitting(mesh, all);
        let wrong = format!("--mesh {mesh} has {} devices, the pod {all}", mesh.devices());
        Err(WorkloadError::Combination(match fits.is_empty() {
            true => format!("{wrong}: axes have to multiply to {all}"),
            false => format!("{wrong}; these would fit: {}", fits.join(" or ")),
        }))
    }
}

/// The most of `left` devices that the width of the model, which FSDP and an axis of `context` places cut, divides over.
fn largest_cut(model: &Model, left: i64, context: i64) -> i64 {
    (1..=left).rev().find(|n| left % n == 0 && model.d % n.saturating_mul(context.max(1)) == 0).unwrap_or(1)
}

/// Meshes of `all` devices that differ from `mesh` in one axis.
fn fitting(mesh: Mesh, all: i64) -> Vec<String> {
    let other = |axis: Axis| {
        let others = mesh.devices() / mesh.size(axis).max(1);
        let mut found = mesh;
        *found.size_mut(axis) = all / others.max(1);
        (others > 0 && all % others == 0).then(|| found.to_string())
    };
    let mut found: Vec<String> = [Axis::Fsdp, Axis::Data, Axis::Tensor].into_iter().filter_map(other).collect();
    found.dedup();
    found
}

/// Sequences of a batch for `mesh`: some thousands of tokens for each device that has a part of its own.
pub fn default_batch(mesh: &Mesh, seq: i64) -> i64 {
    let tokens = TOKENS_PER_DEVICE.saturating_mul(mesh.context);
    mesh.parts(ROWS).saturating_mul((tokens / seq.max(1)).max(1))
}

/// Checks that `mesh` can share out `batch` sequences.
///
/// # Errors
/// A batch that it does not divide, with the nearest ones that it does.
pub fn check_batch(mesh: &Mesh, batch: i64) -> Result<(), WorkloadError> {
    let parts = mesh.parts(ROWS).max(1);
    if batch % parts == 0 {
        return Ok(());
    }
    let below = batch / parts * parts;
    let near: Vec<String> = [below, below + parts].iter().filter(|n| **n > 0).map(i64::to_string).collect();
    Err(WorkloadError::Combination(format!(
        "the mesh {mesh} shares out a batch over {parts} devices, which do not divide {batch}; {} would work",
        near.join(" or ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(text: &str, slices: i64, devices: i64) -> Result<String, String> {
        let asked = if text.is_empty() { Ok(MeshRequest::default()) } else { text.parse() };
        let model = Model::find("qwen3-8b").unwrap();
        let found = asked.and_then(|m: MeshRequest| m.resolve(model, slices, devices));
        found.map(|m| m.to_string()).map_err(|e| e.to_string())
    }

    // Oracle: by hand; the width of qwen3-8b, 4096, is what FSDP cuts at most.
    #[test]
    fn meshes_take_all_devices() {
        assert_eq!(mesh("", 1, 256).unwrap(), "fsdp=256");
        assert_eq!(mesh("", 4, 256).unwrap(), "data=4,fsdp=256");
        assert_eq!(mesh("", 1, 8192).unwrap(), "data=2,fsdp=4096");
        assert_eq!(mesh("tensor=4", 1, 256).unwrap(), "fsdp=64,tensor=4");
        assert_eq!(mesh("fsdp=128,tensor=4", 1, 512).unwrap(), "fsdp=128,tensor=4");
        assert_eq!(mesh("", 1, 1).unwrap(), "one device");
        // Stages are slices.
        assert_eq!(mesh("pipeline=4", 8, 16).unwrap(), "data=2,pipeline=4,fsdp=16");
        assert_eq!(mesh("pipeline=4", 1, 16).unwrap(), "pipeline=4,fsdp=4");
        assert_eq!(mesh("context=4", 1, 64).unwrap(), "fsdp=16,context=4");
        assert_eq!(default_batch(&Mesh { fsdp: 16, context: 4, ..Mesh::ONE }, 4096), 128);
    }

    // Oracle: by hand.
    #[test]
    fn what_does_not_fit_says_what_would() {
        let error = mesh("fsdp=128,tensor=4", 1, 256).unwrap_err();
        assert!(error.contains("has 512 devices, the pod 256") && error.contains("fsdp=64,tensor=4"), "{error}");
        let error = mesh("fsdp=64", 1, 256).unwrap_err();
        assert!(error.contains("fsdp=256 or data=4,fsdp=64"), "{error}");
        assert!(mesh("model=3", 1, 256).unwrap_err().contains("axes data, pipeline, fsdp, "));
        assert!(mesh("data=2,data=3", 1, 256).unwrap_err().contains("twice"));
        let error = check_batch(&Mesh { fsdp: 128, ..Mesh::ONE }, 200).unwrap_err().to_string();
        assert!(error.contains("128 or 256 would work"), "{error}");
    }
}
