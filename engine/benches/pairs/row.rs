//! One row of figures: ours beside what a user would take instead.

use std::time::Duration;

use serde_json::{Value, json};

/// Prints the row and returns it for the file of figures. `other` names what it is compared with.
pub fn row(name: &str, other: &str, bar: f64, ours: Vec<Duration>, bare: Vec<Duration>) -> Value {
    let (ours_n, bare_n) = (ours.len(), bare.len());
    let ([p50, p99], [bare_p50, bare_p99]) = (quantiles(ours), quantiles(bare));
    let ratio = p50 / bare_p50;
    println!(
        "{name:<64} {p50:>7.1} ms, {other} {bare_p50:>7.1} ms, {ratio:.2}x (bar {bar}x); slowest {p99:.1} ms, {other} {bare_p99:.1} ms"
    );
    json!({
        "name": name, "unit": "ms", "ratio": ratio, "bar": bar,
        "ours": {"n": ours_n, "p50": p50, "p99": p99}, "bare": {"n": bare_n, "p50": bare_p50, "p99": bare_p99},
    })
}

/// The median and the slowest, in milliseconds.
fn quantiles(mut times: Vec<Duration>) -> [f64; 2] {
    times.sort_unstable();
    [times.len() / 2, times.len() - 1].map(|at| times[at].as_secs_f64() * 1e3)
}
