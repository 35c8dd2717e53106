//! How often a loop runs, where its program says it: a counter that starts at a constant, is compared with a constant, and grows by one.

use super::super::{Graph, NodeId, NodeOp, Region};
use super::*;
use crate::hlo::Attr;
use crate::lower::math::{Direction, MapOp};

/// Nodes looked at for one constant.
const MAX_NODES: u32 = 64;

fn range(dtype: DType) -> Option<(i128, i128)> {
    let bits = dtype.bits() as u32;
    match (dtype.is_int() || dtype == DType::I1, dtype.is_signed() && dtype != DType::I1) {
        (false, _) => None,
        (true, true) => Some((-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)),
        (true, false) => Some((0, (1i128 << bits) - 1)),
    }
}

/// The integer in little-endian `bytes`.
fn literal(bytes: &[u8], dtype: DType) -> Option<i128> {
    let (_, high) = range(dtype)?;
    let mut raw = [0u8; 8];
    raw.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let v = i128::from(u64::from_le_bytes(raw));
    // Sign extension.
    Some(if v > high { v - (high + 1) * 2 } else { v })
}

/// The value of an integer that is the same everywhere and known.
pub(super) fn integer(g: &Graph, id: NodeId) -> Option<i128> {
    known(g, id, &mut { MAX_NODES })
}

fn known(g: &Graph, id: NodeId, left: &mut u32) -> Option<i128> {
    *left = left.checked_sub(1)?;
    let n = g.node(id);
    let (low, high) = range(n.dtype)?;
    let mut arg = |i: usize| n.args.get(i).and_then(|a| known(g, *a, left));
    let value = match &n.op {
        NodeOp::Const(l) if l.is_splat() => {
            return literal(l.element(0), n.dtype);
        }
        NodeOp::Broadcast(_) | NodeOp::Reshape | NodeOp::Slice { .. } | NodeOp::Map(MapOp::Copy | MapOp::Convert) => {
            arg(0)?
        }
        NodeOp::Map(MapOp::Add) => arg(0)? + arg(1)?,
        NodeOp::Map(MapOp::Sub) => arg(0)? - arg(1)?,
        NodeOp::Map(MapOp::Mul) => arg(0)?.checked_mul(arg(1)?)?,
        NodeOp::Map(MapOp::Max) => arg(0)?.max(arg(1)?),
        NodeOp::Map(MapOp::Min) => arg(0)?.min(arg(1)?),
        _ => return None,
    };
    // What wraps is left alone.
    (low..=high).contains(&value).then_some(value)
}

/// The carried value that `id` is, perhaps widened.
fn counter(r: &Region, id: NodeId) -> Option<usize> {
    let g = &r.graph;
    let n = g.node(id);
    if let (NodeOp::Map(MapOp::Convert), [a]) = (&n.op, &n.args[..])
        && let (Some(to), Some(from)) = (range(n.dtype), range(g.node(*a).dtype))
        && to.0 <= from.0
        && from.1 <= to.1
    {
        return counter(r, *a);
    }
    g.params.iter().position(|p| *p == id).map(|at| r.binds[at])
}

/// A constant of a region: one made in it, or one made around it.
fn constant(outer: &Graph, operands: &[NodeId], carried: usize, r: &Region, id: NodeId) -> Option<i128> {
    integer(&r.graph, id).or_else(|| {
        let at = r.graph.params.iter().position(|p| *p == id)?;
        let bind = r.binds[at];
        (bind >= carried).then(|| operands.get(bind).and_then(|o| integer(outer, *o))).flatten()
    })
}

/// A loop that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    /// The argument that counts.
    pub arg: usize,
    /// Number of iterations.
    pub trip: u32,
    start: i128,
    step: i128,
    dtype: DType,
}

impl Counted {
    /// Start, step and end in 32 bits, if `value` is held in 32 bits or never leaves the low word of a pair.
    pub fn words(&self, value: &Value) -> Option<(i32, i32, i32)> {
        let end = self.start + self.step * i128::from(self.trip);
        let held = match value {
            Value::One(_) => matches!(self.dtype, DType::I32 | DType::U32),
            Value::Pair(..) => [self.start, end].iter().all(|v| (0..=i128::from(i32::MAX)).contains(v)),
        };
        let step = i32::try_from(self.step).ok()?;
        held.then_some((self.start as i32, step, end as i32))
    }
}

fn defining(block: &Block, v: ValueId) -> Option<&Op> {
    block.ops.iter().find(|o| o.results.contains(&v))
}

impl Builder<'_> {
    fn integer_of(&self, v: &Value) -> Option<i128> {
        match *v {
            Value::One(n) => integer(&self.graph, n),
            Value::Pair(t @ (DType::I64 | DType::U64), [low, high]) => {
                let word = |n: NodeId| integer(&self.graph, n).map(|v| v as u32);
                let bits = u64::from(word(low)?) | u64::from(word(high)?) << 32;
                Some(if t == DType::I64 { i128::from(bits as i64) } else { i128::from(bits) })
            }
            Value::Pair(..) => None,
        }
    }

    /// The integer that `v` is in every iteration, where `block` is a region of a loop that starts with `values`.
    fn fixed(&self, block: &Block, passed: &[bool], values: &[Value], env: &Env, v: ValueId) -> Option<i128> {
        if let Some(k) = block.args.iter().position(|a| *a == v) {
            return passed[k].then(|| self.integer_of(&values[k])).flatten();
        }
        match defining(block, v) {
            Some(op) if op.opcode == Opcode::Constant => {
                let Some(Attr::Dense(l)) = op.attrs.get("value") else { return None };
                literal(l.is_splat().then(|| l.element(0))?, l.ty.dtype)
            }
            Some(_) => None,
            None => self.integer_of(env.get(&v)?),
        }
    }

    /// How the loop with these regions counts, if the regions themselves say it.
    pub(super) fn counted(
        &self,
        f: &Func,
        (cond, body): (&Block, &Block),
        values: &[Value],
        env: &Env,
    ) -> Option<Counted> {
        let returned = &body.ops.last()?.operands;
        let passed: Vec<bool> = (0..values.len()).map(|k| returned.get(k) == body.args.get(k)).collect();
        let fixed = |block: &Block, v: ValueId| self.fixed(block, &passed, values, env, v);
        let counter = |block: &Block, v: ValueId| block.args.iter().position(|a| *a == v).filter(|k| !passed[*k]);
        let test = defining(cond, *cond.ops.last()?.operands.first()?)?;
        let (Some(MapOp::Compare(direction, _)), &[a, b]) = (self.map_of(test), &test.operands[..]) else {
            return None;
        };
        let (arg, limit, direction) = match (counter(cond, a), counter(cond, b)) {
            (Some(k), None) => (k, fixed(cond, b)?, direction),
            (None, Some(k)) => (k, fixed(cond, a)?, flipped(direction)),
            _ => return None,
        };
        let start = self.integer_of(&values[arg])?;
        let next = defining(body, *returned.get(arg)?)?;
        let step = match (next.opcode, &next.operands[..]) {
            (Opcode::Add, [a, b]) if counter(body, *a) == Some(arg) => fixed(body, *b)?,
            (Opcode::Add, [a, b]) if counter(body, *b) == Some(arg) => fixed(body, *a)?,
            (Opcode::Subtract, [a, b]) if counter(body, *a) == Some(arg) => -fixed(body, *b)?,
            _ => return None,
        };
        let t = f.ty(*body.args.get(arg)?).tensor().filter(|t| t.dims.is_empty())?;
        let n = count(start, limit, step, direction)?;
        let (low, high) = range(t.dtype)?;
        (low..=high).contains(&(start + step.checked_mul(n)?)).then_some(())?;
        Some(Counted { arg, trip: u32::try_from(n).ok()?, start, step, dtype: t.dtype })
    }
}

/// Number of iterations of a loop over `operands` of `outer`; `None` if it is not said or beyond 32 bits.
pub(super) fn trip_count(outer: &Graph, operands: &[NodeId], cond: &Region, body: &Region) -> Option<u32> {
    let carried = body.graph.outputs.len();
    let constant = |r: &Region, id: NodeId| constant(outer, operands, carried, r, id);
    let output = *cond.graph.outputs.first()?;
    if integer(&cond.graph, output) == Some(0) {
        return Some(0);
    }
    let test = cond.graph.node(output);
    let (NodeOp::Map(MapOp::Compare(direction, _)), [a, b]) = (&test.op, &test.args[..]) else { return None };
    let (k, limit, direction) = match (counter(cond, *a), counter(cond, *b)) {
        (Some(k), _) if k < carried => (k, constant(cond, *b)?, *direction),
        (_, Some(k)) if k < carried => (k, constant(cond, *a)?, flipped(*direction)),
        _ => return None,
    };
    let start = integer(outer, *operands.get(k)?)?;
    let next = body.graph.node(*body.graph.outputs.get(k)?);
    let is_counter = |id: NodeId| body.graph.params.iter().position(|p| *p == id).is_some_and(|at| body.binds[at] == k);
    let step = match (&next.op, &next.args[..]) {
        (NodeOp::Map(MapOp::Add), [a, b]) if is_counter(*a) => constant(body, *b)?,
        (NodeOp::Map(MapOp::Add), [a, b]) if is_counter(*b) => constant(body, *a)?,
        (NodeOp::Map(MapOp::Sub), [a, b]) if is_counter(*a) => -constant(body, *b)?,
        _ => return None,
    };
    let n = count(start, limit, step, direction)?;
    // Every value that is compared has to be what it says.
    let (low, high) = range(next.dtype)?;
    (low..=high).contains(&(start + step.checked_mul(n)?)).then(|| u32::try_from(n).ok()).flatten()
}

fn flipped(d: Direction) -> Direction {
    match d {
        Direction::Lt => Direction::Gt,
        Direction::Le => Direction::Ge,
        Direction::Gt => Direction::Lt,
        Direction::Ge => Direction::Le,
        other => other,
    }
}

fn count(start: i128, limit: i128, step: i128, d: Direction) -> Option<i128> {
    let (start, limit, step) = match d {
        Direction::Lt => (start, limit, step),
        Direction::Le => (start, limit + 1, step),
        Direction::Gt => (-start, -limit, -step),
        Direction::Ge => (-start, -limit + 1, -step),
        Direction::Eq if start != limit => return Some(0),
        Direction::Eq => return (step != 0).then_some(1),
        Direction::Ne if start == limit => return Some(0),
        Direction::Ne => {
            let n = (limit - start).checked_div(step).filter(|n| *n > 0)?;
            return (n * step == limit - start).then_some(n);
        }
    };
    if start >= limit {
        return Some(0);
    }
    (step > 0).then(|| (limit - start + step - 1) / step)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: counting.
    #[test]
    fn counts_as_a_loop_would() {
        let holds = |d: Direction, a: i128, b: i128| match d {
            Direction::Eq => a == b,
            Direction::Ne => a != b,
            Direction::Lt => a < b,
            Direction::Le => a <= b,
            Direction::Gt => a > b,
            Direction::Ge => a >= b,
        };
        let all = [Direction::Eq, Direction::Ne, Direction::Lt, Direction::Le, Direction::Gt, Direction::Ge];
        for d in all {
            for (start, limit, step) in
                (-6..6).flat_map(|s| (-6..6).flat_map(move |l| [-3, -2, -1, 0, 1, 2, 3].map(move |k| (s, l, k))))
            {
                let (mut i, mut n) = (start, 0);
                while holds(d, i, limit) && n < 100 {
                    (i, n) = (i + step, n + 1);
                }
                let want = (n < 100).then_some(n);
                assert_eq!(count(start, limit, step, d), want, "{start} {d:?} {limit} step {step}");
            }
        }
    }
}
