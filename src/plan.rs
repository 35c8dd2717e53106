//! The kernels of a program as text.

use std::fmt::Write;

use tpusim_backend::compile::compile_graph;
use tpusim_backend::graph::from_module;
use tpusim_backend::hlo::{Module, Verified};
use tpusim_backend::tile::choose::{dot_tilings, vector_tilings};
use tpusim_backend::tile::dims::vector_kernel;
use tpusim_backend::tile::fuse::plan;
use tpusim_backend::tile::product::dot_kernel;
use tpusim_isa::chip::ChipSpec;

use crate::failure::Failure;

fn shape(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

/// A line per kernel: what it stores, its dimensions, the tiling tried first, and what it was made from.
pub fn text(module: &Verified<Module>, chip: &ChipSpec) -> Result<String, Failure> {
    let graph = from_module(module).map_err(Failure::program)?;
    let program = compile_graph(&graph, chip).map_err(Failure::program)?;
    let plan = plan(&graph);
    let mut text = format!("program {:?} chip {:?}\n", program.name, chip.name);
    for (step, info) in plan.steps.iter().zip(&program.ops) {
        let root = graph.node(step.root);
        let _ = write!(text, "\n{} {}[{}]", info.name, root.dtype, shape(&root.dims));
        match &step.product {
            Some(p) => {
                let kernel = dot_kernel(&graph, chip, step, p);
                let _ = write!(text, " dims {} k {} format {}", shape(&kernel.dims), kernel.k, kernel.format.name());
                if let Some(t) = dot_tilings(&kernel, chip).first() {
                    let order = if t.cols_outer { "columns, rows" } else { "rows, columns" };
                    let _ = write!(
                        text,
                        "\n  tiling rows {} cols {} k {} chunk {} split rows {} cols {} k {} order {order} cores {}",
                        t.rows, t.cols, t.k, t.chunk, t.row_split, t.col_split, t.k_split, t.cores
                    );
                }
            }
            None => {
                let kernel = vector_kernel(step);
                let _ = write!(text, " dims {}", shape(&kernel.dims));
                if let Some(t) = vector_tilings(&kernel, chip).first() {
                    let _ = write!(
                        text,
                        "\n  tiling planes {} rows {} cols {} unroll rows {} lanes {} cores {}",
                        t.planes, t.rows, t.cols, t.row_unroll, t.lane_unroll, t.cores
                    );
                }
            }
        }
        let _ = writeln!(text, "\n  flops mxu {} vector {}", info.mxu_flops, info.vector_flops);
        if !info.source.is_empty() {
            let _ = writeln!(text, "  from {}", info.source);
        }
    }
    Ok(text)
}
