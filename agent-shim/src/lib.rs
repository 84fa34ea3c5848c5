//! The two processes of a node: the shim, which answers the kubelet and reconciles workspaces, and the mounter, which works on the disk.
//!
//! # Layers
//! Each module uses only those above it.
//! - [`args`], [`runtime_digest`], [`host_sources`], [`volume`]: the command line and the types that both processes share.
//! - [`mounter`]: the privileged process, the protocol on its socket, and the client of that socket.
//! - [`decide`]: what to do, from what was observed. Pure functions.
//! - [`shim`]: the process without privileges that observes, asks the mounter to act, and reports.

#![deny(missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod args;
pub mod decide;
pub mod host_sources;
pub mod mounter;
pub mod proto;
pub mod runtime_digest;
pub mod shim;
pub mod volume;
