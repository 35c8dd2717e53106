//! Vector and mask registers. A mask register is kept as a vector register of all-ones and all-zero words, which is what vector
//! code on the host wants for selects.

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

/// A file of registers. Results are written to a spare register that then changes places with the destination, so an
/// instruction may name one register as source and destination.
#[derive(Debug)]
pub(crate) struct RegFile {
    regs: Vec<Box<Reg>>,
    spare: Box<Reg>,
}

impl RegFile {
    pub fn new(count: usize, fill: u32) -> Self {
        let make = || Box::new(Reg([fill; WORDS]));
        RegFile { regs: (0..count).map(|_| make()).collect(), spare: make() }
    }

    pub fn get(&self, i: i32) -> &Reg {
        &self.regs[i as usize]
    }

    pub fn set(&mut self, i: i32, value: &Reg) {
        self.regs[i as usize].0.copy_from_slice(&value.0);
    }

    pub fn get_mut(&mut self, i: i32) -> &mut Reg {
        &mut self.regs[i as usize]
    }

    /// The box of a register, to change its contents for another.
    pub fn slot(&mut self, i: i32) -> &mut Box<Reg> {
        &mut self.regs[i as usize]
    }

    #[inline(always)]
    fn commit(&mut self, d: i32) {
        std::mem::swap(&mut self.regs[d as usize], &mut self.spare);
    }

    /// `d = f(a)` for each word.
    #[inline(always)]
    pub fn map(&mut self, d: i32, a: i32, f: impl Fn(u32) -> u32) {
        let x = &self.regs[a as usize].0;
        for (o, x) in self.spare.0.iter_mut().zip(x) {
            *o = f(*x);
        }
        self.commit(d);
    }

    /// `d = f(a, b)` for each word.
    #[inline(always)]
    pub fn zip(&mut self, d: i32, a: i32, b: i32, f: impl Fn(u32, u32) -> u32) {
        let (x, y) = (&self.regs[a as usize].0, &self.regs[b as usize].0);
        for ((o, x), y) in self.spare.0.iter_mut().zip(x).zip(y) {
            *o = f(*x, *y);
        }
        self.commit(d);
    }

    /// `d = m ? a : b`.
    #[inline(always)]
    pub fn select(&mut self, d: i32, m: &Reg, a: i32, b: i32) {
        let (x, y) = (&self.regs[a as usize].0, &self.regs[b as usize].0);
        for (((o, x), y), m) in self.spare.0.iter_mut().zip(x).zip(y).zip(&m.0) {
            *o = (x & m) | (y & !m);
        }
        self.commit(d);
    }

    /// Sublane `i` of `d` is sublane `from(i)` of `a`.
    #[inline(always)]
    pub fn sublanes(&mut self, d: i32, a: i32, from: impl Fn(usize) -> usize) {
        let x = &self.regs[a as usize].0;
        let (rows, _) = x.as_chunks::<LANES>();
        let (outs, _) = self.spare.0.as_chunks_mut::<LANES>();
        for (i, o) in outs.iter_mut().enumerate() {
            *o = rows[from(i) % SUBLANES];
        }
        self.commit(d);
    }

    /// Comparison of vector registers into a mask register of this file.
    #[inline(always)]
    pub fn compare(&mut self, d: i32, a: &Reg, b: &Reg, f: impl Fn(u32, u32) -> bool) {
        for ((o, x), y) in self.regs[d as usize].0.iter_mut().zip(&a.0).zip(&b.0) {
            *o = if f(*x, *y) { u32::MAX } else { 0 };
        }
    }
}
