//! Trees on this node's disk that no object claims, and which of them a person may discard.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use yoi_crds::node::{MAX_UNCLAIMED_ITEMS, UnclaimedTree, UnclaimedTrees};
use yoi_workspace::{ChangeBase, DataRootEntry, DiskUsage, EntryLocation, Inventory, Record, TreeLabel, Uid};

use super::orphan::{OrphanCheck, check_orphan};

/// How long a base that no object claims is kept, for a look at what happened.
pub const BASE_GRACE: Duration = Duration::from_hours(1);
/// Letters of a refusal in the status.
const MAX_REFUSAL: usize = 1000;

/// A tree on the disk of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTree {
    /// UID of the tree and of the object that it was made for.
    pub uid: Uid,
    /// Whether a project makes it anew. In any other tree somebody may have worked.
    pub is_base: bool,
    /// What the journal calls it.
    pub label: Option<TreeLabel>,
    /// When it was made, in seconds since 1970.
    pub created_seconds: Option<i64>,
}

/// The trees that the disk holds under their names. Without those that the check of orphans destroys by itself once their objects are gone.
pub fn held_trees(records: &[Record], disk: &Inventory) -> Vec<HeldTree> {
    let records: HashMap<Uid, &Record> = records.iter().map(|record| (record.uid, record)).collect();
    let held = |entry: &DataRootEntry| {
        let marker = entry.marker.as_ref().filter(|_| entry.location == EntryLocation::Live)?;
        let record = records.get(&entry.uid);
        if record.is_some_and(|record| matches!(check_orphan(record), OrphanCheck::AskApiServer { .. })) {
            return None;
        }
        let label = record.and_then(|record| record.label.clone());
        let is_base = marker.sealed.is_some() || label.as_ref().is_some_and(|label| label.generation.is_some());
        Some(HeldTree { uid: entry.uid, is_base, label, created_seconds: entry.created_seconds })
    };
    disk.entries.iter().filter_map(held).collect()
}

/// Whether a tree that no object has claimed for so long goes without a person. Nobody has worked in a base, and no object can get its UID again. It stays
/// while any tree of this disk is counted from it, so that an overlay that a person wants to look into can be shown.
pub fn goes_by_itself(tree: &HeldTree, without_object: Duration, records: &[Record]) -> bool {
    tree.is_base && without_object >= BASE_GRACE && records.iter().all(|record| record.since != ChangeBase::Tree(tree.uid))
}

/// Why a tree that no object claims is not discarded, although a person says so; None if it may be. `mounts` is of this tree, and `is_claimed` says
/// whether an object claims another one.
pub fn discard_refusal(uid: Uid, mounts: usize, records: &[Record], is_claimed: impl Fn(Uid) -> bool) -> Option<String> {
    if mounts > 0 {
        return Some(format!("{mounts} mounts of it are left: delete the Pods that use it"));
    }
    let users = records.iter().filter(|record| record.since == ChangeBase::Tree(uid) && is_claimed(record.uid)).count();
    (users > 0).then(|| format!("the changes of {users} trees that workspaces use are counted from it: delete those first"))
}

/// What the node's status says of these trees. `refused` has the reasons why some are still there that a person wanted to discard.
pub fn status(unclaimed: &[HeldTree], usages: &HashMap<Uid, DiskUsage>, refused: &BTreeMap<Uid, String>) -> Option<UnclaimedTrees> {
    if unclaimed.is_empty() {
        return None;
    }
    let count = |is_base| i64::try_from(unclaimed.iter().filter(|tree| tree.is_base == is_base).count()).unwrap_or(i64::MAX);
    let exclusive = |tree: &HeldTree| usages.get(&tree.uid).map_or(0, |usage| usage.exclusive_bytes);
    let all = unclaimed.iter().map(exclusive).fold(0, u64::saturating_add);
    let mut sorted: Vec<&HeldTree> = unclaimed.iter().collect();
    sorted.sort_by_key(|tree| (std::cmp::Reverse(exclusive(tree)), tree.uid));
    let item = |tree: &HeldTree| {
        let usage = usages.get(&tree.uid);
        UnclaimedTree {
            uid: tree.uid.to_string(),
            base: tree.is_base,
            object: tree.label.as_ref().map(|label| label.object.clone()),
            generation: tree.label.as_ref().and_then(|label| label.generation.clone()),
            created_at: tree.created_seconds.and_then(|s| Timestamp::from_second(s).ok()).map(|t| t.to_string()),
            logical_bytes: usage.map(|usage| bytes(usage.logical_bytes)),
            exclusive_bytes: usage.map(|usage| bytes(usage.exclusive_bytes)),
            refused: refused.get(&tree.uid).map(|why| why.chars().take(MAX_REFUSAL).collect()),
        }
    };
    let items = sorted.into_iter().take(MAX_UNCLAIMED_ITEMS).map(item).collect();
    Some(UnclaimedTrees { trees: count(false), bases: count(true), exclusive_bytes: bytes(all), items })
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
