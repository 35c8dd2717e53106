use proptest::prelude::*;

use super::*;
use crate::op::{Instr, Op};
use crate::program::{MAX_DEPTH, Program};
use crate::testing::{arb_instr, arb_program};

fn code(body: &str) -> String {
    format!("program \"p\" chip \"v4\" hbm_peak 0 vmem_peak 0\ncode {{\n{body}\n}}\n")
}

fn error(text: &str) -> String {
    match parse(text) {
        Ok(p) => format!("parsed: {p:?}"),
        Err(e) => e.to_string(),
    }
}

fn one(text: &str) -> Result<Instr, String> {
    let program = parse(&code(&format!("{{ {text} }}"))).map_err(|e| e.to_string())?;
    match program.body.as_slice() {
        [crate::program::Node::Bundle(b)] => b.instrs.first().copied().ok_or_else(|| "empty".to_owned()),
        other => Err(format!("{other:?}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    // Oracle: printing and parsing are inverses.
    #[test]
    fn programs_survive_the_text(p in arb_program()) {
        let text = print(&p);
        prop_assert_eq!(parse(&text), Ok(p), "{}", text);
    }

    // Oracle: the same for each instruction of the table alone.
    #[test]
    fn instructions_survive_the_text(i in arb_instr()) {
        let text = instr(&i);
        prop_assert_eq!(one(&text), Ok(i), "{}", text);
    }

    // Oracle: an error is a value, whatever the text.
    #[test]
    fn no_text_panics(p in arb_program(), at in any::<prop::sample::Index>(), with in ".{0,3}", cut in 0usize..6) {
        let text = print(&p);
        let _ = parse(&with);
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let head: String = chars[..at].iter().collect();
        let tail: String = chars[(at + cut).min(chars.len())..].iter().collect();
        let _ = parse(&head);
        let _ = parse(&format!("{head}{with}{tail}"));
    }
}

// Oracle: the operand order of the instruction table, written by hand.
#[test]
fn operands_read_as_documented() {
    let cases = [
        ("vld v1, [s2+64], 1", Op::VLd, [1, 2, 64, 1, 0]),
        ("vld v1, [s2], 1", Op::VLd, [1, 2, 0, 1, 0]),
        ("vst.msk v1, [s2-8], 1, m3", Op::VStM, [1, 2, -8, 1, 3]),
        ("s.st s4, [s5+0x10]", Op::SSt, [4, 5, 16, 0, 0]),
        ("vmatpush.t mxu1, v3, bf16, 7", Op::MxPushT, [1, 3, 0, 7, 0]),
        ("xred.add.f32 xlu1, v9", Op::XSumF, [1, 9, 0, 0, 0]),
        ("vimm v0, -1.5", Op::VImm, [0, (-1.5f32).to_bits() as i32, 0, 0, 0]),
        ("vimm v0, 0xffffffff", Op::VImm, [0, -1, 0, 0, 0]),
        ("s.li s2, -2147483648", Op::SLi, [2, i32::MIN, 0, 0, 0]),
        ("dma d5, flag3", Op::Dma, [5, 3, 0, 0, 0]),
        ("vround v0, v1, fmt77", Op::VRound, [0, 1, 77, 0, 0]),
    ];
    for (text, op, args) in cases {
        assert_eq!(one(text), Ok(Instr { op, args }), "{text}");
    }
}

// Oracle: positions counted by hand.
#[test]
fn errors_point_at_the_token_and_say_what_fits() {
    let cases = [
        ("", "1:1: expected `program`, found the end of the text"),
        ("program 4", "1:9: expected a string, found `4`"),
        ("program \"p", "1:11: expected `\"` at the end of the string"),
        ("program \"p\" chip \"v4\" hbm_peak 0 vmem_peak -1", "1:44: expected a number after `vmem_peak`, found `-`"),
        (
            "program \"\" chip \"\" hbm_peak 0 vmem_peak 0\ndesc d1",
            "2:6: expected `d0`, the next descriptor, found `d1`",
        ),
        (
            "program \"\" chip \"\" hbm_peak 0 vmem_peak 0\nbuffer 0 const offset 0 bytes 0 live 0..0 data zero*99999999999",
            "2:53: zero runs of more than 268435456 bytes in one text",
        ),
        ("é", "1:1: expected a token, found character 'é'"),
    ];
    for (text, message) in cases {
        assert_eq!(error(text), message);
    }
    let cases = [
        ("{ vadd.f32 v1, v2 }", "3:19: expected `,` and operand 3 of `vadd.f32`, found `}`"),
        ("{ vadd.f32 v1, v2, s3 }", "3:20: expected a vector register such as `v3`, found `s3`"),
        ("{ vfoo v1 }", "3:3: expected an instruction, found `vfoo`"),
        ("{ vld v1, s2, 64, 1 }", "3:11: expected `[`, found `s2`"),
        ("{ s.li s2, 4294967296 }", "3:12: immediate `4294967296` does not fit 32 bits"),
        (
            "{ vmov v1, v2",
            "5:1: expected a bundle `{ ... }`, `loop`, `op`, `while`, `case`, `start`, `done` or `}`, found the end of the text",
        ),
        ("loop s3 = 1..4 { }", "3:11: expected `0`, where every loop starts, found `1`"),
        ("while 0 { } s2 { }", "3:13: expected `test`, found `s2`"),
        ("case 0 s2 { { } }", "3:13: expected `branch` or `}`, found `{`"),
        ("loop s300 = 0..4 { }", "3:6: expected a scalar register below s256, found `s300`"),
        (
            "vmov v1, v2",
            "3:1: expected a bundle `{ ... }`, `loop`, `op`, `while`, `case`, `start`, `done` or `}`, found `vmov`",
        ),
    ];
    for (body, message) in cases {
        assert_eq!(error(&code(body)), message, "{body}");
    }
}

// Oracle: the documented bound, from both sides.
#[test]
fn nesting_is_bounded() {
    let nested = |n: usize| code(&format!("{}{}", "loop s2 = 0..1 {".repeat(n), "}".repeat(n)));
    assert!(parse(&nested(MAX_DEPTH - 1)).is_ok());
    assert!(error(&nested(MAX_DEPTH)).contains("nesting deeper than 64 levels"));
    assert!(error(&nested(100_000)).contains("nesting deeper than 64 levels"));
}

// Oracle: comments are white space.
#[test]
fn comments_are_skipped() {
    let plain = parse(&code("{ vmov v1, v2 }"));
    assert!(plain.is_ok());
    assert_eq!(parse(&code("// x\n{ // { \n vmov v1, // }\n v2 }//")), plain);
    assert_eq!(parse("program \"\" chip \"\" hbm_peak 0 vmem_peak 0 code {}"), Ok(Program::default()));
}

// Oracle: the module page promises this form.
#[test]
fn the_example_of_the_module_page_is_valid() {
    let page = include_str!("mod.rs");
    let lines = page.lines().skip_while(|l| *l != "//! ```text").skip(1).take_while(|l| *l != "//! ```");
    let text: Vec<&str> = lines.map(|l| l.trim_start_matches("//!")).collect();
    let program = parse(&text.join("\n")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((program.ops.len(), program.buffers.len(), program.descs.len()), (1, 2, 2));
    assert_eq!(parse(&print(&program)), Ok(program));
}
