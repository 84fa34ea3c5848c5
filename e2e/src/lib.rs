//! What tests on a real cluster share. They drive the shipped charts, images and programs, and import no binary crate.
//!
//! `cargo xtask test` starts the cluster, installs the charts and sets the environment variables that [`test_namespace::TestNamespace`] reads.

#![deny(missing_docs)]

pub mod accounts;
pub mod canary;
pub mod fixtures;
pub mod local_cluster;
mod poll;
pub mod program;
pub mod test_namespace;

pub use poll::poll_until;
