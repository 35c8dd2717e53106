//! Number formats that fit a vector register packed.

use super::DType;

macro_rules! formats {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $dtype:ident;)*) => {
        /// A format narrower than 32 bits, as `vpack`, `vunpack`, `vround` and the MXU know it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Format { $($(#[$doc])* $variant,)* }

        impl Format {
            /// Every format.
            pub const ALL: &'static [Format] = &[$(Format::$variant,)*];

            /// Assembly spelling.
            pub const fn name(self) -> &'static str {
                match self { $(Format::$variant => $name,)* }
            }

            /// Element type.
            pub const fn dtype(self) -> DType {
                match self { $(Format::$variant => DType::$dtype,)* }
            }

            /// The format of an element type of 8 or 16 bits; `None` for wider types and those without a format.
            pub fn of(dtype: DType) -> Option<Format> {
                Format::ALL.iter().copied().find(|f| f.dtype() == dtype)
            }
        }
    };
}

formats! {
    /// bfloat16.
    Bf16, "bf16", BF16;
    /// IEEE half.
    F16, "f16", F16;
    /// 8-bit float, four exponent bits, no infinity.
    E4M3Fn, "e4m3fn", F8E4M3FN;
    /// 8-bit float, five exponent bits.
    E5M2, "e5m2", F8E5M2;
    /// 8-bit float, four exponent bits, bias 11.
    E4M3B11, "e4m3b11fnuz", F8E4M3B11FNUZ;
    /// 8-bit float, four exponent bits, no infinity, no negative zero.
    E4M3Fnuz, "e4m3fnuz", F8E4M3FNUZ;
    /// 8-bit float, five exponent bits, no infinity, no negative zero.
    E5M2Fnuz, "e5m2fnuz", F8E5M2FNUZ;
    /// IEEE-like 8-bit float with four exponent bits.
    E4M3, "e4m3", F8E4M3;
    /// IEEE-like 8-bit float with three exponent bits.
    E3M4, "e3m4", F8E3M4;
    /// Signed byte.
    S8, "s8", I8;
    /// Unsigned byte.
    U8, "u8", U8;
    /// Signed 16-bit integer.
    S16, "s16", I16;
    /// Unsigned 16-bit integer.
    U16, "u16", U16;
}

impl Format {
    /// Values per 32-bit word.
    pub const fn packing(self) -> usize {
        self.dtype().packing()
    }

    /// Code in instructions.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The format with this code.
    pub fn from_code(code: i32) -> Option<Format> {
        usize::try_from(code).ok().and_then(|i| Format::ALL.get(i)).copied()
    }
}
