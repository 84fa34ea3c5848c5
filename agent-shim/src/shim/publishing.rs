//! The mounting door: waits for the making door, mounts, remembers. Never makes a tree and never calls the API server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use yoi_workspace::{CloneAccess, Uid};

use super::runtime_store::RuntimeError;
use super::state::{Error, ShimState};
use crate::chain::whole;
use crate::decide::publish::{self, Admission, KnownTree, PublishRequest, RequestedVolume};
use crate::mounter::client::MounterFailure;
use crate::mounter::log_context::LogContext;
use crate::runtime_digest::RuntimeDigest;
use crate::volume::{PodVolume, PublishRecord, PublishedVolume};

/// The kubelet gives up after 120 s, and its own back-off grows to 122 s: waiting here is always the faster way.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(90);
/// For a workspace that the API server does not place on this node: its YoiPod may be gone already, the operator never says a word of it, and while
/// the call lasts the kubelet cannot take the Pod's folder away. Before the API server was heard nothing is known of any.
const UNKNOWN_WORKSPACE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a volume was not mounted, by what the kubelet must know of it.
#[derive(Debug, thiserror::Error)]
pub enum PublishFailure {
    /// Nothing is mounted; asking again may help once an object has changed.
    #[error("{0}")]
    Denied(String),
    /// Nothing is mounted yet; the sentence says what is missing.
    #[error("{0}")]
    NotYet(String),
    /// It failed and was cleaned up: nothing is mounted.
    #[error("{}", whole(.0))]
    Failed(Error),
    /// It failed, and something may be left: the kubelet must unpublish.
    #[error("{}", whole(.0))]
    Unclear(Error),
}

/// Mounts, within the kubelet's patience.
pub async fn publish(state: &Arc<ShimState>, request: PublishRequest) -> Result<(), PublishFailure> {
    let shows = wait_for_admission(state, &request).await.map_err(|error| match error {
        // An earlier call may have left a mount, and after a final code the kubelet would never take it down.
        PublishFailure::Denied(why) if state.publish_records.get(&request.volume).is_some() => PublishFailure::NotYet(why),
        PublishFailure::Failed(trouble) if state.publish_records.get(&request.volume).is_some() => PublishFailure::Unclear(trouble),
        other => other,
    })?;
    // The kubelet may hang up; a mount that has started is finished or undone all the same.
    let (state, volume) = (state.clone(), request.volume);
    let work = LogContext::current().scope(async move { mount(&state, volume, shows).await });
    tokio::spawn(work.in_current_span()).await.map_err(|e| PublishFailure::Unclear(Error::Task(std::io::Error::other(e))))?
}

async fn wait_for_admission(state: &ShimState, request: &PublishRequest) -> Result<PublishedVolume, PublishFailure> {
    let started = Instant::now();
    let (uid, inline) = match &request.requested {
        RequestedVolume::Runtime(digest) if state.runtimes.has(digest) => return Ok(PublishedVolume::Runtime { digest: digest.clone() }),
        RequestedVolume::Runtime(digest) => {
            // Only the next version of this shim brings it: its start ends this call, and the kubelet asks again at once.
            tokio::select! { () = state.stop.cancelled() => {}, () = tokio::time::sleep_until(started + PUBLISH_TIMEOUT) => {} }
            return Err(PublishFailure::NotYet(format!("node {} has no runtime {} yet", state.node, digest.as_str())));
        }
        RequestedVolume::Tree(uid) => (*uid, true),
        RequestedVolume::Claim(uid) => (*uid, false),
    };
    let mut changes = state.cache.subscribe(uid);
    loop {
        changes.mark_unchanged();
        let why = match check_admission(state, request, uid, inline).await.map_err(PublishFailure::Failed)? {
            Admission::Admit(access) => return Ok(PublishedVolume::Tree { tree: uid, read_only: access == CloneAccess::ReadOnly }),
            Admission::Deny(why) => return Err(PublishFailure::Denied(why)),
            Admission::Wait(why) => why,
        };
        tracing::debug!(why, "a mount waits");
        let unknown = state.cache.is_synced() && state.cache.get(uid).is_none();
        let deadline = started + if unknown { UNKNOWN_WORKSPACE_TIMEOUT } else { PUBLISH_TIMEOUT };
        tokio::select! {
            changed = timeout_at(deadline, changes.changed()) => match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => changes = state.cache.subscribe(uid),
                Err(_) => return Err(PublishFailure::NotYet(why)),
            },
            () = state.stop.cancelled() => return Err(PublishFailure::NotYet(why)),
        }
    }
}

async fn check_admission(state: &ShimState, request: &PublishRequest, uid: Uid, inline: bool) -> Result<Admission, Error> {
    let record = match state.record(uid).await {
        // Of one tree nothing is known; the others are mounted as ever.
        Err(Error::Journal(error)) if error.damage().is_some() => return Ok(Admission::Deny(error.damage().unwrap_or_default())),
        read => read?,
    };
    let workspace = state.cache.get(uid);
    let before = state.publish_records.get(&request.volume).map(|p| p.shows);
    let published_before = matches!(before, Some(PublishedVolume::Tree { tree, .. }) if tree == uid);
    let known = KnownTree { node: &state.node, workspace: workspace.as_deref(), record: record.as_ref(), published_before };
    Ok(publish::admission(uid, request.volume.pod, inline, request.read_only, &known))
}

async fn mount(state: &Arc<ShimState>, volume: PodVolume, shows: PublishedVolume) -> Result<(), PublishFailure> {
    let _volume = state.volume_locks.lock(volume.clone()).await;
    let before = state.publish_records.get(&volume).map(|p| p.shows);
    let done = match &shows {
        PublishedVolume::Tree { tree, read_only } => {
            // Pods keep what they were given: the kubelet asks again for every volume when it restarts.
            let read_only = match &before {
                Some(PublishedVolume::Tree { tree: shown, read_only }) if shown == tree => *read_only,
                Some(PublishedVolume::Tree { .. } | PublishedVolume::Runtime { .. }) | None => *read_only,
            };
            publish_tree(state, &volume, *tree, read_only).await
        }
        PublishedVolume::Runtime { digest } => publish_runtime(state, &volume, digest).await,
    };
    let Err(trouble) = done else { return Ok(()) };
    // Lost on the way, the mount may be there; and one that was there before may be in use. The kubelet is told to unpublish.
    if before.is_some() || matches!(trouble, Error::Mounter(MounterFailure::Transport(_) | MounterFailure::Protocol)) {
        return Err(PublishFailure::Unclear(trouble));
    }
    match unpublish_locked(state, &volume).await {
        Ok(()) => Err(PublishFailure::Failed(trouble)),
        Err(error) => {
            tracing::warn!(error = whole(&error), "a failed mount was not cleaned up");
            Err(PublishFailure::Unclear(trouble))
        }
    }
}

async fn publish_tree(state: &ShimState, volume: &PodVolume, tree: Uid, read_only: bool) -> Result<(), Error> {
    let _tree = state.tree_locks.lock(tree).await;
    let access = if read_only { CloneAccess::ReadOnly } else { CloneAccess::ReadWrite };
    state.journal(move |j| j.shown(tree)).await?;
    state.publish_records.put(PublishRecord { volume: volume.clone(), shows: PublishedVolume::Tree { tree, read_only } }).await?;
    state.mounter.publish(tree, volume.clone(), access).await?;
    state.notify(tree);
    Ok(())
}

async fn publish_runtime(state: &Arc<ShimState>, volume: &PodVolume, digest: &RuntimeDigest) -> Result<(), Error> {
    state.runtimes.prepare(volume.pod, digest)?;
    state.publish_records.put(PublishRecord { volume: volume.clone(), shows: PublishedVolume::Runtime { digest: digest.clone() } }).await?;
    state.sockets.open(state, volume.pod).map_err(|source| RuntimeError::Prepare { pod: volume.pod, source })?;
    Ok(state.mounter.publish_runtime(volume.clone(), digest.clone()).await?)
}

/// Unmounts and forgets. Unknown is done.
pub async fn unpublish(state: &ShimState, volume: &PodVolume) -> Result<(), Error> {
    let _volume = state.volume_locks.lock(volume.clone()).await;
    unpublish_locked(state, volume).await
}

async fn unpublish_locked(state: &ShimState, volume: &PodVolume) -> Result<(), Error> {
    state.mounter.unpublish(volume.clone()).await?;
    let shown = state.publish_records.get(volume).map(|p| p.shows);
    state.publish_records.remove(volume).await?;
    match shown {
        Some(PublishedVolume::Tree { tree, .. }) => state.notify(tree),
        Some(PublishedVolume::Runtime { .. }) | None => remove_unused_pod_dir(state, volume.pod)?,
    }
    Ok(())
}

/// The Pod's folder goes with its last runtime volume.
fn remove_unused_pod_dir(state: &ShimState, pod: Uid) -> Result<(), RuntimeError> {
    let used = state.publish_records.of_pod(pod).iter().any(|p| matches!(p.shows, PublishedVolume::Runtime { .. }));
    if !used {
        state.sockets.close(pod);
        state.runtimes.remove(pod)?;
    }
    Ok(())
}

/// After a restart: the sockets of the Pods that are shown the runtime, and no folder for the others.
pub async fn restore_pod_sockets(state: &Arc<ShimState>) -> Result<(), Error> {
    let mut kept = Vec::new();
    for record in state.publish_records.all() {
        if let PublishedVolume::Runtime { digest } = &record.shows {
            let pod = record.volume.pod;
            kept.push(pod);
            if !state.runtimes.pod_dir(pod).join(yoi_wire::identity::RUNTIME_BINARY).exists() {
                state.runtimes.prepare(pod, digest)?;
            }
            state.sockets.open(state, pod).map_err(|source| RuntimeError::Prepare { pod, source })?;
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
