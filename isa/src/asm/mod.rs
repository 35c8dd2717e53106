//! Assembly: the text form of a whole [`Program`](crate::program::Program).
//!
//! ```text
//! program "row sum" chip "v4" hbm_peak 4096 vmem_peak 8192
//!
//! info 0 "reduce.1" source "jit(f)/reduce" at "f.py:3" mxu_flops 0 vector_flops 1024 dtype f32 cores 1 modelled 0
//!
//! flow 0 while "stablehlo.while" at "f.py:5"
//! flow 1 case "stablehlo.case" at "f.py:7"
//!
//! buffer 0 param 0 offset 0 bytes 4096 live 0..0
//! buffer 1 const offset 4096 bytes 512 live 0..0 data x"0000803f" zero*508
//!
//! desc d0 load elem 4 rows 8 stride 512 cols 128 stride 4 lane_tiles 1 outer [4: 4096, 8] hbm 0 + s3*4096 vmem 64
//! desc d1 load elem 4 rows 1 stride 0 cols 16 stride 4 hbm 4096 smem 0
//!
//! code {
//!   op 0 {
//!     loop s3 = 0..128 {
//!       { dma d0, flag3 }                                  // one bundle per pair of braces
//!       { vld v1, [s2+64], 1 ; vadd.f32 v3, v1, v2 }
//!     }
//!   }
//!   while 0 {
//!     { dma d1, flag0 }
//!     { dma.wait flag0, 1 }
//!     { s.ld s2, [s0+0] }
//!   } test s2 {
//!     case 1 s2 {
//!       branch {
//!         op 0 { }
//!       }
//!       branch {
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! Operands stand in the order of the instruction table: `v1` vector, `m1` mask, `s1` scalar registers, `mxu0`, `xlu1`, `flag3`,
//! `d5` for descriptor 5, formats by name, immediates in decimal, in hexadecimal or, with a point, as the bits of an f32. Memory
//! instructions write their scalar register and first immediate as `[s2+64]`. `outer [count: hbm_stride, local_stride]` repeats,
//! outermost first; a descriptor ends with where its block is in `vmem` or `smem`, and needs no `lane_tiles` for the latter.
//! `while f { condition } test s2 { body }` and `case f s2 { branch { ... } ... }` name entry `f` of the flows. White space separates
//! tokens and is otherwise free; `//` starts a comment.
//!
//! `start t { code }` and `done t` name entry `t` of the transfers:
//!
//! ```text
//! groups 0 [0, 1, 2, 3] [4, 5, 6, 7]
//! peer 0 groups 0 shift -1
//! peer 1 pairs [0: 1] [1: 0]
//! table 0 position 0
//! table 1 values 0 1 -2 3
//! send send0 peer 0 flag 1 outer [4: 512, 2048] bytes 128 from 0 + s3*512 to 4096 + s3*512
//! transfer 0 "all-gather.0" source "jit(f)/all_gather" at "f.py:9" axes "x" queue 0 bytes 8192 flags 2
//! ```
//!
//! [`print()`] and [`parse()`] are exact inverses for every program whose nesting is within [`MAX_DEPTH`](crate::program::MAX_DEPTH),
//! whose unused instruction arguments are 0 and whose constants hold at most [`MAX_ZERO_RUN_BYTES`] bytes of zero runs.

mod cursor;
mod lex;
mod parse;
mod pod;
mod print;
mod tables;

pub use parse::parse;
pub(crate) use print::operand_name;
pub use print::{instr, print};

/// Most bytes that the `zero*n` runs of one text may stand for, so that a short text cannot demand unbounded memory.
pub const MAX_ZERO_RUN_BYTES: u64 = 256 << 20;

/// What is wrong with an assembly text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct AsmError {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// What was expected and what was found.
    pub message: String,
}

#[cfg(test)]
mod tests;
