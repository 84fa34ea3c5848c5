//! A Kubernetes of one or several nodes on one machine, with Yoi installed, from programs and images that are made already: nothing here compiles.
//! `cargo xtask` compiles, and then calls this.

pub mod bundle;
pub mod cluster;
pub mod command;
pub mod images;
pub mod install;
pub mod instance;
pub mod packages;
pub mod progress;
pub mod service;
