//! Tests of the whole gateway in process, over real TLS and real lines, against a fake API server that keeps state.

mod agents;
mod api;
mod approval;
mod assets;
mod attach;
#[path = "../../../line/tests/line/certificates.rs"]
mod certificates;
mod children;
mod control;
mod conversations;
mod engine;
mod harness;
mod loans;
mod messages;
mod people;
mod push;
mod readers;
mod replicas;
mod rest;
mod restore;
mod rollout;
mod ssh;
mod sync;
mod unauthenticated;
