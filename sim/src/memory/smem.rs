//! SMEM: words that scalar code loads and stores one by one.

use crate::fault::FaultKind;

/// Scalar memory of one core.
#[derive(Debug)]
pub(crate) struct Smem {
    /// The words so far touched; those behind hold `fill`.
    room: Vec<u32>,
    words: u64,
    fill: u32,
}

impl Smem {
    /// `bytes` of memory whose words start as `fill`.
    pub fn new(bytes: u64, fill: u32) -> Self {
        Smem { room: Vec::new(), words: bytes / 4, fill }
    }

    /// Forgets all contents.
    pub fn reset(&mut self) {
        self.room.clear();
    }

    /// The words up to `last`, after checking that words `first ..= last` exist.
    pub fn words(&mut self, first: i128, last: i128) -> Result<&mut [u32], FaultKind> {
        if first < 0 || last >= i128::from(self.words) {
            return Err(FaultKind::Smem { first, last, words: self.words });
        }
        let need = (last + 1).max(0) as usize;
        if need > self.room.len() {
            self.room.resize(need, self.fill);
        }
        Ok(&mut self.room)
    }

    /// One word.
    pub fn word(&mut self, at: i64) -> Result<&mut u32, FaultKind> {
        let words = self.words;
        let out = FaultKind::Smem { first: i128::from(at), last: i128::from(at), words };
        self.words(i128::from(at), i128::from(at))?.get_mut(at as usize).ok_or(out)
    }
}
