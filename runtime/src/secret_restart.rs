//! When the process ends so that the container starts again with the present content of the model's Secrets.
//!
//! Keys and headers come in variables, which the kubelet fills in at a start of the container only. A mounted Secret would follow its changes, but
//! tools run as the same user in the same container and would read it, and nothing else tells a Pod that a Secret has changed.
//!
//! The kubelet starts a container at once when it ends for the first time, or when it has run for more than ten minutes. Otherwise it waits 10 s, and
//! each time twice as long. An end by itself never comes at such a time.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use yoi_engine::driver::SecretRenewal;
use yoi_engine::open_session::disk;
use yoi_engine::tools::ToolGate;
use yoi_session::{Error, Lock};

/// How much sooner than [`SecretRestart::settled`] the process ends when nothing is lost by it.
const SOONER: u32 = 10;

/// Ends the process for another content of the Secrets.
pub struct SecretRestart {
    stop: CancellationToken,
    tools: ToolGate,
    /// After how long a run of the container the kubelet forgets those before.
    settled: Duration,
    started: Instant,
    first_of_pod: bool,
}

/// What decides when the process may end.
#[derive(Clone, Copy, Debug)]
struct Facts {
    first_of_pod: bool,
    uptime: Duration,
    background: bool,
    refused_for: Duration,
}

impl SecretRestart {
    /// `session` is the session volume; its lock tells later processes of the Pod that they are not the first one. So this is made before the lock is
    /// taken. The volume is closed to the agent, which could otherwise have each process taken for the first.
    pub fn new(session: &Path, pod_uid: &str, settled: Duration, tools: ToolGate, stop: CancellationToken) -> Self {
        Self { stop, tools, settled, started: Instant::now(), first_of_pod: is_first_of_pod(session, pod_uid) }
    }
}

impl SecretRenewal for SecretRestart {
    fn due_in(&self, refused_for: Duration) -> Duration {
        let background = self.tools.runner().has_background();
        due_in(self.settled, Facts { first_of_pod: self.first_of_pod, uptime: self.started.elapsed(), background, refused_for })
    }

    fn renew(&self) {
        tracing::error!(
            "an endpoint of the model wants another Secret; the process ends, so that it starts again with the present content"
        );
        self.stop.cancel();
    }
}

/// A command in the background would end with the process, so it gets longer.
fn due_in(settled: Duration, Facts { first_of_pod, uptime, background, refused_for }: Facts) -> Duration {
    let patience = if background { settled } else { settled / SOONER };
    let unpunished = if first_of_pod { Duration::ZERO } else { settled.saturating_sub(uptime) };
    patience.saturating_sub(refused_for).max(unpunished)
}

/// Whether the Pod has not yet recorded itself as a holder of the volume. A record that cannot be read says no: then the process waits longer than it would
/// have to.
fn is_first_of_pod(session: &Path, pod_uid: &str) -> bool {
    match Lock::holders(&*disk(), session) {
        Ok(holders) => holders.iter().all(|holder| holder.pod_uid != pod_uid),
        // Nobody has ever held it.
        Err(Error::Disk { source, .. }) => source.kind() == ErrorKind::NotFound,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use yoi_session::Holder;

    use super::*;

    #[test]
    fn the_process_ends_a_minute_after_a_refusal_and_never_when_the_kubelet_would_hold_its_next_start_back() {
        let due = |first_of_pod: bool, background: bool, uptime: u64, refused_for: u64| {
            let (uptime, refused_for) = (Duration::from_secs(uptime), Duration::from_secs(refused_for));
            due_in(Duration::from_secs(610), Facts { first_of_pod, uptime, background, refused_for }).as_secs()
        };
        for (first_of_pod, background, uptime, refused_for, expected) in [
            (true, false, 1, 0, 61),
            (true, false, 62, 61, 0),
            (true, true, 62, 61, 549),
            // The next process of the Pod waits until the kubelet has forgotten this end.
            (false, false, 1, 0, 609),
            (false, false, 100, 99, 510),
            (false, false, 610, 609, 0),
            // A key that expires after a day.
            (false, false, 86_400, 0, 61),
            (false, true, 86_400, 61, 549),
        ] {
            assert_eq!(due(first_of_pod, background, uptime, refused_for), expected, "{first_of_pod} {background} {uptime} {refused_for}");
        }
    }

    #[test]
    fn the_lock_of_the_session_tells_the_first_process_of_a_pod_from_those_that_follow_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let start = |run_generation: u64, pod_uid: &str| {
            let is_first = is_first_of_pod(folder.path(), pod_uid);
            drop(Lock::take(disk(), folder.path(), Holder { run_generation, pod_uid: pod_uid.to_owned() }).unwrap());
            is_first
        };
        assert!(start(1, "a"));
        assert!(!start(1, "a"));
        assert!(start(2, "b"), "another Pod with the same volume");
        assert!(!start(2, "b"));
        std::fs::write(folder.path().join("lock"), "damaged\n").unwrap();
        assert!(!is_first_of_pod(folder.path(), "c"));
    }
}
