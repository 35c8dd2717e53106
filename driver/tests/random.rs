//! Random programs, simulated on random chips.
//!
//! Oracle: the reference evaluator. Integers, booleans, moved data, exact float operations and sums of small whole numbers agree
//! to the bit; for the rest an error bound is carried from op to op, from the magnitudes that the evaluator finds.
//!
//! `TPUSIM_RANDOM_CASES` sets the number of programs, `TPUSIM_RANDOM_SEED` (hexadecimal) chooses others,
//! `TPUSIM_RANDOM_OPS` makes them longer than 12 ops.

#![allow(clippy::print_stdout)]

mod common;
mod generate;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use generate::Generated;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tpusim_backend::hlo::Block;
use tpusim_isa::chip::ChipSpec;

/// Programs that did not fit a small VMEM.
static TOO_SMALL: AtomicU32 = AtomicU32::new(0);

/// Names of the operations that programs had.
static KINDS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Fewest kinds of operations that the programs should have.
const LEAST_KINDS: usize = 60;

fn kinds(block: &Block, into: &mut BTreeSet<&'static str>) {
    for op in &block.ops {
        into.insert(op.opcode.name());
        op.regions.iter().for_each(|r| kinds(&r.block, into));
    }
}

/// Scatters that need more registers than there are.
static TOO_MANY: AtomicU32 = AtomicU32::new(0);

fn agree(g: &Generated) -> Result<(), String> {
    let sizes = ["vmem_bytes", "scoped_vmem_bytes"];
    let vmem: Vec<(String, String)> =
        g.vmem.iter().flat_map(|v| sizes.map(|name| (name.to_owned(), v.to_string()))).collect();
    let chip = ChipSpec::load_with(g.chip, &vmem).map_err(|e| e.to_string())?;
    let program = match common::compiled(&g.module, &chip) {
        // Some kernels cannot do with so little.
        Err(e) if g.vmem.is_some() && e.contains("of VMEM") => {
            TOO_SMALL.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        // A known limit: scatters that look at many updates at once may need more registers than there are, with any VMEM.
        Err(e) if e.contains("scatter") && e.contains("vector or 16 mask registers") => {
            TOO_MANY.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        result => result?,
    };
    if let Ok(mut all) = KINDS.lock() {
        g.module.funcs.iter().for_each(|f| kinds(&f.body, &mut all));
    }
    let all = common::reference(&g.everything, &g.inputs);
    let bounds = g.bounds(&all);
    let inputs: Vec<Vec<u8>> = g.inputs.iter().map(|t| t.bytes().to_vec()).collect();
    let outputs = common::run(&program, &chip, &inputs)?;
    for (i, (&v, got)) in g.outputs.iter().zip(&outputs).enumerate() {
        if let Some(e) = common::differs(all[v].dtype(), got, all[v].bytes(), bounds[v]) {
            return Err(format!("output {i}, {}: {e}", all[v].ty()));
        }
    }
    Ok(())
}

#[test]
fn random_programs_agree_with_the_evaluator() {
    let number = |name: &str, radix| std::env::var(name).ok().and_then(|v| u64::from_str_radix(&v, radix).ok());
    let cases = number("TPUSIM_RANDOM_CASES", 10).unwrap_or(150) as u32;
    let most = number("TPUSIM_RANDOM_OPS", 10).unwrap_or(12) as usize;
    let seed = number("TPUSIM_RANDOM_SEED", 16).unwrap_or(1).to_le_bytes().repeat(4);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    // Genes keep their values, so that a failing program shrinks by losing ops.
    let genes = (any::<u64>().no_shrink(), prop::collection::vec(any::<u64>().no_shrink(), 2..=most.max(2)));
    let result = runner.run(&genes, |(head, genes)| {
        let g = generate::program(head, &genes);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| agree(&g)));
        let result = result.unwrap_or_else(|_| Err("panic".into()));
        result.map_err(|e| {
            TestCaseError::fail(format!("on {} with VMEM {:?}: {e}\n{}", g.chip, g.vmem, g.module.to_text(false)))
        })
    });
    if let Err(e) = result {
        panic!("{e}");
    }
    let skipped = TOO_SMALL.load(Ordering::Relaxed);
    assert!(skipped * 4 <= cases, "{skipped} of {cases} programs did not fit a small VMEM");
    let unfit = TOO_MANY.load(Ordering::Relaxed);
    println!("{unfit} programs have a scatter that needs more registers than there are");
    assert!(unfit * 500 <= cases.max(500), "{unfit} of {cases} programs have such a scatter");
    let kinds = KINDS.lock().unwrap_or_else(|e| e.into_inner());
    #[allow(clippy::print_stdout)]
    {
        println!("{cases} programs of {} kinds of operations: {kinds:?}", kinds.len());
    }
    assert!(cases < 150 || kinds.len() >= LEAST_KINDS, "{} kinds of operations only", kinds.len());
}
