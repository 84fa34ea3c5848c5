//! The hub: agents' runtimes dial it, people reach it through the API server.
//!
//! | Door | Who | Proof |
//! |---|---|---|
//! | runtimes | agents' runtimes, with a line each and requests of their own | projected token → TokenReview → the YoiPod of that Pod |
//! | api | people, through the API server | the front proxy's certificate, then SubjectAccessReview for each verb |
//! | health | probes, Prometheus | none |
//!
//! # Guarantees
//! * No state but what can be asked for again: replicas know nothing of each other, and any may die.
//! * A name in a body proves nothing. Tokens and messages' texts are in no log.
//!
//! # Assumptions
//! Runtimes keep a line to every replica, so a replica without a line to an agent may call it unreachable.

mod access;
pub mod args;
mod certs;
mod deliver;
mod follow;
mod frontproxy;
mod health;
mod hub;
mod identity;
mod keeper;
mod memory;
mod metrics;
mod people;
mod registry;
mod run;
mod runtimes;
mod status;
mod turns;
mod world;

pub use hub::{Hub, Settings};
pub use run::{Ports, run};

/// An error with all its sources, on one line. Some errors of kube say their source themselves; that is said once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = error.source();
    }
    text
}
