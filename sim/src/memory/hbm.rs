//! HBM of one device: the extent of the program's plan, with constants and inputs put in place.

use tpusim_isa::program::{BufferKind, Program};

use crate::fault::FaultKind;

/// Builds HBM for a run: constants and `inputs` (by parameter number) are copied in; the rest is `fill`ed if asked for, else zero.
pub(crate) fn load(program: &Program, inputs: &[Vec<u8>], fill: Option<u32>) -> Result<Vec<u8>, FaultKind> {
    let mut extent = 0u64;
    for b in &program.buffers {
        let end = b.offset.checked_add(b.bytes);
        let end = end.ok_or_else(|| FaultKind::Malformed("a buffer ends beyond 2^64".to_owned()))?;
        extent = extent.max(end);
    }
    let mut memory = allocate(extent)?;
    if let Some(word) = fill {
        for (i, byte) in memory.iter_mut().enumerate() {
            *byte = word.to_le_bytes()[i % 4];
        }
    }
    for b in &program.buffers {
        let at = b.offset as usize..(b.offset + b.bytes) as usize;
        match &b.kind {
            BufferKind::Param(index) => {
                let given = inputs.len();
                let data = inputs.get(*index as usize).ok_or(FaultKind::InputMissing { index: *index, given })?;
                if data.len() as u64 != b.bytes {
                    return Err(FaultKind::InputSize { index: *index, got: data.len() as u64, want: b.bytes });
                }
                memory[at].copy_from_slice(data);
            }
            BufferKind::Constant(data) => {
                if data.len() as u64 > b.bytes {
                    return Err(FaultKind::Malformed(format!("{} bytes of constant for {}", data.len(), b.bytes)));
                }
                memory[at.start..at.start + data.len()].copy_from_slice(data);
            }
            BufferKind::Output(_) | BufferKind::Temp => {}
        }
    }
    Ok(memory)
}

fn allocate(bytes: u64) -> Result<Vec<u8>, FaultKind> {
    let fail = FaultKind::OutOfMemory { bytes };
    let Ok(n) = usize::try_from(bytes) else { return Err(fail) };
    // Zeroed memory straight from the system is not touched until used; the trial reservation turns failure into an error.
    let mut trial: Vec<u8> = Vec::new();
    if trial.try_reserve_exact(n).is_err() {
        return Err(fail);
    }
    drop(trial);
    Ok(vec![0; n])
}

/// Reads the outputs, by number.
pub(crate) fn outputs(program: &Program, memory: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for b in &program.buffers {
        if let BufferKind::Output(i) = b.kind {
            let i = i as usize;
            if i >= out.len() && i < program.buffers.len() {
                out.resize(i + 1, Vec::new());
            }
            if let Some(slot) = out.get_mut(i) {
                *slot = memory[b.offset as usize..(b.offset + b.bytes) as usize].to_vec();
            }
        }
    }
    out
}
