//! Shapes of published language models, and what a step computes.

use super::Phase;

/// How a block normalises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Root mean square, a factor per channel.
    Rms,
    /// Root mean square, one plus a factor per channel.
    RmsFromOne,
    /// Mean and variance, a factor and a bias per channel; products have biases too.
    Layer,
}

/// What an MLP computes between its products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// `silu(gate) * up`: three matrices.
    Silu,
    /// `gelu(gate) * up`: three matrices.
    GatedGelu,
    /// `gelu(up)`: two matrices.
    Gelu,
    /// `max(up, 0)`: two matrices.
    Relu,
}

impl Mlp {
    /// Whether there is a matrix for a gate.
    pub fn gated(self) -> bool {
        matches!(self, Mlp::Silu | Mlp::GatedGelu)
    }
}

/// A mixture of experts in the place of the dense MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Experts that tokens are routed to.
    pub count: i64,
    /// How many each token visits.
    pub active: i64,
    /// Experts that every token visits.
    pub shared: i64,
    /// Hidden width of one.
    pub ff: i64,
    /// Layers at the start that have the dense MLP instead.
    pub dense_layers: i64,
}

/// Multi-head latent attention: widths of the low-rank projections and of the parts of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Rank of the queries' projection.
    pub q_rank: i64,
    /// Rank of keys and values.
    pub kv_rank: i64,
    /// Part of a head's key that is not rotated.
    pub nope: i64,
    /// Part that is, shared by all heads.
    pub rope: i64,
    /// A head's value.
    pub value: i64,
}

/// Layers that see only the last positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Positions that a query of such a layer sees, its own included.
    pub size: i64,
    /// The last of every so many layers sees all positions.
    pub every: i64,
    /// Base of the rotary positions of layers that do not.
    pub rope_base: f64,
}

/// A decoder-only model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Name on the command line.
    pub name: &'static str,
    /// Where the numbers are published.
    pub source: &'static str,
    /// Decoder blocks.
    pub layers: i64,
    /// Width.
    pub d: i64,
    /// Hidden width of the dense MLP.
    pub ff: i64,
    /// Query heads.
    pub heads: i64,
    /// Key and value heads.
    pub kv_heads: i64,
    /// Size of a head.
    pub dim: i64,
    /// Tokens there are.
    pub vocab: i64,
    /// Whether the embedding's rows also give the logits.
    pub tied: bool,
    /// Norms.
    pub norm: Norm,
    /// The MLP.
    pub mlp: Mlp,
    /// What a norm adds to the variance.
    pub epsilon: f64,
    /// Whether each head's queries and keys are normalised.
    pub qk_norm: bool,
    /// Base of the rotary positions; none if positions are a learned table.
    pub rope_base: Option<f64>,
    /// Longest sequence.
    pub context: i64,
    /// Layers that see only the last positions, if it has them.
    pub window: Option<Window>,
    /// Size whose root divides scores, if it is not that of a head.
    pub score_dim: Option<i64>,
    /// Whether each head has a score of its own in the softmax.
    pub sinks: bool,
    /// Bound `c` of scores `x`, which become `c tanh(x / c)`.
    pub score_cap: Option<f64>,
    /// The same for logits.
    pub logit_cap: Option<f64>,
    /// Whether the results of attention and of the MLP are normalised before they are added.
    pub post_norms: bool,
    /// Whether the embedding's rows are multiplied by the root of the width.
    pub scaled_embedding: bool,
    /// Experts, if it has them.
    pub experts: Option<Experts>,
    /// Latent attention, if it has that.
    pub latent: Option<Latent>,
}

const QWEN3: Model = Model {
    name: "",
    source: "",
    layers: 0,
    d: 0,
    ff: 0,
    heads: 0,
    kv_heads: 8,
    dim: 128,
    vocab: 151_936,
    tied: false,
    norm: Norm::Rms,
    mlp: Mlp::Silu,
    epsilon: 1e-6,
    qk_norm: true,
    rope_base: Some(1e6),
    context: 40_960,
    window: None,
    score_dim: None,
    sinks: false,
    score_cap: None,
    logit_cap: None,
    post_norms: false,
    scaled_embedding: false,
    experts: None,
    latent: None,
};

/// Without the rescaling of rotary frequencies for long contexts, which changes numbers but no operation.
const LLAMA31: Model =
    Model { vocab: 128_256, epsilon: 1e-5, qk_norm: false, rope_base: Some(5e5), context: 131_072, ..QWEN3 };

const LLAMA2: Model =
    Model { vocab: 32_000, epsilon: 1e-5, qk_norm: false, rope_base: Some(1e4), context: 4096, ..QWEN3 };

const GEMMA: Model = Model {
    dim: 256,
    vocab: 256_000,
    tied: true,
    norm: Norm::RmsFromOne,
    mlp: Mlp::GatedGelu,
    qk_norm: false,
    rope_base: Some(1e4),
    context: 8192,
    scaled_embedding: true,
    ..QWEN3
};

const GEMMA2: Model = Model {
    window: Some(Window { size: 4096, every: 2, rope_base: 1e4 }),
    score_cap: Some(50.0),
    logit_cap: Some(30.0),
    post_norms: true,
    ..GEMMA
};

/// Text only, and without the rescaling of rotary frequencies for long contexts, which changes numbers but no operation.
const GEMMA3: Model = Model {
    vocab: 262_144,
    qk_norm: true,
    rope_base: Some(1e6),
    context: 131_072,
    window: Some(Window { size: 1024, every: 6, rope_base: 1e4 }),
    post_norms: true,
    ..GEMMA
};

const GPT_OSS: Model = Model {
    d: 2880,
    ff: 2880,
    heads: 64,
    dim: 64,
    vocab: 201_088,
    epsilon: 1e-5,
    qk_norm: false,
    rope_base: Some(1.5e5),
    context: 131_072,
    window: Some(Window { size: 128, every: 2, rope_base: 1.5e5 }),
    sinks: true,
    ..QWEN3
};

/// Models by name.
#[rustfmt::skip]
pub static MODELS: &[Model] = &[
    Model { name: "qwen3-0.6b", source: "huggingface.co/Qwen/Qwen3-0.6B config.json", layers: 28, d: 1024, ff: 3072, heads: 16, tied: true, ..QWEN3 },
    Model { name: "qwen3-8b", source: "huggingface.co/Qwen/Qwen3-8B config.json", layers: 36, d: 4096, ff: 12_288, heads: 32, ..QWEN3 },
    Model { name: "qwen3-32b", source: "huggingface.co/Qwen/Qwen3-32B config.json", layers: 64, d: 5120, ff: 25_600, heads: 64, ..QWEN3 },
    Model {
        name: "qwen3-235b-a22b", source: "huggingface.co/Qwen/Qwen3-235B-A22B config.json", layers: 94, d: 4096, ff: 12_288, heads: 64, kv_heads: 4,
        experts: Some(Experts { count: 128, active: 8, shared: 0, ff: 1536, dense_layers: 0 }), ..QWEN3
    },
    Model { name: "llama2-7b", source: "huggingface.co/meta-llama/Llama-2-7b-hf config.json", layers: 32, d: 4096, ff: 11_008, heads: 32, kv_heads: 32, ..LLAMA2 },
    Model { name: "llama2-70b", source: "huggingface.co/meta-llama/Llama-2-70b-hf config.json", layers: 80, d: 8192, ff: 28_672, heads: 64, ..LLAMA2 },
    Model { name: "llama3-8b", source: "huggingface.co/meta-llama/Meta-Llama-3-8B config.json", layers: 32, d: 4096, ff: 14_336, heads: 32, context: 8192, ..LLAMA31 },
    Model {
        name: "qwen3-30b-a3b", source: "huggingface.co/Qwen/Qwen3-30B-A3B config.json", layers: 48, d: 2048, ff: 6144, heads: 32, kv_heads: 4,
        experts: Some(Experts { count: 128, active: 8, shared: 0, ff: 768, dense_layers: 0 }), ..QWEN3
    },
    Model { name: "llama3.1-8b", source: "huggingface.co/meta-llama/Llama-3.1-8B config.json", layers: 32, d: 4096, ff: 14_336, heads: 32, ..LLAMA31 },
    Model { name: "llama3.1-70b", source: "huggingface.co/meta-llama/Llama-3.1-70B config.json", layers: 80, d: 8192, ff: 28_672, heads: 64, ..LLAMA31 },
    Model { name: "llama3.1-405b", source: "huggingface.co/meta-llama/Llama-3.1-405B config.json", layers: 126, d: 16_384, ff: 53_248, heads: 128, ..LLAMA31 },
    Model {
        name: "mistral-7b", source: "huggingface.co/mistralai/Mistral-7B-v0.1 config.json, all positions visible", layers: 32, d: 4096, ff: 14_336,
        heads: 32, vocab: 32_000, rope_base: Some(1e4), context: 32_768, ..LLAMA31
    },
    Model {
        name: "gemma-2b", source: "huggingface.co/google/gemma-2b config.json", layers: 18, d: 2048, ff: 16_384, heads: 8, kv_heads: 1, ..GEMMA
    },
    Model {
        name: "gemma-7b", source: "huggingface.co/google/gemma-7b config.json", layers: 28, d: 3072, ff: 24_576, heads: 16, kv_heads: 16, ..GEMMA
    },
    Model {
        name: "gemma2-9b", source: "huggingface.co/google/gemma-2-9b config.json", layers: 42, d: 3584, ff: 14_336, heads: 16, ..GEMMA2
    },
    Model {
        name: "gemma2-27b", source: "huggingface.co/google/gemma-2-27b config.json", layers: 46, d: 4608, ff: 36_864, heads: 32, kv_heads: 16,
        dim: 128, score_dim: Some(144), ..GEMMA2
    },
    Model {
        name: "gemma3-4b", source: "huggingface.co/google/gemma-3-4b-pt config.json", layers: 34, d: 2560, ff: 10_240, heads: 8, kv_heads: 4,
        ..GEMMA3
    },
    Model { name: "gemma3-12b", source: "huggingface.co/google/gemma-3-12b-pt config.json", layers: 48, d: 3840, ff: 15_360, heads: 16, ..GEMMA3 },
    Model {
        name: "gemma3-27b", source: "huggingface.co/google/gemma-3-27b-pt config.json", layers: 62, d: 5376, ff: 21_504, heads: 32, kv_heads: 16,
        dim: 128, score_dim: Some(168), ..GEMMA3
    },
    Model {
        name: "gpt3-175b", source: "arXiv:2005.14165 table 2.1; vocabulary and context of GPT-2", layers: 96, d: 12_288, ff: 49_152, heads: 96,
        kv_heads: 96, vocab: 50_257, tied: true, norm: Norm::Layer, mlp: Mlp::Gelu, epsilon: 1e-5, qk_norm: false, rope_base: None, context: 2048, ..QWEN3
    },
    Model {
        name: "mixtral-8x7b", source: "huggingface.co/mistralai/Mixtral-8x7B-v0.1 config.json", layers: 32, d: 4096, ff: 14_336, heads: 32,
        vocab: 32_000, epsilon: 1e-5, qk_norm: false, context: 32_768,
        experts: Some(Experts { count: 8, active: 2, shared: 0, ff: 14_336, dense_layers: 0 }), ..QWEN3
    },
    Model {
        name: "gpt-oss-20b", source: "huggingface.co/openai/gpt-oss-20b config.json, without biases and bounds of activations", layers: 24,
        experts: Some(Experts { count: 32, active: 4, shared: 0, ff: 2880, dense_layers: 0 }), ..GPT_OSS
    },
    Model {
        name: "gpt-oss-120b", source: "huggingface.co/openai/gpt-oss-120b config.json, without biases and bounds of activations", layers: 36,
        experts: Some(Experts { count: 128, active: 4, shared: 0, ff: 2880, dense_layers: 0 }), ..GPT_OSS
    },
    Model {
        name: "deepseek-v3", source: "huggingface.co/deepseek-ai/DeepSeek-V3 config.json", layers: 61, d: 7168, ff: 18_432, heads: 128,
        kv_heads: 128, vocab: 129_280, qk_norm: false, rope_base: Some(1e4), context: 163_840,
        experts: Some(Experts { count: 256, active: 8, shared: 1, ff: 2048, dense_layers: 3 }),
        latent: Some(Latent { q_rank: 1536, kv_rank: 512, nope: 128, rope: 64, value: 128 }), ..QWEN3
    },
];

/// The names of [`MODELS`].
pub(super) const NAMES: &[&str] = &[
    "qwen3-0.6b",
    "qwen3-8b",
    "qwen3-32b",
    "qwen3-235b-a22b",
    "llama2-7b",
    "llama2-70b",
    "llama3-8b",
    "qwen3-30b-a3b",
    "llama3.1-8b",
    "llama3.1-70b",
    "llama3.1-405b",
    "mistral-7b",
    "gemma-2b",
    "gemma-7b",
    "gemma2-9b",
    "gemma2-27b",
    "gemma3-4b",
    "gemma3-12b",
    "gemma3-27b",
    "gpt3-175b",
    "mixtral-8x7b",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "deepseek-v3",
];

/// Useful floating-point operations of one step, a multiply-add counted as two. Those of training, with backward as twice the forward pass
/// and nothing for what is computed again; serving has a third of them for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsefulFlops {
    /// `6 N` a token, where `N` are the weights that multiply a token: all matrices, with the logits' and without the embedding's lookup;
    /// of experts those that a token visits.
    pub weights: u128,
    /// `12 layers heads dim seq` a token: scores and weighted values of all pairs of positions, as PaLM (arXiv:2204.02311, appendix B)
    /// and most reports count them, though a causal model needs half. Layers with a window count it in the place of `seq`, as in MaxText.
    pub attention: u128,
    /// Of attention, what masks leave: half of it where all positions are computed at once.
    pub visible: u128,
}

impl UsefulFlops {
    /// Weights and attention, pairs that a mask hides included.
    pub fn total(&self) -> u128 {
        self.weights.saturating_add(self.attention)
    }

    /// What MFU is held against: weights and the part of attention that masks leave.
    pub fn causal(&self) -> u128 {
        self.weights.saturating_add(self.visible)
    }
}

impl Model {
    /// The model called `name`.
    pub fn find(name: &str) -> Option<&'static Model> {
        MODELS.iter().find(|m| m.name == name)
    }

    /// Sizes of a head's key and of its value.
    pub(super) fn head(&self) -> (i64, i64) {
        self.latent.map_or((self.dim, self.dim), |l| (l.nope.saturating_add(l.rope), l.value))
    }

    /// How many layers follow each other before they repeat.
    pub(super) fn period(&self) -> i64 {
        self.window.map_or(1, |w| w.every.max(1))
    }

    /// The window of layer `layer`, if it does not see all positions.
    pub(super) fn window_of(&self, layer: i64) -> Option<i64> {
        self.window.filter(|w| (layer + 1) % w.every.max(1) != 0).map(|w| w.size)
    }

    /// Bases of rotary positions: of layers that see all positions, then of those with a window if it is another.
    pub(super) fn rope_bases(&self) -> Vec<f64> {
        let local = self.window.map(|w| w.rope_base).filter(|b| Some(*b) != self.rope_base);
        self.rope_base.into_iter().flat_map(|base| std::iter::once(base).chain(local)).collect()
    }

    /// Positions that queries of all layers see of `seq`, added up, those that a causal mask hides included.
    fn seen(&self, seq: i64) -> i64 {
        (0..self.layers).map(|l| self.window_of(l).map_or(seq, |w| w.min(seq))).sum()
    }

    /// Channels of a head that rotate with the position.
    pub(super) fn rotated(&self) -> i64 {
        self.latent.map_or(self.dim, |l| l.rope)
    }

    /// Weights of a layer's attention.
    fn attention_weights(&self) -> i64 {
        let Model { d, heads, kv_heads, dim, .. } = *self;
        match self.latent {
            None => 2 * d * dim * (heads + kv_heads),
            Some(l) => {
                let q = l.q_rank * (d + heads * (l.nope + l.rope));
                let kv = d * (l.kv_rank + l.rope) + l.kv_rank * heads * (l.nope + l.value);
                q + kv + heads * l.value * d
            }
        }
    }

    /// Weights of the MLPs of all layers: all there are, or those that one token visits.
    fn mlp_weights(&self, active: bool) -> i64 {
        let matrices = if self.mlp.gated() { 3 } else { 2 };
        let dense = matrices * self.d * self.ff;
        match self.experts {
            None => self.layers * dense,
            Some(e) => {
                let visited = if active { e.active } else { e.count } + e.shared;
                let layer = matrices * self.d * e.ff * visited + self.d * e.count;
                e.dense_layers * dense + (self.layers - e.dense_layers) * layer
            }
        }
    }

    /// Weights of all matrices, embeddings included; norms and biases, less than a thousandth, are not.
    pub fn parameters(&self) -> i64 {
        let tables = self.vocab * self.d * if self.tied { 1 } else { 2 };
        let positions = if self.rope_base.is_none() { self.context * self.d } else { 0 };
        tables + positions + self.layers * self.attention_weights() + self.mlp_weights(false)
    }

    /// What a training step on `batch` sequences of `seq` tokens has to compute.
    pub fn useful_flops(&self, batch: i64, seq: i64) -> UsefulFlops {
        let tokens = i128::from(batch) * i128::from(seq);
        let n = self.layers * self.attention_weights() + self.mlp_weights(true) + self.vocab * self.d;
        let (key, value) = self.head();
        let pairs = 6 * i128::from(self.heads) * i128::from(key + value) * i128::from(self.seen(seq));
        let flops = |v: i128| u128::try_from(v).unwrap_or(0);
        let attention = flops(pairs * tokens);
        UsefulFlops { weights: flops(6 * i128::from(n) * tokens), attention, visible: attention / 2 }
    }

    /// What a step of `phase` on `batch` sequences of `seq` tokens has to compute. To decode with latent attention, heads work on the cached
    /// latent vectors, whose widths count.
    pub fn step_flops(&self, batch: i64, seq: i64, phase: Phase) -> UsefulFlops {
        let (context, decode) = match phase {
            Phase::Train => return self.useful_flops(batch, seq),
            Phase::Prefill { .. } => (seq, false),
            Phase::Decode { context } => (context, true),
        };
        let sequences = i128::from(batch);
        let tokens = sequences * i128::from(phase.tokens(seq));
        let (key, value) = match self.latent {
            Some(l) if decode => (l.kv_rank + l.rope, l.kv_rank),
            _ => self.head(),
        };
        let flops = |v: i128| u128::try_from(v).unwrap_or(0);
        let layers = i128::from(self.layers * self.attention_weights() + self.mlp_weights(true));
        let weights = flops(2 * (layers * tokens + i128::from(self.vocab * self.d) * sequences));
        let pairs = 2 * i128::from(self.heads) * i128::from(key + value) * i128::from(self.seen(context));
        let attention = flops(pairs * tokens);
        UsefulFlops { weights, attention, visible: if decode { attention } else { attention / 2 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: the table itself.
    #[test]
    fn every_model_can_be_chosen() {
        assert_eq!(MODELS.iter().map(|m| m.name).collect::<Vec<_>>(), NAMES);
        assert!(MODELS.iter().all(|m| !m.source.is_empty() && m.heads % m.kv_heads == 0));
    }

    // Oracle: the counts of parameters that the models are published with, in billions.
    #[test]
    fn parameters_are_those_published() {
        let published = [
            0.6, 8.2, 32.8, 235.0, 6.74, 69.0, 8.03, 30.5, 8.0, 70.6, 405.0, 7.24, 2.51, 8.54, 9.24, 27.2, 3.88, 11.8,
            27.0, 175.0, 46.7, 20.9, 116.8, 671.0,
        ];
        for (m, want) in MODELS.iter().zip(published) {
            let found = m.parameters() as f64 / 1e9;
            assert!((found - want).abs() < 0.012 * want, "{}: {found} for {want}", m.name);
        }
    }

    // Oracle: by hand; the pattern of gemma3 and what MaxText counts of it.
    #[test]
    fn layers_with_windows() {
        let m = Model::find("gemma3-12b").unwrap();
        let pattern: Vec<bool> = (0..7).map(|l| m.window_of(l).is_some()).collect();
        assert_eq!(pattern, [true, true, true, true, true, false, true]);
        assert_eq!(m.rope_bases(), [1e6, 1e4]);
        let flops = m.useful_flops(1, 32_768);
        assert_eq!(flops.attention, 12 * 16 * 256 * 32_768 * (40 * 1024 + 8 * 32_768));
        let decode = m.step_flops(3, 0, Phase::Decode { context: 2048 });
        assert_eq!(decode.attention, 3 * 4 * 16 * 256 * (40 * 1024 + 8 * 2048));
        assert_eq!(decode.visible, decode.attention);
    }

    // Oracle: the formula by hand: 6 * (32 * 218,103,808 + 128256 * 4096) + 12 * 32 * 32 * 128 * 4096 for each of 4096 tokens.
    #[test]
    fn flops_of_llama() {
        let flops = Model::find("llama3.1-8b").unwrap().useful_flops(1, 4096);
        assert_eq!(flops.weights, 6 * (32 * 218_103_808 + 128_256 * 4096) * 4096);
        assert_eq!(flops.attention, 12 * 32 * 32 * 128 * 4096 * 4096);
        assert_eq!(flops.total() - flops.causal(), flops.attention / 2);
    }
}
