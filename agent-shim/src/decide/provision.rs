//! The making door: what one workspace needs done on this node.

use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::source::ProviderName;
use yoi_crds::workspace::OriginKind;
use yoi_crds::{AgentWorkspace, name};
use yoi_workspace::{CloneAccess, Making, Owner, ProviderKind, ProviderOffer, ProviderRequest, Record, RecordState, Uid};

/// What the node knows of one workspace.
pub struct Observed<'a> {
    pub node: &'a str,
    /// Its own journal record.
    pub record: Option<&'a Record>,
    /// The journal record of what it is made from.
    pub origin: Option<&'a Record>,
    pub offers: &'a [ProviderOffer],
    /// Volumes that show its tree, from the publish records.
    pub mounts: usize,
    /// The journal promises the tree and the disk has not got it.
    pub lost: bool,
    /// Its record cannot be read: why.
    pub unknown: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Not for this shim, or not yet.
    Ignore,
    /// It cannot be made as things are.
    Refuse {
        provider: Option<ProviderKind>,
        reason: Reason,
        message: String,
    },
    Create {
        provider: ProviderKind,
        because: String,
        making: Making,
    },
    Seal {
        provider: ProviderKind,
    },
    /// Its object says that it stands and the journal has no record: only what is found on disk may be taken for it.
    Adopt,
    /// The tree is as it should be.
    Keep {
        provider: ProviderKind,
    },
    /// Being deleted while Pods still show the tree.
    WaitForPods,
    /// Being deleted: end what is on disk, which may be nothing, and let the object go.
    Destroy,
}

pub fn decide(ws: &AgentWorkspace, seen: &Observed) -> Action {
    let status = ws.status.as_ref();
    if status.and_then(|s| s.node_name.as_deref()) != Some(seen.node) {
        return Action::Ignore;
    }
    if ws.metadata.deletion_timestamp.is_some() {
        let ours = ws.metadata.finalizers.iter().flatten().any(|f| f == name::finalizer::NODE_DATA);
        return match (ours, seen.mounts) {
            (false, _) => Action::Ignore,
            (true, 0) => Action::Destroy,
            (true, _) => Action::WaitForPods,
        };
    }
    if let Some(why) = seen.unknown {
        let message = format!("{why}. The tree is left alone: mend the file or move it away, or delete this workspace");
        return Action::Refuse { provider: None, reason: reason::JOURNAL_DAMAGED, message };
    }
    let Some(record) = seen.record else {
        // A journal that was lost, or a node that was made anew under an old name, must not turn into an empty tree.
        return if was_made(ws) { Action::Adopt } else { first_action(ws, seen) };
    };
    let provider = record.provider;
    if seen.lost {
        return tree_lost(Some(provider));
    }
    match record.state {
        RecordState::Creating => Action::Create { provider, because: recorded_reason(ws, provider), making: record.making },
        RecordState::Ready if is_filled_base(ws) => Action::Seal { provider },
        RecordState::Sealing => Action::Seal { provider },
        // The seal was made and its digest was not reported; the verb tells it again.
        RecordState::Sealed if ws.spec.base.is_some() && !has_digest(ws) => Action::Seal { provider },
        RecordState::Ready | RecordState::Sealed => Action::Keep { provider },
        RecordState::Destroying => {
            let message = "the tree of this workspace is being destroyed".to_owned();
            Action::Refuse { provider: Some(provider), reason: reason::BACKEND_ERROR, message }
        }
    }
}

/// The tree is not where it should be, and is not made again: an agent must never wake up on an empty folder.
pub fn tree_lost(provider: Option<ProviderKind>) -> Action {
    let message = "the tree is gone from the node's disk; bring the disk back, or delete this workspace and make it anew".to_owned();
    Action::Refuse { provider, reason: reason::TREE_LOST, message }
}

/// True once this shim, or the one before it, has said that the tree stands, and ever after.
fn was_made(ws: &AgentWorkspace) -> bool {
    let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let lost = |c: &yoi_crds::Condition| c.reason == reason::TREE_LOST || c.reason == reason::JOURNAL_DAMAGED;
    yoi_crds::condition::is_true(conditions, condition::PROVISIONED)
        || yoi_crds::condition::find(conditions, condition::PROVISIONED).is_some_and(lost)
}

fn first_action(ws: &AgentWorkspace, seen: &Observed) -> Action {
    let Some(origin) = ws.status.as_ref().and_then(|s| s.origin.as_ref()) else { return Action::Ignore };
    let refuse = |reason, message| Action::Refuse { provider: None, reason, message };
    match origin.kind {
        OriginKind::Empty if ws.spec.provider == ProviderName::Unknown => {
            refuse(reason::INVALID_SPEC, "spec.provider is of another version of Yoi".to_owned())
        }
        OriginKind::Empty => {
            let owner = ws.status.as_ref().and_then(|s| s.owner).or(ws.spec.owner).unwrap_or_default();
            let (Ok(uid), Ok(gid)) = (u32::try_from(owner.uid), u32::try_from(owner.gid)) else {
                return refuse(reason::INVALID_SPEC, format!("{}:{} are no user and group ids", owner.uid, owner.gid));
            };
            match yoi_workspace::plan::select(requested_provider(ws.spec.provider), seen.offers) {
                Ok(chosen) => Action::Create {
                    provider: chosen.provider,
                    because: chosen.reason,
                    making: Making::Empty { owner: Owner { uid, gid } },
                },
                Err(none) => refuse(reason::PROVIDER_UNAVAILABLE, none.reason),
            }
        }
        OriginKind::Unknown => refuse(reason::INVALID_SPEC, "its origin is of another version of Yoi".to_owned()),
        OriginKind::Base | OriginKind::Fork => {
            let from = origin.workspace_uid.as_deref().unwrap_or_default();
            let Ok(from) = from.parse::<Uid>() else {
                return refuse(reason::SOURCE_NOT_SEALED, format!("origin {from:?} is no workspace"));
            };
            clone_action(ws, origin.kind, from, seen)
        }
    }
}

fn clone_action(ws: &AgentWorkspace, kind: OriginKind, from: Uid, seen: &Observed) -> Action {
    let refuse = |reason, message| Action::Refuse { provider: None, reason, message };
    let word = match kind {
        OriginKind::Empty | OriginKind::Base | OriginKind::Unknown => "base",
        OriginKind::Fork => "parent",
    };
    let Some(source) = seen.origin else {
        return refuse(reason::SOURCE_NOT_SEALED, format!("its {word} {from} is not on this node"));
    };
    let ready = match (kind, source.state) {
        (_, RecordState::Sealed) => true,
        (OriginKind::Fork, RecordState::Ready | RecordState::Sealing) => true,
        (OriginKind::Empty | OriginKind::Base | OriginKind::Unknown, RecordState::Ready | RecordState::Sealing) => false,
        (_, RecordState::Creating | RecordState::Destroying) => false,
    };
    if !ready {
        let stands = match source.state {
            RecordState::Creating => "still being made",
            RecordState::Ready => "not sealed",
            RecordState::Sealing => "still being sealed",
            RecordState::Sealed => "sealed",
            RecordState::Destroying => "on its way out",
        };
        return refuse(reason::SOURCE_NOT_SEALED, format!("its {word} {from} is {stands} on this node"));
    }
    let provider = source.provider;
    let fits = match ws.spec.provider {
        ProviderName::Auto => true,
        ProviderName::Unknown => false,
        ProviderName::Btrfs => provider == ProviderKind::Btrfs,
        ProviderName::Copy => provider == ProviderKind::Copy,
    };
    if !fits {
        let message = format!("{} was asked for and its {word} {from} is made by {provider}", ws.spec.provider);
        return refuse(reason::PROVIDER_UNAVAILABLE, message);
    }
    let access = if ws.spec.read_only { CloneAccess::ReadOnly } else { CloneAccess::ReadWrite };
    Action::Create { provider, because: format!("{provider}: as its {word}"), making: Making::Clone { from, access } }
}

fn requested_provider(provider: ProviderName) -> ProviderRequest {
    match provider {
        // What is not understood is refused before.
        ProviderName::Auto | ProviderName::Unknown => ProviderRequest::Auto,
        ProviderName::Btrfs => ProviderRequest::Btrfs,
        ProviderName::Copy => ProviderRequest::Copy,
    }
}

fn is_filled_base(ws: &AgentWorkspace) -> bool {
    let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    ws.spec.base.is_some() && yoi_crds::condition::is_true(conditions, condition::POPULATED)
}

fn has_digest(ws: &AgentWorkspace) -> bool {
    ws.status.as_ref().and_then(|s| s.volume.as_ref()).is_some_and(|v| v.manifest_digest.is_some())
}

/// A restart knows the provider from its record; the sentence, if it was ever said, stands in the object.
fn recorded_reason(ws: &AgentWorkspace, provider: ProviderKind) -> String {
    super::workspace_status::previous_selection(ws, provider)
        .map_or_else(|| format!("{provider}: recorded in this node's journal"), |s| s.reason)
}
