//! The promises of an agent's memory.

mod damage;
mod damage_harness;
mod fault_harness;
mod faults;
mod fixture;
mod inbox;
mod lock;
mod log;
mod planted_disks;
mod planted_loaders;
mod reader;
mod real_disk;
