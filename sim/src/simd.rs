//! Vector instructions of the host, chosen at run time. The only unsafe code of the crate.
//!
//! Work that is inlined into a function compiled for AVX-512 or AVX2 is vectorized for it. The results do not depend on the
//! choice: no instruction set changes the rounding of an operation that the source spells out.

/// Work worth the host's widest vectors. `run` must be `#[inline(always)]`.
pub(crate) trait Work {
    /// What it gives.
    type Out;
    /// Does it. `WIDE` says that there are 32 registers of 512 bits.
    fn run<const WIDE: bool>(self) -> Self::Out;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Work;

    // Not the 256-bit forms (avx512vl): with them the compiler prefers those.
    #[target_feature(enable = "avx512f,fma,avx2,lzcnt,popcnt,bmi1,bmi2")]
    pub(super) fn avx512<W: Work>(w: W) -> W::Out {
        w.run::<true>()
    }

    #[target_feature(enable = "avx2,fma,lzcnt,popcnt,bmi1,bmi2")]
    pub(super) fn avx2<W: Work>(w: W) -> W::Out {
        w.run::<false>()
    }

    /// What the processor has, found once.
    #[derive(Clone, Copy)]
    pub(super) enum Level {
        Avx512,
        Avx2,
        Base,
    }

    pub(super) fn level() -> Level {
        static LEVEL: std::sync::OnceLock<Level> = std::sync::OnceLock::new();
        *LEVEL.get_or_init(|| {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            let avx512 = is_x86_feature_detected!("avx512f");
            match (avx2, avx512) {
                (true, true) => Level::Avx512,
                (true, false) => Level::Avx2,
                _ => Level::Base,
            }
        })
    }
}

/// Does `w` with the widest vectors the host has.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn widest<W: Work>(w: W) -> W::Out {
    match x86::level() {
        // SAFETY: `level` found every feature that the function is compiled for on this processor.
        x86::Level::Avx512 => unsafe { x86::avx512(w) },
        // SAFETY: as above.
        x86::Level::Avx2 => unsafe { x86::avx2(w) },
        x86::Level::Base => w.run::<false>(),
    }
}

/// Does `w`; the vectors of other processors are in their baseline.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn widest<W: Work>(w: W) -> W::Out {
    w.run::<false>()
}
