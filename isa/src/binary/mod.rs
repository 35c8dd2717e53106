//! The binary program file.
//!
//! | bytes | content |
//! | --- | --- |
//! | 8 | magic `TPUSIMPG` |
//! | 4 | version |
//! | 8 | length of the rest after the checksum |
//! | 4 | CRC-32 of the rest |
//! | | sections META, INFO, FLOWS, BUFFERS, RESIDENTS, DESCS, PODS, CODE in this order: tag byte, 8 bytes of length, payload |
//!
//! Numbers are little-endian; strings and byte arrays carry their length. The CODE section is a stream of bits: bundles say which
//! slots are filled, and every operand takes as many bits as its kind of field needs.
//! Because of the checksum a damaged file is an error, and because nothing is reserved beyond the bytes at hand, so is a file
//! that claims to hold more than it does.

mod code;
mod pod;
mod sections;

use crate::program::Program;

/// First bytes of every program file.
pub const MAGIC: &[u8; 8] = b"TPUSIMPG";
/// Version of the format.
pub const VERSION: u32 = 4;

const HEADER: usize = MAGIC.len() + 4 + 8 + 4;

/// A program file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BinaryError {
    /// It does not start like one.
    #[error("not a tpusim program file")]
    Magic,
    /// Another version of the format.
    #[error("program file of version {0}; this tpusim reads version {VERSION}")]
    Version(u32),
    /// The file is shorter or longer than its header says.
    #[error("program file of {actual} bytes where its header says {expected}")]
    Length {
        /// From the header.
        expected: u64,
        /// What there is.
        actual: u64,
    },
    /// The content is damaged.
    #[error("checksum of the program file does not match its content")]
    Checksum,
    /// A section is not well-formed.
    #[error("{section} section, {place}: {message}")]
    Malformed {
        /// Name of the section.
        section: &'static str,
        /// Byte or bit of the section.
        place: String,
        /// What is wrong.
        message: String,
    },
}

/// The file of `program`. Nesting beyond [`MAX_DEPTH`](crate::program::MAX_DEPTH) is written, but [`decode`] refuses it.
pub fn encode(program: &Program) -> Vec<u8> {
    let body = sections::encode(program);
    let mut file = Vec::with_capacity(HEADER + body.len());
    file.extend(MAGIC);
    file.extend(VERSION.to_le_bytes());
    file.extend((body.len() as u64).to_le_bytes());
    file.extend(crc32(&body).to_le_bytes());
    file.extend(body);
    file
}

/// The program of a file written by [`encode`].
///
/// # Errors
/// Any file that `encode` would not have written.
pub fn decode(file: &[u8]) -> Result<Program, BinaryError> {
    let (magic, rest) = file.split_first_chunk::<8>().ok_or(BinaryError::Magic)?;
    if magic != MAGIC {
        return Err(BinaryError::Magic);
    }
    let short = || BinaryError::Length { expected: HEADER as u64, actual: file.len() as u64 };
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(BinaryError::Version(version));
    }
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(short)?;
    let (crc, body) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let expected = u64::from_le_bytes(*length).saturating_add(HEADER as u64);
    if expected != file.len() as u64 {
        return Err(BinaryError::Length { expected, actual: file.len() as u64 });
    }
    if crc32(body) != u32::from_le_bytes(*crc) {
        return Err(BinaryError::Checksum);
    }
    sections::decode(body)
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut c = i as u32;
        let mut bit = 0;
        while bit < 8 {
            c = if c & 1 == 1 { 0xEDB8_8320 ^ (c >> 1) } else { c >> 1 };
            bit += 1;
        }
        table[i] = c;
        i += 1;
    }
    table
};

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, b| CRC_TABLE[usize::from(crc as u8 ^ b)] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::op::{Instr, Op};
    use crate::program::{Bundle, MAX_DEPTH, Node, SReg};
    use crate::testing::arb_program;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

        // Oracle: writing and reading are inverses.
        #[test]
        fn programs_survive_the_file(p in arb_program()) {
            prop_assert_eq!(decode(&encode(&p)), Ok(p));
        }

        // Oracle: the checksum finds every single flipped bit, the length every cut.
        #[test]
        fn damaged_files_are_errors(p in arb_program(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut file = encode(&p);
            let at = at.index(file.len());
            prop_assert!(decode(&file[..at]).is_err());
            file[at] ^= 1 << bit;
            prop_assert!(decode(&file).is_err());
        }

        // Oracle: damage that the checksum cannot see (it is recomputed) is a program or an error, never a panic.
        #[test]
        fn crafted_files_do_not_panic(
            p in arb_program(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut file = encode(&p);
            for (at, value) in flips {
                let at = HEADER + at.index(file.len() - HEADER);
                file[at] = value;
            }
            let crc = crc32(&file[HEADER..]).to_le_bytes();
            file[20..24].copy_from_slice(&crc);
            let _ = decode(&file);
        }
    }

    // Oracle: the documented layout, counted by hand: 2 tag + 1 + 7 mask; 3 count + registers 2 x 6 + immediates 33 + 6 for the
    // load, whose class has no other opcode; 3 count + 6 opcode + 18 for the add; 50 for widths, 2 for the end.
    #[test]
    fn bundles_are_dense() {
        let bundle = |n: i32| {
            let add = Instr::new(Op::VAddF, &[n, 1, 2]);
            Node::Bundle(Bundle { instrs: vec![add, Instr::new(Op::VLd, &[n, 2, 64, 1])] })
        };
        let body: Vec<Node> = (0..32).map(bundle).collect();
        let bits = 50 + 32 * (10 + (3 + 12 + 33 + 6) + (3 + 6 + 18)) + 2;
        assert_eq!(code::encode(&body).len(), usize::div_ceil(bits, 8));
    }

    // Oracle: the check value that every CRC catalogue gives for "123456789".
    #[test]
    fn crc_has_its_check_value() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    fn nested(depth: usize) -> Program {
        let mut body = Vec::new();
        for _ in 1..depth {
            body = vec![Node::Loop { counter: SReg(2), trip: 1, body }];
        }
        Program { body, ..Program::default() }
    }

    // Oracle: the documented bound, from both sides.
    #[test]
    fn nesting_is_bounded() {
        let deepest = nested(MAX_DEPTH);
        assert_eq!(decode(&encode(&deepest)), Ok(deepest));
        assert!(matches!(decode(&encode(&nested(MAX_DEPTH + 1))), Err(BinaryError::Malformed { section: "CODE", .. })));
    }

    // Oracle: the header's own claim; a file cannot make the reader allocate what it does not hold.
    #[test]
    fn counts_beyond_the_file_are_errors() {
        let good = encode(&Program::default());
        for at in HEADER..good.len() {
            for value in [0xff, 0x7f, 0x01] {
                let mut bad = good.clone();
                bad[at] = value;
                let crc = crc32(&bad[HEADER..]).to_le_bytes();
                bad[20..24].copy_from_slice(&crc);
                let _ = decode(&bad);
            }
        }
    }
}
