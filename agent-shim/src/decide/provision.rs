//! Which action the tree of one workspace needs on this node.

use super::node_status::provider_name;
use super::workspace_status::quota_value;
use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::source::ProviderName;
use yoi_crds::workspace::OriginKind;
use yoi_crds::{AgentWorkspace, name};
use yoi_workspace::{
    CaptureMethod, Captured, CloneAccess, Owner, ProviderKind, ProviderOffer, ProviderRequest, Quota, QuotaState, Record, RecordState,
    TreeOrigin, Uid,
};

use crate::host_sources::{HostSourceName, HostSources};

/// What the node knows of one workspace.
pub struct ObservedTree<'a> {
    /// Name of this node.
    pub node: &'a str,
    /// The journal record of its tree.
    pub record: Option<&'a Record>,
    /// The journal record of the tree that it is made from.
    pub origin: Option<&'a Record>,
    /// The providers of this node.
    pub offers: &'a [ProviderOffer],
    /// How many volumes show its tree, from the publish records.
    pub mounts: usize,
    /// The journal says that the tree exists, and the disk does not hold it.
    pub lost: bool,
    /// Why the record of its tree cannot be read.
    pub unknown: Option<&'a str>,
}

/// What to do with the tree of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the workspace is on another node, or is not ready to be provisioned.
    Ignore,
    /// Report why the tree cannot be provisioned now.
    Refuse {
        /// The provider that the journal names, if it names one.
        provider: Option<ProviderKind>,
        /// Reason of the condition.
        reason: Reason,
        /// Message of the condition.
        message: String,
    },
    /// Make the tree.
    Create {
        /// Which provider makes it.
        provider: ProviderKind,
        /// Why this provider, for the status.
        because: String,
        /// Empty, or a clone of which tree.
        making: TreeOrigin,
    },
    /// Seal the tree, or report again the digest of a sealed one.
    Seal {
        /// The provider of the tree.
        provider: ProviderKind,
    },
    /// Set, change or end the quota of the tree.
    SetQuota {
        /// The provider of the tree.
        provider: ProviderKind,
        /// None: no quota.
        quota: Option<Quota>,
    },
    /// Look for the tree on disk and write its record: the object says that it was provisioned, and the journal has no record.
    Adopt,
    /// Nothing: the tree is as it should be.
    Keep {
        /// The provider of the tree.
        provider: ProviderKind,
    },
    /// Wait: the workspace is being deleted, and Pods still mount the tree.
    WaitForPods,
    /// Destroy what is on disk, which may be nothing, and remove the finalizer.
    Destroy,
}

/// The action for a workspace. Repeated after each action, it ends at [`Action::Keep`], or at [`Action::Destroy`] for a deleted workspace.
pub fn decide(ws: &AgentWorkspace, observed: &ObservedTree) -> Action {
    let status = ws.status.as_ref();
    if status.and_then(|s| s.node_name.as_deref()) != Some(observed.node) {
        return Action::Ignore;
    }
    if ws.metadata.deletion_timestamp.is_some() {
        let has_finalizer = ws.metadata.finalizers.iter().flatten().any(|f| f == name::finalizer::NODE_DATA);
        return match (has_finalizer, observed.mounts) {
            (false, _) => Action::Ignore,
            (true, 0) => Action::Destroy,
            (true, _) => Action::WaitForPods,
        };
    }
    if let Some(why) = observed.unknown {
        let message = format!("{why}. The tree is left alone: repair the file or move it away, or delete this workspace");
        return Action::Refuse { provider: None, reason: reason::JOURNAL_DAMAGED, message };
    }
    let Some(record) = observed.record else {
        // Without a record, a tree that was provisioned before is never made anew: the journal or the whole node may have been lost.
        return if was_made(ws) { Action::Adopt } else { first_action(ws, observed) };
    };
    let provider = record.provider;
    if observed.lost {
        return Action::Refuse { provider: Some(provider), reason: reason::TREE_LOST, message: TREE_LOST_MESSAGE.to_owned() };
    }
    match record.state {
        RecordState::Creating => Action::Create { provider, because: recorded_reason(ws, provider), making: record.origin },
        RecordState::Ready if is_filled_base(ws) => Action::Seal { provider },
        RecordState::Sealing => Action::Seal { provider },
        // The tree was sealed and its digest was not reported. To seal again returns the digest.
        RecordState::Sealed if ws.spec.base.is_some() && !has_digest(ws) => Action::Seal { provider },
        RecordState::Ready if needs_quota(ws, record) => Action::SetQuota { provider, quota: wanted_quota(ws) },
        RecordState::Ready | RecordState::Sealed => Action::Keep { provider },
        RecordState::Destroying => {
            let message = "the tree of this workspace is being destroyed".to_owned();
            Action::Refuse { provider: Some(provider), reason: reason::BACKEND_ERROR, message }
        }
    }
}

/// The quota that the operator has resolved.
pub fn wanted_quota(ws: &AgentWorkspace) -> Option<Quota> {
    let bytes = ws.status.as_ref()?.quota_bytes?;
    u64::try_from(bytes).ok().and_then(|bytes| Quota::new(bytes).ok())
}

/// Whether the quota must be set: it is another one than was recorded, or the status does not say yet what became of it. A quota that the disk
/// has refused is set again: there may be room for it by now. One that a node cannot enforce stays so.
fn needs_quota(ws: &AgentWorkspace, record: &Record) -> bool {
    let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let wanted = wanted_quota(ws);
    let is_told = match yoi_crds::condition::find(conditions, condition::QUOTA_ENFORCED) {
        None => wanted.is_none(),
        Some(told) if told.reason == reason::UNSUPPORTED => wanted.is_some(),
        // It names the quota. After a crash it may be the former one.
        Some(told) => told.message == quota_value(wanted, &QuotaState::Enforced).message,
    };
    record.quota != wanted || !is_told
}

/// The message for a lost tree. It is not made again: an agent must never find an empty directory in its place.
pub const TREE_LOST_MESSAGE: &str = "the tree is gone from the node's disk; bring the disk back, or delete this workspace and make it anew";

/// Whether a shim of this node has ever reported the tree as provisioned.
fn was_made(ws: &AgentWorkspace) -> bool {
    let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let lost = |c: &yoi_crds::Condition| c.reason == reason::TREE_LOST || c.reason == reason::JOURNAL_DAMAGED;
    yoi_crds::condition::is_true(conditions, condition::PROVISIONED)
        || yoi_crds::condition::find(conditions, condition::PROVISIONED).is_some_and(lost)
}

fn first_action(ws: &AgentWorkspace, observed: &ObservedTree) -> Action {
    let Some(origin) = ws.status.as_ref().and_then(|s| s.origin.as_ref()) else { return Action::Ignore };
    let refuse = |reason, message| Action::Refuse { provider: None, reason, message };
    match origin.kind {
        OriginKind::Empty | OriginKind::Host => {
            let request = match requested_provider(ws.spec.provider) {
                Ok(request) => request,
                Err((reason, message)) => return refuse(reason, message),
            };
            let owner = ws.status.as_ref().and_then(|s| s.owner).or(ws.spec.owner).unwrap_or_default();
            let (Ok(uid), Ok(gid)) = (u32::try_from(owner.uid), u32::try_from(owner.gid)) else {
                return refuse(reason::INVALID_SPEC, format!("{}:{} are no user and group ids", owner.uid, owner.gid));
            };
            match yoi_workspace::plan::select(request, observed.offers) {
                Ok(chosen) => {
                    let owner = Owner { uid, gid };
                    let is_host = origin.kind == OriginKind::Host;
                    let making = if is_host { TreeOrigin::Host { owner } } else { TreeOrigin::Empty { owner } };
                    Action::Create { provider: chosen.provider, because: chosen.reason, making }
                }
                Err(none) => refuse(reason::PROVIDER_UNAVAILABLE, none.reason),
            }
        }
        OriginKind::Unknown => refuse(reason::INVALID_SPEC, "its origin is of another version of Yoi".to_owned()),
        OriginKind::Base | OriginKind::Fork => {
            let from = origin.workspace_uid.as_deref().unwrap_or_default();
            let Ok(from) = from.parse::<Uid>() else {
                return refuse(reason::SOURCE_NOT_SEALED, format!("origin {from:?} is no workspace"));
            };
            clone_action(ws, origin.kind, from, observed)
        }
    }
}

fn clone_action(ws: &AgentWorkspace, kind: OriginKind, from: Uid, observed: &ObservedTree) -> Action {
    let refuse = |reason, message| Action::Refuse { provider: None, reason, message };
    let relation = match kind {
        OriginKind::Empty | OriginKind::Host | OriginKind::Base | OriginKind::Unknown => "base",
        OriginKind::Fork => "parent",
    };
    let Some(source) = observed.origin else {
        return refuse(reason::SOURCE_NOT_SEALED, format!("its {relation} {from} is not on this node"));
    };
    let ready = match (kind, source.state) {
        (_, RecordState::Sealed) => true,
        (OriginKind::Fork, RecordState::Ready | RecordState::Sealing) => true,
        (OriginKind::Empty | OriginKind::Host | OriginKind::Base | OriginKind::Unknown, RecordState::Ready | RecordState::Sealing) => false,
        (_, RecordState::Creating | RecordState::Destroying) => false,
    };
    if !ready {
        let state_text = match source.state {
            RecordState::Creating => "still being made",
            RecordState::Ready => "not sealed",
            RecordState::Sealing => "still being sealed",
            RecordState::Sealed => "sealed",
            RecordState::Destroying => "on its way out",
        };
        return refuse(reason::SOURCE_NOT_SEALED, format!("its {relation} {from} is {state_text} on this node"));
    }
    let provider = source.provider;
    let fits = match ws.spec.provider {
        ProviderName::Auto => true,
        ProviderName::Unknown => false,
        named @ (ProviderName::Zfs | ProviderName::Btrfs | ProviderName::Overlay | ProviderName::Reflink | ProviderName::Copy) => {
            named == provider_name(provider)
        }
    };
    if !fits {
        let message = format!("{} was asked for and its {relation} {from} is made by {provider}", ws.spec.provider);
        return refuse(reason::PROVIDER_UNAVAILABLE, message);
    }
    let access = if ws.spec.read_only { CloneAccess::ReadOnly } else { CloneAccess::ReadWrite };
    let better = if ws.spec.provider == ProviderName::Auto { better_offer(provider, observed.offers) } else { String::new() };
    let because = format!("{provider}: as its {relation}{better}");
    Action::Create { provider, because, making: TreeOrigin::Clone { from, access } }
}

/// What a user can do to get a better provider than that of the base, if the node offers one by now. Empty if it offers none.
fn better_offer(provider: ProviderKind, offers: &[ProviderOffer]) -> String {
    match yoi_workspace::plan::select(ProviderRequest::Auto, offers) {
        Ok(best) if provider_name(best.provider) < provider_name(provider) => format!(
            ". By now this node offers {}; a base and all trees made from it keep one provider. The project's next generation gets the better \
             one: change its source, path, owner or provider, or make the project anew",
            best.provider
        ),
        Ok(_) | Err(_) => String::new(),
    }
}

/// What a user can do after the disk refused to fork a tree that may be written. `began_empty`: the tree is no clone of a base.
pub fn way_to_fork(provider: ProviderKind, began_empty: bool) -> &'static str {
    match (provider, began_empty) {
        // Its clones are atomic: only its nested volumes keep it from being forked.
        (ProviderKind::Zfs | ProviderKind::Btrfs, _) => "",
        (ProviderKind::Overlay, false) => {
            ". Overlay forks a tree that no Pod mounts: stop the agent that uses it (`kubectl yoi stop`), and the fork is made by itself. A tree \
             in use is forked on Btrfs: the chart's shim.loopBtrfs.enabled=true gives each node one"
        }
        (ProviderKind::Overlay, true) => {
            ". Overlay forks only trees that were made from a base: make the tree to fork from a YoiProject, whose source may be empty"
        }
        (ProviderKind::Reflink | ProviderKind::Copy, _) => {
            ". Reflink and Copy make trees only from a sealed base: make this one from the YoiProject. Overlay forks a tree that no Pod mounts, and \
             Btrfs one that is in use; a project takes another provider with its next generation"
        }
    }
}

/// The provider to select, or why none can be.
fn requested_provider(provider: ProviderName) -> Result<ProviderRequest, (Reason, String)> {
    match provider {
        ProviderName::Auto => Ok(ProviderRequest::Auto),
        ProviderName::Zfs => Ok(ProviderRequest::Zfs),
        ProviderName::Btrfs => Ok(ProviderRequest::Btrfs),
        ProviderName::Overlay => Ok(ProviderRequest::Overlay),
        ProviderName::Reflink => Ok(ProviderRequest::Reflink),
        ProviderName::Copy => Ok(ProviderRequest::Copy),
        ProviderName::Unknown => Err((reason::INVALID_SPEC, "spec.provider is of another version of Yoi".to_owned())),
    }
}

/// The folder that a workspace names, if the list has it for the workspace's namespace; else reason and message, which do not tell whether the
/// list has it for another namespace.
pub fn host_source(ws: &AgentWorkspace, listed: &HostSources) -> Result<HostSourceName, (Reason, String)> {
    let name = ws.spec.source.host.as_ref().map(|host| host.name.as_str()).unwrap_or_default();
    let namespace = ws.metadata.namespace.as_deref().unwrap_or_default();
    let found = listed.for_namespace(name, namespace).cloned();
    found.ok_or_else(|| (reason::SOURCE_FORBIDDEN, format!("this node lists no host source {name} for namespace {namespace}")))
}

/// What the status says of the provider of a tree that was taken from a folder of the host.
pub fn captured_reason(because: &str, captured: Option<&Captured>) -> String {
    let Some(Captured { how, why }) = captured else { return because.to_owned() };
    let how = match how {
        CaptureMethod::Snapshot => "a snapshot of the source",
        CaptureMethod::Reflinked => "shares its blocks with the source, file by file",
        CaptureMethod::Copied => "copied from the source file by file",
    };
    format!("{because}; {how}: {why}")
}

/// Whether something is still to be written to a base that is taken from a folder of the node.
pub fn access_of_base(ws: &AgentWorkspace) -> CloneAccess {
    let is_prepared = ws.spec.base.as_ref().is_some_and(|base| base.prepare.is_some());
    if is_prepared { CloneAccess::ReadWrite } else { CloneAccess::ReadOnly }
}

fn is_filled_base(ws: &AgentWorkspace) -> bool {
    let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    ws.spec.base.is_some() && yoi_crds::condition::is_true(conditions, condition::POPULATED)
}

fn has_digest(ws: &AgentWorkspace) -> bool {
    ws.status.as_ref().and_then(|s| s.volume.as_ref()).is_some_and(|v| v.manifest_digest.is_some())
}

/// Why the provider was chosen, from the status. The journal records the provider without the reason.
fn recorded_reason(ws: &AgentWorkspace, provider: ProviderKind) -> String {
    super::workspace_status::previous_selection(ws, provider)
        .map_or_else(|| format!("{provider}: recorded in this node's journal"), |s| s.reason)
}
