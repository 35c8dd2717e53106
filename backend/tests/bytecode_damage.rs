//! Damaged and hostile files: an error or a module, never a panic, a hang or a large allocation.
//!
//! Oracle: the reader returns, and quickly. A truncated file is always an error, since the last section ends with the file.

#![allow(clippy::print_stderr, reason = "a test that skips or measures says so")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tpusim_backend::front::bytecode::{ErrorKind, parse};

fn data() -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bytecode");
    let mut out: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "mlirbc") && !p.ends_with("plain.mlirbc"))
        .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&p).unwrap()))
        .collect();
    out.sort();
    out
}

/// Splitmix64, so that a failure can be repeated by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// One to four changes: flipped bits, other bytes, pieces removed, repeated or taken from `other`.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], r: &mut Random) {
    for _ in 0..1 + r.below(4) {
        let at = r.below(bytes.len());
        let n = 1 + r.below(8);
        let piece = |from: &[u8], at: usize| from[at.min(from.len())..(at + n).min(from.len())].to_vec();
        match r.below(6) {
            0 | 1 => bytes[at] ^= 1 << r.below(8),
            2 => bytes[at] = [0, 1, 0xff, 0xfe, 0x80, r.next() as u8][r.below(6)],
            3 => drop(bytes.drain(at..(at + n).min(bytes.len()))),
            4 => {
                let p = piece(bytes, r.below(bytes.len()));
                bytes.splice(at..at, p);
            }
            _ => {
                let p = piece(other, r.below(other.len()));
                let end = (at + p.len()).min(bytes.len());
                bytes.splice(at..end, p);
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}

/// Parses; the time must stay in proportion to the file.
fn check(bytes: &[u8], what: impl Fn() -> String) -> bool {
    let start = Instant::now();
    let ok = parse(bytes).is_ok();
    let limit = Duration::from_secs(2) + Duration::from_micros(20 * bytes.len() as u64);
    assert!(start.elapsed() < limit, "{} took {:?}", what(), start.elapsed());
    ok
}

#[test]
fn truncation_at_every_byte_is_an_error() {
    for (name, bytes) in data() {
        for n in 0..bytes.len() {
            assert!(parse(&bytes[..n]).is_err(), "{name} cut at {n}");
        }
    }
}

#[test]
fn trailing_bytes_are_an_error() {
    for (name, mut bytes) in data() {
        bytes.push(0);
        assert!(parse(&bytes).is_err(), "{name}");
    }
}

#[test]
fn every_flipped_bit() {
    for (name, bytes) in data()
        .into_iter()
        .filter(|(n, _)| !n.starts_with("small.c") && !n.starts_with("small.1.1.") && !n.starts_with("small.1.5."))
    {
        let mut errors = 0;
        for bit in 0..bytes.len() * 8 {
            let mut b = bytes.clone();
            b[bit / 8] ^= 1 << (bit % 8);
            errors += usize::from(!check(&b, || format!("{name}, bit {bit}")));
        }
        // The rest are other names, constants, lines and the like.
        assert!(errors > bytes.len() * 8 / 3, "{name}: only {errors} flips noticed");
    }
}

#[test]
fn seeded_mutations() {
    fuzz(&data(), 1, |n, _| n < 4000);
}

/// For longer: `TPUSIM_FUZZ_SECONDS=300 cargo test -p tpusim-backend --test bytecode_damage -- --ignored`.
#[test]
#[ignore = "runs as long as TPUSIM_FUZZ_SECONDS says"]
fn long_fuzz() {
    let seconds = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let time = Duration::from_secs(seconds("TPUSIM_FUZZ_SECONDS").unwrap_or(10));
    let mut seeds = data();
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures");
    if let Ok(dir) = fs::read_dir(shared) {
        for entry in dir {
            let path = entry.unwrap().path().join("program.mlirbc");
            if let Ok(bytes) = fs::read(&path) {
                seeds.push((path.display().to_string(), bytes));
            }
        }
    }
    let seed = seconds("TPUSIM_FUZZ_SEED").unwrap_or(2);
    let n = fuzz(&seeds, seed, |_, elapsed| elapsed < time);
    eprintln!("{n} files");
}

fn fuzz(seeds: &[(String, Vec<u8>)], seed: u64, go_on: impl Fn(u64, Duration) -> bool) -> u64 {
    let start = Instant::now();
    let mut n = 0;
    while go_on(n, start.elapsed()) {
        let mut r = Random(seed.wrapping_mul(0x1_0000_0001).wrapping_add(n));
        let (name, bytes) = &seeds[r.below(seeds.len())];
        let other = &seeds[r.below(seeds.len())].1;
        let mut bytes = bytes.clone();
        mutate(&mut bytes, other, &mut r);
        check(&bytes, || format!("{name}, seed {seed}, file {n}"));
        n += 1;
    }
    n
}

/// Writes the format, to build files no honest tool writes.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn byte(mut self, b: u8) -> Self {
        self.0.push(b);
        self
    }

    fn int(mut self, v: u64) -> Self {
        if v < 0x80 {
            self.0.push((v as u8) << 1 | 1);
        } else {
            self.0.push(0);
            self.0.extend(v.to_le_bytes());
        }
        self
    }

    fn ints(self, vs: &[u64]) -> Self {
        vs.iter().fold(self, |w, v| w.int(*v))
    }

    fn raw(mut self, b: &[u8]) -> Self {
        self.0.extend(b);
        self
    }

    fn section(self, id: u8, data: Writer) -> Self {
        self.byte(id).int(data.0.len() as u64).raw(&data.0)
    }
}

/// A module whose attributes (all of the builtin dialect) and types are `attrs` and `types`; attribute 0 is its dictionary,
/// attribute 1 its location.
fn module(attrs: &[Writer], types: &[Writer], ops: Writer) -> Vec<u8> {
    let strings = ["builtin", "module", "name"];
    let mut s = Writer::default().int(strings.len() as u64);
    s = strings.iter().rev().fold(s, |s, t| s.int(t.len() as u64 + 1));
    s = strings.iter().fold(s, |s, t| s.raw(t.as_bytes()).byte(0));
    let dialects = Writer::default().int(1).int(0).ints(&[0, 1, 1]);
    let mut offsets = Writer::default().int(attrs.len() as u64).int(types.len() as u64);
    let mut data = Writer::default();
    for group in [attrs, types] {
        offsets = offsets.int(0).int(group.len() as u64);
        for e in group {
            offsets = offsets.int((e.0.len() as u64) << 1 | 1);
            data = data.raw(&e.0);
        }
    }
    Writer::default()
        .raw(b"ML\xefR")
        .int(1)
        .raw(b"test\0")
        .section(0, s)
        .section(1, dialects)
        .section(2, data)
        .section(3, offsets)
        .section(4, ops)
        .0
}

/// The module operation with an empty body.
fn empty_module() -> Writer {
    // One operation without block arguments; name 0, attributes and regions, location 1, dictionary 0; one region, one block, no
    // values, no operations.
    Writer::default().int(1 << 1).int(0).byte(1 | 16).int(1).int(0).int(1 << 1).int(1).int(0).int(0)
}

fn attr(ints: &[u64]) -> Writer {
    Writer::default().ints(ints)
}

fn kind(bytes: &[u8]) -> Option<ErrorKind> {
    parse(bytes).err().map(|e| e.kind)
}

const DICTIONARY: u64 = 1;
const STRING: u64 = 2;
const CALL_SITE: u64 = 10;
const FILE_LINE_COL: u64 = 11;
const UNKNOWN_LOCATION: u64 = 15;

#[test]
fn the_writer_writes_modules() {
    // { name = "name" } at an unknown location.
    let attrs = [attr(&[DICTIONARY, 1, 2, 2]), attr(&[UNKNOWN_LOCATION]), attr(&[STRING, 2])];
    let m = parse(&module(&attrs, &[attr(&[1])], empty_module())).unwrap();
    assert_eq!(m.attrs.text("name"), Some("name"));
}

#[test]
fn an_attribute_that_contains_itself() {
    let attrs = [attr(&[DICTIONARY, 1, 2, 3]), attr(&[UNKNOWN_LOCATION]), attr(&[STRING, 2]), attr(&[0, 1, 3])];
    let e = kind(&module(&attrs, &[attr(&[1])], empty_module()));
    assert!(matches!(e, Some(ErrorKind::Depth("attributes", _))), "{e:?}");
}

#[test]
fn a_type_that_contains_itself() {
    // Attribute 3 is a type; type 0 is a tuple of itself.
    let attrs = [attr(&[DICTIONARY, 1, 2, 3]), attr(&[UNKNOWN_LOCATION]), attr(&[STRING, 2]), attr(&[6, 0])];
    let e = kind(&module(&attrs, &[attr(&[15, 1, 0])], empty_module()));
    assert!(matches!(e, Some(ErrorKind::Depth("types", _))), "{e:?}");
}

#[test]
fn attributes_that_double_at_every_level() {
    let mut attrs = vec![attr(&[DICTIONARY, 1, 2, 3]), attr(&[UNKNOWN_LOCATION]), attr(&[STRING, 2])];
    attrs.extend((4..30).map(|next| attr(&[0, 2, next, next])));
    attrs.push(attr(&[7]));
    assert_eq!(kind(&module(&attrs, &[attr(&[1])], empty_module())), Some(ErrorKind::Budget));
}

#[test]
fn types_that_double_at_every_level() {
    let attrs = [attr(&[DICTIONARY, 1, 2, 3]), attr(&[UNKNOWN_LOCATION]), attr(&[STRING, 2]), attr(&[6, 0])];
    let mut types: Vec<_> = (1..30).map(|next| attr(&[15, 2, next, next])).collect();
    types.push(attr(&[1]));
    assert_eq!(kind(&module(&attrs, &types, empty_module())), Some(ErrorKind::Budget));
}

/// The position of the error about a module within a module whose location is attribute 2 of `locations`.
fn position(locations: Vec<Writer>) -> Option<String> {
    let mut attrs = vec![attr(&[DICTIONARY, 0]), attr(&[UNKNOWN_LOCATION])];
    attrs.extend(locations);
    let ops = Writer::default().int(2).int(0).byte(16).int(1).int(2).int(1).int(0).int(2).int(0).byte(0).int(2);
    let e = parse(&module(&attrs, &[attr(&[1])], ops)).unwrap_err();
    assert!(matches!(e.kind, ErrorKind::Unsupported(_)), "{e}");
    assert_eq!(e.op.as_deref(), Some("builtin.module"));
    e.position
}

#[test]
fn locations_in_long_chains_and_circles() {
    // Every call site refers twice to the next one, so that a search without memory would never end.
    let chain =
        |len: u64, end: Vec<Writer>| (3..3 + len).map(|next| attr(&[CALL_SITE, next, next])).chain(end).collect();
    assert_eq!(position(chain(100, vec![attr(&[UNKNOWN_LOCATION])])), None);
    assert_eq!(position(chain(100_000, vec![attr(&[UNKNOWN_LOCATION])])), None);
    let file = |len: u64| vec![attr(&[FILE_LINE_COL, 3 + len, 7, 1]), attr(&[STRING, 2])];
    assert_eq!(position(chain(100, file(100))), Some("name:7".into()));
    // Beyond a depth that no call stack has, the chain is cut.
    assert_eq!(position(chain(100_000, file(100_000))), None);
    assert_eq!(position(vec![attr(&[CALL_SITE, 2, 2])]), None);
}

#[test]
fn regions_nested_without_end() {
    let mut ops = Writer::default();
    for _ in 0..10_000 {
        // A block of one operation with one region of one block.
        ops = ops.int(2).int(0).byte(16).int(1).int(2).int(1).int(0);
    }
    let attrs = [attr(&[DICTIONARY, 0]), attr(&[UNKNOWN_LOCATION])];
    let e = kind(&module(&attrs, &[attr(&[1])], ops));
    assert!(matches!(e, Some(ErrorKind::Depth("regions", _))), "{e:?}");
}

#[test]
fn counts_larger_than_the_file() {
    let attrs = [attr(&[DICTIONARY, 1 << 60]), attr(&[UNKNOWN_LOCATION])];
    let e = kind(&module(&attrs, &[attr(&[1])], empty_module()));
    assert!(matches!(e, Some(ErrorKind::Count(..))), "{e:?}");
    let ops = Writer::default().int(1 << 60);
    let e = kind(&module(&[attr(&[DICTIONARY, 0]), attr(&[UNKNOWN_LOCATION])], &[attr(&[1])], ops));
    assert!(matches!(e, Some(ErrorKind::Count(..))), "{e:?}");
}

#[test]
fn future_versions_are_refused() {
    let mut bytes = data().remove(0).1;
    bytes[4] = 7 << 1 | 1;
    assert_eq!(kind(&bytes), Some(ErrorKind::Version(7)));
    assert_eq!(kind(b"module {}"), Some(ErrorKind::Magic));
}
