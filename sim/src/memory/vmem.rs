//! VMEM: rows of 128 words, kept up to the highest row used.

use crate::fault::FaultKind;
use crate::vpu::regs::{LANES, Reg, SUBLANES, WORDS};

/// Vector memory of one core.
#[derive(Debug)]
pub(crate) struct Vmem {
    words: Vec<u32>,
    rows: u64,
    fill: u32,
}

impl Vmem {
    /// `bytes` of memory whose words start as `fill`.
    pub fn new(bytes: u64, fill: u32) -> Self {
        Vmem { words: Vec::new(), rows: bytes / (4 * LANES as u64), fill }
    }

    /// Forgets all contents.
    pub fn reset(&mut self) {
        self.words.fill(self.fill);
    }

    /// The words of rows up to `last`, after checking that rows `first ..= last` exist.
    #[inline]
    pub fn rows(&mut self, first: i128, last: i128) -> Result<&mut [u32], FaultKind> {
        if first < 0 || last >= i128::from(self.rows) {
            return Err(FaultKind::Vmem { first, last, rows: self.rows });
        }
        let need = (last as usize + 1) * LANES;
        if need > self.words.len() {
            let room = (need * 2).min(self.rows as usize * LANES).max(need);
            self.words.resize(room, self.fill);
        }
        Ok(&mut self.words)
    }

    #[inline]
    fn block(&mut self, row: i64, stride: i32) -> Result<&mut [u32], FaultKind> {
        let span = (SUBLANES as i128 - 1) * i128::from(stride);
        self.rows(i128::from(row) + span.min(0), i128::from(row) + span.max(0))
    }

    /// Loads 8 rows from `row`, `stride` apart.
    pub fn load(&mut self, row: i64, stride: i32, out: &mut Reg) -> Result<(), FaultKind> {
        let words = self.block(row, stride)?;
        if stride == 1 {
            let at = row as usize * LANES;
            out.0.copy_from_slice(&words[at..at + WORDS]);
            return Ok(());
        }
        for (s, o) in out.0.chunks_exact_mut(LANES).enumerate() {
            let at = (row + s as i64 * i64::from(stride)) as usize * LANES;
            o.copy_from_slice(&words[at..at + LANES]);
        }
        Ok(())
    }

    /// Stores 8 sublanes to rows from `row`, `stride` apart.
    pub fn store(&mut self, row: i64, stride: i32, value: &Reg) -> Result<(), FaultKind> {
        let words = self.block(row, stride)?;
        if stride == 1 {
            let at = row as usize * LANES;
            words[at..at + WORDS].copy_from_slice(&value.0);
            return Ok(());
        }
        for (s, v) in value.0.chunks_exact(LANES).enumerate() {
            let at = (row + s as i64 * i64::from(stride)) as usize * LANES;
            words[at..at + LANES].copy_from_slice(v);
        }
        Ok(())
    }

    /// Stores where the mask is set.
    pub fn store_masked(&mut self, row: i64, stride: i32, value: &Reg, mask: &Reg) -> Result<(), FaultKind> {
        let words = self.block(row, stride)?;
        for (s, (v, m)) in value.0.chunks_exact(LANES).zip(mask.0.chunks_exact(LANES)).enumerate() {
            let at = (row + s as i64 * i64::from(stride)) as usize * LANES;
            for ((w, v), m) in words[at..at + LANES].iter_mut().zip(v).zip(m) {
                *w = (v & m) | (*w & !m);
            }
        }
        Ok(())
    }
}
