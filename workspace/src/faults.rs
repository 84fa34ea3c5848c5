//! Points at which a test can stop the process, as a crash would.

use std::sync::Arc;

/// A moment at which the disk or the journal has just changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultPoint {
    /// The directory of a new tree is there, under its temporary name.
    EntryMade,
    /// The new entry has its marker.
    MarkerWritten,
    /// A file of the host is copied, and not yet looked at again.
    HostFileCopied,
    /// The tree is complete.
    TreeMade,
    /// The entry has its final name.
    Committed,
    /// The kernel has the limit of a tree.
    QuotaSet,
    /// The marker has the quota of a tree.
    QuotaMarked,
    /// The tree to seal is durable, and read-only if the file system can do that.
    ReadOnlySet,
    /// The marker says that the tree is sealed.
    SealMarked,
    /// The entry is in the trash.
    Trashed,
    /// The tree of an entry is removed.
    TreeGone,
    /// The marker of an entry is removed.
    MarkerGone,
    /// The entry is removed.
    EntryGone,
    /// The temporary file is flushed.
    FileFlushed,
    /// The file has its final name.
    FileRenamed,
    /// The record is removed.
    RecordUnlinked,
}

/// Is called at every [`FaultPoint`]. An implementation may count, or panic. No code of this crate cleans up while it unwinds, so to the
/// disk a panic is a crash.
pub trait Faults: Send + Sync {
    /// The disk or the journal has changed as `point` says.
    fn on_point(&self, point: FaultPoint);

    /// What happens to a command of `zfs` with these arguments. An implementation may panic: the process dies before the command.
    fn on_command(&self, _args: &[&str]) -> CommandFault {
        CommandFault::None
    }

    /// Whether a provider has this fault. Only a test that must find the fault answers yes.
    fn has(&self, _fault: PlantedFault) -> bool {
        false
    }
}

/// What happens to a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CommandFault {
    /// Nothing: it is run.
    None,
    /// It fails and has done nothing.
    NotRun,
    /// It is run, and its caller does not hear of it: it seems to have failed.
    AnswerLost,
}

/// A mistake that a provider could make, for a test to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlantedFault {
    /// The same upper layer is mounted again.
    UpperMountedTwice,
    /// The fork of an overlay lacks its whiteouts.
    WhiteoutForgotten,
    /// The fork of an overlay keeps the attribute that ties an index to another upper layer.
    IndexTiedToItsSource,
    /// The change list of an overlay does not look where a renamed folder came from.
    RedirectIgnored,
    /// A base is opened through a mount that can be written.
    LowerWritable,
    /// What cannot share its blocks is copied.
    FallsBackToCopy,
    /// Blocks that another tree shares are counted.
    SharedCountedAsExclusive,
    /// A clone gets no quota.
    QuotaNotSetOnClone,
    /// A file of the host that changed while it was copied is kept as it was copied.
    TornFileKept,
    /// A dataset is destroyed together with what depends on it.
    DependentsDestroyed,
    /// A dataset that has the name of a tree is destroyed, whoever made it.
    ForeignDatasetDestroyed,
    /// No mistake: the kernel takes the layers of an overlay by path only, as before Linux 6.15.
    LayersByPathOnly,
    /// No mistake: of the files with several names in an overlay two are remembered, as if there were very many.
    FewLinksRemembered,
}

/// Injects no fault.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn on_point(&self, _: FaultPoint) {}
}

pub(crate) fn none() -> Arc<dyn Faults> {
    Arc::new(NoFaults)
}
