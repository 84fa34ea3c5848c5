//! What should exist in the cluster, and what is true of it: pure decisions.
//!
//! Each kind has one function from an observed world and the time to a [`step::Plan`]. Nothing here waits, reads a clock or reaches the API
//! server; the operator gathers the world once, asks, and carries the steps out in their order, then writes the status.
//!
//! Promise: from any world, with a stop after any step, asking again and again ends with a plan without steps and an unchanged status.
//! Every step can be said twice; every removal names the UID that it means.

pub mod conditions;
pub mod duration;
pub mod meta;
pub mod names;
pub mod network;
pub mod nodes;
pub mod nudge_deleting_claims;
pub mod peer;
pub mod project;
pub mod restricted;
pub mod settings;
pub mod step;
mod stored;
pub mod tree;
pub mod visibility;
pub mod workspace;
pub mod yoipod;
