//! Two things that are done in turn, and the row of their figures.

use std::time::Duration;

use serde_json::{Value, json};

/// What was measured of both.
#[derive(Default)]
pub struct Pairs {
    ours: Vec<f64>,
    bare: Vec<f64>,
}

/// One of the two things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Bare,
}

impl Side {
    /// Both, in the order of this turn.
    pub fn in_turn(turn: usize) -> [Self; 2] {
        if turn.is_multiple_of(2) { [Self::Ours, Self::Bare] } else { [Self::Bare, Self::Ours] }
    }
}

impl Pairs {
    pub fn push(&mut self, side: Side, value: f64) {
        match side {
            Side::Ours => self.ours.push(value),
            Side::Bare => self.bare.push(value),
        }
    }

    /// Adds a time in milliseconds.
    pub fn push_time(&mut self, side: Side, time: Duration) {
        self.push(side, time.as_secs_f64() * 1e3);
    }

    /// The row, which is printed too.
    pub fn row(&self, name: &str, unit: &str, bar: Option<f64>) -> Value {
        let (ours, bare) = (quantiles(&self.ours), quantiles(&self.bare));
        let ratio = ours[0] / bare[0];
        let shown_bar = bar.map_or_else(String::new, |bar| format!(" (bar {bar}x)"));
        println!("{name:<72} {:>8.2} {unit}, bare {:>8.2} {unit}, {ratio:.2}x{shown_bar}", ours[0], bare[0]);
        let figures = |of: [f64; 2]| json!({"n": self.ours.len(), "p50": of[0], "p99": of[1]});
        json!({"name": name, "unit": unit, "ours": figures(ours), "bare": figures(bare), "ratio": ratio, "bar": bar})
    }
}

/// The median, and the slowest hundredth: with fewer than a hundred the slowest.
fn quantiles(values: &[f64]) -> [f64; 2] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    [sorted.len() / 2, (sorted.len() * 99 / 100).min(sorted.len() - 1)].map(|at| sorted[at])
}
