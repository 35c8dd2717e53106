//! `tpusim scale`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, LineStyle, Table};
use serde::Serialize;
use tpusim_driver::Mode;
use tpusim_isa::chip::ChipSpec;
use tpusim_isa::topology::Topology;
use tpusim_sim::RunOptions;
use tpusim_sim::network::Cluster;
use tpusim_sim::pod::PodOptions;
use tpusim_traces::figure::{self, ScalePoint};
use tpusim_traces::pod::PodReport;
use tpusim_traces::units::{memory, percent, seconds};

use crate::chip::ChipArgs;
use crate::failure::Failure;
use crate::files::Targets;
use crate::model::{self, ModelArgs, Step};
use crate::out;
use crate::parallel;
use crate::program::ProgramArgs;

/// Numbers of chips: `256..8192` in powers of two, or a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counts(Vec<u32>);

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const MOST: u32 = 1 << 20;
        let number = |t: &str| t.trim().parse().ok().filter(|n| (1..=MOST).contains(n));
        let expected = || "expected N..M, in powers of two, or a list N,N,...".to_owned();
        let all: Option<Vec<u32>> = match text.split_once("..") {
            Some((from, to)) => {
                let (from, to): (u32, u32) = number(from).zip(number(to)).ok_or_else(expected)?;
                Some(std::iter::successors(Some(from), |n| n.checked_mul(2)).take_while(|n| *n <= to).collect())
            }
            None => text.split(',').map(number).collect(),
        };
        let mut all = all.filter(|a| !a.is_empty()).ok_or_else(expected)?;
        all.sort_unstable();
        all.dedup();
        Ok(Counts(all))
    }
}

/// Time a model's step on more and more chips
///
/// The batch grows with the chips (weak scaling) unless --strong is given. More chips than a slice has are several slices, each with a
/// copy of the model. Axes of the mesh that are not named are as for `tpusim run`; if fsdp is named, copies take what is left.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tpusim scale qwen3-8b --chip v7x --chips 256..8192 --plot scaling.svg
  tpusim scale llama3.1-70b --chip v5p --chips 128,256,512 --mesh tensor=4 --seq 8192 remat=dots
  tpusim scale qwen3-8b --chip v5p --chips 64..1024 --batch 1024 --strong --json
  tpusim scale llama3.1-70b --chip v6e --chips 8..64 --step decode --context 8192")]
pub struct Scale {
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    chip: ChipArgs,
    #[command(flatten)]
    model: ModelArgs,
    /// Chips: N..M in powers of two, or a list
    #[arg(long, value_name = "N..M|N,N,...")]
    chips: Counts,
    /// The same batch on all numbers of chips
    #[arg(long)]
    strong: bool,
    /// Draw throughput and MFU over chips (.svg or .png, with a .csv beside it)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Host threads; results do not depend on it [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

/// One number of chips.
#[derive(Serialize)]
struct Point {
    chips: u32,
    slices: u32,
    topology: String,
    mesh: String,
    batch: i64,
    step_time_s: f64,
    tokens_per_s_chip: f64,
    tflops_per_s_chip: f64,
    mfu: f64,
    mfu_full: f64,
    exposed_share: f64,
    /// Throughput of a chip over that of the first row.
    efficiency: f64,
    hbm_peak_bytes: u64,
    fits_hbm: bool,
    bound: String,
}

impl Scale {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        if let Some(path) = &self.plot {
            Targets::default().figure("--plot", path)?;
        }
        let Some((name, given)) = self.program.model(true)? else {
            return Err(Failure::usage(format!("scale takes the name of a model: {}", model::names())));
        };
        let chip = self.chip.load_or(None, model::DEFAULT_CHIP)?;
        let steps = self.steps(name, &given, &chip)?;
        let made = parallel::map(&steps, parallel::threads(self.threads), "sizes", |(step, cluster)| {
            run(step, cluster, &chip)
        });
        let mut points = Vec::new();
        for ((step, cluster), made) in steps.iter().zip(made) {
            let report = made.unwrap_or_else(|| Err(Failure::program("a thread ended early")))?;
            points.extend(point(step, cluster, &report));
        }
        let first = points.first().map_or(1.0, |p| p.tokens_per_s_chip);
        points.iter_mut().for_each(|p| p.efficiency = p.tokens_per_s_chip / first);
        if let Some(path) = &self.plot {
            let marks: Vec<ScalePoint> = points
                .iter()
                .map(|p| ScalePoint { chips: p.chips, tokens_per_s_chip: p.tokens_per_s_chip, mfu: p.mfu })
                .collect();
            let kind = if self.strong { "same batch" } else { "batch grows with chips" };
            let title = format!("{name} on {}, {kind}", chip.name);
            crate::run::drawn("--plot", figure::scaling(path, &title, &marks))?;
        }
        if self.json { out::print_json(&points) } else { out::print(&text(name, &chip, &points)) }
    }

    /// The steps with their slices.
    fn steps(&self, name: &str, given: &[(String, String)], chip: &ChipSpec) -> Result<Vec<(Step, Cluster)>, Failure> {
        let clusters = self.chips.0.iter().map(|n| cluster(chip, *n)).collect::<Result<Vec<_>, _>>()?;
        // The batch of the first is that of all, or one that grows with the chips.
        let at = if self.strong && self.model.batch().is_none() { clusters.last() } else { clusters.first() };
        let Some(at) = at else { return Ok(Vec::new()) };
        let base = Step::scaled(name, given, &self.model, at)?;
        let one = |c: Cluster| {
            let grown = i128::from(base.options.batch) * i128::from(c.chips()) / i128::from(at.chips());
            let batch = if self.strong { base.options.batch } else { i64::try_from(grown).unwrap_or(i64::MAX) };
            base.on(&c, Some(batch.max(1))).map(|s| (s, c)).map_err(Failure::usage)
        };
        clusters.clone().into_iter().map(one).collect()
    }
}

/// `chips` chips: a slice, or the largest ones there are, as many as it takes.
fn cluster(chip: &ChipSpec, chips: u32) -> Result<Cluster, Failure> {
    let whole = Topology::of_size(chip, chips);
    let slice = match whole {
        Ok(slice) => return Ok(Cluster { slice, slices: 1 }),
        Err(e) => (1..=chips / 2)
            .rev()
            .filter(|n| chips.is_multiple_of(*n))
            .find_map(|n| Topology::of_size(chip, n).ok())
            .filter(|s| s.chips() > 1)
            .ok_or(e),
    };
    let slice = slice.map_err(Failure::usage)?;
    let slices = chips / slice.chips();
    Ok(Cluster { slice, slices })
}

fn run(step: &Step, cluster: &Cluster, chip: &ChipSpec) -> Result<PodReport, Failure> {
    let loaded = step.load()?;
    let pod = step.compile(&loaded, chip, cluster)?;
    let options = PodOptions { run: RunOptions { threads: 1, ..RunOptions::default() }, ..PodOptions::default() };
    let run = pod.run(Mode::Time, &[], &options)?;
    Ok(step.reported(PodReport::new(&pod.program, chip, cluster, &run.profile, "time"), chip))
}

fn point(step: &Step, cluster: &Cluster, r: &PodReport) -> Option<Point> {
    // Tokens and FLOPs a second and chip, MFU, and MFU with all pairs of positions.
    let (tokens_per_s_chip, flops_chip, mfu, mfu_full) = match (&r.training, &r.serving) {
        (Some(t), _) => (t.tokens_per_s_chip, t.flops_chip, t.mfu, t.mfu_full),
        (_, Some(s)) => (s.tokens_per_s_chip, s.flops_chip, s.mfu, s.mfu),
        _ => return None,
    };
    Some(Point {
        chips: cluster.chips(),
        slices: cluster.slices,
        topology: cluster.slice.to_string(),
        mesh: step.options.mesh.to_string(),
        batch: step.options.batch,
        step_time_s: r.time_s,
        tokens_per_s_chip,
        tflops_per_s_chip: flops_chip / 1e12,
        mfu,
        mfu_full,
        exposed_share: r.exposed_s / r.time_s.max(f64::MIN_POSITIVE),
        efficiency: 1.0,
        hbm_peak_bytes: r.hbm_peak_bytes,
        fits_hbm: r.hbm_peak_bytes <= r.hbm_capacity_bytes,
        bound: r.bound().0.to_owned(),
    })
}

fn text(name: &str, chip: &ChipSpec, points: &[Point]) -> String {
    let mut t = Table::new();
    t.load_style(NOTHING.header_separator(LineStyle::none().fill('-')));
    let head = [
        "chips",
        "slices",
        "mesh",
        "batch",
        "step",
        "tokens/s/chip",
        "TFLOP/s/chip",
        "MFU",
        "network",
        "scaling",
        "HBM",
    ];
    t.set_header(head);
    for p in points {
        let over = if p.fits_hbm { "" } else { " too much" };
        let slices = if p.slices == 1 { p.topology.clone() } else { format!("{} of {}", p.slices, p.topology) };
        let cells = [
            p.chips.to_string(),
            slices,
            p.mesh.clone(),
            p.batch.to_string(),
            seconds(p.step_time_s),
            format!("{:.0}", p.tokens_per_s_chip),
            format!("{:.0}", p.tflops_per_s_chip),
            percent(p.mfu),
            percent(p.exposed_share),
            percent(p.efficiency),
            format!("{}{over}", memory(p.hbm_peak_bytes)),
        ];
        t.add_row(cells.into_iter().enumerate().map(|(i, text)| {
            let align = if i == 2 { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(align)
        }));
    }
    let mut out = format!("{name} on {}: MFU counts half of attention; network is waiting for it\n", chip.name);
    t.lines().for_each(|l| {
        out.push_str(l.trim_end());
        out.push('\n');
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    // Oracle: by hand.
    #[test]
    fn counts_are_powers_or_lists() {
        assert_eq!("256..2000".parse(), Ok(Counts(vec![256, 512, 1024])));
        assert_eq!("3,1,3".parse(), Ok(Counts(vec![1, 3])));
        for wrong in ["", "4..2", "a..4", "1,,2", "0"] {
            assert!(Counts::from_str(wrong).is_err(), "{wrong}");
        }
    }

    // Oracle: the largest slices of the chips.
    #[test]
    fn many_chips_are_many_slices() {
        let chips = |name: &str, n| cluster(&ChipSpec::load(name).unwrap(), n).map(|c| (c.slices, c.slice.chips()));
        assert_eq!(chips("v5e", 1024).unwrap(), (4, 256));
        assert_eq!(chips("v7x", 8192).unwrap(), (1, 8192));
    }
}
