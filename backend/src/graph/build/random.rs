//! `rng_bit_generator`: Threefry and Philox as elementwise functions of counters.
//!
//! The bits are those of XLA, state and all; `DEFAULT` is Philox. Counters are words with carries; every block of a generator is an
//! element of arrays of one dimension, put together to the result's shape at the end.

use super::super::{NodeId, NodeOp};
use super::special::Chain;
use super::wide::{Value, part_of};
use super::*;
use crate::hlo::Op;
use crate::lower::math::{Direction, MapOp};

const WORD: DType = DType::U32;

fn word(c: &mut Chain<'_, '_>, m: MapOp, args: &[NodeId]) -> NodeId {
    c.typed(m, args, WORD)
}

fn number(c: &mut Chain<'_, '_>, v: u32) -> NodeId {
    let t = Shape { dims: c.dims.clone(), dtype: WORD };
    c.b.constant(v.to_le_bytes().to_vec().into(), &t, c.name, c.site.clone())
}

/// A counter of several words, lowest first, advanced by `n`.
fn advanced(c: &mut Chain<'_, '_>, counter: &[NodeId], n: NodeId) -> Vec<NodeId> {
    let mut carry = n;
    let mut out = Vec::new();
    for &w in counter {
        let sum = word(c, MapOp::Add, &[w, carry]);
        let over = c.typed(MapOp::Compare(Direction::Lt, false), &[sum, w], DType::I1);
        carry = word(c, MapOp::Convert, &[over]);
        out.push(sum);
    }
    out
}

/// Threefry-2x32 with 20 rounds (Salmon et al. 2011).
fn threefry(c: &mut Chain<'_, '_>, key: [NodeId; 2], counter: [NodeId; 2]) -> [NodeId; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let parity = number(c, 0x1bd1_1bda);
    let third = word(c, MapOp::Xor, &[key[0], key[1]]);
    let third = word(c, MapOp::Xor, &[third, parity]);
    let keys = [key[0], key[1], third];
    let mut a = word(c, MapOp::Add, &[counter[0], keys[0]]);
    let mut b = word(c, MapOp::Add, &[counter[1], keys[1]]);
    for group in 0..5usize {
        for r in ROTATIONS[group % 2] {
            a = word(c, MapOp::Add, &[a, b]);
            let (up, down) = (number(c, r), number(c, 32 - r));
            let (high, low) = (word(c, MapOp::Shl, &[b, up]), word(c, MapOp::ShrLogical, &[b, down]));
            let turned = word(c, MapOp::Or, &[high, low]);
            b = word(c, MapOp::Xor, &[turned, a]);
        }
        a = word(c, MapOp::Add, &[a, keys[(group + 1) % 3]]);
        let more = number(c, group as u32 + 1);
        b = word(c, MapOp::Add, &[b, keys[(group + 2) % 3]]);
        b = word(c, MapOp::Add, &[b, more]);
    }
    [a, b]
}

/// Philox-4x32 with 10 rounds (Salmon et al. 2011).
fn philox(c: &mut Chain<'_, '_>, key: [NodeId; 2], counter: &[NodeId]) -> Vec<NodeId> {
    let (p, q) = (number(c, 0xd251_1f53), number(c, 0xcd9e_8d57));
    let (mut w, mut key) = (counter.to_vec(), key);
    let steps = [number(c, 0x9e37_79b9), number(c, 0xbb67_ae85)];
    for _ in 0..10 {
        let (high, low) = (word(c, MapOp::MulHigh, &[w[0], p]), word(c, MapOp::Mul, &[w[0], p]));
        let (high2, low2) = (word(c, MapOp::MulHigh, &[w[2], q]), word(c, MapOp::Mul, &[w[2], q]));
        let x = word(c, MapOp::Xor, &[high2, w[1]]);
        let x = word(c, MapOp::Xor, &[x, key[0]]);
        let y = word(c, MapOp::Xor, &[high, w[3]]);
        let y = word(c, MapOp::Xor, &[y, key[1]]);
        w = vec![x, low2, y, low];
        key = [0, 1].map(|i| word(c, MapOp::Add, &[key[i], steps[i]]));
    }
    w
}

impl Builder<'_> {
    pub(super) fn random_bits(
        &mut self,
        f: &Func,
        op: &Op,
        args: &[Value],
        site: &(String, String),
    ) -> Result<Vec<Value>, LowerError> {
        let name = "rng_bit_generator";
        let (&[state], &[_, out]) = (args, &op.results[..]) else {
            return Err(self.error(op.opcode.name(), op.loc, "needs a state and two results"));
        };
        let t = self.tensor(f, out, op.opcode.name(), op.loc)?;
        let words = self.state_words(state, name, site);
        let whole = matches!(state, Value::One(n) if self.node(n).dtype.bits() == 32)
            || matches!(state, Value::Pair(DType::I64 | DType::U64, _));
        let wide = part_of(t.dtype).is_some();
        let fits = !wide || matches!(t.dtype, DType::I64 | DType::U64);
        let threefry_asked = op.attrs.text("rng_algorithm") == Some("THREE_FRY");
        if !whole || !fits || t.dtype.bits() < 8 || !(words.len() == 4 || words.len() == 6 && !threefry_asked) {
            let m = format!(
                "that gives {} from a state of this type is not lowered; words of 8 to 64 bits from u32 or u64 are",
                t.dtype
            );
            return Err(self.error(op.opcode.name(), op.loc, m));
        }
        let count: u64 = t.dims.iter().product();
        let (streams, shape, used) = if threefry_asked {
            self.threefry_words(&words, &t.dims, wide, name, site)
        } else {
            self.philox_words(&words, count, wide, name, site)
        };
        // Words of the result, one behind the other: low ones, and high ones of 64 bits.
        let mut parts = Vec::new();
        for stream in streams {
            let x = self.interleaved(&stream, &shape, &t.dims, name, site);
            parts.push(self.as_type(x, &t, name, site));
        }
        let value = match parts[..] {
            [low, high] => Value::Pair(t.dtype, [low, high]),
            [one] => Value::One(one),
            _ => return Err(self.error(op.opcode.name(), op.loc, "gives no words")),
        };
        // The state moves on; without a word for it the counter's high half is dropped.
        let mut c = Chain { b: self, dims: vec![], name, site: site.clone() };
        let n = number(&mut c, used);
        let length = if threefry_asked || words.len() == 4 { 4 } else { 6 };
        let mut next = words[..2].to_vec();
        next.extend(advanced(&mut c, &words[2..length], n));
        Ok(vec![self.packed_state(state, &next, name, site), value])
    }

    /// The words of the state as scalars, lowest first.
    fn state_words(&mut self, state: Value, name: &'static str, site: &(String, String)) -> Vec<NodeId> {
        let scalar = Shape { dims: vec![], dtype: WORD };
        let nodes: Vec<NodeId> = state.nodes().collect();
        let size = self.node(nodes[0]).dims.first().copied().unwrap_or(0);
        let mut out = Vec::new();
        for i in 0..size {
            for &n in &nodes {
                let dtype = self.node(n).dtype;
                let x = self.cut(n, 0, [i, 1, 1], name, site);
                let x = self.reshape(x, &Shape { dims: vec![], dtype }, name, site.clone());
                let same = dtype == WORD;
                out.push(if same { x } else { self.map(MapOp::Bitcast, &[x], &scalar, name, site.clone()) });
            }
        }
        out
    }

    /// The state made of `words`.
    fn packed_state(&mut self, state: Value, words: &[NodeId], name: &'static str, site: &(String, String)) -> Value {
        let parts = state.nodes().count();
        let mut k = 0;
        state.map(|n| {
            let dtype = self.node(n).dtype;
            let mut list = Vec::new();
            for &w in words.iter().skip(k).step_by(parts) {
                let one = Shape { dims: vec![], dtype };
                let w = if dtype == WORD { w } else { self.map(MapOp::Bitcast, &[w], &one, name, site.clone()) };
                list.push(self.reshape(w, &Shape { dims: vec![1], dtype }, name, site.clone()));
            }
            k += 1;
            let t = Shape { dims: vec![list.len() as u64], dtype };
            self.push(NodeOp::Concat(0), list, &t, name, site.clone())
        })
    }

    /// Streams of words, each as the arrays that take turns along dimension 2 of the shape (arrays' dimensions without it), and how many
    /// blocks they took.
    #[allow(clippy::type_complexity)]
    fn threefry_words(
        &mut self,
        words: &[NodeId],
        dims: &[u64],
        wide: bool,
        name: &'static str,
        site: &(String, String),
    ) -> (Vec<Vec<NodeId>>, [u64; 3], u32) {
        let count: u64 = dims.iter().product();
        let longest = || (0..dims.len()).rev().max_by_key(|&d| dims[d]);
        let split = dims.iter().position(|d| d.is_multiple_of(2)).or_else(longest);
        let (outer, half, inner) = match split {
            _ if wide => (1, count, 1),
            None => (1, 1, 1),
            Some(d) => (dims[..d].iter().product(), dims[d].div_ceil(2), dims[d + 1..].iter().product()),
        };
        let blocks: u64 = outer * half * inner;
        let (key, counter) = self.counters(words, blocks, name, site);
        let mut c = Chain { b: self, dims: vec![blocks], name, site: site.clone() };
        let [a, b] = threefry(&mut c, key, [counter[0], counter[1]]);
        let streams = if wide { vec![vec![a], vec![b]] } else { vec![vec![a, b]] };
        (streams, [outer, half, inner], blocks as u32)
    }

    #[allow(clippy::type_complexity)]
    fn philox_words(
        &mut self,
        words: &[NodeId],
        count: u64,
        wide: bool,
        name: &'static str,
        site: &(String, String),
    ) -> (Vec<Vec<NodeId>>, [u64; 3], u32) {
        let blocks = count.div_ceil(if wide { 2 } else { 4 });
        // A state of two words has the key above the counter, too.
        let all = [words[0], words[1], words[2], words[3]];
        let high = if words.len() == 6 { [words[4], words[5]] } else { [words[0], words[1]] };
        let (key, counter) = self.counters(&[&all[..], &high[..]].concat(), blocks, name, site);
        let mut c = Chain { b: self, dims: vec![blocks], name, site: site.clone() };
        let w = philox(&mut c, key, &counter);
        let streams = if wide { vec![vec![w[0], w[2]], vec![w[1], w[3]]] } else { vec![w] };
        (streams, [1, blocks, 1], blocks as u32)
    }

    /// Key and counter of `blocks` blocks.
    fn counters(
        &mut self,
        words: &[NodeId],
        blocks: u64,
        name: &'static str,
        site: &(String, String),
    ) -> ([NodeId; 2], Vec<NodeId>) {
        let t = Shape { dims: vec![blocks], dtype: WORD };
        let n = self.push(NodeOp::Iota(0), vec![], &t, name, site.clone());
        let all: Vec<NodeId> = words.iter().map(|&w| self.broadcast(w, vec![], &t, name, site.clone())).collect();
        let mut c = Chain { b: self, dims: t.dims, name, site: site.clone() };
        let counter = advanced(&mut c, &all[2..], n);
        ([all[0], all[1]], counter)
    }

    /// Arrays of `[outer, half, inner]` elements that take turns along the second dimension, cut and brought to `dims`.
    fn interleaved(
        &mut self,
        arrays: &[NodeId],
        &[outer, half, inner]: &[u64; 3],
        dims: &[u64],
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let count: u64 = dims.iter().product();
        let turns = arrays.len() as u64;
        let of = |d: Vec<u64>| Shape { dims: d, dtype: WORD };
        let list: Vec<NodeId> =
            arrays.iter().map(|&a| self.reshape(a, &of(vec![outer, half, 1, inner]), name, site.clone())).collect();
        let all = match list[..] {
            [one] => one,
            _ => self.push(NodeOp::Concat(2), list, &of(vec![outer, half, turns, inner]), name, site.clone()),
        };
        let x = self.reshape(all, &of(vec![outer, half * turns, inner]), name, site.clone());
        let kept = count / (outer * inner).max(1);
        let x = self.cut(x, 1, [0, 1, kept], name, site);
        self.reshape(x, &of(dims.to_vec()), name, site.clone())
    }

    /// The low bits of words as elements of `t`, or of its parts.
    fn as_type(&mut self, x: NodeId, t: &Shape, name: &'static str, site: &(String, String)) -> NodeId {
        let typed = |dtype| Shape { dims: t.dims.clone(), dtype };
        let bits = t.dtype.bits();
        if part_of(t.dtype).is_some() {
            return x;
        }
        let narrow = match bits {
            8 => DType::U8,
            16 => DType::U16,
            _ => WORD,
        };
        let x = self.map(MapOp::Convert, &[x], &typed(narrow), name, site.clone());
        if t.dtype == narrow { x } else { self.map(MapOp::Bitcast, &[x], &typed(t.dtype), name, site.clone()) }
    }
}
