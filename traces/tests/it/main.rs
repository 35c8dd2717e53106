//! Reports, traces, figures and tables of one made-up run.

mod perfetto;
mod report;
mod sample;
