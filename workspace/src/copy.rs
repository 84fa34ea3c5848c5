//! Provider Copy: folders, and clones that copy every byte. It works on every file system, is slow, and is the reference for the others.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::capture::CapturePlan;
use crate::change_list::ChangeCollector;
use crate::layout::Layout;
use crate::tree_copy::Data;
use crate::trees::{Backend, LiveTree};
use crate::{ChangeLimits, CloneAccess, DiskUsage, EntryLocation, Error, HostFolder, Owner, ProviderKind, SysError, Uid, folder};

pub(crate) struct Copy {
    pub layout: Arc<Layout>,
}

impl Backend for Copy {
    const KIND: ProviderKind = ProviderKind::Copy;
    const FORKS_LIVE: bool = false;

    fn make_empty(&self, _: Uid, entry: BorrowedFd, owner: Owner) -> Result<(), SysError> {
        folder::make_empty(entry, owner)
    }

    fn clone_into(&self, source: &LiveTree, _: Uid, entry: BorrowedFd, _: CloneAccess) -> Result<(), SysError> {
        folder::copy(source, entry, Data::Copied)
    }

    fn plan_capture(&self, _: &HostFolder) -> Result<CapturePlan, SysError> {
        Ok(CapturePlan::Seed { data: Data::Copied, why: "this provider copies every file".to_owned() })
    }

    fn has_nested_volume(&self, _: &LiveTree, tree: BorrowedFd) -> Result<bool, SysError> {
        folder::has_nested_volume(tree)
    }

    fn freeze(&self, _: &LiveTree, tree: BorrowedFd) -> Result<Option<u64>, SysError> {
        folder::flush(tree)
    }

    fn remove(&self, _: Uid, entry: BorrowedFd, _: EntryLocation) -> Result<(), SysError> {
        folder::remove(entry)
    }

    fn commit_removals(&self, root: BorrowedFd) -> Result<(), SysError> {
        folder::commit_removals(root)
    }

    /// The file system may have shared blocks between a file and its copy, so it is asked.
    fn measure(&self, live: &LiveTree) -> Result<DiskUsage, Error> {
        let tree = self.open(live)?;
        folder::usage(tree.as_fd(), &*self.layout.faults).map_err(|source| Error::Measure { uid: live.marker.uid, source })
    }

    fn changes(&self, tree: &LiveTree, since: &LiveTree, limits: &ChangeLimits, out: &mut ChangeCollector) -> Result<(), Error> {
        let (opened, base) = (self.open(tree)?, self.open(since)?);
        folder::changes((tree, opened.as_fd()), (since, base.as_fd()), limits, out)
            .map_err(|source| Error::Compare { uid: tree.marker.uid, source })
    }
}
