//! Standard output.

use std::io::{self, BufWriter, IsTerminal, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Writes `text` to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes `bytes` to standard output.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        io::ErrorKind::BrokenPipe => Failure::Closed,
        _ => Failure::usage(format!("cannot write to standard output: {e}")),
    })
}

/// Prints `value` as JSON, ending in a newline.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::usage)?;
    text.push('\n');
    print(&text)
}

/// Says something on standard error that is worth knowing but no failure.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "note: {text}");
}

/// Whether standard output is a terminal.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether text on standard output may be coloured.
pub fn color() -> bool {
    is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}
