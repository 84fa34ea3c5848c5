//! Destroying the dataset of a tree: only what is ours, one by one, and nothing that another tree needs.

use std::time::{Duration, Instant};

use super::command::{CommandError, Expected};
use super::parse::{Dataset, DatasetKind, Refusal};
use super::{Zfs, foreign};
use crate::error::StepContext;
use crate::{ErrorReason, Marker, PlantedFault, SysError, TreeOrigin, Uid};

/// How many forks are promoted before a destruction is given up. One is enough unless others destroy its siblings meanwhile.
const MAX_PROMOTIONS: usize = 100;
/// The daemon of zfs-fuse notices some time after the kernel that a dataset is unmounted. It tells nobody, so it is asked again.
const DAEMON_IS_ASKED: Duration = Duration::from_millis(20);

impl Zfs {
    /// The snapshot that a tree was to be cloned from.
    pub(super) fn origin_of(&self, marker: &Marker) -> Option<String> {
        match (marker.origin, &marker.host_dataset) {
            (TreeOrigin::Clone { from, .. }, _) => Some(self.commands.snapshot_name(from, marker.uid)),
            (TreeOrigin::Host { .. }, Some(dataset)) => Some(format!("{dataset}@{}", marker.uid)),
            (TreeOrigin::Host { .. } | TreeOrigin::Empty { .. }, _) => None,
        }
    }

    /// Destroys the dataset of a tree, and the snapshot `origin` that it was made of. Missing is a success, but not if the parent is missing, too: its
    /// pool may come back. Fails with the reason `Foreign` if something in the way is not ours.
    pub(super) fn remove_dataset(&self, uid: Uid, origin: Option<&str>) -> Result<(), SysError> {
        match self.commands.get_all_below(&self.commands.tree(uid))? {
            Some(found) => self.destroy(uid, &found)?,
            None => {
                self.require_parent()?;
                // It died between the snapshot and the clone.
                self.remove_snapshot_of_origin(uid, origin)?;
            }
        }
        self.remove_mount_point(uid)
    }

    /// Destroys the snapshot of which a tree was to be cloned. One that is not ours stays.
    pub(super) fn remove_snapshot_of_origin(&self, uid: Uid, origin: Option<&str>) -> Result<(), SysError> {
        let Some(snapshot) = origin else { return Ok(()) };
        match self.destroy_snapshot_of(snapshot, uid) {
            Err(e) if e.reason() == ErrorReason::Foreign => Ok(()),
            done => done,
        }
    }

    /// Fails unless the parent of all trees is there.
    pub(super) fn require_parent(&self) -> Result<(), SysError> {
        let name = self.commands.options.dataset.as_str();
        match self.commands.get(name)? {
            Some(parent) if parent.kind == DatasetKind::Filesystem => Ok(()),
            Some(_) => Err(std::io::Error::other(format!("{name} is no file system"))).step("find the dataset for trees"),
            None => Err(std::io::Error::other(format!("there is no dataset {name}; its pool may not be imported")))
                .step("find the dataset for trees"),
        }
    }

    pub(super) fn has_child_dataset(&self, uid: Uid) -> Result<bool, SysError> {
        let name = self.commands.tree(uid);
        let found = self.commands.get_all_below(&name)?.unwrap_or_default();
        Ok(found.iter().any(|d| is_child_of(d, &name)))
    }

    /// Destroys a snapshot that was made for `uid`, or has it go with its last clone.
    fn destroy_snapshot_of(&self, snapshot: &str, uid: Uid) -> Result<(), SysError> {
        match self.commands.get(snapshot)? {
            Some(found) if self.commands.owner(&found) == Some(uid) => {
                self.commands.destroy_when_unused(snapshot).unless(&[Refusal::Missing]).map(drop)
            }
            Some(_) => Err(foreign(snapshot)),
            None => Ok(()),
        }
    }

    fn destroy(&self, uid: Uid, found: &[Dataset]) -> Result<(), SysError> {
        let name = self.commands.tree(uid);
        let checks = !self.layout.faults.has(PlantedFault::ForeignDatasetDestroyed);
        let Some(tree) = found.iter().find(|d| d.name == name) else { return Ok(()) };
        if checks && (tree.kind != DatasetKind::Filesystem || self.commands.owner(tree) != Some(uid)) {
            return Err(foreign(&name));
        }
        let snapshots: Vec<_> = found.iter().filter(|d| d.kind == DatasetKind::Snapshot && !is_child_of(d, &name)).collect();
        let strange = |d: &&Dataset| is_child_of(d, &name) || (d.kind == DatasetKind::Snapshot && self.commands.owner(d).is_none());
        if let Some(stranger) = found.iter().find(strange).filter(|_| checks) {
            return Err(foreign(&stranger.name));
        }
        self.unmount_attached(uid)?;
        if self.layout.faults.has(PlantedFault::DependentsDestroyed) {
            return Ok(self.commands.destroy_with_dependents(&name)?);
        }
        // Marked before the dataset goes: those that clones need go with the last of them, whoever has them then.
        for snapshot in &snapshots {
            self.commands.destroy_when_unused(&snapshot.name).unless(&[Refusal::Missing])?;
        }
        if let Some(origin) = tree.origin().filter(|origin| origin.split_once('@').is_some_and(|(_, part)| part == uid.to_string())) {
            self.destroy_snapshot_of(origin, uid)?;
        }
        self.destroy_alone(&name, &snapshots)
    }

    /// Destroys a dataset, after a fork that needs one of its snapshots has become the owner of these.
    fn destroy_alone(&self, name: &str, snapshots: &[&Dataset]) -> Result<(), SysError> {
        let begun = Instant::now();
        let mut promotions = 0;
        loop {
            let error = match self.commands.destroy(name) {
                Ok(()) | Err(CommandError::Refused { refusal: Refusal::Missing, .. }) => return Ok(()),
                Err(error) => error,
            };
            match &error {
                CommandError::Refused { refusal: Refusal::HasDependents, .. } if promotions < MAX_PROMOTIONS => {
                    let Some(fork) = self.fork_to_promote(name, snapshots)? else { return Err(error.into()) };
                    // It may be gone already, and its origin with it.
                    self.commands.promote(&fork).unless(&[Refusal::Missing])?;
                    promotions += 1;
                }
                CommandError::Refused { refusal: Refusal::Busy, .. }
                    if self.is_by_daemon()? && begun.elapsed() < self.commands.options.deadline =>
                {
                    std::thread::sleep(DAEMON_IS_ASKED);
                }
                _ => return Err(error.into()),
            }
        }
    }

    /// The fork that was made last of all forks of a dataset: it takes the snapshots of the others along.
    fn fork_to_promote(&self, name: &str, snapshots: &[&Dataset]) -> Result<Option<String>, SysError> {
        let age = |origin: &str| snapshots.iter().position(|s| s.name == origin);
        let is_of = |d: &Dataset| d.origin().is_some_and(|origin| origin.split_once('@').is_some_and(|(of, _)| of == name));
        let forks = self.commands.trees()?.into_iter().filter(|d| self.commands.owner(d).is_some() && is_of(d));
        Ok(forks.max_by_key(|d| d.origin().and_then(age)).map(|d| d.name))
    }
}

/// True for a dataset below another, and for what belongs to one.
fn is_child_of(dataset: &Dataset, name: &str) -> bool {
    dataset.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
}
