//! Tests of the binary against a scripted model and a fake gateway.

// The scripted model is a binary of another crate, so its module is included by path.
#[path = "../../../e2e/src/bin/scripted-model/endpoint.rs"]
mod endpoint;

mod approvals;
mod assets;
mod bundles;
mod conversations;
mod day_of_work;
mod degraded;
mod diffs;
mod endpoints;
mod engine_api;
mod fences;
mod frame;
mod gateway;
mod generated_history;
mod harness;
mod merges;
mod messages;
mod people;
mod policies;
mod program_children;
mod programs;
mod prompt_cache;
mod readers;
mod recorded_logs;
mod refusals;
mod rest;
mod restarts;
mod runs;
mod shells;
mod skip;
mod ssh;
mod steering;
mod subagents;

use endpoint::{script, server};
