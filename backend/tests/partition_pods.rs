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
        let text = std::fs::read_to_string(&file).unwrap();
        let module = verify(parse_program(text.as_bytes(), "pod").unwrap()).unwrap();
        let p = partition(&module).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let found = collectives(&p.module);
        let n = |kind: &str| found.get(kind).copied().unwrap_or(0);
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        eprintln!("{name}: {found:?}");
        // Seven weights forwards and backwards, the output projection, the tokens; their eight gradients; the embedding's rows
        // and their gradients. Without tp the norms' gradients and the loss are summed, with tp the products of each block too.
        let sums = if name.contains("tp4") { 15 } else { 4 };
        assert!(n("stablehlo.all_gather") <= 17 && n("stablehlo.all_reduce") <= sums, "{name}: {found:?}");
        assert!(n("stablehlo.reduce_scatter") >= 8 && n("stablehlo.all_to_all") <= 2, "{name}: {found:?}");
        // Twice as many devices along tp as there are heads of keys and values.
        if name.contains("tp4") {
            let wider = text.replace("\"tp\"=4", "\"tp\"=16");
            let module = verify(parse_program(wider.as_bytes(), "pod").unwrap()).unwrap();
            let p = partition(&module).unwrap_or_else(|e| panic!("{name}: {e}"));
            eprintln!("{name} with tp16: {:?}, {:?}", collectives(&p.module), p.mesh.axes);
            assert!(p.mesh.axes.iter().any(|(n, _)| n == "tp:(1)8"), "{:?}", p.mesh.axes);
            assert_eq!(p.mesh.whole_axes()[1], ("tp".to_owned(), 16));
            if let Some(dir) = std::env::var_os("TPUSIM_DUMP") {
                std::fs::write(Path::new(&dir).join(format!("wide_{name}")), p.module.to_string()).unwrap();
            }
        }
        if let Some(dir) = std::env::var_os("TPUSIM_DUMP") {
            let name = Path::new(&dir).join(file.file_name().unwrap());
            std::fs::write(name, p.module.to_string()).unwrap();
        }
    }
}
