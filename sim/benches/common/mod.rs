//! Two speeds of the same run side by side.

use std::time::Instant;

/// Runs `a` and `b` in turn, some dozen times each, and prints the best of `a` as a share of the best of `b`. Taking turns and the
/// best times keep what else the machine does out of the ratio.
pub fn ratio(what: &str, unit: &str, amount: f64, (a_name, mut a): Named<'_>, (b_name, mut b): Named<'_>) {
    let mut best = [f64::MAX; 2];
    for _ in 0..24 {
        for (best, run) in best.iter_mut().zip([&mut a, &mut b]) {
            let start = Instant::now();
            run();
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    let [a, b] = best.map(|seconds| amount / seconds / 1e9);
    println!("{what}: {a_name} {a:.1} G{unit}/s, {b_name} {b:.1} G{unit}/s, ratio {:.2}", a / b);
}

/// Work with its name.
pub type Named<'a> = (&'a str, Box<dyn FnMut() + 'a>);
