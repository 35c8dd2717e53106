//! A bounds-checked cursor over part of the file.

use super::error::{BytecodeError, ErrorKind, Result};

/// The byte that fills the space before an aligned section.
const PADDING: u8 = 0xCB;

/// Reads little-endian data; knows its place in the file, so that errors and alignment refer to the file.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    data: &'a [u8],
    pos: usize,
    base: usize,
}

/// A section as it stands in the file.
pub(super) struct Section<'a> {
    pub id: u8,
    pub data: Reader<'a>,
}

impl<'a> Reader<'a> {
    /// A reader of `data`, which begins at byte `base` of the file.
    pub fn new(data: &'a [u8], base: usize) -> Self {
        Reader { data, pos: 0, base }
    }

    /// Offset in the file.
    pub fn offset(&self) -> usize {
        self.base + self.pos
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.data.len() - self.pos
    }

    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// An error at the current place.
    pub fn fail<T>(&self, kind: ErrorKind) -> Result<T> {
        Err(BytecodeError::new(kind, self.offset()))
    }

    pub fn bytes(&mut self, n: u64) -> Result<&'a [u8]> {
        let left = self.left();
        match usize::try_from(n).ok().and_then(|n| self.data.get(self.pos..self.pos.checked_add(n)?)) {
            Some(b) => {
                self.pos += b.len();
                Ok(b)
            }
            None => self.fail(ErrorKind::Truncated(n.saturating_sub(left as u64))),
        }
    }

    /// A reader of the next `n` bytes.
    pub fn sub(&mut self, n: u64) -> Result<Reader<'a>> {
        let base = self.offset();
        Ok(Reader::new(self.bytes(n)?, base))
    }

    pub fn byte(&mut self) -> Result<u8> {
        match self.bytes(1)? {
            [b] => Ok(*b),
            _ => self.fail(ErrorKind::Truncated(1)),
        }
    }

    /// A prefix varint: the trailing zeros of the first byte tell how many bytes follow.
    pub fn varint(&mut self) -> Result<u64> {
        let first = self.byte()?;
        if first & 1 == 1 {
            return Ok(u64::from(first >> 1));
        }
        let more = first.trailing_zeros().min(8);
        let mut le = [0u8; 9];
        le[0] = first;
        let rest = self.bytes(u64::from(more))?;
        for (to, from) in le[1..].iter_mut().zip(rest) {
            *to = *from;
        }
        let mut value = u128::from(0u8);
        for (i, b) in le.iter().enumerate() {
            value |= u128::from(*b) << (8 * i);
        }
        // With eight bytes to follow the marker takes the whole first byte.
        let shift = if more == 8 { 8 } else { more + 1 };
        Ok((value >> shift) as u64)
    }

    /// A varint that carries a flag in its lowest bit.
    pub fn varint_flag(&mut self) -> Result<(u64, bool)> {
        let v = self.varint()?;
        Ok((v >> 1, v & 1 == 1))
    }

    /// A zigzag varint.
    pub fn svarint(&mut self) -> Result<i64> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// A number of items that follow, each of at least one byte: more than what is left cannot be.
    pub fn count(&mut self, what: &'static str) -> Result<usize> {
        let n = self.varint()?;
        self.check_count(n, what)
    }

    pub fn check_count(&self, n: u64, what: &'static str) -> Result<usize> {
        match usize::try_from(n) {
            Ok(k) if k <= self.left() => Ok(k),
            _ => self.fail(ErrorKind::Count(n, what, self.left())),
        }
    }

    /// A list of signed varints.
    pub fn svarints(&mut self) -> Result<Vec<i64>> {
        let n = self.count("integers")?;
        (0..n).map(|_| self.svarint()).collect()
    }

    /// A list of indices.
    pub fn varints(&mut self, what: &'static str) -> Result<Vec<u64>> {
        let n = self.count(what)?;
        (0..n).map(|_| self.varint()).collect()
    }

    /// An index that may be absent.
    pub fn optional(&mut self) -> Result<Option<u64>> {
        let (v, there) = self.varint_flag()?;
        Ok(there.then_some(v))
    }

    /// A length and as many bytes.
    pub fn blob(&mut self) -> Result<&'a [u8]> {
        let n = self.varint()?;
        self.bytes(n)
    }

    /// Text up to a zero byte.
    pub fn cstr(&mut self) -> Result<&'a str> {
        let rest = self.data.get(self.pos..).unwrap_or_default();
        let Some(n) = rest.iter().position(|&b| b == 0) else { return self.fail(ErrorKind::Text) };
        let at = self.offset();
        let text = self.bytes(n as u64)?;
        self.byte()?;
        std::str::from_utf8(text).map_err(|_| BytecodeError::new(ErrorKind::Text, at))
    }

    /// Skips padding up to a multiple of `alignment` bytes of the file.
    pub fn align(&mut self, alignment: u64) -> Result<()> {
        if !alignment.is_power_of_two() || alignment > 1 << 31 {
            return self.fail(ErrorKind::Alignment);
        }
        while self.offset() as u64 & (alignment - 1) != 0 {
            if self.byte()? != PADDING {
                return self.fail(ErrorKind::Alignment);
            }
        }
        Ok(())
    }

    /// A section: number, length, optional alignment, data.
    pub fn section(&mut self) -> Result<Section<'a>> {
        let head = self.byte()?;
        let len = self.varint()?;
        if head & 0x80 != 0 {
            let alignment = self.varint()?;
            self.align(alignment)?;
        }
        Ok(Section { id: head & 0x7f, data: self.sub(len)? })
    }

    /// Refuses leftover bytes.
    pub fn finish(&self, what: &'static str) -> Result<()> {
        if self.is_empty() { Ok(()) } else { self.fail(ErrorKind::Trailing(self.left(), what)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Option<u64> {
        let mut r = Reader::new(bytes, 0);
        let v = r.varint().ok()?;
        r.is_empty().then_some(v)
    }

    /// Oracle: an encoder written from the format's table of prefixes.
    fn encode(v: u64) -> Vec<u8> {
        for n in 1..=8u32 {
            if v < 1 << (7 * n) {
                return ((v << n) | 1 << (n - 1)).to_le_bytes()[..n as usize].to_vec();
            }
        }
        let mut out = vec![0];
        out.extend(v.to_le_bytes());
        out
    }

    #[test]
    fn varints_of_every_length() {
        assert_eq!(varint(&[0x01]), Some(0));
        assert_eq!(varint(&[0xff]), Some(127));
        assert_eq!(varint(&[0x02, 0x02]), Some(128));
        assert_eq!(varint(&[0, 1, 0, 0, 0, 0, 0, 0, 0x80]), Some(1 << 63 | 1));
        for bit in 0..64 {
            for v in [1u64 << bit, (1u64 << bit) - 1, u64::MAX >> bit] {
                assert_eq!(varint(&encode(v)), Some(v));
            }
        }
    }

    #[test]
    fn truncated_varints_are_errors() {
        for bit in [7, 14, 30, 50, 63] {
            let full = encode(1 << bit);
            for n in 0..full.len() {
                assert!(Reader::new(&full[..n], 0).varint().is_err());
            }
        }
    }

    #[test]
    fn signed_varints_are_zigzag() {
        for (v, z) in [(0, 0u64), (-1, 1), (1, 2), (i64::MIN, u64::MAX), (i64::MAX, u64::MAX - 1)] {
            assert_eq!(Reader::new(&encode(z), 0).svarint().unwrap(), v);
        }
    }

    #[test]
    fn sections_align_to_the_file() {
        // Section 5 of 2 bytes aligned to 8: the header is at bytes 3 to 5, the data begins at byte 8.
        let bytes = [0x85, 0x05, 0x11, 0xCB, 0xCB, 7, 9];
        let mut r = Reader::new(&bytes, 3);
        let mut s = r.section().unwrap();
        assert_eq!((s.id, s.data.offset(), s.data.left()), (5, 8, 2));
        assert_eq!(s.data.bytes(2).unwrap(), [7, 9]);
        let mut wrong = bytes;
        wrong[4] = 0;
        assert_eq!(Reader::new(&wrong, 3).section().err().map(|e| e.kind), Some(ErrorKind::Alignment));
        let mut odd = bytes;
        odd[2] = 0x0d;
        assert_eq!(Reader::new(&odd, 3).section().err().map(|e| e.kind), Some(ErrorKind::Alignment));
    }

    #[test]
    fn counts_are_checked_against_what_is_left() {
        let bytes = encode(1 << 40);
        assert!(matches!(Reader::new(&bytes, 0).count("items").err().map(|e| e.kind), Some(ErrorKind::Count(..))));
    }
}
