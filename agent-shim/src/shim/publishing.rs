//! Publishes volumes: waits until the tree is provisioned, writes the publish record, mounts. Never makes a tree and never calls the API server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::{Instrument, Span};
use yoi_crds::pod::Scope;
use yoi_workspace::mount::Cover;
use yoi_workspace::{CloneAccess, ErrorReason, Uid};

use super::change_list;
use super::error::Error;
use super::loans::{self, LentMount};
use super::metrics::PublishOutcome;
use super::runtime_store::RuntimeError;
use super::state::ShimState;
use crate::decide::publish::{self, Admission, KnownTree, Naming, PublishRequest, RequestedVolume};
use crate::mounter::client::MounterFailure;
use crate::mounter::log_context::LogContext;
use crate::runtime_digest::RuntimeDigest;
use crate::volume::{Lending, PodVolume, PublishRecord, PublishedVolume};
use yoi_wire::error_chain;

/// How long a call waits for its tree. The kubelet gives up after 120 s, and its back-off grows to 122 s: to wait here is always faster.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a call waits for a workspace that is not on this node once the workspaces of this node are listed. Its YoiPod may be gone, and the
/// kubelet cannot remove the Pod's directory while the call lasts.
const UNKNOWN_WORKSPACE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call waits for the operator to name the Pod while it names none. The operator takes the name back from a Pod that is to go and has no
/// tree, and that Pod may call once more.
const UNNAMED_POD_TIMEOUT: Duration = Duration::from_secs(10);

/// A volume was not mounted. The variants differ in what the kubelet must know.
#[derive(Debug, thiserror::Error)]
pub enum PublishFailure {
    /// Nothing is mounted. Another call may succeed once an object has changed.
    #[error("{0}")]
    Denied(String),
    /// Nothing is mounted yet. The sentence says what is missing.
    #[error("{0}")]
    NotYet(String),
    /// The mount failed and was cleaned up: nothing is mounted.
    #[error("{}", error_chain(.0))]
    Failed(Error),
    /// The mount failed and may be left behind: the kubelet must unpublish.
    #[error("{}", error_chain(.0))]
    Unclear(Error),
}

impl PublishFailure {
    /// How the call counts in the metrics.
    pub fn outcome(&self) -> PublishOutcome {
        match self {
            PublishFailure::Denied(_) => PublishOutcome::Refused,
            PublishFailure::NotYet(_) => PublishOutcome::NotYet,
            PublishFailure::Failed(_) | PublishFailure::Unclear(_) => PublishOutcome::Failed,
        }
    }
}

/// Mounts what is requested. Waits at most 90 s for the tree, and no longer than the operator names the Pod. A volume that shows it already stays as it is.
///
/// `context` says whom the call is for. It is asked again once the tree is there: the kubelet can be here before the watch has the workspace.
pub async fn publish(
    state: &Arc<ShimState>,
    request: PublishRequest,
    context: &(impl Fn() -> (LogContext, Span) + Sync),
) -> Result<(), PublishFailure> {
    let shows = wait_for_admission(state, &request).await.map_err(|error| match error {
        // An earlier call may have left a mount. After a final code the kubelet would never unpublish it.
        PublishFailure::Denied(why) if state.publish_records.get(&request.volume).is_some() => PublishFailure::NotYet(why),
        PublishFailure::Failed(error) if state.publish_records.get(&request.volume).is_some() => PublishFailure::Unclear(error),
        other => other,
    })?;
    // A task of its own: a mount that has started is finished or undone even if the kubelet cancels the call.
    let PublishRequest { volume, covers, lends, .. } = request;
    let state = state.clone();
    let (log_context, span) = context();
    let work = log_context.scope(async move { mount(&state, volume, shows, covers, lends).await });
    tokio::spawn(work.instrument(span)).await.map_err(|e| PublishFailure::Unclear(Error::Task(std::io::Error::other(e))))?
}

async fn wait_for_admission(state: &ShimState, request: &PublishRequest) -> Result<PublishedVolume, PublishFailure> {
    let started = Instant::now();
    let (uid, inline) = match &request.requested {
        RequestedVolume::Runtime(digest) if state.runtimes.has(digest) => return Ok(PublishedVolume::Runtime { digest: digest.clone() }),
        RequestedVolume::Runtime(digest) => {
            // Only the next version of this shim can install it. That version ends this process, and the kubelet then calls again at once.
            tokio::select! { () = state.stop.cancelled() => {}, () = tokio::time::sleep_until(started + PUBLISH_TIMEOUT) => {} }
            return Err(PublishFailure::NotYet(format!("node {} has no runtime {} yet", state.node, digest.as_str())));
        }
        RequestedVolume::Tree(uid) => (*uid, true),
        RequestedVolume::Claim(uid) => (*uid, false),
    };
    let mut changes = state.workspaces.subscribe(uid);
    let mut was_named = false;
    loop {
        changes.mark_unchanged();
        let why = match check_admission(state, request, uid, inline).await.map_err(PublishFailure::Failed)? {
            Admission::Admit(access) => {
                let (read_only, covers) = (access == CloneAccess::ReadOnly, request.covers.len());
                return Ok(PublishedVolume::Tree { tree: uid, read_only, covers, lending: None });
            }
            Admission::Deny(why) => return Err(PublishFailure::Denied(why)),
            Admission::Wait(why) => why,
        };
        tracing::debug!(why, "a mount waits");
        let wait = match state.workspaces.get(uid) {
            None if state.workspaces.is_synced() => UNKNOWN_WORKSPACE_TIMEOUT,
            None => PUBLISH_TIMEOUT,
            Some(ws) => match publish::naming(request.volume.pod, inline, &ws) {
                Naming::ThisPod => {
                    was_named = true;
                    PUBLISH_TIMEOUT
                }
                Naming::NoPod if was_named => Duration::ZERO,
                Naming::NoPod => UNNAMED_POD_TIMEOUT,
                Naming::AnotherPod | Naming::NotNeeded => PUBLISH_TIMEOUT,
            },
        };
        let deadline = started + wait;
        tokio::select! {
            changed = timeout_at(deadline, changes.changed()) => match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => changes = state.workspaces.subscribe(uid),
                Err(_) => return Err(PublishFailure::NotYet(why)),
            },
            () = state.stop.cancelled() => return Err(PublishFailure::NotYet(why)),
        }
    }
}

async fn check_admission(state: &ShimState, request: &PublishRequest, uid: Uid, inline: bool) -> Result<Admission, Error> {
    let record = match state.record(uid).await {
        // A damaged record denies its own tree only.
        Err(Error::Journal(error)) if error.damage().is_some() => return Ok(Admission::Deny(error.damage().unwrap_or_default())),
        read => read?,
    };
    let workspace = state.workspaces.get(uid);
    let before = state.publish_records.get(&request.volume).map(|p| p.shows);
    let published_before = matches!(before, Some(PublishedVolume::Tree { tree, .. }) if tree == uid);
    let lends = request.lends.is_some();
    let known = KnownTree { node: &state.node, workspace: workspace.as_deref(), record: record.as_ref(), published_before, lends };
    Ok(publish::admission(uid, request.volume.pod, inline, request.read_only, &known))
}

async fn mount(
    state: &Arc<ShimState>,
    volume: PodVolume,
    shows: PublishedVolume,
    covers: Vec<Cover>,
    lends: Option<Scope>,
) -> Result<(), PublishFailure> {
    let _volume = state.volume_locks.lock(volume.clone()).await;
    let before = state.publish_records.get(&volume).map(|p| p.shows);
    let done = match &shows {
        PublishedVolume::Tree { tree, read_only, covers: _, lending: _ } => {
            // A Pod keeps the access that it was given: the kubelet calls again for every volume when it restarts.
            let read_only = match &before {
                // One with covers has it by what they are: a record that was lost and made anew says only how the root is mounted.
                Some(PublishedVolume::Tree { tree: shown, read_only, covers: _, lending: _ }) if shown == tree && covers.is_empty() => {
                    *read_only
                }
                Some(PublishedVolume::Tree { .. } | PublishedVolume::Runtime { .. }) | None => *read_only,
            };
            publish_tree(state, &volume, *tree, read_only, covers, lends).await
        }
        PublishedVolume::Runtime { digest } => publish_runtime(state, &volume, digest).await,
    };
    let failure = match done {
        Ok(()) => return Ok(()),
        Err(Error::Lent(why)) => return Err(PublishFailure::NotYet(why)),
        Err(failure) => failure,
    };
    if let Error::Mounter(MounterFailure::Refused(refused)) = &failure {
        state.note_refusal(refused);
    }
    // After a lost answer the mount may exist, and an earlier mount may be in use. The kubelet must unpublish.
    if before.is_some() || matches!(failure, Error::Mounter(MounterFailure::Transport(_) | MounterFailure::Protocol)) {
        return Err(PublishFailure::Unclear(failure));
    }
    match unpublish_locked(state, &volume).await {
        Ok(()) => Err(PublishFailure::Failed(failure)),
        Err(error) => {
            tracing::warn!(error = error_chain(&error), "a failed mount was not cleaned up");
            Err(PublishFailure::Unclear(failure))
        }
    }
}

async fn publish_tree(
    state: &ShimState,
    volume: &PodVolume,
    tree: Uid,
    read_only: bool,
    covers: Vec<Cover>,
    lends: Option<Scope>,
) -> Result<(), Error> {
    let _loans = state.loan_locks.lock(tree).await;
    let LentMount { covers, lending, is_in_use } = loans::mount_of(state, volume, tree, covers, lends).await?;
    let may_lend = matches!(lending.as_deref(), Some(Lending::Lends { .. }));
    let _tree = state.tree_locks.lock(tree).await;
    let access = if read_only { CloneAccess::ReadOnly } else { CloneAccess::ReadWrite };
    state.journal(move |j| j.forget_object(tree)).await?;
    let shows = PublishedVolume::Tree { tree, read_only, covers: covers.len(), lending };
    state.publish_records.put(PublishRecord { volume: volume.clone(), shows }).await?;
    if may_lend {
        state.views.forget(volume);
    }
    let published = match is_in_use {
        // The Pod may run, and more of the tree be closed to it than anybody counts on yet.
        true => state.mounter.cover(volume.clone(), access, covers, false).await,
        false => state.mounter.publish(tree, volume.clone(), access, covers.clone()).await.inspect(|()| {
            if may_lend {
                state.views.set(volume.clone(), covers);
            }
        }),
    };
    let refused = match &published {
        Err(MounterFailure::Refused(refused)) if refused.reason == ErrorReason::CoverRefused => Some(refused.message.clone()),
        Ok(()) | Err(_) => None,
    };
    // The condition of the workspace says it: the kubelet tells it only in Events.
    state.set_refused_cover(tree, refused);
    if published.is_ok() || state.refused_cover(tree).is_some() {
        state.notify(tree);
    }
    Ok(published?)
}

async fn publish_runtime(state: &Arc<ShimState>, volume: &PodVolume, digest: &RuntimeDigest) -> Result<(), Error> {
    state.runtimes.prepare(volume.pod, digest)?;
    state.publish_records.put(PublishRecord { volume: volume.clone(), shows: PublishedVolume::Runtime { digest: digest.clone() } }).await?;
    change_list::open_socket(state, volume.pod)?;
    Ok(state.mounter.publish_runtime(volume.clone(), digest.clone()).await?)
}

/// Unmounts the volume and removes its record. Succeeds for a volume that is not known.
pub async fn unpublish(state: &ShimState, volume: &PodVolume) -> Result<(), Error> {
    let _volume = state.volume_locks.lock(volume.clone()).await;
    unpublish_locked(state, volume).await
}

async fn unpublish_locked(state: &ShimState, volume: &PodVolume) -> Result<(), Error> {
    state.mounter.unpublish(volume.clone()).await?;
    let shown = state.publish_records.get(volume).map(|p| p.shows);
    state.publish_records.remove(volume).await?;
    match shown {
        Some(PublishedVolume::Tree { tree, .. }) => {
            state.views.forget(volume);
            state.notify(tree);
            if state.data_root_failure().is_some() {
                // It may have been the last that kept the data root from being mounted anew.
                state.report_node.notify_one();
            }
        }
        Some(PublishedVolume::Runtime { .. }) | None => remove_unused_pod_dir(state, volume.pod)?,
    }
    Ok(())
}

/// Removes the Pod's directory with its last runtime volume.
fn remove_unused_pod_dir(state: &ShimState, pod: Uid) -> Result<(), RuntimeError> {
    let used = state.publish_records.of_pod(pod).iter().any(|p| matches!(p.shows, PublishedVolume::Runtime { .. }));
    if !used {
        state.sockets.close(pod);
        state.runtimes.remove(pod)?;
    }
    Ok(())
}

/// Serves the sockets of Pods that show the runtime, and removes the directories of Pods that do not. Call it once, after a restart.
pub async fn restore_pod_sockets(state: &Arc<ShimState>) -> Result<(), Error> {
    let mut kept = Vec::new();
    for record in state.publish_records.all() {
        if let PublishedVolume::Runtime { digest } = &record.shows {
            let pod = record.volume.pod;
            kept.push(pod);
            if !state.runtimes.pod_dir(pod).join(yoi_wire::identity::RUNTIME_BINARY).exists() {
                state.runtimes.prepare(pod, digest)?;
            }
            change_list::open_socket(state, pod)?;
        }
    }
    let shown = state.mounter.mounts().await?.shown;
    for pod in state.runtimes.pods().map_err(Error::Task)? {
        if !kept.contains(&pod) && !shown.iter().any(|s| s.volume.pod == pod) {
            state.runtimes.remove(pod)?;
        }
    }
    Ok(())
}
