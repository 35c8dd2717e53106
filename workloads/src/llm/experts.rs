//! A layer of experts: which experts each token visits, the rows that go there and back, and the experts' products.
//!
//! Tokens are routed in groups, a group for each part of the batch, so that all of it but the exchange of rows stays on a device. Within a
//! group the choices of all tokens are sorted by expert; each expert takes the first rows up to its capacity, and the rest is dropped. So
//! that no product and no mask of tokens by experts by capacity is needed, rows move by index: to a slot of an expert from its token, to a
//! token from its slots. Both directions are gathers, in the gradient too, where each is the other's.
//!
//! Rows of experts are `(experts, groups, capacity, channels)`. From cut by groups to cut by experts they go all to all, each of the devices
//! that share tensors with its part of the channels, as in MaxText (`activation_embed_moe`). Where a sequence has one token, as in decoding,
//! most of that room would be empty: devices that share experts then see all of each other's tokens, each takes those that visit its own
//! experts, and what these give is added up over the devices.

use tpusim_backend::hlo::{Attr, DotDims, FuncBuilder, GatherDims, Opcode, ReduceKind, TensorType, ValueId};
use tpusim_isa::num::DType;

use super::imbalance::{Imbalance, Loads};
use super::layer::{Block, Tape};
use super::math;
use super::mesh::{Axis, BATCH, Mesh, POSITIONS};
use super::models::Experts;
use super::narrow::Of;
use super::routing::{ROUTED, Routed};
use super::weights::Named;

/// Which experts tokens visit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Routing {
    /// Those of the largest scores. An expert takes this many times its fair share of rows and drops what is beyond.
    Capacity(f64),
    /// Each the same number, in turn, so that nothing is dropped: what a router at its best comes to, with the work of finding out.
    Balanced,
}

/// How tokens of a layer are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dispatch {
    pub experts: Experts,
    pub routing: Routing,
    /// Groups of tokens that are routed by themselves.
    pub groups: i64,
    /// Tokens of a group.
    pub tokens: i64,
    /// How unequally experts are liked.
    pub imbalance: Option<Imbalance>,
    /// Whether devices that share experts see each other's tokens: a group is theirs together.
    pub together: bool,
}

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// Axes of experts, groups, slots and channels.
type Rows = [&'static [Axis]; 4];

/// What cuts groups of tokens; last what moves to the experts.
const GROUPS: &[Axis] = &[Axis::Data, Axis::Fsdp, Axis::Context, Axis::Expert];
const OTHERS: &[Axis] = &[Axis::Data, Axis::Fsdp, Axis::Context];
const GROUPED: Rows = [&[], GROUPS, &[], &[Axis::Tensor]];
const TOGETHER: Rows = [&[], OTHERS, &[], &[]];
const PLACED: Rows = [&[Axis::Expert], OTHERS, &[], &[Axis::Tensor]];
/// What several products read is gathered once for all of them.
const READ: Rows = [&[Axis::Expert], OTHERS, &[], &[]];
const HIDDEN: &[&[Axis]] = &[&[Axis::Expert], OTHERS, &[], &[Axis::Tensor]];

impl Dispatch {
    /// Choices of a group.
    pub fn choices(&self) -> i64 {
        self.tokens.saturating_mul(self.experts.active)
    }

    /// Rows that an expert takes of a group.
    pub fn admitted(&self) -> i64 {
        let fair = self.choices() as f64 / self.experts.count.max(1) as f64;
        let rows = match self.routing {
            Routing::Capacity(factor) => (fair * factor).ceil(),
            Routing::Balanced => fair.ceil(),
        };
        (rows as i64).clamp(1, self.tokens.max(1))
    }

    /// What experts get if they are liked as `i` says, each with room for so many rows of a group.
    pub fn loads(&self, i: Imbalance, room: Option<i64>) -> Loads {
        i.loads([self.experts.count, self.experts.active], [self.groups, self.tokens], room)
    }

    /// Whether choices can be dropped.
    pub fn drops(&self) -> bool {
        self.routing != Routing::Balanced
    }

    /// Slots of an expert for a group: whole registers of eight rows, one of them never taken if choices can be dropped, so that its zeros
    /// are there to be read for them.
    pub fn capacity(&self) -> i64 {
        let rows = self.admitted() + i64::from(self.drops());
        if rows > 8 { rows.saturating_add(7) / 8 * 8 } else { rows }
    }

    /// A power of two beyond all choices: the number of none, and the step between experts in the keys they are sorted by.
    pub fn none(&self) -> i64 {
        self.choices().max(1).saturating_add(1).checked_ilog2().map_or(1, |n| 2i64.saturating_pow(n + 1))
    }

    /// Whether the keys of all choices fit 32 bits.
    pub fn fits(&self) -> bool {
        let slots = self.experts.count.saturating_mul(self.capacity());
        self.none().saturating_mul(self.experts.count).max(slots) < i64::from(i32::MAX)
    }

    /// Names and types of what can be kept of where tokens go.
    pub fn routed(&self) -> Vec<(&'static str, TensorType)> {
        let (g, e, c) = (self.groups, self.experts.count, self.capacity());
        let dims = [
            vec![g, self.tokens, self.experts.active],
            vec![g, self.tokens, self.experts.active],
            vec![g, e * c],
            vec![g, self.choices()],
            vec![g, e, c],
            vec![g, e * c],
        ];
        let dtype = |name: &str| if name == "share" || name == "scale" { DType::F32 } else { DType::I32 };
        ROUTED.iter().zip(dims).map(|(n, d)| (*n, TensorType::new(d, dtype(n)))).collect()
    }

    /// Shape of rows of `channels` at the experts.
    pub fn rows(&self, channels: i64) -> [i64; 4] {
        [self.experts.count, self.groups, self.capacity(), channels]
    }
}

/// Windows of `x` along its second dimension at `indices` `(groups, n)`, each within its own group: rows of `x` `(groups, rows, channels)`,
/// or `size` elements of `x` `(groups, elements)`.
pub(super) fn take(f: F<'_, '_>, x: ValueId, indices: ValueId, size: Option<i64>) -> ValueId {
    let (ty, at) = (f.ty(x), f.dims(indices));
    let with_vector = [at.as_slice(), &[1]].concat();
    let indices = f.reshape(indices, &with_vector);
    let inner = size.or(ty.dims.last().copied()).unwrap_or(1);
    let dims = GatherDims {
        offset_dims: vec![2],
        collapsed_slice_dims: if size.is_none() { vec![1] } else { Vec::new() },
        operand_batching_dims: vec![0],
        start_indices_batching_dims: vec![0],
        start_index_map: vec![1],
        index_vector_dim: 2,
    };
    let sizes = if size.is_none() { vec![1, 1, inner] } else { vec![1, inner] };
    let attrs = [("dimension_numbers", Attr::Gather(Box::new(dims))), ("slice_sizes", Attr::Ints(sizes))];
    let result = TensorType::new([at.as_slice(), &[inner]].concat(), ty.dtype);
    f.op(Opcode::Gather, &[x, indices], &attrs, &[result]).first().copied().unwrap_or(x)
}

/// Products by expert.
fn by_expert(over: (&[i64], &[i64])) -> DotDims {
    let (lhs_contract, rhs_contract) = (over.0.to_vec(), over.1.to_vec());
    DotDims { lhs_batch: vec![0], rhs_batch: vec![0], lhs_contract, rhs_contract }
}

impl Block<'_> {
    /// What the experts' output adds to the residual stream `(batch, seq, d)`.
    pub(super) fn experts_forward(&self, f: F<'_, '_>, t: &mut Tape<'_>, d: &Dispatch) -> ValueId {
        let routed = self.routed(f, t, d);
        let (a, scale) = (self.expert_value(f, t, d, "ea"), self.placed_scale(f, d, routed));
        f.name("layer/experts/down");
        let a = self.scaled(f, a, scale);
        let down = self.weight(f, t, "experts_down");
        let y = self.dot(f, (a, Of::Value), (down, Of::Value), by_expert((&[3], &[1])), self.dtype);
        let y = self.cut_rows(f, y, PLACED);
        self.combine(f, d, y, routed.slot)
    }

    /// The gradient of the experts' input `(batch, seq, d)`, and those of their weights and of the router.
    pub(super) fn experts_backward(
        &self,
        f: F<'_, '_>,
        t: &mut Tape<'_>,
        grads: &mut Named,
        d: &Dispatch,
        dy: ValueId,
    ) -> ValueId {
        let routed = self.routed(f, t, d);
        let [x, g, u, a] = ["rows", "eg", "eu", "ea"].map(|name| self.expert_value(f, t, d, name));
        let scale = self.placed_scale(f, d, routed);
        f.name("layer/experts/combine/gradient");
        let dy = self.dispatch(f, d, dy, routed.token);
        f.name("layer/experts/down/gradient");
        let rows: &[i64] = &[1, 2];
        let scaled = self.scaled(f, a, scale);
        let over = by_expert((rows, rows));
        let dw = self.dot(f, (scaled, Of::Value), (dy, Of::Gradient), over.clone(), self.dtype);
        let dw = f.convert(dw, self.gradient);
        grads.set("experts_down", dw);
        let w = self.weight(f, t, "experts_down");
        let da = self.dot(f, (dy, Of::Gradient), (w, Of::Value), by_expert((&[3], &[2])), self.dtype);
        let da = self.mesh.constrain(f, da, HIDDEN);
        // What a slot's scale gains: its row's output by the gradient of it, before the last product instead of after.
        let (wide, grad) = (f.convert(a, DType::F32), f.convert(da, DType::F32));
        let product = f.mul(wide, grad);
        let d_scale = f.reduce(ReduceKind::Sum, product, &[3]);
        let da = self.scaled(f, da, scale);
        f.name("layer/experts/up/gradient");
        let (dg, du) = math::swiglu_gradient(f, g, u, da);
        let mut back = |f: F<'_, '_>, name: &'static str, dy: ValueId| {
            let dw = self.dot(f, (x, Of::Value), (dy, Of::Gradient), over.clone(), self.dtype);
            let dw = f.convert(dw, self.gradient);
            grads.set(name, dw);
            let w = self.weight(f, t, name);
            self.dot(f, (dy, Of::Gradient), (w, Of::Value), by_expert((&[3], &[2])), self.dtype)
        };
        let (one, two) = (back(f, "experts_up", du), back(f, "experts_gate", dg));
        let dx = f.add(one, two);
        let dx = self.cut_rows(f, dx, PLACED);
        f.name("layer/experts/dispatch/gradient");
        let dx = self.combine(f, d, dx, routed.slot);
        let more = self.router_gradient(f, t, grads, d, routed, d_scale);
        f.add(dx, more)
    }

    /// Values of a layer's experts by name: their input rows, the products `eg` and `eu` of these, and the activation `ea` of those.
    pub(super) fn expert_value(&self, f: F<'_, '_>, t: &mut Tape<'_>, d: &Dispatch, name: &'static str) -> ValueId {
        if let Some(v) = t.known.find(name) {
            return v;
        }
        let v = match name {
            "rows" => {
                let (x, routed) = (self.value(f, t, "h2"), self.routed(f, t, d));
                f.name("layer/experts/dispatch");
                self.dispatch(f, d, x, routed.token)
            }
            "eg" | "eu" => {
                let x = self.expert_value(f, t, d, "rows");
                f.name("layer/experts/up");
                let w = self.weight(f, t, if name == "eg" { "experts_gate" } else { "experts_up" });
                let y = self.dot(f, (x, Of::Value), (w, Of::Value), by_expert((&[3], &[1])), self.dtype);
                self.mesh.constrain(f, y, HIDDEN)
            }
            _ if ROUTED.contains(&name) => {
                self.routed(f, t, d);
                t.known.get(f, name)
            }
            _ => {
                let (g, u) = (self.expert_value(f, t, d, "eg"), self.expert_value(f, t, d, "eu"));
                f.name("layer/experts/activation");
                math::swiglu(f, g, u)
            }
        };
        if !ROUTED.contains(&name) {
            t.known.set(name, v);
        }
        v
    }

    /// Sizes of `(batch, seq)` by axes: the batch over copies, then over experts, and a device's part, positions over devices and a device's.
    fn split(&self) -> [i64; 5] {
        let Mesh { data, fsdp, expert, context, .. } = self.mesh;
        let copies = data.saturating_mul(fsdp).max(1);
        let parts = copies.saturating_mul(expert).max(1);
        [copies, expert, self.batch / parts, context, self.seq / context.max(1)]
    }

    /// `(batch, seq, n)` by groups of tokens `(groups, tokens, n)`, as devices have them.
    pub(super) fn grouped(&self, f: F<'_, '_>, d: &Dispatch, x: ValueId) -> ValueId {
        let n = f.dims(x).last().copied().unwrap_or(1);
        let mut x = x;
        if self.mesh.context > 1 {
            x = f.reshape(x, &[self.split().as_slice(), &[n]].concat());
            x = f.transpose(x, &[0, 3, 1, 2, 4, 5]);
        }
        f.reshape(x, &[d.groups, d.tokens, n])
    }

    /// The opposite of [`Self::grouped`].
    pub(super) fn in_order(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        let n = f.dims(x).last().copied().unwrap_or(1);
        let mut x = x;
        if self.mesh.context > 1 {
            let [copies, expert, batch, context, seq] = self.split();
            x = f.reshape(x, &[copies, context, expert, batch, seq, n]);
            x = f.transpose(x, &[0, 2, 3, 1, 4, 5]);
        }
        f.reshape(x, &[self.batch, self.seq, n])
    }

    /// Rows of tokens `(batch, seq, d)` in the slots of the experts.
    fn dispatch(&self, f: F<'_, '_>, d: &Dispatch, x: ValueId, token: ValueId) -> ValueId {
        // Channels instead of positions apart, as they will go to the experts.
        let channels: &[Axis] = if self.model.d % self.mesh.tensor.max(1) == 0 { &[Axis::Tensor] } else { &[] };
        let x = if d.together { x } else { self.mesh.constrain(f, x, &[BATCH, POSITIONS, channels]) };
        let x = self.grouped(f, d, x);
        let x = self.in_groups(f, d, x);
        let rows = take(f, x, token, None);
        let [e, g, c, n] = d.rows(self.model.d);
        let rows = f.reshape(rows, &[g, e, c, n]);
        self.place(f, d, rows)
    }

    /// Values by group and token, whole on each device that works on the group.
    pub(super) fn in_groups(&self, f: F<'_, '_>, d: &Dispatch, x: ValueId) -> ValueId {
        if d.together { self.mesh.constrain(f, x, &[OTHERS, &[], &[]]) } else { x }
    }

    /// Values by slot `(groups, experts, capacity, ..)` to where the experts are `(experts, groups, capacity, ..)`.
    fn place(&self, f: F<'_, '_>, d: &Dispatch, x: ValueId) -> ValueId {
        let rank = f.dims(x).len();
        let order: Vec<i64> = [1, 0].into_iter().chain(2..rank as i64).collect();
        let mut x = f.transpose(x, &order);
        if !d.together {
            x = self.cut_rows(f, x, GROUPED);
            x = self.cut_rows(f, x, PLACED);
        }
        self.cut_rows(f, x, READ)
    }

    /// Rows, or what there is one of for each, cut; channels stay whole if the devices that share tensors do not divide them.
    fn cut_rows(&self, f: F<'_, '_>, x: ValueId, [e, g, c, channels]: Rows) -> ValueId {
        let divides = self.model.d % self.mesh.tensor.max(1) == 0;
        let cut: Rows = [e, g, c, if divides { channels } else { &[] }];
        let rank = f.dims(x).len().min(cut.len());
        self.mesh.constrain(f, x, cut.get(..rank).unwrap_or_default())
    }

    /// The opposite of [`Self::place`].
    pub(super) fn back(&self, f: F<'_, '_>, d: &Dispatch, x: ValueId) -> ValueId {
        let rank = f.dims(x).len();
        let x = self.cut_rows(f, x, if d.together { TOGETHER } else { GROUPED });
        let order: Vec<i64> = [1, 0].into_iter().chain(2..rank as i64).collect();
        f.transpose(x, &order)
    }

    fn placed_scale(&self, f: F<'_, '_>, d: &Dispatch, routed: Routed) -> ValueId {
        f.name("layer/experts/dispatch");
        let [e, g, c, _] = d.rows(1);
        let scale = f.reshape(routed.scale, &[g, e, c]);
        self.place(f, d, scale)
    }

    /// Rows by how much they count.
    fn scaled(&self, f: F<'_, '_>, x: ValueId, scale: ValueId) -> ValueId {
        let ty = f.ty(x);
        let scale = f.broadcast_along(scale, &[0, 1, 2], &ty.dims);
        let x = f.convert(x, DType::F32);
        let y = f.mul(x, scale);
        f.convert(y, ty.dtype)
    }

    /// Sums of the rows of each token's slots `(batch, seq, d)`.
    fn combine(&self, f: F<'_, '_>, d: &Dispatch, y: ValueId, slot: ValueId) -> ValueId {
        let (g, n, k) = (d.groups, self.model.d, d.experts.active);
        if d.together {
            return self.added_up(f, d, y, slot);
        }
        let y = self.back(f, d, y);
        let y = f.reshape(y, &[g, d.experts.count * d.capacity(), n]);
        let rows = take(f, y, slot, None);
        let rows = f.reshape(rows, &[g, d.tokens, k, n]);
        let mut sum: Option<ValueId> = None;
        for j in 0..k {
            let row = f.slice(rows, &[0, 0, j, 0], &[g, d.tokens, j + 1, n]);
            let row = f.convert(row, DType::F32);
            sum = Some(sum.map_or(row, |s| f.add(s, row)));
        }
        let sum = f.convert(sum.unwrap_or(rows), self.dtype);
        let y = self.in_order(f, sum);
        self.spread(f, y)
    }

    /// As [`Self::combine`], a product with the slots of each token, so that devices add up what their own experts give.
    fn added_up(&self, f: F<'_, '_>, d: &Dispatch, y: ValueId, slot: ValueId) -> ValueId {
        let [e, g, c, n] = d.rows(self.model.d);
        f.name("layer/experts/combine");
        let slots = TensorType::new([g, d.tokens, e, c], DType::I32);
        let (expert, place) = (f.iota(slots.clone(), 2), f.iota(slots.clone(), 3));
        let first = f.binary_scalar(Opcode::Multiply, expert, c as f64);
        let number = f.add(first, place);
        let slot = f.reshape(slot, &[g, d.tokens, d.experts.active]);
        let mut mine: Option<ValueId> = None;
        for j in 0..d.experts.active {
            let one = f.slice(slot, &[0, 0, j], &[g, d.tokens, j + 1]);
            let one = f.reshape(one, &[g, d.tokens]);
            let one = f.broadcast_along(one, &[0, 1], &slots.dims);
            let hit = f.compare("EQ", number, one);
            mine = Some(mine.map_or(hit, |m| f.binary(Opcode::Or, m, hit)));
        }
        let Some(mine) = mine else { return y };
        let mine = f.convert(mine, self.dtype);
        let mine = self.mesh.constrain(f, mine, &[OTHERS, &[], &[Axis::Expert], &[]]);
        // Slots are numbered through all experts, whose parts lie together on a device.
        let y = f.transpose(y, &[1, 0, 2, 3]);
        let (mine, y) = (f.reshape(mine, &[g, d.tokens, e * c]), f.reshape(y, &[g, e * c, n]));
        let dims = DotDims { lhs_batch: vec![0], rhs_batch: vec![0], lhs_contract: vec![2], rhs_contract: vec![1] };
        let sum = f.dot_general(mine, y, dims, self.dtype);
        let y = f.reshape(sum, &[self.batch, self.seq, n]);
        self.mesh.constrain(f, y, &[BATCH, &[], &[]])
    }
}
