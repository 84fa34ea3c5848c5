//! Promises to users, each tried on a real cluster with the shipped charts, images and programs. Run by `cargo xtask test`.

mod access;
mod agents;
mod charts;
mod claims;
mod node;
mod operations;
mod peers;
mod plugin;
mod schema;
mod workspaces;
