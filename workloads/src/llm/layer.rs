//! One decoder block, forward and backward.
//!
//! What a block computes on the way is asked of a [`Tape`]: the backward pass takes from it what the forward pass stored, and computes
//! the rest again from the block's input.

use tpusim_backend::hlo::{FuncBuilder, TensorType, ValueId};
use tpusim_isa::num::DType;

use super::attention::{self, Known, Sizes};
use super::experts::Dispatch;
use super::latent;
use super::math;
use super::mesh::{Axis, BATCH, Mesh, POSITIONS};
use super::models::Model;
use super::narrow::{Of, Products};
use super::weights::Named;

/// What a layer keeps for its backward pass, beside its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remat {
    /// Nothing: the backward pass computes the block again.
    Full,
    /// Some results of products; what is elementwise is computed again.
    Keep(Keep),
    /// Results of products and of attention; what is elementwise is computed again.
    Dots,
    /// Whatever the gradients read.
    None,
}

/// Results of products that a layer keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// Queries, keys and values.
    pub qkv: bool,
    /// The result of attention before its last product.
    pub context: bool,
    /// Attention's last product.
    pub out: bool,
    /// The first products of the MLP.
    pub mlp: bool,
}

impl Remat {
    fn keep(self) -> Keep {
        match self {
            Remat::Full => Keep::default(),
            Remat::Keep(k) => k,
            Remat::Dots | Remat::None => Keep { qkv: true, context: true, out: true, mlp: true },
        }
    }
}

/// Everything about a block that does not change with the layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    pub model: &'a Model,
    pub mesh: Mesh,
    pub batch: i64,
    pub seq: i64,
    /// Positions of a block of attention.
    pub tile: i64,
    /// Type of activations.
    pub dtype: DType,
    /// Type of the gradients of weights.
    pub gradient: DType,
    pub remat: Remat,
    pub products: Products,
    /// Positions that a query sees, its own included; all up to it if none.
    pub window: Option<i64>,
    /// Hidden width of the MLP that all tokens visit; none if zero.
    pub ff: i64,
    /// The experts, if it has some.
    pub experts: Option<Dispatch>,
}

/// Values of a block by name.
pub(super) struct Tape<'a> {
    pub weights: &'a Named,
    /// Cosines and sines, if positions are rotary.
    pub tables: Option<(ValueId, ValueId)>,
    pub x: ValueId,
    pub known: Named,
}

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

pub(super) const HEADS: &[&[Axis]] = &[BATCH, POSITIONS, &[Axis::Tensor], &[]];
const HIDDEN: &[&[Axis]] = &[BATCH, POSITIONS, &[Axis::Tensor]];
/// What several products read is gathered once for all of them.
const MODEL: &[&[Axis]] = &[BATCH, POSITIONS, &[]];

impl Block<'_> {
    /// `x`, `(batch, seq, d)` between blocks, cut as it is there: devices that share the tensors of a layer each have a part of the
    /// positions, so that none keeps what the others keep too.
    pub fn spread(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        self.mesh.constrain(f, x, &[BATCH, self.positions(), &[]])
    }

    /// What cuts positions between blocks.
    pub fn positions(&self) -> &'static [Axis] {
        const BOTH: &[Axis] = &[Axis::Context, Axis::Tensor];
        if self.seq % self.mesh.parts(BOTH).max(1) == 0 { BOTH } else { POSITIONS }
    }

    /// Of the model's tables of rotary positions, that of this layer.
    pub fn tables(&self, all: &[(ValueId, ValueId)]) -> Option<(ValueId, ValueId)> {
        if self.window.is_some() { all.last().copied() } else { all.first().copied() }
    }

    /// Names and types of what the forward pass stores of a layer beside its input.
    pub fn kept(&self) -> Vec<(&'static str, TensorType)> {
        let m = self.model;
        let ty = |inner: &[i64]| TensorType::new([&[self.batch, self.seq], inner].concat(), self.dtype);
        let (key, value) = m.head();
        let (heads, kv) = (ty(&[m.heads, key]), ty(&[m.kv_heads, key]));
        let log_sum = TensorType::new(self.sizes().rows(), DType::F32);
        let gated = m.mlp.gated();
        let mlp = |names: &[&'static str]| {
            let dense = (self.ff > 0).then(|| ty(&[self.ff]));
            names.iter().filter_map(|n| Some((*n, dense.clone()?))).collect::<Vec<_>>()
        };
        let rows = |d: &Dispatch, n: i64| TensorType::new(d.rows(n), self.dtype);
        let mut kept = Vec::new();
        let keep = self.remat.keep();
        if let Some(l) = m.latent.filter(|_| keep.qkv) {
            kept.extend([("qa", ty(&[l.q_rank])), ("kva", ty(&[l.kv_rank + l.rope])), ("q", heads.clone())]);
            kept.push(("kv", ty(&[m.heads, l.nope + l.value])));
        } else if keep.qkv {
            kept.extend([("q", heads.clone()), ("k", kv.clone()), ("v", kv.clone())]);
        }
        if keep.context {
            kept.extend([("o", ty(&[m.heads, value])), ("log_sum", log_sum)]);
        }
        if keep.out {
            kept.push((if m.post_norms { "out" } else { "middle" }, ty(&[m.d])));
        }
        if keep.mlp {
            kept.extend(mlp(&["u"]));
            if gated {
                kept.extend(mlp(&["g"]));
            }
            if m.post_norms {
                kept.push(("mlp", ty(&[m.d])));
            }
            if let Some(d) = &self.experts {
                kept.extend(d.routed());
                kept.extend(["eg", "eu"].map(|n| (n, rows(d, d.experts.ff))));
            }
        }
        if self.remat == Remat::None {
            kept.extend([("h", ty(&[m.d])), ("h2", ty(&[m.d]))]);
            kept.extend(mlp(&["a"]));
            if let Some(d) = &self.experts {
                kept.extend([("rows", rows(d, m.d)), ("ea", rows(d, d.experts.ff))]);
            }
            if let Some(l) = m.latent {
                kept.extend([("qn", ty(&[l.q_rank])), ("kvn", ty(&[l.kv_rank])), ("qr", heads), ("kr", kv)]);
            } else if m.qk_norm || m.rope_base.is_some() {
                kept.extend([("qr", heads), ("kr", kv)]);
            }
        }
        kept
    }

    fn sizes(&self) -> Sizes {
        let Model { heads, kv_heads, .. } = *self.model;
        let (dim, value) = self.model.head();
        let (scale, cap, group) = (self.scale(), self.model.score_cap, heads / kv_heads);
        let Block { batch, seq, window, tile: block, mesh, .. } = *self;
        Sizes { batch, seq, kv_heads, group, dim, value, scale, cap, window, block, mesh }
    }

    /// What scores are multiplied by.
    pub(super) fn scale(&self) -> f64 {
        (self.model.score_dim.unwrap_or(self.model.head().0) as f64).sqrt().recip()
    }

    /// A norm with the weights called `name`.
    pub fn norm(&self, f: F<'_, '_>, w: &Named, name: &str, x: ValueId) -> ValueId {
        let (weight, bias) = (w.get(f, name), w.find(&format!("{name}_bias")));
        math::norm(f, self.model.norm, x, weight, bias, self.model.epsilon)
    }

    pub(super) fn weight(&self, f: F<'_, '_>, t: &Tape<'_>, name: &str) -> ValueId {
        let w = t.weights.get(f, name);
        f.convert(w, self.dtype)
    }

    /// The last dimensions of `x` contracted with the first of a weight, and a bias if the model has one of that name.
    pub(super) fn product(&self, f: F<'_, '_>, t: &Tape<'_>, x: ValueId, name: &str, bias: &str) -> ValueId {
        let w = self.weight(f, t, name);
        let inner: Vec<i64> = (2..f.dims(x).len() as i64).collect();
        let first: Vec<i64> = (0..inner.len() as i64).collect();
        let y = self.contract(f, (x, Of::Value), (w, Of::Value), (&inner, &first), self.dtype);
        let Some(b) = t.weights.find(bias) else { return y };
        let b = f.convert(b, self.dtype);
        let dims = f.dims(y);
        let at: Vec<i64> = (2..dims.len() as i64).collect();
        let b = f.broadcast_along(b, &at, &dims);
        f.add(y, b)
    }

    /// The value called `name`: from the tape, else computed from others and kept there.
    pub(super) fn value(&self, f: F<'_, '_>, t: &mut Tape<'_>, name: &'static str) -> ValueId {
        if let Some(v) = t.known.find(name) {
            return v;
        }
        let m = self.model;
        if let (Some(l), true) = (&m.latent, latent::VALUES.contains(&name)) {
            return self.latent_value(f, t, l, name);
        }
        let v = match name {
            "h" => {
                let h = self.norm(f, t.weights, "attention_norm", t.x);
                self.mesh.constrain(f, h, MODEL)
            }
            "q" | "k" | "v" => {
                let h = self.value(f, t, "h");
                f.name(format!("layer/attention/{name}"));
                match name {
                    "q" => self.product(f, t, h, "wq", "bq"),
                    "k" => self.product(f, t, h, "wk", "bk"),
                    _ => self.product(f, t, h, "wv", "bv"),
                }
            }
            "qr" | "kr" => {
                let (from, scale) = if name == "qr" { ("q", "q_norm") } else { ("k", "k_norm") };
                let mut x = self.value(f, t, from);
                f.name("layer/attention/rope");
                if m.qk_norm {
                    x = self.norm(f, t.weights, scale, x);
                }
                if let Some(tables) = t.tables {
                    x = math::rope(f, x, tables, false);
                }
                if name == "qr" { self.mesh.constrain(f, x, HEADS) } else { x }
            }
            "o" | "log_sum" => {
                let (q, k, v) = (self.value(f, t, "qr"), self.value(f, t, "kr"), self.value(f, t, "v"));
                f.name("layer/attention/core");
                let (mut o, mut log_sum) = attention::forward(f, &self.sizes(), q, k, v);
                if m.sinks {
                    (o, log_sum) = self.with_sinks(f, t, &self.sizes(), (o, log_sum));
                }
                t.known.set("o", o);
                t.known.set("log_sum", log_sum);
                return if name == "o" { o } else { log_sum };
            }
            "out" => {
                let o = self.value(f, t, "o");
                f.name("layer/attention/out");
                self.product(f, t, o, "wo", "bo")
            }
            "middle" => {
                let mut y = self.value(f, t, "out");
                if m.post_norms {
                    f.name("layer/post_attention_norm");
                    y = self.norm(f, t.weights, "post_attention_norm", y);
                }
                let y = f.add(t.x, y);
                self.spread(f, y)
            }
            "mlp" => {
                let a = self.value(f, t, "a");
                f.name("layer/mlp/down");
                self.product(f, t, a, "down", "down_bias")
            }
            "h2" => {
                let x = self.value(f, t, "middle");
                f.name("layer/mlp_norm");
                let h = self.norm(f, t.weights, "mlp_norm", x);
                self.mesh.constrain(f, h, MODEL)
            }
            "g" | "u" => {
                let h = self.value(f, t, "h2");
                f.name("layer/mlp/up");
                let (weight, bias) = if name == "g" { ("gate", "") } else { ("up", "up_bias") };
                self.product(f, t, h, weight, bias)
            }
            "a" => {
                let u = self.value(f, t, "u");
                let gate = m.mlp.gated().then(|| self.value(f, t, "g"));
                let a = math::activation(f, m.mlp, gate, u);
                self.mesh.constrain(f, a, HIDDEN)
            }
            _ => {
                return match &self.experts {
                    Some(d) => self.expert_value(f, t, d, name),
                    None => t.x,
                };
            }
        };
        t.known.set(name, v);
        v
    }

    /// The block's output, and on the tape what led to it.
    pub fn forward(&self, f: F<'_, '_>, t: &mut Tape<'_>) -> ValueId {
        f.name("layer/attention_norm");
        let mut y = self.value(f, t, "middle");
        if self.ff > 0 {
            let mut more = self.value(f, t, "mlp");
            if self.model.post_norms {
                f.name("layer/post_mlp_norm");
                more = self.norm(f, t.weights, "post_mlp_norm", more);
            }
            y = f.add(y, more);
        }
        if let Some(d) = &self.experts {
            let more = self.experts_forward(f, t, d);
            y = f.add(y, more);
        }
        let y = self.spread(f, y);
        // What was not needed on the way, such as the logarithms of a stored tape.
        for (name, _) in self.kept() {
            self.value(f, t, name);
        }
        y
    }

    /// Gradient of a product: of its input, `w` having `inner` input dimensions; of the weight and its bias into `grads`.
    pub(super) fn product_gradient(
        &self,
        f: F<'_, '_>,
        t: &Tape<'_>,
        grads: &mut Named,
        (x, dy): (ValueId, ValueId),
        (name, bias): (&'static str, &'static str),
    ) -> ValueId {
        let over: &[i64] = &[0, 1];
        // Devices sum their parts in the type of activations, as the gradient of a weight that was converted.
        let dw = self.contract(f, (x, Of::Value), (dy, Of::Gradient), (over, over), self.dtype);
        let dw = f.convert(dw, self.gradient);
        grads.set(name, dw);
        if t.weights.find(bias).is_some() {
            let db = math::sum_wide(f, dy, over);
            let db = f.convert(db, self.gradient);
            grads.set(bias, db);
        }
        let w = self.weight(f, t, name);
        let (free, outer) = (f.dims(x).len() as i64 - 2, f.dims(dy).len() as i64 - 2);
        let inner: Vec<i64> = (2..2 + outer).collect();
        let last: Vec<i64> = (free..free + outer).collect();
        self.contract(f, (dy, Of::Gradient), (w, Of::Value), (&inner, &last), self.dtype)
    }

    /// Gradient of the norm called `name` at `x`.
    pub fn norm_gradient(
        &self,
        f: F<'_, '_>,
        w: &Named,
        grads: &mut Named,
        (name, bias): (&'static str, &'static str),
        (x, dy): (ValueId, ValueId),
    ) -> ValueId {
        let weight = w.get(f, name);
        let (dx, dw, db) = math::norm_gradient(f, self.model.norm, x, weight, dy, self.model.epsilon);
        let dw = f.convert(dw, self.gradient);
        grads.set(name, dw);
        if w.find(bias).is_some() {
            let db = f.convert(db, self.gradient);
            grads.set(bias, db);
        }
        dx
    }

    /// The gradient of the block's input from that of its output, and the gradients of its weights.
    pub fn backward(&self, f: F<'_, '_>, t: &mut Tape<'_>, dy: ValueId) -> (ValueId, Named) {
        let mut grads = Named::default();
        f.name("layer/attention_norm");
        let (h2, middle) = (self.value(f, t, "h2"), self.value(f, t, "middle"));
        let dense = (self.ff > 0).then(|| {
            let dy = self.post_gradient(f, t, &mut grads, ("mlp", "post_mlp_norm"), dy);
            self.mlp_gradient(f, t, &mut grads, h2, dy)
        });
        let routed = self.experts.as_ref().map(|d| self.experts_backward(f, t, &mut grads, d, dy));
        let dh = match (dense, routed) {
            (Some(a), Some(b)) => f.add(a, b),
            (a, b) => a.or(b).unwrap_or(dy),
        };
        f.name("layer/mlp_norm/gradient");
        let dx = self.norm_gradient(f, t.weights, &mut grads, ("mlp_norm", "mlp_norm_bias"), (middle, dh));
        let dm = f.add(dy, dx);
        let dm = self.spread(f, dm);
        let dh = self.attention_gradient(f, t, &mut grads, dm);
        f.name("layer/attention_norm/gradient");
        let names = ("attention_norm", "attention_norm_bias");
        let dx = self.norm_gradient(f, t.weights, &mut grads, names, (t.x, dh));
        let dx = f.add(dm, dx);
        (self.spread(f, dx), grads)
    }

    /// The gradient of what is normalised before it is added, if it is, from that of the sum.
    fn post_gradient(
        &self,
        f: F<'_, '_>,
        t: &mut Tape<'_>,
        grads: &mut Named,
        (from, norm): (&'static str, &'static str),
        dy: ValueId,
    ) -> ValueId {
        if !self.model.post_norms {
            return dy;
        }
        let x = self.value(f, t, from);
        f.name(format!("layer/{norm}/gradient"));
        self.norm_gradient(f, t.weights, grads, (norm, ""), (x, dy))
    }

    /// The gradient of the MLP's input `h2` from that of its output.
    fn mlp_gradient(&self, f: F<'_, '_>, t: &mut Tape<'_>, grads: &mut Named, h2: ValueId, dy: ValueId) -> ValueId {
        let (a, u) = (self.value(f, t, "a"), self.value(f, t, "u"));
        f.name("layer/mlp/down/gradient");
        let da = self.product_gradient(f, t, grads, (a, dy), ("down", "down_bias"));
        let da = self.mesh.constrain(f, da, HIDDEN);
        f.name("layer/mlp/up/gradient");
        let gate = self.model.mlp.gated().then(|| self.value(f, t, "g"));
        let (dg, du) = math::activation_gradient(f, self.model.mlp, gate, u, da);
        let mut dh = self.product_gradient(f, t, grads, (h2, du), ("up", "up_bias"));
        if let Some(dg) = dg {
            let more = self.product_gradient(f, t, grads, (h2, dg), ("gate", ""));
            dh = f.add(dh, more);
        }
        dh
    }

    /// From the gradient after attention to that of its normalised input.
    fn attention_gradient(&self, f: F<'_, '_>, t: &mut Tape<'_>, grads: &mut Named, dm: ValueId) -> ValueId {
        let h = self.value(f, t, "h");
        let known = Known {
            q: self.value(f, t, "qr"),
            k: self.value(f, t, "kr"),
            v: self.value(f, t, "v"),
            o: self.value(f, t, "o"),
            log_sum: self.value(f, t, "log_sum"),
        };
        let dm = self.post_gradient(f, t, grads, ("out", "post_attention_norm"), dm);
        f.name("layer/attention/out/gradient");
        let go = self.product_gradient(f, t, grads, (known.o, dm), ("wo", "bo"));
        if self.model.sinks {
            self.sink_gradient(f, t, grads, &self.sizes(), [known.o, known.log_sum, go]);
        }
        f.name("layer/attention/core/gradient");
        let [dq, dk, dv] = attention::backward(f, &self.sizes(), known, go);
        f.name("layer/attention/rope/gradient");
        let dq = self.mesh.constrain(f, dq, HEADS);
        if let Some(l) = &self.model.latent {
            return self.latent_gradient(f, t, grads, l, [dq, dk, dv]);
        }
        let dq = self.position_gradient(f, t, grads, dq, ("q", "q_norm"));
        let dk = self.position_gradient(f, t, grads, dk, ("k", "k_norm"));
        f.name("layer/attention/qkv/gradient");
        let one = self.product_gradient(f, t, grads, (h, dq), ("wq", "bq"));
        let two = self.product_gradient(f, t, grads, (h, dk), ("wk", "bk"));
        let three = self.product_gradient(f, t, grads, (h, dv), ("wv", "bv"));
        let sum = f.add(one, two);
        f.add(sum, three)
    }

    /// Gradient of the rotation and the norm of queries or keys.
    fn position_gradient(
        &self,
        f: F<'_, '_>,
        t: &mut Tape<'_>,
        grads: &mut Named,
        mut dy: ValueId,
        (from, scale): (&'static str, &'static str),
    ) -> ValueId {
        if let Some(tables) = t.tables {
            dy = math::rope(f, dy, tables, true);
        }
        if self.model.qk_norm {
            let x = self.value(f, t, from);
            dy = self.norm_gradient(f, t.weights, grads, (scale, ""), (x, dy));
        }
        dy
    }
}
