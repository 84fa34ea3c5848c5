//! The bundles of a project that people have synced: which are not needed any more.
//!
//! The gateway stores them and lists them in the status, and it may delete nothing. What the operator has deleted stands in the status, so that nothing is
//! deleted twice, and nothing is forgotten when a write fails.

use yoi_crds::YoiProject;
use yoi_crds::sync::{StoredBundle, StoredPart, SyncStatus, part_prefix};

use crate::step::{Kind, Step, Target};
use crate::stored::Stored;
use crate::tree::base_set::synced;

/// What to delete, and the operator's fields of the status.
pub(super) struct SyncPlan {
    pub steps: Vec<Step>,
    pub status: Option<Box<SyncStatus>>,
}

/// The operator's fields alone.
pub(super) fn own_fields(sync: Option<Box<SyncStatus>>) -> Option<Box<SyncStatus>> {
    let deleted = sync?.deleted;
    (!deleted.is_empty()).then(|| Box::new(SyncStatus { deleted, ..SyncStatus::default() }))
}

/// `in_use` are the commits that trees are made from: a base of one may have to be filled on a further node. A bundle of the commit that came last is
/// needed, too.
pub(super) fn plan<'a>(project: Stored<'_, YoiProject>, in_use: impl Iterator<Item = &'a String>) -> SyncPlan {
    let before = project.get().status.as_ref().and_then(|status| status.sync.as_deref());
    let Some(SyncStatus { bundles, deleted, .. }) = before else { return SyncPlan { steps: Vec::new(), status: None } };
    let mut needed: Vec<&str> = in_use.map(String::as_str).collect();
    needed.extend(synced(project).map(|tree| tree.commit.as_str()));
    let unneeded: Vec<&StoredBundle> = bundles.iter().filter(|bundle| !needed.contains(&bundle.commit.as_str())).collect();
    let to_delete = unneeded.iter().filter(|bundle| !deleted.contains(&bundle.commit));
    // Whoever may write the status could name any ConfigMap.
    let prefix = part_prefix(project.name());
    let is_ours = |part: &&StoredPart| part.name.starts_with(&prefix) && !part.uid.is_empty();
    let parts = to_delete.flat_map(|bundle| bundle.parts.iter().filter(is_ours));
    let delete = |part: &StoredPart| {
        let (namespace, name, uid) = (project.namespace().to_owned(), part.name.clone(), part.uid.clone());
        Step::Delete(Target { kind: Kind::ConfigMap, namespace, name, uid })
    };
    let steps = parts.map(delete).collect();
    let deleted: Vec<String> = unneeded.into_iter().map(|bundle| bundle.commit.clone()).collect();
    let status = (!deleted.is_empty()).then(|| Box::new(SyncStatus { deleted, ..SyncStatus::default() }));
    SyncPlan { steps, status }
}
