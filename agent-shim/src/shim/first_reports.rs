//! Reports that a tree was made together with its first mount. Where a Pod waits for the tree, the mount follows at once, and two writes of the object
//! become one.
//!
//! Nothing waits for the earlier write: the mount knows from the journal that the tree stands, and an agent is ready only after the mount.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{self, ConditionStatus, ConditionValue};
use yoi_crds::reason::{self, condition as type_};
use yoi_workspace::Uid;

use crate::decide::workspace_status::StatusUpdate;

/// How long a report waits for the mount: the kubelet may be busy, or the Pod on its way out.
const MOUNT_FOLLOWS: Duration = Duration::from_secs(1);
/// The conditions that the making of a tree decides.
const OF_MAKING: [&str; 3] = [type_::PROVIDER_SELECTED, type_::PROVISIONED, type_::QUOTA_ENFORCED];

/// The reports that wait, by tree. They are lost with the process: then the tree is reported as found in the journal.
#[derive(Default)]
pub struct FirstReports(Mutex<HashMap<Uid, Waiting>>);

struct Waiting {
    made: StatusUpdate,
    since: Instant,
}

impl FirstReports {
    /// Returns what is to be reported now, with what has waited.
    ///
    /// # Errors
    /// The report waits, for so long at most.
    pub fn settle(&self, ws: &AgentWorkspace, uid: Uid, update: StatusUpdate, now: Instant) -> Result<StatusUpdate, Duration> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of a workspace that is gone, nobody asks any more.
        all.retain(|of, waiting| *of == uid || now.saturating_duration_since(waiting.since) < 10 * MOUNT_FOLLOWS);
        let (since, update) = match all.remove(&uid) {
            Some(Waiting { made, since }) => (since, with_making(update, made)),
            None => (now, update),
        };
        let left = MOUNT_FOLLOWS.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero());
        match left.filter(|_| mount_follows(ws, &update)) {
            Some(left) => {
                all.insert(uid, Waiting { made: update, since });
                Err(left)
            }
            None => Ok(update),
        }
    }
}

/// The update; where it only found the tree in the journal, with the conditions of `made`.
fn with_making(update: StatusUpdate, made: StatusUpdate) -> StatusUpdate {
    let is_found = value(&update, type_::PROVISIONED).is_some_and(|of| of.reason == reason::ADOPTED);
    if !is_found {
        return update;
    }
    let of_making = made.conditions.into_iter().filter(|(of, _)| OF_MAKING.contains(of));
    let update = StatusUpdate { provider: made.provider.or(update.provider.clone()), ..update };
    of_making.fold(update, |update, (of, value)| update.with(of, value))
}

fn mount_follows(ws: &AgentWorkspace, update: &StatusUpdate) -> bool {
    let status = ws.status.as_ref();
    let is_reported = status.is_some_and(|status| condition::is_true(&status.conditions, type_::PROVISIONED));
    let is_expected = ws.metadata.deletion_timestamp.is_none() && status.is_some_and(|status| status.pod_uid.is_some());
    let is_made = value(update, type_::PROVISIONED).is_some_and(|of| of.status == ConditionStatus::True && of.reason != reason::ADOPTED);
    let is_mounted = value(update, type_::IN_USE).is_some_and(|of| of.status == ConditionStatus::True);
    is_made && is_expected && !is_reported && !is_mounted
}

fn value<'a>(update: &'a StatusUpdate, type_: &str) -> Option<&'a ConditionValue> {
    update.conditions.iter().find(|(of, _)| *of == type_).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use yoi_workspace::ProviderKind;

    use super::*;
    use crate::decide::workspace_status::provisioned_status;

    fn ws(status: serde_json::Value) -> AgentWorkspace {
        serde_json::from_value(json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "w" },
            "spec": { "source": { "empty": {} } }, "status": status }))
        .unwrap()
    }

    fn reasons(update: &StatusUpdate) -> Vec<&str> {
        [type_::PROVISIONED, type_::IN_USE].iter().filter_map(|of| value(update, of)).map(|value| value.reason.as_str()).collect()
    }

    #[test]
    fn a_tree_is_reported_as_made_with_its_mount_or_when_none_comes() {
        let uid: Uid = "00000000-0000-4000-8000-000000000001".parse().unwrap();
        let (all, begin) = (FirstReports::default(), Instant::now());
        let (expected, alone) = (ws(json!({ "podUID": "p" })), ws(json!({})));
        let made = |ws| provisioned_status(ws, ProviderKind::Copy, Some("it is there"), Some(reason::TREE_CREATED), 0);
        let found = |ws, mounts| provisioned_status(ws, ProviderKind::Copy, None, None, mounts);

        assert_eq!(all.settle(&expected, uid, made(&expected), begin), Err(MOUNT_FOLLOWS));
        let update = all.settle(&expected, uid, found(&expected, 1), begin + MOUNT_FOLLOWS / 4).unwrap();
        assert_eq!(reasons(&update), ["TreeCreated", "Published"]);
        assert_eq!(update.provider.map(|provider| provider.reason), Some("it is there".to_owned()));

        assert!(all.settle(&expected, uid, made(&expected), begin).is_err());
        assert_eq!(all.settle(&expected, uid, found(&expected, 0), begin + MOUNT_FOLLOWS / 4), Err(MOUNT_FOLLOWS * 3 / 4));
        let update = all.settle(&expected, uid, found(&expected, 0), begin + MOUNT_FOLLOWS).unwrap();
        assert_eq!(reasons(&update), ["TreeCreated", "NotPublished"], "no Pod came");

        let update = all.settle(&alone, uid, made(&alone), begin).unwrap();
        assert_eq!(reasons(&update), ["TreeCreated", "NotPublished"], "no Pod is expected");
        let update = all.settle(&expected, uid, found(&expected, 0), begin).unwrap();
        assert_eq!(reasons(&update), ["Adopted", "NotPublished"], "it was made before this process began");
    }

    #[test]
    fn what_goes_wrong_meanwhile_is_reported_at_once() {
        let uid: Uid = "00000000-0000-4000-8000-000000000001".parse().unwrap();
        let (all, begin, expected) = (FirstReports::default(), Instant::now(), ws(json!({ "podUID": "p" })));
        let made = provisioned_status(&expected, ProviderKind::Copy, Some("it is there"), Some(reason::TREE_CREATED), 0);
        assert!(all.settle(&expected, uid, made, begin).is_err());
        let lost = StatusUpdate::default().with(type_::PROVISIONED, ConditionValue::no(reason::TREE_LOST, "gone"));
        assert_eq!(all.settle(&expected, uid, lost.clone(), begin), Ok(lost));
    }
}
