//! Vector and mask registers. A mask register is kept as a vector register of all-ones and all-zero words, which is what vector
//! code on the host wants for selects.

use crate::memory::vmem::Vmem;

/// Lanes of a vector register.
pub(crate) const LANES: usize = 128;
/// Sublanes of a vector register.
pub(crate) const SUBLANES: usize = 8;
/// Words of a vector register.
pub(crate) const WORDS: usize = LANES * SUBLANES;

/// 8 sublanes x 128 lanes of 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(crate) struct Reg(pub [u32; WORDS]);

impl Default for Reg {
    fn default() -> Self {
        Reg([0; WORDS])
    }
}

/// The words of a register: sublane after sublane, as rows of VMEM lie.
pub(crate) type Words = [u32; WORDS];

/// No view.
const OWN: u32 = u32::MAX;

/// A file of registers. Results are written to a spare register that then changes places with the destination, so an
/// instruction may name one register as source and destination.
///
/// A register loaded from VMEM holds no copy at first: it is a *view* of the 8 rows it came from, and what reads it reads those.
/// Whoever is about to write to VMEM calls [`RegFile::detach`], which copies what would be lost. Most loaded registers are used
/// up before that, so that a load costs nothing.
#[derive(Debug)]
pub(crate) struct RegFile {
    regs: Vec<Box<Reg>>,
    spare: Box<Reg>,
    /// First of the 8 rows of VMEM that each register is a view of, or [`OWN`].
    views: Vec<u32>,
}

impl RegFile {
    pub fn new(count: usize, fill: u32) -> Self {
        let make = || Box::new(Reg([fill; WORDS]));
        RegFile { regs: (0..count).map(|_| make()).collect(), spare: make(), views: vec![OWN; count] }
    }

    #[inline(always)]
    fn source<'a>(regs: &'a [Box<Reg>], views: &[u32], i: i32, mem: &'a Vmem) -> &'a Words {
        match views[i as usize] {
            OWN => &regs[i as usize].0,
            row => mem.view(row as usize),
        }
    }

    #[inline(always)]
    pub fn get<'a>(&'a self, i: i32, mem: &'a Vmem) -> &'a Words {
        Self::source(&self.regs, &self.views, i, mem)
    }

    /// A register of a file that has no views: masks are never loaded.
    #[inline(always)]
    pub fn owned(&self, i: i32) -> &Words {
        &self.regs[i as usize].0
    }

    /// A register to be overwritten as a whole.
    #[inline(always)]
    pub fn get_mut(&mut self, i: i32) -> &mut Reg {
        self.views[i as usize] = OWN;
        &mut self.regs[i as usize]
    }

    /// The box of a register, to change its contents for another.
    #[inline(always)]
    pub fn slot(&mut self, i: i32) -> &mut Box<Reg> {
        self.views[i as usize] = OWN;
        &mut self.regs[i as usize]
    }

    /// Makes a register the contents of 8 rows of `mem`, which exist. Returns whether it could: rows of very large memories have
    /// to be copied.
    #[inline(always)]
    pub fn view(&mut self, i: i32, row: i64) -> bool {
        let row = u32::try_from(row).unwrap_or(OWN);
        self.views[i as usize] = row;
        row != OWN
    }

    /// Copies the contents of a register that is a view. Returns the register's words.
    #[inline(always)]
    pub fn own(&mut self, i: i32, mem: &Vmem) -> &Words {
        let row = std::mem::replace(&mut self.views[i as usize], OWN);
        let reg = &mut self.regs[i as usize].0;
        if row != OWN {
            reg.copy_from_slice(mem.view(row as usize));
        }
        reg
    }

    /// Rows `first ..= last` of `mem` are about to change: registers that are views of them get a copy.
    #[inline(always)]
    pub fn detach(&mut self, first: i128, last: i128, mem: &Vmem) {
        // A view covers rows `row .. row + 8`. What is outside of this range is not in VMEM, and a fault elsewhere.
        let low = first.saturating_sub(SUBLANES as i128 - 1).clamp(0, i128::from(OWN)) as u32;
        let high = last.clamp(-1, i128::from(OWN) - 1);
        let Ok(high) = u32::try_from(high) else { return };
        let Some(span) = high.checked_sub(low) else { return };
        // One pass without branches, since most stores hit no view.
        let hit = self.views.iter().fold(false, |hit, row| hit | (row.wrapping_sub(low) <= span));
        if hit {
            self.detach_some(low, span, mem);
        }
    }

    #[cold]
    fn detach_some(&mut self, low: u32, span: u32, mem: &Vmem) {
        for i in 0..self.views.len() {
            if self.views[i].wrapping_sub(low) <= span {
                self.own(i as i32, mem);
            }
        }
    }

    #[inline(always)]
    fn commit(&mut self, d: i32) {
        std::mem::swap(&mut self.regs[d as usize], &mut self.spare);
        self.views[d as usize] = OWN;
    }

    /// `d = f(a)` for each word.
    #[inline(always)]
    pub fn map(&mut self, d: i32, a: i32, mem: &Vmem, f: impl Fn(u32) -> u32) {
        let x = Self::source(&self.regs, &self.views, a, mem);
        for (o, x) in self.spare.0.iter_mut().zip(x) {
            *o = f(*x);
        }
        self.commit(d);
    }

    /// `d = f(a, b)` for each word.
    #[inline(always)]
    pub fn zip(&mut self, d: i32, a: i32, b: i32, mem: &Vmem, f: impl Fn(u32, u32) -> u32) {
        self.whole(d, a, b, mem, |x, y, out| {
            for ((o, x), y) in out.iter_mut().zip(x).zip(y) {
                *o = f(*x, *y);
            }
        });
    }

    /// `d` is what `f` makes of `a` and `b`; it has to write every word.
    #[inline(always)]
    pub fn whole(&mut self, d: i32, a: i32, b: i32, mem: &Vmem, f: impl FnOnce(&Words, &Words, &mut Words)) {
        let x = Self::source(&self.regs, &self.views, a, mem);
        let y = Self::source(&self.regs, &self.views, b, mem);
        f(x, y, &mut self.spare.0);
        self.commit(d);
    }

    /// `d = m ? a : b`.
    #[inline(always)]
    pub fn select(&mut self, d: i32, m: &Words, a: i32, b: i32, mem: &Vmem) {
        self.whole(d, a, b, mem, |x, y, out| {
            for (((o, x), y), m) in out.iter_mut().zip(x).zip(y).zip(m) {
                *o = (x & m) | (y & !m);
            }
        });
    }

    /// Sublane `i` of `d` is sublane `from(i)` of `a`.
    #[inline(always)]
    pub fn sublanes(&mut self, d: i32, a: i32, mem: &Vmem, from: impl Fn(usize) -> usize) {
        self.whole(d, a, a, mem, |x, _, out| {
            let (rows, _) = x.as_chunks::<LANES>();
            let (outs, _) = out.as_chunks_mut::<LANES>();
            for (i, o) in outs.iter_mut().enumerate() {
                *o = rows[from(i) % SUBLANES];
            }
        });
    }

    /// Comparison of vector registers into a mask register of this file.
    #[inline(always)]
    pub fn compare(&mut self, d: i32, a: &Words, b: &Words, f: impl Fn(u32, u32) -> bool) {
        for ((o, x), y) in self.regs[d as usize].0.iter_mut().zip(a).zip(b) {
            *o = if f(*x, *y) { u32::MAX } else { 0 };
        }
    }
}
