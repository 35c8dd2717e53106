//! File tests of the tile level: programs in `filetests/tile/*.mlir`, their kernels on v5e in `*.tile` beside them.
//! `TPUSIM_BLESS=1` writes the expected files anew.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use tpusim_backend::compile::compile_parts;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::verify;
use tpusim_isa::chip::ChipSpec;

#[test]
fn kernels_are_as_expected() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/tile");
    let chip = ChipSpec::load("v5e").unwrap();
    let bless = std::env::var_os("TPUSIM_BLESS").is_some();
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "mlir"));
    files.sort();
    assert!(files.len() >= 5);
    for file in files {
        let module = verify(parse_program(&fs::read(&file).unwrap(), &file.display().to_string()).unwrap()).unwrap();
        let c = compile_parts(&module, &chip).unwrap();
        let mut text = String::new();
        for (kernel, info) in c.kernels.iter().zip(&c.program.ops) {
            write!(text, "{} {kernel}", info.name).unwrap();
        }
        let expected = file.with_extension("tile");
        if bless {
            fs::write(&expected, &text).unwrap();
        } else {
            let want = fs::read_to_string(&expected).unwrap_or_default();
            assert_eq!(text, want, "{}: TPUSIM_BLESS=1 accepts the new text", file.display());
        }
    }
}
