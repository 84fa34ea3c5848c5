//! The figures of each set of benchmarks: one file below `docs/benchmarks` per set, rewritten only by a run of that set.

use crate::instance::repository;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// A set of benchmarks that are measured together.
pub struct Set {
    /// Its file below `docs/benchmarks`.
    pub name: &'static str,
    /// The marks in `docs/benchmarks.md` around the table that it shares with its neighbours.
    pub table: &'static str,
    /// The file into which the benchmark writes its rows, without `.json`.
    output: &'static str,
    /// Of a set whose rows without a ratio are named `WAY: WHAT`: they become one table with a line for each way, and a picture of this title.
    pub side_by_side: Option<&'static str>,
}

impl Set {
    const fn new(table: &'static str, name: &'static str, output: &'static str) -> Self {
        Set { name, table, output, side_by_side: None }
    }
}

/// In the order of the tables that they are in, and of the pictures.
pub const SETS: [Set; 23] = [
    Set::new("cluster", "agents", "cluster-agents"),
    Set::new("cluster", "warm", "cluster-warm"),
    Set::new("cluster", "first-word", "cluster-first-word"),
    Set::new("cluster", "rest", "cluster-rest"),
    Set::new("cluster", "attach", "cluster-attach"),
    Set::new("cluster", "claims", "cluster-claims"),
    Set::new("cluster", "loans", "cluster-loans"),
    Set::new("cluster", "messages", "cluster-messages"),
    Set::new("cluster", "objects", "cluster-objects"),
    Set::new("cluster", "claims-at-rate", "cluster-claims-at-rate"),
    Set::new("trees", "workspace", "workspace"),
    Set { side_by_side: Some("A tree of 57,000 files (ms)"), ..Set::new("ways", "providers", "providers") },
    Set { side_by_side: Some("A tree of 5,000 files, in an emulator (ms)"), ..Set::new("zfs", "providers-zfs", "providers-zfs") },
    Set::new("zfs", "zfs", "zfs"),
    Set::new("trees", "refresh", "refresh"),
    Set::new("trees", "capture", "capture"),
    Set::new("trees", "push", "push"),
    Set::new("runtime", "session", "session"),
    Set::new("runtime", "session-open", "session-open"),
    Set::new("runtime", "tools", "grep"),
    Set::new("runtime", "assets", "assets"),
    Set::new("runtime", "runtime", "runtime"),
    Set::new("runtime", "programs", "programs"),
];

/// What one run of a set measured.
#[derive(Serialize, Deserialize)]
pub struct Figures {
    pub machine: String,
    pub rows: Vec<Row>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "BenchmarkOutput")]
pub struct Row {
    pub name: String,
    pub unit: String,
    /// None for a figure that is only a ratio.
    pub ours: Option<Sample>,
    /// The thing that a user would pick instead.
    pub bare: Option<Sample>,
    pub ratio: Option<f64>,
    pub bar: Option<f64>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Sample {
    pub n: usize,
    pub p50: f64,
    /// Absent where only the median of the bare side is known.
    pub p99: Option<f64>,
}

/// The two ways in which benchmarks write a row: with its unit, or in microseconds.
#[derive(Deserialize)]
#[serde(untagged)]
enum BenchmarkOutput {
    Micros {
        name: String,
        n: usize,
        p50: Option<f64>,
        p99: Option<f64>,
        bare_us: Option<f64>,
        bare_p99: Option<f64>,
        ratio: Option<f64>,
        bar: Option<f64>,
    },
    Units {
        name: String,
        unit: String,
        ours: Option<Sample>,
        bare: Option<Sample>,
        ratio: Option<f64>,
        bar: Option<f64>,
    },
}

impl From<BenchmarkOutput> for Row {
    fn from(output: BenchmarkOutput) -> Self {
        match output {
            BenchmarkOutput::Units { name, unit, ours, bare, ratio, bar } => Row { name, unit, ours, bare, ratio, bar },
            BenchmarkOutput::Micros { name, n, p50, p99, bare_us, bare_p99, ratio, bar } => Row {
                name,
                unit: "µs".to_owned(),
                ours: p50.map(|p50| Sample { n, p50, p99 }),
                bare: bare_us.map(|p50| Sample { n, p50, p99: bare_p99 }),
                ratio,
                bar,
            },
        }
    }
}

impl Row {
    /// Whether it is held against something: a bar, or what its own name says of a ratio.
    pub fn is_claim(&self) -> bool {
        self.bar.is_some() || self.ours.is_none()
    }

    /// A bar is for the ratio where there is one, else for the slowest hundredth of ours.
    pub fn holds(&self) -> bool {
        self.bar.is_none_or(|bar| self.ratio.or(self.ours.as_ref().and_then(|ours| ours.p99)).is_some_and(|value| value <= bar))
    }
}

fn file(set: &Set) -> PathBuf {
    repository().join(format!("docs/benchmarks/{}.json", set.name))
}

/// Removes the rows of earlier runs from `output`, so that none of them is taken for this run's.
pub fn clear(output: &Path) -> Result<()> {
    for set in &SETS {
        match fs::remove_file(output.join(format!("{}.json", set.output))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).context("failed to remove former rows"),
            _ => {}
        }
    }
    Ok(())
}

/// Keeps what this run wrote into `output`. A set that did not run keeps its figures.
pub fn store(output: &Path, machine: &str) -> Result<()> {
    for set in &SETS {
        let Ok(text) = fs::read(output.join(format!("{}.json", set.output))) else { continue };
        let rows: Vec<Row> = serde_json::from_slice(&text).with_context(|| format!("failed to read the rows of {}", set.output))?;
        let text = serde_json::to_string_pretty(&Figures { machine: machine.to_owned(), rows })? + "\n";
        fs::write(file(set), text).with_context(|| format!("failed to write the figures of {}", set.name))?;
    }
    Ok(())
}

/// The figures of the set's last run. None if it has never run.
pub fn load(set: &Set) -> Result<Option<Figures>> {
    let file = file(set);
    let text = match fs::read(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("failed to read {}", file.display()))?,
    };
    serde_json::from_slice(&text).map(Some).with_context(|| format!("failed to read the figures of {}", set.name))
}
