//! Which tests a program has, asked of the program itself.

use super::compile::TestProgram;
use crate::command::{capture, command};
use anyhow::Result;
use std::collections::BTreeSet;

/// The suite that tries each provider on each file system. It has a harness of its own, and runs many cases in one process.
pub const CONFORMANCE: &str = "workspace/conformance";

/// One test.
#[derive(Debug, Clone)]
pub struct Test {
    /// The name of its program and its own, such as `plan/stable::worlds::every_world_rests`.
    pub name: String,
    pub program: TestProgram,
    /// Run only with `--ignored`.
    pub ignored: bool,
    /// The suite of providers leaves it out of its short run.
    pub long: bool,
}

impl Test {
    /// The name by which its program knows it.
    pub fn own_name(&self) -> &str {
        self.name.strip_prefix(&self.program.name).and_then(|rest| rest.strip_prefix("::")).unwrap_or(&self.name)
    }
}

/// Asks each program for its tests.
pub fn tests(programs: &[TestProgram]) -> Result<Vec<Test>> {
    let mut found = vec![];
    for program in programs {
        let list = |words: &[&str]| -> Result<BTreeSet<String>> {
            let listed = capture(command(&program.file, words).current_dir(&program.folder))?;
            Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
        };
        let all = list(&["--list", "--format=terse"])?;
        let (ignored, short) = match program.name.as_str() {
            CONFORMANCE => (BTreeSet::new(), list(&["--list", "--short"])?),
            _ => (list(&["--list", "--format=terse", "--ignored"])?, all.clone()),
        };
        found.extend(all.into_iter().map(|test| Test {
            name: format!("{}::{test}", program.name),
            program: program.clone(),
            ignored: ignored.contains(&test),
            long: !short.contains(&test),
        }));
    }
    Ok(found)
}
