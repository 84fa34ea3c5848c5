//! The harness of kills: on the cluster of the other tests, and for a long run on a second one beside it, because rounds mostly wait.

use super::{INSTANCE, Outcome, program, verdict};
use crate::images::{self, Built};
use crate::install::{self, Target};
use crate::instance::{Instance, repository};
use crate::{cluster, command, witness};
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const BESIDE: Instance = Instance::YoiFaults;
const ROUNDS: u32 = 12;
/// Half of them on each cluster.
const MANY_ROUNDS: u32 = 300;
/// The test that plays rounds; the others of its target are for one cluster.
const PLAYS: &str = "nothing_is_lost";

/// One test after the other on a cluster, and nothing beside them there: they kill what any other test needs.
pub fn run(built: &Built, all: bool) -> Result<Outcome> {
    // The tests before it end with the charts taken away.
    install::charts(&Target::local(INSTANCE)?, &built.references())?;
    if !all {
        let mut harness = harness(INSTANCE, built, ROUNDS, None)?;
        return verdict(command::loud(&mut harness)?, "cargo test -p yoi-e2e --test kills");
    }
    cluster::down(BESIDE)?;
    cluster::up(BESIDE)?;
    images::import_all(BESIDE, built)?;
    install::charts(&Target::local(BESIDE)?, &built.references())?;
    let played = side_by_side(vec![
        (INSTANCE, harness(INSTANCE, built, MANY_ROUNDS / 2, None)?),
        (BESIDE, harness(BESIDE, built, MANY_ROUNDS - MANY_ROUNDS / 2, Some(PLAYS))?),
    ]);
    cluster::down(BESIDE)?;
    verdict(played?, "cargo test -p yoi-e2e --test kills, on two clusters")
}

fn harness(instance: Instance, built: &Built, rounds: u32, filter: Option<&str>) -> Result<Command> {
    let mut test = Command::new(program());
    test.args(["test", "-p", "yoi-e2e", "--test", "kills", "--", "--test-threads=1", "--nocapture"]).args(filter);
    test.current_dir(repository()).envs(witness::environment(instance, built)?);
    if std::env::var_os("YOI_KILL_ROUNDS").is_none() {
        test.env("YOI_KILL_ROUNDS", rounds.to_string());
    }
    Ok(test)
}

/// All to their ends, each line with the name of its cluster; whether all of them succeeded.
fn side_by_side(harnesses: Vec<(Instance, Command)>) -> Result<bool> {
    std::thread::scope(|scope| {
        let running: Vec<_> = harnesses.into_iter().map(|(on, harness)| scope.spawn(move || told(on.name(), harness))).collect();
        let mut succeeded = true;
        for one in running {
            succeeded &= one.join().ok().context("a thread that reads a harness has panicked")??;
        }
        Ok(succeeded)
    })
}

fn told(name: &str, mut harness: Command) -> Result<bool> {
    let (reader, writer) = std::io::pipe()?;
    harness.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = harness.spawn().with_context(|| format!("failed to start {}", command::shown(&harness)))?;
    // Or its ends of the pipe stay open here, and the reader never comes to an end.
    drop(harness);
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        println!("[{name}] {}", String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn sh(script: &str) -> Command {
        command::command("sh", ["-c", script])
    }

    #[test]
    fn harnesses_run_beside_each_other_and_one_failure_is_the_sums() {
        let begun = Instant::now();
        assert!(side_by_side(vec![(INSTANCE, sh("sleep 1; echo a")), (BESIDE, sh("sleep 1; echo b >&2"))]).unwrap());
        assert!(begun.elapsed() < Duration::from_millis(1900), "one after the other: {:?}", begun.elapsed());
        assert!(!side_by_side(vec![(INSTANCE, sh("exit 1")), (BESIDE, sh("true"))]).unwrap());
        assert!(!side_by_side(vec![(INSTANCE, sh("true")), (BESIDE, sh("exit 1"))]).unwrap());
    }
}
