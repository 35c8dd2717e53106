//! The instruction table: every instruction is declared here once, and its enum, printer, parser, binary form, register
//! checks and timing class follow from the row.
//!
//! # Semantics
//!
//! A **vector register** holds 8 sublanes x 128 lanes of 32 bits; element `(s, l)` is word `s * 128 + l`. f32 instructions read
//! the words as IEEE singles, i32/u32 ones as integers. Narrow types are *packed*: word `(s, l)` of a 16-bit register holds row
//! `2s` in its low half and row `2s + 1` in its high half of a (16, 128) tile; an 8-bit register holds rows `4s .. 4s+3` of a
//! (32, 128) tile, lowest byte first. `vunpack` takes part `p` of a packed register (of 2 or 4): sublanes `0..8` of the result are
//! rows `8p .. 8p+8` of the tile, widened to 32 bits (floats to f32, integers sign- or zero-extended). `vpack` is its inverse: it
//! narrows a 32-bit register (floats round to nearest even, integers wrap) and inserts it as part `p` of its first operand.
//!
//! A **mask register** holds one bit per element of a vector register.
//!
//! **Scalars** are 32-bit and wrap. `s0` is always zero, `s1` is the index of the TensorCore in its device.
//!
//! **SMEM** is addressed in words of 32 bits, one scalar each. `s.ld`/`s.st` move a scalar from/to word `s + imm`. Every core has its own.
//!
//! **VMEM** is addressed in rows of 128 words (512 bytes). `vld`/`vst` move sublane `i` from/to row `s + imm + i * stride`; a
//! stride of 0 loads one row into all sublanes.
//!
//! **Queues.** MXU, XLU and EUP instructions push operands into a unit; results leave in order and are read by the unit's pop
//! instruction, which waits until its result is there.
//!
//! **MXU** (dimension D = 128 or 256): `vmatpush` writes a packed register into the *shadow* weights: with `T = 8 * packing`
//! rows per register and `H = D / 128` column halves, immediate `slot = g * H + h` is weight rows `g*T .. (g+1)*T`, columns
//! `h*128 .. (h+1)*128`; `vmatpush.t` holds the transpose: its rows are weight *columns* `g*T ..`, its lanes weight *rows* `h*128 ..`.
//! `vmatlatch` makes the shadow weights active. `vmatmul` streams T left-hand rows; its operands hold columns `0..128` and, when
//! D is 256, `128..256` (the second is ignored otherwise). Every output starts from zero and adds the D products in ascending
//! order, in f32 (each product exact, each sum rounded once) or in wrapping i32. Results are `packing` groups of 8 rows, each of H
//! registers: pops give (rows 0..8, half 0), (rows 0..8, half 1), (rows 8..16, half 0), ...
//! `vmatmul.acc` does the same but adds its results, in that order, to the accumulator buffers `imm ..` instead of queueing them;
//! `vmatmul.ini` overwrites them; `vmatpop.acc` reads half `imm % H` of buffer `imm / H`. Only chips with accumulators have these.
//!
//! **XLU.** `xpose` takes 16 pushes (rows 0..8, 8..16, ... of a 128 x 128 tile of 32-bit words), then 16 pops give the rows of its
//! transpose. `xrot` moves lane `l` to lane `(l + imm) mod 128`. `xred.*` reduce the 128 lanes of each sublane by a
//! balanced tree (lane `l` with lane `l + 64`, then 32, ... 1) and give the result in all lanes. `xbcast` copies lane `imm` to all lanes.
//!
//! **DMA.** `dma` starts descriptor `desc` of the program's table, which moves a block between HBM and VMEM or SMEM, to and from
//! addresses made of what scalar registers hold, read as signed; when its data has landed it adds 1 to the sync flag.
//! `dma.send` starts a message to another device (see [`pod`](crate::pod)), `s.dev` reads this device's entry of a table; both only stand
//! between operations.
//! `dma.wait flag, n` stalls until the flag is at least `n`, then subtracts `n`. `flag.add` adds to a flag.

use crate::num::Format;

/// Class of slot of a bundle that an instruction occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// Scalar ALU and SMEM.
    Scalar,
    /// Vector ALU.
    Valu,
    /// Vector load.
    VLoad,
    /// Vector store.
    VStore,
    /// Push to MXU, XLU or EUP.
    Extended,
    /// Pop from a result queue.
    Pop,
    /// DMA and sync flags.
    Dma,
}

impl Slot {
    /// Every slot class.
    pub const ALL: [Slot; 7] =
        [Slot::Scalar, Slot::Valu, Slot::VLoad, Slot::VStore, Slot::Extended, Slot::Pop, Slot::Dma];
}

/// What decides when an instruction's result is ready and when its unit takes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timing {
    /// Scalar ALU.
    Scalar,
    /// Scalar load from SMEM.
    ScalarLoad,
    /// Scalar store to SMEM.
    ScalarStore,
    /// Integer, bitwise, shift, compare, select, min/max vector ops.
    ValuInt,
    /// Float vector ops, converts, pack, unpack, sublane rotate.
    ValuFloat,
    /// Vector load.
    VLoad,
    /// Vector store.
    VStore,
    /// Push to the EUP.
    Eup,
    /// Pop from the EUP.
    EupPop,
    /// Rotate, permute, lane broadcast on an XLU.
    XluRotate,
    /// Lane reduction on an XLU.
    XluReduce,
    /// Transpose push on an XLU.
    XluTranspose,
    /// Pop from an XLU.
    XluPop,
    /// Push of weights.
    MxuPush,
    /// Latch of weights.
    MxuLatch,
    /// Streaming rows.
    MxuMul,
    /// Pop from the MXU's result queue.
    MxuPop,
    /// Streaming rows into accumulators.
    MxuAcc,
    /// Read of an accumulator.
    MxuPopAcc,
    /// Start of a DMA.
    DmaStart,
    /// Wait on a sync flag.
    DmaWait,
    /// Update of a sync flag.
    Flag,
    /// Start of a message to another device.
    DmaSend,
}

/// One operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Vector register written.
    Vd,
    /// Vector register read.
    Vs,
    /// Mask register written.
    Md,
    /// Mask register read.
    Ms,
    /// Scalar register written.
    Sd,
    /// Scalar register read.
    Ss,
    /// 32-bit immediate.
    Imm,
    /// Index of an MXU of this core.
    Mxu,
    /// Index of an XLU of this core.
    Xlu,
    /// Packed number format (see [`Format`]).
    Fmt,
    /// Sync flag.
    Flag,
    /// DMA descriptor.
    Desc,
    /// Send descriptor.
    Send,
    /// Table of device scalars.
    Table,
}

macro_rules! instructions {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $slot:ident, $timing:ident, [$($field:ident),*];)*) => {
        /// An instruction's operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Op { $($(#[$doc])* $variant,)* }

        impl Op {
            /// Every instruction.
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            /// Assembly mnemonic.
            pub const fn name(self) -> &'static str {
                match self { $(Op::$variant => $name,)* }
            }

            /// Slot class it occupies.
            #[inline]
            pub const fn slot(self) -> Slot {
                match self { $(Op::$variant => Slot::$slot,)* }
            }

            /// Timing class.
            #[inline]
            pub const fn timing(self) -> Timing {
                match self { $(Op::$variant => Timing::$timing,)* }
            }

            /// Operands in assembly order.
            #[inline]
            pub const fn fields(self) -> &'static [Field] {
                match self { $(Op::$variant => &[$(Field::$field),*],)* }
            }
        }
    };
}

instructions! {
    /// `sd = imm`.
    SLi, "s.li", Scalar, Scalar, [Sd, Imm];
    /// `sd = a + b`.
    SAdd, "s.add", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = a + imm`.
    SAddi, "s.addi", Scalar, Scalar, [Sd, Ss, Imm];
    /// `sd = a - b`.
    SSub, "s.sub", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = a * b`.
    SMul, "s.mul", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = a * imm`.
    SMuli, "s.muli", Scalar, Scalar, [Sd, Ss, Imm];
    /// `sd = min(a, b)`, signed.
    SMin, "s.min", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = min(a, imm)`, signed.
    SMini, "s.mini", Scalar, Scalar, [Sd, Ss, Imm];
    /// `sd = max(a, b)`, signed.
    SMax, "s.max", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = max(a, imm)`, signed.
    SMaxi, "s.maxi", Scalar, Scalar, [Sd, Ss, Imm];
    /// `sd = a & b`.
    SAnd, "s.and", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = a | b`.
    SOr, "s.or", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = a ^ b`.
    SXor, "s.xor", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = a ^ imm`.
    SXori, "s.xori", Scalar, Scalar, [Sd, Ss, Imm];
    /// `sd = a << b`, 0 for shifts of 32 and more.
    SShl, "s.shl", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = a >> b`, logical, 0 for shifts of 32 and more.
    SShr, "s.shr", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = (a == b) as i32`.
    SEq, "s.eq", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = (a == imm) as i32`.
    SEqi, "s.eqi", Scalar, Scalar, [Sd, Ss, Imm];
    /// `sd = (a < b) as i32`, signed.
    SLt, "s.lt", Scalar, Scalar, [Sd, Ss, Ss];
    /// `sd = (a < imm) as i32`, signed.
    SLti, "s.lti", Scalar, Scalar, [Sd, Ss, Imm];
    /// `sd = c != 0 ? a : b` with operands `c, a, b`.
    SSel, "s.sel", Scalar, Scalar, [Sd, Ss, Ss, Ss];
    /// `sd = SMEM[a + imm]` (word address).
    SLd, "s.ld", Scalar, ScalarLoad, [Sd, Ss, Imm];
    /// `SMEM[b + imm] = a`.
    SSt, "s.st", Scalar, ScalarStore, [Ss, Ss, Imm];
    /// `sd` = this device's entry of a table.
    SDev, "s.dev", Scalar, Scalar, [Sd, Table];

    /// Every element becomes the immediate's 32 bits.
    VImm, "vimm", Valu, ValuInt, [Vd, Imm];
    /// Every element becomes the scalar's 32 bits.
    VBcast, "vbcast", Valu, ValuInt, [Vd, Ss];
    /// Every element becomes its lane number (i32).
    VLaneId, "vlaneid", Valu, ValuInt, [Vd];
    /// Every element becomes its sublane number (i32).
    VSubId, "vsubid", Valu, ValuInt, [Vd];
    /// Copy.
    VMov, "vmov", Valu, ValuInt, [Vd, Vs];
    /// `vd = m ? a : b`.
    VSel, "vsel", Valu, ValuInt, [Vd, Ms, Vs, Vs];
    /// f32 add.
    VAddF, "vadd.f32", Valu, ValuFloat, [Vd, Vs, Vs];
    /// f32 subtract.
    VSubF, "vsub.f32", Valu, ValuFloat, [Vd, Vs, Vs];
    /// f32 multiply.
    VMulF, "vmul.f32", Valu, ValuFloat, [Vd, Vs, Vs];
    /// f32 minimum; NaN if either is NaN, -0 below +0.
    VMinF, "vmin.f32", Valu, ValuInt, [Vd, Vs, Vs];
    /// f32 maximum; NaN if either is NaN, +0 above -0.
    VMaxF, "vmax.f32", Valu, ValuInt, [Vd, Vs, Vs];
    /// f32 round towards minus infinity.
    VFloor, "vfloor.f32", Valu, ValuFloat, [Vd, Vs];
    /// f32 round towards plus infinity.
    VCeil, "vceil.f32", Valu, ValuFloat, [Vd, Vs];
    /// f32 round to nearest, ties to even.
    VRne, "vrne.f32", Valu, ValuFloat, [Vd, Vs];
    /// Round f32 to the format's precision, result still f32 (overflow and NaN as the format has them).
    VRound, "vround", Valu, ValuFloat, [Vd, Vs, Fmt];
    /// f32 to i32, towards zero, saturating, NaN to 0.
    VF2I, "vcvt.f32.i32", Valu, ValuFloat, [Vd, Vs];
    /// f32 to u32, towards zero, saturating, NaN to 0.
    VF2U, "vcvt.f32.u32", Valu, ValuFloat, [Vd, Vs];
    /// i32 to f32, nearest even.
    VI2F, "vcvt.i32.f32", Valu, ValuFloat, [Vd, Vs];
    /// u32 to f32, nearest even.
    VU2F, "vcvt.u32.f32", Valu, ValuFloat, [Vd, Vs];
    /// Part `imm` of a packed register, widened to 32 bits.
    VUnpack, "vunpack", Valu, ValuFloat, [Vd, Vs, Fmt, Imm];
    /// First operand with part `imm` replaced by the second operand, narrowed.
    VPack, "vpack", Valu, ValuFloat, [Vd, Vs, Vs, Fmt, Imm];
    /// i32 add.
    VAddI, "vadd.i32", Valu, ValuInt, [Vd, Vs, Vs];
    /// i32 subtract.
    VSubI, "vsub.i32", Valu, ValuInt, [Vd, Vs, Vs];
    /// i32 multiply, low 32 bits.
    VMulI, "vmul.i32", Valu, ValuFloat, [Vd, Vs, Vs];
    /// u32 multiply, high 32 bits.
    VMulHiU, "vmulhi.u32", Valu, ValuFloat, [Vd, Vs, Vs];
    /// i32 minimum.
    VMinI, "vmin.i32", Valu, ValuInt, [Vd, Vs, Vs];
    /// i32 maximum.
    VMaxI, "vmax.i32", Valu, ValuInt, [Vd, Vs, Vs];
    /// u32 minimum.
    VMinU, "vmin.u32", Valu, ValuInt, [Vd, Vs, Vs];
    /// u32 maximum.
    VMaxU, "vmax.u32", Valu, ValuInt, [Vd, Vs, Vs];
    /// Bitwise and.
    VAnd, "vand", Valu, ValuInt, [Vd, Vs, Vs];
    /// Bitwise or.
    VOr, "vor", Valu, ValuInt, [Vd, Vs, Vs];
    /// Bitwise exclusive or.
    VXor, "vxor", Valu, ValuInt, [Vd, Vs, Vs];
    /// Shift left; 0 when the (unsigned) amount is 32 or more.
    VShl, "vshl", Valu, ValuInt, [Vd, Vs, Vs];
    /// Logical shift right; 0 when the amount is 32 or more.
    VShr, "vshr.u32", Valu, ValuInt, [Vd, Vs, Vs];
    /// Arithmetic shift right; the sign when the amount is 32 or more.
    VSra, "vshr.i32", Valu, ValuInt, [Vd, Vs, Vs];
    /// Number of one bits.
    VPopcnt, "vpopcnt", Valu, ValuInt, [Vd, Vs];
    /// Number of leading zero bits.
    VClz, "vclz", Valu, ValuInt, [Vd, Vs];
    /// Sublane `s` moves to sublane `(s + imm) mod 8`.
    VSubRot, "vsubrot", Valu, ValuFloat, [Vd, Vs, Imm];
    /// Sublane `imm` is copied to all sublanes.
    VSubBcast, "vsubbcast", Valu, ValuFloat, [Vd, Vs, Imm];

    /// f32 `a == b`.
    VEqF, "vcmp.eq.f32", Valu, ValuInt, [Md, Vs, Vs];
    /// f32 `a != b` (true for NaN).
    VNeF, "vcmp.ne.f32", Valu, ValuInt, [Md, Vs, Vs];
    /// f32 `a < b`.
    VLtF, "vcmp.lt.f32", Valu, ValuInt, [Md, Vs, Vs];
    /// f32 `a <= b`.
    VLeF, "vcmp.le.f32", Valu, ValuInt, [Md, Vs, Vs];
    /// Bits equal.
    VEqI, "vcmp.eq.i32", Valu, ValuInt, [Md, Vs, Vs];
    /// Bits differ.
    VNeI, "vcmp.ne.i32", Valu, ValuInt, [Md, Vs, Vs];
    /// i32 `a < b`.
    VLtI, "vcmp.lt.i32", Valu, ValuInt, [Md, Vs, Vs];
    /// i32 `a <= b`.
    VLeI, "vcmp.le.i32", Valu, ValuInt, [Md, Vs, Vs];
    /// u32 `a < b`.
    VLtU, "vcmp.lt.u32", Valu, ValuInt, [Md, Vs, Vs];
    /// u32 `a <= b`.
    VLeU, "vcmp.le.u32", Valu, ValuInt, [Md, Vs, Vs];
    /// Mask and.
    MAnd, "vmand", Valu, ValuInt, [Md, Ms, Ms];
    /// Mask or.
    MOr, "vmor", Valu, ValuInt, [Md, Ms, Ms];
    /// Mask exclusive or.
    MXor, "vmxor", Valu, ValuInt, [Md, Ms, Ms];
    /// Mask not.
    MNot, "vmnot", Valu, ValuInt, [Md, Ms];
    /// True where the lane number is below `s + imm`.
    MLaneLt, "vmlane.lt", Valu, ValuInt, [Md, Ss, Imm];
    /// True where the sublane number is below `s + imm`.
    MSubLt, "vmsub.lt", Valu, ValuInt, [Md, Ss, Imm];

    /// Load 8 rows of VMEM from `s + imm`, `stride` rows apart.
    VLd, "vld", VLoad, VLoad, [Vd, Ss, Imm, Imm];
    /// Store 8 sublanes to rows of VMEM from `s + imm`, `stride` rows apart.
    VSt, "vst", VStore, VStore, [Vs, Ss, Imm, Imm];
    /// Store where the mask is true.
    VStM, "vst.msk", VStore, VStore, [Vs, Ss, Imm, Imm, Ms];

    /// Push for `2^x`.
    EPow2, "eup.pow2", Extended, Eup, [Vs];
    /// Push for `log2 x`.
    ELog2, "eup.log2", Extended, Eup, [Vs];
    /// Push for `1 / x`.
    ERcp, "eup.rcp", Extended, Eup, [Vs];
    /// Push for `1 / sqrt x`.
    ERsqrt, "eup.rsqrt", Extended, Eup, [Vs];
    /// Push for `tanh x`.
    ETanh, "eup.tanh", Extended, Eup, [Vs];
    /// Next EUP result.
    EPop, "eup.pop", Pop, EupPop, [Vd];

    /// Rotate lanes up by `imm`.
    XRot, "xrot", Extended, XluRotate, [Xlu, Vs, Imm];
    /// Copy lane `imm` to all lanes.
    XBcast, "xbcast", Extended, XluRotate, [Xlu, Vs, Imm];
    /// Sum of f32 lanes.
    XSumF, "xred.add.f32", Extended, XluReduce, [Xlu, Vs];
    /// Maximum of f32 lanes (NaN as `vmax.f32`).
    XMaxF, "xred.max.f32", Extended, XluReduce, [Xlu, Vs];
    /// Minimum of f32 lanes (NaN as `vmin.f32`).
    XMinF, "xred.min.f32", Extended, XluReduce, [Xlu, Vs];
    /// Sum of i32 lanes.
    XSumI, "xred.add.i32", Extended, XluReduce, [Xlu, Vs];
    /// Maximum of i32 lanes.
    XMaxI, "xred.max.i32", Extended, XluReduce, [Xlu, Vs];
    /// Minimum of i32 lanes.
    XMinI, "xred.min.i32", Extended, XluReduce, [Xlu, Vs];
    /// One of 16 registers of a 128 x 128 transpose.
    XPose, "xpose", Extended, XluTranspose, [Xlu, Vs];
    /// Next XLU result.
    XPop, "xpop", Pop, XluPop, [Xlu, Vd];

    /// Weights of slot `imm`, row-major.
    MxPush, "vmatpush", Extended, MxuPush, [Mxu, Vs, Fmt, Imm];
    /// Weights of slot `imm`, transposed.
    MxPushT, "vmatpush.t", Extended, MxuPush, [Mxu, Vs, Fmt, Imm];
    /// Make the pushed weights active.
    MxLatch, "vmatlatch", Extended, MxuLatch, [Mxu];
    /// Stream rows; results are queued.
    MxMul, "vmatmul", Extended, MxuMul, [Mxu, Vs, Vs, Fmt];
    /// Next MXU result.
    MxPop, "vmatpop", Pop, MxuPop, [Mxu, Vd];
    /// Stream rows; results overwrite accumulators `imm ..`.
    MxIni, "vmatmul.ini", Extended, MxuAcc, [Mxu, Vs, Vs, Fmt, Imm];
    /// Stream rows; results are added to accumulators `imm ..`.
    MxAcc, "vmatmul.acc", Extended, MxuAcc, [Mxu, Vs, Vs, Fmt, Imm];
    /// Read accumulator register `imm`.
    MxPopAcc, "vmatpop.acc", Pop, MxuPopAcc, [Mxu, Vd, Imm];

    /// Start a DMA; signal the flag when done.
    Dma, "dma", Dma, DmaStart, [Desc, Flag];
    /// Start a message to another device.
    DmaSend, "dma.send", Dma, DmaSend, [Send];
    /// Wait until the flag is at least `imm`, then subtract `imm`.
    DmaWait, "dma.wait", Dma, DmaWait, [Flag, Imm];
    /// Add `imm` to the flag.
    FlagAdd, "flag.add", Dma, Flag, [Flag, Imm];
}

/// Most operands any instruction has.
pub const MAX_FIELDS: usize = 5;

/// One instruction. `args[i]` belongs to `op.fields()[i]`: a register or unit number, an immediate's bits, a [`Format`] code, a flag
/// or a descriptor index. Unused arguments are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instr {
    /// What it does.
    pub op: Op,
    /// Its operands.
    pub args: [i32; MAX_FIELDS],
}

impl Instr {
    /// An instruction with these operands, in table order.
    pub fn new(op: Op, operands: &[i32]) -> Self {
        debug_assert_eq!(operands.len(), op.fields().len(), "{}", op.name());
        let mut args = [0; MAX_FIELDS];
        args[..operands.len()].copy_from_slice(operands);
        Instr { op, args }
    }

    /// Operands with their kinds.
    pub fn operands(&self) -> impl Iterator<Item = (Field, i32)> + '_ {
        self.op.fields().iter().copied().zip(self.args)
    }

    /// The packed format operand, if the instruction has one and it is known.
    pub fn format(&self) -> Option<Format> {
        self.operands().find(|(f, _)| *f == Field::Fmt).and_then(|(_, c)| Format::from_code(c))
    }
}
