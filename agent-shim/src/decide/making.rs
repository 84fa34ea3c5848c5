//! The making door: what one workspace needs done on this node.

use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::source::ProviderName;
use yoi_crds::workspace::OriginKind;
use yoi_crds::{AgentWorkspace, name};
use yoi_workspace::{CloneAccess, Owner, ProviderKind, ProviderOffer, ProviderRequest, Record, RecordState, TreeOrigin, Uid};

/// What the node knows of one workspace.
pub struct Seen<'a> {
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
pub enum Deed {
    /// Not for this shim, or not yet.
    Nothing,
    /// It cannot be made as things are.
    Refuse {
        provider: Option<ProviderKind>,
        reason: Reason,
        message: String,
    },
    Make {
        provider: ProviderKind,
        because: String,
        making: TreeOrigin,
    },
    Seal {
        provider: ProviderKind,
    },
    /// Its object says that it stands and the journal has no record: only what is found on disk may be taken for it.
    Find,
    /// The tree is as it should be.
    Rest {
        provider: ProviderKind,
    },
    /// Being deleted while Pods still show the tree.
    WaitForPods,
    /// Being deleted: end what is on disk, which may be nothing, and let the object go.
    Destroy,
}

pub fn deed(ws: &AgentWorkspace, seen: &Seen) -> Deed {
    let status = ws.status.as_ref();
    if status.and_then(|s| s.node_name.as_deref()) != Some(seen.node) {
        return Deed::Nothing;
    }
    if ws.metadata.deletion_timestamp.is_some() {
        let ours = ws.metadata.finalizers.iter().flatten().any(|f| f == name::finalizer::NODE_DATA);
        return match (ours, seen.mounts) {
            (false, _) => Deed::Nothing,
            (true, 0) => Deed::Destroy,
            (true, _) => Deed::WaitForPods,
        };
    }
    if let Some(why) = seen.unknown {
        let message = format!("{why}. The tree is left alone: mend the file or move it away, or delete this workspace");
        return Deed::Refuse { provider: None, reason: reason::JOURNAL_DAMAGED, message };
    }
    let Some(record) = seen.record else {
        // A journal that was lost, or a node that was made anew under an old name, must not turn into an empty tree.
        return if was_made(ws) { Deed::Find } else { beginning(ws, seen) };
    };
    let provider = record.provider;
    if seen.lost {
        return lost(Some(provider));
    }
    match record.state {
        RecordState::Creating => Deed::Make { provider, because: kept_reason(ws, provider), making: record.origin },
        RecordState::Ready if is_filled_base(ws) => Deed::Seal { provider },
        RecordState::Sealing => Deed::Seal { provider },
        // The seal was made and its digest was not reported; the verb tells it again.
        RecordState::Sealed if ws.spec.base.is_some() && !has_digest(ws) => Deed::Seal { provider },
        RecordState::Ready | RecordState::Sealed => Deed::Rest { provider },
        RecordState::Destroying => {
            let message = "the tree of this workspace is being destroyed".to_owned();
            Deed::Refuse { provider: Some(provider), reason: reason::BACKEND_ERROR, message }
        }
    }
}

/// The tree is not where it should be, and is not made again: an agent must never wake up on an empty folder.
pub fn lost(provider: Option<ProviderKind>) -> Deed {
    let message = "the tree is gone from the node's disk; bring the disk back, or delete this workspace and make it anew".to_owned();
    Deed::Refuse { provider, reason: reason::TREE_LOST, message }
}

/// True once this shim, or the one before it, has said that the tree stands, and ever after.
fn was_made(ws: &AgentWorkspace) -> bool {
    let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let lost = |c: &yoi_crds::Condition| c.reason == reason::TREE_LOST || c.reason == reason::JOURNAL_DAMAGED;
    yoi_crds::condition::is_true(conditions, condition::PROVISIONED)
        || yoi_crds::condition::find(conditions, condition::PROVISIONED).is_some_and(lost)
}

fn beginning(ws: &AgentWorkspace, seen: &Seen) -> Deed {
    let Some(origin) = ws.status.as_ref().and_then(|s| s.origin.as_ref()) else { return Deed::Nothing };
    let refuse = |reason, message| Deed::Refuse { provider: None, reason, message };
    match origin.kind {
        OriginKind::Empty if ws.spec.provider == ProviderName::Unknown => {
            refuse(reason::INVALID_SPEC, "spec.provider is of another version of Yoi".to_owned())
        }
        OriginKind::Empty => {
            let owner = ws.status.as_ref().and_then(|s| s.owner).or(ws.spec.owner).unwrap_or_default();
            let (Ok(uid), Ok(gid)) = (u32::try_from(owner.uid), u32::try_from(owner.gid)) else {
                return refuse(reason::INVALID_SPEC, format!("{}:{} are no user and group ids", owner.uid, owner.gid));
            };
            match yoi_workspace::plan::select(wanted(ws.spec.provider), seen.offers) {
                Ok(chosen) => Deed::Make {
                    provider: chosen.provider,
                    because: chosen.reason,
                    making: TreeOrigin::Empty { owner: Owner { uid, gid } },
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
            clone_of(ws, origin.kind, from, seen)
        }
    }
}

fn clone_of(ws: &AgentWorkspace, kind: OriginKind, from: Uid, seen: &Seen) -> Deed {
    let refuse = |reason, message| Deed::Refuse { provider: None, reason, message };
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
    Deed::Make { provider, because: format!("{provider}: as its {word}"), making: TreeOrigin::Clone { from, access } }
}

fn wanted(provider: ProviderName) -> ProviderRequest {
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
fn kept_reason(ws: &AgentWorkspace, provider: ProviderKind) -> String {
    super::status::selected_before(ws, provider).map_or_else(|| format!("{provider}: recorded in this node's journal"), |s| s.reason)
}

#[cfg(test)]
mod tests;
