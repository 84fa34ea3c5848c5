//! Tests that failed beside others and passed alone: told, counted, and not forgiven twice. `docs/flakes.md` lists them until each is mended.

use crate::instance::repository;
use anyhow::{Context, Result};
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// How many tests of one run may pass at their second try. With more of them, the run says nothing.
pub const MOST: usize = 2;

/// A test that stands here so often fails at its first failure.
const KNOWN: usize = 2;

fn file() -> PathBuf {
    repository().join("docs/flakes.md")
}

/// The names of tests that are tried only once, because they stand in the list twice already.
pub struct Flakes(String);

impl Flakes {
    pub fn read() -> Result<Flakes> {
        Ok(Flakes(fs::read_to_string(file()).context("failed to read docs/flakes.md")?))
    }

    pub fn is_known(&self, test: &str) -> bool {
        let start = format!("| `{test}` |");
        self.0.lines().filter(|line| line.starts_with(&start)).count() >= KNOWN
    }
}

/// Adds a line to the list, to be committed with the next change.
pub fn append(test: &str, revision: &str, what: &str) -> Result<()> {
    let mut file = fs::OpenOptions::new().append(true).open(file()).context("failed to open docs/flakes.md")?;
    writeln!(file, "{}", line(test, revision, what)).context("failed to write docs/flakes.md")
}

fn line(test: &str, revision: &str, what: &str) -> String {
    format!("| `{test}` | {revision} | {} |", what.replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_stands_there_twice_is_known() {
        let once = line("plan/lib::a", "691c69f1", "no | room");
        assert_eq!(once, "| `plan/lib::a` | 691c69f1 | no \\| room |");
        let known = |text: String| Flakes(text).is_known("plan/lib::a");
        assert!(!known(once.clone()));
        assert!(!known(format!("{once}\n{}", line("plan/lib::a_b", "691c69f1", "late"))));
        assert!(known(format!("{once}\nbetween\n{once}\n")));
    }

    #[test]
    fn the_list_is_there_to_be_added_to() {
        let text = fs::read_to_string(file()).unwrap();
        assert!(text.ends_with("|\n"), "its table is the end of docs/flakes.md");
    }
}
