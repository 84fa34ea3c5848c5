//! Samples, and the rows that `cargo xtask bench` keeps.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[derive(Default)]
pub struct Table {
    pub rows: Vec<Value>,
}

/// How long one action took, each time.
#[derive(Default)]
pub struct Times(pub Vec<Duration>);

impl Times {
    pub fn time(&mut self, act: impl FnOnce()) {
        let began = Instant::now();
        act();
        self.0.push(began.elapsed());
    }

    pub fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        sorted[((sorted.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e6
    }

    pub fn p50(&self) -> f64 {
        self.at(0.5)
    }

    pub fn millis(&self) -> Vec<f64> {
        self.0.iter().map(|took| took.as_secs_f64() * 1e3).collect()
    }
}

/// The median, as of [`Times::p50`].
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * 0.5).round() as usize]
}

impl Table {
    pub fn head(&self, title: &str) {
        println!("\n{title}\n{:<44} {:>9} {:>9} {:>6} {:>9}  bar", "", "ours us", "bare us", "ratio", "p99 us");
    }

    /// Adds a row of our call over the bare call. `bar` is the highest allowed ratio.
    pub fn over(&mut self, name: &str, ours: &Times, bare: &Times, bar: Option<f64>) {
        let (p50, p99, other) = (ours.p50(), ours.at(0.99), bare.p50());
        let ratio = p50 / other;
        let verdict = match bar {
            Some(bar) if ratio <= bar => format!("<= {bar}: met"),
            Some(bar) => format!("<= {bar}: MISSED"),
            None => String::new(),
        };
        println!("{name:<44} {p50:>9.0} {other:>9.0} {ratio:>6.2} {p99:>9.0}  {verdict}");
        let (n, bare_p99) = (ours.0.len(), bare.at(0.99));
        self.rows.push(json!({ "name": name, "ours_us": p50, "bare_us": other, "ratio": ratio, "n": n, "p50": p50, "p99": p99,
            "bare_p99": bare_p99, "bar": bar }));
    }

    /// Adds one cell of a table that has a line for each way and a column for each thing that is measured.
    pub fn cell(&mut self, way: &str, what: &str, unit: &str, samples: &[f64]) {
        let most = samples.iter().copied().fold(f64::MIN, f64::max);
        let ours = json!({ "n": samples.len(), "p50": median(samples), "p99": most });
        self.rows.push(json!({ "name": format!("{way}: {what}"), "unit": unit, "ours": ours, "bare": null, "ratio": null, "bar": null }));
    }

    /// Adds a row of our call alone.
    pub fn alone(&mut self, name: &str, ours: &Times) {
        let (p50, p99) = (ours.p50(), ours.at(0.99));
        println!("{name:<44} {p50:>9.0} {:>9} {:>6} {p99:>9.0}", "", "");
        let ours = json!({ "n": ours.0.len(), "p50": p50, "p99": p99 });
        self.rows.push(json!({ "name": name, "unit": "µs", "ours": ours, "bare": null, "ratio": null, "bar": null }));
    }

    /// Writes the rows, if there are any, to the file of this name in the folder that `YOI_BENCH_OUT` names.
    pub fn write(&self, name: &str) {
        if let Some(folder) = std::env::var_os("YOI_BENCH_OUT").filter(|_| !self.rows.is_empty()) {
            let file = PathBuf::from(folder).join(format!("{name}.json"));
            std::fs::write(file, serde_json::to_vec_pretty(&self.rows).unwrap()).unwrap();
        }
    }

    /// Adds a figure that is not compared with a bare call.
    pub fn figure(&mut self, name: &str, ratio: f64, words: &str, verdict: &str) {
        println!("{name:<44} {words:>33}  {verdict}");
        self.rows.push(
            json!({ "name": name, "ours_us": null, "bare_us": null, "ratio": ratio, "n": 1, "p50": null, "p99": null, "words": words }),
        );
    }
}

pub fn met(yes: bool, bar: &str) -> String {
    format!("{bar}: {}", if yes { "met" } else { "MISSED" })
}
