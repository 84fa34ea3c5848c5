//! The types and paths that Yoi's processes exchange. There are no sockets here.
//!
//! Everything here is data. The sender opens its own connection (see `yoi-line`), and the receiver authenticates the sender first: no field
//! in here is proof of who sent it.

#![deny(missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod approval;
pub mod assets;
pub mod bundle;
pub mod children;
pub mod control;
pub mod conversation;
pub mod cover;
pub mod engine_api;
pub mod entry;
pub mod entry_text;
pub mod evidence;
pub mod fence;
pub mod hub;
pub mod identity;
pub mod manifest;
pub mod merge;
pub mod mode;
pub mod node;
pub mod open;
pub mod people;
pub mod policy;
pub mod preset;
pub mod push;
pub mod quantity;
pub mod signal;
pub mod ssh;
pub mod subagent;
pub mod sync;

mod error_chain;
mod zero;

pub use error_chain::error_chain;
