//! Yoi explains itself: the doctor names each fault and the command that mends it, Events tell a story in order, errors say what next.
//!
//! Faults of the whole cluster are made one at a time, while no other test of this target looks.

mod doctor;
mod errors;
mod events;
mod faults;
mod fix;
mod logs;
mod metrics;
mod people;

use tokio::sync::RwLock;

/// Written by who breaks the cluster, read by who needs it whole.
static CLUSTER: RwLock<()> = RwLock::const_new(());
