//! What the crate promises, on a disk in memory with faults, power cuts and damage, and on the disk of this machine.

mod chain;
mod chain_damage;
mod chain_fixture;
mod damage;
mod damage_harness;
mod fault_harness;
mod faults;
mod fixture;
mod fold;
mod inbox;
mod lock;
mod log;
mod planted_disks;
mod planted_loaders;
mod reader;
mod real_disk;
mod recorded_logs;
