//! Comparators that compare one function of both elements: the function as an integer key.

use super::super::NodeId;
use super::*;
use crate::lower::math::{Direction, MapOp};
use crate::lower::sort::{Step, StepKind};

/// A comparison of the same function of both elements.
pub(super) struct Ordered {
    /// The step that computes the function of the first element.
    pub step: usize,
    pub descending: bool,
}

/// What a step computes, whichever of the two elements it is applied to.
#[derive(PartialEq, Eq, Hash)]
struct Form {
    what: String,
    args: Vec<usize>,
    dtype: DType,
}

/// For every step a number that equal functions share, and which elements it depends on.
fn forms(steps: &[Step]) -> Vec<(usize, [bool; 2])> {
    let mut seen: FxHashMap<Form, usize> = FxHashMap::default();
    let mut out: Vec<(usize, [bool; 2])> = Vec::new();
    for s in steps {
        let mut sides = [false; 2];
        let what = match s.what {
            StepKind::Word { word, second } => {
                sides[usize::from(second)] = true;
                format!("word {word}")
            }
            StepKind::Splat(bits) => format!("splat {bits}"),
            StepKind::Map(m, t) => format!("{m:?} {t}"),
        };
        for &a in &s.args {
            let of = out[a].1;
            sides = [sides[0] | of[0], sides[1] | of[1]];
        }
        let form = Form { what, args: s.args.iter().map(|&a| out[a].0).collect(), dtype: s.dtype };
        let next = seen.len();
        out.push((*seen.entry(form).or_insert(next), sides));
    }
    out
}

/// The comparator as a comparison of one function of both elements, if it is one and the order is total.
pub(super) fn ordered(steps: &[Step]) -> Option<Ordered> {
    let mut root = steps.last()?;
    while let (StepKind::Map(MapOp::Copy, _), &[a]) = (&root.what, &root.args[..]) {
        root = &steps[a];
    }
    let (StepKind::Map(MapOp::Compare(direction, total), dtype), &[a, b]) = (&root.what, &root.args[..]) else {
        return None;
    };
    let less = match direction {
        Direction::Lt => true,
        Direction::Gt => false,
        _ => return None,
    };
    let forms = forms(steps);
    let (first, second) = (forms[a], forms[b]);
    if dtype.is_float() && !total || first.0 != second.0 {
        return None;
    }
    match (first.1, second.1) {
        ([true, false], [false, true]) => Some(Ordered { step: a, descending: !less }),
        ([false, true], [true, false]) => Some(Ordered { step: b, descending: less }),
        _ => None,
    }
}

impl Builder<'_> {
    /// The key of every element: an i32 whose order is that of the comparison.
    pub(super) fn key(
        &mut self,
        steps: &[Step],
        o: &Ordered,
        operands: &[NodeId],
        dims: &[u64],
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let typed = |dtype| Shape { dims: dims.to_vec(), dtype };
        let mut values: Vec<NodeId> = Vec::new();
        for s in &steps[..=o.step] {
            let args: Vec<NodeId> = s.args.iter().map(|&a| values[a]).collect();
            values.push(match s.what {
                StepKind::Word { word, .. } => operands[word],
                StepKind::Splat(bits) => {
                    self.constant(contract::bits_to_bytes(bits, s.dtype), &typed(s.dtype), name, site.clone())
                }
                StepKind::Map(m, _) => self.map(m, &args, &typed(s.dtype), name, site.clone()),
            });
        }
        let x = values[o.step];
        let dtype = self.node(x).dtype;
        let int = typed(DType::I32);
        let mut key = if dtype.is_float() {
            let wide = self.map(MapOp::Convert, &[x], &typed(DType::F32), name, site.clone());
            let bits = self.map(MapOp::Bitcast, &[wide], &int, name, site.clone());
            self.total(bits, &int, name, site)
        } else if dtype == DType::U32 {
            let bits = self.map(MapOp::Bitcast, &[x], &int, name, site.clone());
            self.flipped(bits, i32::MIN, &int, name, site)
        } else {
            self.map(MapOp::Convert, &[x], &int, name, site.clone())
        };
        if o.descending {
            key = self.map(MapOp::Not, &[key], &int, name, site.clone());
        }
        key
    }

    /// The element behind a key, as a word.
    pub(super) fn behind_key(
        &mut self,
        key: NodeId,
        dtype: DType,
        descending: bool,
        dims: &[u64],
        name: &'static str,
        site: &(String, String),
    ) -> NodeId {
        let typed = |dtype| Shape { dims: dims.to_vec(), dtype };
        let int = typed(DType::I32);
        let mut x = key;
        if descending {
            x = self.map(MapOp::Not, &[x], &int, name, site.clone());
        }
        if dtype.is_float() {
            let bits = self.total(x, &int, name, site);
            return self.map(MapOp::Bitcast, &[bits], &typed(DType::F32), name, site.clone());
        }
        if dtype == DType::U32 {
            let bits = self.flipped(x, i32::MIN, &int, name, site);
            return self.map(MapOp::Bitcast, &[bits], &typed(dtype), name, site.clone());
        }
        x
    }

    /// Bits of an f32 as an integer of the same order, and back.
    fn total(&mut self, bits: NodeId, t: &Shape, name: &'static str, site: &(String, String)) -> NodeId {
        let shift = self.constant(contract::bits_to_bytes(31, t.dtype), t, name, site.clone());
        let sign = self.map(MapOp::ShrArith, &[bits, shift], t, name, site.clone());
        let rest = self.constant(contract::bits_to_bytes(i32::MAX, t.dtype), t, name, site.clone());
        let flip = self.map(MapOp::And, &[sign, rest], t, name, site.clone());
        self.map(MapOp::Xor, &[bits, flip], t, name, site.clone())
    }

    fn flipped(&mut self, x: NodeId, bits: i32, t: &Shape, name: &'static str, site: &(String, String)) -> NodeId {
        let m = self.constant(contract::bits_to_bytes(bits, t.dtype), t, name, site.clone());
        self.map(MapOp::Xor, &[x, m], t, name, site.clone())
    }
}
