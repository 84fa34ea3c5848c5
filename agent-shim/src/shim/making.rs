//! The making door: brings each workspace's tree to where its object says, and says so. Level triggered; every deed may be said twice.

use std::time::Duration;

use tokio::time::Instant;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::ConditionValue;
use yoi_crds::reason::{self, condition as type_};
use yoi_workspace::{CloneAccess, EntryLocation, ErrorReason, Marker, ProviderKind, Record, TreeOrigin, Uid};

use super::world::{Trouble, World};
use crate::chain::whole;
use crate::decide::making::{self, Deed, Seen};
use crate::decide::status::{self, Said, reason_of, selected};
use crate::decide::stray;
use crate::mounter::client::Failure;

/// What came of looking at one workspace.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub said: Said,
    pub next: Next,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until something changes.
    Rest,
    /// Try again after a while.
    Retry,
    /// Nothing of it is on this node: the object may go.
    LetGo,
}

impl Outcome {
    fn rest(said: Said) -> Self {
        Outcome { said, next: Next::Rest }
    }
    fn retry(said: Said) -> Self {
        Outcome { said, next: Next::Retry }
    }
}

/// Looks, decides and acts, once. An error is one that no condition can tell: the journal's, or a mounter that does not answer.
pub async fn work(world: &World, ws: &AgentWorkspace, uid: Uid) -> Result<Outcome, Trouble> {
    // Whoever mounts, unmounts or sweeps waits for this; those who wait for the tree do not hold it.
    let _tree = world.trees.take(uid).await;
    let (record, unknown) = readable(world.record(uid).await)?;
    let origin = match ws.status.as_ref().and_then(|s| s.origin.as_ref()).and_then(|o| o.workspace_uid.as_deref()?.parse().ok()) {
        Some(from) if record.is_none() => readable(world.record(from).await)?.0,
        _ => None,
    };
    let mounts = world.publications.of_tree(uid);
    let offers = world.offers();
    let lost = world.troubled.lost.contains(&uid);
    let seen = Seen {
        node: &world.node,
        record: record.as_ref(),
        origin: origin.as_ref(),
        offers: &offers,
        mounts,
        lost,
        unknown: unknown.as_deref(),
    };
    let deed = making::deed(ws, &seen);
    tracing::debug!(?deed, "decided");
    match deed {
        Deed::Nothing => Ok(Outcome::rest(Said::default())),
        Deed::Refuse { provider, reason, message } => {
            let chosen = provider.and_then(|p| status::selected_before(ws, p));
            Ok(Outcome::retry(status::unmade(chosen, reason, &message)))
        }
        Deed::Find => find(world, ws, uid).await,
        Deed::Rest { provider } => Ok(Outcome::rest(status::standing(ws, provider, None, None, mounts))),
        Deed::Make { provider, because, making } => make(world, ws, uid, provider, &because, making).await,
        Deed::Seal { provider } => seal(world, ws, uid, provider, mounts).await,
        Deed::WaitForPods => {
            let message = format!("{mounts} mounts of the tree are left");
            let said = Said::default().with(type_::CLEANED_UP, ConditionValue::no(reason::WAITING_FOR_PODS, message));
            Ok(Outcome::retry(said.with(type_::IN_USE, status::in_use(mounts))))
        }
        Deed::Destroy => destroy(world, uid, record).await,
    }
}

/// The record, or what is wrong with it: one that is damaged keeps no other from being worked on.
fn readable(read: Result<Option<Record>, Trouble>) -> Result<(Option<Record>, Option<String>), Trouble> {
    match read {
        Err(Trouble::Journal(error)) if error.damage().is_some() => Ok((None, error.damage())),
        read => Ok((read?, None)),
    }
}

/// Takes over a tree that its object says was made and the journal knows nothing of, if it stands.
async fn find(world: &World, ws: &AgentWorkspace, uid: Uid) -> Result<Outcome, Trouble> {
    // Said as it is until the disk answers: what the object says now is all that is left of the tree's having been made.
    let found = world.mounter.inventory().await?;
    let marker = found.entries.into_iter().find(|e| e.uid == uid && e.location == EntryLocation::Live).and_then(|e| e.marker);
    let Some(Marker { provider, origin, sealed, .. }) = marker else {
        let Deed::Refuse { reason, message, .. } = making::lost(None) else { return Ok(Outcome::rest(Said::default())) };
        tracing::error!("a tree that stood is on no disk of this node");
        return Ok(Outcome::retry(status::unmade(None, reason, &message)));
    };
    let (sealed, of) = (sealed.is_some(), stray::remembered(ws));
    world
        .journal(move |j| {
            j.begin_create_for(uid, provider, origin, of)?;
            j.record_created(uid)?;
            if sealed { j.begin_seal(uid).and_then(|()| j.record_sealed(uid)) } else { Ok(()) }
        })
        .await?;
    tracing::warn!(%provider, sealed, "took over a tree that no journal record named");
    world.cache.ring(uid);
    let mounts = world.publications.of_tree(uid);
    Ok(Outcome::rest(status::standing(ws, provider, None, None, mounts)))
}

async fn make(
    world: &World,
    ws: &AgentWorkspace,
    uid: Uid,
    provider: ProviderKind,
    because: &str,
    making: TreeOrigin,
) -> Result<Outcome, Trouble> {
    let (began, of) = (Instant::now(), stray::remembered(ws));
    world.journal(move |j| j.begin_create_for(uid, provider, making, of)).await?;
    let made = world.mounter.make(uid, provider, making).await;
    world.counts.made(provider, made.is_ok(), began.elapsed());
    if let Err(failure) = made {
        let (reason, message) = told(failure)?;
        // Nothing was made, so nothing binds the next attempt to this provider and source.
        world.journal(move |j| j.begin_destroy(uid).and_then(|()| j.record_destroyed(uid))).await?;
        return Ok(Outcome::retry(status::unmade(Some(selected(provider, because)), reason, &message)));
    }
    world.journal(move |j| j.record_created(uid)).await?;
    tracing::info!(%provider, took = ?began.elapsed(), "made a tree");
    world.cache.ring(uid);
    let reason = match making {
        TreeOrigin::Empty { .. } => reason::TREE_CREATED,
        TreeOrigin::Clone { access: CloneAccess::ReadWrite | CloneAccess::ReadOnly, .. } => reason::CLONE_CREATED,
    };
    Ok(Outcome::rest(status::standing(ws, provider, Some(because), Some(reason), world.publications.of_tree(uid))))
}

async fn seal(world: &World, ws: &AgentWorkspace, uid: Uid, provider: ProviderKind, mounts: usize) -> Result<Outcome, Trouble> {
    let said = status::standing(ws, provider, None, None, mounts);
    world.journal(move |j| j.begin_seal(uid)).await?;
    let manifest = match world.mounter.seal(uid).await {
        Ok(manifest) => manifest,
        Err(failure) => {
            let (reason, message) = told(failure)?;
            return Ok(Outcome::retry(said.with(type_::SEALED, ConditionValue::no(reason, message))));
        }
    };
    world.journal(move |j| j.record_sealed(uid)).await?;
    tracing::info!(digest = manifest.digest, "sealed a base");
    let (volume, verdict) = status::sealed(&manifest);
    Ok(Outcome::rest(Said { volume: Some(volume), ..said.with(type_::SEALED, verdict) }))
}

async fn destroy(world: &World, uid: Uid, record: Option<Record>) -> Result<Outcome, Trouble> {
    world.journal(move |j| j.begin_destroy(uid)).await?;
    // Without a record there should be nothing; the disk is asked all the same, because the finalizer is the last that knows of it.
    if let Err(failure) = world.mounter.destroy(uid).await {
        let (reason, message) = told(failure)?;
        return Ok(Outcome::retry(Said::default().with(type_::CLEANED_UP, ConditionValue::no(reason, message))));
    }
    world.journal(move |j| j.record_destroyed(uid)).await?;
    if record.is_some() {
        tracing::info!("destroyed a tree");
    }
    let said = Said::default().with(type_::CLEANED_UP, ConditionValue::yes(reason::DESTROYED, "nothing of it is on its node"));
    Ok(Outcome { said: said.with(type_::IN_USE, status::in_use(0)), next: Next::LetGo })
}

/// The condition's reason and sentence; a mounter that cannot be heard is no fact about the tree.
fn told(failure: Failure) -> Result<(reason::Reason, String), Trouble> {
    match failure {
        Failure::Refused(refused) => {
            if matches!(refused.reason, ErrorReason::Foreign | ErrorReason::InvalidRequest | ErrorReason::BackendError) {
                tracing::error!(message = refused.message, "the disk refused");
            }
            Ok((reason_of(refused.reason), refused.message))
        }
        failure @ (Failure::Unheard(_) | Failure::Misheard) => {
            tracing::warn!(error = whole(&failure), "the mounter did not answer");
            Err(failure.into())
        }
    }
}

/// What is said when making takes so long that people ask.
pub fn creating(ws: &AgentWorkspace) -> Option<Said> {
    let status = ws.status.as_ref()?;
    let begun = ws.metadata.deletion_timestamp.is_none() && status.origin.is_some();
    let silent = yoi_crds::condition::find(&status.conditions, type_::PROVISIONED).is_none();
    let verdict = ConditionValue::no(reason::CREATING, "the tree is being made");
    (begun && silent).then(|| Said::default().with(type_::PROVISIONED, verdict))
}

/// How long to wait after this many failures in a row.
pub fn pause(failures: u32) -> Duration {
    Duration::from_millis(250).saturating_mul(1 << failures.min(8)).min(Duration::from_secs(60))
}

#[cfg(test)]
mod tests;
