//! Provider Reflink: folders, and clones whose files share all their blocks with the source's. A file whose blocks cannot be shared is an
//! error: nothing is ever copied in silence.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::StepContext;
use crate::layout::Layout;
use crate::tree_copy::Data;
use crate::trees::{Backend, LiveTree};
use crate::{CloneAccess, PlantedFault, ProviderKind, SysError, Uid, folder};

pub(crate) struct Reflink {
    pub layout: Arc<Layout>,
}

impl Backend for Reflink {
    const KIND: ProviderKind = ProviderKind::Reflink;
    const FORKS_LIVE: bool = false;

    fn clone_into(&self, source: &LiveTree, _: Uid, entry: BorrowedFd, _: CloneAccess) -> Result<(), SysError> {
        let falls_back = self.layout.faults.has(PlantedFault::FallsBackToCopy);
        folder::copy(source, entry, if falls_back { Data::SharedOrCopied } else { Data::Shared })
    }
}

const FROM: &str = ".probe.from";
const TO: &str = ".probe.to";

/// Tries it: a file of one block is made and cloned.
pub(crate) fn try_here(root: BorrowedFd) -> Result<(), SysError> {
    remove_probes(root)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let make = |name: &str| rustix::fs::openat(root, name, flags, Mode::RUSR).step("make a file");
    let attempt = || {
        let (from, to) = (make(FROM)?, make(TO)?);
        // Nothing written is flushed: the kernel writes the block out when it is cloned.
        rustix::io::write(&from, &[7; 4096]).step("write a file")?;
        rustix::fs::ioctl_ficlone(&to, &from).step("share the blocks of a file")
    };
    let tried = attempt();
    remove_probes(root)?;
    tried
}

fn remove_probes(root: BorrowedFd) -> Result<(), SysError> {
    for name in [FROM, TO] {
        match rustix::fs::unlinkat(root, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e).step("remove a probe"),
        }
    }
    Ok(())
}
