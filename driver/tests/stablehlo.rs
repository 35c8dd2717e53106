//! StableHLO's own test programs, run by the reference evaluator or by a simulated chip.
//!
//! `TPUSIM_STABLEHLO_DIR` names a checkout of the StableHLO repository; without it the test passes and says so. Programs come from
//! `stablehlo/tests/interpret`, `stablehlo/tests/math` and `stablehlo/testdata`. Oracle: the constants and the tolerances that each
//! program states in its `check` ops.
//!
//! `TPUSIM_SUITE_ENGINE=sim` compiles the programs for a v5e and runs them on the simulated chip. A result outside the program's
//! tolerance then counts as right if it is as near to the evaluator's with an MXU's products. `TPUSIM_SUITE_ONLY` selects programs by
//! a part of their name, `TPUSIM_SUITE_VERBOSE=1` lists all that do not pass.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod suite;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use suite::{Engine, Outcome};

/// Programs whose results differ for a reason, and the reason.
const KNOWN: &[(&str, &str)] = &[
    ("api_input_arguments", TAKES_INPUTS),
    ("conv_general_dilated_float32_2_3_9_float32_12_1_3", SUMS),
    ("cumsum_bfloat16_8_9", SUMS),
    ("cumsum_float32_8_9", SUMS),
    ("dot_general_bfloat16_4_3_complex64_3_6", SUMS),
    ("dot_general_float16_4_3_complex64_3_6", SUMS),
    ("dot_general_float32_4_3_complex64_3_6", SUMS),
    ("dot_general_int16_4_3_complex64_3_6", SUMS),
    ("dot_general_int32_4_3_float32_3_6", SUMS),
    ("dot_general_int64_4_3_complex64_3_6", SUMS),
    ("dot_general_int8_4_3_float32_3_6", SUMS),
    ("dot_general_uint16_4_3_complex64_3_6", SUMS),
    ("dot_general_uint16_4_3_float32_3_6", SUMS),
    ("dot_general_uint8_4_3_complex64_3_6", SUMS),
    ("reduce_window_add_float32_12_12", SUMS),
    ("cosh_float32_20_20_chlo", HYPERBOLIC),
    ("sinh_float32_20_20_chlo", HYPERBOLIC),
];

/// Programs whose results differ on the chip alone, and the reason.
const KNOWN_ON_CHIP: &[(&str, &str)] = &[
    ("ceil#3", RANGE),
    ("floor#3", RANGE),
    ("ceil_qi8#3", RANGE),
    ("floor_qi8#3", RANGE),
    ("tan", DOUBLES),
    ("bitcast_convert_type_float64_2_3", DOUBLES),
    ("ulp_difference_float64", DOUBLES),
    ("log_float64", RANGE),
    ("log_plus_one_float64", RANGE),
    ("sqrt_float64", RANGE),
    ("exponential_complex64", COMPLEX),
    ("log_complex64", COMPLEX),
    ("log_plus_one_complex64", COMPLEX),
    ("sqrt_complex64", COMPLEX),
    ("square_complex64", COMPLEX),
    ("acosh_float64", RANGE),
    ("asinh_float64", RANGE),
    ("acos_complex128", COMPLEX),
    ("acos_complex64", COMPLEX),
    ("acosh_complex128", COMPLEX),
    ("acosh_complex64", COMPLEX),
    ("asin_complex128", COMPLEX),
    ("asin_complex64", COMPLEX),
    ("asinh_complex128", COMPLEX),
    ("asinh_complex64", COMPLEX),
    ("atan_complex128", COMPLEX),
    ("atan_complex64", COMPLEX),
    ("atanh_complex128", COMPLEX),
    ("atanh_complex64", COMPLEX),
    ("exponential_complex128", COMPLEX),
    ("log_complex128", COMPLEX),
    ("log_plus_one_complex128", COMPLEX),
    ("sqrt_complex128", COMPLEX),
    ("square_complex128", COMPLEX),
    ("log1p_complex64_20_20", COMPLEX),
    ("cumsum_complex64_8_9", SUMS),
    ("reduce_window_add_float32_4_6", SUMS),
    ("cumlogsumexp_float16_8_9", SUMS),
];

/// A double on the chip is the sum of two f32: numbers below 2^-149 are zero, above f32's largest number infinite.
const RANGE: &str = "numbers of an f64 that lie outside of f32's range";

/// The 53rd bit of a double, or what hangs on it: next to a pole of the tangent the argument's last bits decide.
const DOUBLES: &str = "a double has some 48 bits on the chip";

/// Formulas of the parts: products and squares of parts overflow or cancel, and infinite parts meet NaN.
const COMPLEX: &str = "complex functions at infinities, near the largest numbers, and where their parts cancel";

/// The evaluator rounds a sum of products once; what is expected was rounded at every step, and cancels.
const SUMS: &str = "expected values carry the rounding of every partial sum";

/// With x = 9.164727 the evaluator gives cosh x = 4777.0576, the exact value is 4777.05746, 4777.0596 is expected.
const HYPERBOLIC: &str = "expected values come from exponentials rounded to single precision";

/// The command line that the file states passes arguments to it.
const TAKES_INPUTS: &str = "the program has parameters";

fn known(name: &str, engine: Engine) -> bool {
    let chip = if engine == Engine::Sim { KNOWN_ON_CHIP } else { &[] };
    KNOWN.iter().chain(chip).any(|(k, _)| name == *k)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut all = Vec::new();
    for path in entries.filter_map(|e| Some(e.ok()?.path())) {
        if path.is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_some_and(|e| e == "mlir") {
            all.push(path);
        }
    }
    all.sort();
    all
}

struct Program {
    /// Name of its file, with a number where that holds several.
    name: String,
    text: String,
    /// Whether the repository itself does not run it.
    disabled: bool,
}

/// The programs of a file.
fn programs(path: &Path) -> Vec<Program> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let disabled = text.starts_with("// RUN-DISABLED");
    let parts: Vec<&str> = text.split("\n// -----").filter(|p| p.contains("func.func")).collect();
    let named = |(i, p): (usize, &&str)| {
        let name = if parts.len() == 1 { name.clone() } else { format!("{name}#{i}") };
        Program { name, text: (*p).to_owned(), disabled }
    };
    parts.iter().enumerate().map(named).collect()
}

#[derive(Default)]
struct Table {
    passed: usize,
    dynamic: usize,
    failed: Vec<(String, String)>,
    known: usize,
    unsupported: BTreeMap<String, Vec<String>>,
}

impl Table {
    fn total(&self) -> usize {
        self.passed
            + self.dynamic
            + self.failed.len()
            + self.known
            + self.unsupported.values().map(Vec::len).sum::<usize>()
    }
}

#[test]
fn programs_of_the_stablehlo_repository() {
    let Some(root) = std::env::var_os("TPUSIM_STABLEHLO_DIR").map(PathBuf::from) else {
        eprintln!("skipped: TPUSIM_STABLEHLO_DIR does not name a StableHLO checkout");
        return;
    };
    let engine = match std::env::var("TPUSIM_SUITE_ENGINE").as_deref() {
        Ok("sim") => Engine::Sim,
        Ok("eval") | Err(_) => Engine::Eval,
        Ok(other) => panic!("TPUSIM_SUITE_ENGINE is `eval` or `sim`, not `{other}`"),
    };
    let only = std::env::var("TPUSIM_SUITE_ONLY").unwrap_or_default();
    let verbose = std::env::var_os("TPUSIM_SUITE_VERBOSE").is_some();
    let mut wrong = Vec::new();
    for dir in ["stablehlo/tests/interpret", "stablehlo/tests/math", "stablehlo/testdata"] {
        let mut all: Vec<Program> = files(&root.join(dir)).iter().flat_map(|p| programs(p)).collect();
        assert!(!all.is_empty(), "{} holds no programs", root.join(dir).display());
        all.retain(|p| p.name.contains(&only));
        let table = run_all(&all, engine);
        print(dir, &table, verbose);
        wrong.extend(table.failed);
    }
    assert!(wrong.is_empty(), "{} wrong results, the first: {}: {}", wrong.len(), wrong[0].0, wrong[0].1);
}

fn run_all(all: &[Program], engine: Engine) -> Table {
    let (next, table) = (AtomicUsize::new(0), Mutex::new(Table::default()));
    let work = || {
        while let Some(Program { name, text, disabled }) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = suite::run(name, text, engine);
            let mut t = table.lock().expect("no thread panics with the table");
            match outcome {
                Outcome::Passed => t.passed += 1,
                Outcome::Dynamic => t.dynamic += 1,
                Outcome::Unsupported(reason) => t.unsupported.entry(reason).or_default().push(name.clone()),
                Outcome::Failed(_) if *disabled || known(name, engine) => t.known += 1,
                Outcome::Failed(e) => t.failed.push((name.clone(), e)),
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(8) {
            s.spawn(work);
        }
    });
    let mut table = table.into_inner().expect("no thread panics with the table");
    table.failed.sort();
    table
}

fn print(dir: &str, t: &Table, verbose: bool) {
    let (failed, total) = (t.failed.len(), t.total());
    let fixed = total - t.dynamic;
    let unsupported = fixed - t.passed - failed - t.known;
    println!(
        "{dir}: {total} programs, {} with dynamic shapes refused at their line, {fixed} with fixed shapes",
        t.dynamic
    );
    let percent = 100.0 * t.passed as f64 / fixed.max(1) as f64;
    let (passed, known) = (t.passed, t.known);
    println!(
        "  of these {passed} passed ({percent:.1} %), {failed} failed, {known} known to differ, {unsupported} unsupported"
    );
    let mut reasons: Vec<_> = t.unsupported.iter().collect();
    reasons.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    for (reason, names) in reasons {
        println!("  unsupported {:5}  {reason}  ({})", names.len(), names[0]);
        for name in names.iter().skip(1).filter(|_| verbose) {
            println!("                     {name}");
        }
    }
    for (name, e) in t.failed.iter().take(if verbose { usize::MAX } else { 20 }) {
        println!("  failed {name}: {e}");
    }
}
