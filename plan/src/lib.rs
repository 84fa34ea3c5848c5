//! What should exist in the cluster, and what is true of it: pure decisions.
//!
//! Each kind has one function `plan`: from what was observed and the time to a [`step::Plan`]. Nothing here waits, reads a clock or calls the API
//! server. The operator gathers what it observes once, calls `plan`, carries the steps out in their order and then writes the status.
//!
//! # Guarantees
//! - From any state of the cluster, with a stop after any step, calling `plan` again and again ends with a plan without steps and a status that does
//!   not change.
//! - Every step can be repeated.
//! - Every deletion names the UID of the object that it deletes.
//!
//! # Assumptions
//! What was observed may be old, and each kind may be of another moment. The objects are as the API server has stored them.

#![deny(missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

pub mod children;
pub mod conditions;
pub mod duration;
pub mod fork;
pub mod meta;
pub mod names;
pub mod network;
mod node_affinity;
pub mod nodes;
pub mod nudge_deleting_claims;
mod observed_pod;
pub mod peer;
mod policy;
pub mod project;
pub mod reservation;
pub mod restore;
mod restricted;
pub mod scope;
pub mod settings;
pub mod step;
mod stored;
pub mod tree;
pub mod visibility;
pub mod warm;
pub mod workspace;
pub mod yoipod;

pub use observed_pod::ObservedPod;
