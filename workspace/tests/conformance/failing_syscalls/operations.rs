//! What the shim does around a provider's call, with the journal.

use std::path::PathBuf;

use yoi_workspace::plan::{self, RecoveryStep};
use yoi_workspace::{DataRoot, Journal, ProviderKind, Quota, RecordDetails, TreeOrigin, Uid};

use crate::host;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Operation {
    Make,
    Fork,
    /// A clone of a sealed clone.
    ForkOfFork,
    /// A tree of a folder of the host.
    Capture,
    Seal,
    Publish,
    Destroy,
    Recover,
}

pub(super) type Outcome = Result<(), String>;

/// The steps around the provider: as the shim does them, or with a planted fault.
#[derive(Clone, Copy)]
pub(super) struct Operations {
    pub(super) make: fn(&Process, Uid, TreeOrigin) -> Outcome,
    pub(super) destroy: fn(&Process, Uid) -> Outcome,
    pub(super) recover: fn(&Process) -> Outcome,
}

pub(super) const CORRECT: Operations = Operations { make: make_as_the_shim, destroy: destroy_as_the_shim, recover: recover_as_the_shim };

/// A process that has just started.
pub(super) struct Process {
    pub(super) root: DataRoot,
    pub(super) journal: Journal,
    pub(super) kind: ProviderKind,
    pub(super) dir: PathBuf,
    /// Of clones, where quotas are enforced.
    pub(super) quota: Option<Quota>,
}

pub(super) fn described<T, E: std::error::Error>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|e| format!("{e}: {}", e.source().map(ToString::to_string).unwrap_or_default()))
}

pub(super) fn make_without_journal(process: &Process, uid: Uid, origin: TreeOrigin) -> Outcome {
    let provider = described(process.root.provider(process.kind))?;
    match origin {
        TreeOrigin::Empty { owner } => described(provider.create_empty(uid, owner))?,
        TreeOrigin::Clone { from, access } => described(provider.clone_tree(uid, from, access))?,
        TreeOrigin::Host { .. } => described(host::capture_with(provider, uid, &process.dir.with_extension("host")))?,
    };
    Ok(())
}

pub(super) fn make_as_the_shim(process: &Process, uid: Uid, origin: TreeOrigin) -> Outcome {
    let quota = process.quota.filter(|_| matches!(origin, TreeOrigin::Clone { .. }));
    described(process.journal.begin_create_for(uid, process.kind, origin, RecordDetails { quota, ..RecordDetails::default() }))?;
    if let Err(error) = make_without_journal(process, uid, origin) {
        described(process.journal.begin_destroy(uid).and_then(|()| process.journal.record_destroyed(uid)))?;
        return Err(error);
    }
    if quota.is_some() {
        described(process.root.provider(process.kind).and_then(|provider| provider.set_quota(uid, quota)))?;
    }
    described(process.journal.record_created(uid))
}

pub(super) fn destroy_as_the_shim(process: &Process, uid: Uid) -> Outcome {
    described(process.journal.begin_destroy(uid))?;
    described(process.root.provider(process.kind).and_then(|provider| provider.destroy(uid)))?;
    described(process.journal.record_destroyed(uid))
}

/// A tree that cannot be recovered does not stop the recovery of others.
pub(super) fn recover_as_the_shim(process: &Process) -> Outcome {
    let mut stuck: Vec<Uid> = Vec::new();
    let plan = plan::recover(&described(process.journal.read_and_clean())?, &described(process.root.inventory())?);
    for step in &plan.steps {
        let uid = step.uid();
        match step {
            _ if stuck.contains(&uid) => {}
            RecoveryStep::Disk(step) => match process.root.perform(step) {
                Err(yoi_workspace::Error::Foreign { .. }) => stuck.push(uid),
                done => described(done)?,
            },
            RecoveryStep::Journal(step) => described(process.journal.apply(step))?,
        }
    }
    // Trees of which nothing is known stay as they are. The shim reports them.
    if plan.unknown.is_empty() { Ok(()) } else { Err(format!("left alone: {:?}", plan.unknown)) }
}

pub(super) fn seal_as_the_shim(process: &Process, uid: Uid) -> Outcome {
    described(process.journal.begin_seal(uid))?;
    described(process.root.provider(process.kind).and_then(|provider| provider.seal(uid)))?;
    described(process.journal.record_sealed(uid))
}
