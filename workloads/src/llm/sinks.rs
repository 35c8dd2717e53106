//! Attention sinks: each head has a score of its own that takes part in the softmax and has no value, so that a query need not attend to
//! anything (gpt-oss, arXiv:2508.10925).
//!
//! With `L` the logarithm of a query's sum of exponentials and `s` the sink, outputs are scaled by `1 / (1 + exp(s - L))` and the logarithm
//! becomes that of the larger sum. From these the gradient of attention is right as it is; that of the sink is minus its weight times the
//! output by its gradient.

use tpusim_backend::hlo::{FuncBuilder, Opcode, ReduceKind, ValueId};
use tpusim_isa::num::DType;

use super::attention::Sizes;
use super::layer::{Block, Tape};
use super::weights::Named;

type F<'a, 'm> = &'a mut FuncBuilder<'m>;

/// Values by query `(batch, seq, kv_heads, group)` in the order of logarithms, or back.
fn by_row(f: F<'_, '_>, s: &Sizes, x: ValueId) -> ValueId {
    let order: [i64; 4] = if s.block == 0 { [0, 2, 3, 1] } else { [0, 2, 1, 3] };
    let x = f.transpose(x, &order);
    f.reshape(x, &s.rows())
}

impl Block<'_> {
    /// A head's sink along the logarithms of its queries.
    fn sink_rows(&self, f: F<'_, '_>, t: &Tape<'_>, s: &Sizes) -> ValueId {
        let sinks = t.weights.get(f, "sinks");
        let sinks = f.convert(sinks, DType::F32);
        let sinks = f.reshape(sinks, &[s.kv_heads, s.group]);
        let sinks = f.broadcast_along(sinks, &[2, 3], &[s.batch, s.seq, s.kv_heads, s.group]);
        by_row(f, s, sinks)
    }

    /// Outputs `(batch, seq, heads, value)` and logarithms of attention, with the sinks in their sums.
    pub(super) fn with_sinks(
        &self,
        f: F<'_, '_>,
        t: &Tape<'_>,
        s: &Sizes,
        (o, log_sum): (ValueId, ValueId),
    ) -> (ValueId, ValueId) {
        f.name("layer/attention/sinks");
        let sinks = self.sink_rows(f, t, s);
        let above = f.binary(Opcode::Subtract, log_sum, sinks);
        let share = f.unary(Opcode::Logistic, above);
        let log = f.unary(Opcode::Log, share);
        let log_sum = f.binary(Opcode::Subtract, log_sum, log);
        let (split, order): ([i64; 4], [i64; 4]) = match s.block {
            0 => ([s.batch, s.kv_heads, s.group, s.seq], [0, 3, 1, 2]),
            _ => ([s.batch, s.kv_heads, s.seq, s.group], [0, 2, 1, 3]),
        };
        let share = f.reshape(share, &split);
        let share = f.transpose(share, &order);
        let ty = f.ty(o);
        let share = f.reshape(share, &[s.batch, s.seq, s.kv_heads * s.group]);
        let share = f.broadcast_along(share, &[0, 1, 2], &ty.dims);
        let wide = f.convert(o, DType::F32);
        let wide = f.mul(wide, share);
        (f.convert(wide, ty.dtype), log_sum)
    }

    /// Gradients of the sinks into `grads`, from outputs and logarithms with them and the gradient of outputs.
    pub(super) fn sink_gradient(
        &self,
        f: F<'_, '_>,
        t: &Tape<'_>,
        grads: &mut Named,
        s: &Sizes,
        [o, log_sum, go]: [ValueId; 3],
    ) {
        f.name("layer/attention/sinks/gradient");
        let sinks = self.sink_rows(f, t, s);
        let weight = f.binary(Opcode::Subtract, sinks, log_sum);
        let weight = f.unary(Opcode::Exponential, weight);
        let (o, go) = (f.convert(o, DType::F32), f.convert(go, DType::F32));
        let product = f.mul(o, go);
        let delta = f.reduce(ReduceKind::Sum, product, &[3]);
        let delta = f.reshape(delta, &[s.batch, s.seq, s.kv_heads, s.group]);
        let delta = by_row(f, s, delta);
        let each = f.mul(weight, delta);
        let (split, over): ([i64; 4], [i64; 2]) = match s.block {
            0 => ([s.batch, s.kv_heads, s.group, s.seq], [0, 3]),
            _ => ([s.batch, s.kv_heads, s.seq, s.group], [0, 2]),
        };
        let each = f.reshape(each, &split);
        let sum = f.reduce(ReduceKind::Sum, each, &over);
        let sum = f.reshape(sum, &[s.kv_heads * s.group]);
        let gradient = f.binary_scalar(Opcode::Multiply, sum, -1.0);
        let gradient = f.convert(gradient, self.gradient);
        grads.set("sinks", gradient);
    }
}
