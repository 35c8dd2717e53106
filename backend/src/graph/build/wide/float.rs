//! Doubles as double-floats: what needs both parts at once is a [`WideOp`], comparisons and choices are graphs.

use super::*;

fn flag(c: &mut Chain<'_, '_>, d: Direction, a: NodeId, b: NodeId) -> NodeId {
    c.typed(MapOp::Compare(d, false), &[a, b], DType::I1)
}

/// The parts of a number are unique, so they compare one after the other. A NaN is one in its first part.
pub(in super::super) fn compare(c: &mut Chain<'_, '_>, d: Direction, a: Parts, b: Parts) -> NodeId {
    use Direction::*;
    match d {
        Eq => equal(c, a, b),
        Ne => {
            let p = equal(c, a, b);
            c.typed(MapOp::Not, &[p], DType::I1)
        }
        Gt => compare(c, Lt, b, a),
        Ge => compare(c, Le, b, a),
        Lt | Le => {
            let (less, same, low) = (flag(c, Lt, a[0], b[0]), flag(c, Eq, a[0], b[0]), flag(c, d, a[1], b[1]));
            let low = c.typed(MapOp::And, &[same, low], DType::I1);
            c.typed(MapOp::Or, &[less, low], DType::I1)
        }
    }
}

/// The total order, by the bits as a signed integer whose negative numbers are turned around.
pub(in super::super) fn compare_total(c: &mut Chain<'_, '_>, d: Direction, a: Parts, b: Parts) -> NodeId {
    let [a, b] = [a, b].map(|x| {
        let bits = wide_of(c, WideOp::ToBits, &x, DType::U32);
        let n = number(c, 63, DType::U32);
        let z = number(c, 0, DType::U32);
        let key = integer::map(c, MapOp::ShrArith, true, &[bits, [n, z]]);
        let sign = key.unwrap_or(bits);
        let (all, most) = (number(c, u32::MAX, DType::U32), number(c, 0x7fff_ffff, DType::U32));
        let flip = integer::map(c, MapOp::And, true, &[sign, [all, most]]).unwrap_or(sign);
        integer::map(c, MapOp::Xor, true, &[bits, flip]).unwrap_or(bits)
    });
    integer::compare(c, d, true, a, b)
}

/// The elementwise operation `m`; `None` if there is no code for it.
pub(in super::super) fn map(c: &mut Chain<'_, '_>, m: MapOp, args: &[Parts]) -> Option<Parts> {
    let a = *args.first()?;
    let b = args.get(1).copied().unwrap_or(a);
    let op = match m {
        MapOp::Add => WideOp::Add,
        MapOp::Sub => WideOp::Sub,
        MapOp::Mul => WideOp::Mul,
        MapOp::Div => WideOp::Div,
        MapOp::Rem => WideOp::Rem,
        MapOp::Pow => WideOp::Pow,
        MapOp::Atan2 => WideOp::Atan2,
        MapOp::Sqrt => WideOp::Sqrt,
        MapOp::Rsqrt => WideOp::Rsqrt,
        MapOp::Cbrt => WideOp::Cbrt,
        MapOp::Exp => WideOp::Exp,
        MapOp::Expm1 => WideOp::Expm1,
        MapOp::Log => WideOp::Log,
        MapOp::Log1p => WideOp::Log1p,
        MapOp::Tanh => WideOp::Tanh,
        MapOp::Logistic => WideOp::Logistic,
        MapOp::Sin => WideOp::Sin,
        MapOp::Cos => WideOp::Cos,
        MapOp::Tan => WideOp::Tan,
        MapOp::Floor => WideOp::Floor,
        MapOp::Ceil => WideOp::Ceil,
        MapOp::RoundEven => WideOp::RoundEven,
        MapOp::RoundAway => WideOp::RoundAway,
        _ => return parts_of(c, m, a, b),
    };
    let operands = [a[0], a[1], b[0], b[1]];
    let count = if args.len() > 1 { 4 } else { 2 };
    Some(wide_of(c, op, &operands[..count], DType::F32))
}

/// Operations that treat the parts one by one.
fn parts_of(c: &mut Chain<'_, '_>, m: MapOp, a: Parts, b: Parts) -> Option<Parts> {
    Some(match m {
        MapOp::Neg => a.map(|x| c.map(MapOp::Neg, &[x])),
        MapOp::Abs => {
            let n = a.map(|x| c.map(MapOp::Neg, &[x]));
            // The sign bit decides, so that -0 becomes 0.
            let bits = c.typed(MapOp::Bitcast, &[a[0]], DType::I32);
            let z = number(c, 0, DType::I32);
            let negative = flag(c, Direction::Lt, bits, z);
            choose(c, negative, n, a)
        }
        MapOp::Sign => [c.map(MapOp::Sign, &[a[0]]), number(c, 0, DType::F32)],
        MapOp::Max | MapOp::Min => {
            // The larger first part takes its second along; equal first parts leave it to the second ones.
            let d = if m == MapOp::Max { Direction::Gt } else { Direction::Lt };
            let (high, low) = (c.map(m, &[a[0], b[0]]), c.map(m, &[a[1], b[1]]));
            let (same, first) = (flag(c, Direction::Eq, a[0], b[0]), flag(c, d, a[0], b[0]));
            let other = c.map(MapOp::Select, &[first, a[1], b[1]]);
            [high, c.map(MapOp::Select, &[same, low, other])]
        }
        MapOp::Copy => a,
        _ => return None,
    })
}
