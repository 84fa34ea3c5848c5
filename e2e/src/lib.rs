//! The witness: what tests on a real cluster need. It drives the shipped charts, images and programs, and knows no rim from inside.
//!
//! `cargo xtask test` starts the cluster, installs the charts and says in the environment where things are (see [`stage::Stage`]).

pub mod fixture;
pub mod program;
mod soon;
pub mod stage;

pub use soon::soon;
