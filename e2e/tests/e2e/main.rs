//! Promises to users, each tested on a real cluster with the shipped charts, images and programs. A test acts as a user does, waits on conditions,
//! and checks what a user can see. Run by `cargo xtask test`.

mod access;
mod agents;
mod approvals;
mod assets;
mod charts;
mod children;
mod claims;
mod conversations;
mod deletion;
mod ending;
mod engine_calls;
mod host_sources;
mod laptop;
mod network;
mod node;
mod operations;
mod peers;
mod plugin;
mod policy;
mod prepare;
mod private;
mod private_server;
mod programs;
mod push;
mod quotas;
mod readers;
mod refresh;
mod rest;
mod schema;
mod tool_output;
mod trees;
mod uid_range;
mod warm;
mod workspaces;
mod writes;
