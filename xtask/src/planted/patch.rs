//! The file of a planted fault: a description, then the test that finds it, then the patch.

use super::{fault_name, folder};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

#[derive(Debug)]
pub struct Fault {
    pub name: String,
    pub file: PathBuf,
    /// The package whose tests find it without a cluster; absent for one that is rolled out and found by end-to-end tests.
    pub package: Option<String>,
    /// Test target, `lib` for a package's unit tests, and which of its tests: `kills nothing_is_lost` where the head names none.
    pub harness: (String, String),
    /// What that harness reads from its environment: the kinds of rounds that can show it, and how many at most.
    pub settings: Vec<(&'static str, String)>,
    /// A part of the line that the failing test must print.
    pub expected_output: String,
}

pub fn all() -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for entry in fs::read_dir(folder()).with_context(|| format!("failed to read {}", folder().display()))? {
        let file = entry?.path();
        if let Some(name) = fault_name(&file) {
            let text = fs::read_to_string(&file)?;
            faults.push(read(name, file, &text)?);
        }
    }
    faults.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(faults)
}

fn read(name: String, file: PathBuf, text: &str) -> Result<Fault> {
    let head = |field: &str| {
        let mut lines = text.lines().take_while(|line| !line.starts_with("diff "));
        lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(": ")).map(str::to_owned)
    };
    let missing = |field: &str| format!("{} has no line {field:?}", file.display());
    let expected_output = head("Says").with_context(|| missing("Says"))?;
    let package = head("Package");
    if let Some(test) = head("Test") {
        let (target, filter) = test.split_once(' ').with_context(|| format!("{}: Test is no target and filter", file.display()))?;
        return Ok(Fault { package, harness: (target.to_owned(), filter.to_owned()), settings: vec![], expected_output, name, file });
    }
    if package.is_some() {
        bail!("{}", missing("Test"));
    }
    let kinds = head("Kinds").with_context(|| missing("Kinds"))?;
    let rounds = head("Rounds").with_context(|| missing("Rounds"))?;
    rounds.parse::<u32>().with_context(|| format!("{}: Rounds is no number", file.display()))?;
    let harness = ("kills".to_owned(), "nothing_is_lost".to_owned());
    Ok(Fault { package, harness, settings: vec![("YOI_KILL_KINDS", kinds), ("YOI_KILL_ROUNDS", rounds)], expected_output, name, file })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_patch_is_read_and_nothing_below_it() {
        let text = "A fault.\n\nKinds: power\nRounds: 6\nSays: is gone\n\ndiff --git a/x b/x\nRounds: 9\n";
        let fault = read("x".into(), "x.patch".into(), text).unwrap();
        assert_eq!(fault.settings, [("YOI_KILL_KINDS", "power".to_owned()), ("YOI_KILL_ROUNDS", "6".to_owned())]);
        assert_eq!((&*fault.harness.0, &*fault.expected_output), ("kills", "is gone"));
        let fault = read("x".into(), "x.patch".into(), "Test: teardown charts::agents\nSays: is gone\ndiff --git\n").unwrap();
        assert_eq!((&*fault.harness.0, &*fault.harness.1, fault.settings.len()), ("teardown", "charts::agents", 0));
        let fault = read("x".into(), "x.patch".into(), "Package: yoi-engine\nTest: lib reasoning\nSays: is gone\ndiff --git\n").unwrap();
        assert_eq!((fault.package.as_deref(), &*fault.harness.0), (Some("yoi-engine"), "lib"));
        assert!(read("x".into(), "x.patch".into(), "Package: p\nKinds: a\nRounds: 1\nSays: b\n").is_err());
        assert!(read("x".into(), "x.patch".into(), "Kinds: a\nRounds: one\nSays: b\n").is_err());
        assert!(read("x".into(), "x.patch".into(), "diff --git\nKinds: a\nRounds: 1\nSays: b\n").is_err());
    }
}
