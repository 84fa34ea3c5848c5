//! The gateway: agents' runtimes dial it, and people reach it through the API server.
//!
//! | Port | Client | Authentication |
//! |---|---|---|
//! | runtimes | agents' runtimes: a line each, and requests of their own | projected token → TokenReview → the YoiPod of that Pod |
//! | api | people, through the API server | the front proxy's certificate, then SubjectAccessReview for each verb |
//! | health | the kubelet's probes | none |
//! | metrics | Prometheus | none |
//!
//! # Guarantees
//! * The gateway keeps only state that it can read again: replicas know nothing of each other, and any may die.
//! * A name in a body is never trusted. Tokens and the texts of messages are in no log.
//!
//! # Assumptions
//! Each runtime has a line to every replica, so a replica without a line to an agent may report it as unreachable.

#![cfg_attr(not(test), deny(clippy::use_debug))]

mod access;
mod agent_concurrency;
mod agent_index;
pub mod args;
mod body;
mod certificate;
mod child_log;
mod child_maker;
mod child_words;
mod commits;
mod delivery;
mod front_proxy;
mod gateway_state;
mod health;
mod identity;
mod liveness;
mod loan_maker;
mod log_lines;
mod metrics;
mod notices;
mod open_lines;
mod peer_creator;
mod peer_lookup;
mod people;
mod readers;
mod readiness;
mod report_queue;
mod restorer;
mod run;
mod runtimes;
mod status;
mod sync_store;
mod token_review;
mod ttl_cache;
mod waker;

pub use gateway_state::{GatewaySettings, GatewayState};
pub use report_queue::ReportRate;
pub use run::{Ports, TaskEnded, run};

/// A duration for people, in seconds.
fn seconds(time: std::time::Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::seconds;
    use std::time::Duration;

    #[test]
    fn durations_are_shown_in_seconds() {
        assert_eq!([5_000, 300, 2_500].map(|millis| seconds(Duration::from_millis(millis))), ["5 s", "0.3 s", "2.5 s"]);
        let late = crate::access::AccessError::TimedOut(Duration::from_secs(5)).to_string();
        assert_eq!(late, "failed to get the caller's rights within 5 s");
        let late = crate::identity::IdentityError::TimedOut(Duration::from_secs(5)).to_string();
        assert_eq!(late, "failed to get the API server's answer within 5 s");
    }
}
