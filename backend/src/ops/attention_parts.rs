//! Attention of long sequences by parts: loops over pairs of a part of the queries and a part of the keys, each an attention of its own.
//!
//! Outputs of a query's parts are added up weighted by their sums of exponentials. A part of the gradient needs the logarithm of the
//! sum over all keys, which is an operand of the gradient anyway, so parts of gradients only add up.

use tpusim_isa::num::DType;

use super::attention::Attention;
use crate::hlo::{FuncBuilder, Literal, ModuleBuilder, Opcode, TensorType, ValueId};

impl Attention {
    /// Whether the sequences can be cut into parts of `part` positions.
    pub fn divides(&self, part: u64) -> bool {
        let whole = |n: u64| n.is_multiple_of(part);
        part > 0 && whole(self.queries) && whole(self.keys) && self.queries.max(self.keys) > part
    }

    /// Adds a function of `name` that computes the same by parts of `part` positions, which divides the sequences.
    pub fn define_parts(&self, m: &mut ModuleBuilder, name: &str, part: u64) {
        let mut f = m.func(name);
        let params: Vec<ValueId> = self.types().0.into_iter().map(|t| f.param("", t)).collect();
        let (masked, whole) = self.parts(part);
        let parts = Parts { a: self, size: part as i64 };
        let results = match self.gradient {
            false => parts.forward(&mut f, &params, &masked, &whole),
            true => parts.backward(&mut f, &params, &masked, &whole),
        };
        f.ret(&results);
    }

    /// Attention over the keys of two attentions of the same queries: sums `(batch, queries, heads, v_dim)` in f32 and logarithms
    /// `(batch, heads, queries)`, of an output so far and another one of any type.
    pub fn merge(f: &mut FuncBuilder<'_>, [old, old_log]: [ValueId; 2], [new, new_log]: [ValueId; 2]) -> [ValueId; 2] {
        let top = f.binary(Opcode::Maximum, old_log, new_log);
        let [a, b] = [old_log, new_log].map(|l| {
            let x = f.binary(Opcode::Subtract, l, top);
            f.unary(Opcode::Exponential, x)
        });
        let sum = f.add(a, b);
        let new = f.convert(new, DType::F32);
        let [a, b] = [(a, old), (b, new)].map(|(w, x)| {
            let share = f.binary(Opcode::Divide, w, sum);
            let dims = f.dims(x);
            let share = f.broadcast_along(share, &[0, 2, 1], &dims);
            f.mul(x, share)
        });
        let both = f.add(a, b);
        let more = f.unary(Opcode::Log, sum);
        [both, f.add(top, more)]
    }

    /// Pairs of parts on the diagonal, and those that are seen whole.
    fn parts(&self, part: u64) -> (Vec<[u64; 2]>, Vec<[u64; 2]>) {
        let (q, k) = (self.queries / part, self.keys / part);
        if self.causal {
            return ((0..q).map(|i| [i, i]).collect(), (0..q).flat_map(|i| (0..i).map(move |j| [i, j])).collect());
        }
        // The first part of the keys begins what the others add to.
        (Vec::new(), (0..q).flat_map(|i| (0..k).map(move |j| [i, j])).collect())
    }
}

struct Parts<'a> {
    a: &'a Attention,
    size: i64,
}

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// Minus infinity, as far as sums of exponentials go.
const NOTHING: f64 = -1e30;

impl Parts<'_> {
    /// Positions `at ..` of `x`, along dimension `d`.
    fn part(&self, f: F<'_, '_>, x: ValueId, d: usize, at: ValueId) -> ValueId {
        let mut sizes = f.dims(x);
        if let Some(n) = sizes.get_mut(d) {
            *n = self.size;
        }
        let starts = starts(f, sizes.len(), d, at);
        f.dynamic_slice(x, &starts, &sizes)
    }

    fn put(&self, f: F<'_, '_>, x: ValueId, part: ValueId, d: usize, at: ValueId) -> ValueId {
        let starts = starts(f, f.dims(x).len(), d, at);
        f.dynamic_update_slice(x, part, &starts)
    }

    /// Runs `body` on the first positions of the queries and keys of each pair.
    fn each<'m>(
        &self,
        f: &mut FuncBuilder<'m>,
        pairs: &[[u64; 2]],
        fixed: &[ValueId],
        state: Vec<ValueId>,
        body: impl FnOnce(&mut FuncBuilder<'m>, [ValueId; 2], &[ValueId], &[ValueId]) -> Vec<ValueId>,
    ) -> Vec<ValueId> {
        if pairs.is_empty() {
            return state;
        }
        let mut table = |k: usize| {
            let bytes: Vec<u8> = pairs.iter().flat_map(|p| (p[k] as i32 * self.size as i32).to_le_bytes()).collect();
            f.literal(Literal { ty: TensorType::new([pairs.len() as i64], DType::I32), bytes: bytes.into() })
        };
        let (queries, keys) = (table(0), table(1));
        let zero = f.scalar(DType::I32, 0.0);
        let all = [&[zero, queries, keys], fixed, &state].concat();
        let count = pairs.len() as f64;
        let split = 3 + fixed.len();
        let done = f.while_loop(
            &all,
            |f, args| {
                let limit = f.scalar(DType::I32, count);
                args.first().map_or(limit, |&i| f.compare("LT", i, limit))
            },
            |f, args| {
                let (held, state) = args.split_at(split.min(args.len()));
                let &[i, queries, keys, ref fixed @ ..] = held else { return Vec::new() };
                let at = [queries, keys].map(|t| {
                    let one = f.dynamic_slice(t, &[i], &[1]);
                    f.reshape(one, &[])
                });
                let next = body(f, at, fixed, state);
                let one = f.scalar(DType::I32, 1.0);
                let i = f.add(i, one);
                [&[i, queries, keys], fixed, &next].concat()
            },
        );
        done.get(split..).unwrap_or_default().to_vec()
    }

    fn forward(&self, f: F<'_, '_>, given: &[ValueId], masked: &[[u64; 2]], whole: &[[u64; 2]]) -> Vec<ValueId> {
        let (_, out) = self.a.types();
        let wide = |t: &TensorType| TensorType::new(t.dims.clone(), DType::F32);
        let mut state: Vec<ValueId> = match out.as_slice() {
            [o, log] => vec![f.splat(wide(o), 0.0), f.splat(log.clone(), NOTHING)],
            _ => return Vec::new(),
        };
        let (scale, attend) = (self.a.scale, Attention::call);
        for (causal, pairs) in [(true, masked), (false, whole)] {
            state = self.each(f, pairs, given, state, |f, [query, key], given, state| {
                let (&[q, k, v], &[o, log]) = (given, state) else { return Vec::new() };
                let operands = [self.part(f, q, 1, query), self.part(f, k, 1, key), self.part(f, v, 1, key)];
                let &[new, new_log] = attend(f, &operands, causal, scale).as_slice() else { return Vec::new() };
                let old = [self.part(f, o, 1, query), self.part(f, log, 2, query)];
                let [both, total] = Attention::merge(f, old, [new, new_log]);
                vec![self.put(f, o, both, 1, query), self.put(f, log, total, 2, query)]
            });
        }
        match state.as_slice() {
            &[o, log] => vec![f.convert(o, self.a.dtype), log],
            _ => Vec::new(),
        }
    }

    fn backward(&self, f: F<'_, '_>, given: &[ValueId], masked: &[[u64; 2]], whole: &[[u64; 2]]) -> Vec<ValueId> {
        let types = self.a.types().1;
        let mut state: Vec<ValueId> =
            types.iter().map(|t| f.splat(TensorType::new(t.dims.clone(), DType::F32), 0.0)).collect();
        let scale = self.a.scale;
        for (causal, pairs) in [(true, masked), (false, whole)] {
            state = self.each(f, pairs, given, state, |f, [query, key], given, state| {
                // Queries, keys, values, output, logarithms, gradient of the output.
                let at = [(1, query), (1, key), (1, key), (1, query), (2, query), (1, query)];
                let operands: Vec<ValueId> = given.iter().zip(at).map(|(&x, (d, at))| self.part(f, x, d, at)).collect();
                let more = Attention::call(f, &operands, causal, scale);
                let mut next = Vec::new();
                for ((&sum, more), at) in state.iter().zip(more).zip([query, key, key]) {
                    let old = self.part(f, sum, 1, at);
                    let more = f.convert(more, DType::F32);
                    let new = f.add(old, more);
                    next.push(self.put(f, sum, new, 1, at));
                }
                next
            });
        }
        state.iter().map(|&x| f.convert(x, self.a.dtype)).collect()
    }
}

fn starts(f: F<'_, '_>, rank: usize, d: usize, at: ValueId) -> Vec<ValueId> {
    let zero = f.scalar(DType::I32, 0.0);
    (0..rank).map(|k| if k == d { at } else { zero }).collect()
}
