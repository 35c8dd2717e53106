//! Planned kernels: the tile level of the compiler, with a text form.

use std::fmt;

use tpusim_isa::chip::ChipSpec;

use super::choose::{dot_tilings, vector_tilings};
use super::dims::vector_kernel;
use super::disjoint::{disjoint_dot_tilings, disjoint_vector_tilings};
use super::fuse::Fusion;
use super::product::dot_kernel;
use crate::graph::{Counter, Graph};
use crate::lower::dot::{DotKernel, DotTiling, Operand};
use crate::lower::emit::{EmitError, Emitter};
use crate::lower::expr::{Access, Kind, Node};
use crate::lower::scalar::{Scalar, ScalarKind};
use crate::lower::vector::{Store, Tiling, VectorKernel};

/// A fusion with its dimensions and block sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// Work of the vector unit.
    Vector(VectorKernel, Tiling),
    /// A matrix product with its epilogue.
    Dot(Box<DotKernel>, DotTiling),
    /// A special node's code, as its text form.
    Special(String),
}

impl Kernel {
    /// The kernels `f` may become on `chip`, the one estimated fastest first.
    pub fn candidates(g: &Graph, chip: &ChipSpec, f: &Fusion) -> Vec<Kernel> {
        match &f.product {
            Some(p) => {
                let k = dot_kernel(g, chip, f, p);
                let tilings = if f.in_place { disjoint_dot_tilings } else { dot_tilings };
                tilings(&k, chip).into_iter().map(|t| Kernel::Dot(Box::new(k.clone()), t)).collect()
            }
            None => {
                let k = vector_kernel(f);
                let tilings = if f.in_place { disjoint_vector_tilings } else { vector_tilings };
                tilings(&k, chip).into_iter().map(|t| Kernel::Vector(k.clone(), t)).collect()
            }
        }
    }

    /// Generates its code. `base_of` gives the HBM address of a buffer.
    ///
    /// # Errors
    /// [`EmitError`] if the tiling does not fit the machine.
    pub fn emit(&self, e: &mut Emitter<'_>, base_of: &dyn Fn(usize) -> i64) -> Result<(), EmitError> {
        match self {
            Kernel::Vector(k, t) => k.emit(e, *t, base_of),
            Kernel::Dot(k, t) => k.emit(e, *t, base_of),
            Kernel::Special(_) => Ok(()),
        }
    }

    /// Cores that share it.
    pub fn cores(&self) -> u32 {
        match self {
            Kernel::Vector(_, t) => t.cores,
            Kernel::Dot(_, t) => t.cores,
            Kernel::Special(_) => 1,
        }
    }
}

fn dims(d: &[u64]) -> String {
    d.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

fn access(a: &Access) -> String {
    let strides: Vec<String> = a.strides.iter().map(i64::to_string).collect();
    let mut offset = if a.offset == 0 { String::new() } else { format!(" + {}", a.offset) };
    for s in &a.shifts {
        offset += &format!(" + clamp(s{}, 0, {}) * {}", s.scalar, s.limit, s.stride);
    }
    format!("buffer {}{offset} strides [{}]", a.buffer, strides.join(", "))
}

fn counter(c: &Counter) -> String {
    format!("{} + {} * iteration of loop level {}", c.start, c.step, c.level)
}

fn scalars(f: &mut fmt::Formatter<'_>, list: &[Scalar]) -> fmt::Result {
    for (ix, s) in list.iter().enumerate() {
        let args: Vec<String> = s.args.iter().map(|a| format!("s{a}")).collect();
        let what = match &s.kind {
            ScalarKind::Load(a) => format!("load {}", access(a)),
            ScalarKind::Imm(v) => v.to_string(),
            ScalarKind::Counter(c) => counter(c),
            ScalarKind::Map(op, _) => format!("{op:?} {}", args.join(", ")).to_lowercase(),
        };
        writeln!(f, "  s{ix} = {what} : {}", s.dtype)?;
    }
    Ok(())
}

/// The text form of scalars.
pub struct Scalars<'s>(pub &'s [Scalar]);

impl fmt::Display for Scalars<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scalars(f, self.0)
    }
}

fn values(f: &mut fmt::Formatter<'_>, nodes: &[Node], stores: &[Store]) -> fmt::Result {
    for (ix, n) in nodes.iter().enumerate() {
        let args: Vec<String> = n.args.iter().map(|a| format!("%{a}")).collect();
        let what = match &n.kind {
            Kind::Load(a) => format!("load {}", access(a)),
            Kind::Product => "product".to_owned(),
            Kind::Counter(c) => counter(c),
            Kind::Splat(bits) if n.dtype.is_float() => format!("splat {}", f32::from_bits(*bits as u32)),
            Kind::Splat(bits) => format!("splat {bits}"),
            Kind::Iota(d) => format!("iota {d}"),
            Kind::Map(op, _) => format!("{op:?} {}", args.join(", ")).to_lowercase(),
            Kind::RowReduce(how) => format!("row_{how:?} {}", args.join(", ")).to_lowercase(),
            Kind::ColReduce(how, mask) => format!("col_{how:?} {} over {mask:#b}", args.join(", ")).to_lowercase(),
        };
        writeln!(f, "  %{ix} = {what} : {}", n.dtype)?;
    }
    for s in stores {
        writeln!(f, "  store %{} to {}", s.node, access(&s.access))?;
    }
    Ok(())
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Vector(k, t) => {
                writeln!(f, "vector {}", dims(&k.dims))?;
                writeln!(
                    f,
                    "  block planes {} rows {} cols {}, unroll rows {} lanes {}, cores {}",
                    t.planes, t.rows, t.cols, t.row_unroll, t.lane_unroll, t.cores
                )?;
                scalars(f, &k.scalars)?;
                values(f, &k.nodes, &k.stores)
            }
            Kernel::Dot(k, t) => {
                writeln!(f, "dot {} k {} in {}", dims(&k.dims), k.k, k.format.name())?;
                let order = if t.cols_outer { "cols, rows" } else { "rows, cols" };
                writeln!(
                    f,
                    "  block rows {} cols {} k {}, order {order}, chunk {}, MXUs rows {} cols {} k {}, cores {}",
                    t.rows, t.cols, t.k, t.chunk, t.row_split, t.col_split, t.k_split, t.cores
                )?;
                scalars(f, &k.scalars)?;
                for (i, s) in k.slides.iter().enumerate() {
                    let size = if i == 0 { t.outer } else { k.dims[k.dims.len() - 2 - k.slides.len() + i] };
                    writeln!(
                        f,
                        "  window {} stride {} dilation {} over {} elements dilated {} after {} zeros, block {size}, step {}",
                        s.size, s.stride, s.dilation, s.extent, s.base, s.low, t.boxes[i]
                    )?;
                }
                let mut operand = |name: &str, o: &Operand| writeln!(f, "  {name} {} : {}", access(&o.access), o.dtype);
                operand("stream", &k.stream)?;
                operand("weights", &k.weights)?;
                values(f, &k.nodes, &k.stores)
            }
            Kernel::Special(text) => f.write_str(text),
        }
    }
}
