//! How long things that are left over may stay.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::inventory::LOCAL_VOLUME;

const OURS: Duration = Duration::from_secs(45);
/// Limit for everything together, even if the things left over change all the time.
const ALL: Duration = Duration::from_secs(400);
/// Limit for things that wait for parts of Kubernetes: the storage provisioner, which tries again after 15 s, 30 s and 60 s when the API server
/// was killed during its work, and the endpoint controller.
pub const KUBERNETES: Duration = Duration::from_secs(240);

/// Each thing has its own deadline, from when it was first seen. For example, the provisioner gives up a Pod two minutes after everything was
/// killed, and only then is that Pod's folder left over.
#[derive(Default)]
pub struct Deadlines {
    started: Option<Instant>,
    seen: BTreeMap<String, Instant>,
}

impl Deadlines {
    /// Returns the things that are past their deadline, or all of them after [`ALL`]. Forgets things that are not in `left` any more.
    pub fn overdue(&mut self, left: &[String], now: Instant) -> Vec<String> {
        self.seen.retain(|thing, _| left.contains(thing));
        for thing in left {
            self.seen.entry(thing.clone()).or_insert(now);
        }
        let all = now.duration_since(*self.started.get_or_insert(now)) > ALL;
        let late = |(thing, since): (&String, &Instant)| (all || now.duration_since(*since) > time_allowed(thing)).then(|| thing.clone());
        self.seen.iter().filter_map(late).collect()
    }

    /// Starts all deadlines anew: the time so far was spent on waiting for Kubernetes.
    pub fn reset(&mut self) {
        self.seen.clear();
    }
}

fn time_allowed(thing: &str) -> Duration {
    let provisioners = [LOCAL_VOLUME, "volume pvc-"].iter().any(|kind| thing.starts_with(kind));
    if provisioners { KUBERNETES } else { OURS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_has_its_own_deadline() {
        let (mut deadlines, started) = (Deadlines::default(), Instant::now());
        let mut at = |second: u64, left: &[&str]| {
            let left: Vec<String> = left.iter().map(|thing| (*thing).to_owned()).collect();
            deadlines.overdue(&left, started + Duration::from_secs(second))
        };
        assert!(at(0, &["local-volume x"]).is_empty());
        assert!(at(111, &["local-volume x", "pod-folder y"]).is_empty(), "it has only just come");
        assert!(at(156, &["local-volume x", "pod-folder y"]).is_empty());
        assert_eq!(at(157, &["local-volume x", "pod-folder y"]), ["pod-folder y"]);
        assert!(at(158, &["local-volume x"]).is_empty());
        assert!(at(200, &["pod-folder y"]).is_empty(), "it had gone");
        assert_eq!(at(246, &["pod-folder y"]), ["pod-folder y"]);
        assert_eq!(at(401, &["pod-folder z"]), ["pod-folder z"], "always another");
    }

    #[test]
    fn the_provisioner_has_more_time_but_not_unlimited_time() {
        let (mut deadlines, started) = (Deadlines::default(), Instant::now());
        let left = ["volume pvc-1 of the claim x".to_owned()];
        assert!(deadlines.overdue(&left, started).is_empty());
        assert!(deadlines.overdue(&left, started + KUBERNETES).is_empty());
        assert_eq!(deadlines.overdue(&left, started + KUBERNETES + Duration::from_secs(1)), left);
    }
}
