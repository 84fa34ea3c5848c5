//! Provider Copy: folders, and clones that copy every byte. It works on every file system, is slow, and is the reference for the others.

use std::os::fd::BorrowedFd;

use crate::capture::CapturePlan;
use crate::tree_copy::Data;
use crate::trees::{Backend, LiveTree};
use crate::{CloneAccess, HostFolder, ProviderKind, SysError, Uid, folder};

pub(crate) struct Copy;

impl Backend for Copy {
    const KIND: ProviderKind = ProviderKind::Copy;
    const FORKS_LIVE: bool = false;

    fn clone_into(&self, source: &LiveTree, _: Uid, entry: BorrowedFd, _: CloneAccess) -> Result<(), SysError> {
        folder::copy(source, entry, Data::Copied)
    }

    fn plan_capture(&self, _: &HostFolder) -> Result<CapturePlan, SysError> {
        Ok(CapturePlan::Seed { data: Data::Copied, why: "this provider copies every file".to_owned() })
    }
}
