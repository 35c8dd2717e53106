//! Damaged programs: the text front end neither panics nor hangs, and what it still accepts round-trips.
#![allow(clippy::print_stderr)]

use std::time::{Duration, Instant};

use tpusim_backend::front::parse_text;

/// Programs that use most of the syntax.
const SEEDS: &[&str] = &[
    include_str!("filetests/text/pretty_ops.mlir"),
    include_str!("filetests/text/attributes.mlir"),
    include_str!("filetests/text/regions.mlir"),
    include_str!("filetests/text/generic.mlir"),
    include_str!("filetests/text/locations.mlir"),
    include_str!("filetests/text/shardy.mlir"),
    include_str!("filetests/text/constants.mlir"),
    include_str!("filetests/text/chlo.mlir"),
];

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

const SNIPPETS: &[&str] = &[
    "<",
    ">",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "->",
    "=",
    ",",
    ":",
    "\"",
    "#",
    "%",
    "@",
    "!",
    "^bb0:",
    "0x",
    "-",
    "?",
    "1e999",
    "9223372036854775808",
    "dense<0> : tensor<99999999999x99999xi64>",
    "tensor<0x0xf32>",
    "loc(#loc1)",
    "%0",
    "%arg0#7",
    "dense<\"0x00\"> : tensor<3xi1>",
    "array<i64: 1>",
    "#stablehlo<precision HIGH>",
    "true",
    "é",
    "\\",
    "//",
    "{-#",
];

fn mutate(rng: &mut Rng, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len());
        let len = rng.below(40).min(bytes.len() - at);
        match rng.below(6) {
            0 => bytes.truncate(at),
            1 => {
                if let Some(b) = bytes.get_mut(at) {
                    *b ^= 1 << rng.below(8);
                }
            }
            2 => drop(bytes.drain(at..at + len)),
            3 => {
                let part = bytes[at..at + len].to_vec();
                let to = rng.below(bytes.len());
                bytes.splice(to..to, part);
            }
            _ => {
                let snippet = SNIPPETS[rng.below(SNIPPETS.len())];
                let end = (at + rng.below(3)).min(bytes.len());
                bytes.splice(at..end, snippet.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn check(text: &str) {
    let start = Instant::now();
    match parse_text(text, "fuzz.mlir") {
        Err(e) => {
            assert!(!e.diags.is_empty());
            assert!(!e.to_string().is_empty());
        }
        Ok(module) => {
            let printed = module.to_text(true);
            let again =
                parse_text(&printed, "printed.mlir").unwrap_or_else(|e| panic!("{text}\nprinted\n{printed}\n{e}"));
            module.same_as(&again).unwrap_or_else(|e| panic!("{text}\nprinted\n{printed}\n{e}"));
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "took {:?}:\n{text}", start.elapsed());
}

fn run(seed: u64, more: impl Fn(usize) -> bool) -> usize {
    let mut rng = Rng(seed);
    let mut n = 0;
    while more(n) {
        let seed = SEEDS[rng.below(SEEDS.len())];
        let text = mutate(&mut rng, seed);
        check(&text);
        n += 1;
    }
    n
}

/// Oracle: no panic, no long run; a program that is accepted is printed and read back to itself.
#[test]
fn damaged_programs() {
    run(1, |n| n < 2_000);
}

/// As `damaged_programs`, for `TPUSIM_FUZZ_SECONDS` from `TPUSIM_FUZZ_SEED`.
#[test]
#[ignore = "runs for TPUSIM_FUZZ_SECONDS"]
fn damaged_programs_long() {
    let var = |name: &str, default| std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default);
    let end = Instant::now() + Duration::from_secs(var("TPUSIM_FUZZ_SECONDS", 10));
    let n = run(var("TPUSIM_FUZZ_SEED", 2), |_| Instant::now() < end);
    eprintln!("{n} programs");
}

/// Oracle: every prefix of a program is either wrong or, if nothing but white space is missing, the program.
#[test]
fn truncated_programs() {
    for seed in SEEDS {
        for end in (0..seed.len()).step_by(7) {
            if seed.is_char_boundary(end) {
                check(&seed[..end]);
            }
        }
    }
}

/// Oracle: nesting has a bound, so a deep program is an error and not a stack overflow.
#[test]
fn deep_nesting() {
    let deep =
        |open: &str, close: &str, middle: &str| format!("{}{middle}{}", open.repeat(100_000), close.repeat(100_000));
    for text in [
        format!("module attributes {{a = {}}} {{}}", deep("[", "]", "")),
        format!("module attributes {{a = {}}} {{}}", deep("{a = ", "}", "1")),
        format!("func.func @f(%a: {}) {{ return }}", deep("tuple<", ">", "i1")),
        format!("func.func @f(%a: tensor<f32> loc({}))", deep("callsite(unknown at ", ")", "unknown")),
        format!("func.func @f(%a: tensor<f32>) {{ {} }}", deep("\"stablehlo.case\"(%a) ({ ", "}) : () -> ()", "")),
        format!("func.func @f() {{ %c = stablehlo.constant dense<{}> : tensor<f32> }}", deep("[", "]", "0")),
        deep("{", "}", ""),
        deep("{", "", "").repeat(3),
    ] {
        let e = parse_text(&text, "deep.mlir").expect_err("too deep");
        assert!(!e.to_string().is_empty());
    }
}

/// Oracle: an alias that stands for two of the one before doubles with each; the text it expands to has a bound.
#[test]
fn doubling_aliases() {
    let mut text = String::from("#a0 = [1, 2]\n#loc0 = loc(\"x\")\n");
    for i in 1..64 {
        text += &format!("#a{i} = [#a{0}, #a{0}]\n#loc{i} = loc(fused[#loc{0}, #loc{0}])\n", i - 1);
    }
    text += "module attributes {a = #a63} { func.func @f() { return loc(#loc63) } }";
    let start = Instant::now();
    assert!(parse_text(&text, "aliases.mlir").expect_err("too large").to_string().contains("too much text"));
    let module = parse_text(&text.replace("{a = #a63}", "{}").replace("#a", "// #a"), "aliases.mlir").expect("valid");
    let op = &module.funcs[0].body.ops[0];
    assert_eq!(module.locs.name(op.loc), Some("x"));
    assert!(start.elapsed() < Duration::from_secs(20));
}

/// Oracle: a chain of 100,000 locations, each inside the next, is read in order and costs no recursion.
#[test]
fn long_chain_of_locations() {
    let mut text = String::from("#loc0 = loc(\"x\":7:1)\n");
    for i in 1..100_000 {
        text += &format!("#loc{i} = loc(callsite(#loc{} at unknown))\n", i - 1);
    }
    text += "func.func @f() { return loc(#loc99999) }";
    let module = parse_text(&text, "chain.mlir").expect("valid");
    assert_eq!(module.locs.file_line(module.funcs[0].body.ops[0].loc), Some(("x", 7)));
}

/// Oracle: a splat is one element whatever its shape.
#[test]
fn splat_of_a_huge_shape() {
    let text = "func.func @f() -> tensor<1000000x1000000xf32> {
      %0 = stablehlo.constant dense<1.5> : tensor<1000000x1000000xf32>
      return %0 : tensor<1000000x1000000xf32>
    }";
    let module = parse_text(text, "splat.mlir").expect("valid");
    assert!(module.to_text(false).len() < 1000);
}
