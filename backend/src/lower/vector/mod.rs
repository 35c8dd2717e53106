//! Kernels of the vector unit: elementwise fusions with row reductions (softmax, norms), column reductions, copies and transposes.
//!
//! The kernel's canonical dimensions are `[majors.., planes, rows, columns]`. Blocks hold `planes x rows x columns` elements; the
//! majors are stepped one by one. Within a block, code is emitted per *cell*: a group of rows by one lane tile. A group has as many
//! rows as the narrowest packed type needs (8, 16 or 32), times an unrolling factor.
//!
//! **Row reductions** split the work on a row group into phases. Phase `k` walks the lane tiles once and accumulates every
//! reduction whose operand needs only results of phases before `k`; then an XLU reduces the lanes. Values that a later phase needs
//! again are computed again if that is cheap, else kept in VMEM. So a softmax reads HBM once and writes it once.
//!
//! **Column reductions** keep one accumulator per lane tile in registers while they walk rows, and in VMEM across blocks.

mod cell;
mod columns;
mod plan;
mod rows;
mod transpose;

use tpusim_isa::num::DType;

use super::cells::{packing, stored_bytes};
use super::emit::{EmitError, Emitter, ZERO};
use super::expr::{Access, Kind, Node, NodeIx};
use super::nest::{Body, Iter, Nest};
use super::scalar::{Bases, Scalar};
use plan::*;

/// A value written to HBM.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// The value.
    pub node: NodeIx,
    /// Where it goes.
    pub access: Access,
}

/// A kernel of the vector unit.
#[derive(Clone, Debug, PartialEq)]
pub struct VectorKernel {
    /// Sizes of the canonical dimensions, at least two.
    pub dims: Vec<u64>,
    /// Values in an order where operands come first.
    pub nodes: Vec<Node>,
    /// What is written.
    pub stores: Vec<Store>,
    /// Scalars that move what is read and written.
    pub scalars: Vec<Scalar>,
}

/// Sizes chosen for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Planes of a block.
    pub planes: u64,
    /// Rows of a block.
    pub rows: u64,
    /// Columns of a block.
    pub cols: u64,
    /// Row groups per cell.
    pub row_unroll: u32,
    /// Cells per loop iteration.
    pub lane_unroll: u32,
    /// Cores that share the kernel.
    pub cores: u32,
}

/// Elements of `t` per 32-bit word of a packed register.
pub fn packing_of(t: DType) -> usize {
    t.packing()
}

impl VectorKernel {
    fn n(&self) -> usize {
        self.dims.len()
    }

    fn row_bit(&self) -> u32 {
        1 << (self.n() - 2)
    }

    fn col_bit(&self) -> u32 {
        1 << (self.n() - 1)
    }

    /// Whether the columns are reduced, so that a block must hold all of them.
    pub fn reduces_rows(&self) -> bool {
        self.nodes.iter().any(|n| matches!(n.kind, Kind::RowReduce(_)))
    }

    /// Dimensions that column reductions remove.
    pub fn col_reduced(&self) -> u32 {
        self.nodes.iter().fold(0, |m, n| if let Kind::ColReduce(_, r) = n.kind { m | r } else { m })
    }

    /// Rows of the smallest group that fills whole packed registers of every stream.
    pub fn group_rows(&self) -> u32 {
        let loads = self.nodes.iter().filter(|n| matches!(n.kind, Kind::Load(_))).map(|n| n.dtype);
        let stores = self.stores.iter().map(|s| self.nodes[s.node].dtype);
        loads.chain(stores).map(|t| 8 * packing(t)).max().unwrap_or(8)
    }

    /// Whether a load's lanes run along the kernel's rows, so that it must be transposed.
    pub fn transposed(&self, access: &Access, dtype: DType) -> bool {
        let (r, c) = (self.n() - 2, self.n() - 1);
        let unit = i64::from(stored_bytes(dtype));
        self.dims[c] > 1
            && self.dims[r] > 1
            && access.strides[c] != 0
            && access.strides[c] != unit
            && access.strides[r] == unit
    }

    /// Blocks below which HBM bytes of one iteration count; used by the planner to weigh tilings.
    pub fn bytes_per_element(&self) -> u64 {
        let loads = self.nodes.iter().filter(|n| matches!(n.kind, Kind::Load(_))).map(|n| n.dtype.bytes() as u64);
        loads.sum::<u64>() + self.stores.iter().map(|s| self.nodes[s.node].dtype.bytes() as u64).sum::<u64>()
    }

    /// Everything it reads and writes.
    fn accesses(&self) -> impl Iterator<Item = &Access> {
        let loads = self.nodes.iter().filter_map(|n| if let Kind::Load(a) = &n.kind { Some(a) } else { None });
        loads.chain(self.stores.iter().map(|s| &s.access))
    }

    /// Emits the kernel.
    ///
    /// # Errors
    /// [`EmitError`] if the tiling does not fit the machine.
    pub fn emit(&self, e: &mut Emitter<'_>, t: Tiling, base_of: &dyn Fn(usize) -> i64) -> Result<(), EmitError> {
        let bases = Bases::load(e, base_of, &self.scalars, self.accesses())?;
        let mut k = Lowering::plan(self, e, t, &bases)?;
        let nest = Nest::new(e, k.levels.clone(), std::mem::take(&mut k.streams), t.cores)?;
        nest.emit(e, &mut k)
    }
}

impl Body for Lowering<'_> {
    fn compute(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        self.transpose(e, nest, it)?;
        if self.k.col_reduced() != 0 {
            return self.columns(e, nest, it);
        }
        let (planes, groups) = (self.t.planes as u32, self.groups());
        e.repeat(planes, |e, plane| {
            e.repeat(groups, |e, group| {
                let mut f = Frame {
                    nest,
                    it,
                    plane,
                    group,
                    phase: 0,
                    pinned: Pinned::new(),
                    addresses: Addresses::new(),
                    tiles: None,
                    kept: ZERO,
                };
                self.set_addresses(e, &mut f)?;
                self.phases_from(e, &f)?;
                self.drop_addresses(e, &mut f);
                Ok(())
            })
        })
    }
}
