//! Two ways to do a thing, measured in turn, and the tree that both are measured on.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Files of the tree.
pub const FILES: usize = 57_000;
const ROUNDS: usize = 7;

/// How many rounds the command line wants.
pub fn rounds() -> usize {
    std::env::args().find_map(|word| word.parse().ok()).unwrap_or(ROUNDS)
}

/// Writes the files: a hundred in a folder, `d0/f0` the first, of 200 to 4,200 bytes each.
pub fn fill_tree(tree: &Path) {
    for n in 0..FILES {
        let folder = tree.join(format!("d{}", n / 100));
        if n % 100 == 0 {
            fs::create_dir_all(&folder).expect("a folder");
        }
        let mut content = format!("{n}\n").into_bytes();
        content.resize(200 + n * 37 % 4_000, b'x');
        fs::write(folder.join(format!("f{n}")), content).expect("a file");
    }
}

fn timed(act: impl FnOnce()) -> Duration {
    let began = Instant::now();
    act();
    began.elapsed()
}

/// The times of both.
#[derive(Default)]
pub struct Pair {
    ours: Vec<Duration>,
    bare: Vec<Duration>,
}

impl Pair {
    /// Measures both, in alternating order, because the second finds the server's files in memory. `reset` runs after each.
    pub fn measure(&mut self, ours: impl FnOnce(), bare: impl FnOnce(), reset: impl Fn()) {
        let round = self.ours.len();
        if round.is_multiple_of(2) {
            self.ours.push(timed(ours));
            reset();
            self.bare.push(timed(bare));
        } else {
            self.bare.push(timed(bare));
            reset();
            self.ours.push(timed(ours));
        }
        reset();
        println!("round {}: {:.2?}, and {:.2?} bare", round + 1, self.ours[round], self.bare[round]);
    }

    /// The row of these times, with the ratio of their medians.
    pub fn row(mut self, name: &str, bar: f64) -> Value {
        self.ours.sort();
        self.bare.sort();
        let ms = |times: &[Duration], share: f64| times[((times.len() - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3;
        let sample = |times: &[Duration]| json!({ "n": times.len(), "p50": ms(times, 0.5), "p99": ms(times, 0.99) });
        let ratio = ms(&self.ours, 0.5) / ms(&self.bare, 0.5);
        println!("{name}: {ratio:.2}x");
        json!({ "name": name, "unit": "ms", "ours": sample(&self.ours), "bare": sample(&self.bare), "ratio": ratio, "bar": bar })
    }
}

/// Writes the rows to `SET.json` in the folder that `YOI_BENCH_OUT` names.
pub fn write(set: &str, rows: &[Value]) {
    if let Some(folder) = std::env::var_os("YOI_BENCH_OUT") {
        let text = serde_json::to_vec_pretty(rows).expect("JSON");
        fs::write(PathBuf::from(folder).join(format!("{set}.json")), text).expect("the rows are written");
    }
}
