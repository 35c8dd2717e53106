//! File tests of the text front end: each `.mlir` file under `filetests/text` has the printed module beside it, each one
//! under `filetests/text/errors` the rendered diagnostics. `TPUSIM_BLESS=1` rewrites them.
#![allow(clippy::print_stderr)]

use std::path::{Path, PathBuf};

use tpusim_backend::front::{parse_program, parse_text};

fn files(dir: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/text").join(dir);
    let entries = std::fs::read_dir(&dir).expect("the folder of file tests");
    let mut files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "mlir"));
    files.sort();
    assert!(!files.is_empty(), "no file tests in {}", dir.display());
    files
}

/// Compares `actual` with the file beside `path`, or writes it.
fn check(path: &Path, actual: &str, failures: &mut Vec<String>) {
    let beside = path.with_extension("expected");
    if std::env::var_os("TPUSIM_BLESS").is_some() {
        std::fs::write(&beside, actual).expect("writable");
        return;
    }
    let expected = std::fs::read_to_string(&beside).unwrap_or_default();
    if expected != actual {
        let line = expected
            .lines()
            .zip(actual.lines())
            .position(|(a, b)| a != b)
            .unwrap_or_else(|| expected.lines().count().min(actual.lines().count()));
        let show = |s: &str| s.lines().nth(line).unwrap_or("(end)").to_owned();
        failures.push(format!(
            "{} line {}:\n  expected {}\n  actual   {}",
            beside.display(),
            line + 1,
            show(&expected),
            show(actual)
        ));
    }
}

fn finish(failures: Vec<String>) {
    assert!(failures.is_empty(), "TPUSIM_BLESS=1 rewrites the expected text\n{}", failures.join("\n"));
}

/// Oracle: the expected text, read by people when it was written.
#[test]
fn printed_modules() {
    let mut failures = Vec::new();
    for path in files("") {
        let text = std::fs::read_to_string(&path).expect("readable");
        let module = parse_text(&text, "file.mlir").unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        check(&path, &module.to_text(text.contains("// options: locations")), &mut failures);
    }
    finish(failures);
}

/// Oracle: the expected diagnostics, read by people when they were written.
#[test]
fn diagnostics() {
    let mut failures = Vec::new();
    for path in files("errors") {
        let text = std::fs::read_to_string(&path).expect("readable");
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let error = parse_text(&text, &name).expect_err("the program is wrong");
        check(&path, &format!("{error}\n"), &mut failures);
    }
    finish(failures);
}

/// Oracle: the definition of the pretty form: a short reduction is one with that op as its body.
#[test]
fn short_reductions_are_expanded() {
    let program = |body: &str| {
        format!(
            "func.func @f(%x: tensor<4x8xf32>, %z: tensor<f32>) -> tensor<4xf32> {{ {body} return %0 : tensor<4xf32> }}"
        )
    };
    let short = program(
        "%0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>",
    );
    let long = program(
        "%0 = \"stablehlo.reduce\"(%x, %z) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): %s = stablehlo.add %a, %b : tensor<f32> \
         stablehlo.return %s : tensor<f32> }) {dimensions = dense<[1]> : tensor<1xi64>} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>",
    );
    let (short, long) = (parse_text(&short, "short").expect("valid"), parse_text(&long, "long").expect("valid"));
    short.same_as(&long).expect("the same");
}

/// Oracle: each pair differs in the one thing that is named.
#[test]
fn differences_are_found() {
    let f = |body: &str| {
        parse_text(&format!("func.func @f(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {{ {body} }}"), "f")
            .expect("valid")
    };
    let a = f("%0 = stablehlo.add %x, %y : tensor<f32> return %0 : tensor<f32>");
    for (body, what) in [
        ("%0 = stablehlo.subtract %x, %y : tensor<f32> return %0 : tensor<f32>", "opcode"),
        ("%0 = stablehlo.add %y, %x : tensor<f32> return %0 : tensor<f32>", "operand 0"),
        ("%0 = stablehlo.add %x, %y {a = 1} : tensor<f32> return %0 : tensor<f32>", "attributes"),
        ("%0 = stablehlo.add %x, %y : tensor<f32> return %x : tensor<f32>", "operand 0"),
    ] {
        let e = a.same_as(&f(body)).expect_err("differs");
        assert!(e.contains(what), "{e}");
    }
    a.same_as(&f("%q = stablehlo.add %x, %y : tensor<f32> loc(\"z\") return %q : tensor<f32>")).expect("the same");
}

/// Oracle: the bytes of the two kinds of file.
#[test]
fn kinds_of_files() {
    let bytecode = parse_program(b"ML\xefR\x06junk", "p.mlirbc").expect_err("not a program");
    assert!(bytecode.to_string().contains("p.mlirbc"), "{bytecode}");
    let neither = parse_program(b"\xff\xfe", "p.bin").expect_err("not a program");
    assert!(neither.to_string().contains("neither MLIR bytecode nor UTF-8"), "{neither}");
    assert!(parse_program(b"func.func @f() { return }", "p.mlir").is_ok());
}
