//! The making door: brings each workspace's tree to where its object says, and says so. Level triggered; every deed may be said twice.

use std::time::Duration;

use tokio::time::Instant;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::ConditionValue;
use yoi_crds::reason::{self, condition as type_};
use yoi_workspace::{CloneAccess, ErrorReason, Making, Marker, Place, ProviderKind, Record, Uid};

use super::state::{Error, ShimState};
use crate::chain::whole;
use crate::decide::orphan;
use crate::decide::provision::{self, Action, Observed};
use crate::decide::workspace_status::{self, StatusUpdate, condition_reason, selected_provider};
use crate::mounter::client::MounterFailure;

/// What came of looking at one workspace.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub update: StatusUpdate,
    pub next: Next,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until something changes.
    AwaitChange,
    /// Try again after a while.
    Retry,
    /// Nothing of it is on this node: the object may go.
    RemoveFinalizer,
}

impl Outcome {
    fn await_change(update: StatusUpdate) -> Self {
        Outcome { update, next: Next::AwaitChange }
    }
    fn retry(update: StatusUpdate) -> Self {
        Outcome { update, next: Next::Retry }
    }
}

/// Looks, decides and acts, once. An error is one that no condition can tell: the journal's, or a mounter that does not answer.
pub async fn provision(state: &ShimState, ws: &AgentWorkspace, uid: Uid) -> Result<Outcome, Error> {
    // Whoever mounts, unmounts or sweeps waits for this; those who wait for the tree do not hold it.
    let _tree = state.tree_locks.lock(uid).await;
    let (record, unknown) = record_or_damage(state.record(uid).await)?;
    let origin = match ws.status.as_ref().and_then(|s| s.origin.as_ref()).and_then(|o| o.workspace_uid.as_deref()?.parse().ok()) {
        Some(from) if record.is_none() => record_or_damage(state.record(from).await)?.0,
        _ => None,
    };
    let mounts = state.publish_records.of_tree(uid);
    let offers = state.offers();
    let lost = state.damage.lost.contains(&uid);
    let seen = Observed {
        node: &state.node,
        record: record.as_ref(),
        origin: origin.as_ref(),
        offers: &offers,
        mounts,
        lost,
        unknown: unknown.as_deref(),
    };
    let action = provision::decide(ws, &seen);
    tracing::debug!(?action, "decided");
    match action {
        Action::Ignore => Ok(Outcome::await_change(StatusUpdate::default())),
        Action::Refuse { provider, reason, message } => {
            let chosen = provider.and_then(|p| workspace_status::previous_selection(ws, p));
            Ok(Outcome::retry(workspace_status::not_provisioned(chosen, reason, &message)))
        }
        Action::Adopt => adopt(state, ws, uid).await,
        Action::Keep { provider } => Ok(Outcome::await_change(workspace_status::provisioned_status(ws, provider, None, None, mounts))),
        Action::Create { provider, because, making } => create(state, ws, uid, provider, &because, making).await,
        Action::Seal { provider } => seal(state, ws, uid, provider, mounts).await,
        Action::WaitForPods => {
            let message = format!("{mounts} mounts of the tree are left");
            let update = StatusUpdate::default().with(type_::CLEANED_UP, ConditionValue::no(reason::WAITING_FOR_PODS, message));
            Ok(Outcome::retry(update.with(type_::IN_USE, workspace_status::in_use_verdict(mounts))))
        }
        Action::Destroy => destroy(state, uid, record).await,
    }
}

/// The record, or what is wrong with it: one that is damaged keeps no other from being worked on.
fn record_or_damage(read: Result<Option<Record>, Error>) -> Result<(Option<Record>, Option<String>), Error> {
    match read {
        Err(Error::Journal(error)) if error.damage().is_some() => Ok((None, error.damage())),
        read => Ok((read?, None)),
    }
}

/// Takes over a tree that its object says was made and the journal knows nothing of, if it stands.
async fn adopt(state: &ShimState, ws: &AgentWorkspace, uid: Uid) -> Result<Outcome, Error> {
    // Said as it is until the disk answers: what the object says now is all that is left of the tree's having been made.
    let found = state.mounter.inventory().await?;
    let marker = found.entries.into_iter().find(|e| e.uid == uid && e.place == Place::Live).and_then(|e| e.marker);
    let Some(Marker { provider, making, sealed, .. }) = marker else {
        let Action::Refuse { reason, message, .. } = provision::tree_lost(None) else {
            return Ok(Outcome::await_change(StatusUpdate::default()));
        };
        tracing::error!("a tree that stood is on no disk of this node");
        return Ok(Outcome::retry(workspace_status::not_provisioned(None, reason, &message)));
    };
    let (sealed, of) = (sealed.is_some(), orphan::journaled_name(ws));
    state
        .journal(move |j| {
            j.begin_create_of(uid, provider, making, of)?;
            j.created(uid)?;
            if sealed { j.begin_seal(uid).and_then(|()| j.sealed(uid)) } else { Ok(()) }
        })
        .await?;
    tracing::warn!(%provider, sealed, "took over a tree that no journal record named");
    state.cache.notify(uid);
    let mounts = state.publish_records.of_tree(uid);
    Ok(Outcome::await_change(workspace_status::provisioned_status(ws, provider, None, None, mounts)))
}

async fn create(
    state: &ShimState,
    ws: &AgentWorkspace,
    uid: Uid,
    provider: ProviderKind,
    because: &str,
    making: Making,
) -> Result<Outcome, Error> {
    let (started, of) = (Instant::now(), orphan::journaled_name(ws));
    state.journal(move |j| j.begin_create_of(uid, provider, making, of)).await?;
    let made = state.mounter.make(uid, provider, making).await;
    state.metrics.made(provider, made.is_ok(), started.elapsed());
    if let Err(failure) = made {
        let (reason, message) = refusal(failure)?;
        // Nothing was made, so nothing binds the next attempt to this provider and source.
        state.journal(move |j| j.begin_destroy(uid).and_then(|()| j.destroyed(uid))).await?;
        return Ok(Outcome::retry(workspace_status::not_provisioned(Some(selected_provider(provider, because)), reason, &message)));
    }
    state.journal(move |j| j.created(uid)).await?;
    tracing::info!(%provider, took = ?started.elapsed(), "made a tree");
    state.cache.notify(uid);
    let reason = match making {
        Making::Empty { .. } => reason::TREE_CREATED,
        Making::Clone { access: CloneAccess::ReadWrite | CloneAccess::ReadOnly, .. } => reason::CLONE_CREATED,
    };
    Ok(Outcome::await_change(workspace_status::provisioned_status(
        ws,
        provider,
        Some(because),
        Some(reason),
        state.publish_records.of_tree(uid),
    )))
}

async fn seal(state: &ShimState, ws: &AgentWorkspace, uid: Uid, provider: ProviderKind, mounts: usize) -> Result<Outcome, Error> {
    let update = workspace_status::provisioned_status(ws, provider, None, None, mounts);
    state.journal(move |j| j.begin_seal(uid)).await?;
    let manifest = match state.mounter.seal(uid).await {
        Ok(manifest) => manifest,
        Err(failure) => {
            let (reason, message) = refusal(failure)?;
            return Ok(Outcome::retry(update.with(type_::SEALED, ConditionValue::no(reason, message))));
        }
    };
    state.journal(move |j| j.sealed(uid)).await?;
    tracing::info!(digest = manifest.digest, "sealed a base");
    let (volume, verdict) = workspace_status::sealed_status(&manifest);
    Ok(Outcome::await_change(StatusUpdate { volume: Some(volume), ..update.with(type_::SEALED, verdict) }))
}

async fn destroy(state: &ShimState, uid: Uid, record: Option<Record>) -> Result<Outcome, Error> {
    state.journal(move |j| j.begin_destroy(uid)).await?;
    // Without a record there should be nothing; the disk is asked all the same, because the finalizer is the last that knows of it.
    if let Err(failure) = state.mounter.destroy(uid).await {
        let (reason, message) = refusal(failure)?;
        return Ok(Outcome::retry(StatusUpdate::default().with(type_::CLEANED_UP, ConditionValue::no(reason, message))));
    }
    state.journal(move |j| j.destroyed(uid)).await?;
    if record.is_some() {
        tracing::info!("destroyed a tree");
    }
    let update = StatusUpdate::default().with(type_::CLEANED_UP, ConditionValue::yes(reason::DESTROYED, "nothing of it is on its node"));
    Ok(Outcome { update: update.with(type_::IN_USE, workspace_status::in_use_verdict(0)), next: Next::RemoveFinalizer })
}

/// The condition's reason and sentence; a mounter that cannot be heard is no fact about the tree.
fn refusal(failure: MounterFailure) -> Result<(reason::Reason, String), Error> {
    match failure {
        MounterFailure::Refused(refused) => {
            if matches!(refused.reason, ErrorReason::Foreign | ErrorReason::InvalidRequest | ErrorReason::BackendError) {
                tracing::error!(message = refused.message, "the disk refused");
            }
            Ok((condition_reason(refused.reason), refused.message))
        }
        failure @ (MounterFailure::Transport(_) | MounterFailure::Protocol) => {
            tracing::warn!(error = whole(&failure), "the mounter did not answer");
            Err(failure.into())
        }
    }
}

/// What is said when making takes so long that people ask.
pub fn slow_creation_status(ws: &AgentWorkspace) -> Option<StatusUpdate> {
    let status = ws.status.as_ref()?;
    let begun = ws.metadata.deletion_timestamp.is_none() && status.origin.is_some();
    let silent = yoi_crds::condition::find(&status.conditions, type_::PROVISIONED).is_none();
    let verdict = ConditionValue::no(reason::CREATING, "the tree is being made");
    (begun && silent).then(|| StatusUpdate::default().with(type_::PROVISIONED, verdict))
}

/// How long to wait after this many failures in a row.
pub fn backoff(failures: u32) -> Duration {
    Duration::from_millis(250).saturating_mul(1 << failures.min(8)).min(Duration::from_secs(60))
}

#[cfg(test)]
mod tests;
