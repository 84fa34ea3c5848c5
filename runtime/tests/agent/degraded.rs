//! Disks, models and commands fail: what the agent reports, whether it stays responsive, and whether it goes on.

mod commands;
mod damaged_files;
mod disks;
pub mod invariants;
mod loop_volume;
mod memory_use;
mod models;
mod peer_messages;
pub mod planted;
mod process_log;
