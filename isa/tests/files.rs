//! File tests of the assembly: every `tests/asm/*.asm` is parsed, printed, encoded and checked.
//!
//! A line `// check: ...` in a file is a message that the checker must give, in order; a file without one must have none. Oracle:
//! those comments, and for the forms that text and bytes come back exactly. `TPUSIM_BLESS=1` rewrites the comments to what the
//! checker says and the code to how the printer writes it, keeping the comments above the program.

use std::path::{Path, PathBuf};

use tpusim_isa::chip::ChipSpec;
use tpusim_isa::program::Program;
use tpusim_isa::{asm, binary, check};

const MARK: &str = "// check: ";

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/asm");
    let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<PathBuf> = entries.filter_map(|e| e.ok()).map(|e| e.path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "asm"));
    files.sort();
    files
}

fn messages(program: &Program) -> Vec<String> {
    let chip = ChipSpec::load(&program.chip).unwrap_or_else(|e| panic!("{e}"));
    check::check(program, &chip).iter().map(|e| e.to_string()).collect()
}

fn bless(path: &Path, text: &str, program: &Program) {
    let head = text.lines().take_while(|l| l.starts_with("//") || l.is_empty()).filter(|l| !l.starts_with(MARK));
    let mut out: Vec<String> = head.map(str::to_owned).collect();
    out.extend(messages(program).iter().map(|m| format!("{MARK}{m}")));
    let printed = asm::print(program);
    // Hand-written code keeps its comments: only the head is rewritten unless the code has none.
    let code: String =
        text.lines().skip_while(|l| l.starts_with("//") || l.is_empty()).collect::<Vec<_>>().join("\n") + "\n";
    let body = if code.contains("//") { code } else { printed };
    let blessed = out.join("\n") + "\n" + &body;
    std::fs::write(path, blessed).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

#[test]
fn files_round_trip_and_check_as_they_say() {
    let files = files();
    assert!(files.len() >= 5, "{} files", files.len());
    for path in files {
        let name = path.display();
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        let program = asm::parse(&text).unwrap_or_else(|e| panic!("{name}:{e}"));
        assert_eq!(asm::parse(&asm::print(&program)), Ok(program.clone()), "{name}: text");
        assert_eq!(binary::decode(&binary::encode(&program)), Ok(program.clone()), "{name}: binary");
        if std::env::var_os("TPUSIM_BLESS").is_some() {
            bless(&path, &text, &program);
            continue;
        }
        let expected: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix(MARK)).collect();
        assert_eq!(messages(&program), expected, "{name}: checker");
    }
}
