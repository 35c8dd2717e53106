//! Text and bytecode of the same program give the same module.

#![allow(clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};

use tpusim_backend::front::parse_program;

fn shared(sub: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(sub)
}

fn pairs() -> Vec<(PathBuf, PathBuf)> {
    let mut out = Vec::new();
    for root in ["fixtures", "torchtpu_programs"] {
        let Ok(dirs) = fs::read_dir(shared(root)) else { continue };
        for dir in dirs.flatten() {
            let Ok(files) = fs::read_dir(dir.path()) else { continue };
            for f in files.flatten().map(|f| f.path()).filter(|p| p.extension().is_some_and(|e| e == "mlir")) {
                let b = f.with_extension("mlirbc");
                if b.exists() {
                    out.push((f, b));
                }
            }
        }
    }
    out.sort();
    out
}

#[test]
fn every_program_is_equal_in_both_forms() {
    let pairs = pairs();
    if pairs.is_empty() {
        println!("skipped: ../shared is not here");
        return;
    }
    let mut bad = Vec::new();
    for (text, bytecode) in &pairs {
        let read = |p: &Path| parse_program(&fs::read(p).unwrap(), &p.display().to_string());
        match (read(text), read(bytecode)) {
            (Ok(a), Ok(b)) => {
                if let Err(e) = a.same_as(&b) {
                    bad.push(format!("{}: {e}", text.display()));
                }
            }
            (a, b) => bad.push(format!(
                "{}: {:?} {:?}",
                text.display(),
                a.err().map(|e| e.to_string()),
                b.err().map(|e| e.to_string())
            )),
        }
    }
    assert!(bad.is_empty(), "{} of {} differ:\n{}", bad.len(), pairs.len(), bad.join("\n"));
}
