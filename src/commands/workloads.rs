//! `tpusim workloads`.

use clap::Args;
use serde::Serialize;
use tpusim_workloads::{ALL, Workload, find};

use crate::failure::Failure;
use crate::out;

/// List the built-in programs and their parameters
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tpusim workloads
  tpusim workloads attention")]
pub struct Workloads {
    /// Workload to show in full
    name: Option<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    about: &'static str,
    parameters: Vec<Parameter>,
}

#[derive(Serialize)]
struct Parameter {
    name: &'static str,
    default: String,
    about: &'static str,
    takes: String,
}

impl Workloads {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        let shown: Vec<Entry> = match &self.name {
            Some(name) => vec![entry(find(name).map_err(Failure::usage)?)],
            None => ALL.iter().map(entry).collect(),
        };
        if self.json {
            return out::print_json(&shown);
        }
        let mut text = String::new();
        for e in &shown {
            text.push_str(&format!("{:<14}{}\n", e.name, e.about));
            if self.name.is_none() {
                let list: Vec<String> = e.parameters.iter().map(|p| format!("{}={}", p.name, p.default)).collect();
                text.push_str(&format!("{:<14}{}\n", "", list.join(" ")));
                continue;
            }
            for p in &e.parameters {
                let setting = format!("{}={}", p.name, p.default);
                text.push_str(&format!("  {setting:<18}{} ({})\n", p.about, p.takes));
            }
        }
        out::print(&text)
    }
}

fn entry(w: &Workload) -> Entry {
    let parameter = |p: &tpusim_workloads::ParamSpec| Parameter {
        name: p.name,
        default: p.default.to_string(),
        about: p.about,
        takes: p.default.expected(),
    };
    Entry { name: w.name, about: w.about, parameters: w.params.iter().map(parameter).collect() }
}
