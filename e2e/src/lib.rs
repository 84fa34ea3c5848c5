//! What tests on a real cluster share. They drive the shipped charts, images and programs, and import no binary crate.
//!
//! `cargo xtask test` starts the cluster, installs the charts and sets the environment variables that [`test_namespace::TestNamespace`] reads.

#![deny(missing_docs)]

pub mod accounts;
pub mod canary;
pub mod fixtures;
pub mod local_cluster;
pub mod locks;
mod poll;
pub mod processes;
pub mod program;
pub mod test_namespace;

pub use poll::{poll_seen, poll_until};

/// Whether this run takes the time for all rounds of a test: `YOI_THOROUGH=1`, as in `cargo xtask test --all`. Each landing plays some of them.
#[must_use]
pub fn thorough() -> bool {
    std::env::var_os("YOI_THOROUGH").is_some_and(|value| value == "1")
}
