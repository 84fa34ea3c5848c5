//! The thought: which provider, and what a restart must do. No disk, no clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::journal::Contents;
use crate::{DataRootEntry, Inventory, Marker, Place, ProviderKind, Record, RecordState, Uid};

/// What the workspace asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProviderRequest {
    /// The first that is offered of Btrfs, Copy.
    Auto,
    Btrfs,
    Copy,
}

/// What a data root can do, found by trying it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderOffer {
    pub provider: ProviderKind,
    pub available: bool,
    /// Why, in words for people, either way.
    pub reason: String,
}

/// The provider to use, and the sentence for `status.provider.reason`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderChoice {
    pub provider: ProviderKind,
    pub reason: String,
}

/// Nothing on offer may serve: condition `ProviderSelected=False/ProviderUnavailable`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("failed to select a provider: {reason}")]
pub struct ProviderUnavailable {
    pub reason: String,
}

const AUTO_ORDER: [ProviderKind; 2] = [ProviderKind::Btrfs, ProviderKind::Copy];

/// Chooses. A named provider never falls back, and nothing falls back to working in place.
pub fn select(wanted: ProviderRequest, offers: &[ProviderOffer]) -> Result<ProviderChoice, ProviderUnavailable> {
    let candidates: &[ProviderKind] = match wanted {
        ProviderRequest::Auto => &AUTO_ORDER,
        ProviderRequest::Btrfs => &[ProviderKind::Btrfs],
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
            None => refusals.push(format!("{kind}: not offered by this node")),
        }
    }
    Err(ProviderUnavailable { reason: refusals.join("; ") })
}

/// A step for the process that holds the disk. Each may be said twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DiskStep {
    /// Remove what stands under the temporary name.
    Discard { uid: Uid },
    /// Give a whole tree, found under its temporary name, its name again: the rename had not reached the disk when the power went.
    Commit { uid: Uid },
    /// Finish a destruction: remove what stands in the trash.
    Purge { uid: Uid },
    /// Destroy the tree wherever it stands.
    Destroy { uid: Uid, provider: ProviderKind },
    /// Seal the tree.
    Seal { uid: Uid, provider: ProviderKind },
}

/// A step for the process that holds the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum JournalStep {
    /// The tree is there: the record becomes Ready.
    Ready { uid: Uid },
    /// The tree is sealed: the record becomes Sealed.
    Sealed { uid: Uid },
    /// Nothing is there and nothing is wanted: the record goes.
    Forget { uid: Uid },
}

/// A step of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RecoveryStep {
    Disk(DiskStep),
    Journal(JournalStep),
}

impl RecoveryStep {
    /// The tree that it is about. The steps of one tree build on each other; those of others do not.
    pub fn uid(&self) -> Uid {
        match *self {
            RecoveryStep::Disk(DiskStep::Discard { uid } | DiskStep::Commit { uid } | DiskStep::Purge { uid })
            | RecoveryStep::Disk(DiskStep::Destroy { uid, .. } | DiskStep::Seal { uid, .. })
            | RecoveryStep::Journal(JournalStep::Ready { uid } | JournalStep::Sealed { uid } | JournalStep::Forget { uid }) => uid,
        }
    }
}

/// What a restart must do, in order, and what it must not decide.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    pub steps: Vec<RecoveryStep>,
    /// Trees of ours that no record names. Kept: only a synced list of objects may say that nobody wants them.
    pub orphans: Vec<Uid>,
    /// Trees that the journal promises and the disk has not. Their records stay.
    pub lost: Vec<Uid>,
    /// Directories under our names without our marker. Never touched.
    pub foreign: Vec<String>,
    /// Trees whose record or entry cannot be read, and why. Never touched: not knowing is no reason to remove.
    pub unknown: Vec<(Uid, String)>,
}

#[derive(Default)]
struct Observed<'a> {
    record: Option<&'a Record>,
    building: Option<&'a DataRootEntry>,
    live: Option<&'a Marker>,
    trash: Option<&'a DataRootEntry>,
}

/// Brings every crash point to done or undone.
///
/// An entry without a marker under a temporary name or in the trash may only be an empty directory of ours (the marker is written
/// first and removed last); the steps for it remove it if it is empty and fail with `Foreign` if not.
pub fn recover(journal: &Contents, found: &Inventory) -> Recovery {
    let mut trees: BTreeMap<Uid, Observed> = BTreeMap::new();
    let mut plan = Recovery { foreign: found.foreign.clone(), ..Recovery::default() };
    let damaged = journal.damaged.iter().map(|d| (d.uid, d.why.clone()));
    plan.unknown = damaged.chain(found.unreadable.iter().map(|u| (u.uid, u.why.clone()))).collect();
    for record in &journal.records {
        trees.entry(record.uid).or_default().record = Some(record);
    }
    for entry in &found.entries {
        let observed = trees.entry(entry.uid).or_default();
        match (entry.place, &entry.marker) {
            (Place::Building, _) => observed.building = Some(entry),
            (Place::Trash, _) => observed.trash = Some(entry),
            (Place::Live, Some(marker)) => observed.live = Some(marker),
            (Place::Live, None) => plan.foreign.push(entry.uid.to_string()),
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
    // Only a record that says Ready or later proves that what stands under the temporary name had been whole.
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
