//! The world is poor: what the agent says, whether it obeys, and whether it goes on.

mod damage;
mod disks;
mod judge;
mod memory;
mod models;
mod planted;
mod sends;
mod signs;
mod tools;
mod volume;
