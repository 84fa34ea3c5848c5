//! The witness: what tests on a real cluster need. It drives the shipped charts, images and programs, and knows no rim from inside.
//!
//! `cargo xtask test` starts the cluster, installs the charts and says in the environment where things are (see [`test_namespace::TestNamespace`]).

pub mod fixtures;
mod poll;
pub mod program;
pub mod test_namespace;

pub use poll::poll_until;
