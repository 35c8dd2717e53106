//! What the axes of a mesh carry, to lay them out well.

use tpusim_backend::hlo::{Block, Func, Module, Opcode, ValueId};

/// An axis of a mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisUse {
    /// Name.
    pub name: String,
    /// Devices.
    pub size: u64,
    /// Bytes of arrays of a device of which each of the others gets its part: all-to-all.
    pub exchanged: f64,
    /// Bytes of arrays that pass every device: all-gather, reduce-scatter, and all-reduce twice.
    pub gathered: f64,
}

/// How often a loop whose length is not looked for runs.
const LOOP: f64 = 32.0;

/// The axes of a mesh, and what the collectives of the local program `module` move along each.
pub fn traffic(module: &Module, axes: &[(String, u64)]) -> Vec<AxisUse> {
    let mut all: Vec<AxisUse> = axes
        .iter()
        .map(|(name, size)| AxisUse { name: name.clone(), size: *size, exchanged: 0.0, gathered: 0.0 })
        .collect();
    for f in &module.funcs {
        block(f, &f.body, 1.0, &mut all);
    }
    all
}

fn block(f: &Func, b: &Block, times: f64, all: &mut [AxisUse]) {
    for op in &b.ops {
        let bytes = |values: &[ValueId]| -> f64 {
            let own = |v: &ValueId| f.ty(*v).tensor().and_then(|t| t.bytes()).unwrap_or(0);
            values.iter().map(own).map(|b| b as f64).sum::<f64>() * times
        };
        let (exchanged, gathered) = match op.opcode {
            Opcode::AllToAll => (bytes(&op.operands), 0.0),
            Opcode::AllGather => (0.0, bytes(&op.results)),
            Opcode::ReduceScatter => (0.0, bytes(&op.operands)),
            Opcode::AllReduce => (0.0, 2.0 * bytes(&op.operands)),
            _ => (0.0, 0.0),
        };
        // A part of an axis is called `x:(2)4`.
        let names = op.attrs.text("mesh_axes").unwrap_or("").split(',').map(|n| n.split(':').next().unwrap_or(n));
        for name in names {
            if let Some(a) = all.iter_mut().find(|a| a.name == name) {
                a.exchanged += exchanged;
                a.gathered += gathered;
            }
        }
        let times = if op.opcode == Opcode::While { times * LOOP } else { times };
        op.regions.iter().for_each(|r| block(f, &r.block, times, all));
    }
}
