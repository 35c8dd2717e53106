//! Element types of StableHLO tensors and how they are stored.

use std::fmt;
use std::str::FromStr;

/// What family an element type belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DTypeKind {
    /// `i1`.
    Bool,
    /// Two's complement integers (`i2` .. `i64`).
    Signed,
    /// Unsigned integers (`ui2` .. `ui64`).
    Unsigned,
    /// Binary floats, from `f4E2M1FN` to `f64`.
    Float,
    /// Pairs of floats.
    Complex,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $kind:ident, $bits:literal;)*) => {
        /// An element type, named as StableHLO names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(non_camel_case_types)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// Every element type.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The StableHLO spelling, e.g. `bf16` or `ui8`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// The family of the type.
            pub const fn kind(self) -> DTypeKind {
                match self { $(DType::$variant => DTypeKind::$kind,)* }
            }

            /// Width of the value in bits (1 for `i1`).
            pub const fn bits(self) -> u32 {
                match self { $(DType::$variant => $bits,)* }
            }
        }
    };
}

dtypes! {
    /// Boolean.
    I1, "i1", Bool, 1;
    /// Signed 2-bit integer.
    I2, "i2", Signed, 2;
    /// Signed 4-bit integer.
    I4, "i4", Signed, 4;
    /// Signed 8-bit integer.
    I8, "i8", Signed, 8;
    /// Signed 16-bit integer.
    I16, "i16", Signed, 16;
    /// Signed 32-bit integer.
    I32, "i32", Signed, 32;
    /// Signed 64-bit integer.
    I64, "i64", Signed, 64;
    /// Unsigned 2-bit integer.
    U2, "ui2", Unsigned, 2;
    /// Unsigned 4-bit integer.
    U4, "ui4", Unsigned, 4;
    /// Unsigned 8-bit integer.
    U8, "ui8", Unsigned, 8;
    /// Unsigned 16-bit integer.
    U16, "ui16", Unsigned, 16;
    /// Unsigned 32-bit integer.
    U32, "ui32", Unsigned, 32;
    /// Unsigned 64-bit integer.
    U64, "ui64", Unsigned, 64;
    /// OCP MX 4-bit float.
    F4E2M1FN, "f4E2M1FN", Float, 4;
    /// OCP MX 6-bit float, two exponent bits.
    F6E2M3FN, "f6E2M3FN", Float, 6;
    /// OCP MX 6-bit float, three exponent bits.
    F6E3M2FN, "f6E3M2FN", Float, 6;
    /// IEEE-like 8-bit float with three exponent bits.
    F8E3M4, "f8E3M4", Float, 8;
    /// IEEE-like 8-bit float with four exponent bits.
    F8E4M3, "f8E4M3", Float, 8;
    /// 8-bit float, four exponent bits, no infinity.
    F8E4M3FN, "f8E4M3FN", Float, 8;
    /// 8-bit float, four exponent bits, no infinity, no negative zero.
    F8E4M3FNUZ, "f8E4M3FNUZ", Float, 8;
    /// As `f8E4M3FNUZ` with exponent bias 11.
    F8E4M3B11FNUZ, "f8E4M3B11FNUZ", Float, 8;
    /// IEEE-like 8-bit float with five exponent bits.
    F8E5M2, "f8E5M2", Float, 8;
    /// 8-bit float, five exponent bits, no infinity, no negative zero.
    F8E5M2FNUZ, "f8E5M2FNUZ", Float, 8;
    /// 8-bit power of two (exponent only).
    F8E8M0FNU, "f8E8M0FNU", Float, 8;
    /// bfloat16.
    BF16, "bf16", Float, 16;
    /// IEEE half.
    F16, "f16", Float, 16;
    /// IEEE single.
    F32, "f32", Float, 32;
    /// IEEE double.
    F64, "f64", Float, 64;
    /// Two singles.
    C64, "complex<f32>", Complex, 64;
    /// Two doubles.
    C128, "complex<f64>", Complex, 128;
}

impl DType {
    /// Bytes one element takes in a host buffer and in HBM. Types narrower than a byte take a whole byte, as in numpy.
    pub const fn bytes(self) -> usize {
        let b = self.bits() as usize;
        if b < 8 { 1 } else { b / 8 }
    }

    /// Elements per 32-bit word of a vector register: 1, 2 or 4. 64-bit types have packing 1 and take two words.
    pub const fn packing(self) -> usize {
        match self.bytes() {
            1 => 4,
            2 => 2,
            _ => 1,
        }
    }

    /// Whether this is a (real) float type.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), DTypeKind::Float)
    }

    /// Whether this is a signed or unsigned integer type (not `i1`).
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), DTypeKind::Signed | DTypeKind::Unsigned)
    }

    /// Whether this is a signed integer type.
    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), DTypeKind::Signed)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is no element type that tpusim knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown element type `{0}`")]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;
    fn from_str(s: &str) -> Result<Self, UnknownDType> {
        DType::ALL.iter().copied().find(|d| d.name() == s).ok_or_else(|| UnknownDType(s.to_owned()))
    }
}
