//! Errors of the front ends: every diagnostic with its place, drawn the way compilers draw them.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// One thing wrong with a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diag {
    /// Bytes of the file it is about.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What would be right, if that is known.
    pub help: Option<String>,
}

/// A program that could not be read. [`fmt::Display`] draws each diagnostic with its source line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render())]
pub struct ParseError {
    /// Name of the file, for messages.
    pub file: String,
    /// What is wrong with it; at least one.
    pub diags: Vec<Diag>,
    /// The text, if the file was text.
    pub source_text: Option<String>,
}

/// A source line longer than this is shown in part.
const LINE_BYTES: usize = 240;

impl ParseError {
    /// An error about bytes `span` of a file that is not text.
    pub fn binary(file: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let diag = Diag { span, message: message.into(), help: None };
        ParseError { file: file.to_owned(), diags: vec![diag], source_text: None }
    }

    /// Line, from 1, that a diagnostic starts on; `None` if the file was not text.
    pub fn line(&self, diag: &Diag) -> Option<usize> {
        let text = self.source_text.as_deref()?;
        let at = floor_char(text, diag.span.start);
        Some(text[..at].bytes().filter(|&b| b == b'\n').count() + 1)
    }

    fn render(&self) -> String {
        let drawn: Vec<String> = self.diags.iter().map(|d| self.render_one(d)).collect();
        drawn.join("\n\n")
    }

    fn render_one(&self, d: &Diag) -> String {
        let Some(text) = self.source_text.as_deref() else {
            let help = d.help.as_ref().map(|h| format!("\n  = help: {h}")).unwrap_or_default();
            return format!("error: {}\n --> {}: bytes {}..{}{help}", d.message, self.file, d.span.start, d.span.end);
        };
        // Only the part of the line around the place is handed over: files hold lines of megabytes.
        let start = floor_char(text, d.span.start);
        let end = floor_char(text, d.span.end.max(start));
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let from = if start - line_start > LINE_BYTES { floor_char(text, start - LINE_BYTES / 2) } else { line_start };
        let to = if line_end - from > LINE_BYTES { floor_char(text, from + LINE_BYTES) } else { line_end };
        let (s, e) = (start.clamp(from, to) - from, end.clamp(from, to) - from);
        let snippet = Snippet::source(&text[from..to])
            .line_start(self.line(d).unwrap_or(1))
            .path(self.file.as_str())
            .annotation(AnnotationKind::Primary.span(s..e.max(s)));
        let mut group: Group<'_> = Level::ERROR.primary_title(d.message.as_str()).element(snippet);
        if let Some(help) = &d.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        Renderer::plain().render(&[group])
    }
}

/// The last char boundary at or before `at`.
fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for Diag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
