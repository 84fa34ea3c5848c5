//! `cargo xtask planted`: faults put into the product on purpose, each of which a test has to find.
//!
//! A fault is a patch in `e2e/planted`; its head names the rounds or the test to run, and a part of the sentence with which the test must fail. It is applied to a
//! copy of HEAD below `target` and built there. If the head names a package, that package's test runs; else the build is rolled out on a cluster of its own.

mod patch;

use crate::cargo;
use crate::cluster;
use crate::command::{self, capture, command};
use crate::images;
use crate::install;
use crate::instance::{Instance, repository};
use crate::{progress, test_environment};
use anyhow::{Context, Result, bail};
use patch::Fault;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const INSTANCE: Instance = Instance::YoiFaults;

/// Looks for the faults of these names, or for every one. Succeeds if each was found by its sentence.
pub fn run(names: &[String]) -> Result<()> {
    let all = patch::all()?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|fault| fault.name != **name)) {
        bail!("no planted fault is called {unknown}");
    }
    let faults: Vec<Fault> = all.into_iter().filter(|fault| names.is_empty() || names.contains(&fault.name)).collect();
    let source = Source::of_head()?;
    let mut missed = Vec::new();
    for fault in &faults {
        let begun = Instant::now();
        let found = source.apply_patch(fault).and_then(|()| find_fault(&source, fault));
        source.clean()?;
        match found {
            Ok(sentence) => progress::note(&format!("{} was found in {} s: {sentence}", fault.name, begun.elapsed().as_secs())),
            Err(error) => {
                progress::failure(&format!("{}: {error:#}", fault.name));
                missed.push(fault.name.as_str());
            }
        }
    }
    if !missed.is_empty() {
        bail!("not found: {}", missed.join(", "));
    }
    Ok(())
}

/// Fails if a patch does not apply to the code any more.
pub fn check() -> Result<()> {
    for fault in patch::all()? {
        let mut git = command("git", ["apply", "--check"]);
        command::run(git.arg(&fault.file).current_dir(repository()))
            .with_context(|| format!("the planted fault {} does not fit the code any more", fault.name))?;
    }
    Ok(())
}

/// A copy of HEAD with build output of its own.
struct Source {
    folder: PathBuf,
    target: PathBuf,
}

impl Source {
    fn of_head() -> Result<Source> {
        let below = repository().join("target/planted");
        let source = Source { folder: below.join("source"), target: below.join("target") };
        let head = capture(command("git", ["rev-parse", "HEAD"]).current_dir(repository()))?;
        if !source.folder.join(".git").exists() {
            command::run(command("git", ["worktree", "prune"]).current_dir(repository()))?;
            command::run(
                command("git", ["worktree", "add", "--force", "--detach"]).arg(&source.folder).arg(head.trim()).current_dir(repository()),
            )?;
        }
        source.clean()?;
        source.git(&["checkout", "--quiet", "--force", "--detach", head.trim()])?;
        Ok(source)
    }

    fn git(&self, words: &[&str]) -> Result<()> {
        command::run(command("git", words).current_dir(&self.folder))
    }

    fn clean(&self) -> Result<()> {
        self.git(&["checkout", "--quiet", "--force", "--", "."])
    }

    fn apply_patch(&self, fault: &Fault) -> Result<()> {
        command::run(command("git", ["apply"]).arg(&fault.file).current_dir(&self.folder)).context("the patch does not fit HEAD")
    }
}

/// Builds the faulty version and runs the test that must find it.
fn find_fault(source: &Source, fault: &Fault) -> Result<String> {
    match &fault.package {
        Some(package) => {
            let mut harness = cargo_test(source, package, fault);
            look_for(fault, &mut harness)
        }
        None => find_on_cluster(source, fault),
    }
}

fn cargo_test(source: &Source, package: &str, fault: &Fault) -> Command {
    let (target, test) = &fault.harness;
    let mut harness = cargo::cargo();
    harness.args(["test", "-p", package]).current_dir(&source.folder);
    match target.as_str() {
        "lib" => harness.arg("--lib"),
        target => harness.args(["--test", target]),
    };
    harness.arg("--target-dir").arg(&source.target).args(["--", "--test-threads=1", "--nocapture", test]);
    harness
}

fn look_for(fault: &Fault, harness: &mut Command) -> Result<String> {
    let step = progress::start(format!("Look for {}", fault.name));
    let output = harness.output().context("failed to start cargo")?;
    let output_text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    step.done(output.status.to_string());
    check_output(output.status.success(), &output_text, fault)
}

/// Rolls the faulty version out, runs the test, and removes the cluster, which is of no use after a fault.
fn find_on_cluster(source: &Source, fault: &Fault) -> Result<String> {
    cluster::down(INSTANCE)?;
    cluster::up(INSTANCE, cluster::Shape::default())?;
    let built = images::build_all_of(&source.folder, Some(&source.target), images::Profile::Dev)?;
    images::import_all(INSTANCE, &built)?;
    install::charts_of(&source.folder, &install::target(INSTANCE)?, &built.references())?;
    let mut harness = cargo_test(source, "yoi-e2e", fault);
    harness.envs(test_environment::variables(INSTANCE, &built)?);
    harness.envs(fault.settings.iter().map(|(name, value)| (*name, value)));
    let found = look_for(fault, &mut harness);
    if found.is_ok() {
        cluster::down(INSTANCE)?;
    }
    found
}

/// Characters that are shown of the line that names a fault. Some such lines hold the whole output of a command.
const MAX_FOUND: usize = 300;

/// Returns the line of output that names the fault.
fn check_output(passed: bool, output: &str, fault: &Fault) -> Result<String> {
    if passed {
        bail!("{} let it pass", fault.harness.1);
    }
    let found = output.lines().find(|line| line.contains(&fault.expected_output));
    found
        .map(|line| line.trim().chars().take(MAX_FOUND).collect())
        .with_context(|| format!("the harness failed, and not with {:?}:\n{}", fault.expected_output, crate::command::tail(output, 20)))
}

fn folder() -> PathBuf {
    repository().join("e2e/planted")
}

fn fault_name(file: &Path) -> Option<String> {
    Some(file.file_name()?.to_str()?.strip_suffix(".patch")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Fault {
        Fault {
            name: "f".into(),
            file: PathBuf::new(),
            package: None,
            harness: ("kills".into(), "power".into()),
            settings: vec![],
            expected_output: "is gone".into(),
        }
    }

    #[test]
    fn a_fault_is_found_only_by_the_expected_output() {
        assert_eq!(check_output(false, "round 1\n  an entry is gone from a\n", &fault()).unwrap(), "an entry is gone from a");
        assert!(check_output(false, "not converged", &fault()).is_err());
        assert!(check_output(true, "an entry is gone", &fault()).is_err());
    }

    #[test]
    fn every_planted_fault_names_its_test_and_expected_output() {
        let faults = patch::all().unwrap();
        assert!(faults.len() >= 4, "{}", faults.len());
    }
}
