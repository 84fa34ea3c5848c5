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
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use measure::Row;

#[tokio::main]
async fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let parts: [(&str, LocalBoxFuture<'static, Result<Vec<Row>>>); 10] = [
        ("agents", agents::run().boxed_local()),
        ("attach", attach::run().boxed_local()),
        ("claims", claims::run().boxed_local()),
        ("loans", loans::run().boxed_local()),
        ("messages", messages::run().boxed_local()),
        ("objects", objects::run().boxed_local()),
        ("warm", warm::run().boxed_local()),
        ("first-word", first_word::run().boxed_local()),
        ("rest", rest::run().boxed_local()),
        // Last: its thousands of objects may not be gone when it ends.
        ("claims-at-rate", claims_at_rate::run().boxed_local()),
    ];
    let mut failed = vec![];
    for (part, rows) in parts {
        if wanted.is_empty() || wanted.iter().any(|word| word == part) {
            failed.extend(write_rows(part, rows.await));
        }
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
