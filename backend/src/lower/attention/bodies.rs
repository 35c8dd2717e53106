//! The loop over the list of pairs, which both kernels run: a body for each pair, with all stages of the kernel in it.

use super::super::emit::{EmitError, Emitter, ZERO};
use super::mask::Mask;
use super::pipeline::{BODY, Lanes, Number, Thread, Work, merge, unrolled};
use super::stages::{Spot, Stages, UNROLL};

/// A kernel's stages.
pub(super) trait Kernel: Work + Sized {
    /// Its buffers and tiles.
    fn stages(&mut self) -> &mut Stages;
    /// Its jobs on the matrix units.
    fn lanes(&self) -> Lanes;
    /// Tiles that a body works on.
    fn wanted(&self) -> Vec<Spot>;
    /// Bodies from a pair's first to the last that works on it.
    fn last(&self) -> u32;
    /// Bodies from a pair's first to the one that masks its scores.
    fn masking(&self) -> u32;
    /// The stage whose addresses are computed first, as it takes longest.
    fn longest(&self) -> u32;
    /// What is hidden in the bodies that follow.
    fn mask(&mut self, mask: Option<Mask>);
    /// Stages of the vector unit that come before the jobs, and those that come after.
    fn vector(&mut self, e: &mut Emitter<'_>, after: bool) -> Result<Vec<Thread>, EmitError>;
}

/// Runs the whole list.
pub(super) fn run<K: Kernel>(k: &mut K, e: &mut Emitter<'_>) -> Result<(), EmitError> {
    let (wanted, lanes) = (k.wanted(), k.lanes());
    k.stages().want(e, &wanted)?;
    lanes.prime(e, k)?;
    k.stages().load(e, ZERO, 0);
    e.flush()?;
    let (masking, last) = (k.masking(), k.last());
    let (mut first, mut pairs) = (0, 0);
    let runs: Vec<(Option<Mask>, u32)> = k.stages().table.runs.clone();
    for (i, &(mask, count)) in runs.iter().enumerate() {
        pairs += count;
        // A mask is for pairs that came in some bodies ago.
        let end = if i + 1 == runs.len() { pairs + last } else { pairs + masking };
        k.mask(mask);
        unrolled(e, first, end.saturating_sub(first), UNROLL, |e, n, phase| {
            k.stages().number = phase;
            body(k, e, &lanes, n)
        })?;
        first = end;
    }
    lanes.drain(e, k)?;
    k.stages().release(e);
    Ok(())
}

fn body<K: Kernel>(k: &mut K, e: &mut Emitter<'_>, lanes: &Lanes, n: Number) -> Result<(), EmitError> {
    let longest = k.longest();
    k.stages().addresses(e, longest);
    let word = k.stages().word(e, n)?;
    let mut threads = k.vector(e, false)?;
    threads.push(Thread::of(e, 0, BODY, |e| {
        k.stages().load(e, word, n.offset + 1);
        Ok(())
    })?);
    threads.extend(lanes.threads(e, k)?);
    threads.extend(k.vector(e, true)?);
    let spread = k.stages().spread;
    merge(e, threads, spread);
    e.free(word);
    e.flush()
}
