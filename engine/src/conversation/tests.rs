//! A conversation against log, inbox, model and tools in memory.

mod compaction;
mod ended_runs;
mod modes;
mod preparation;
mod programs;
mod questions;
mod replays;
mod requested;
mod requests;
mod runs;
mod simulation;
