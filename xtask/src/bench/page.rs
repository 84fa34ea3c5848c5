//! Rows from benchmarks to tables and pictures.

use super::machine;
use crate::instance::repository;
use crate::say;
use anyhow::{Context, Result};
use charts_rs::{HorizontalBarChart, Position, Series};
use serde::Deserialize;
use std::fs;
use std::path::Path;

#[derive(Deserialize)]
#[serde(from = "Told")]
pub struct Row {
    name: String,
    unit: String,
    /// None for a figure that is only a ratio.
    ours: Option<Figures>,
    bare: Option<Figures>,
    ratio: Option<f64>,
    bar: Option<f64>,
}

#[derive(Deserialize)]
struct Figures {
    n: usize,
    p50: f64,
    p99: f64,
}

/// The two ways in which benchmarks write a row: with its unit, or in microseconds.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Units {
        name: String,
        unit: String,
        ours: Figures,
        bare: Option<Figures>,
        ratio: Option<f64>,
        bar: Option<f64>,
    },
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
}

impl From<Told> for Row {
    fn from(told: Told) -> Self {
        match told {
            Told::Units { name, unit, ours, bare, ratio, bar } => Row { name, unit, ours: Some(ours), bare, ratio, bar },
            Told::Micros { name, n, p50, p99, bare_us, bare_p99, ratio, bar } => Row {
                name,
                unit: "µs".to_owned(),
                ours: p50.zip(p99).map(|(p50, p99)| Figures { n, p50, p99 }),
                bare: bare_us.map(|p50| Figures { n, p50, p99: bare_p99.unwrap_or(f64::NAN) }),
                ratio,
                bar,
            },
        }
    }
}

/// What stands between which marks, and the files that it comes from.
const SECTIONS: [(&str, &[&str]); 3] = [
    ("cluster", &["cluster-agents", "cluster-claims", "cluster-messages", "cluster-objects"]),
    ("workspace", &["workspace"]),
    ("session", &["session"]),
];

/// Puts what was measured into the page, each benchmark between its own marks; what was not run keeps the figures of its last run on this machine.
pub fn write(out: &Path) -> Result<()> {
    let file = repository().join("docs/benchmarks.md");
    let mut page = fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
    let mut all = vec![];
    for (section, files) in SECTIONS {
        let mut rows: Vec<Row> = vec![];
        for file in files {
            let Ok(text) = fs::read(out.join(format!("{file}.json"))) else { continue };
            let more: Vec<Row> = serde_json::from_slice(&text).with_context(|| format!("failed to read the rows of {file}"))?;
            rows.extend(more);
        }
        if !rows.is_empty() {
            page = between(&page, section, &table(&rows))?;
            all.extend(rows);
        }
    }
    page = between(&page, "machine", &format!("{}.\n", machine()?))?;
    fs::create_dir_all(repository().join("docs/benchmarks"))?;
    for (name, svg) in [("ratios", ratios(&all)?), ("agent", agent(&all)?)] {
        if let Some(svg) = svg {
            fs::write(repository().join(format!("docs/benchmarks/{name}.svg")), svg)?;
        }
    }
    fs::write(&file, page)?;
    say::note(&format!("figures: {}", file.display()));
    Ok(())
}

fn between(page: &str, section: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- {section} -->\n"), format!("<!-- end {section} -->\n"));
    let missing = || format!("docs/benchmarks.md has no marks for {section}");
    let (before, rest) = page.split_once(&begin).with_context(missing)?;
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

fn table(rows: &[Row]) -> String {
    let mut text = "| | n | ours p50 | p99 | bare p50 | p99 | ratio | bar | |\n|---|--:|--:|--:|--:|--:|--:|--:|---|\n".to_owned();
    for row in rows {
        let unit = &row.unit;
        let bare = row.bare.as_ref().map_or((String::new(), String::new()), |b| (figure(b.p50), figure(b.p99)));
        let ratio = row.ratio.map_or_else(String::new, |r| format!("**{r:.2}x**"));
        let bar = row.bar.map_or_else(String::new, |b| if row.ratio.is_some() { format!("{b}x") } else { format!("{b} {unit}") });
        let verdict = row.bar.map_or("", |_| if row.holds() { "held" } else { "**not held**" });
        let ours =
            row.ours.as_ref().map_or_else(Default::default, |o| (o.n.to_string(), format!("{} {unit}", figure(o.p50)), figure(o.p99)));
        text +=
            &format!("| {} | {} | {} | {} | {} | {} | {ratio} | {bar} | {verdict} |\n", row.name, ours.0, ours.1, ours.2, bare.0, bare.1);
    }
    text
}

fn figure(value: f64) -> String {
    match value {
        v if v.is_nan() => String::new(),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

impl Row {
    /// A bar is for the ratio where there is one, else for the slowest hundredth of ours.
    fn holds(&self) -> bool {
        self.bar.is_none_or(|bar| self.ratio.or(self.ours.as_ref().map(|o| o.p99)).is_some_and(|value| value <= bar))
    }
}

fn ratios(rows: &[Row]) -> Result<Option<String>> {
    let with: Vec<_> = rows.iter().filter_map(|row| Some((row.name.clone(), row.ratio? as f32, row.bar? as f32))).collect();
    if with.is_empty() {
        return Ok(None);
    }
    let names = with.iter().map(|row| row.0.clone()).collect();
    let series = |name: &str, of: fn(&(String, f32, f32)) -> f32| Series::new(name.to_owned(), with.iter().map(of).map(round).collect());
    picture("Ours over bare (x)", vec![series("measured", |row| row.1), series("bar", |row| row.2)], names, with.len())
}

/// Where the time of one agent goes, as it was seen from outside.
fn agent(rows: &[Row]) -> Result<Option<String>> {
    let of = |side: &str| -> Vec<(String, f32)> {
        let start = format!("{side}: seen after, ");
        rows.iter().filter_map(|row| Some((format!("{side}: {}", row.name.strip_prefix(&start)?), row.ours.as_ref()?.p50 as f32))).collect()
    };
    let steps: Vec<_> = of("plain Pod").into_iter().chain(of("YoiPod")).collect();
    if steps.is_empty() {
        return Ok(None);
    }
    let series = Series::new("ms after apply, median".to_owned(), steps.iter().map(|step| round(step.1)).collect());
    let count = steps.len();
    picture("What is seen when (ms after apply)", vec![series], steps.into_iter().map(|step| step.0).collect(), count)
}

fn picture(title: &str, series: Vec<Series>, names: Vec<String>, count: usize) -> Result<Option<String>> {
    let mut chart = HorizontalBarChart::new(series, names);
    chart.width = 1000.0;
    chart.height = 90.0 + 44.0 * count as f32;
    chart.title.text = title.to_owned();
    chart.series_label_position = Some(Position::Right);
    Ok(Some(chart.svg()?))
}

fn round(value: f32) -> f32 {
    (value * 100.0).round() / 100.0
}
