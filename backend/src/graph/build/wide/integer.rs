//! 64-bit integers from words: sums, products, comparisons. What needs many steps is a [`WideOp`].

use super::*;

fn u(c: &mut Chain<'_, '_>, m: MapOp, args: &[NodeId]) -> NodeId {
    c.typed(m, args, DType::U32)
}

/// The same bits as a signed word.
fn signed_word(c: &mut Chain<'_, '_>, x: NodeId) -> NodeId {
    c.typed(MapOp::Bitcast, &[x], DType::I32)
}

/// All bits equal to the sign of the high word.
fn sign_word(c: &mut Chain<'_, '_>, high: NodeId) -> NodeId {
    let h = signed_word(c, high);
    let n = number(c, 31, DType::I32);
    let s = c.typed(MapOp::ShrArith, &[h, n], DType::I32);
    u(c, MapOp::Bitcast, &[s])
}

fn flag_word(c: &mut Chain<'_, '_>, p: NodeId) -> NodeId {
    u(c, MapOp::Convert, &[p])
}

fn flag(c: &mut Chain<'_, '_>, d: Direction, a: NodeId, b: NodeId) -> NodeId {
    c.typed(MapOp::Compare(d, false), &[a, b], DType::I1)
}

pub(in super::super) fn compare(c: &mut Chain<'_, '_>, d: Direction, signed: bool, a: Parts, b: Parts) -> NodeId {
    use Direction::*;
    let not = |c: &mut Chain<'_, '_>, p| c.typed(MapOp::Not, &[p], DType::I1);
    match d {
        Eq => equal(c, a, b),
        Ne => {
            let p = equal(c, a, b);
            not(c, p)
        }
        Gt => compare(c, Lt, signed, b, a),
        Ge => compare(c, Le, signed, b, a),
        Lt | Le => {
            let low = flag(c, d, a[0], b[0]);
            let (x, y) = if signed { (signed_word(c, a[1]), signed_word(c, b[1])) } else { (a[1], b[1]) };
            let (high, same) = (flag(c, Lt, x, y), flag(c, Eq, x, y));
            let low = c.typed(MapOp::And, &[same, low], DType::I1);
            c.typed(MapOp::Or, &[high, low], DType::I1)
        }
    }
}

pub(super) fn add(c: &mut Chain<'_, '_>, a: Parts, b: Parts) -> Parts {
    let low = u(c, MapOp::Add, &[a[0], b[0]]);
    let carry = flag(c, Direction::Lt, low, a[0]);
    let carry = flag_word(c, carry);
    let high = u(c, MapOp::Add, &[a[1], b[1]]);
    [low, u(c, MapOp::Add, &[high, carry])]
}

fn sub(c: &mut Chain<'_, '_>, a: Parts, b: Parts) -> Parts {
    let low = u(c, MapOp::Sub, &[a[0], b[0]]);
    let borrow = flag(c, Direction::Lt, a[0], b[0]);
    let borrow = flag_word(c, borrow);
    let high = u(c, MapOp::Sub, &[a[1], b[1]]);
    [low, u(c, MapOp::Sub, &[high, borrow])]
}

fn mul(c: &mut Chain<'_, '_>, a: Parts, b: Parts) -> Parts {
    let low = u(c, MapOp::Mul, &[a[0], b[0]]);
    let mut high = u(c, MapOp::MulHigh, &[a[0], b[0]]);
    for (x, y) in [(a[0], b[1]), (a[1], b[0])] {
        let p = u(c, MapOp::Mul, &[x, y]);
        high = u(c, MapOp::Add, &[high, p]);
    }
    [low, high]
}

pub(super) fn zero(c: &mut Chain<'_, '_>) -> Parts {
    let z = number(c, 0, DType::U32);
    [z, z]
}

/// A shift by the same known amount everywhere.
fn shift_by(c: &mut Chain<'_, '_>, m: MapOp, a: Parts, n: u32) -> Parts {
    let shift = |c: &mut Chain<'_, '_>, m: MapOp, x: NodeId, n: u32| match n {
        0 => x,
        _ => {
            let n = number(c, n, DType::U32);
            u(c, m, &[x, n])
        }
    };
    let arith = |c: &mut Chain<'_, '_>, x: NodeId, n: u32| {
        let (x, n) = (signed_word(c, x), number(c, n, DType::I32));
        let y = c.typed(MapOp::ShrArith, &[x, n], DType::I32);
        u(c, MapOp::Bitcast, &[y])
    };
    let z = number(c, 0, DType::U32);
    match m {
        _ if n == 0 => a,
        MapOp::Shl if n >= 64 => [z, z],
        MapOp::Shl if n >= 32 => [z, shift(c, MapOp::Shl, a[0], n - 32)],
        MapOp::Shl => {
            let (h, l) = (shift(c, MapOp::Shl, a[1], n), shift(c, MapOp::ShrLogical, a[0], 32 - n));
            [shift(c, MapOp::Shl, a[0], n), u(c, MapOp::Or, &[h, l])]
        }
        MapOp::ShrLogical if n >= 64 => [z, z],
        MapOp::ShrLogical if n >= 32 => [shift(c, MapOp::ShrLogical, a[1], n - 32), z],
        _ if n >= 32 => [arith(c, a[1], (n - 32).min(31)), arith(c, a[1], 31)],
        _ => {
            let (l, h) = (shift(c, MapOp::ShrLogical, a[0], n), shift(c, MapOp::Shl, a[1], 32 - n));
            let low = u(c, MapOp::Or, &[l, h]);
            let high = if m == MapOp::ShrLogical { shift(c, m, a[1], n) } else { arith(c, a[1], n) };
            [low, high]
        }
    }
}

/// The elementwise operation `m`; `None` if integers have none such.
pub(in super::super) fn map(c: &mut Chain<'_, '_>, m: MapOp, signed: bool, args: &[Parts]) -> Option<Parts> {
    let a = *args.first()?;
    let b = args.get(1).copied().unwrap_or(a);
    let all = [a[0], a[1], b[0], b[1]];
    let long = |c: &mut Chain<'_, '_>, op: WideOp| wide_of(c, op, &all, DType::U32);
    Some(match m {
        MapOp::Add => add(c, a, b),
        MapOp::Sub => sub(c, a, b),
        MapOp::Mul => mul(c, a, b),
        MapOp::Div => long(c, WideOp::Divide(signed)),
        MapOp::Rem => long(c, WideOp::Remainder(signed)),
        MapOp::Pow => long(c, WideOp::Power(signed)),
        MapOp::And | MapOp::Or | MapOp::Xor => [u(c, m, &[a[0], b[0]]), u(c, m, &[a[1], b[1]])],
        MapOp::Not => [u(c, m, &[a[0]]), u(c, m, &[a[1]])],
        MapOp::Max | MapOp::Min => {
            let (x, y) = if m == MapOp::Max { (b, a) } else { (a, b) };
            let less = compare(c, Direction::Lt, signed, x, y);
            choose(c, less, a, b)
        }
        MapOp::Shl | MapOp::ShrLogical | MapOp::ShrArith => match convert::known(c.b, b) {
            Some(n) => shift_by(c, m, a, n.min(64) as u32),
            None => long(
                c,
                match m {
                    MapOp::Shl => WideOp::Shl,
                    MapOp::ShrLogical => WideOp::ShrLogical,
                    _ => WideOp::ShrArith,
                },
            ),
        },
        MapOp::Neg => {
            let z = zero(c);
            sub(c, z, a)
        }
        MapOp::Abs if !signed => a,
        MapOp::Abs => {
            // (x ^ s) - s for s = 0 or -1.
            let s = sign_word(c, a[1]);
            let x = [u(c, MapOp::Xor, &[a[0], s]), u(c, MapOp::Xor, &[a[1], s])];
            sub(c, x, [s, s])
        }
        MapOp::Sign => {
            let z = number(c, 0, DType::U32);
            let both = u(c, MapOp::Or, &a);
            let some = flag(c, Direction::Ne, both, z);
            let some = flag_word(c, some);
            if !signed {
                return Some([some, z]);
            }
            let s = sign_word(c, a[1]);
            [u(c, MapOp::Or, &[s, some]), s]
        }
        MapOp::Popcnt => {
            let [p, q] = a.map(|x| u(c, MapOp::Popcnt, &[x]));
            [u(c, MapOp::Add, &[p, q]), number(c, 0, DType::U32)]
        }
        MapOp::Clz => {
            let [p, q] = a.map(|x| u(c, MapOp::Clz, &[x]));
            let (z, w) = (number(c, 0, DType::U32), number(c, 32, DType::U32));
            let empty = flag(c, Direction::Eq, a[1], z);
            let low = u(c, MapOp::Add, &[p, w]);
            [u(c, MapOp::Select, &[empty, low, q]), z]
        }
        MapOp::Copy => a,
        _ => return None,
    })
}
