//! What the trees of this node take: measured in rounds, remembered, and written to their status when it changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tokio::time::{Instant, sleep};
use yoi_crds::AgentWorkspace;
use yoi_crds::reason::condition as type_;
use yoi_wire::error_chain;
use yoi_workspace::{DiskUsage, Uid};

use super::provisioning;
use super::state::ShimState;
use super::workspace_report::WorkspaceReporter;
use super::workspaces::uid_of;
use crate::decide::workspace_status::{self, StatusUpdate};

/// A status is written at most once in this time.
const ROUND: Duration = Duration::from_secs(60);
/// Where nothing counts, each file is visited: then the rounds take at most this part of the time.
const SHARE: u32 = 20;
/// The longest pause between two rounds, also after one that a file system held up.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);

#[derive(Clone, Copy)]
struct Measured {
    usage: DiskUsage,
    /// Whether a Pod had the tree mounted, so that it may have changed since.
    was_in_use: bool,
}

/// The last figures of each tree.
#[derive(Default)]
pub struct TreeUsages(Mutex<HashMap<Uid, Measured>>);

impl TreeUsages {
    /// The last figures of a tree; None if it was not measured yet.
    pub fn get(&self, uid: Uid) -> Option<DiskUsage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).map(|measured| measured.usage)
    }

    /// The sum of what the trees have for themselves, in bytes.
    pub fn exclusive_bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(|measured| measured.usage.exclusive_bytes).sum()
    }

    fn is_due(&self, uid: Uid, in_use: bool) -> bool {
        in_use || self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).is_none_or(|measured| measured.was_in_use)
    }

    fn set(&self, uid: Uid, usage: DiskUsage, was_in_use: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, Measured { usage, was_in_use });
    }

    fn retain(&self, is_known: impl Fn(Uid) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|uid, _| is_known(*uid));
    }
}

/// Runs until [`ShimState::stop`] is cancelled.
pub async fn run(state: Arc<ShimState>, client: Client) {
    let reporter = WorkspaceReporter::new(client, &state.node);
    let mut pause = ROUND;
    loop {
        tokio::select! {
            () = state.stop.cancelled() => return,
            () = sleep(pause) => {}
        }
        let started = Instant::now();
        state.usages.retain(|uid| state.workspaces.get(uid).is_some());
        for uid in state.workspaces.all().iter().filter_map(|ws| uid_of(ws)) {
            // Written at once: an update has all that this node says of the workspace, as it is known now.
            let Some((ws, update)) = measure(&state, uid).await else { continue };
            if let Err(error) = reporter.apply(&state.workspaces, &ws, update, Timestamp::now()).await {
                tracing::warn!(error = error_chain(&error), "failed to report what a tree takes");
            }
        }
        pause = (started.elapsed() * SHARE).clamp(ROUND, LONGEST_PAUSE);
    }
}

/// Measures a tree that may have changed. Returns the workspace as it is known afterwards, and what is to be written to its status.
pub async fn measure(state: &ShimState, uid: Uid) -> Option<(Arc<AgentWorkspace>, StatusUpdate)> {
    let known = || state.workspaces.get(uid).filter(|ws| is_measured(ws));
    known()?;
    let in_use = state.publish_records.count_for_tree(uid) > 0;
    if !state.usages.is_due(uid, in_use) {
        return None;
    }
    let usage = match state.mounter.usage(uid).await {
        Ok(usage) => usage,
        Err(error) => {
            tracing::debug!(%uid, error = error_chain(&error), "a tree could not be measured");
            return None;
        }
    };
    state.usages.set(uid, usage, in_use);
    let latest = known()?;
    let update = StatusUpdate { volume: workspace_status::measured_volume(&latest, &usage), ..StatusUpdate::default() };
    let update = match workspace_status::quota_to_check(&latest, &usage) {
        Some(quota) => update.with(type_::QUOTA_ENFORCED, provisioning::quota_again(state, uid, quota).await?),
        None => update,
    };
    let update = match workspace_status::health(&latest, state.data_root_failure().as_ref(), Some(&usage)) {
        Some(health) => update.with(type_::HEALTHY, health),
        None => update,
    };
    Some((latest, update))
}

/// Whether the workspace has a tree that agents write.
fn is_measured(ws: &AgentWorkspace) -> bool {
    let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let stands = yoi_crds::condition::is_true(conditions, type_::PROVISIONED);
    stands && ws.spec.base.is_none() && ws.metadata.deletion_timestamp.is_none()
}
