//! The mesh of devices, and Shardy's notation of who has which part of an array.

use tpusim_backend::hlo::{Attr, FuncBuilder, ModuleBuilder, Type, ValueId};
use tpusim_isa::num::DType;

/// An axis of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Copies of the model, each with its part of the batch.
    Data,
    /// Parts of the layers, through which parts of the batch flow.
    Pipeline,
    /// Parts of the batch whose devices also share weights and optimizer state.
    Fsdp,
    /// Parts of the positions of a sequence, whose devices also share weights.
    Context,
    /// Parts of the batch whose devices also share experts: each has all rows of some.
    Expert,
    /// Parts of heads, hidden channels and vocabulary.
    Tensor,
}

impl Axis {
    /// Every axis, the outermost first.
    pub const ALL: [Axis; 6] = [Axis::Data, Axis::Pipeline, Axis::Fsdp, Axis::Context, Axis::Expert, Axis::Tensor];

    /// Name on the command line and in programs.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Data => "data",
            Axis::Pipeline => "pipeline",
            Axis::Fsdp => "fsdp",
            Axis::Context => "context",
            Axis::Expert => "expert",
            Axis::Tensor => "tensor",
        }
    }
}

/// Sizes of the mesh's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// Size of [`Axis::Data`].
    pub data: i64,
    /// Size of [`Axis::Pipeline`].
    pub pipeline: i64,
    /// Size of [`Axis::Fsdp`].
    pub fsdp: i64,
    /// Size of [`Axis::Context`].
    pub context: i64,
    /// Size of [`Axis::Expert`].
    pub expert: i64,
    /// Size of [`Axis::Tensor`].
    pub tensor: i64,
}

/// How one array is cut: axes of each dimension.
pub(super) type Cut = Vec<Vec<Axis>>;

/// The dimension that runs over the batch.
pub(super) const BATCH: &[Axis] = &[Axis::Data, Axis::Fsdp, Axis::Expert];
/// The batch outside of layers, where devices of a pipeline have parts too.
pub(super) const ROWS: &[Axis] = &[Axis::Pipeline, Axis::Data, Axis::Fsdp, Axis::Expert];
/// The dimension that runs over positions.
pub(super) const POSITIONS: &[Axis] = &[Axis::Context];

impl Mesh {
    /// One device.
    pub const ONE: Mesh = Mesh { data: 1, pipeline: 1, fsdp: 1, context: 1, expert: 1, tensor: 1 };

    /// Number of devices, saturating.
    pub fn devices(&self) -> i64 {
        self.parts(&Axis::ALL)
    }

    /// Size of an axis.
    pub fn size(&self, axis: Axis) -> i64 {
        match axis {
            Axis::Data => self.data,
            Axis::Pipeline => self.pipeline,
            Axis::Fsdp => self.fsdp,
            Axis::Context => self.context,
            Axis::Expert => self.expert,
            Axis::Tensor => self.tensor,
        }
    }

    /// Into how many parts `axes` cut a dimension.
    pub(super) fn parts(&self, axes: &[Axis]) -> i64 {
        axes.iter().fold(1, |n, a| n.saturating_mul(self.size(*a)))
    }

    /// Size of an axis, to be changed.
    pub fn size_mut(&mut self, axis: Axis) -> &mut i64 {
        match axis {
            Axis::Data => &mut self.data,
            Axis::Pipeline => &mut self.pipeline,
            Axis::Fsdp => &mut self.fsdp,
            Axis::Context => &mut self.context,
            Axis::Expert => &mut self.expert,
            Axis::Tensor => &mut self.tensor,
        }
    }

    /// Adds the mesh to the module, if there is more than one device.
    pub(super) fn declare(&self, m: &mut ModuleBuilder) {
        if self.devices() == 1 {
            return;
        }
        // Most meshes have none of these.
        let rare = |a: Axis| [Axis::Pipeline, Axis::Context, Axis::Expert].contains(&a);
        let named = Axis::ALL.iter().filter(|a| !rare(**a) || self.size(**a) > 1);
        let axes: Vec<String> = named.map(|a| format!("\"{}\"={}", a.name(), self.size(*a))).collect();
        m.mesh("mesh", Attr::Opaque(format!("sdy.mesh<[{}]>", axes.join(", "))));
        m.attr("mhlo.num_partitions", Attr::Int(self.devices(), Type::Scalar(DType::I32)));
        m.attr("mhlo.num_replicas", Attr::Int(1, Type::Scalar(DType::I32)));
    }

    /// The text of a cut, none for one device.
    pub(super) fn sharding(&self, cut: &[Vec<Axis>]) -> Option<String> {
        (self.devices() > 1).then(|| format!("sdy.sharding{}", self.dims(cut)))
    }

    /// A cut as Shardy writes it, without its name.
    pub(super) fn dims(&self, cut: &[Vec<Axis>]) -> String {
        let dims = cut.iter().map(|axes| {
            let names = axes.iter().filter(|a| self.size(**a) > 1).map(|a| format!("\"{}\"", a.name()));
            format!("{{{}}}", names.collect::<Vec<_>>().join(", "))
        });
        format!("<@mesh, [{}]>", dims.collect::<Vec<_>>().join(", "))
    }

    /// `x` held to a cut.
    pub(super) fn constrain(&self, f: &mut FuncBuilder<'_>, x: ValueId, cut: &[&[Axis]]) -> ValueId {
        let cut: Cut = cut.iter().map(|axes| axes.to_vec()).collect();
        match self.sharding(&cut) {
            Some(text) => f.sharding_constraint(x, &text),
            None => x,
        }
    }
}

impl std::fmt::Display for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let axes = Axis::ALL.into_iter().filter(|a| self.size(*a) > 1);
        let named: Vec<String> = axes.map(|a| format!("{}={}", a.name(), self.size(a))).collect();
        if named.is_empty() { f.write_str("one device") } else { f.write_str(&named.join(",")) }
    }
}
