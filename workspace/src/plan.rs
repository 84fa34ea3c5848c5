//! Decides which provider to use and what a restart must do, without a disk or a clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::journal::JournalContents;
use crate::{DataRootEntry, EntryLocation, Inventory, Marker, ProviderKind, Quota, Record, RecordState, Uid};

/// The provider that a workspace asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProviderRequest {
    /// The first that is available of Zfs, Btrfs, Overlay, Reflink, Copy.
    Auto,
    /// Only Zfs.
    Zfs,
    /// Only Btrfs.
    Btrfs,
    /// Only Overlay.
    Overlay,
    /// Only Reflink.
    Reflink,
    /// Only Copy.
    Copy,
}

/// Whether a data root can use a provider, found by trying it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderOffer {
    /// The provider that was tried.
    pub provider: ProviderKind,
    /// Whether it works.
    pub available: bool,
    /// Why it is available or not, for people.
    pub reason: String,
}

/// The provider to use, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderChoice {
    /// The provider to use.
    pub provider: ProviderKind,
    /// The text for `status.provider.reason`.
    pub reason: String,
}

/// No provider can be used: condition `ProviderSelected=False/ProviderUnavailable`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("failed to select a provider: {reason}")]
pub struct ProviderUnavailable {
    /// Why, for each provider that could have been used.
    pub reason: String,
}

/// Selects a provider. A named provider never falls back to another, and `Auto` never to a tree in place.
pub fn select(wanted: ProviderRequest, offers: &[ProviderOffer]) -> Result<ProviderChoice, ProviderUnavailable> {
    let candidates: &[ProviderKind] = match wanted {
        ProviderRequest::Auto => &ProviderKind::ALL,
        ProviderRequest::Zfs => &[ProviderKind::Zfs],
        ProviderRequest::Btrfs => &[ProviderKind::Btrfs],
        ProviderRequest::Overlay => &[ProviderKind::Overlay],
        ProviderRequest::Reflink => &[ProviderKind::Reflink],
        ProviderRequest::Copy => &[ProviderKind::Copy],
    };
    let mut refusals = Vec::new();
    for kind in candidates {
        match offers.iter().find(|o| o.provider == *kind) {
            Some(offer) if offer.available => {
                let passed = if refusals.is_empty() { String::new() } else { format!(" ({})", refusals.join("; ")) };
                return Ok(ProviderChoice { provider: *kind, reason: format!("{kind}: {}{passed}", offer.reason) });
            }
            Some(offer) => refusals.push(format!("{kind}: {}", offer.reason)),
            // `Auto` asks for nothing in particular: what the node does not know is no reason.
            None if wanted == ProviderRequest::Auto => {}
            None => refusals.push(format!("{kind}: not offered by this node")),
        }
    }
    if refusals.is_empty() {
        refusals.push("this node offers no provider".to_owned());
    }
    Err(ProviderUnavailable { reason: refusals.join("; ") })
}

/// A step for the process that has the data root. Each can be repeated.
#[expect(missing_docs, reason = "fields are the tree and its provider")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DiskStep {
    /// Remove what is under the temporary name.
    Discard { uid: Uid },
    /// Rename a complete tree from its temporary to its final name: a power cut lost the rename.
    Commit { uid: Uid },
    /// Finish a destruction: remove what is in the trash.
    Purge { uid: Uid },
    /// Destroy the tree, wherever it is.
    Destroy { uid: Uid, provider: ProviderKind },
    /// Seal the tree.
    Seal { uid: Uid, provider: ProviderKind },
    /// Set, change or end the quota of the tree. A quota that the file system cannot enforce is tried again by each recovery.
    SetQuota { uid: Uid, provider: ProviderKind, quota: Option<Quota> },
}

/// A step for the process that has the journal.
#[expect(missing_docs, reason = "the field is the tree")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JournalStep {
    /// The tree is there: set the record to Ready.
    Ready { uid: Uid },
    /// The tree is sealed: set the record to Sealed.
    Sealed { uid: Uid },
    /// There is no tree and none is wanted: remove the record.
    Forget { uid: Uid },
}

/// A step of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RecoveryStep {
    /// For [`crate::DataRoot::perform`].
    Disk(DiskStep),
    /// For [`crate::Journal::apply`].
    Journal(JournalStep),
}

impl RecoveryStep {
    /// The tree of this step. Steps of one tree depend on each other; steps of different trees do not.
    pub fn uid(&self) -> Uid {
        match *self {
            RecoveryStep::Disk(DiskStep::Discard { uid } | DiskStep::Commit { uid } | DiskStep::Purge { uid })
            | RecoveryStep::Disk(DiskStep::Destroy { uid, .. } | DiskStep::Seal { uid, .. } | DiskStep::SetQuota { uid, .. })
            | RecoveryStep::Journal(JournalStep::Ready { uid } | JournalStep::Sealed { uid } | JournalStep::Forget { uid }) => uid,
        }
    }
}

/// What a restart must do, and what it must leave to others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// To be done in this order.
    pub steps: Vec<RecoveryStep>,
    /// Trees of ours without a record. They stay: only a synced list of objects can say that nobody wants them.
    pub orphans: Vec<Uid>,
    /// Trees that have a record and are missing on disk. Their records stay.
    pub lost: Vec<Uid>,
    /// Directories with our names and without our marker. They are never changed.
    pub foreign: Vec<String>,
    /// Trees whose record or entry cannot be read, and the error. They are never changed, because nothing is known of them.
    pub unknown: Vec<(Uid, String)>,
}

#[derive(Default)]
struct Observed<'a> {
    record: Option<&'a Record>,
    building: Option<&'a DataRootEntry>,
    live: Option<&'a Marker>,
    trash: Option<&'a DataRootEntry>,
}

/// Plans how each tree that a crash left in the middle of a change becomes done or undone.
///
/// An entry of ours without a marker is an empty directory, under a temporary name or in the trash, because the marker is written first and
/// removed last. The steps for such an entry remove it if it is empty, and fail with `Foreign` if it is not.
pub fn recover(journal: &JournalContents, found: &Inventory) -> Recovery {
    let mut trees: BTreeMap<Uid, Observed> = BTreeMap::new();
    let mut plan = Recovery { foreign: found.foreign.clone(), ..Recovery::default() };
    let damaged = journal.damaged.iter().map(|d| (d.uid, d.why.clone()));
    plan.unknown = damaged.chain(found.unreadable.iter().map(|u| (u.uid, u.why.clone()))).collect();
    for record in &journal.records {
        trees.entry(record.uid).or_default().record = Some(record);
    }
    for entry in &found.entries {
        let observed = trees.entry(entry.uid).or_default();
        match (entry.location, &entry.marker) {
            (EntryLocation::Building, _) => observed.building = Some(entry),
            (EntryLocation::Trash, _) => observed.trash = Some(entry),
            (EntryLocation::Live, Some(marker)) => observed.live = Some(marker),
            (EntryLocation::Live, None) => plan.foreign.push(entry.uid.to_string()),
        }
    }
    for (uid, observed) in trees {
        if !plan.unknown.iter().any(|(unknown, _)| *unknown == uid) {
            recover_one(uid, &observed, &mut plan);
        }
    }
    plan
}

fn recover_one(uid: Uid, observed: &Observed, plan: &mut Recovery) {
    let mut disk = |step| plan.steps.push(RecoveryStep::Disk(step));
    if observed.trash.is_some() {
        disk(DiskStep::Purge { uid });
    }
    // Only a record that says Ready or later proves that the tree under the temporary name is complete.
    let promised = matches!(observed.record.map(|r| r.state), Some(RecordState::Ready | RecordState::Sealing | RecordState::Sealed));
    let whole = observed.building.is_some_and(|e| e.marker.is_some());
    let marker = match (observed.live, promised && whole) {
        (None, true) => {
            disk(DiskStep::Commit { uid });
            observed.building.and_then(|e| e.marker.as_ref())
        }
        (live, _) => {
            if observed.building.is_some() {
                disk(DiskStep::Discard { uid });
            }
            live
        }
    };
    let Some(record) = observed.record else {
        if marker.is_some() {
            plan.orphans.push(uid);
        }
        return;
    };
    let provider = record.provider;
    // Nothing is written to a tree that is being sealed or is sealed.
    let may_be_written = matches!(record.state, RecordState::Creating | RecordState::Ready);
    if may_be_written && marker.is_some_and(|marker| marker.quota != record.quota) {
        plan.steps.push(RecoveryStep::Disk(DiskStep::SetQuota { uid, provider, quota: record.quota }));
    }
    match (record.state, marker) {
        (RecordState::Creating, None) => plan.steps.push(RecoveryStep::Journal(JournalStep::Forget { uid })),
        (RecordState::Creating, Some(_)) => plan.steps.push(RecoveryStep::Journal(JournalStep::Ready { uid })),
        (RecordState::Ready, Some(_)) => {}
        (RecordState::Sealing, Some(marker)) => {
            if marker.sealed.is_none() {
                plan.steps.push(RecoveryStep::Disk(DiskStep::Seal { uid, provider }));
            }
            plan.steps.push(RecoveryStep::Journal(JournalStep::Sealed { uid }));
        }
        (RecordState::Sealed, Some(_)) => {}
        (RecordState::Ready | RecordState::Sealing | RecordState::Sealed, None) => plan.lost.push(uid),
        (RecordState::Destroying, marker) => {
            if marker.is_some() {
                plan.steps.push(RecoveryStep::Disk(DiskStep::Destroy { uid, provider }));
            }
            plan.steps.push(RecoveryStep::Journal(JournalStep::Forget { uid }));
        }
    }
}

#[cfg(test)]
mod tests;
