//! Samples, their quantiles, and the rows that `cargo xtask bench` draws.

use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn add(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1_000.0);
    }

    pub fn add_number(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Returns the smallest sample that at least this share of all samples does not exceed. With fewer than 100 samples p99 is the largest.
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1)) - 1;
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    fn figures(&self) -> Figures {
        Figures { n: self.0.len(), p50: self.quantile(0.5), p99: self.quantile(0.99) }
    }
}

#[derive(Clone, Debug, Serialize)]
struct Figures {
    n: usize,
    p50: f64,
    p99: f64,
}

/// One line of `docs/benchmarks.md`.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    name: String,
    unit: &'static str,
    ours: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    bare: Option<Figures>,
    /// Ratio of the medians.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// Upper limit of the ratio, or of our p99 where there is no ratio.
    #[serde(skip_serializing_if = "Option::is_none")]
    bar: Option<f64>,
}

impl Row {
    pub fn with_ratio(name: &str, ours: &Samples, bare: &Samples, bar: f64) -> Self {
        let ratio = ours.quantile(0.5) / bare.quantile(0.5);
        Row { name: name.into(), unit: "ms", ours: ours.figures(), bare: Some(bare.figures()), ratio: Some(ratio), bar: Some(bar) }
    }

    pub fn without_ratio(name: &str, unit: &'static str, ours: &Samples, bar: Option<f64>) -> Self {
        Row { name: name.into(), unit, ours: ours.figures(), bare: None, ratio: None, bar }
    }

    pub fn number(name: &str, unit: &'static str, value: f64, bar: Option<f64>) -> Self {
        let mut one = Samples::default();
        one.add_number(value);
        Self::without_ratio(name, unit, &one, bar)
    }

    pub fn print(&self) {
        let Row { name, unit, ours, bare, ratio, bar } = self;
        let mut line = format!("{name:<64} n={:<5} p50 {:>9.1} {unit}  p99 {:>9.1} {unit}", ours.n, ours.p50, ours.p99);
        if let (Some(bare), Some(ratio)) = (bare, ratio) {
            line += &format!("  bare p50 {:>9.1}  p99 {:>9.1}  ratio {ratio:.2}", bare.p50, bare.p99);
        }
        if let Some(bar) = bar {
            line += &format!("  (bar {bar})");
        }
        println!("{line}");
    }
}

pub fn write(name: &str, rows: &[Row]) -> Result<()> {
    let Ok(folder) = std::env::var("YOI_BENCH_OUT") else { return Ok(()) };
    let file = std::path::Path::new(&folder).join(format!("{name}.json"));
    std::fs::write(&file, serde_json::to_vec_pretty(rows)?).with_context(|| format!("failed to write {}", file.display()))
}
