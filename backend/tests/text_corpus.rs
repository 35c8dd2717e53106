//! Every program of the shared corpus parses, and prints to text that parses to the same module.
#![allow(clippy::print_stderr)]

use std::path::{Path, PathBuf};

use tpusim_backend::front::parse_text;

/// All StableHLO programs under ../../shared, sorted. Empty, with a message, if the folder is absent.
fn corpus() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let mut files = Vec::new();
    for dir in ["fixtures", "torchtpu_programs", "oracle/programs", "oracle/pods"] {
        collect(&root.join(dir), &mut files);
    }
    files.retain(|f| !f.to_string_lossy().contains(".mosaic."));
    files.sort();
    if files.is_empty() {
        eprintln!("skipped: no programs under {}", root.display());
    }
    files
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "mlir") {
            files.push(path);
        }
    }
}

/// Oracle: the programs are what JAX and TorchTPU print, so all of them are valid; the printed form is compared with the
/// module it came from.
#[test]
fn every_program_round_trips() {
    let mut failures = Vec::new();
    let files = corpus();
    for path in &files {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).expect("readable");
        let module = match parse_text(&text, &name) {
            Ok(m) => m,
            Err(e) => {
                failures.push(e.to_string());
                continue;
            }
        };
        for locations in [false, true] {
            let printed = module.to_text(locations);
            match parse_text(&printed, "printed") {
                Err(e) => failures.push(format!("{name}: printed form does not parse:\n{e}")),
                Ok(again) => {
                    if let Err(e) = module.same_as(&again) {
                        failures.push(format!("{name}: {e}"));
                    }
                    if again.to_text(false) != module.to_text(false) {
                        failures.push(format!("{name}: printing again gives another text"));
                    }
                }
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} files:\n{}",
        failures.len(),
        files.len(),
        failures[..failures.len().min(5)].join("\n\n")
    );
}
