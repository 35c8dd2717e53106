//! Sequences cut over an axis of the mesh, as MaxText does it (`context_parallel_strategy: all_gather`, load balanced): each device has some
//! positions of everything, but keys and values of all of them for attention.
//!
//! A causal query has work in proportion to its position, so devices get a chunk from the front and one from the back: of `2 n` chunks,
//! device `i` of `n` has `i` and `2 n - 1 - i`. Arrays over positions lie in that order, and tokens are brought into it first. All devices
//! then do as much: two chunks on the diagonal, whose keys they have, and `2 n - 1` pairs of a chunk of queries and one of earlier keys,
//! which are `i` of the first and `2 n - 1 - i` of the second chunk. Which pair comes when is a table, so the program is the same.

use tpusim_backend::hlo::{FuncBuilder, Literal, Opcode, TensorType, ValueId};
use tpusim_backend::ops::attention::{Attention, Form};
use tpusim_isa::num::DType;

use super::attention::{Known, Sizes};
use super::mesh::{Axis, BATCH, Cut, Mesh, POSITIONS};
use super::stage::counted;
use super::{Model, Options};
use crate::WorkloadError;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// Checks that sequences can be cut as the mesh says.
///
/// # Errors
/// What cannot, with what would work.
pub(super) fn check(o: &Options, m: &Model) -> Result<(), WorkloadError> {
    let n = o.mesh.context;
    if n <= 1 {
        return Ok(());
    }
    let refuse = |text: String| Err(WorkloadError::Combination(text));
    let chunks = n.saturating_mul(2);
    if o.seq % chunks != 0 {
        let below = o.seq / chunks * chunks;
        let near = [below, below + chunks].into_iter().filter(|s| *s > 0).map(|s| format!("seq={s}"));
        let axes = (2..=n).rev().filter(|n| o.seq % (2 * n) == 0).take(1).map(|n| format!("context={n}"));
        let would: Vec<String> = near.chain(axes).collect();
        return refuse(format!(
            "context={n} cuts sequences into {chunks} chunks, which seq={} does not divide into; {} would work",
            o.seq,
            would.join(" or ")
        ));
    }
    if o.tile() != 0 {
        return refuse("attention_block on a mesh with an axis `context` is not there; leave it out".into());
    }
    if let Some(w) = m.window.filter(|w| w.size < o.seq) {
        // Pairs of chunks at the same step of the loop are at another distance on each device, which a window cuts each otherwise.
        return refuse(format!(
            "context={n}: `{}` has layers that see {} of {} positions, which is not there for cut sequences; a mesh without `context` would work",
            m.name, w.size, o.seq
        ));
    }
    Ok(())
}

/// `dims` with `sizes` in the place of dimension `d`.
fn in_place_of(dims: &[i64], d: usize, sizes: &[i64]) -> Vec<i64> {
    [dims.get(..d).unwrap_or_default(), sizes, dims.get(d + 1..).unwrap_or_default()].concat()
}

/// `x` with dimension `d`, which runs over positions in order, in the order devices have them.
pub(super) fn balanced(f: F<'_, '_>, mesh: &Mesh, x: ValueId, d: usize) -> ValueId {
    let n = mesh.context;
    if n <= 1 {
        return x;
    }
    let whole = f.dims(x);
    let chunk = whole.get(d).copied().unwrap_or(0) / (2 * n);
    let split = |sizes: &[i64]| in_place_of(&whole, d, sizes);
    let x = f.reshape(x, &split(&[2, n, chunk]));
    let halves = [0, 1].map(|half| part(f, x, d, half));
    let back = f.infer(Opcode::Reverse, &[halves[1]], &[("dimensions", ints(d + 1))]);
    let pairs = [halves[0], back].map(|x| f.reshape(x, &split(&[n, 1, chunk])));
    let x = f.concatenate(&pairs, d as i64 + 1);
    f.reshape(x, &whole)
}

/// The opposite of [`balanced`].
pub(super) fn restored(f: F<'_, '_>, mesh: &Mesh, x: ValueId, d: usize) -> ValueId {
    let n = mesh.context;
    if n <= 1 {
        return x;
    }
    let whole = f.dims(x);
    let chunk = whole.get(d).copied().unwrap_or(0) / (2 * n);
    let split = |sizes: &[i64]| in_place_of(&whole, d, sizes);
    let x = f.reshape(x, &split(&[n, 2, chunk]));
    let halves = [0, 1].map(|half| {
        let x = part(f, x, d + 1, half);
        f.reshape(x, &split(&[1, n, chunk]))
    });
    let back = f.infer(Opcode::Reverse, &[halves[1]], &[("dimensions", ints(d + 1))]);
    let x = f.concatenate(&[halves[0], back], d as i64);
    f.reshape(x, &whole)
}

fn ints(d: usize) -> tpusim_backend::hlo::Attr {
    tpusim_backend::hlo::Attr::Ints(vec![d as i64])
}

/// Place `at` of dimension `d`, which stays with size 1.
fn part(f: F<'_, '_>, x: ValueId, d: usize, at: i64) -> ValueId {
    let mut limit = f.dims(x);
    let mut start = vec![0; limit.len()];
    if let (Some(s), Some(l)) = (start.get_mut(d), limit.get_mut(d)) {
        (*s, *l) = (at, at + 1);
    }
    f.slice(x, &start, &limit)
}

/// Positions in the order devices have them, `(seq, width)` in f32.
pub(super) fn positions(f: F<'_, '_>, mesh: &Mesh, seq: i64, width: i64) -> ValueId {
    let n = mesh.context;
    if n <= 1 {
        return f.iota(TensorType::new([seq, width], DType::F32), 0);
    }
    let chunk = seq / (2 * n);
    let ty = TensorType::new([n, 2, chunk, width], DType::F32);
    let [device, half, inside] = [0, 1, 2].map(|d| f.iota(ty.clone(), d));
    // Chunk `device` of the first half, `2 n - 1 - device` of the second.
    let across = f.binary_scalar(Opcode::Multiply, device, -2.0);
    let across = f.binary_scalar(Opcode::Add, across, (2 * n - 1) as f64);
    let across = f.mul(half, across);
    let first = f.add(device, across);
    let first = f.binary_scalar(Opcode::Multiply, first, chunk as f64);
    let at = f.add(first, inside);
    f.reshape(at, &[seq, width])
}

/// The work of a device beside the diagonal, and how arrays are cut.
struct Work<'a> {
    s: &'a Sizes,
    /// Devices that share a sequence.
    n: i64,
    /// Positions of a chunk.
    chunk: i64,
}

impl<'a> Work<'a> {
    fn new(s: &'a Sizes) -> Self {
        let n = s.mesh.context;
        Work { s, n, chunk: s.seq / (2 * n) }
    }

    fn pairs(&self) -> i64 {
        2 * self.n - 1
    }

    /// Attention of a chunk to itself, or to one that all of it sees.
    fn form(&self, causal: bool) -> Form {
        Form { softcap: self.s.cap, ..Form::new(causal, self.s.scale) }
    }

    /// First positions of the chunk of queries, among those a device has, and of the chunk of keys, among all as they lie: of each device's
    /// pairs, `(n, 2 n - 1)`.
    fn tables(&self, f: F<'_, '_>) -> [ValueId; 2] {
        let n = self.n;
        let pairs = (0..n).flat_map(|i| (0..2 * n - 1).map(move |t| if t < i { (0, t) } else { (1, t - i) }));
        let slot = |chunk: i64| if chunk < n { 2 * chunk } else { 2 * (2 * n - 1 - chunk) + 1 };
        let places: Vec<(i64, i64)> = pairs.map(|(q, k)| (q, slot(k))).collect();
        [|p: &(i64, i64)| p.0, |p: &(i64, i64)| p.1].map(|pick| {
            let bytes: Vec<u8> = places.iter().flat_map(|p| ((pick(p) * self.chunk) as i32).to_le_bytes()).collect();
            f.literal(Literal { ty: TensorType::new([n, self.pairs()], DType::I32), bytes: bytes.into() })
        })
    }

    /// Cuts of queries, of keys and values, of those gathered, and of what there is one of for each query and head.
    fn cuts(&self) -> [Cut; 4] {
        let axes = |dims: [&[Axis]; 4]| dims.map(<[Axis]>::to_vec).to_vec();
        let tensor = &[Axis::Tensor][..];
        let kv = if self.s.kv_heads % self.s.mesh.tensor.max(1) == 0 { tensor } else { &[] };
        let queries = axes([BATCH, POSITIONS, tensor, &[]]);
        let rows = vec![BATCH.to_vec(), tensor.to_vec(), POSITIONS.to_vec()];
        [queries, axes([BATCH, POSITIONS, kv, &[]]), axes([BATCH, &[], kv, &[]]), rows]
    }

    /// Place `t` of a device's row of a table.
    fn at(&self, f: F<'_, '_>, table: ValueId, t: ValueId) -> ValueId {
        let zero = f.scalar(DType::I32, 0.0);
        let one = f.dynamic_slice(table, &[zero, t], &[1, 1]);
        f.reshape(one, &[])
    }

    /// A chunk of positions, which are dimension `d`.
    fn chunk(&self, f: F<'_, '_>, x: ValueId, d: usize, at: ValueId) -> ValueId {
        let mut sizes = f.dims(x);
        if let Some(n) = sizes.get_mut(d) {
            *n = self.chunk;
        }
        let starts = starts(f, sizes.len(), d, at);
        f.dynamic_slice(x, &starts, &sizes)
    }

    /// The two chunks of a device as two sequences, and back.
    fn apart(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        let dims = f.dims(x);
        let sizes = [&[self.s.batch * 2, self.chunk], dims.get(2..).unwrap_or_default()].concat();
        f.reshape(x, &sizes)
    }

    fn together(&self, f: F<'_, '_>, x: ValueId) -> ValueId {
        let dims = f.dims(x);
        let sizes = [&[self.s.batch, self.chunk * 2], dims.get(2..).unwrap_or_default()].concat();
        f.reshape(x, &sizes)
    }
}

fn starts(f: F<'_, '_>, rank: usize, d: usize, at: ValueId) -> Vec<ValueId> {
    let zero = f.scalar(DType::I32, 0.0);
    (0..rank).map(|k| if k == d { at } else { zero }).collect()
}

/// As [`super::attention::forward`].
pub(super) fn forward(f: F<'_, '_>, s: &Sizes, q: ValueId, k: ValueId, v: ValueId) -> (ValueId, ValueId) {
    let w = Work::new(s);
    let [of_q, of_k, all_k, of_rows] = w.cuts();
    let [queries, keys] = w.tables(f);
    let table: Cut = vec![POSITIONS.to_vec(), Vec::new()];
    let operands = [
        (queries, table.clone()),
        (keys, table),
        (q, of_q.clone()),
        (k, of_k.clone()),
        (v, of_k),
        (k, all_k.clone()),
        (v, all_k),
    ];
    let (dtype, heads) = (f.ty(q).dtype, s.kv_heads * s.group);
    let o = TensorType::new([s.batch, s.seq, heads, s.value], dtype);
    let log = TensorType::new([s.batch, heads, s.seq], DType::F32);
    let results = [(o, of_q), (log, of_rows)];
    let done = s.mesh.manual(f, &[Axis::Context], &operands, &results, |f, args| {
        let &[queries, keys, q, k, v, all_k, all_v] = args else { return Vec::new() };
        let own = [q, k, v].map(|x| w.apart(f, x));
        let &[o, log] = Attention::call(f, &own, w.form(true)).as_slice() else { return Vec::new() };
        let o = w.together(f, o);
        let o = f.convert(o, DType::F32);
        let log = f.reshape(log, &[s.batch, 2, heads, w.chunk]);
        let log = f.transpose(log, &[0, 2, 1, 3]);
        let log = f.reshape(log, &[s.batch, heads, 2 * w.chunk]);
        let done = counted(f, w.pairs(), &[queries, keys, q, all_k, all_v], &[o, log], |f, t, fixed, state| {
            let (&[queries, keys, q, k, v], &[o, log]) = (fixed, state) else { return Vec::new() };
            let (query, key) = (w.at(f, queries, t), w.at(f, keys, t));
            let parts = [w.chunk(f, q, 1, query), w.chunk(f, k, 1, key), w.chunk(f, v, 1, key)];
            let &[new, new_log] = Attention::call(f, &parts, w.form(false)).as_slice() else { return Vec::new() };
            let old = [w.chunk(f, o, 1, query), w.chunk(f, log, 2, query)];
            let [both, total] = Attention::merge(f, old, [new, new_log]);
            let (at_o, at_log) = (starts(f, 4, 1, query), starts(f, 3, 2, query));
            vec![f.dynamic_update_slice(o, both, &at_o), f.dynamic_update_slice(log, total, &at_log)]
        });
        match done.as_slice() {
            &[o, log] => vec![f.convert(o, dtype), log],
            _ => Vec::new(),
        }
    });
    match done.as_slice() {
        &[o, log] => (o, log),
        _ => (q, q),
    }
}

/// As [`super::attention::backward`].
pub(super) fn backward(f: F<'_, '_>, s: &Sizes, known: Known, go: ValueId) -> [ValueId; 3] {
    let w = Work::new(s);
    let Known { q, k, v, o, log_sum } = known;
    let [of_q, of_k, all_k, of_rows] = w.cuts();
    let [queries, keys] = w.tables(f);
    let device = f.iota(TensorType::new([w.n], DType::I32), 0);
    let table: Cut = vec![POSITIONS.to_vec(), Vec::new()];
    let operands = [
        (device, vec![POSITIONS.to_vec()]),
        (queries, table.clone()),
        (keys, table),
        (q, of_q.clone()),
        (k, of_k.clone()),
        (v, of_k.clone()),
        (k, all_k.clone()),
        (v, all_k.clone()),
        (o, of_q.clone()),
        (log_sum, of_rows),
        (go, of_q.clone()),
    ];
    let dtype = f.ty(q).dtype;
    let results = [(f.ty(q), of_q), (f.ty(k), of_k.clone()), (f.ty(v), of_k)];
    let done = s.mesh.manual(f, &[Axis::Context], &operands, &results, |f, args| {
        let &[device, queries, keys, q, k, v, all_k, all_v, o, log, go] = args else { return Vec::new() };
        let [own_q, own_k, own_v, own_o, own_go] = [q, k, v, o, go].map(|x| w.apart(f, x));
        let heads = s.kv_heads * s.group;
        let own_log = f.reshape(log, &[s.batch, heads, 2, w.chunk]);
        let own_log = f.transpose(own_log, &[0, 2, 1, 3]);
        let own_log = f.reshape(own_log, &[2 * s.batch, heads, w.chunk]);
        let own = [own_q, own_k, own_v, own_o, own_log, own_go];
        let own: Vec<ValueId> = Attention::call(f, &own, w.form(true));
        let own: Vec<ValueId> = own.into_iter().map(|x| w.together(f, x)).collect();
        let &[dq, dk, dv] = own.as_slice() else { return Vec::new() };
        let [dq, dk, dv] = [dq, dk, dv].map(|x| f.convert(x, DType::F32));
        // A device's chunks lie next to each other among all.
        let place = f.binary_scalar(Opcode::Multiply, device, (2 * w.chunk) as f64);
        let place = f.reshape(place, &[]);
        let [dk, dv] = [(all_k, dk), (all_v, dv)].map(|(all, own)| {
            let zero = f.splat(TensorType::new(f.dims(all), DType::F32), 0.0);
            let at = starts(f, 4, 1, place);
            f.dynamic_update_slice(zero, own, &at)
        });
        let fixed = [queries, keys, q, all_k, all_v, o, log, go];
        let done = counted(f, w.pairs(), &fixed, &[dq, dk, dv], |f, t, fixed, state| {
            let &[queries, keys, q, k, v, o, log, go] = fixed else { return Vec::new() };
            let (query, key) = (w.at(f, queries, t), w.at(f, keys, t));
            let places = [(q, 1, query), (k, 1, key), (v, 1, key), (o, 1, query), (log, 2, query), (go, 1, query)];
            let parts = places.map(|(x, d, at)| w.chunk(f, x, d, at));
            let more = Attention::call(f, &parts, w.form(false));
            let sums = state.iter().zip(more).zip([query, key, key]).map(|((&sum, more), at)| {
                let old = w.chunk(f, sum, 1, at);
                let more = f.convert(more, DType::F32);
                let new = f.add(old, more);
                let at = starts(f, 4, 1, at);
                f.dynamic_update_slice(sum, new, &at)
            });
            sums.collect()
        });
        let done: Vec<ValueId> = done.into_iter().map(|x| f.convert(x, dtype)).collect();
        let &[dq, dk, dv] = done.as_slice() else { return Vec::new() };
        let [dk, dv] = [dk, dv].map(|x| s.mesh.reduce_scatter(f, Axis::Context, x, 1));
        vec![dq, dk, dv]
    });
    done.try_into().unwrap_or([q; 3])
}
