//! StableHLO's own compatibility files, one per released version of VHLO.
//!
//! They are read from a checkout of openxla/stablehlo named by `TPUSIM_STABLEHLO_DIR`; the tests skip without it. Oracle: the
//! functions named in the text beside each file.

#![allow(clippy::print_stderr, reason = "a test that skips or measures says so")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tpusim_backend::front::bytecode::{ErrorKind, parse_all};

fn files() -> Option<Vec<PathBuf>> {
    let Some(dir) = std::env::var_os("TPUSIM_STABLEHLO_DIR") else {
        eprintln!("skipped: TPUSIM_STABLEHLO_DIR is not set");
        return None;
    };
    let dir = Path::new(&dir).join("stablehlo/tests/vhlo");
    let mut out: Vec<PathBuf> = fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "bc"))
        .collect();
    out.sort();
    Some(out)
}

/// Names of the functions in a text.
fn functions(text: &str) -> usize {
    text.lines().filter(|l| l.starts_with("func.func ")).count()
}

#[test]
fn every_version_decodes() {
    let Some(files) = files() else { return };
    let (mut read, mut whole) = (0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for path in &files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let bytes = fs::read(path).unwrap();
        let (module, errors) = parse_all(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        if name.starts_with("invalid") {
            let e = errors.first().unwrap_or_else(|| panic!("{name} has an operation of the future"));
            assert_eq!(e.kind, ErrorKind::UnknownOp("vhlo.constant_v99".into()));
            eprintln!("{name}: refused, as it must be: {e}");
            continue;
        }
        let text = fs::read_to_string(path.with_extension("")).unwrap();
        let known = functions(&text);
        eprintln!("{name}: {} of {known} functions, {} unsupported", module.funcs.len(), errors.len());
        if known > 0 {
            assert_eq!(module.funcs.len() + errors.len(), known, "{name}");
        }
        read += 1;
        whole += usize::from(errors.is_empty());
        for e in errors {
            let what = e.kind.to_string();
            assert!(what.starts_with("unsupported"), "{name}: {e}");
            *reasons.entry(what).or_default() += 1;
        }
    }
    eprintln!("{read} of {} files read, {whole} of them without a single unsupported function", files.len());
    for (what, n) in reasons {
        eprintln!("{n:5} {what}");
    }
}
