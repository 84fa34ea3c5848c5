//! The shim's part of a workspace's status. Each write contains the whole part.

use super::node_status::{DataRootFailure, provider_name};
use super::provision;
use serde_json::{Value, json};
use yoi_crds::condition::{self, Condition, ConditionStatus, ConditionValue};
use yoi_crds::node::quantity;
use yoi_crds::reason::{self, condition as type_};
use yoi_crds::workspace::{LoanView, SelectedProvider, VolumeStatus};
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus};
use yoi_workspace::{DiskUsage, ErrorReason, ProviderKind, Quota, QuotaState, TreeManifest};

/// The conditions that the shim owns.
const OWNED_CONDITIONS: [&str; 8] = [
    type_::PROVIDER_SELECTED,
    type_::PROVISIONED,
    type_::QUOTA_ENFORCED,
    type_::HEALTHY,
    type_::SEALED,
    type_::IN_USE,
    type_::SCOPE_ENFORCED,
    type_::CLEANED_UP,
];

/// A change of the shim's part of a status. `None`, and a condition that is not named, leave the field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusUpdate {
    /// The selected provider.
    pub provider: Option<SelectedProvider>,
    /// Size and digest of a sealed tree.
    pub volume: Option<VolumeStatus>,
    /// Conditions by type.
    pub conditions: Vec<(&'static str, ConditionValue)>,
    /// How all loans of the tree stand on this node, sorted by loan.
    pub loans: Option<Vec<LoanView>>,
}

impl StatusUpdate {
    /// The same with this condition.
    pub fn with(mut self, type_: &'static str, value: ConditionValue) -> Self {
        self.conditions.retain(|(t, _)| *t != type_);
        self.conditions.push((type_, value));
        self
    }
}

/// The shim's part of a status: all fields that it owns.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedStatus {
    provider: Option<SelectedProvider>,
    volume: Option<VolumeStatus>,
    conditions: Vec<Condition>,
    loans: Vec<LoanView>,
}

impl OwnedStatus {
    fn of(status: Option<&AgentWorkspaceStatus>) -> Self {
        let Some(s) = status else { return OwnedStatus { provider: None, volume: None, conditions: Vec::new(), loans: Vec::new() } };
        let mut conditions: Vec<_> = s.conditions.iter().filter(|c| OWNED_CONDITIONS.contains(&&*c.type_)).cloned().collect();
        conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        OwnedStatus { provider: s.provider.clone(), volume: s.volume.clone(), conditions, loans: s.loans.clone() }
    }

    /// The conditions whose status or reason differs from `before`, for Events.
    pub fn changed_conditions<'a>(&'a self, before: &AgentWorkspace) -> impl Iterator<Item = &'a Condition> {
        let old = OwnedStatus::of(before.status.as_ref());
        self.conditions
            .iter()
            .filter(move |c| !old.conditions.iter().any(|o| o.type_ == c.type_ && o.status == c.status && o.reason == c.reason))
    }

    /// The status for a server-side apply.
    pub fn to_patch(&self) -> Value {
        let mut status = json!({ "conditions": self.conditions });
        if let Some(provider) = &self.provider {
            status["provider"] = json!(provider);
        }
        if let Some(volume) = &self.volume {
            status["volume"] = json!(volume);
        }
        if !self.loans.is_empty() {
            status["loans"] = json!(self.loans);
        }
        status
    }
}

/// The part after the update, or None if nothing changes. `now` is the transition time of conditions that change.
pub fn changed_status(ws: &AgentWorkspace, update: StatusUpdate, now: &str) -> Option<OwnedStatus> {
    let before = OwnedStatus::of(ws.status.as_ref());
    let generation = ws.metadata.generation.unwrap_or_default();
    let mut after = before.clone();
    after.provider = update.provider.or(after.provider);
    after.volume = update.volume.or(after.volume);
    after.loans = update.loans.unwrap_or(after.loans);
    for (type_, value) in update.conditions {
        let new = condition::condition(&before.conditions, type_, value, generation, now);
        after.conditions.retain(|c| c.type_ != type_);
        after.conditions.push(new);
    }
    after.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    (after != before).then_some(after)
}

/// The provider for the status.
pub fn selected_provider(provider: ProviderKind, because: &str) -> SelectedProvider {
    SelectedProvider { selected: provider_name(provider), reason: because.to_owned() }
}

/// What the status says of the provider, if it names this one.
pub fn previous_selection(ws: &AgentWorkspace, provider: ProviderKind) -> Option<SelectedProvider> {
    let before = ws.status.as_ref()?.provider.clone()?;
    (before.selected == selected_provider(provider, "").selected).then_some(before)
}

/// The status of a tree that exists. `made` is the reason of Provisioned if it was made just now, `because` why its provider was chosen.
pub fn provisioned_status(
    ws: &AgentWorkspace,
    provider: ProviderKind,
    because: Option<&str>,
    made: Option<reason::Reason>,
    mounts: usize,
) -> StatusUpdate {
    let chosen = because.map(|b| selected_provider(provider, b)).or_else(|| previous_selection(ws, provider));
    let chosen = chosen.unwrap_or_else(|| selected_provider(provider, &format!("{provider}: recorded in this node's journal")));
    let before = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let update = StatusUpdate { provider: Some(chosen.clone()), ..StatusUpdate::default() }
        .with(type_::PROVIDER_SELECTED, ConditionValue::yes(reason::SELECTED, chosen.reason))
        .with(type_::IN_USE, in_use_value_after(before, mounts));
    match made {
        Some(reason) => update.with(type_::PROVISIONED, ConditionValue::yes(reason, "the tree stands on its node")),
        None if condition::is_true(before, type_::PROVISIONED) => update,
        None => update.with(type_::PROVISIONED, ConditionValue::yes(reason::ADOPTED, "the tree was found on its node after a restart")),
    }
}

/// Released differs from NotPublished: the time to live of a released tree runs.
fn in_use_value_after(before: &[Condition], mounts: usize) -> ConditionValue {
    let former = condition::find(before, type_::IN_USE);
    let was = former.is_some_and(|c| c.status == ConditionStatus::True || c.reason == *reason::RELEASED);
    if mounts == 0 && was { ConditionValue::no(reason::RELEASED, "the last Pod let the tree go") } else { in_use_value(mounts) }
}

/// The condition InUse for this many mounts.
pub fn in_use_value(mounts: usize) -> ConditionValue {
    match mounts {
        0 => ConditionValue::no(reason::NOT_PUBLISHED, "no Pod has the tree mounted"),
        1 => ConditionValue::yes(reason::PUBLISHED, "a Pod has the tree mounted"),
        n => ConditionValue::yes(reason::PUBLISHED, format!("{n} Pods have the tree mounted")),
    }
}

/// The condition ScopeEnforced of a tree that is shown with so many covers at most, and whose last mount was refused for this. `None` if nobody has asked
/// for covers yet.
pub fn scope(ws: &AgentWorkspace, covers: usize, refused: Option<&str>) -> Option<ConditionValue> {
    let before = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    match (refused, covers) {
        (Some(why), _) => Some(ConditionValue::no(reason::COVER_REFUSED, why)),
        (None, 0) => {
            let former = condition::find(before, type_::SCOPE_ENFORCED);
            former.map(|_| ConditionValue::no(reason::NOT_PUBLISHED, "no Pod has the tree mounted with covers"))
        }
        (None, _) => Some(ConditionValue::yes(reason::COVERS_LAID, "the Pod that has the tree mounted sees it by the scope of its agent")),
    }
}

/// The condition Healthy of a tree that takes this much, on a data root with this failure. None if all is well and always was: a tree is taken for
/// healthy. None, too, if nobody has measured a tree again that was over its quota.
pub fn health(ws: &AgentWorkspace, failure: Option<&DataRootFailure>, usage: Option<&DiskUsage>) -> Option<ConditionValue> {
    let before = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    if let Some(DataRootFailure { reason, message }) = failure {
        return Some(ConditionValue::no(*reason, message));
    }
    let quota = ws.status.as_ref().and_then(|s| s.quota_bytes);
    let used = usage.map(|usage| bytes(usage.charged_bytes.unwrap_or(usage.exclusive_bytes)));
    let former = condition::find(before, type_::HEALTHY);
    match (used, quota) {
        (Some(used), Some(quota)) if used >= quota => {
            let message = format!("the tree takes {}, and its quota is {}", quantity(used), quantity(quota));
            Some(ConditionValue::no(reason::QUOTA_EXCEEDED, message))
        }
        (None, Some(_)) if former.is_some_and(|c| c.reason == *reason::QUOTA_EXCEEDED) => None,
        _ => former.map(|_| ConditionValue::yes(reason::ALL_MET, "the data root of its node works")),
    }
}

/// The volume of a tree that takes this much, if one of its figures has changed by more than 5 %.
pub fn measured_volume(ws: &AgentWorkspace, usage: &DiskUsage) -> Option<VolumeStatus> {
    let before = ws.status.as_ref().and_then(|s| s.volume.clone()).unwrap_or_default();
    let has_changed = |old: Option<i64>, new: i64| old.is_none_or(|old| i128::from(old.abs_diff(new)) * 20 > i128::from(old));
    let (logical, exclusive) = (bytes(usage.logical_bytes), bytes(usage.exclusive_bytes));
    (has_changed(before.logical_bytes, logical) || has_changed(before.exclusive_bytes, exclusive)).then_some(VolumeStatus {
        logical_bytes: Some(logical),
        exclusive_bytes: Some(exclusive),
        ..before
    })
}

/// The quota of a tree that is said to be enforced, while the file system counts nothing for the tree: whoever keeps the node may have turned
/// quotas off.
pub fn quota_to_check(ws: &AgentWorkspace, usage: &DiskUsage) -> Option<Quota> {
    let conditions = ws.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let is_said = condition::is_true(conditions, type_::QUOTA_ENFORCED);
    provision::wanted_quota(ws).filter(|_| is_said && usage.charged_bytes.is_none())
}

/// The condition QuotaEnforced.
pub fn quota_value(quota: Option<Quota>, state: &QuotaState) -> ConditionValue {
    match (quota, state) {
        (None, _) => ConditionValue::yes(reason::ENFORCED, "the workspace has no quota any more"),
        (Some(quota), QuotaState::Enforced) => {
            ConditionValue::yes(reason::ENFORCED, format!("the file system refuses what is over {}", quantity(bytes(quota.bytes()))))
        }
        (Some(_), QuotaState::Unsupported { reason }) => ConditionValue::no(reason::UNSUPPORTED, reason),
    }
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// VolumeStatus and condition Sealed of a tree with this manifest.
pub fn sealed_status(manifest: &TreeManifest) -> (VolumeStatus, ConditionValue) {
    let count = |n: u64| Some(i64::try_from(n).unwrap_or(i64::MAX));
    let volume = VolumeStatus {
        manifest_digest: Some(manifest.digest.clone()),
        revision: manifest.git_head.clone(),
        logical_bytes: count(manifest.bytes),
        exclusive_bytes: None,
        entries: count(manifest.files + manifest.dirs),
    };
    let message = format!("{} entries, {} bytes, read-only from now on", manifest.files + manifest.dirs, manifest.bytes);
    (volume, ConditionValue::yes(reason::SEALED, message))
}

/// The status of a tree that was not made. The reason ProviderUnavailable is also written to ProviderSelected.
pub fn not_provisioned(provider: Option<SelectedProvider>, reason: reason::Reason, message: &str) -> StatusUpdate {
    let mut update = StatusUpdate { provider: provider.clone(), ..StatusUpdate::default() }
        .with(type_::PROVISIONED, ConditionValue::no(reason, message));
    if let Some(chosen) = provider {
        update = update.with(type_::PROVIDER_SELECTED, ConditionValue::yes(reason::SELECTED, chosen.reason));
    }
    if reason == reason::PROVIDER_UNAVAILABLE {
        update = update.with(type_::PROVIDER_SELECTED, ConditionValue::no(reason, message));
    }
    update
}

/// The condition's reason for a refusal of the mounter.
///
/// SourceNotFound becomes SOURCE_NOT_SEALED, as in `decide::provision`: a source that is missing on this node may still be made and sealed.
pub fn condition_reason(error: ErrorReason) -> reason::Reason {
    match error {
        ErrorReason::NestedVolume => reason::NESTED_VOLUME,
        ErrorReason::SourceNotSealed | ErrorReason::SourceNotFound => reason::SOURCE_NOT_SEALED,
        ErrorReason::SourceForbidden => reason::SOURCE_FORBIDDEN,
        ErrorReason::SourceChanging => reason::SOURCE_CHANGING,
        ErrorReason::ProviderUnavailable => reason::PROVIDER_UNAVAILABLE,
        ErrorReason::OutOfSpace => reason::OUT_OF_SPACE,
        ErrorReason::Busy | ErrorReason::DependentForks => reason::BUSY,
        ErrorReason::TreeLost => reason::TREE_LOST,
        ErrorReason::WrongDataRoot => reason::DATA_ROOT_MISSING,
        ErrorReason::ReadOnlyFilesystem => reason::READ_ONLY_FILESYSTEM,
        ErrorReason::KernelTooOld => reason::KERNEL_TOO_OLD,
        ErrorReason::CoverRefused => reason::COVER_REFUSED,
        ErrorReason::TreeTooDeep => reason::TREE_TOO_DEEP,
        ErrorReason::Foreign | ErrorReason::InvalidRequest | ErrorReason::Cancelled | ErrorReason::BackendError => reason::BACKEND_ERROR,
    }
}

/// Whether the Event of a condition is a Warning; `None` when it has no Event. What every tree goes through is Normal: it is made, used, released and
/// destroyed.
pub fn event_is_warning(condition: &Condition) -> Option<bool> {
    let reason_is = |expected: &[reason::Reason]| expected.iter().any(|expected| condition.reason == *expected);
    match condition.status {
        ConditionStatus::True => [type_::PROVISIONED, type_::SEALED, type_::CLEANED_UP].contains(&&*condition.type_).then_some(false),
        ConditionStatus::Unknown | ConditionStatus::False => {
            let is_silent = reason_is(&[reason::NOT_PUBLISHED, reason::CREATING, reason::WAITING_FOR_PODS]);
            (!is_silent).then(|| !reason_is(&[reason::RELEASED]))
        }
    }
}
