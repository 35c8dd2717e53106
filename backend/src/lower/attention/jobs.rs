//! Products of the gradient's kernel: which MXU does which, and in which body after a pair came in.

use super::TILE;
use super::pipeline::Lanes;
use super::stages::LANES;

/// A product of the pair at hand: what is contracted and what is not are cut where the array is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Keys by queries.
    Scores,
    /// Values by the gradient of the output.
    Weights,
    /// Weights by the gradient of the output.
    Values,
    /// Gradients of scores by queries.
    Keys,
    /// Keys by gradients of scores.
    Queries,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub what: What,
    /// Contracted part.
    pub kt: u32,
    /// Part of the columns.
    pub ct: u32,
    /// Bodies after the pair came in when its weights are pushed.
    pub start: u32,
}

/// Jobs and the MXU of each, as even as can be. Those that add to the same buffer share one.
pub(super) fn assign(halves: u32, mxus: u32, lanes_of: [u32; 2], rows_of: [u32; 2]) -> (Vec<Job>, Vec<u32>) {
    let columns = |n: u32| if halves > 1 { 1 } else { n };
    let mut load = vec![0u32; mxus as usize];
    let (mut jobs, mut on) = (Vec::new(), Vec::new());
    let keys = TILE / 16;
    let list = [
        (What::Scores, lanes_of[0], LANES, keys),
        (What::Weights, lanes_of[1], LANES, keys),
        (What::Values, LANES, lanes_of[1], keys),
        (What::Keys, LANES, lanes_of[0], keys),
        (What::Queries, LANES, LANES, rows_of[0]),
    ];
    for (what, contracted, cols, rows) in list {
        let buffered = what == What::Scores || what == What::Weights;
        let mut chosen: Vec<Option<usize>> = vec![None; cols as usize];
        for kt in 0..columns(contracted) {
            for ct in 0..columns(cols) {
                let least = (0..load.len()).min_by_key(|&m| load[m]).unwrap_or(0);
                let m = chosen[ct as usize].filter(|_| buffered).unwrap_or(least);
                chosen[ct as usize] = Some(m);
                load[m] += rows;
                jobs.push(Job { what, kt, ct, start: 0 });
                on.push(m as u32);
            }
        }
    }
    (jobs, on)
}

/// When jobs begin: those that need exponentials as soon as these are there, and those that add to the same sums are popped in the
/// same body. Gives the lag of the exponentials.
pub(super) fn schedule(jobs: &mut [Job], lanes: &Lanes) -> u32 {
    let first = |w: What| w == What::Scores || w == What::Weights;
    let pops = (0..jobs.len()).filter(|&j| first(jobs[j].what)).map(|j| lanes.pop_lag(j));
    let vector = pops.max().unwrap_or(0) + 1;
    for what in [What::Values, What::Keys, What::Queries] {
        let of: Vec<usize> = (0..jobs.len()).filter(|&j| jobs[j].what == what).collect();
        // Bodies from what needs exponentials to the pops.
        let after = |j: usize| lanes.pop_lag(j) - if what == What::Queries { 0 } else { lanes.stream_lag(j) };
        let end = of.iter().map(|&j| vector + 1 + after(j)).max().unwrap_or(0);
        for j in of {
            jobs[j].start = end - lanes.pop_lag(j);
        }
    }
    vector
}
