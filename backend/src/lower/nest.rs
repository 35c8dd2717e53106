//! The skeleton every kernel shares: a nest of grid loops around a body, with double-buffered DMAs.
//!
//! A kernel works through a grid of blocks. Each *stream* (an input or output block) depends on some of the grid's levels and is
//! *attached* to the deepest of them: its block changes only when that level steps. At the start of an iteration of its level a
//! load stream's next block is requested into the other half of its double buffer, then the current one is waited for; a
//! store stream's block is sent when the iteration ends, and its half is reused two iterations later. The next block is found
//! odometer-wise, so that the first block of the next outer iteration is already under way while the last inner one computes. Only
//! the very last iteration of the whole nest requests nothing: along the path of last iterations the loops are peeled.
//!
//! Blocks that do not divide their extent start at `min(i * block, extent - block)`: the last block overlaps its neighbour and
//! computes some elements twice with the same result, which keeps every shape static. Levels that reduce say how many leading
//! elements of a block are repeats ([`Nest::start`]), so that the body can mask them.
//!
//! On a megacore the first grid level is split between the cores.

use tpusim_isa::op::Op;
use tpusim_isa::program::{Addr, DmaDesc, DmaDim, DmaDir, OnChip, SReg};

use super::emit::{CORE, EmitError, Emitter, ZERO};
use super::vcode::{Object, Place};

/// One level of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Elements of the dimension.
    pub extent: u64,
    /// Elements of a block, at most `extent`.
    pub block: u64,
    /// Whether the body wants to know the first and the last iteration (levels that reduce).
    pub ends: bool,
}

impl Level {
    /// Number of blocks.
    pub fn trip(&self) -> u64 {
        self.extent.div_ceil(self.block.max(1))
    }

    /// Whether the last block overlaps the one before.
    pub fn ragged(&self) -> bool {
        self.trip() * self.block != self.extent
    }
}

/// A dimension of a stream's block beyond rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Steps.
    pub count: u32,
    /// Bytes between steps in HBM.
    pub hbm_stride: i64,
    /// VMEM rows between steps; 0 if planes lie one after the other.
    pub pitch: u32,
}

/// How far into its buffer a block lands that should begin before its array does, or end after it: the transfer is moved to where the
/// array has elements, in HBM and in VMEM alike, and so stays where the block wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// Grid level that moves the block.
    pub level: usize,
    /// Elements of the array from one element of the level to the next.
    pub stride: u32,
    /// Elements that the first block begins before the array.
    pub low: u32,
    /// Last element a transfer may begin with.
    pub last: u32,
    /// Bytes between elements in HBM.
    pub hbm: i64,
    /// VMEM rows between elements.
    pub vmem: u32,
}

/// An input or output of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Load or store.
    pub dir: DmaDir,
    /// Bytes per element.
    pub elem_bytes: u8,
    /// HBM address of the element at index zero, in bytes.
    pub base: Addr,
    /// Bytes per element step along each grid level; 0 if it does not depend on the level.
    pub level_strides: Vec<i64>,
    /// Planes of the block.
    pub outer: Vec<Outer>,
    /// Rows of the block.
    pub rows: u32,
    /// Bytes between rows in HBM.
    pub row_stride: i64,
    /// Columns of the block.
    pub cols: u32,
    /// Bytes between columns in HBM.
    pub col_stride: i64,
    /// Lane tiles of a tile row in VMEM, at least `ceil(cols / 128)`.
    pub lane_tiles: u32,
    /// VMEM rows of one plane, at least what the rows need.
    pub plane_rows: u32,
    /// VMEM rows of the block before what is transferred.
    pub first: u32,
    /// VMEM rows of the whole block; 0 if it is what is transferred and no more.
    pub reserve: u32,
    /// Where the block goes beyond its array.
    pub shift: Option<Shift>,
}

impl Stream {
    /// VMEM rows of the whole block.
    pub fn vmem_rows(&self) -> u32 {
        (self.outer.iter().map(|o| o.count).product::<u32>() * self.plane_rows).max(self.reserve)
    }

    /// Bytes per element step along grid level `l`.
    fn stride(&self, l: usize) -> i64 {
        self.level_strides.get(l).copied().unwrap_or(0)
    }

    /// Whether another block of grid level `l` is another block of the stream. One that goes beyond its array is, even where all of them
    /// transfer the same element: they want it in other places.
    fn follows(&self, l: usize) -> bool {
        self.stride(l) != 0 || self.shift.is_some_and(|f| f.level == l)
    }
}

/// Where in its level an iteration is, as far as the code being emitted knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ends {
    /// This is the first iteration of the level. Known only for levels with [`Level::ends`].
    pub first: bool,
    /// This is the last iteration of the level. Known only for levels with [`Level::ends`].
    pub last: bool,
}

/// What the body sees of the iteration it is emitted for.
#[derive(Clone, Debug, Default)]
pub struct Iter {
    /// Block index of each level.
    pub index: Vec<SReg>,
    /// Ends per level; `first` and `last` are both true for levels of one block.
    pub ends: Vec<Ends>,
    bases: Vec<SReg>,
}

/// The code inside the nest.
pub trait Body {
    /// Before the first DMA of the kernel.
    fn prepare(&mut self, e: &mut Emitter<'_>, nest: &Nest) -> Result<(), EmitError> {
        let _ = (e, nest);
        Ok(())
    }

    /// When the blocks of the streams attached to `level` have arrived, before inner levels run: 0 is the whole nest, `l + 1` grid
    /// level `l`.
    fn enter(&mut self, level: usize, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError> {
        let _ = (level, e, nest, it);
        Ok(())
    }

    /// The work on one block of every stream.
    fn compute(&mut self, e: &mut Emitter<'_>, nest: &Nest, it: &Iter) -> Result<(), EmitError>;
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    level: usize,
    offset: u32,
    object: Object,
}

/// State of streams attached to one level: one arena, doubled if the level steps more than once.
#[derive(Clone, Copy, Debug, Default)]
struct Arena {
    rows: u32,
    at: u32,
    double: bool,
    parity: Option<SReg>,
    load_flag: i32,
    store_flag: i32,
    loads: i32,
    stores: i32,
}

/// A kernel's grid and streams. Level 0 of the arenas is a pseudo level around the whole nest, for streams that never change.
pub struct Nest {
    levels: Vec<Level>,
    streams: Vec<Stream>,
    slots: Vec<Slot>,
    arenas: Vec<Arena>,
    cores: u32,
}

impl Nest {
    /// Lays out the streams' buffers. `cores` > 1 splits level 0, which must not reduce.
    ///
    /// # Errors
    /// [`EmitError`] when a pool runs out.
    pub fn new(e: &mut Emitter<'_>, levels: Vec<Level>, streams: Vec<Stream>, cores: u32) -> Result<Nest, EmitError> {
        let steps = |l: usize| l > 0 && levels[l - 1].trip() > 1;
        let mut arenas = vec![Arena::default(); levels.len() + 1];
        let mut slots = Vec::new();
        for s in &streams {
            let level = (1..=levels.len()).rev().find(|&l| s.follows(l - 1) && steps(l)).unwrap_or(0);
            let a = &mut arenas[level];
            slots.push(Slot { level, offset: a.rows, object: e.object() });
            a.rows += s.vmem_rows().next_multiple_of(8);
            match s.dir {
                DmaDir::Load => a.loads += 1,
                DmaDir::Store => a.stores += 1,
            }
        }
        let mut nest = Nest { levels, streams, slots, arenas, cores };
        for l in 0..nest.arenas.len() {
            let mut a = nest.arenas[l];
            a.double = (1..=l).any(|k| nest.trip(k) > 1);
            a.at = e.vmem(a.rows * if a.double { 2 } else { 1 });
            if a.loads > 0 {
                a.load_flag = e.flag()?;
            }
            if a.stores > 0 {
                a.store_flag = e.flag()?;
            }
            if a.double && a.rows > 0 {
                a.parity = Some(e.sreg()?);
            }
            nest.arenas[l] = a;
        }
        Ok(nest)
    }

    /// Blocks of arena level `l` (from 1) that one core works through.
    fn trip(&self, l: usize) -> u64 {
        let t = self.levels[l - 1].trip();
        if l == 1 { t.div_ceil(u64::from(self.cores)) } else { t }
    }

    /// The streams.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The level stream `s` is attached to: 0 for the whole nest, `l + 1` for grid level `l`.
    pub fn attached(&self, s: usize) -> usize {
        self.slots[s].level
    }

    /// All VMEM rows of stream `s`: first row and count of each half of its buffer.
    pub fn buffers(&self, s: usize) -> Vec<(u32, u32)> {
        let (slot, a) = (self.slots[s], self.arenas[self.slots[s].level]);
        let rows = self.streams[s].vmem_rows();
        (0..if a.double { 2 } else { 1 }).map(|h| (a.at + h * a.rows + slot.offset, rows)).collect()
    }

    /// Number of grid levels.
    pub fn depth(&self) -> usize {
        self.levels.len()
    }

    /// First row of stream `s`'s current block.
    pub fn place(&self, s: usize, it: &Iter) -> Place {
        let slot = self.slots[s];
        Place { object: slot.object, base: it.bases[slot.level], offset: slot.offset as i32 }
    }

    /// First element of the current block along `level`, in a fresh register the caller frees.
    pub fn start(&self, e: &mut Emitter<'_>, it: &Iter, level: usize) -> Result<SReg, EmitError> {
        self.start_of(e, level, it.index[level])
    }

    fn start_of(&self, e: &mut Emitter<'_>, level: usize, index: SReg) -> Result<SReg, EmitError> {
        let l = self.levels[level];
        let r = e.affine(index, l.block as i32, 0)?;
        if l.ragged() || (level == 0 && self.cores > 1 && !l.trip().is_multiple_of(u64::from(self.cores))) {
            e.si(Op::SMini, r, r, (l.extent - l.block) as i32);
        }
        Ok(r)
    }

    /// Emits the whole kernel.
    ///
    /// # Errors
    /// [`EmitError`].
    pub fn emit(&self, e: &mut Emitter<'_>, body: &mut dyn Body) -> Result<(), EmitError> {
        for a in &self.arenas {
            if let Some(p) = a.parity {
                e.sli(p, 0);
            }
            if a.stores > 0 {
                e.code.raw(Op::FlagAdd, &[a.store_flag, a.stores * if a.double { 2 } else { 1 }]);
            }
        }
        body.prepare(e, self)?;
        // First blocks of every load.
        let mut first = vec![ZERO; self.levels.len()];
        if self.cores > 1 && !self.levels.is_empty() {
            first[0] = e.affine(CORE, self.trip(1) as i32, 0)?;
        }
        for l in 0..self.arenas.len() {
            self.request(e, l, &first, false)?;
        }
        if let Some(&r) = first.first().filter(|r| **r != ZERO) {
            e.free(r);
        }
        e.flush()?;
        let mut it = Iter {
            index: vec![ZERO; self.levels.len()],
            ends: vec![Ends::default(); self.levels.len()],
            bases: Vec::new(),
        };
        self.iteration(e, 0, true, &mut it, body)?;
        for a in &self.arenas {
            if a.stores > 0 {
                e.wait(a.store_flag, a.stores * if a.double { 2 } else { 1 });
            }
        }
        e.flush()
    }

    /// Emits all iterations of arena level `l`.
    fn level(
        &self,
        e: &mut Emitter<'_>,
        l: usize,
        last: bool,
        it: &mut Iter,
        body: &mut dyn Body,
    ) -> Result<(), EmitError> {
        let trip = self.trip(l) as u32;
        let level = self.levels[l - 1];
        if trip == 1 {
            it.ends[l - 1] = Ends { first: true, last: true };
            return self.indexed(e, l, ZERO, 0, last, it, body);
        }
        // Which iterations stand apart: the first and the last of a reducing level, the last on the path of last iterations.
        let peel_first = level.ends;
        let peel_last = level.ends || last;
        let middle = trip - u32::from(peel_first) - u32::from(peel_last);
        if peel_first {
            it.ends[l - 1] = Ends { first: true, last: false };
            self.indexed(e, l, ZERO, 0, false, it, body)?;
        }
        it.ends[l - 1] = Ends::default();
        let offset = i32::from(peel_first);
        e.repeat(middle, |e, counter| self.indexed(e, l, counter, offset, false, it, body))?;
        if peel_last {
            it.ends[l - 1] = Ends { first: false, last: level.ends };
            self.indexed(e, l, ZERO, trip as i32 - 1, last, it, body)?;
        }
        Ok(())
    }

    /// One iteration of level `l` whose block index is `counter + offset` (plus the core's share on level 1).
    #[allow(clippy::too_many_arguments)]
    fn indexed(
        &self,
        e: &mut Emitter<'_>,
        l: usize,
        counter: SReg,
        offset: i32,
        last: bool,
        it: &mut Iter,
        body: &mut dyn Body,
    ) -> Result<(), EmitError> {
        let split = l == 1 && self.cores > 1;
        let index = if offset == 0 && !split {
            counter
        } else {
            let r = e.affine(counter, 1, offset)?;
            if split {
                let t = e.affine(CORE, self.trip(1) as i32, 0)?;
                e.ss(Op::SAdd, r, r, t);
                e.free(t);
            }
            r
        };
        it.index[l - 1] = index;
        self.iteration(e, l, last, it, body)?;
        if index != counter {
            e.free(index);
        }
        it.index[l - 1] = ZERO;
        Ok(())
    }

    fn iteration(
        &self,
        e: &mut Emitter<'_>,
        l: usize,
        last: bool,
        it: &mut Iter,
        body: &mut dyn Body,
    ) -> Result<(), EmitError> {
        let a = self.arenas[l];
        if !last && a.loads > 0 {
            let next = self.advance(e, l, it)?;
            self.request(e, l, &next, true)?;
            for r in next.into_iter().filter(|r| *r != ZERO && !it.index.contains(r)) {
                e.free(r);
            }
        }
        if a.loads > 0 {
            e.wait(a.load_flag, a.loads);
        }
        if a.stores > 0 {
            e.wait(a.store_flag, a.stores);
        }
        let base = e.sreg()?;
        match a.parity {
            Some(p) => {
                e.si(Op::SMuli, base, p, a.rows as i32);
                e.si(Op::SAddi, base, base, a.at as i32);
            }
            None => e.sli(base, a.at as i32),
        }
        it.bases.push(base);
        e.flush()?;
        body.enter(l, e, self, it)?;
        if l == self.levels.len() {
            body.compute(e, self, it)?;
        } else {
            self.level(e, l + 1, last, it, body)?;
        }
        e.flush()?;
        self.send(e, l, it)?;
        if let Some(p) = a.parity {
            e.si(Op::SXori, p, p, 1);
        }
        it.bases.pop();
        e.free(base);
        e.flush()
    }

    /// Block indices of the next iteration of level `l`: the odometer stepped once.
    fn advance(&self, e: &mut Emitter<'_>, l: usize, it: &Iter) -> Result<Vec<SReg>, EmitError> {
        let mut next = it.index.clone();
        let mut carry: Option<SReg> = None;
        for k in (1..=l).rev() {
            let trip = self.trip(k) as i32;
            if trip == 1 {
                continue;
            }
            let r = e.sreg()?;
            match carry {
                None => e.si(Op::SAddi, r, it.index[k - 1], 1),
                Some(c) => e.ss(Op::SAdd, r, it.index[k - 1], c),
            }
            if let Some(c) = carry.take() {
                e.free(c);
            }
            // The outermost stepping level never wraps: the nest's last iteration asks for nothing.
            if (1..k).any(|j| self.trip(j) > 1) {
                let c = e.sreg()?;
                e.si(Op::SEqi, c, r, trip);
                e.ss4(Op::SSel, r, c, ZERO, r);
                carry = Some(c);
            }
            next[k - 1] = r;
        }
        if let Some(c) = carry {
            e.free(c);
        }
        Ok(next)
    }

    /// Starts the loads attached to `l` for the block at `index`, into the other half (`next`) or the current one.
    fn request(&self, e: &mut Emitter<'_>, l: usize, index: &[SReg], next: bool) -> Result<(), EmitError> {
        let a = self.arenas[l];
        if a.loads == 0 {
            return Ok(());
        }
        let half = match (a.parity, next) {
            (Some(p), true) => {
                let r = e.sreg()?;
                e.si(Op::SXori, r, p, 1);
                Some(r)
            }
            (p, _) => p,
        };
        self.start_dmas(e, l, index, DmaDir::Load, half, a.load_flag)?;
        if next && let Some(r) = half {
            e.free(r);
        }
        Ok(())
    }

    fn send(&self, e: &mut Emitter<'_>, l: usize, it: &Iter) -> Result<(), EmitError> {
        let a = self.arenas[l];
        if a.stores == 0 {
            return Ok(());
        }
        self.start_dmas(e, l, &it.index, DmaDir::Store, a.parity, a.store_flag)
    }

    fn start_dmas(
        &self,
        e: &mut Emitter<'_>,
        l: usize,
        index: &[SReg],
        dir: DmaDir,
        half: Option<SReg>,
        flag: i32,
    ) -> Result<(), EmitError> {
        let a = self.arenas[l];
        let mut starts: Vec<Option<SReg>> = vec![None; self.levels.len()];
        for (s, slot) in self.streams.iter().zip(&self.slots) {
            if slot.level != l || s.dir != dir {
                continue;
            }
            let mut hbm = s.base.clone();
            for k in 0..l {
                if !s.follows(k) || self.levels[k].trip() == 1 || index[k] == ZERO {
                    continue;
                }
                let r = match starts[k] {
                    Some(r) => r,
                    None => {
                        let r = self.start_of(e, k, index[k])?;
                        starts[k] = Some(r);
                        r
                    }
                };
                if s.shift.is_none_or(|f| f.level != k) {
                    hbm.terms.push((r, s.stride(k)));
                }
            }
            let mut vmem = Addr { base: i64::from(a.at + slot.offset + s.first), terms: Vec::new() };
            let mut moved = Vec::new();
            if let Some(f) = s.shift {
                moved = self.shifted(e, f, starts.get(f.level).copied().flatten(), &mut hbm, &mut vmem)?;
            }
            if let Some(p) = half {
                vmem.terms.push((p, i64::from(a.rows)));
            }
            let mut inner = s.plane_rows;
            let mut outer: Vec<DmaDim> = Vec::new();
            for o in s.outer.iter().rev() {
                let pitch = if o.pitch > 0 { o.pitch } else { inner };
                outer.push(DmaDim { count: o.count, hbm_stride: o.hbm_stride, local_stride: i64::from(pitch) });
                inner = pitch * o.count;
            }
            outer.reverse();
            let desc = DmaDesc {
                dir,
                mem: OnChip::Vmem,
                elem_bytes: s.elem_bytes,
                outer,
                rows: s.rows,
                row_stride: s.row_stride,
                cols: s.cols,
                col_stride: s.col_stride,
                lane_tiles: s.lane_tiles,
                hbm,
                local: vmem,
            };
            e.dma(desc, flag);
            for r in moved {
                e.free(r);
            }
        }
        for r in starts.into_iter().flatten() {
            e.free(r);
        }
        Ok(())
    }

    /// Adds to the addresses of a transfer whose block begins at element `start` of its level, or at the first, what keeps it inside
    /// its array. The registers it takes are the caller's to free.
    fn shifted(
        &self,
        e: &mut Emitter<'_>,
        f: Shift,
        start: Option<SReg>,
        hbm: &mut Addr,
        vmem: &mut Addr,
    ) -> Result<Vec<SReg>, EmitError> {
        let Some(start) = start else {
            vmem.base += i64::from(f.low) * i64::from(f.vmem);
            return Ok(Vec::new());
        };
        let wanted = e.affine(start, f.stride as i32, -(f.low as i32))?;
        let at = e.sreg()?;
        e.si(Op::SMaxi, at, wanted, 0);
        e.si(Op::SMini, at, at, f.last as i32);
        e.si(Op::SMuli, wanted, wanted, -1);
        e.ss(Op::SAdd, wanted, wanted, at);
        hbm.terms.push((at, f.hbm));
        vmem.terms.push((wanted, i64::from(f.vmem)));
        Ok(vec![at, wanted])
    }
}
