//! Steps of decoder models, of training and of serving, as programs for a whole mesh of devices.
//!
//! A step of training is what JAX emits for a scanned, rematerialised model: weights of all layers stacked, a loop over layers that keeps each
//! layer's input, the loss, a loop back over the layers that computes each again and gives its gradients, and the optimizer's update.
//! Steps of serving are in `serve.rs`. Shapes are those of the whole batch and model; Shardy's annotations say how a mesh cuts them.
//!
//! ```
//! use tpusim_workloads::llm::{Model, Options, train_step};
//! let model = Model { layers: 2, ..*Model::find("qwen3-0.6b").unwrap() };
//! let module = train_step(&model, &Options { batch: 1, seq: 128, ..Options::default() })?;
//! assert!(module.func("main").is_some());
//! # Ok::<(), tpusim_workloads::WorkloadError>(())
//! ```

mod attention;
mod cache;
mod context;
mod experts;
mod fit;
mod imbalance;
mod latent;
mod layer;
mod manual;
mod math;
mod mesh;
mod models;
mod narrow;
mod optimizer;
mod pipeline;
mod routing;
mod serve;
mod sinks;
mod stage;
mod step;
mod train;
mod weights;

use tpusim_backend::hlo::{Module, TensorType, Verified};
use tpusim_isa::num::DType;

use experts::Dispatch;

pub use experts::Routing;
pub use fit::{MeshRequest, check_batch, default_batch, default_decode_batch};
pub use imbalance::{Imbalance, Loads, Skew};
pub use layer::{Keep, Remat};
pub use mesh::{Axis, Mesh};
pub use models::{Experts, Latent, MODELS, Mlp, Model, Norm, UsefulFlops, Window};
pub use narrow::Products;
pub use optimizer::{BETA1, BETA2, EPSILON, Optimizer, RATE};
pub use pipeline::Schedule;
pub use serve::{Phase, ServedBytes};
pub(crate) use train::WORKLOAD;
pub use train::configure;

use crate::{MAX_ARRAY_BYTES, WorkloadError};

/// How a step is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Sequences of the whole batch.
    pub batch: i64,
    /// Tokens of a sequence.
    pub seq: i64,
    /// The mesh.
    pub mesh: Mesh,
    /// What layers keep for the backward pass.
    pub remat: Remat,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Type of activations, and of weights where they are multiplied.
    pub dtype: DType,
    /// Type in which weights are held and their gradients summed: f32 for master weights.
    pub weights: DType,
    /// Type of the optimizer's moments.
    pub state: DType,
    /// Type of the first moment, if it is another.
    pub first_moment: Option<DType>,
    /// Parts of the batch whose gradients are summed one after the other, or which flow through a pipeline; 1 is as many as it has stages.
    pub microbatches: i64,
    /// Times that a part goes round the stages of a pipeline, each time through other layers.
    pub repeats: i64,
    /// Positions of a block, for attention as a loop over pairs of blocks; 0 for attention as one operation, which chips have a kernel
    /// for if activations are bf16. None for the operation then, else for the largest divisor of `seq` up to 512.
    pub attention_block: Option<i64>,
    /// What operands of products are rounded to.
    pub products: Products,
    /// Which experts tokens visit, of a model that has them.
    pub routing: Routing,
    /// How unequally the router likes experts, beside what it finds; not at all if none.
    pub imbalance: Option<Imbalance>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            batch: 1,
            seq: 2048,
            mesh: Mesh::ONE,
            remat: Remat::Full,
            optimizer: Optimizer::Adam,
            dtype: DType::BF16,
            weights: DType::BF16,
            state: DType::F32,
            first_moment: None,
            microbatches: 1,
            repeats: 1,
            attention_block: None,
            products: Products::Plain,
            routing: Routing::Capacity(1.25),
            imbalance: None,
        }
    }
}

/// Most pairs of blocks that attention visits: their places are a table in the program.
const MAX_PAIRS: i64 = 1 << 20;

impl Options {
    /// Positions of a block of attention; 0 if it is one operation.
    pub(crate) fn tile(&self) -> i64 {
        let divisor = (1..=self.seq.min(512)).rev().find(|n| self.seq % n == 0).unwrap_or(1);
        let whole = self.dtype == DType::BF16 || self.mesh.context > 1;
        self.attention_block.unwrap_or(if whole { 0 } else { divisor })
    }

    /// Parts of the batch that layers see one after the other.
    fn parts(&self) -> i64 {
        if self.microbatches <= 1 { self.mesh.pipeline.max(1) } else { self.microbatches }
    }

    fn check(&self, m: &Model) -> Result<(), WorkloadError> {
        let refuse = |text: String| Err(WorkloadError::Combination(text));
        let Model { heads, kv_heads, dim, .. } = *m;
        let sizes = [self.batch, self.seq, self.tile().max(1), m.layers, m.d, m.ff, heads, kv_heads, dim, m.vocab];
        let axes = Axis::ALL.map(|a| self.mesh.size(a));
        if sizes.iter().chain(&axes).any(|n| !(1..=crate::MAX_SIZE).contains(n)) {
            return refuse(format!("a size is not from 1 to {}", crate::MAX_SIZE));
        }
        if let Some(l) = m.latent {
            let sizes = [l.q_rank, l.kv_rank, l.nope, l.rope, l.value];
            if sizes.iter().any(|n| !(1..=crate::MAX_SIZE).contains(n)) || l.rope % 2 != 0 || kv_heads != heads {
                return refuse(
                    "latent attention needs sizes of heads, an even part that rotates, and a key per head".into(),
                );
            }
        }
        if let Some(w) = m.window
            && (w.size < 1 || w.every < 1 || m.experts.is_some_and(|e| e.dense_layers % w.every != 0))
        {
            return refuse(format!("a window of {} positions, but for one of {} layers", w.size, w.every));
        }
        if m.post_norms && (m.experts.is_some() || m.norm == Norm::Layer) {
            return refuse("norms behind experts or with biases are not there".into());
        }
        if let Some(i) = self.imbalance
            && (m.experts.is_none() || self.routing == Routing::Balanced)
        {
            let why = if m.experts.is_none() { "has no experts" } else { "gives each expert the same" };
            return refuse(format!("imbalance {i}: `{}` {why}", m.name));
        }
        context::check(self, m)?;
        if let Some(e) = m.experts {
            self.check_experts(m, e)?;
        }
        if self.microbatches < 1 || self.batch % self.microbatches != 0 {
            return refuse(format!("microbatches={} does not divide batch={}", self.microbatches, self.batch));
        }
        if heads % kv_heads != 0 {
            return refuse(format!("kv_heads={kv_heads} does not divide heads={heads}"));
        }
        if dim % 2 != 0 {
            return refuse(format!("dim={dim} is odd; rotary positions need pairs"));
        }
        let (key, value) = m.head();
        let largest = m.d.max(m.ff).max(m.vocab).max(heads.saturating_mul(key.saturating_add(value)));
        let ty = TensorType::new([self.batch, self.seq, largest], self.dtype);
        if ty.bytes().is_none_or(|b| b > MAX_ARRAY_BYTES) {
            return Err(WorkloadError::TooLarge { ty: ty.to_string() });
        }
        pipeline::check(self, m)?;
        if m.rope_base.is_none() && self.seq > m.context {
            return refuse(format!("seq={}: `{}` has {} positions", self.seq, m.name, m.context));
        }
        let tile = self.tile();
        if tile == 0 {
            return Ok(());
        }
        if self.seq % tile != 0 {
            return refuse(format!("attention_block={tile} does not divide seq={}", self.seq));
        }
        let blocks = self.seq / tile;
        if blocks.saturating_mul(blocks + 1) / 2 > MAX_PAIRS {
            return refuse(format!("attention_block={tile} cuts seq={} into more than {MAX_PAIRS} pairs", self.seq));
        }
        Ok(())
    }
}

impl Options {
    /// How the layers with experts spread their tokens.
    fn dispatch(&self, experts: Experts) -> Dispatch {
        let together = self.seq == 1 && self.mesh.expert > 1;
        let axes = if together { &[Axis::Data, Axis::Fsdp][..] } else { mesh::BATCH };
        let groups = self.mesh.parts(axes).saturating_mul(self.mesh.context).max(1);
        let tokens = (self.batch / self.parts()).saturating_mul(self.seq) / groups;
        Dispatch { experts, routing: self.routing, groups, tokens, imbalance: self.imbalance, together }
    }

    fn check_experts(&self, m: &Model, e: Experts) -> Result<(), WorkloadError> {
        let refuse = |text: String| Err(WorkloadError::Combination(text));
        let sizes = [e.count, e.active, e.ff];
        if sizes.iter().any(|n| !(1..=crate::MAX_SIZE).contains(n)) || e.active > e.count {
            return refuse(format!("{} of {} experts of width {} cannot be visited", e.active, e.count, e.ff));
        }
        if !(0..=m.layers).contains(&e.dense_layers) || !(0..=e.count).contains(&e.shared) {
            return refuse(format!("{} dense layers of {}, {} shared experts", e.dense_layers, m.layers, e.shared));
        }
        if m.norm == Norm::Layer {
            return refuse("experts with biases are not there".into());
        }
        let groups = self.mesh.parts(mesh::BATCH).max(1);
        if self.batch / self.parts() % groups != 0 {
            return refuse(format!("the mesh cuts batch={} into {groups} parts", self.batch));
        }
        if let Routing::Capacity(factor) = self.routing
            && !(factor > 0.0 && factor <= e.count as f64)
        {
            return refuse(format!("capacity={factor} is not from above 0 to {}, the number of experts", e.count));
        }
        let d = self.dispatch(e);
        if self.routing == Routing::Balanced && d.tokens.saturating_mul(e.active) % e.count != 0 {
            let text = format!("{} tokens of a device that visit {} experts each", d.tokens, e.active);
            return refuse(format!("{text} cannot be spread evenly over {}", e.count));
        }
        if !d.fits() {
            return refuse(format!("{} tokens of a device with {} experts are too many to sort", d.tokens, e.count));
        }
        let ty = TensorType::new(d.rows(m.d.max(e.ff)), self.dtype);
        match ty.bytes() {
            Some(b) if b <= MAX_ARRAY_BYTES => Ok(()),
            _ => Err(WorkloadError::TooLarge { ty: ty.to_string() }),
        }
    }
}

/// One step of training `model`: `main` takes the weights (those of layers first, stacked), the moments in the same order, the number of
/// steps so far `i32[]`, and `tokens` and `targets` `i32[batch, seq]`, or of microbatches `i32[microbatches, batch / microbatches, seq]`; it
/// returns weights, moments and steps, which are donated, and the loss `f32[]`. Tokens are in order, whatever the mesh cuts. With a
/// pipeline, `tokens` and `targets` are of the whole batch, and with several rounds stacks are `(repeats, layers / repeats, ..)`.
///
/// # Errors
/// Sizes that do not go together or with the mesh.
pub fn train_step(model: &Model, options: &Options) -> Result<Verified<Module>, WorkloadError> {
    options.check(model)?;
    step::build(model, options)
}

/// One step of `phase` with `model`: [`train_step`], or a step of serving, whose weights are held in the type of activations. `main` of a
/// serving step takes the weights, in the order of a training step; the arrays of the cache of keys and values, `(layers, batch, key heads,
/// context, channels)` and donated; `tokens`, `i32[batch, seq]` to prefill or `i32[batch]` to decode; and to decode their common
/// `position`, `i32[]`. It returns the cache, the logits after the last token of each sequence, `(batch, vocabulary)` in their type, and the token
/// of the largest, `i32[batch]`.
///
/// # Errors
/// Sizes that do not go together or with the mesh.
pub fn step(model: &Model, options: &Options, phase: Phase) -> Result<Verified<Module>, WorkloadError> {
    serve::build(model, options, phase)
}

/// What experts get of a step's tokens with the imbalance and the room that `options` state, by draws from the distribution; none if they
/// state none.
pub fn expert_loads(model: &Model, options: &Options, phase: Phase) -> Option<Loads> {
    let d = serve::options(options, phase).dispatch(model.experts?);
    Some(d.loads(options.imbalance?, Some(d.admitted())))
}

/// `options` with room for every row that the drawn choices bring to an expert, so that none is dropped, and as little more as lets products
/// contract whole blocks; as they are without imbalance.
pub fn with_room(model: &Model, options: &Options, phase: Phase) -> Options {
    let (Some(e), Some(i)) = (model.experts, options.imbalance) else { return *options };
    let d = serve::options(options, phase).dispatch(e);
    let fair = d.choices() as f64 / e.count.max(1) as f64;
    let most = (d.loads(i, None).hottest * fair).round() as i64;
    // A thirty-second more at most, but for registers of eight rows; one slot is never taken.
    let unit = 1 << (most / 32).clamp(8, 512).ilog2();
    let rows = (most + unit) / unit * unit - 1;
    // Half a row less, so that rounding up gives these rows.
    Options { routing: Routing::Capacity(((rows as f64 - 0.5) / fair).min(e.count as f64)), ..*options }
}

/// What each device has to read from HBM once in a serving step; none for a training step.
pub fn served_bytes(model: &Model, options: &Options, phase: Phase) -> Option<ServedBytes> {
    serve::bytes(model, options, phase)
}
