//! Whether a base gets on: a node that cannot fill it must not keep a project waiting.

use std::time::Duration;

use yoi_crds::Condition;
use yoi_crds::condition::find;
use yoi_crds::reason::{self, condition};

use super::base_set::ObservedBase;
use crate::duration::time_left;
use crate::nodes::Node;

/// How long a node may take to begin with a base, or may be NotReady, before another node gets a base. A node that stopped without a report makes
/// nothing, and its WorkspaceNode still offers its providers.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the source may fail to be fetched or prepared on the node of a consumer. It was on another node before, so a consumer need not wait here.
const FETCH_PATIENCE: Duration = Duration::from_secs(180);

/// How far a base is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Sealed,
    /// It is being made and filled. After so long it may be stuck, even if nothing changes until then.
    UnderWay(Option<Duration>),
    /// Nothing was done for too long, for this reason. It goes on if the reason goes away.
    Stuck(String),
}

impl Progress {
    /// `node` is the base's; `None` when it does not exist.
    pub(crate) fn new(base: ObservedBase<'_>, node: Option<&Node>, now: jiff::Timestamp) -> Self {
        if base.is_sealed() {
            return Progress::Sealed;
        }
        let conditions = base.workspace.conditions();
        let populated = find(conditions, condition::POPULATED);
        if let Some(populated) = populated.filter(|c| c.reason == reason::POPULATOR_NOT_RUNNING) {
            return Progress::Stuck(populated.message.clone());
        }
        let not_ready = node.and_then(|node| node.not_ready_since).map(|since| (since, "it is not ready".to_owned()));
        let created = base.workspace.meta().creation_timestamp.as_ref().map_or(now, |t| t.0);
        let not_begun = (!base.workspace.is_true(condition::PROVISIONED)).then(|| {
            let why = find(conditions, condition::PROVISIONED).map(|c| c.message.clone());
            (created, why.unwrap_or_else(|| "its yoi-agent-shim has not made the tree".to_owned()))
        });
        let has_failed = |c: &&Condition| c.reason == reason::POPULATE_FAILED || c.reason == reason::PREPARE_FAILED;
        let failed = populated.filter(has_failed).filter(|_| base.follows_consumer());
        let not_fetched = failed.map(|c| (created, FETCH_PATIENCE, c.message.clone()));
        let silent = node.and_then(Node::silent_since).map(|(since, why)| (since, why.to_owned()));
        let waits = not_ready.into_iter().chain(silent).chain(not_begun).map(|(since, why)| (since, PATIENCE, why)).chain(not_fetched);
        let mut left: Option<Duration> = None;
        for (since, patience, why) in waits {
            match time_left(since, patience, now) {
                None => return Progress::Stuck(why),
                Some(more) => left = left.into_iter().chain([more]).min(),
            }
        }
        Progress::UnderWay(left)
    }
}
