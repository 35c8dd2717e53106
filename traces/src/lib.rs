//! What a run looked like: for people, for scripts, for trace viewers and for papers. Also the `.npy` files that runs read and write.
//!
//! A run leaves a [`Profile`](tpusim_sim::profile::Profile): for each operation its cycles, the busy cycles of the units, the stalls
//! and the bytes, and utilization over time. Everything here is made from it, the program and the chip, and from nothing else:
//!
//! - [`report`]: totals, what bounds each operation, and what to do about it, as JSON and as text;
//! - [`pod`]: the report of a run on a pod;
//! - [`held`]: what fills HBM;
//! - [`training`]: what a training step reaches, in the words of those who train models;
//! - [`serving`]: the same of a step of serving;
//! - [`routing`]: what experts get of the tokens;
//! - [`tables`]: the operations and the utilization over time as CSV;
//! - [`perfetto`]: a trace for `ui.perfetto.dev`;
//! - [`figure`]: utilization over time and the roofline, as SVG or PNG;
//! - [`npy`]: arrays as numpy stores them;
//! - [`atomic`]: how all files are written: whole or not at all.
//!
//! ```
//! use tpusim_isa::{chip::ChipSpec, program::Program};
//! use tpusim_sim::profile::Profile;
//! use tpusim_traces::report::{Report, TextOptions};
//!
//! let chip = ChipSpec::load("v5e")?;
//! let report = Report::new(&Program::default(), &chip, &Profile::default(), "timing");
//! assert!(report.text(TextOptions::default()).contains("Nothing ran."));
//! # Ok::<(), tpusim_isa::chip::ChipError>(())
//! ```
//!
//! Nothing is printed, nothing depends on the order of a hash or on the number of threads: the same profile gives the same bytes.
#![deny(missing_docs)]

pub mod atomic;
pub mod figure;
pub mod held;
pub mod npy;
pub mod perfetto;
pub mod pod;
pub mod report;
pub mod routing;
pub mod serving;
pub mod tables;
pub mod training;
pub mod units;
