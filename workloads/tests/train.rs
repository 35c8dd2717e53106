//! Training steps: the loss, every weight's gradient and the optimizer's update.

use tpusim_backend::eval::{DotPrecision, EvalOptions, Tensor, eval_module, eval_module_with};
use tpusim_backend::hlo::{Attr, Module, TensorType, Verified};
use tpusim_driver::{Driver, Mode, SimDriver};
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::num::DType;
use tpusim_workloads::llm::{
    BETA1, BETA2, EPSILON, Experts, Keep, Latent, MODELS, Mesh, Mlp, Model, Norm, Optimizer, Options, Products, RATE,
    Remat, Routing, train_step,
};

/// Two layers that are small enough to differentiate by hand.
fn tiny(name: &str) -> Model {
    let m = *Model::find(name).unwrap();
    let kv_heads = if m.kv_heads == m.heads { 4 } else { 2 };
    let experts = m.experts.map(|e| Experts {
        count: 4,
        active: 2,
        shared: e.shared,
        ff: 12,
        dense_layers: e.dense_layers.min(1),
    });
    let latent = m.latent.map(|_| Latent { q_rank: 12, kv_rank: 10, nope: 6, rope: 4, value: 8 });
    Model { layers: 2, d: 32, ff: 24, heads: 4, kv_heads, dim: 8, vocab: 64, context: 20, experts, latent, ..m }
}

const OPTIONS: Options = Options {
    batch: 2,
    seq: 16,
    mesh: Mesh::ONE,
    remat: Remat::Full,
    optimizer: Optimizer::Adam,
    dtype: DType::F32,
    weights: DType::F32,
    state: DType::F32,
    first_moment: None,
    microbatches: 1,
    repeats: 1,
    attention_block: Some(4),
    products: Products::Plain,
    routing: Routing::Capacity(1.25),
};

struct Param {
    name: String,
    ty: TensorType,
}

fn params(module: &Verified<Module>) -> Vec<Param> {
    let main = module.func("main").unwrap();
    let one = |p: &tpusim_backend::hlo::Param| Param {
        name: module.locs.name(p.loc).unwrap().to_owned(),
        ty: main.ty(p.value).tensor().unwrap().clone(),
    };
    main.params.iter().map(one).collect()
}

/// Values without a pattern, around one for norms, small for the rest.
fn values(name: &str, n: usize, index: usize) -> Vec<f64> {
    let scale = name.ends_with("_norm");
    let v = |i: usize| ((i * 7919 + index * 104_729) % 1009) as f64 / 1009.0 - 0.5;
    (0..n).map(|i| if scale { 1.0 + 0.4 * v(i) } else { 0.5 * v(i) }).map(|v| f64::from(v as f32)).collect()
}

fn tokens(n: usize, seed: usize) -> Vec<i64> {
    (0..n).map(|i| ((i * 29 + i * i * 5 + seed) % 64) as i64).collect()
}

/// Inputs of the first step: weights, no moments, tokens and targets.
fn inputs(module: &Verified<Module>) -> Vec<Tensor> {
    let one = |(i, p): (usize, &Param)| {
        let n = p.ty.elements().unwrap() as usize;
        match p.name.as_str() {
            "step" => Tensor::from_i64(&[], DType::I32, &[0]),
            "tokens" => Tensor::from_i64(&p.ty.dims, DType::I32, &tokens(n, 3)),
            "targets" => Tensor::from_i64(&p.ty.dims, DType::I32, &tokens(n, 17)),
            name if name.starts_with("m/") || name.starts_with("v/") => {
                Tensor::from_f64(&p.ty.dims, p.ty.dtype, &vec![0.0; n])
            }
            name => Tensor::from_f64(&p.ty.dims, p.ty.dtype, &values(name, n, i)),
        }
        .unwrap()
    };
    params(module).iter().enumerate().map(one).collect()
}

/// The model in plain loops of f64.
struct Plain<'a> {
    m: &'a Model,
    routing: Routing,
    names: Vec<String>,
    weights: Vec<Vec<f64>>,
}

fn matmul(x: &[f64], w: &[f64], k: usize) -> Vec<f64> {
    let n = w.len() / k;
    let mut y = vec![0.0; x.len() / k * n];
    for (x, y) in x.chunks(k).zip(y.chunks_mut(n)) {
        for (x, w) in x.iter().zip(w.chunks(n)) {
            y.iter_mut().zip(w).for_each(|(y, w)| *y += x * w);
        }
    }
    y
}

impl Plain<'_> {
    fn find(&self, name: &str) -> Option<&[f64]> {
        self.names.iter().position(|n| n == name).map(|i| &self.weights[i][..])
    }

    fn of(&self, layer: usize, name: &str) -> Option<&[f64]> {
        let first = self.m.experts.map_or(0, |e| e.dense_layers as usize);
        let (stack, at, count) = match layer.checked_sub(first) {
            Some(at) => ("layers", at, self.m.layers as usize - first),
            None => ("dense", layer, first),
        };
        let all = self.find(&format!("{stack}/{name}"))?;
        let n = all.len() / count;
        Some(&all[at * n..][..n])
    }

    fn norm(&self, x: &[f64], w: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
        let n = w.len();
        let row = |r: &[f64]| {
            let mean = if self.m.norm == Norm::Layer { r.iter().sum::<f64>() / n as f64 } else { 0.0 };
            let square = r.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
            let scale = (square + self.m.epsilon).sqrt();
            (0..n).map(|i| (r[i] - mean) / scale * w[i] + bias.map_or(0.0, |b| b[i])).collect::<Vec<_>>()
        };
        x.chunks(n).flat_map(row).collect()
    }

    fn product(&self, x: &[f64], layer: usize, name: &str, bias: &str, k: usize) -> Vec<f64> {
        let mut y = matmul(x, self.of(layer, name).unwrap(), k);
        if let Some(b) = self.of(layer, bias) {
            y.chunks_mut(b.len()).for_each(|r| r.iter_mut().zip(b).for_each(|(y, b)| *y += b));
        }
        y
    }

    /// Queries or keys `(batch, seq, heads, dim)`, normalised and rotated.
    fn positioned(&self, x: Vec<f64>, layer: usize, norm: &str, heads: usize, seq: usize) -> Vec<f64> {
        let x = match self.of(layer, norm) {
            Some(w) => self.norm(&x, w, None),
            None => x,
        };
        self.rotated(x, heads, self.m.dim as usize, seq)
    }

    fn rotated(&self, x: Vec<f64>, heads: usize, dim: usize, seq: usize) -> Vec<f64> {
        let Some(base) = self.m.rope_base else { return x };
        let half = dim / 2;
        let rotated = |i: usize| {
            let (position, c) = (i / (heads * dim) % seq, i % dim);
            let angle = position as f64 * base.powf(-2.0 * (c % half) as f64 / dim as f64);
            let partner = if c < half { -x[i + half] } else { x[i - half] };
            x[i] * angle.cos() + partner * angle.sin()
        };
        (0..x.len()).map(rotated).collect()
    }

    /// Queries, keys and values of latent attention.
    fn latent(&self, h: &[f64], layer: usize, seq: usize) -> [Vec<f64>; 3] {
        let l = self.m.latent.unwrap();
        let [kv_rank, nope, rope] = [l.kv_rank, l.nope, l.rope].map(|n| n as usize);
        let (heads, d) = (self.m.heads as usize, self.m.d as usize);
        let w = |name: &str| self.of(layer, name).unwrap();
        // Each row's channels before and from `at` on.
        let split = |x: &[f64], n: usize, at: usize| -> [Vec<f64>; 2] {
            [x.chunks(n).flat_map(|r| r[..at].to_vec()).collect(), x.chunks(n).flat_map(|r| r[at..].to_vec()).collect()]
        };
        let join = |a: &[f64], n: usize, b: &[f64], m: usize| -> Vec<f64> {
            a.chunks(n).zip(b.chunks(m)).flat_map(|(a, b)| [a, b].concat()).collect()
        };
        let qn = self.norm(&matmul(h, w("wq_a"), d), w("q_a_norm"), None);
        let [plain, turned] = split(&matmul(&qn, w("wq_b"), l.q_rank as usize), nope + rope, nope);
        let q = join(&plain, nope, &self.rotated(turned, heads, rope, seq), rope);
        let [low, shared] = split(&matmul(h, w("wkv_a"), d), kv_rank + rope, kv_rank);
        let kv = matmul(&self.norm(&low, w("kv_norm"), None), w("wkv_b"), kv_rank);
        let [plain, v] = split(&kv, nope + l.value as usize, nope);
        let shared = self.rotated(shared, 1, rope, seq);
        let shared: Vec<f64> = shared.chunks(rope).flat_map(|r| r.repeat(heads)).collect();
        [q, join(&plain, nope, &shared, rope), v]
    }

    fn attention(&self, q: &[f64], k: &[f64], v: &[f64], seq: usize) -> Vec<f64> {
        let (heads, kv) = (self.m.heads as usize, self.m.kv_heads as usize);
        let (dim, value) = self.m.latent.map_or((self.m.dim, self.m.dim), |l| (l.nope + l.rope, l.value));
        let (dim, value) = (dim as usize, value as usize);
        let mut out = vec![0.0; q.len() / dim * value];
        for at in 0..q.len() / dim {
            let (head, t, batch) = (at % heads, at / heads % seq, at / heads / seq);
            let row = |x: &[f64], c: usize| {
                let dim = x.len() * heads / kv / (q.len() / dim);
                let from = ((batch * seq + c) * kv + head / (heads / kv)) * dim;
                x[from..from + dim].to_vec()
            };
            let query = &q[at * dim..][..dim];
            let score = |c: usize| row(k, c).iter().zip(query).map(|(a, b)| a * b).sum::<f64>() / (dim as f64).sqrt();
            let weights: Vec<f64> = (0..=t).map(|c| score(c).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (c, w) in weights.iter().enumerate() {
                out[at * value..][..value].iter_mut().zip(row(v, c)).for_each(|(o, v)| *o += w / sum * v);
            }
        }
        out
    }

    /// What the experts of a layer add, token by token in order; one that is full takes no more.
    fn experts(&self, h: &[f64], layer: usize) -> Vec<f64> {
        let (e, d) = (self.m.experts.unwrap(), self.m.d as usize);
        let (count, active, ff) = (e.count as usize, e.active as usize, e.ff as usize);
        let logits = matmul(h, self.of(layer, "router").unwrap(), d);
        let fair = h.len() / d * active / count;
        let most = match self.routing {
            Routing::Capacity(factor) => (fair as f64 * factor).ceil() as usize,
            Routing::Balanced => fair,
        };
        let mut taken = vec![0; count];
        let mut y = vec![0.0; h.len()];
        for (t, logits) in logits.chunks(count).enumerate() {
            let mut order: Vec<usize> = (0..count).collect();
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
            let ids: Vec<usize> = match self.routing {
                Routing::Capacity(_) => order[..active].to_vec(),
                Routing::Balanced => (0..active).map(|j| (t * active + j) % count).collect(),
            };
            let sum: f64 = ids.iter().map(|i| logits[*i].exp()).sum();
            for id in ids {
                taken[id] += 1;
                if taken[id] > most {
                    continue;
                }
                let w = |name: &str| &self.of(layer, name).unwrap()[id * d * ff..][..d * ff];
                let row = &h[t * d..][..d];
                let (g, u) = (matmul(row, w("experts_gate"), d), matmul(row, w("experts_up"), d));
                let a: Vec<f64> = g.iter().zip(&u).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
                let out = matmul(&a, w("experts_down"), ff);
                y[t * d..][..d].iter_mut().zip(&out).for_each(|(y, o)| *y += logits[id].exp() / sum * o);
            }
        }
        y
    }

    fn layer(&self, x: &[f64], layer: usize, seq: usize) -> Vec<f64> {
        let m = self.m;
        let (d, heads, kv) = (m.d as usize, m.heads as usize, m.kv_heads as usize);
        let add = |a: Vec<f64>, b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
        let norm = |x: &[f64], name: &str| {
            self.norm(x, self.of(layer, name).unwrap(), self.of(layer, &format!("{name}_bias")))
        };
        let h = norm(x, "attention_norm");
        let [q, k, v] = match m.latent {
            Some(_) => self.latent(&h, layer, seq),
            None => [
                self.positioned(self.product(&h, layer, "wq", "bq", d), layer, "q_norm", heads, seq),
                self.positioned(self.product(&h, layer, "wk", "bk", d), layer, "k_norm", kv, seq),
                self.product(&h, layer, "wv", "bv", d),
            ],
        };
        let o = self.attention(&q, &k, &v, seq);
        let inner = o.len() * d / x.len();
        let x = add(self.product(&o, layer, "wo", "bo", inner), x);
        let h = norm(&x, "mlp_norm");
        let mut x = x;
        if self.of(layer, "router").is_some() {
            x = add(self.experts(&h, layer), &x);
        }
        if self.of(layer, "up").is_none() {
            return x;
        }
        let u = self.product(&h, layer, "up", "up_bias", d);
        let gelu = |u: f64| 0.5 * u * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (u + 0.044715 * u.powi(3))).tanh());
        let gate = |by: &dyn Fn(f64) -> f64| {
            let g = self.product(&h, layer, "gate", "", d);
            g.iter().zip(&u).map(|(g, u)| by(*g) * u).collect()
        };
        let a: Vec<f64> = match m.mlp {
            Mlp::Silu => gate(&|g| g / (1.0 + (-g).exp())),
            Mlp::GatedGelu => gate(&gelu),
            Mlp::Gelu => u.iter().map(|u| gelu(*u)).collect(),
            Mlp::Relu => u.iter().map(|u| u.max(0.0)).collect(),
        };
        let width = u.len() * d / h.len();
        add(self.product(&a, layer, "down", "down_bias", width), &x)
    }

    fn loss(&self, tokens: &[i64], targets: &[i64], seq: usize) -> f64 {
        let (d, vocab) = (self.m.d as usize, self.m.vocab as usize);
        let table = self.find("embedding").unwrap();
        let mut x: Vec<f64> = tokens.iter().flat_map(|&t| table[t as usize * d..][..d].to_vec()).collect();
        if let Some(p) = self.find("positions") {
            (0..x.len()).for_each(|i| x[i] += p[i % (seq * d)]);
        }
        for layer in 0..self.m.layers as usize {
            x = self.layer(&x, layer, seq);
        }
        let h = self.norm(&x, self.find("final_norm").unwrap(), self.find("final_norm_bias"));
        let head: Vec<f64> = match self.find("head") {
            Some(w) => w.to_vec(),
            None => (0..d * vocab).map(|i| table[i % vocab * d + i / vocab]).collect(),
        };
        let logits = matmul(&h, &head, d);
        let each = logits
            .chunks(vocab)
            .zip(targets)
            .map(|(l, &t)| l.iter().map(|v| v.exp()).sum::<f64>().ln() - l[t as usize]);
        each.sum::<f64>() / tokens.len() as f64
    }
}

fn plain<'a>(m: &'a Model, routing: Routing, module: &Verified<Module>, inputs: &[Tensor]) -> Plain<'a> {
    let params = params(module);
    let n = params.iter().position(|p| p.name.starts_with("m/") || p.name == "step").unwrap();
    let names = params[..n].iter().map(|p| p.name.clone()).collect();
    Plain { m, routing, names, weights: inputs[..n].iter().map(Tensor::to_f64).collect() }
}

fn near(found: f64, want: f64, tolerance: f64, what: &str) {
    assert!((found - want).abs() <= tolerance, "{what}: {found} for {want}");
}

// Oracle: the model in plain loops of f64; for gradients its central differences, which are good to 1e-8 here. Adam's first moment is a
// tenth of the gradient after the first step. f32 sums of 32 positions and a few hundred products allow 1e-5 of the largest gradient.
fn check(m: &Model, options: &Options) {
    let module = train_step(m, options).unwrap();
    let inputs = inputs(&module);
    let outputs = eval_module(&module, &inputs).unwrap();
    let mut plain = plain(m, options.routing, &module, &inputs);
    let count = plain.names.len();
    let (ids, targets) = (tokens(32, 3), tokens(32, 17));
    let loss = plain.loss(&ids, &targets, 16);
    near(outputs.last().unwrap().to_f64()[0], loss, 2e-6 * loss, "loss");
    assert!(loss > 2.0 && loss < 8.0, "{loss}");
    // Where terms cancel, the roundings of the terms stay.
    let moments = outputs[count..2 * count].iter().flat_map(Tensor::to_f64);
    let scale = moments.fold(0.0f64, |a, m| a.max(m.abs())) / (1.0 - BETA1);
    for w in 0..count {
        let gradient: Vec<f64> = outputs[count + w].to_f64().iter().map(|v| v / (1.0 - BETA1)).collect();
        let largest = gradient.iter().fold(0.0f64, |a, g| a.max(g.abs()));
        // Softmax takes no notice of what all keys share, unless positions rotate it.
        let none = plain.names[w] == "layers/bk" && m.rope_base.is_none();
        assert_eq!(largest > 1e-5, !none, "gradient of {}", plain.names[w]);
        let n = gradient.len();
        let top = (0..n).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs())).unwrap();
        for at in [0, n / 3, n - 1, top] {
            let mut moved = |by: f64| {
                plain.weights[w][at] += by;
                let loss = plain.loss(&ids, &targets, 16);
                plain.weights[w][at] -= by;
                loss
            };
            let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            near(gradient[at], slope, 1e-5 * largest + 1e-7 * scale, &format!("gradient {at} of {}", plain.names[w]));
        }
    }
    for w in 0..count {
        let (before, after) = (inputs[w].to_f64(), outputs[w].to_f64());
        let (m, v) = (outputs[count + w].to_f64(), outputs[2 * count + w].to_f64());
        for i in 0..before.len() {
            let g = m[i] / (1.0 - BETA1);
            near(v[i], (1.0 - BETA2) * g * g, 1e-6 * v[i].abs() + 1e-30, "second moment");
            let want = before[i] - RATE * g / (g.abs() + EPSILON);
            near(after[i], want, 1.5e-7, &format!("{} after the step", plain.names[w]));
        }
    }
    assert_eq!(outputs[3 * count].to_f64(), [1.0]);
}

#[test]
fn qwen3_step_is_the_gradient() {
    check(&tiny("qwen3-0.6b"), &OPTIONS);
}

#[test]
fn llama_step_is_the_gradient() {
    check(&tiny("llama3.1-8b"), &Options { remat: Remat::Dots, ..OPTIONS });
}

#[test]
fn step_with_one_operation_for_attention_is_the_gradient() {
    check(&tiny("llama3.1-8b"), &Options { attention_block: Some(0), ..OPTIONS });
    check(&tiny("qwen3-0.6b"), &Options { attention_block: Some(0), remat: Remat::Dots, ..OPTIONS });
}

#[test]
fn gpt3_step_is_the_gradient() {
    check(&tiny("gpt3-175b"), &Options { remat: Remat::None, ..OPTIONS });
}

#[test]
fn gemma_step_is_the_gradient() {
    let keep = Keep { qkv: true, context: true, ..Keep::default() };
    check(&Model { kv_heads: 1, ..tiny("gemma-2b") }, &Options { remat: Remat::Keep(keep), ..OPTIONS });
}

#[test]
fn relu_step_is_the_gradient() {
    check(&Model { mlp: Mlp::Relu, tied: true, ..tiny("llama2-7b") }, &OPTIONS);
}

// Oracle: the whole batch at once; the gradient of a mean is the mean of gradients.
#[test]
fn microbatches_add_up() {
    let m = tiny("qwen3-0.6b");
    let whole = train_step(&m, &OPTIONS).unwrap();
    let parts = train_step(&m, &Options { microbatches: 2, ..OPTIONS }).unwrap();
    let (a, b) = (eval_module(&whole, &inputs(&whole)).unwrap(), eval_module(&parts, &inputs(&parts)).unwrap());
    let moments = a.len() / 3..a.len();
    for (i, (a, b)) in a.iter().zip(&b).enumerate().filter(|(i, _)| moments.contains(i)) {
        let scale = a.to_f64().iter().fold(1e-6f64, |m, v| m.max(v.abs()));
        let far = a.to_f64().iter().zip(b.to_f64()).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
        assert!(far < 1e-5 * scale, "result {i}: {far} of {scale}");
    }
}

#[test]
fn experts_with_room_are_the_gradient() {
    check(&tiny("mixtral-8x7b"), &OPTIONS);
}

#[test]
fn experts_that_drop_are_the_gradient() {
    check(&tiny("qwen3-235b-a22b"), &Options { routing: Routing::Capacity(0.6), remat: Remat::Dots, ..OPTIONS });
}

#[test]
fn balanced_experts_are_the_gradient() {
    let m = tiny("mixtral-8x7b");
    let experts = m.experts.map(|e| Experts { shared: 1, dense_layers: 1, ..e });
    check(&Model { experts, ..m }, &Options { routing: Routing::Balanced, remat: Remat::None, ..OPTIONS });
}

#[test]
fn deepseek_step_is_the_gradient() {
    check(&tiny("deepseek-v3"), &OPTIONS);
}

#[test]
fn deepseek_step_that_keeps_products_is_the_gradient() {
    let m = tiny("deepseek-v3");
    let experts = m.experts.map(|e| Experts { dense_layers: 0, ..e });
    check(&Model { layers: 1, experts, ..m }, &Options { remat: Remat::None, ..OPTIONS });
}

// Oracle: policies change where values come from, not what they are; blocks of attention only the order of sums.
#[test]
fn policies_agree() {
    for name in ["qwen3-0.6b", "gpt3-175b", "deepseek-v3"] {
        let m = tiny(name);
        let run = |options: Options| {
            let module = train_step(&m, &options).unwrap();
            eval_module(&module, &inputs(&module)).unwrap()
        };
        let full = run(OPTIONS);
        let qkv = Remat::Keep(Keep { qkv: true, out: true, ..Keep::default() });
        for remat in [qkv, Remat::Dots, Remat::None] {
            for (a, b) in full.iter().zip(run(Options { remat, ..OPTIONS })) {
                assert_eq!(a.bytes(), b.bytes(), "{name} with {remat:?}");
            }
        }
        for block in [16, 2, 0] {
            let other = run(Options { attention_block: Some(block), ..OPTIONS });
            near(other.last().unwrap().to_f64()[0], full.last().unwrap().to_f64()[0], 1e-5, "loss");
        }
    }
}

// Oracle: the formula; gradients from Adam's first moment.
#[test]
fn sgd_goes_against_the_gradient() {
    let m = tiny("llama3.1-8b");
    let adam = train_step(&m, &OPTIONS).unwrap();
    let sgd = train_step(&m, &Options { optimizer: Optimizer::Sgd, ..OPTIONS }).unwrap();
    let (with, without) = (inputs(&adam), inputs(&sgd));
    let moments = eval_module(&adam, &with).unwrap();
    let after = eval_module(&sgd, &without).unwrap();
    let count = after.len() - 2;
    assert_eq!(without.len(), count + 3);
    for w in 0..count {
        let (g, before) = (moments[count + w].to_f64(), without[w].to_f64());
        for (i, after) in after[w].to_f64().iter().enumerate() {
            near(*after, before[i] - RATE * g[i] / (1.0 - BETA1), 1.5e-7, "weight");
        }
    }
}

// Oracle: Adam's formula by hand at a later step, with moments of its own.
#[test]
fn later_steps_correct_less() {
    let m = Model { layers: 1, ..tiny("qwen3-0.6b") };
    let module = train_step(&m, &OPTIONS).unwrap();
    let mut given = inputs(&module);
    let count = (given.len() - 3) / 3;
    let first = eval_module(&module, &given).unwrap();
    given[count..3 * count].clone_from_slice(&first[count..3 * count]);
    given[3 * count] = Tensor::from_i64(&[], DType::I32, &[6]).unwrap();
    let second = eval_module(&module, &given).unwrap();
    assert_eq!(second[3 * count].to_f64(), [7.0]);
    for w in 0..count {
        let (g, before) = (first[count + w].to_f64(), given[w].to_f64());
        for (i, after) in second[w].to_f64().iter().enumerate() {
            let g = g[i] / (1.0 - BETA1);
            let mean = (1.0 - BETA1 * BETA1) * g / (1.0 - BETA1.powi(7));
            let square = (1.0 - BETA2 * BETA2) * g * g / (1.0 - BETA2.powi(7));
            near(*after, before[i] - RATE * mean / (square.sqrt() + EPSILON), 2e-7, "weight");
        }
    }
}

fn text(attr: Option<&Attr>) -> Option<&str> {
    match attr? {
        Attr::Opaque(s) => Some(s),
        _ => None,
    }
}

// Oracle: how JAX writes these shardings (axes of each dimension; none of size one), and donation that gives each weight its own result.
#[test]
fn shardings_and_donation() {
    let m = *Model::find("llama3.1-8b").unwrap();
    let mesh = Mesh { data: 2, fsdp: 16, tensor: 4, ..Mesh::ONE };
    let module = train_step(&m, &Options { batch: 32, seq: 4096, mesh, ..Options::default() }).unwrap();
    assert_eq!(module.meshes.len(), 1);
    assert_eq!(text(Some(&module.meshes[0].1)), Some("sdy.mesh<[\"data\"=2, \"fsdp\"=16, \"tensor\"=4]>"));
    assert_eq!(module.attrs.int("mhlo.num_partitions"), Some(128));
    let main = module.func("main").unwrap();
    let of = |name: &str| main.params.iter().find(|p| module.locs.name(p.loc) == Some(name)).unwrap();
    let sharding = |name: &str| text(of(name).attrs.get("sdy.sharding")).unwrap().to_owned();
    assert_eq!(sharding("layers/wq"), "sdy.sharding<@mesh, [{}, {\"fsdp\"}, {\"tensor\"}, {}]>");
    assert_eq!(sharding("layers/down"), "sdy.sharding<@mesh, [{}, {\"tensor\"}, {\"fsdp\"}]>");
    assert_eq!(sharding("v/head"), "sdy.sharding<@mesh, [{\"fsdp\"}, {\"tensor\"}]>");
    assert_eq!(sharding("layers/mlp_norm"), "sdy.sharding<@mesh, [{}, {}]>");
    assert_eq!(sharding("tokens"), "sdy.sharding<@mesh, [{\"data\", \"fsdp\"}, {}]>");
    assert_eq!(sharding("step"), "sdy.sharding<@mesh, []>");
    for (i, p) in main.params.iter().enumerate() {
        let donated = p.attrs.int("tf.aliasing_output");
        let own = !["tokens", "targets"].contains(&module.locs.name(p.loc).unwrap());
        assert_eq!(donated, own.then_some(i as i64));
        if own {
            assert_eq!(*main.ty(p.value), main.results[i].ty);
        }
    }
    // One device has no annotations.
    let alone = train_step(&m, &Options::default()).unwrap();
    assert!(alone.meshes.is_empty());
    assert!(alone.func("main").unwrap().params.iter().all(|p| p.attrs.get("sdy.sharding").is_none()));
    let wrong =
        |mesh: Mesh| train_step(&m, &Options { batch: 32, mesh, ..Options::default() }).unwrap_err().to_string();
    assert!(wrong(Mesh { tensor: 3, ..Mesh::ONE }).contains("into 3 parts"));
    assert!(wrong(Mesh { data: 64, ..Mesh::ONE }).contains("of 32 of `tokens`"));
    assert!(wrong(Mesh { data: 0, ..Mesh::ONE }).contains("a size is not from 1"));
}

// Oracle: text that is read again is the same program.
#[test]
fn sharded_steps_print_and_parse() {
    let mesh = Mesh { fsdp: 2, tensor: 2, ..Mesh::ONE };
    for attention_block in [OPTIONS.attention_block, Some(0)] {
        let module = train_step(&tiny("qwen3-0.6b"), &Options { mesh, attention_block, ..OPTIONS }).unwrap();
        let print = |m: &Module| m.to_text(true);
        let again = tpusim_backend::front::parse_program(print(&module).as_bytes(), "train").unwrap();
        assert_eq!(print(&again), print(&module));
    }
}

// Oracle: every model of the table has a program.
#[test]
fn every_model_builds() {
    for m in MODELS {
        let experts = m.experts.map(|e| Experts { dense_layers: 0, ..e });
        train_step(&Model { layers: 1, experts, ..*m }, &Options { seq: 256, ..Options::default() }).unwrap();
        assert!(m.useful_flops(1, 256).total() > 0);
    }
}

// Oracle: the reference evaluator with products rounded as the MXU rounds them, within what `tpusim run --check` allows floats; and cycles,
// which must not depend on data.
#[test]
fn simulated_chip_agrees_with_the_evaluator() {
    let chip = ChipSpec::load("v5e").unwrap();
    let cases = [
        ("qwen3-0.6b", Remat::Full),
        ("llama3.1-8b", Remat::Dots),
        ("gpt3-175b", Remat::None),
        ("deepseek-v3", Remat::Full),
    ];
    for (name, remat) in cases {
        let module = train_step(&tiny(name), &Options { remat, ..OPTIONS }).unwrap();
        let given = inputs(&module);
        let tpu = EvalOptions { dot: DotPrecision::Tpu, ..EvalOptions::default() };
        let want = eval_module_with(&module, &given, &tpu).unwrap();
        let bytes: Vec<Vec<u8>> = given.iter().map(|t| t.bytes().to_vec()).collect();
        let run = |mode: Mode| {
            let driver = SimDriver::new(chip.clone()).with_mode(mode);
            driver.compile(&module).unwrap().execute(&bytes).unwrap()
        };
        let found = run(Mode::Execute);
        for (i, (found, want)) in found.outputs.iter().zip(&want).enumerate() {
            let found = Tensor::new(want.ty().clone(), found.clone()).unwrap().to_f64();
            let want = want.to_f64();
            let largest = want.iter().fold(0.0f64, |a, v| a.max(v.abs()));
            for (a, b) in found.iter().zip(&want) {
                near(*a, *b, 5e-3 * largest, &format!("output {i} of {name}"));
            }
        }
        assert_eq!(found.profile.unwrap().cycles, run(Mode::Time).profile.unwrap().cycles, "{name}");
    }
}
