//! The promises of an agent's memory.

mod bed;
mod damage;
mod faults;
mod inbox;
mod loaders;
mod log;
mod machine;
mod planted;
mod reader;
mod sweep;
mod vandal;
mod volume;
