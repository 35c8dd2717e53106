//! Layers in the stages of a pipeline, as MaxText has them (`layers/pipeline.py`): parts of the batch flow through, and in every iteration
//! each stage takes one of them through its layers and hands it to the next.
//!
//! Of `n` stages, stage `s` works in iteration `t` on part `t - s`. All stages compute in all iterations: what they compute before the first
//! part arrives and after the last one has left is used by nobody, and has no gradient. If parts go round several times, the last stage
//! hands them to the first, where they wait until all others have begun their round; with more rounds a stage has fewer layers of each, and
//! less is computed for nobody.
//!
//! What is outside of the pipeline, as embedding, loss, and layers of another kind, every place of the axis does for a part of the batch.
//!
//! Copies of the pipeline each have their part of the batch, and add up their gradients once, at the end.
//!
//! Parts lie spread over stages. With each iteration they move by a stage towards the first, which takes those that arrive, while the
//! last one puts those that are done where the others were. The backward pass is all this from its end to its beginning.

use tpusim_backend::hlo::{FuncBuilder, Literal, Opcode, TensorType, ValueId};
use tpusim_isa::num::DType;

use super::mesh::{Axis, BATCH, Cut, Mesh, POSITIONS};
use super::stage::{Around, Stage, Tables, counted, layer_of, put_layer, stack};
use super::weights::Weight;
use super::{Model, Options};
use crate::WorkloadError;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// What the places of operations of an iteration begin with, forward and backward.
const ITERATIONS: [&str; 2] = ["pipeline/forward", "pipeline/backward"];

/// Who works when in a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Stages.
    pub stages: i64,
    /// Parts of the batch that go through.
    pub microbatches: i64,
    /// Iterations of every stage, each way.
    pub iterations: i64,
    /// Iterations of them in which a stage has no part: while the first are on their way to it, and when the last have left.
    pub idle: i64,
    /// What the places of operations of an iteration begin with.
    pub places: [&'static str; 2],
}

impl Options {
    /// The schedule, if the mesh has a pipeline.
    pub fn schedule(&self) -> Option<Schedule> {
        let (stages, microbatches) = (self.mesh.pipeline, self.parts());
        let busy = microbatches.saturating_mul(self.repeats);
        let idle = stages - 1;
        let iterations = busy.saturating_add(idle);
        (stages > 1).then_some(Schedule { stages, microbatches, iterations, idle, places: ITERATIONS })
    }
}

/// Checks that a model and a batch can be cut into stages and parts.
///
/// # Errors
/// What cannot, with what would work.
pub(super) fn check(o: &Options, m: &Model) -> Result<(), WorkloadError> {
    let (n, rounds, parts) = (o.mesh.pipeline, o.repeats, o.parts());
    let refuse = |text: String| Err(WorkloadError::Combination(text));
    let near = |name: &str, at: i64, step: i64| {
        let below = at / step * step;
        let found = [below, below.saturating_add(step)].into_iter().filter(|k| *k > 0);
        found.map(|k| format!("{name}={k}")).collect::<Vec<_>>().join(" or ")
    };
    if rounds < 1 || n == 1 && rounds > 1 {
        return refuse(format!("repeats={rounds} needs an axis `pipeline` of the mesh"));
    }
    if n == 1 {
        return Ok(());
    }
    // Others are outside, where places of the axis have parts of the batch.
    let layers = m.layers - m.experts.map_or(0, |e| e.dense_layers);
    // All stages run the same program, so each has whole repetitions of layers with and without a window.
    let unit = rounds.saturating_mul(m.period());
    if layers < 1 || layers % n.saturating_mul(unit) != 0 {
        let sizes: Vec<String> =
            (2..=layers).filter(|k| layers % k.saturating_mul(unit) == 0).map(|k| k.to_string()).collect();
        let repeated = match m.period() {
            1 => String::new(),
            p => format!(" in repetitions of {p}"),
        };
        return refuse(format!(
            "pipeline={n} with repeats={rounds} does not divide {layers} layers{repeated}; pipeline={} would work",
            if sizes.is_empty() { "1".to_owned() } else { sizes.join(" or ") }
        ));
    }
    if parts % n != 0 {
        let would = near("microbatches", parts, n);
        return refuse(format!("microbatches={parts} is not a multiple of pipeline={n}; {would} would work"));
    }
    let share = parts.saturating_mul(o.mesh.parts(BATCH)).max(1);
    if o.batch % share != 0 {
        return refuse(format!(
            "batch={} does not divide into {parts} microbatches over {} devices each; {} would work",
            o.batch,
            o.mesh.parts(BATCH),
            near("batch", o.batch, share)
        ));
    }
    Ok(())
}

/// Where in the pipeline a device is.
pub(super) struct Place {
    /// Its stage, `i32[]`.
    stage: ValueId,
    /// The first of its layers in each iteration, `i32[1, iterations]`, if there are several rounds.
    firsts: Option<ValueId>,
}

impl Place {
    /// From a device's part of [`Pipeline::places`].
    pub fn of(f: F<'_, '_>, places: &[ValueId]) -> Place {
        let stage = places.first().map(|s| f.reshape(*s, &[]));
        Place { stage: stage.unwrap_or_else(|| f.scalar(DType::I32, 0.0)), firsts: places.get(1).copied() }
    }
}

/// Layers in stages; values are those of one place of the axis.
pub(super) struct Pipeline<'a> {
    /// The layers that a part goes through in one iteration.
    stage: Stage<'a>,
    mesh: Mesh,
    /// The mesh of all devices.
    whole: Mesh,
    stages: i64,
    parts: i64,
    rounds: i64,
}

impl<'a> Pipeline<'a> {
    /// The pipeline of the layers `all`, whose blocks are of a part of the batch, on a mesh that is part of the mesh `whole`.
    pub fn new(o: &Options, whole: Mesh, all: &Stage<'a>) -> Self {
        let (stages, rounds) = (o.mesh.pipeline, o.repeats);
        let stage = Stage { layers: all.layers / stages.saturating_mul(rounds).max(1), ..all.clone() };
        Pipeline { stage, mesh: o.mesh, whole, stages, parts: o.parts(), rounds }
    }

    /// Sizes of the dimensions that stack `layers` layers, in order, and how they are cut.
    pub fn stacked(o: &Options, layers: i64) -> (Vec<i64>, Cut) {
        match o.repeats {
            ..=1 => (vec![layers], vec![vec![Axis::Pipeline]]),
            n => (vec![n, layers / n], vec![Vec::new(), vec![Axis::Pipeline]]),
        }
    }

    /// What says where a device is, and how it is cut.
    pub fn places(o: &Options, layers: i64, f: F<'_, '_>) -> Vec<(ValueId, Cut)> {
        let (n, parts) = (o.mesh.pipeline, o.parts());
        let stage = f.iota(TensorType::new([n], DType::I32), 0);
        let mut all = vec![(stage, vec![vec![Axis::Pipeline]])];
        if o.repeats > 1 {
            let trips = parts * o.repeats + n - 1;
            let each = layers / (n * o.repeats);
            let first = |s: i64, t: i64| (each * ((t - s).max(0) / parts).min(o.repeats - 1)) as i32;
            let firsts = (0..n).flat_map(|s| (0..trips).map(move |t| first(s, t)));
            let bytes: Vec<u8> = firsts.flat_map(i32::to_le_bytes).collect();
            let ty = TensorType::new([n, trips], DType::I32);
            all.push((f.literal(Literal { ty, bytes: bytes.into() }), vec![vec![Axis::Pipeline], Vec::new()]));
        }
        all
    }

    /// Iterations.
    fn trips(&self) -> i64 {
        self.parts * self.rounds + self.stages - 1
    }

    /// Parts of the batch that lie with each stage.
    fn slots(&self) -> i64 {
        self.parts / self.stages
    }

    /// Rows `(batch / stages, ..)` as parts `(slots, batch / parts, ..)`, of which every device has its part of the batch already.
    fn split(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        let (dims, devices) = (f.dims(x), self.mesh.parts(BATCH));
        let (rows, inner) = (self.stage.block.batch, dims.get(1..).unwrap_or_default());
        let x = f.reshape(x, &[&[devices, self.slots(), rows / devices.max(1)], inner].concat());
        let x = swapped(f, x);
        f.reshape(x, &[&[self.slots(), rows], inner].concat())
    }

    /// The opposite of [`Self::split`].
    fn joined(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        let (dims, devices) = (f.dims(x), self.mesh.parts(BATCH));
        let (rows, inner) = (self.stage.block.batch, dims.get(2..).unwrap_or_default());
        let x = f.reshape(x, &[&[self.slots(), devices, rows / devices.max(1)], inner].concat());
        let x = swapped(f, x);
        f.reshape(x, &[&[self.slots() * rows], inner].concat())
    }

    /// What belongs to rows that went in, `(batch / stages, seq)`, in the order they come out: of the last round's first part the first stage
    /// is done when `stages - 1` other parts have begun.
    pub fn as_they_come(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        let ahead = (self.stages - 1) % self.slots();
        if ahead == 0 {
            return x;
        }
        let x = self.split(f, x);
        let dims = f.dims(x);
        let at = |n: i64| [&[n], dims.get(1..).unwrap_or_default()].concat();
        let zeros = vec![0; dims.len()];
        let middle: Vec<i64> = (0..dims.len()).map(|d| if d == 0 { self.slots() - ahead } else { 0 }).collect();
        let (front, back) = (f.slice(x, &zeros, &at(self.slots() - ahead)), f.slice(x, &middle, &dims));
        let x = f.concatenate(&[back, front], 0);
        let x = self.joined(f, x);
        self.mesh.constrain(f, x, &[BATCH, POSITIONS])
    }

    /// `x`, `(slots, rows, seq, d)`, cut as activations are.
    fn spread(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        self.mesh.constrain(f, x, &[&[], BATCH, self.stage.block.positions(), &[]])
    }

    /// Stacks of all layers of this stage, in order.
    fn in_order(&self, f: F<'_, '_>, stacks: &[ValueId]) -> Vec<ValueId> {
        let one = |s: &ValueId| {
            let dims = f.dims(*s);
            let inner = dims.get(2..).unwrap_or_default();
            f.reshape(*s, &[&[self.rounds * self.stage.layers], inner].concat())
        };
        if self.rounds > 1 { stacks.iter().map(one).collect() } else { stacks.to_vec() }
    }

    /// What loops over iterations read and never change.
    fn fixed(&self, place: &Place, stacks: &[ValueId], tables: &[(ValueId, ValueId)]) -> Vec<ValueId> {
        let tables = tables.iter().flat_map(|(c, s)| [*c, *s]);
        let places = [place.stage].into_iter().chain(place.firsts);
        places.chain(stacks.iter().copied()).chain(tables).collect()
    }

    /// The place, weights and tables from [`Self::fixed`] of a loop.
    fn unpack<'v>(&self, fixed: &'v [ValueId]) -> (Place, &'v [ValueId], Tables) {
        let places = if self.rounds > 1 { 2 } else { 1 };
        let (own, rest) = fixed.split_at(places.min(fixed.len()));
        let (stacks, tables) = rest.split_at(self.stage.weights.len().min(rest.len()));
        let stage = own.first().copied().unwrap_or(ValueId(0));
        (Place { stage, firsts: own.get(1).copied() }, stacks, self.stage.tables(tables))
    }

    /// What the loop over iterations begins with, from all rows: what moves from stage to stage, the parts of the batch, and what waits
    /// for its next round if there are several; with the type of a part.
    fn start(&self, f: F<'_, '_>, x: ValueId) -> (TensorType, Vec<ValueId>) {
        let b = &self.stage.block;
        let parts = self.split(f, x);
        let parts = self.spread(f, parts);
        let one = TensorType::new(f.dims(parts).get(1..).unwrap_or_default().to_vec(), b.dtype);
        let moving = f.splat(one.clone(), 0.0);
        let moving = b.spread(f, moving);
        let mut state = vec![moving, parts];
        if self.rounds > 1 {
            let waiting = stack(f, self.parts, &one);
            state.push(self.spread(f, waiting));
        }
        (one, state)
    }

    /// What came out for the rows of `x`, `(batch / stages, seq, d)`, in the order of [`Self::as_they_come`]; and what the backward pass needs.
    pub fn forward(
        &self,
        f: F<'_, '_>,
        place: &Place,
        stacks: &[ValueId],
        tables: &[(ValueId, ValueId)],
        x: ValueId,
    ) -> (ValueId, Vec<ValueId>) {
        let (b, trips) = (&self.stage.block, self.trips());
        f.name("pipeline/split");
        let (one, mut state) = self.start(f, x);
        let own = state.len();
        for (_, ty) in std::iter::once(("", one)).chain(b.kept()) {
            let layers = TensorType::new([&[self.stage.layers], ty.dims.as_slice()].concat(), ty.dtype);
            state.push(stack(f, trips, &layers));
        }
        let ordered = self.in_order(f, stacks);
        let fixed = self.fixed(place, &ordered, tables);
        let done = counted(f, trips, &fixed, &state, |f, t, fixed, state| {
            let (place, stacks, tables) = self.unpack(fixed);
            let (state, kept) = state.split_at(own.min(state.len()));
            let [moving, parts, waiting @ ..] = state else { return Vec::new() };
            f.name("pipeline/take");
            let slot = f.binary_scalar(Opcode::Remainder, t, self.slots() as f64);
            let arrived = layer_of(f, *parts, slot);
            let mut next = Vec::new();
            let mut first = arrived;
            if let Some(waiting) = waiting.first() {
                let [put, take] = self.waits(f, t);
                let waiting = put_layer(f, *waiting, *moving, put);
                let again = layer_of(f, waiting, take);
                let new = self.is_new(f, t);
                first = f.select(new, arrived, again);
                next.push(waiting);
            }
            let is_first = self.is_stage(f, &place, 0);
            let x = f.select(is_first, first, *moving);
            let x = b.spread(f, x);
            let first = place.firsts.map(|all| element(f, all, t));
            let (y, made) = self.stage.forward(f, stacks, Around { tables: &tables, first }, x);
            f.name("pipeline/hand_on");
            let moving = self.whole.shifted(f, Axis::Pipeline, y, 1, self.rounds > 1);
            let towards = self.whole.shifted(f, Axis::Pipeline, arrived, -1, false);
            let is_last = self.is_stage(f, &place, self.stages - 1);
            let put = f.select(is_last, y, towards);
            let parts = put_layer(f, *parts, put, slot);
            let kept = kept.iter().zip(made).map(|(all, made)| put_layer(f, *all, made, t)).collect::<Vec<_>>();
            f.name(ITERATIONS[0]);
            [vec![moving, parts], next, kept].concat()
        });
        let (state, kept) = done.split_at(own.min(done.len()));
        f.name("pipeline/join");
        let y = state.get(1).map_or(x, |parts| self.joined(f, *parts));
        (self.stage.block.spread(f, y), kept.to_vec())
    }

    /// The gradient of the rows that went in, from `dy` of those that came out, and those of the weights.
    pub fn backward(
        &self,
        f: F<'_, '_>,
        place: &Place,
        stacks: &[ValueId],
        tables: &[(ValueId, ValueId)],
        (kept, dy): (&[ValueId], ValueId),
    ) -> (ValueId, Vec<ValueId>) {
        let (b, trips) = (&self.stage.block, self.trips());
        f.name("pipeline/split/gradient");
        let (_, mut state) = self.start(f, dy);
        let own = state.len();
        let cut = |w: &Weight| -> Cut { [&[Vec::new()], w.cut.as_slice()].concat() };
        let ordered = self.in_order(f, stacks);
        for (w, like) in self.stage.weights.iter().zip(&ordered) {
            let zeros = f.splat(TensorType::new(f.dims(*like), b.gradient), 0.0);
            state.push(self.held(f, zeros, &cut(w)));
        }
        let fixed = [kept, &self.fixed(place, &ordered, tables)].concat();
        let done = counted(f, trips, &fixed, &state, |f, i, fixed, state| {
            let (kept, fixed) = fixed.split_at(kept.len().min(fixed.len()));
            let (place, stacks, tables) = self.unpack(fixed);
            let (state, sums) = state.split_at(own.min(state.len()));
            let [moving, parts, waiting @ ..] = state else { return Vec::new() };
            f.name("pipeline/hand_on/gradient");
            let last = f.scalar(DType::I32, (trips - 1) as f64);
            let t = f.binary(Opcode::Subtract, last, i);
            let slot = f.binary_scalar(Opcode::Remainder, t, self.slots() as f64);
            let put = layer_of(f, *parts, slot);
            let nothing = f.splat(f.ty(put), 0.0);
            let is_last = self.is_stage(f, &place, self.stages - 1);
            let from_next = self.whole.shifted(f, Axis::Pipeline, *moving, -1, self.rounds > 1);
            let done = f.select(is_last, put, nothing);
            let dy = f.add(from_next, done);
            let dy = b.spread(f, dy);
            let towards = f.select(is_last, nothing, put);
            let arrived = self.whole.shifted(f, Axis::Pipeline, towards, 1, false);
            let at = place.firsts.map(|all| element(f, all, t));
            let kept: Vec<ValueId> = kept.iter().map(|all| layer_of(f, *all, t)).collect();
            let (dx, made) = self.stage.backward(f, stacks, Around { tables: &tables, first: at }, &kept, dy);
            f.name("pipeline/take/gradient");
            let is_first = self.is_stage(f, &place, 0);
            let mut moving = f.select(is_first, nothing, dx);
            let mut next = Vec::new();
            let mut first = dx;
            if let Some(waiting) = waiting.first() {
                let [put, take] = self.waits(f, t);
                let new = self.is_new(f, t);
                first = f.select(new, dx, nothing);
                let again = f.select(new, nothing, dx);
                let again = f.select(is_first, again, nothing);
                let held = layer_of(f, *waiting, take);
                let held = f.add(held, again);
                let waiting = put_layer(f, *waiting, held, take);
                let held = layer_of(f, waiting, put);
                moving = f.add(moving, held);
                next.push(put_layer(f, waiting, nothing, put));
            }
            let moving = b.spread(f, moving);
            let back = f.select(is_first, first, arrived);
            let parts = put_layer(f, *parts, back, slot);
            f.name("pipeline/sum");
            let mut grown = Vec::new();
            for ((sum, more), w) in sums.iter().zip(made).zip(&self.stage.weights) {
                let sum = match at {
                    None => f.add(*sum, more),
                    Some(first) => {
                        let sizes = f.dims(more);
                        let zero = f.scalar(DType::I32, 0.0);
                        let starts: Vec<ValueId> =
                            (0..sizes.len()).map(|d| if d == 0 { first } else { zero }).collect();
                        let old = f.dynamic_slice(*sum, &starts, &sizes);
                        let new = f.add(old, more);
                        f.dynamic_update_slice(*sum, new, &starts)
                    }
                };
                grown.push(self.held(f, sum, &cut(w)));
            }
            f.name(ITERATIONS[1]);
            [vec![moving, parts], next, grown].concat()
        });
        let (state, sums) = done.split_at(own.min(done.len()));
        f.name("pipeline/join/gradient");
        let dx = state.get(1).map_or(dy, |parts| self.joined(f, *parts));
        let dx = self.stage.block.spread(f, dx);
        (dx, sums.iter().zip(stacks).map(|(sum, like)| f.reshape(*sum, &f.dims(*like))).collect())
    }

    fn held(&self, f: F<'_, '_>, x: ValueId, cut: &[Vec<Axis>]) -> ValueId {
        match self.mesh.sharding(cut) {
            Some(text) => f.sharding_constraint(x, &text),
            None => x,
        }
    }

    /// Whether this is stage `s`.
    fn is_stage(&self, f: F<'_, '_>, place: &Place, s: i64) -> ValueId {
        let s = f.scalar(DType::I32, s as f64);
        f.compare("EQ", place.stage, s)
    }

    /// Whether the part that the first stage takes in iteration `t` is one that begins.
    fn is_new(&self, f: F<'_, '_>, t: ValueId) -> ValueId {
        let parts = f.scalar(DType::I32, self.parts as f64);
        f.compare("LT", t, parts)
    }

    /// Where the first stage puts the part that comes round in iteration `t`, and where it takes one.
    fn waits(&self, f: F<'_, '_>, t: ValueId) -> [ValueId; 2] {
        let behind = f.binary_scalar(Opcode::Add, t, (self.parts - self.stages) as f64);
        [behind, t].map(|t| f.binary_scalar(Opcode::Remainder, t, self.parts as f64))
    }
}

/// What a device's row of a table says of iteration `t`.
fn element(f: F<'_, '_>, table: ValueId, t: ValueId) -> ValueId {
    let zero = f.scalar(DType::I32, 0.0);
    let one = f.dynamic_slice(table, &[zero, t], &[1, 1]);
    f.reshape(one, &[])
}

/// `x` with its first two dimensions the other way round.
fn swapped(f: F<'_, '_>, x: ValueId) -> ValueId {
    let rank = f.dims(x).len() as i64;
    let order: Vec<i64> = [1, 0].into_iter().chain(2..rank).collect();
    f.transpose(x, &order)
}
