//! Reports, traces, figures and tables of one made-up run.

mod report;
mod sample;
