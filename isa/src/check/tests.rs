//! One short program per kind of error; the file tests in `tests/asm` hold longer ones.

use super::*;

const INFO: &str = r#"info 0 "f" source "" at "" mxu_flops 0 vector_flops 0 dtype f32 cores 2 modelled 0"#;

/// Messages for a body on a chip, without the place.
fn kinds_on(chip: &str, tables: &str, body: &str) -> Vec<String> {
    let text = format!("program \"p\" chip \"{chip}\" hbm_peak 0 vmem_peak 0\n{INFO}\n{tables}\ncode {{ {body} }}");
    let program = asm::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let spec = ChipSpec::load(chip).unwrap_or_else(|e| panic!("{e}"));
    check(&program, &spec).into_iter().map(|e| e.kind.to_string()).collect()
}

fn kinds(body: &str) -> Vec<String> {
    kinds_on("v4", "", body)
}

fn none() -> Vec<String> {
    Vec::new()
}

// Oracle: the slots of v4's chip file.
#[test]
fn bundles_are_held_against_the_chip() {
    assert_eq!(
        kinds("{ vld v1, [s0], 1 ; vld v2, [s0+8], 1 }"),
        ["2 VLoad instructions in a bundle that has 1 such slots"]
    );
    assert_eq!(kinds_on("v5e", "", "{ vld v1, [s0], 1 ; vld v2, [s0+8], 1 }"), none());
    assert_eq!(kinds("{ vimm v1, 0 ; vimm v1, 1 }"), ["second write of v1 in one bundle"]);
    assert_eq!(kinds("{ vimm v32, 0 }"), ["v32: there are 32"]);
    assert_eq!(kinds("{ vimm v4294967295, 0 }"), ["v4294967295: there are 32"]);
    assert_eq!(
        kinds("{ dma d0, flag1 }"),
        ["d0: there are 0", "flag1 ends at 1: DMAs that signal it are never waited for"]
    );
    assert_eq!(kinds("{ vmatlatch mxu4 }"), ["mxu4: there are 4"]);
    assert_eq!(kinds("{ s.li s0, 1 } { s.li s1, 1 }"), ["s0 must not be written here", "s1 must not be written here"]);
    assert_eq!(kinds("loop s3 = 0..4 { { s.li s3, 1 } }"), ["s3 must not be written here"]);
    assert_eq!(kinds("loop s3 = 0..4 { loop s3 = 0..4 { } }"), ["s3 must not be written here"]);
    assert_eq!(kinds("op 0 { op 0 { } }"), ["operation inside an operation"]);
    assert_eq!(kinds("op 1 { }"), ["op 1: there are 1"]);
}

// Oracle: six immediates per bundle; 0..=31 are free and equal ones shared.
#[test]
fn immediates_are_counted() {
    let mut chip = ChipSpec::load("v4").unwrap_or_else(|e| panic!("{e}"));
    chip.slots.immediates.v = 1;
    let check = |body: &str| {
        let text = format!("program \"p\" chip \"v4\" hbm_peak 0 vmem_peak 0 code {{ {body} }}");
        let program = asm::parse(&text).unwrap_or_else(|e| panic!("{e}"));
        check(&program, &chip).into_iter().map(|e| e.kind.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(check("{ s.li s2, 32 ; s.li s3, -1 }"), ["2 different immediates beyond 0..=31 in a bundle that has 1"]);
    assert_eq!(check("{ s.li s2, 32 ; s.li s3, 32 }"), none());
    assert_eq!(check("{ s.li s2, 31 ; s.li s3, 0 ; vimm v1, 99 }"), none());
}

// Oracle: the definitions of the instruction table.
#[test]
fn operands_must_make_sense() {
    assert_eq!(kinds("{ vimm v1, 0 } { vunpack v2, v1, bf16, 2 }"), ["part 2 is not below 2"]);
    assert_eq!(kinds("{ vimm v1, 0 } { vsubbcast v2, v1, 8 }"), ["sublane 8 is not below 8"]);
    assert_eq!(kinds("{ vimm v1, 0 } { vmatpush mxu0, v1, bf16, 8 }"), ["weight slot 8 is not below 8"]);
    assert_eq!(kinds_on("v6e", "", "{ vimm v1, 0 } { vmatpush mxu0, v1, bf16, 31 }"), none());
    assert_eq!(kinds("{ vimm v1, 0 } { vround v2, v1, fmt99 }"), ["unknown format 99"]);
    assert_eq!(kinds("{ vimm v1, 0 } { vmatpush mxu0, v1, e4m3fn, 0 }"), ["the MXU of v4 takes no e4m3fn"]);
    assert_eq!(kinds_on("v7x", "", "{ vimm v1, 0 } { vmatpush mxu0, v1, e4m3fn, 0 }"), none());
    assert_eq!(kinds("{ vimm v1, 0 } { vmatmul.ini mxu0, v1, v1, bf16, 0 }"), ["v4 has no MXU accumulators"]);
    let last =
        |slot: u32| kinds_on("v7x", "", &format!("{{ vimm v1, 0 }} {{ vmatmul.ini mxu0, v1, v1, bf16, {slot} }}"));
    assert_eq!(last(126), none());
    assert_eq!(last(127), ["accumulator 127 is not below 127"]);
}

// Oracle: reading the paths by hand; loops that run write what they write, loops of no trips nothing.
#[test]
fn unwritten_registers_are_found() {
    assert_eq!(kinds("{ vmov v1, v2 }"), ["v2 is read before anything writes it"]);
    assert_eq!(kinds("{ vmnot m1, m2 }"), ["m2 is read before anything writes it"]);
    assert_eq!(kinds("{ s.add s2, s0, s1 ; s.add s3, s2, s0 }"), ["s2 is read before anything writes it"]);
    assert_eq!(kinds("{ vimm v2, 0 } { vmov v1, v2 }"), none());
    assert_eq!(kinds("loop s3 = 0..1 { { vimm v2, 0 } } { vmov v1, v2 } { s.add s4, s3, s3 }"), none());
    assert_eq!(kinds("loop s3 = 0..0 { { vimm v2, 0 } } { vmov v1, v2 }"), ["v2 is read before anything writes it"]);
    // The second iteration would find it written, the first does not.
    assert_eq!(kinds("loop s3 = 0..2 { { vmov v1, v2 } { vimm v2, 0 } }"), ["v2 is read before anything writes it"]);
    assert_eq!(kinds("{ vimm v2, 0 } { vpack v1, v1, v2, bf16, 0 } { vpack v1, v1, v2, bf16, 1 }"), none());
}

// Oracle: counting pushes, pops, signals and waits by hand.
#[test]
fn queues_and_flags_balance() {
    assert_eq!(kinds("{ eup.pop v1 }"), ["the EUP holds no result for this pop: it would wait for ever"]);
    assert_eq!(kinds("{ vimm v1, 0 } { eup.tanh v1 }"), ["1 results of the EUP are never popped"]);
    assert_eq!(kinds("{ vimm v1, 0 } { eup.tanh v1 } { eup.pop v1 }"), none());
    assert_eq!(
        kinds("{ vimm v1, 0 } { eup.tanh v1 ; eup.pop v2 }")[0],
        "the EUP holds no result for this pop: it would wait for ever"
    );
    // Two results per bf16 register on a 128 wide array, four on a 256 wide one.
    let mul = "{ vimm v1, 0 } { vmatmul mxu0, v1, v1, bf16 } { vmatpop mxu0, v2 } { vmatpop mxu0, v3 }";
    assert_eq!(kinds(mul), none());
    assert_eq!(kinds_on("v6e", "", mul), ["2 results of mxu0 are never popped"]);
    assert_eq!(kinds("{ dma.wait flag1, 1 }"), ["flag1 can be 0 at most here: waiting for 1 never ends"]);
    assert_eq!(
        kinds("{ flag.add flag1, 2 } { dma.wait flag1, 1 }"),
        ["flag1 ends at 1: DMAs that signal it are never waited for"]
    );
    // Rises by one per iteration: enough in every one. Falls by one: enough only for the first three.
    assert_eq!(kinds("loop s3 = 0..9 { { flag.add flag1, 1 } { dma.wait flag1, 1 } }"), none());
    let falling =
        |trips: u32| kinds(&format!("{{ flag.add flag1, 3 }} loop s3 = 0..{trips} {{ {{ dma.wait flag1, 1 }} }}"));
    assert_eq!(falling(3), none());
    assert_eq!(falling(4), ["flag1 can be 0 at most here: waiting for 1 never ends"]);
}

// Oracle: v4 has 16 MiB of VMEM, 32768 rows, and 1 MiB of SMEM, 262144 words.
#[test]
fn vmem_and_smem_accesses_stay_inside() {
    assert_eq!(kinds("{ vld v1, [s0+32760], 1 }"), none());
    assert_eq!(kinds("{ vld v1, [s0+32761], 1 }"), ["touches rows 32761..32769 of VMEM, which has 32768"]);
    assert_eq!(kinds("{ vld v1, [s0+6], -1 }"), ["touches rows -1..7 of VMEM, which has 32768"]);
    assert_eq!(kinds("{ vld v1, [s0+32767], 0 }"), none());
    assert_eq!(kinds("{ s.ld s2, [s0+262144] }"), ["touches words 262144..262145 of SMEM, which has 262144"]);
    let counted = |trips: u32, scale: i32| {
        kinds(&format!(
            "loop s3 = 0..{trips} {{ {{ s.muli s4, s3, {scale} }} {{ vld v1, [s4], 1 }} }} {{ s.add s5, s4, s0 }} {{ vld v1, [s5], 1 }}"
        ))
    };
    assert_eq!(counted(4096, 8), none());
    let worst = "touches rows 0..32776 of VMEM, which has 32768".to_owned();
    let after = "touches rows 32768..32776 of VMEM, which has 32768".to_owned();
    assert_eq!(counted(4097, 8), [worst, after]);
}

// Oracle: the values worked out by hand. What cannot be followed is not reported.
#[test]
fn scalars_are_followed() {
    let row = |setup: &str| kinds(&format!("loop s3 = 0..100000 {{ {setup} {{ vld v1, [s4], 1 }} }}"));
    let none = none();
    assert_eq!(row("{ s.mini s4, s3, 32760 }"), none);
    assert_eq!(row("{ s.mini s4, s3, 32761 }"), ["touches rows 0..32769 of VMEM, which has 32768"]);
    assert_eq!(row("{ s.li s5, 32767 } { s.and s4, s3, s5 }"), ["touches rows 0..32775 of VMEM, which has 32768"]);
    assert_eq!(row("{ s.li s5, 1 } { s.and s4, s3, s5 } { s.xori s4, s4, 1 } { s.muli s4, s4, 32760 }"), none);
    assert_eq!(
        row("{ s.li s5, 1 } { s.and s4, s3, s5 } { s.xori s4, s4, 1 } { s.muli s4, s4, 32761 }"),
        ["touches rows 0..32769 of VMEM, which has 32768"]
    );
    assert_eq!(row("{ s.sub s4, s3, s3 }"), none);
    assert_eq!(row("{ s.lti s5, s3, 7 } { s.sel s4, s5, s0, s0 }"), none);
    assert_eq!(row("{ s.li s5, 2 } { s.shr s4, s3, s5 }"), none);
    assert_eq!(row("{ s.li s5, 1 } { s.shr s4, s3, s5 }"), ["touches rows 0..50007 of VMEM, which has 32768"]);
    // min(s3, 40000) - s3 is never above 0, but as independent unknowns it could be 40000.
    assert_eq!(row("{ s.mini s5, s3, 40000 } { s.sub s4, s5, s3 }"), none);
    // Carried from iteration to iteration: not followed.
    assert_eq!(kinds("{ s.li s4, 0 } loop s3 = 0..9 { { vld v1, [s4], 1 } { s.addi s4, s4, 32768 } }"), none);
    // One core of one: s1 is 0; of two: 1.
    assert_eq!(
        kinds("{ s.muli s4, s1, 32768 } { vld v1, [s4], 1 }"),
        ["touches rows 0..32776 of VMEM, which has 32768"]
    );
    assert_eq!(kinds_on("v5e", "", "{ s.muli s4, s1, 10000000 } { vld v1, [s4], 1 }"), none);
}

// Oracle: the last byte and row of each block, worked out by hand.
#[test]
fn dma_blocks_stay_inside() {
    let run = |desc: &str| {
        let buffer = "buffer 0 temp offset 0 bytes 65536 live 0..0";
        kinds_on(
            "v4",
            &format!("{buffer}\ndesc d0 {desc}"),
            "loop s3 = 0..4 { { dma d0, flag0 } { dma.wait flag0, 1 } }",
        )
    };
    let block = "load elem 2 rows 16 stride 256 cols 128 stride 2 lane_tiles 1";
    assert_eq!(run(&format!("{block} hbm 0 + s3*16384 vmem 0 + s3*8")), none());
    assert_eq!(run(&format!("{block} hbm 0 + s3*21000 vmem 0")), ["touches bytes 0..67096 of HBM, which has 65536"]);
    assert_eq!(run(&format!("{block} hbm 0 vmem 32761")), ["touches rows 32761..32769 of VMEM, which has 32768"]);
    assert_eq!(
        run(&format!("{block} outer [2: -1, 8] hbm 0 vmem 0")),
        ["touches bytes -1..4096 of HBM, which has 65536"]
    );
    assert_eq!(run(&format!("{block} outer [0: -1, 8] hbm 0 vmem 0")), none());
    let cut = "store elem 4 rows 9 stride 4 cols 129 stride 0 lane_tiles 2 hbm 0 vmem";
    // Tile row 1, tile 1, sublane 0 is row 24; the tile row before reaches row 15 only.
    assert_eq!(run(&format!("{cut} 32743")), none());
    assert_eq!(run(&format!("{cut} 32744")), ["touches rows 32744..32769 of VMEM, which has 32768"]);
    assert_eq!(
        run("load elem 3 rows 1 stride 0 cols 1 stride 0 lane_tiles 1 hbm 0 vmem 0"),
        ["d0 has elements of 3 bytes; there are 1, 2 and 4"]
    );
}

// Oracle: the last word of each block, worked out by hand; v4 has 262144. What comes from SMEM may be any address.
#[test]
fn scalar_blocks_stay_inside() {
    let run = |desc: &str| {
        let buffer = "buffer 0 temp offset 0 bytes 65536 live 0..0";
        let code = "{ s.ld s2, [s0] } loop s3 = 0..4 { { dma d0, flag0 } { dma.wait flag0, 1 } }";
        kinds_on("v4", &format!("{buffer}\ndesc d0 {desc}"), code)
    };
    let block = "load elem 2 rows 3 stride 256 cols 5 stride 2";
    assert_eq!(run(&format!("{block} hbm 0 + s3*16384 smem 262129 + s3*-8")), none());
    assert_eq!(run(&format!("{block} hbm 0 smem 262130")), ["touches words 262130..262145 of SMEM, which has 262144"]);
    assert_eq!(
        run(&format!("{block} outer [2: 0, -15] hbm 0 smem 14")),
        ["touches words -1..29 of SMEM, which has 262144"]
    );
    assert_eq!(run(&format!("{block} hbm 0 + s3*65536 smem 0")), ["touches bytes 0..197130 of HBM, which has 65536"]);
    assert_eq!(run(&format!("{block} hbm 0 + s2*65536 smem 0 + s2*100000")), none());
}

const FLOWS: &str = "flow 0 while \"stablehlo.while\" at \"f.py:1\"\nflow 1 case \"stablehlo.case\" at \"\"";

fn flows(body: &str) -> Vec<String> {
    kinds_on("v4", FLOWS, body)
}

// Oracle: the rules of `Node::While` and `Node::Case`.
#[test]
fn control_flow_has_its_place() {
    assert_eq!(flows("while 0 { } test s0 { } case 1 s1 { branch { } }"), none());
    assert_eq!(flows("while 2 { } test s0 { }"), ["flow 2: there are 2"]);
    assert_eq!(flows("while 1 { } test s0 { }"), ["flow 1 is no `while`"]);
    assert_eq!(flows("case 0 s0 { branch { } }"), ["flow 0 is no `case`"]);
    assert_eq!(flows("case 1 s0 { }"), ["`case` without branches"]);
    assert_eq!(flows("while 0 { } test s32 { }"), ["s32: there are 32", "s32 is read before anything writes it"]);
    assert_eq!(flows("op 0 { while 0 { } test s0 { } }"), ["`while` inside an operation"]);
    assert_eq!(flows("op 0 { loop s2 = 0..3 { case 1 s0 { branch { } } } }"), ["`case` inside an operation"]);
    assert_eq!(flows("while 0 { op 0 { } } test s0 { while 0 { } test s0 { op 0 { } } }"), none());
    assert_eq!(flows("loop s2 = 0..3 { case 1 s2 { branch { { s.li s2, 0 } } } }"), ["s2 must not be written here"]);
}

// Oracle: reading every path by hand.
#[test]
fn registers_are_followed_through_control_flow() {
    let unset = |r: &str| vec![format!("{r} is read before anything writes it")];
    assert_eq!(flows("while 0 { } test s2 { }"), unset("s2"));
    assert_eq!(flows("while 0 { { s.li s2, 1 } } test s2 { } { s.add s3, s2, s2 }"), none());
    // The body may never run, and runs before the condition's second time.
    assert_eq!(flows("while 0 { { s.li s2, 1 } } test s2 { { s.li s3, 1 } } { s.add s4, s3, s3 }"), unset("s3"));
    assert_eq!(flows("while 0 { { s.add s4, s3, s3 } } test s0 { { s.li s3, 1 } }"), unset("s3"));
    let case =
        |a: &str, b: &str| flows(&format!("case 1 s1 {{ branch {{ {a} }} branch {{ {b} }} }} {{ s.add s4, s3, s3 }}"));
    assert_eq!(case("{ s.li s3, 1 }", "{ s.li s3, 2 }"), none());
    assert_eq!(case("{ s.li s3, 1 }", "{ s.li s2, 2 }"), unset("s3"));
    // What one branch writes is not there in the next.
    assert_eq!(case("{ s.li s3, 1 }", "{ s.add s2, s3, s3 }")[0], unset("s3")[0]);
}

// Oracle: counting on every path by hand; only what is wrong on all of them is reported.
#[test]
fn queues_are_followed_through_control_flow() {
    let (add, wait) = ("{ flag.add flag1, 1 }", "{ dma.wait flag1, 1 }");
    let never = || vec!["flag1 can be 0 at most here: waiting for 1 never ends".to_owned()];
    let left = || vec!["flag1 ends at 1: DMAs that signal it are never waited for".to_owned()];
    let body = |inside: &str, after: &str| flows(&format!("while 0 {{ }} test s0 {{ {inside} }} {after}"));
    assert_eq!(body(&format!("{add} {wait}"), ""), none());
    assert_eq!(body(add, wait), none());
    assert_eq!(body(add, ""), none());
    assert_eq!(body(wait, ""), never());
    assert_eq!(flows(&format!("while 0 {{ {add} }} test s0 {{ {wait} }}")), left());
    assert_eq!(flows(&format!("while 0 {{ {add} {wait} }} test s0 {{ {wait} }}")), never());
    let case = |a: &str, b: &str, c: &str| flows(&format!("case 1 s1 {{ branch {{ {a} }} branch {{ {b} }} }} {c}"));
    assert_eq!(case(add, add, wait), none());
    assert_eq!(case(add, add, ""), left());
    assert_eq!(case(add, "", wait), none());
    assert_eq!(case(add, "", ""), none());
    assert_eq!(case("", "", wait), never());
    assert_eq!(case(add, wait, ""), never());
}

// Oracle: the addresses by hand. What differs from path to path, or is carried round a `while`, is not followed.
#[test]
fn addresses_are_followed_through_control_flow() {
    let worst = || vec!["touches rows 32768..32776 of VMEM, which has 32768".to_owned()];
    let load = "{ vld v1, [s4], 1 }";
    let far = "{ s.li s4, 32768 }";
    assert_eq!(flows(&format!("{far} while 0 {{ }} test s0 {{ {load} }}")), worst());
    assert_eq!(flows(&format!("{far} while 0 {{ }} test s0 {{ {load} {{ s.li s4, 0 }} }} {load}")), none());
    let case = |a: &str, b: &str| flows(&format!("case 1 s1 {{ branch {{ {a} }} branch {{ {b} }} }} {load}"));
    assert_eq!(case(far, far), worst());
    assert_eq!(case(far, "{ s.li s4, 0 }"), none());
}

// Oracle: the documented form of a message.
#[test]
fn errors_say_where() {
    let text = format!(
        "program \"p\" chip \"v4\" hbm_peak 0 vmem_peak 0 {INFO} code {{ op 0 {{ {{ }} loop s3 = 0..2 {{ {{ s.li s2, 1 ; vmov v1, v2 }} }} }} }}"
    );
    let program = asm::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let spec = ChipSpec::load("v4").unwrap_or_else(|e| panic!("{e}"));
    let errors: Vec<String> = check(&program, &spec).iter().map(|e| e.to_string()).collect();
    assert_eq!(errors, ["op 0 (f), node 0.1.0, instruction 1 `vmov v1, v2`: v2 is read before anything writes it"]);
}

proptest::proptest! {
    // Oracle: a checker reports; it does not panic or run for long, whatever the program.
    #[test]
    fn no_program_panics(p in crate::testing::arb_program()) {
        if let Ok(chip) = ChipSpec::load("v7x") {
            check(&p, &chip);
            let mut wide = chip;
            for n in [&mut wide.regs.vector, &mut wide.regs.mask, &mut wide.regs.scalar, &mut wide.regs.flags, &mut wide.xlus] {
                n.v = u32::MAX;
            }
            wide.mxu.count.v = u32::MAX;
            check(&p, &wide);
        }
    }
}
