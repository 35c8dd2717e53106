//! What to do: one to three sentences, each from the numbers of the report, the largest share of the time first.

use tpusim_sim::profile::{Stall, Unit};

use super::{Bound, OpReport, Report, ratio};
use crate::units::{digits, percent, seconds};

/// Sentences given at most.
const MOST: usize = 3;
/// Share of the time from which a cause is worth a sentence.
const WORTH: f64 = 0.1;
/// The same for modelled time, which the head of the report already states.
const WORTH_MODELLED: f64 = 0.25;

/// A sentence and the share of the time it is about.
struct Finding {
    share: f64,
    text: String,
}

pub(super) fn advice(r: &Report) -> Vec<String> {
    if r.cycles == 0 || r.ops.is_empty() {
        return vec!["Nothing ran.".to_owned()];
    }
    let found = [launch(r), hbm(r), mxu(r), padding(r), latency(r), vector(r, Bound::Vpu), vector(r, Bound::Xlu)];
    let mut found: Vec<Finding> =
        found.into_iter().chain([vector(r, Bound::Eup), modelled(r)]).flatten().filter(|f| f.share >= WORTH).collect();
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found.truncate(MOST);
    if found.is_empty() {
        return vec![spread(r)];
    }
    found.into_iter().map(|f| f.text).collect()
}

fn launch(r: &Report) -> Option<Finding> {
    let cycles = r.stall_cycles.get(Stall::Launch);
    let share = ratio(cycles as f64, r.cycles as f64);
    let n = r.ops.len();
    let mean = seconds(ratio(r.time_s, n as f64));
    let operations = if n == 1 { "1 operation".to_owned() } else { format!("{n} operations") };
    let text = format!(
        "Launch overhead is {} of the time: {operations} of {mean} on average; fewer, larger fusions or more work per run \
         would help.",
        percent(share)
    );
    (cycles > 0).then_some(Finding { share, text })
}

fn hbm(r: &Report) -> Option<Finding> {
    let share = r.bound_fraction(Bound::Hbm);
    let worst = largest(r, |o| (o.bound == Bound::Hbm).then_some(o.cycles as f64))?;
    let group = || r.ops.iter().filter(|o| o.bound == Bound::Hbm);
    let bytes: f64 = group().map(|o| o.hbm_bytes_read as f64 + o.hbm_bytes_written as f64).sum();
    let flops: f64 = group().map(|o| o.flops as f64 + o.vector_flops as f64).sum();
    let peak = if group().any(|o| o.flops > 0) { worst.peak_flops_per_s } else { r.vpu_peak_flops_per_s };
    let text = format!(
        "HBM-bound for {} of the time at {} FLOP per byte (compute would take over at {}), most of it `{}`: fuse it with \
         its neighbours so that intermediates stay in VMEM, use narrower types, or reuse each byte more (larger batch).",
        percent(share),
        digits(ratio(flops, bytes)),
        digits(ratio(peak, r.hbm_bandwidth_peak_bytes_per_s)),
        name(worst)
    );
    Some(Finding { share, text })
}

fn mxu(r: &Report) -> Option<Finding> {
    let share = r.bound_fraction(Bound::Mxu);
    let worst = largest(r, |o| (o.bound == Bound::Mxu).then_some(o.cycles as f64))?;
    let padded = r.mxu_useful_fraction.is_some_and(|u| u < 0.9);
    let remedy = if padded {
        "first remove what is not useful work"
    } else {
        "only fewer FLOPs, or a type with a higher peak, make this part faster"
    };
    let text = format!(
        "MXU-bound for {} of the time ({} MFU overall), most of it `{}` in {}: {remedy}.",
        percent(share),
        percent(r.mfu),
        name(worst),
        worst.dtype
    );
    Some(Finding { share, text })
}

/// Multiply-adds that do nothing useful, as the share of the time the MXUs spend on them.
fn padding(r: &Report) -> Option<Finding> {
    let lost = 1.0 - r.mxu_useful_fraction?;
    let wasted = |o: &OpReport| {
        let useful = o.mxu_useful_fraction?;
        (useful < 0.95).then_some((1.0 - useful) * o.utilization.get(Unit::Mxu) * o.cycles as f64)
    };
    let worst = largest(r, wasted)?;
    let passes = if worst.dtype == "f32" { " or extra passes for f32 products" } else { "" };
    let text = format!(
        "{} of the work of the MXU is lost to padding{passes}, most of it in `{}` ({} useful): make the sizes it multiplies \
         multiples of the array's, or batch small ones together.",
        percent(lost),
        name(worst),
        percent(worst.mxu_useful_fraction.unwrap_or(0.0))
    );
    Some(Finding { share: lost * r.utilization.get(Unit::Mxu), text })
}

/// Time in latency-bound operations that start-up and formulas do not already explain.
fn latency(r: &Report) -> Option<Finding> {
    let mut cycles = 0.0;
    let mut reasons = super::PerStall::default();
    for o in r.ops.iter().filter(|o| o.bound == Bound::Latency) {
        let told = o.stall_cycles.get(Stall::Launch).saturating_add(o.modelled_cycles);
        cycles += o.cycles.saturating_sub(told) as f64;
        reasons.add(&o.stall_cycles);
    }
    reasons.0[Stall::Launch as usize] = 0;
    reasons.0[Stall::Modelled as usize] = 0;
    let share = ratio(cycles, r.cycles as f64);
    let worst = largest(r, |o| (o.bound == Bound::Latency).then_some(o.cycles as f64))?;
    let (why, remedy) = match reasons.top() {
        None => ("no unit is near its capacity and few cycles stall".to_owned(), "use more of each bundle's slots"),
        Some((stall, n)) => {
            let share = percent(ratio(n as f64, r.cycles as f64));
            let (wait, remedy) = match stall {
                Stall::Dma => ("waiting for DMAs", "larger blocks and deeper prefetch hide the wait"),
                Stall::Register => ("waiting for operands", "unroll, so that independent work fills the gaps"),
                Stall::Mxu => ("waiting for the MXU", "more rows per weight tile or several products at once hide it"),
                Stall::Xlu => ("waiting for the XLU", "fewer transposes and lane reductions, or several at once"),
                Stall::Eup => ("waiting for the EUP", "several transcendentals in flight hide it"),
                Stall::Branch => ("branch delays", "unroll the inner loop"),
                Stall::Launch | Stall::Modelled => ("start-up", "fewer, larger operations"),
            };
            (format!("{wait} takes {share}"), remedy)
        }
    };
    let text =
        format!("Latency-bound for {} of the time, most of it `{}`: {why}; {remedy}.", percent(share), name(worst));
    Some(Finding { share, text })
}

fn vector(r: &Report, bound: Bound) -> Option<Finding> {
    let share = r.bound_fraction(bound);
    let worst = largest(r, |o| (o.bound == bound).then_some(o.cycles as f64))?;
    let remedy = match bound {
        Bound::Xlu => "reduce along sublanes or outer dimensions instead of lanes, and avoid transposes",
        Bound::Eup => "fewer exponentials, logarithms and divisions per element help",
        _ => match busiest_slot(worst) {
            Unit::VLoad | Unit::VStore => {
                "its load and store slots are full: keep values in registers, fuse passes over VMEM"
            }
            _ => "fewer elementwise operations per element, or narrower types, help",
        },
    };
    let text =
        format!("{}-bound for {} of the time, most of it `{}`: {remedy}.", bound.name(), percent(share), name(worst));
    Some(Finding { share, text })
}

fn busiest_slot(o: &OpReport) -> Unit {
    let slots = [Unit::Vpu, Unit::VLoad, Unit::VStore];
    slots
        .into_iter()
        .reduce(|a, b| if o.utilization.get(b) > o.utilization.get(a) { b } else { a })
        .unwrap_or(Unit::Vpu)
}

fn modelled(r: &Report) -> Option<Finding> {
    if r.modelled_fraction < WORTH_MODELLED {
        return None;
    }
    let worst = largest(r, |o| (o.modelled_cycles > 0).then_some(o.modelled_cycles as f64))?;
    let text = format!(
        "{} of the time comes from formulas, most of it `{}`: take that part as an estimate.",
        percent(r.modelled_fraction),
        name(worst)
    );
    Some(Finding { share: r.modelled_fraction, text })
}

fn spread(r: &Report) -> String {
    match largest(r, |o| Some(o.cycles as f64)) {
        Some(o) => format!(
            "No single cause takes {} of the time; the longest operation is `{}` with {}.",
            percent(WORTH),
            name(o),
            percent(ratio(o.cycles as f64, r.cycles as f64))
        ),
        None => "Nothing ran.".to_owned(),
    }
}

/// An operation's name, short enough for a sentence.
fn name(o: &OpReport) -> String {
    super::clip(&o.name, 40)
}

/// The run of an operation with the largest value; the earliest of equals.
fn largest(r: &Report, value: impl Fn(&OpReport) -> Option<f64>) -> Option<&OpReport> {
    let valued = r.ops.iter().filter_map(|o| value(o).map(|v| (o, v)));
    valued.reduce(|a, b| if b.1 > a.1 { b } else { a }).map(|(o, _)| o)
}
