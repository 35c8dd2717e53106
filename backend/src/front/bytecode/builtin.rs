//! Attributes and types of MLIR's builtin dialect.

use tpusim_isa::num::DType;

use super::decode::Cursor;
use super::dense;
use super::error::{ErrorKind, Result};
use super::locations::is_location;
use super::types::{Ty, extend, float};
use crate::hlo::{Attr, AttrList, FuncType, Type};

/// Types 22 to 32, which older files hold as text.
const SMALL_FLOATS: [DType; 11] = [
    DType::F8E5M2,
    DType::F8E4M3,
    DType::F8E4M3FN,
    DType::F8E5M2FNUZ,
    DType::F8E4M3FNUZ,
    DType::F8E4M3B11FNUZ,
    DType::F8E3M4,
    DType::F4E2M1FN,
    DType::F6E2M3FN,
    DType::F6E3M2FN,
    DType::F8E8M0FNU,
];

/// Decodes an attribute.
pub(super) fn attr(c: &mut Cursor<'_, '_>) -> Result<Attr> {
    let code = c.r.varint()?;
    Ok(match code {
        0 => Attr::Array(c.attrs()?),
        1 => {
            let n = c.r.count("dictionary entries")?;
            let mut list = AttrList::default();
            for _ in 0..n {
                let name = c.str_attr()?;
                list.set(name, c.attr()?);
            }
            Attr::Dict(list)
        }
        2 => Attr::Str(c.string()?),
        3 => {
            let s = c.string()?;
            c.any_type()?;
            Attr::Str(s)
        }
        4 => Attr::Symbol(c.str_attr()?),
        5 => {
            let mut path = c.str_attr()?;
            for leaf in c.attrs()? {
                match leaf {
                    Attr::Symbol(s) => {
                        path.push_str("::");
                        path.push_str(&s);
                    }
                    _ => return c.expected("a symbol"),
                }
            }
            Attr::Symbol(path)
        }
        6 => Attr::Type(c.ty()?),
        7 => Attr::Unit,
        8 => {
            let ty = c.ty()?;
            integer(c, ty)?
        }
        9 => {
            let ty = c.ty()?;
            float_attr(c, ty)?
        }
        _ if is_location(code) => {
            // A location where an attribute stands; nothing refers to it.
            c.r.bytes(c.r.left() as u64)?;
            Attr::Opaque("loc".into())
        }
        16 => {
            let ty = c.ty()?;
            let ty = dense::tensor_type(c, ty)?;
            let at = c.r.offset();
            let handle = c.r.varint()?;
            let mut blob = super::sections::lookup(&c.d.file.resources, handle, "resource", at)?.clone();
            let alignment = blob.varint()?;
            let size = blob.varint()?;
            blob.align(alignment)?;
            let data = blob.bytes(size)?;
            Attr::Dense(c.constant(|c| c.literal(ty, data))?)
        }
        17 => dense::array(c)?,
        18 => {
            let lit = c.constant(|c| {
                let ty = c.ty()?;
                let ty = dense::tensor_type(c, ty)?;
                let data = c.r.blob()?;
                c.literal(ty, data)
            })?;
            Attr::Dense(lit)
        }
        19 | 20 => return c.unsupported("constants of strings and sparse constants"),
        21 => c.attr()?, // distinct[n]<attribute>
        _ => return c.fail(ErrorKind::Code { what: "attribute", dialect: "builtin".into(), code }),
    })
}

/// An integer of the width of `ty`: one byte up to 8 bits, a signed varint up to 64.
pub(super) fn integer(c: &mut Cursor<'_, '_>, ty: Type) -> Result<Attr> {
    let bits = match &ty {
        Type::Scalar(d) if !d.is_float() => d.bits(),
        Type::Index => 64,
        _ => return c.expected("an integer type"),
    };
    let raw = if bits <= 8 { u64::from(c.r.byte()?) } else { c.r.svarint()? as u64 };
    Ok(match ty {
        Type::Scalar(DType::I1) => Attr::Bool(raw & 1 == 1),
        ty => Attr::Int(extend(raw, &ty), ty),
    })
}

/// A float of type `ty`, encoded as the integer of its bits.
pub(super) fn float_attr(c: &mut Cursor<'_, '_>, ty: Type) -> Result<Attr> {
    let Type::Scalar(dtype) = ty else { return c.expected("a float type") };
    let raw = if dtype.bits() <= 8 { u64::from(c.r.byte()?) } else { c.r.svarint()? as u64 };
    match float(raw, dtype) {
        Some(v) => Ok(Attr::Float(v, ty)),
        None => c.unsupported(format!("scalar attribute of type {dtype}")),
    }
}

/// Decodes a type.
pub(super) fn ty(c: &mut Cursor<'_, '_>) -> Result<Ty> {
    let code = c.r.varint()?;
    Ok(match code {
        0 => {
            // Two low bits: signless, signed, unsigned. StableHLO's signed integers are signless here.
            let v = c.r.varint()?;
            let (width, unsigned) = (v >> 2, v & 3 == 2);
            let name = if unsigned { format!("ui{width}") } else { format!("i{width}") };
            name.parse().map_or(Ty::Other(name), Ty::scalar)
        }
        1 => Ty::Hlo(Type::Index),
        2 => Ty::Hlo(Type::Func(FuncType { inputs: c.types()?, outputs: c.types()? })),
        3 => Ty::scalar(DType::BF16),
        4 => Ty::scalar(DType::F16),
        5 => Ty::scalar(DType::F32),
        6 => Ty::scalar(DType::F64),
        7 => Ty::Other("f80".into()),
        8 => Ty::Other("f128".into()),
        9 => c.any_type()?.complex(),
        12 => Ty::None,
        13 => {
            let dims = c.r.svarints()?;
            c.any_type()?.tensor(dims)
        }
        14 => {
            c.r.varint()?; // encoding: bounds of dynamic dimensions
            let dims = c.r.svarints()?;
            c.any_type()?.tensor(dims)
        }
        15 => Ty::Hlo(Type::Tuple(c.types()?)),
        10 | 11 | 16 | 17 => opaque(c, "memref"),
        18 => opaque(c, "unranked tensor"),
        19 | 20 => opaque(c, "vector"),
        21 => Ty::Other("tf32".into()),
        _ => match code.checked_sub(22).and_then(|i| SMALL_FLOATS.get(usize::try_from(i).ok()?)) {
            Some(dtype) => Ty::scalar(*dtype),
            None => return c.fail(ErrorKind::Code { what: "type", dialect: "builtin".into(), code }),
        },
    })
}

/// A type that no value of a program can have here; its details do not matter.
pub(super) fn opaque(c: &mut Cursor<'_, '_>, name: &str) -> Ty {
    let left = c.r.left() as u64;
    let _ = c.r.bytes(left);
    Ty::Other(name.to_owned())
}
