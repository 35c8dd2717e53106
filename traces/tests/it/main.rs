//! Reports, traces, figures and tables of one made-up run.

mod figures;
mod perfetto;
mod pods;
mod report;
mod sample;
mod tables;
