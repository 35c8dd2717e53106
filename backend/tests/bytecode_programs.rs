//! Programs that frameworks wrote: every one decodes, and holds what the text beside it holds.
//!
//! Oracle: a scan of the text for the names of operations. It needs the shared programs and skips without them.

#![allow(clippy::print_stderr, reason = "a test that skips or measures says so")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tpusim_backend::front::bytecode::parse;
use tpusim_backend::hlo::{Block, Module, Opcode};

fn shared(dir: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(dir);
    let found = path.is_dir();
    if !found {
        eprintln!("skipped: {} is not there", path.display());
    }
    found.then_some(path)
}

/// All pairs of bytecode and text below `dir`.
fn programs(dir: &Path) -> Vec<(PathBuf, PathBuf)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            out.extend(programs(&path));
        } else if path.extension().is_some_and(|e| e == "mlirbc") {
            out.push((path.clone(), path.with_extension("mlir")));
        }
    }
    out.sort();
    out
}

type Histogram = BTreeMap<String, usize>;

fn count_block(block: &Block, out: &mut Histogram) {
    for op in &block.ops {
        if op.opcode != Opcode::Return {
            *out.entry(op.opcode.name().to_owned()).or_default() += 1;
        }
        op.regions.iter().for_each(|r| count_block(&r.block, out));
    }
}

fn histogram(module: &Module) -> Histogram {
    let mut out = Histogram::new();
    module.funcs.iter().for_each(|f| count_block(&f.body, &mut out));
    out.insert("func".into(), module.funcs.len());
    out.insert("mesh".into(), module.meshes.len());
    out
}

/// The operations a text names: at the start of a line, after `=`, in quotes, or as the body of a short reduction. Returns are
/// not counted, because short reductions do not show them.
fn text_histogram(text: &str) -> Histogram {
    let mut out = Histogram::from([("func".into(), 0), ("mesh".into(), 0)]);
    for line in text.lines() {
        let line = line.trim_start();
        if line.starts_with('#') {
            continue;
        }
        let op = match line.split_once(" = ") {
            Some((result, rest)) if result.starts_with('%') => rest,
            _ => line,
        };
        let mut names = vec![name(op.trim_start_matches('"'))];
        if let Some((_, body)) = op.split_once(" applies ") {
            names.push(name(body));
        }
        for n in names {
            let key = match n {
                "func.func" => "func",
                "sdy.mesh" => "mesh",
                "call" => "func.call",
                "stablehlo.return" | "sdy.return" | "return" => continue,
                n if n.starts_with("stablehlo.") || n.starts_with("sdy.") || n == "func.call" => n,
                _ => continue,
            };
            *out.entry(key.to_owned()).or_default() += 1;
        }
    }
    out
}

fn name(s: &str) -> &str {
    let end = s.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.' && c != '-').unwrap_or(s.len());
    &s[..end]
}

fn check(dir: &str, at_least: usize) {
    let Some(dir) = shared(dir) else { return };
    let all = programs(&dir);
    assert!(all.len() >= at_least, "only {} programs", all.len());
    for (bytecode, text) in all {
        let module = parse(&fs::read(&bytecode).unwrap()).unwrap_or_else(|e| panic!("{}: {e}", bytecode.display()));
        let text = fs::read_to_string(&text).unwrap();
        assert_eq!(histogram(&module), text_histogram(&text), "{}", bytecode.display());
    }
}

#[test]
fn fixtures() {
    check("fixtures", 46);
}

#[test]
fn torchtpu_programs() {
    check("torchtpu_programs", 374);
}
