//! The seam at which a test may pull the plug.

use std::sync::Arc;

/// A moment after which the disk or the journal differs from before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    EntryMade,
    MarkerWritten,
    TreeMade,
    Committed,
    ReadOnlySet,
    SealMarked,
    Trashed,
    TreeGone,
    MarkerGone,
    EntryGone,
    RecordWritten,
    RecordRenamed,
    RecordUnlinked,
}

/// Is told of every [`Point`] as it is passed. The only sensible thing an implementation can do, besides remembering, is to
/// panic: no code of this crate cleans up while unwinding, so that is a crash as the disk sees it.
pub trait Faults: Send + Sync {
    fn reached(&self, point: Point);
}

/// Nothing ever goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn reached(&self, _: Point) {}
}

pub(crate) fn none() -> Arc<dyn Faults> {
    Arc::new(NoFaults)
}
