//! What is told about files that are not as they should be.

use std::fmt::{self, Display};

use serde::Serialize;

/// How many diagnostics of one file are kept, and as many errors.
const MAX_OF_FILE: usize = 20;
/// How many are kept of all files, and as many errors.
const MAX_OF_ALL: usize = 2_000;
/// The longest message, in characters.
const MAX_MESSAGE: usize = 600;
/// The longest text of a file that a message repeats, in characters.
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
#[error("failed to load the assets: {}", sentence(.diagnostics))]
pub struct StrictError {
    /// The errors, at least one.
    pub diagnostics: Vec<Diagnostic>,
}

fn sentence(diagnostics: &[Diagnostic]) -> String {
    let first = diagnostics.first().map(ToString::to_string).unwrap_or_default();
    match diagnostics.len() {
        0 | 1 => first,
        all => format!("{first}, and {} more", all - 1),
    }
}

/// Gathers the diagnostics of all files, within bounds. Errors have bounds of their own, so that what is only told never hides one.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    kept: Vec<Diagnostic>,
    errors: Count,
    others: Count,
    left_out: usize,
}

#[derive(Debug, Default)]
struct Count {
    of_file: usize,
    of_all: usize,
}

impl Diagnostics {
    /// From here on diagnostics are of another file.
    pub(crate) fn begin_file(&mut self) {
        (self.errors.of_file, self.others.of_file) = (0, 0);
    }

    pub(crate) fn push(&mut self, path: &str, line: Option<u32>, level: Level, message: impl Into<String>) {
        let count = if level == Level::Error { &mut self.errors } else { &mut self.others };
        if count.of_file >= MAX_OF_FILE || count.of_all >= MAX_OF_ALL {
            self.left_out += 1;
            return;
        }
        count.of_file += 1;
        count.of_all += 1;
        self.kept.push(Diagnostic { path: path.to_owned(), line, level, message: cut(message.into()) });
    }

    /// Adds what was told about one file, which begins here.
    pub(crate) fn extend(&mut self, of_file: &Self) {
        self.begin_file();
        for Diagnostic { path, line, level, message } in &of_file.kept {
            self.push(path, *line, *level, message.as_str());
        }
        self.left_out += of_file.left_out;
    }

    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        if self.left_out > 0 {
            let message = format!("{} more diagnostics are left out", self.left_out);
            self.kept.push(Diagnostic { path: String::new(), line: None, level: Level::Note, message });
        }
        self.kept
    }
}

/// A message of a parser may repeat what it was given.
pub(crate) fn cut(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    message
}

/// Text of a file for a message: quoted, on one line, and cut.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTE) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}
