//! Whole training steps of language models over fsdp and tp axes. Held against the collectives that a real compiler makes of the
//! same programs, loosely: it combines and splits them after partitioning.

#![expect(clippy::print_stderr, reason = "a test that skips says so")]

mod partition_common;

use std::path::Path;

use partition_common::collectives;
use tpusim_backend::front::parse_program;
use tpusim_backend::hlo::verify;
use tpusim_backend::partition::partition;

#[test]
fn training_steps_partition() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dirs = ["../../shared/oracle/pods", "../../../shared/oracle/pods"];
    let Some(dir) = dirs.iter().map(|d| root.join(d)).find(|d| d.is_dir()) else {
        eprintln!("skipped: shared/oracle/pods is absent");
        return;
    };
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "mlir"));
    files.sort();
    for file in files {
        let module = verify(parse_program(&std::fs::read(&file).unwrap(), "pod").unwrap()).unwrap();
        let p = partition(&module).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        eprintln!("{}: {:?}", file.file_name().unwrap().to_string_lossy(), collectives(&p.module));
        if let Some(dir) = std::env::var_os("TPUSIM_DUMP") {
            let name = Path::new(&dir).join(file.file_name().unwrap());
            std::fs::write(name, p.module.to_string()).unwrap();
        }
    }
}
