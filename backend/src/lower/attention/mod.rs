//! Attention in one kernel: scores, softmax and weighted values of a block never leave VMEM.
//!
//! A *tile* is `TILE` queries of one head or as many keys; the work is pairs of a tile of queries and one of keys, those that a causal
//! mask leaves. Scores are computed with keys along rows and queries along lanes (`K Q^T`), so that maxima and sums over keys are
//! elementwise and what belongs to a query lies along lanes in all that follows. The weights of values, `P^T`, are then latched, and
//! `V^T` streams through them; `V^T`, and in the end the transpose of the output, are made by the MXUs, which multiply by the
//! identity.
//!
//! All pairs of a block of heads are one flat list, in a table in SMEM that the kernel writes once. A body of the loop over it works
//! on several pairs at once, one in each *stage*: weights of a pair are pushed while scores of the one before stream, those of earlier ones
//! are popped, exponentiated, and multiplied by values. Stages of a body do not depend on each other, so the scheduler fills the
//! bundles with all of them. The list begins with the pairs on the diagonal, then those at the end of a window, whose bodies mask scores;
//! around it are pairs of nobody's queries, with which the pipeline starts and ends.

mod backward;
mod bodies;
mod forward;
mod geometry;
mod jobs;
mod mask;
mod pairs;
mod pipeline;
mod scores;
mod stages;
mod transpose;

use std::fmt;

use tpusim_isa::chip::ChipSpec;

use super::emit::{EmitError, Emitter};
use super::nest::Nest;
use crate::ops::attention::Attention;
use backward::Backward;
use forward::Forward;
pub(crate) use geometry::Blocking;

/// Queries, or keys, of a tile.
pub(crate) const TILE: u32 = 256;

/// An attention kernel with the heads of a block chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionKernel {
    spec: Attention,
    blocking: Blocking,
}

impl AttentionKernel {
    /// Whether there is code for `spec`, VMEM permitting.
    pub fn supports(spec: &Attention) -> bool {
        geometry::supports(spec)
    }

    /// Kernels for `spec`, best first.
    pub fn candidates(spec: &Attention, chip: &ChipSpec) -> Vec<AttentionKernel> {
        let all = Blocking::all(spec, chip);
        // Where registers run short, the best blocks in a simpler order.
        let simple = all.first().map(|b| Blocking { spread: false, ..*b });
        all.into_iter().chain(simple).map(|blocking| AttentionKernel { spec: spec.clone(), blocking }).collect()
    }

    /// TensorCores that take part.
    pub fn cores(&self) -> u32 {
        self.blocking.cores
    }

    /// Emits the kernel. `loads` and `stores` are the HBM addresses of operands and results; `None` is not wanted.
    ///
    /// # Errors
    /// [`EmitError`] if the blocks do not fit the machine.
    pub fn emit(&self, e: &mut Emitter<'_>, loads: &[i64], stores: &[Option<i64>]) -> Result<(), EmitError> {
        let (s, b) = (&self.spec, self.blocking);
        let nest = |e: &mut Emitter<'_>, streams| Nest::new(e, b.levels(s), streams, b.cores);
        if s.gradient {
            let (mut body, streams) = Backward::plan(s, b, e, loads, stores)?;
            return nest(e, streams)?.emit(e, &mut body);
        }
        let (mut body, streams) = Forward::plan(s, b, e, loads, stores)?;
        nest(e, streams)?.emit(e, &mut body)
    }
}

impl fmt::Display for AttentionKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, b) = (&self.spec, &self.blocking);
        writeln!(
            f,
            "attention{} batch {} queries {} keys {} heads {} of {} key heads, dim {} and {}{}",
            if s.gradient { " gradient" } else { "" },
            s.batch,
            s.queries,
            s.keys,
            s.heads,
            s.kv_heads,
            s.dim,
            s.v_dim,
            if s.form.causal { ", causal" } else { "" }
        )?;
        if let Some(window) = s.form.window {
            writeln!(f, "  window of {window} keys, queries from position {}", s.form.offset)?;
        }
        if let Some(cap) = s.form.softcap {
            writeln!(f, "  scores bounded by {cap}")?;
        }
        writeln!(f, "  block {} key heads of {} heads each, tiles of {TILE}, cores {}", b.kv_heads, b.group, b.cores)
    }
}
