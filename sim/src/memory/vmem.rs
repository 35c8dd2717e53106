//! VMEM: rows of 128 words.

use crate::fault::FaultKind;
use crate::vpu::regs::{LANES, Reg, SUBLANES, WORDS, Words};

/// Vector memory of one core.
#[derive(Debug)]
pub(crate) struct Vmem {
    /// Words from `start` on are the memory: rows begin on a cache line.
    room: Vec<u32>,
    start: usize,
    rows: u64,
    fill: u32,
}

impl Vmem {
    /// `bytes` of memory whose words start as `fill`.
    pub fn new(bytes: u64, fill: u32) -> Self {
        Vmem { room: Vec::new(), start: 0, rows: bytes / (4 * LANES as u64), fill }
    }

    /// Forgets all contents.
    pub fn reset(&mut self) {
        self.room.fill(self.fill);
    }

    /// The words of rows up to `last`, after checking that rows `first ..= last` exist.
    #[inline]
    pub fn rows(&mut self, first: i128, last: i128) -> Result<&mut [u32], FaultKind> {
        if first < 0 || last >= i128::from(self.rows) {
            return Err(FaultKind::Vmem { first, last, rows: self.rows });
        }
        let need = (last as usize + 1) * LANES;
        if need > self.room.len().saturating_sub(self.start) {
            self.grow(need);
        }
        Ok(&mut self.room[self.start..])
    }

    /// The words of 8 rows that were once checked to exist.
    #[inline(always)]
    pub fn view(&self, row: usize) -> &Words {
        let words = &self.room[self.start + row * LANES..];
        words.first_chunk().unwrap_or(&[0; WORDS])
    }

    /// First and last of 8 rows from `row`, `stride` apart.
    #[inline(always)]
    pub fn span(row: i64, stride: i32) -> (i128, i128) {
        let span = (SUBLANES as i128 - 1) * i128::from(stride);
        (i128::from(row) + span.min(0), i128::from(row) + span.max(0))
    }

    #[cold]
    fn grow(&mut self, need: usize) {
        let all = self.rows as usize * LANES;
        // Zeroed memory costs nothing until it is touched.
        let len = if self.fill == 0 { all } else { (need * 2).min(all) };
        let mut room = vec![self.fill; len + 15];
        let start = room.as_ptr().align_offset(64).min(15);
        let old = self.room.get(self.start..).unwrap_or_default();
        let kept = old.len().min(len);
        room[start..start + kept].copy_from_slice(&old[..kept]);
        (self.room, self.start) = (room, start);
    }

    #[inline]
    fn block(&mut self, row: i64, stride: i32) -> Result<&mut [u32], FaultKind> {
        let (first, last) = Vmem::span(row, stride);
        self.rows(first, last)
    }

    /// Loads 8 rows from `row`, `stride` apart.
    pub fn load(&mut self, row: i64, stride: i32, out: &mut Reg) -> Result<(), FaultKind> {
        let words = self.block(row, stride)?;
        for (s, o) in out.0.chunks_exact_mut(LANES).enumerate() {
            let at = (row + s as i64 * i64::from(stride)) as usize * LANES;
            o.copy_from_slice(&words[at..at + LANES]);
        }
        Ok(())
    }

    /// Stores 8 sublanes to rows from `row`, `stride` apart.
    pub fn store(&mut self, row: i64, stride: i32, value: &Words) -> Result<(), FaultKind> {
        let words = self.block(row, stride)?;
        if stride == 1 {
            let at = row as usize * LANES;
            words[at..at + WORDS].copy_from_slice(value);
            return Ok(());
        }
        for (s, v) in value.chunks_exact(LANES).enumerate() {
            let at = (row + s as i64 * i64::from(stride)) as usize * LANES;
            words[at..at + LANES].copy_from_slice(v);
        }
        Ok(())
    }

    /// Stores where the mask is set.
    pub fn store_masked(&mut self, row: i64, stride: i32, value: &Words, mask: &Words) -> Result<(), FaultKind> {
        let words = self.block(row, stride)?;
        for (s, (v, m)) in value.chunks_exact(LANES).zip(mask.chunks_exact(LANES)).enumerate() {
            let at = (row + s as i64 * i64::from(stride)) as usize * LANES;
            for ((w, v), m) in words[at..at + LANES].iter_mut().zip(v).zip(m) {
                *w = (v & m) | (*w & !m);
            }
        }
        Ok(())
    }
}
