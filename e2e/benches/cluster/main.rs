//! What Yoi costs on a real cluster, compared in the same run with what a user would take instead. Run by `cargo xtask bench cluster`.
//!
//! Ratios count; times depend on the machine. The bench reads the environment of `cargo xtask test`. It prints its rows and, where
//! `YOI_BENCH_OUT` names a folder, writes them there as `cluster-agents.json`, `cluster-claims.json` and so on.

mod agents;
mod attach;
mod claims;
mod claims_at_rate;
mod first_word;
#[allow(dead_code, reason = "the security tests use the rest of it")]
#[path = "../../tests/security/gateway_client.rs"]
mod gateway_client;
mod loans;
mod measure;
mod messages;
mod objects;
mod plugin;
mod rest;
mod simulated_nodes;
mod trace;
mod warm;
mod writes;

use anyhow::{Result, ensure};
use measure::Row;

#[tokio::main]
async fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let mut failed = vec![];
    if is_wanted("agents") {
        failed.extend(write_rows("agents", agents::run().await));
    }
    if is_wanted("attach") {
        failed.extend(write_rows("attach", attach::run().await));
    }
    if is_wanted("claims") {
        failed.extend(write_rows("claims", claims::run().await));
    }
    if is_wanted("loans") {
        failed.extend(write_rows("loans", loans::run().await));
    }
    if is_wanted("messages") {
        failed.extend(write_rows("messages", messages::run().await));
    }
    if is_wanted("objects") {
        failed.extend(write_rows("objects", objects::run().await));
    }
    if is_wanted("warm") {
        failed.extend(write_rows("warm", warm::run().await));
    }
    if is_wanted("first-word") {
        failed.extend(write_rows("first-word", first_word::run().await));
    }
    if is_wanted("rest") {
        failed.extend(write_rows("rest", rest::run().await));
    }
    // Last: its thousands of objects may not be gone when it ends.
    if is_wanted("claims-at-rate") {
        failed.extend(write_rows("claims-at-rate", claims_at_rate::run().await));
    }
    ensure!(failed.is_empty(), "not measured: {}", failed.join(", "));
    Ok(())
}

/// Writes the rows of one part. Returns the part's name when it failed; the other parts run all the same.
fn write_rows(part: &'static str, rows: Result<Vec<Row>>) -> Option<&'static str> {
    let written = rows.and_then(|rows| measure::write(&format!("cluster-{part}"), &rows));
    written.err().map(|error| {
        eprintln!("\n{part}: {error:#}");
        part
    })
}
