//! Provisions the tree of one workspace: observes, decides, acts. Level triggered; every action can be repeated.

use std::time::Duration;

use tokio::time::Instant;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::ConditionValue;
use yoi_crds::reason::{self, condition as type_};
use yoi_workspace::{CloneAccess, EntryLocation, ErrorReason, Marker, ProviderKind, Quota, Record, RecordDetails, TreeOrigin, Uid};

use super::error::Error;
use super::loans::{self, LoanReport};
use super::state::ShimState;
use crate::decide::orphan;
use crate::decide::provision::{self, Action, ObservedTree, TREE_LOST_MESSAGE};
use crate::decide::workspace_status::{self, StatusUpdate, condition_reason, selected_provider};
use crate::mounter::client::MounterFailure;
use crate::mounter::protocol::MounterRefusal;
use yoi_wire::error_chain;

/// The result of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub struct ProvisionOutcome {
    /// What to write into the status.
    pub update: StatusUpdate,
    /// What the controller does next.
    pub next: Next,
}

/// What the controller does after an attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait until something changes.
    AwaitChange,
    /// Try again after a while.
    Retry,
    /// Remove the finalizer: nothing of the workspace is left on this node.
    RemoveFinalizer,
}

impl ProvisionOutcome {
    fn await_change(update: StatusUpdate) -> Self {
        ProvisionOutcome { update, next: Next::AwaitChange }
    }
    fn retry(update: StatusUpdate) -> Self {
        ProvisionOutcome { update, next: Next::Retry }
    }
}

/// Observes, decides and acts once, and reports a data root that does not work. Fails only where no condition can say why: in the journal, or when the mounter does not answer.
pub async fn provision(state: &ShimState, ws: &AgentWorkspace, uid: Uid) -> Result<ProvisionOutcome, Error> {
    let mut outcome = provision_tree(state, ws, uid).await?;
    let is_here = ws.status.as_ref().and_then(|s| s.node_name.as_deref()) == Some(&state.node);
    let health = workspace_status::health(ws, state.data_root_failure().as_ref(), state.usages.get(uid).as_ref());
    let stays = is_here && ws.metadata.deletion_timestamp.is_none();
    if let Some(health) = health.filter(|_| stays) {
        outcome.update = outcome.update.with(type_::HEALTHY, health);
    }
    let scope = workspace_status::scope(ws, state.publish_records.covers_of_tree(uid), state.refused_cover(uid).as_deref());
    if let Some(scope) = scope.filter(|_| stays) {
        outcome.update = outcome.update.with(type_::SCOPE_ENFORCED, scope);
    }
    if is_here {
        let LoanReport { views, retry } = loans::settle(state, ws, uid).await?;
        let said_before = ws.status.as_ref().is_some_and(|status| !status.loans.is_empty());
        outcome.update.loans = Some(views).filter(|views| said_before || !views.is_empty());
        if retry && outcome.next == Next::AwaitChange {
            outcome.next = Next::Retry;
        }
    }
    Ok(outcome)
}

async fn provision_tree(state: &ShimState, ws: &AgentWorkspace, uid: Uid) -> Result<ProvisionOutcome, Error> {
    // A mount of this tree waits for the lock. A mount that waits for the tree does not hold it.
    let _tree = state.tree_locks.lock(uid).await;
    let (record, unknown) = record_or_damage(state.record(uid).await)?;
    let origin = match ws.status.as_ref().and_then(|s| s.origin.as_ref()).and_then(|o| o.workspace_uid.as_deref()?.parse().ok()) {
        Some(from) if record.is_none() => record_or_damage(state.record(from).await)?.0,
        _ => None,
    };
    let mounts = state.publish_records.count_for_tree(uid);
    let offers = state.offers();
    let lost = state.damage.lost.contains(&uid);
    let observed = ObservedTree {
        node: &state.node,
        record: record.as_ref(),
        origin: origin.as_ref(),
        offers: &offers,
        mounts,
        lost,
        unknown: unknown.as_deref(),
    };
    let action = provision::decide(ws, &observed);
    tracing::debug!(?action, "decided");
    match action {
        Action::Ignore => Ok(ProvisionOutcome::await_change(StatusUpdate::default())),
        Action::Refuse { provider, reason, message } => {
            let chosen = provider.and_then(|p| workspace_status::previous_selection(ws, p));
            Ok(ProvisionOutcome::retry(workspace_status::not_provisioned(chosen, reason, &message)))
        }
        Action::Adopt => adopt(state, ws, uid).await,
        Action::Keep { provider } => {
            Ok(ProvisionOutcome::await_change(workspace_status::provisioned_status(ws, provider, None, None, mounts)))
        }
        Action::Create { provider, because, making } => create(state, ws, uid, provider, &because, making).await,
        Action::Seal { provider } => seal(state, ws, uid, provider, mounts).await,
        Action::SetQuota { provider, quota } => {
            let update = workspace_status::provisioned_status(ws, provider, None, None, mounts);
            set_quota(state, uid, quota, update).await
        }
        Action::WaitForPods => {
            let message = format!("{mounts} mounts of the tree are left");
            let update = StatusUpdate::default().with(type_::CLEANED_UP, ConditionValue::no(reason::WAITING_FOR_PODS, message));
            Ok(ProvisionOutcome::retry(update.with(type_::IN_USE, workspace_status::in_use_value(mounts))))
        }
        Action::Destroy => Ok(destroyed_outcome(destroy_locked(state, uid, record.is_some()).await?)),
    }
}

/// The record, or what is wrong with it. A damaged record holds up no other tree.
fn record_or_damage(read: Result<Option<Record>, Error>) -> Result<(Option<Record>, Option<String>), Error> {
    match read {
        Err(Error::Journal(error)) if error.damage().is_some() => Ok((None, error.damage())),
        read => Ok((read?, None)),
    }
}

/// Writes the journal record of a tree that exists on disk and that its object says was provisioned.
async fn adopt(state: &ShimState, ws: &AgentWorkspace, uid: Uid) -> Result<ProvisionOutcome, Error> {
    // The status stays as it is until the disk answers: it is the only record that the tree was provisioned.
    let found = state.mounter.inventory().await?;
    let marker = found.entries.into_iter().find(|e| e.uid == uid && e.location == EntryLocation::Live).and_then(|e| e.marker);
    let Some(Marker { provider, origin, quota, sealed, .. }) = marker else {
        tracing::error!("a tree that stood is on no disk of this node");
        return Ok(ProvisionOutcome::retry(workspace_status::not_provisioned(None, reason::TREE_LOST, TREE_LOST_MESSAGE)));
    };
    let sealed = sealed.is_some();
    let details = RecordDetails { quota, object: orphan::journaled_name(ws), label: orphan::label(ws) };
    state
        .journal(move |j| {
            j.begin_create_for(uid, provider, origin, details)?;
            j.record_created(uid)?;
            if sealed { j.begin_seal(uid).and_then(|()| j.record_sealed(uid)) } else { Ok(()) }
        })
        .await?;
    tracing::warn!(%provider, sealed, "took over a tree that no journal record named");
    state.workspaces.notify(uid);
    let mounts = state.publish_records.count_for_tree(uid);
    Ok(ProvisionOutcome::await_change(workspace_status::provisioned_status(ws, provider, None, None, mounts)))
}

/// Changes the quota of a tree that stands.
async fn set_quota(state: &ShimState, uid: Uid, quota: Option<Quota>, update: StatusUpdate) -> Result<ProvisionOutcome, Error> {
    state.journal(move |j| j.begin_set_quota(uid, quota)).await?;
    match state.mounter.set_quota(uid, quota).await {
        Ok(done) => {
            tracing::info!(bytes = quota.map(Quota::bytes), ?done, "set a quota");
            Ok(ProvisionOutcome::await_change(update.with(type_::QUOTA_ENFORCED, workspace_status::quota_value(quota, &done))))
        }
        Err(failure) => {
            let (reason, message) = refusal(state, failure)?;
            Ok(ProvisionOutcome::retry(update.with(type_::QUOTA_ENFORCED, ConditionValue::no(reason, message))))
        }
    }
}

/// Sets the quota of a tree once more, and says whether it is enforced now. None while the disk does not answer.
pub async fn quota_again(state: &ShimState, uid: Uid, quota: Quota) -> Option<ConditionValue> {
    let _tree = state.tree_locks.lock(uid).await;
    match state.mounter.set_quota(uid, Some(quota)).await {
        Ok(done) => Some(workspace_status::quota_value(Some(quota), &done)),
        Err(failure) => refusal(state, failure).ok().map(|(reason, message)| ConditionValue::no(reason, message)),
    }
}

async fn create(
    state: &ShimState,
    ws: &AgentWorkspace,
    uid: Uid,
    provider: ProviderKind,
    because: &str,
    making: TreeOrigin,
) -> Result<ProvisionOutcome, Error> {
    let (started, quota) = (Instant::now(), provision::wanted_quota(ws));
    let details = RecordDetails { quota, object: orphan::journaled_name(ws), label: orphan::label(ws) };
    state
        .journal(move |j| {
            j.begin_create_for(uid, provider, making, details)?;
            // The record of an earlier attempt may have another one.
            j.begin_set_quota(uid, quota)
        })
        .await?;
    let made = match making {
        TreeOrigin::Empty { .. } | TreeOrigin::Clone { .. } => state.mounter.make(uid, provider, making).await.map(|()| None),
        TreeOrigin::Host { owner } => match provision::host_source(ws, &state.host_sources) {
            Ok(source) => state.mounter.capture(uid, provider, source, owner, provision::access_of_base(ws)).await,
            Err((_, message)) => Err(MounterRefusal { reason: ErrorReason::SourceForbidden, message }.into()),
        },
    };
    state.metrics.count_tree_created(provider, made.is_ok(), started.elapsed());
    let captured = match made {
        Ok(captured) => captured,
        Err(failure) => return not_made(state, uid, (provider, because), making, failure).await,
    };
    let because = &provision::captured_reason(because, captured.as_ref());
    // Nobody can mount a tree before it is recorded as made, so nothing is written to it before it has its quota.
    let enforced = match quota {
        None => None,
        Some(_) => match state.mounter.set_quota(uid, quota).await {
            Ok(enforced) => Some(workspace_status::quota_value(quota, &enforced)),
            Err(failure) => {
                let (reason, message) = refusal(state, failure)?;
                let chosen = selected_provider(provider, because);
                return Ok(ProvisionOutcome::retry(workspace_status::not_provisioned(Some(chosen), reason, &message)));
            }
        },
    };
    state.journal(move |j| j.record_created(uid)).await?;
    tracing::info!(%provider, took = ?started.elapsed(), "made a tree");
    state.workspaces.notify(uid);
    let reason = match making {
        TreeOrigin::Empty { .. } | TreeOrigin::Host { .. } => reason::TREE_CREATED,
        TreeOrigin::Clone { access: CloneAccess::ReadWrite | CloneAccess::ReadOnly, .. } => reason::CLONE_CREATED,
    };
    let mounts = state.publish_records.count_for_tree(uid);
    let update = workspace_status::provisioned_status(ws, provider, Some(because), Some(reason), mounts);
    Ok(ProvisionOutcome::await_change(match enforced {
        Some(enforced) => update.with(type_::QUOTA_ENFORCED, enforced),
        None => update,
    }))
}

/// What follows when the tree was not made.
async fn not_made(
    state: &ShimState,
    uid: Uid,
    (provider, because): (ProviderKind, &str),
    making: TreeOrigin,
    failure: MounterFailure,
) -> Result<ProvisionOutcome, Error> {
    let (reason, message) = match (making, refusal(state, failure)?) {
        // Nobody makes a folder of the host but a person.
        (TreeOrigin::Host { .. }, (reason, message)) if reason == reason::SOURCE_NOT_SEALED => (reason::SOURCE_NOT_FOUND, message),
        (TreeOrigin::Clone { from, .. }, (reason, message)) if reason == reason::SOURCE_NOT_SEALED => {
            let source = record_or_damage(state.record(from).await)?.0;
            let began_empty = source.is_some_and(|record| matches!(record.origin, TreeOrigin::Empty { .. }));
            (reason, message + provision::way_to_fork(provider, began_empty))
        }
        (_, refused) => refused,
    };
    // Nothing was made, so the next attempt may use another provider or source.
    state.journal(move |j| j.begin_destroy(uid).and_then(|()| j.record_destroyed(uid))).await?;
    let chosen = Some(selected_provider(provider, because));
    let update = workspace_status::not_provisioned(chosen, reason, &message);
    // Each attempt would visit the whole tree, and only a person makes it less deep. A folder of the host is looked at again: that person has no
    // other way to say that it is mended.
    let is_final = reason == reason::TREE_TOO_DEEP && matches!(making, TreeOrigin::Clone { .. });
    Ok(if is_final { ProvisionOutcome::await_change(update) } else { ProvisionOutcome::retry(update) })
}

async fn seal(state: &ShimState, ws: &AgentWorkspace, uid: Uid, provider: ProviderKind, mounts: usize) -> Result<ProvisionOutcome, Error> {
    let update = workspace_status::provisioned_status(ws, provider, None, None, mounts);
    state.journal(move |j| j.begin_seal(uid)).await?;
    let manifest = match state.mounter.seal(uid).await {
        Ok(manifest) => manifest,
        Err(failure) => {
            let (reason, message) = refusal(state, failure)?;
            return Ok(ProvisionOutcome::retry(update.with(type_::SEALED, ConditionValue::no(reason, message))));
        }
    };
    state.journal(move |j| j.record_sealed(uid)).await?;
    tracing::info!(digest = manifest.digest, "sealed a base");
    let (volume, value) = workspace_status::sealed_status(&manifest);
    Ok(ProvisionOutcome::await_change(StatusUpdate { volume: Some(volume), ..update.with(type_::SEALED, value) }))
}

/// Destroys the tree of a workspace that no longer exists, by its UID alone. The inner error says why it is still there: Pods mount it, or the disk
/// refused. The caller tries again later.
pub async fn destroy_unused_tree(state: &ShimState, uid: Uid) -> Result<Result<(), String>, Error> {
    let _tree = state.tree_locks.lock(uid).await;
    let mounts = state.publish_records.count_for_tree(uid);
    if mounts > 0 {
        return Ok(Err(format!("{mounts} mounts of the tree are left")));
    }
    let (record, _) = record_or_damage(state.record(uid).await)?;
    Ok(destroy_locked(state, uid, record.is_some()).await?.map_err(|(_, message)| message))
}

/// Destroys the tree while its lock is held. The inner error is the reason and message of a refusal.
async fn destroy_locked(state: &ShimState, uid: Uid, is_recorded: bool) -> Result<Result<(), (reason::Reason, String)>, Error> {
    state.journal(move |j| j.begin_destroy(uid)).await?;
    // The mounter is asked even without a record: once the finalizer is gone, nothing else would find a tree that is left.
    if let Err(failure) = state.mounter.destroy(uid).await {
        return Ok(Err(refusal(state, failure)?));
    }
    state.journal(move |j| j.record_destroyed(uid)).await?;
    if is_recorded {
        tracing::info!("destroyed a tree");
    }
    Ok(Ok(()))
}

fn destroyed_outcome(result: Result<(), (reason::Reason, String)>) -> ProvisionOutcome {
    match result {
        Err((reason, message)) => {
            ProvisionOutcome::retry(StatusUpdate::default().with(type_::CLEANED_UP, ConditionValue::no(reason, message)))
        }
        Ok(()) => {
            let update =
                StatusUpdate::default().with(type_::CLEANED_UP, ConditionValue::yes(reason::DESTROYED, "nothing of it is on its node"));
            let update = update.with(type_::IN_USE, workspace_status::in_use_value(0));
            ProvisionOutcome { update, next: Next::RemoveFinalizer }
        }
    }
}

/// ErrorReason and message of the condition. A mounter that does not answer says nothing about the tree, and is an error.
fn refusal(state: &ShimState, failure: MounterFailure) -> Result<(reason::Reason, String), Error> {
    match failure {
        MounterFailure::Refused(refused) => {
            state.note_refusal(&refused);
            if matches!(refused.reason, ErrorReason::Foreign | ErrorReason::InvalidRequest | ErrorReason::BackendError) {
                tracing::error!(message = refused.message, "the disk refused");
            }
            // Of a file system that has given up, the kernel's error says less than the probe has found out.
            let reason = match state.data_root_failure() {
                Some(failure) if refused.reason == ErrorReason::BackendError => failure.reason,
                Some(_) | None => condition_reason(refused.reason),
            };
            Ok((reason, refused.message))
        }
        failure @ (MounterFailure::Transport(_) | MounterFailure::Protocol) => {
            tracing::warn!(error = error_chain(&failure), "the mounter did not answer");
            Err(failure.into())
        }
    }
}

/// The status while a tree takes long to make, if no attempt has reported yet.
pub fn slow_creation_status(ws: &AgentWorkspace) -> Option<StatusUpdate> {
    let status = ws.status.as_ref()?;
    let is_provisioning = ws.metadata.deletion_timestamp.is_none() && status.origin.is_some();
    let unreported = yoi_crds::condition::find(&status.conditions, type_::PROVISIONED).is_none();
    let value = ConditionValue::no(reason::CREATING, "the tree is being made");
    (is_provisioning && unreported).then(|| StatusUpdate::default().with(type_::PROVISIONED, value))
}

/// The pause after this many failures in a row: it doubles from 500 ms up to 60 s.
pub fn backoff(failures: u32) -> Duration {
    Duration::from_millis(250).saturating_mul(1 << failures.min(8)).min(Duration::from_secs(60))
}
