//! What is told about files that are not as they should be.

use std::fmt::{self, Display};

use serde::Serialize;

/// How many diagnostics of one file are kept.
const MAX_OF_FILE: usize = 20;
/// How many are kept of all files.
const MAX_OF_ALL: usize = 2_000;
/// The longest text of a file that a message repeats.
const MAX_QUOTE: usize = 80;

/// Something about a file that a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// Of the file.
    pub path: String,
    /// The line, from 1, where there is one to name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// How grave it is.
    pub level: Level,
    /// A sentence without its path and line.
    pub message: String,
}

impl Display for Diagnostic {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(to, "{}:{line}: {}", self.path, self.message),
            None => write!(to, "{}: {}", self.path, self.message),
        }
    }
}

/// How grave a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    /// Something was not taken that its author may miss.
    Note,
    /// It was read although it is not as its format has it.
    Warning,
    /// It is not in effect.
    Error,
}

/// What is done about files that are not as they should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Strictness {
    /// What can be understood is taken, and each leniency told. The rest is listed as invalid.
    #[default]
    Lenient,
    /// One error refuses the whole, and what would be a leniency is an error.
    Strict,
}

/// Assets are refused as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to load the assets: {} not as {}: {}", count(.diagnostics), if .diagnostics.len() == 1 { "it should be" } else { "they should be" }, first(.diagnostics))]
pub struct StrictError {
    /// The errors, at least one.
    pub diagnostics: Vec<Diagnostic>,
}

fn count(diagnostics: &[Diagnostic]) -> String {
    if diagnostics.len() == 1 { "1 thing is".to_owned() } else { format!("{} things are", diagnostics.len()) }
}

fn first(diagnostics: &[Diagnostic]) -> String {
    diagnostics.first().map(ToString::to_string).unwrap_or_default()
}

/// Gathers the diagnostics of all files, within bounds.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    kept: Vec<Diagnostic>,
    of_file: usize,
    left_out: usize,
}

impl Diagnostics {
    /// From here on diagnostics are of another file.
    pub(crate) fn begin_file(&mut self) {
        self.of_file = 0;
    }

    pub(crate) fn push(&mut self, path: &str, line: Option<u32>, level: Level, message: impl Into<String>) {
        self.of_file += 1;
        // An error is why an asset is not in effect, so it is kept over the bound of its file.
        if self.kept.len() >= MAX_OF_ALL || (self.of_file > MAX_OF_FILE && level != Level::Error) {
            self.left_out += 1;
            return;
        }
        self.kept.push(Diagnostic { path: path.to_owned(), line, level, message: message.into() });
    }

    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        if self.left_out > 0 {
            let message = format!("{} more diagnostics are left out", self.left_out);
            self.kept.push(Diagnostic { path: String::new(), line: None, level: Level::Note, message });
        }
        self.kept
    }
}

/// Text of a file for a message: quoted, on one line, and cut.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
