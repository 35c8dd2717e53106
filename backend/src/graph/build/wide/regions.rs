//! Operations with a function of elements, where some of these are pairs: both parts become operands of their own.

use super::*;
use crate::lower::sort::{Step, StepKind};

/// Values of `types` from their nodes in turn.
fn gathered(types: &[Shape], nodes: Vec<NodeId>) -> Vec<Value> {
    let mut nodes = nodes.into_iter();
    let mut out = Vec::new();
    for t in types {
        let value = match (part_of(t.dtype), nodes.next()) {
            (None, Some(n)) => Value::One(n),
            (Some(_), Some(a)) => match nodes.next() {
                Some(b) => Value::Pair(t.dtype, [a, b]),
                None => break,
            },
            (_, None) => break,
        };
        out.push(value);
    }
    out
}

/// The comparison of one word.
fn by_word(word: usize, order: Direction, dtype: DType) -> Vec<Step> {
    let operand = |second| Step { what: StepKind::Word { word, second }, args: vec![], dtype };
    let compare = Step { what: StepKind::Map(MapOp::Compare(order, false), dtype), args: vec![0, 1], dtype: DType::I1 };
    let result = Step { what: StepKind::Map(MapOp::Copy, DType::I1), args: vec![2], dtype: DType::I1 };
    vec![operand(false), operand(true), compare, result]
}

impl Builder<'_> {
    pub(super) fn wide_sort(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        types: &[Shape],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let rank = types.first().map_or(0, |t| t.dims.len()) as i64;
        let d = op.attrs.int("dimension").unwrap_or(-1);
        let d = if d < 0 { d + rank } else { d };
        let (Ok(dim), true, [region]) = (usize::try_from(d), d < rank, &op.regions[..]) else {
            return Err(self.error(op.opcode.name(), op.loc, "needs a dimension of its operands and one comparator"));
        };
        let mut operands: Vec<NodeId> = args.iter().flat_map(|a| a.nodes()).collect();
        let key = self.plain_key(f, &region.block, args);
        // Sorting keeps the order of equal elements: by low words, then by high ones, is by both.
        let passes = match key {
            Some((low, order, signed)) => {
                let top = if signed { DType::I32 } else { DType::U32 };
                operands[low + 1] = self.reinterpreted(operands[low + 1], top, site);
                vec![by_word(low, order, DType::U32), by_word(low + 1, order, top)]
            }
            None => vec![self.comparator_of_pairs(f, op, &region.block, args, site)?],
        };
        // What is the same everywhere and compares nothing, such as the high words of positions, stays as it is.
        let mut read = vec![false; operands.len()];
        for steps in &passes {
            for a in steps.iter().flat_map(|s| &s.args) {
                if let StepKind::Word { word, .. } = steps[*a].what {
                    read[word] = true;
                }
            }
        }
        let moves: Vec<bool> = (0..read.len()).map(|i| read[i] || self.splat_of(operands[i]).is_none()).collect();
        let place = |i: usize| moves[..i].iter().filter(|m| **m).count();
        let mut moved: Vec<NodeId> = (0..read.len()).filter(|&i| moves[i]).map(|i| operands[i]).collect();
        if moved.is_empty() {
            return Ok(args.to_vec());
        }
        for mut steps in passes {
            for s in &mut steps {
                // Words that nothing reads may name any.
                if let StepKind::Word { word, .. } = &mut s.what {
                    *word = if moves[*word] { place(*word) } else { 0 };
                }
            }
            moved = self.sorted_by(&moved, dim, steps, site)?;
        }
        let mut out = operands;
        for i in (0..read.len()).filter(|&i| moves[i]) {
            out[i] = moved.get(place(i)).copied().unwrap_or(out[i]);
        }
        if let Some((low, ..)) = key {
            out[low + 1] = self.reinterpreted(out[low + 1], DType::U32, site);
        }
        Ok(gathered(types, out))
    }

    /// The bits of words as another type of words.
    fn reinterpreted(&mut self, x: NodeId, dtype: DType, site: &(String, String)) -> NodeId {
        if self.node(x).dtype == dtype {
            return x;
        }
        let t = Shape { dims: self.node(x).dims.clone(), dtype };
        self.map(MapOp::Bitcast, &[x], &t, "sort", site.clone())
    }

    /// The low word of the 64-bit integer that a comparator compares, with the direction and whether it is signed, if that is all it does.
    fn plain_key(&self, f: &Func, block: &Block, args: &[Value]) -> Option<(usize, Direction, bool)> {
        let [compare, ret] = &block.ops[..] else { return None };
        let &[a, b] = &compare.operands[..] else { return None };
        let Some(MapOp::Compare(order, _)) = self.map_of(compare).filter(|_| ret.operands == compare.results) else {
            return None;
        };
        let at = |v: ValueId| block.args.iter().position(|&x| x == v);
        let (i, j) = (at(a)?, at(b)?);
        let order = match order {
            Direction::Lt | Direction::Gt if i / 2 == j / 2 && i != j => order,
            _ => return None,
        };
        // The operands of the comparison may be exchanged.
        let order = match (order, i < j) {
            (o, true) => o,
            (Direction::Lt, false) => Direction::Gt,
            _ => Direction::Lt,
        };
        let dtype = f.ty(a).tensor()?.dtype;
        let low = args.get(..i / 2)?.iter().map(|v| v.nodes().count()).sum();
        matches!(dtype, DType::I64 | DType::U64).then_some((low, order, dtype == DType::I64))
    }

    /// The comparator as steps on the parts of its arguments.
    fn comparator_of_pairs(
        &mut self,
        f: &Func,
        op: &Op,
        block: &Block,
        args: &[Value],
        site: &(String, String),
    ) -> Result<Vec<Step>, LowerError> {
        let saved = (std::mem::take(&mut self.graph), std::mem::take(&mut self.seen));
        let mut env = Env::default();
        let (mut words, mut steps) = (Vec::new(), Vec::new());
        let mut word = 0;
        for (i, &a) in block.args.iter().enumerate() {
            let own = f.ty(a).tensor().map_or(DType::F32, |t| t.dtype);
            let count = args.get(i / 2).map_or(1, |v| v.nodes().count());
            let mut param = |b: &mut Self, part: usize| {
                let dtype = part_of(own).unwrap_or(own);
                let t = Shape { dims: vec![], dtype };
                words.push(StepKind::Word { word: word + part, second: i % 2 == 1 });
                b.push(NodeOp::Param(words.len() as u32 - 1), vec![], &t, "parameter", site.clone())
            };
            let value = match part_of(own) {
                Some(_) => Value::Pair(own, [param(self, 0), param(self, 1)]),
                None => Value::One(param(self, 0)),
            };
            env.insert(a, value);
            word += if i % 2 == 1 { count } else { 0 };
        }
        let results = self.block(f, block, &mut env, 0, Some(site));
        let inner = std::mem::replace(&mut self.graph, saved.0);
        self.seen = saved.1;
        let fail = |b: &Self, what: &str| {
            let m = format!("with {what} in its comparator is not lowered; elementwise operations and constants are");
            b.error(op.opcode.name(), op.loc, m)
        };
        let results = results?;
        let &[Value::One(root)] = &results[..] else { return Err(fail(self, "other than one result")) };
        for n in &inner.nodes {
            let what = match &n.op {
                NodeOp::Param(k) => words[*k as usize].clone(),
                NodeOp::Const(l) if l.is_splat() => StepKind::Splat(register_bits(l.element(0), n.dtype)),
                NodeOp::Map(m) => {
                    let of = usize::from(*m == MapOp::Select);
                    StepKind::Map(*m, inner.node(n.args[of]).dtype)
                }
                NodeOp::Reshape | NodeOp::Broadcast(_) if n.dims.is_empty() => StepKind::Map(MapOp::Copy, n.dtype),
                _ => return Err(fail(self, n.name)),
            };
            steps.push(Step { what, args: n.args.iter().map(|a| a.ix()).collect(), dtype: n.dtype });
        }
        let dtype = inner.node(root).dtype;
        steps.push(Step { what: StepKind::Map(MapOp::Copy, dtype), args: vec![root.ix()], dtype });
        Ok(steps)
    }
}
