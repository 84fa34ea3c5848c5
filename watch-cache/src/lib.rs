//! An index over one watch: the objects of one kind, found by name or by any key that the caller derives from them.
//!
//! # Flow
//! [`WatchCache::new`] makes a cache and its [`CacheWriter`]. [`CacheWriter::watch`] lists and watches the kind, projects each object to the
//! cached type, and stores it under its keys. After each change it calls the caller's `on_change` with all keys that the object had before
//! and has now. A controller takes its triggers from [`queue`] and reads the object from the cache.
//!
//! [`client_builder`] makes the client for all of this: one that notices when the connection of a watch is dead.
//!
//! # Guarantees
//! - The cache is ready after the first complete listing, and `on_change` has returned before. A later listing replaces everything at once.
//! - An object that this version cannot deserialize holds up no other. The cache keeps what it knew of it, or does not know it.
//! - An object never goes back to an older resource version, except by a listing that began after the newer one was stored.
//! - [`WatchCache::learn`] takes in what an own request returned. A deleted object does not come back that way.
//!
//! # Assumptions
//! - Resource versions of one kind are numbers that can be compared. One that is not a number is not compared.
//!
//! # Caveats
//! A cache is behind the API server. A decision that needs the present state asks the API server, or writes with a resource version.
//!
#![doc = concat!("```\n", include_str!("../tests/watch_cache/example.rs"), "```")]
#![deny(missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod cache;
mod client;
mod digest;
mod queue;
mod state;
mod writer;

pub use cache::WatchCache;
pub use client::{ApiService, client_builder};
pub use queue::{Queued, queue};
pub use writer::{CacheChange, CacheWriter, trim_metadata};
