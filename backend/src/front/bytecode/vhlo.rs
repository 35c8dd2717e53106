//! Attributes and types of VHLO, the versioned form in which StableHLO is serialized.
//!
//! The attributes are decoded to what they stand for in StableHLO; [`super::upgrade`] then shapes them by operation.

use tpusim_isa::num::DType;

use super::builtin::{float_attr, integer, opaque};
use super::decode::Cursor;
use super::dense;
use super::error::{ErrorKind, Result};
use super::sdy::quote;
use super::types::Ty;
use crate::hlo::{Attr, AttrList, FuncType, OutputAlias, Quant, ReplicaGroups, Type};

/// How an absent attribute (`none` type) is spelled in [`Attr::Opaque`] until the upgrade drops it.
pub(super) const ABSENT: &str = "none";

/// Spellings of the API versions of custom calls; StableHLO holds them as numbers.
const API_VERSIONS: u64 = 5;

/// Decodes an attribute.
pub(super) fn attr(c: &mut Cursor<'_, '_>) -> Result<Attr> {
    let code = c.r.varint()?;
    Ok(match code {
        1 => Attr::Array(c.attrs()?),
        2 => match c.r.varint()? {
            0 => Attr::Bool(false),
            1 => Attr::Bool(true),
            v => return c.fail(ErrorKind::Enum(v, "bool")),
        },
        3 => c.enumerator("comparison_direction", &["EQ", "NE", "GE", "GT", "LE", "LT"])?,
        4 => c.enumerator("comparison_type", &["NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"])?,
        5 => match c.r.varint()? {
            v if v < API_VERSIONS => Attr::Int(v as i64, Type::Scalar(DType::I32)),
            v => return c.fail(ErrorKind::Enum(v, "api_version")),
        },
        6 => {
            let n = c.r.count("dictionary entries")?;
            let mut list = AttrList::default();
            for _ in 0..n {
                let name = c.str_attr()?;
                list.set(name, c.attr()?);
            }
            Attr::Dict(list)
        }
        7 => c.enumerator("fft_type", &["FFT", "IFFT", "RFFT", "IRFFT"])?,
        8 => {
            let ty = c.ty()?;
            float_attr(c, ty)?
        }
        9 => {
            let ty = c.ty()?;
            integer(c, ty)?
        }
        10 => Attr::Alias(OutputAlias {
            output_tuple_indices: c.r.svarints()?,
            operand_index: c.r.svarint()?,
            operand_tuple_indices: c.r.svarints()?,
        }),
        11 => c.enumerator("precision", &["DEFAULT", "HIGH", "HIGHEST"])?,
        12 => c.enumerator("rng_algorithm", &["DEFAULT", "THREE_FRY", "PHILOX"])?,
        13 => c.enumerator("rng_distribution", &["", "UNIFORM", "NORMAL"])?,
        14 => Attr::Str(c.string()?),
        15 => {
            let lit = c.constant(|c| {
                let ty = c.ty()?;
                let ty = dense::tensor_type(c, ty)?;
                let data = c.r.blob()?;
                c.literal(ty, data)
            })?;
            Attr::Dense(lit)
        }
        16 => c.enumerator("transpose", &["TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])?,
        17 => match c.any_type()? {
            Ty::None => Attr::Opaque(ABSENT.into()),
            ty => match ty.into_hlo() {
                Ok(ty) => Attr::Type(ty),
                Err(what) => return c.unsupported(what),
            },
        },
        18 => Attr::Ints(c.r.svarints()?),
        19 => c.enumerator("result_accuracy_mode", &["DEFAULT", "HIGHEST", "TOLERANCE"])?,
        20 => result_accuracy(c)?,
        21 => Attr::Opaque(format!("stablehlo.sub_axis_info<({}){}>", c.r.svarint()?, c.r.svarint()?)),
        22 => axis_ref(c)?,
        23 => replica_group_mesh_axes(c)?,
        24 => {
            let name = c.str_attr()?;
            Attr::Opaque(format!("stablehlo.mesh_axis<name = {}, size = {}>", quote(&name), c.r.svarint()?))
        }
        25 => mesh(c)?,
        _ => return c.fail(ErrorKind::Code { what: "attribute", dialect: "vhlo".into(), code }),
    })
}

/// The requested accuracy of a transcendental function, without the fields that are zero. What asks for nothing becomes the plain
/// mode `DEFAULT`.
fn result_accuracy(c: &mut Cursor<'_, '_>) -> Result<Attr> {
    let f64 = |c: &mut Cursor<'_, '_>| c.r.svarint().map(|v| f64::from_bits(v as u64));
    let (atol, rtol, ulps) = (f64(c)?, f64(c)?, c.r.svarint()?);
    let Attr::Enum(mode) = c.attr()? else { return c.expected("an accuracy mode") };
    let mut fields = String::new();
    for (name, v) in [("atol", atol), ("rtol", rtol)] {
        if v != 0.0 {
            fields += &format!("{name} = {v:e}, ");
        }
    }
    if ulps != 0 {
        fields += &format!("ulps = {ulps}, ");
    }
    if fields.is_empty() && mode == "DEFAULT" {
        return Ok(Attr::Enum(mode));
    }
    let mode = format!("#stablehlo.result_accuracy_mode<{mode}>");
    Ok(Attr::Opaque(format!("stablehlo.result_accuracy<{fields}mode = {mode}>")))
}

fn axis_ref(c: &mut Cursor<'_, '_>) -> Result<Attr> {
    let name = quote(&c.str_attr()?);
    if c.r.varint()? == 0 {
        return Ok(Attr::Opaque(format!("stablehlo.axis_ref<name = {name}>")));
    }
    let Attr::Opaque(sub) = c.attr()? else { return c.expected("a sub-axis") };
    let Some(sub) = sub.strip_prefix("stablehlo.sub_axis_info<").and_then(|s| s.strip_suffix('>')) else {
        return c.expected("a sub-axis");
    };
    Ok(Attr::Opaque(format!("stablehlo.axis_ref<name = {name}, sub_axis_info = {sub}>")))
}

fn replica_group_mesh_axes(c: &mut Cursor<'_, '_>) -> Result<Attr> {
    let mesh = match c.attr()? {
        Attr::Str(s) => Attr::Symbol(s),
        other => other,
    };
    let Attr::Array(axes) = c.attr()? else { return c.expected("a list of axes") };
    Ok(Attr::Groups(ReplicaGroups::MeshAxes(Box::new(mesh), axes)))
}

fn mesh(c: &mut Cursor<'_, '_>) -> Result<Attr> {
    let Attr::Array(axes) = c.attr()? else { return c.expected("a list of mesh axes") };
    let ids = match c.optional_attr()? {
        None => String::new(),
        Some(Attr::Dense(lit)) => {
            c.charge(lit.ty.elements().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX))?;
            let Some(ids) = dense::integers(&lit) else { return c.expected("integer device ids") };
            let ids: Vec<String> = ids.map(|i| i.to_string()).collect();
            format!(", device_ids = dense<[{}]> : {}", ids.join(", "), lit.ty)
        }
        Some(_) => return c.expected("a tensor of device ids"),
    };
    let mut names = Vec::new();
    for axis in &axes {
        match axis {
            Attr::Opaque(s) if s.starts_with("stablehlo.mesh_axis<") => names.push(format!("#{s}")),
            _ => return c.expected("a mesh axis"),
        }
    }
    Ok(Attr::Opaque(format!("stablehlo.mesh<axes = [{}]{ids}>", names.join(", "))))
}

/// Element types without parameters, by code.
fn scalar(code: u64) -> Option<DType> {
    Some(match code {
        0 => DType::I1,
        2 => DType::BF16,
        3 => DType::F16,
        4 => DType::F32,
        5 => DType::F64,
        6 => DType::F8E4M3FN,
        7 => DType::F8E5M2,
        10 => DType::I4,
        11 => DType::I8,
        12 => DType::I16,
        13 => DType::I32,
        14 => DType::I64,
        15 => DType::U4,
        16 => DType::U8,
        17 => DType::U16,
        18 => DType::U32,
        19 => DType::U64,
        27 => DType::F8E4M3FNUZ,
        28 => DType::F8E5M2FNUZ,
        29 => DType::F8E4M3B11FNUZ,
        31 => DType::I2,
        32 => DType::U2,
        35 => DType::F8E4M3,
        36 => DType::F8E3M4,
        37 => DType::F4E2M1FN,
        38 => DType::F6E2M3FN,
        39 => DType::F6E3M2FN,
        40 => DType::F8E8M0FNU,
        _ => return None,
    })
}

/// Decodes a type.
pub(super) fn ty(c: &mut Cursor<'_, '_>) -> Result<Ty> {
    let code = c.r.varint()?;
    if let Some(dtype) = scalar(code) {
        return Ok(Ty::scalar(dtype));
    }
    Ok(match code {
        1 => c.any_type()?.complex(),
        8 => Ty::Hlo(Type::Func(FuncType { inputs: c.types()?, outputs: c.types()? })),
        9 => Ty::Hlo(Type::Index),
        20 => {
            let dims = c.r.svarints()?;
            c.any_type()?.tensor(dims)
        }
        21 => {
            c.r.varint()?; // encoding: bounds of dynamic dimensions
            let dims = c.r.svarints()?;
            c.any_type()?.tensor(dims)
        }
        22 => Ty::Hlo(Type::Token),
        23 => Ty::Hlo(Type::Tuple(c.types()?)),
        24 => quantized(c, false)?,
        25 => opaque(c, "unranked tensor"),
        26 => Ty::Other("!shape.witness".into()),
        30 => quantized(c, true)?,
        33 => Ty::None,
        34 => Ty::Other("tf32".into()),
        41 => opaque(c, "memref"),
        42 => opaque(c, "!stablehlo.future"),
        _ => return c.fail(ErrorKind::Code { what: "type", dialect: "vhlo".into(), code }),
    })
}

/// A quantized element type, per tensor or per axis. The storage type is signless in the file; a flag says whether it is signed.
fn quantized(c: &mut Cursor<'_, '_>, per_axis: bool) -> Result<Ty> {
    const SIGNED: u64 = 1;
    let f64 = |c: &mut Cursor<'_, '_>| c.r.svarint().map(|v| f64::from_bits(v as u64));
    let flags = c.r.varint()?;
    let (storage, expressed) = match (c.ty()?, c.ty()?) {
        (Type::Scalar(s), Type::Scalar(e)) => (s, e),
        _ => return c.expected("scalar types"),
    };
    let storage = match storage {
        s if flags & SIGNED != 0 => s,
        DType::I2 => DType::U2,
        DType::I4 => DType::U4,
        DType::I8 => DType::U8,
        DType::I16 => DType::U16,
        DType::I32 => DType::U32,
        s => s,
    };
    let quant = if per_axis {
        let axis = c.r.varint()?;
        let (storage_min, storage_max) = (c.r.svarint()?, c.r.svarint()?);
        let n = c.r.count("scales")?;
        c.charge(n)?;
        let scales = (0..n).map(|_| f64(c)).collect::<Result<Vec<_>>>()?;
        let zero_points = c.r.svarints()?;
        if scales.len() != zero_points.len() || scales.is_empty() {
            return c.expected("as many zero points as scales");
        }
        let axis = Some(usize::try_from(axis).unwrap_or(usize::MAX));
        Quant { storage, expressed, storage_min, storage_max, axis, scales, zero_points }
    } else {
        let (scale, zero_point) = (f64(c)?, c.r.svarint()?);
        let (storage_min, storage_max) = (c.r.svarint()?, c.r.svarint()?);
        let (scales, zero_points) = (vec![scale], vec![zero_point]);
        Quant { storage, expressed, storage_min, storage_max, axis: None, scales, zero_points }
    };
    Ok(Ty::Quant(Box::new(quant)))
}
