//! What is going on, on stderr, if someone is watching and it takes a moment.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use tpusim_sim::pod::Watch;

/// A line that says what is being done; gone when dropped.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Starts with `message`.
    pub fn new(message: &str) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress(None);
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            bar.set_style(style);
        }
        bar.set_message(message.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Progress(Some(bar))
    }

    /// A bar of `n` things that are done one after the other.
    pub fn bar(what: &str, n: u64) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress(None);
        }
        let bar = ProgressBar::new(n);
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {pos} of {len} {msg} {wide_bar} ({elapsed}, {eta} left)")
        {
            bar.set_style(style);
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        Progress(Some(bar))
    }

    /// One more is done.
    pub fn step(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }

    /// Goes on to `message`, of which `watch` says how much is done.
    pub fn next_watched(&self, message: &str, watch: &Watch) {
        let Some(bar) = &self.0 else { return };
        let watch = watch.clone();
        let share = move |_: &ProgressState, out: &mut dyn Write| {
            // A bar that cannot be written is not worth a word.
            let _ = write!(out, "{:.0} %", 100.0 * watch.share());
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {share} ({elapsed})") {
            bar.set_style(style.with_key("share", share));
        }
        bar.set_message(message.to_owned());
    }

    /// Goes on to `message`.
    pub fn next(&self, message: &str) {
        if let Some(bar) = &self.0 {
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.set_message(message.to_owned());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
