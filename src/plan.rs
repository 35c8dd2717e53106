//! The kernels of a program as text.

use std::fmt::Write;

use tpusim_backend::compile::compile_parts;
use tpusim_backend::hlo::{Module, Verified};
use tpusim_isa::chip::ChipSpec;

use crate::failure::Failure;

/// Every kernel: its dimensions, the blocks chosen, its values, and what it was made from.
pub fn text(module: &Verified<Module>, chip: &ChipSpec) -> Result<String, Failure> {
    let c = compile_parts(module, chip).map_err(Failure::program)?;
    let mut text = format!("program {:?} chip {:?}\n", c.program.name, c.program.chip);
    for (kernel, info) in c.kernels.iter().zip(&c.program.ops) {
        let _ = write!(text, "\n{} {kernel}", info.name);
        let _ = writeln!(text, "  flops mxu {} vector {}", info.mxu_flops, info.vector_flops);
        if !info.source.is_empty() {
            let _ = writeln!(text, "  from {}", info.source);
        }
    }
    Ok(text)
}
