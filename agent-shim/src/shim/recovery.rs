//! What a start does before any socket is served: wait for the data root, then bring the journal and the disk into agreement. The latter is also
//! done when the data root is mounted anew.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use yoi_workspace::journal::JournalContents;
use yoi_workspace::plan::{self, RecoveryStep};
use yoi_workspace::{ErrorReason, ExpectedRoot, Journal, RecordState, Uid, write_atomically};

use super::data_root::refusal_failure;
use super::error::Error;
use super::state::{ShimState, StartupDamage};
use crate::decide::node_status::DataRootFailure;
use crate::mounter::client::{Mounter, MounterFailure};
use crate::mounter::log_context::LogContext;

/// The containers of a Pod start in any order.
const MOUNTER_START_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two attempts to open a data root that is missing.
const DATA_ROOT_RETRY: Duration = Duration::from_secs(5);

/// Which data root this node expects, from the name that it has recorded in `folder` and from its journal.
pub fn expected_data_root(folder: &Path, journal: &Journal) -> Result<ExpectedRoot, Error> {
    if let Some(name) = read_data_root_name(folder)? {
        return Ok(ExpectedRoot::Named(name));
    }
    let JournalContents { records, damaged } = journal.read_and_clean()?;
    let promised = records.iter().any(|r| matches!(r.state, RecordState::Ready | RecordState::Sealing | RecordState::Sealed));
    Ok(if promised || !damaged.is_empty() { ExpectedRoot::Used } else { ExpectedRoot::Any })
}

/// Waits until the mounter has opened the data root that holds this node's trees, and records the name of that data root in `folder`.
///
/// While the mounter refuses, calls `report` with the reason each time: another data root is there, the kernel is too old, there is no room
/// for the file. An empty directory where a file system should be mounted is never taken for a new node.
pub async fn open_data_root(
    mounter: &dyn Mounter,
    expected: ExpectedRoot,
    folder: &Path,
    mut report: impl AsyncFnMut(DataRootFailure),
) -> Result<(), Error> {
    let (mut clock, deadline) = (interval(Duration::from_millis(200)), Instant::now() + MOUNTER_START_TIMEOUT);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        match mounter.open(expected).await {
            Ok(name) => return write_data_root_name(folder, name).map_err(Error::DataRootName),
            Err(MounterFailure::Transport(error)) if Instant::now() < deadline => {
                tracing::debug!(%error, "the mounter does not answer yet")
            }
            Err(MounterFailure::Refused(refused)) => {
                let mut failure = refusal_failure(&refused);
                if refused.reason == ErrorReason::WrongDataRoot {
                    let (root, journal) = (folder.join(DATA_ROOT_NAME), folder.join("journal"));
                    failure.message = format!(
                        "{}. Mount it, and this goes on by itself. If it is gone for good, remove {} and {} and delete this node's AgentWorkspaces",
                        refused.message,
                        root.display(),
                        journal.display()
                    );
                }
                if refused.reason == ErrorReason::OutOfSpace {
                    failure.message.push_str(". Make room there, and this goes on by itself, or set the chart's shim.loopBtrfs.size");
                }
                tracing::error!(reason = %failure.reason, message = failure.message, "the data root cannot be opened; nothing is served");
                report(failure).await;
                clock.reset_after(DATA_ROOT_RETRY);
            }
            Err(failure @ (MounterFailure::Transport(_) | MounterFailure::Protocol)) => return Err(failure.into()),
        }
    }
}

/// The file in the driver's directory that holds the name of the data root. It lies apart from the data root itself.
const DATA_ROOT_NAME: &str = "data-root";

fn read_data_root_name(folder: &Path) -> Result<Option<Uid>, Error> {
    match std::fs::read_to_string(folder.join(DATA_ROOT_NAME)) {
        // A name that cannot be parsed is an error: to ignore it would accept any data root.
        Ok(text) => text.trim().parse().map(Some).map_err(|e| Error::DataRootName(io::Error::other(e))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::DataRootName(e)),
    }
}

fn write_data_root_name(folder: &Path, name: Uid) -> io::Result<()> {
    if std::fs::read_to_string(folder.join(DATA_ROOT_NAME)).is_ok_and(|text| text == name.to_string()) {
        return Ok(());
    }
    write_atomically(File::open(folder)?, DATA_ROOT_NAME, 0o644, name.to_string().as_bytes()).map_err(|e| e.source)
}

/// Finishes or undoes what a crash interrupted, and returns what it could not bring to a known state.
///
/// Nothing else may use the journal or the mounter meanwhile. A tree that the mounter refuses to recover holds up no other.
pub async fn recover(journal: &Arc<Journal>, mounter: &dyn Mounter) -> Result<StartupDamage, Error> {
    let records = journal.read_and_clean()?;
    let found = mounter.inventory().await?;
    let plan = plan::recover(&records, &found);
    let mut refused_trees = HashSet::new();
    for step in &plan.steps {
        let uid = step.uid();
        // The steps of one tree depend on each other.
        if refused_trees.contains(&uid) {
            continue;
        }
        tracing::info!(?step, "recovering");
        match step {
            RecoveryStep::Journal(step) => journal.apply(step)?,
            RecoveryStep::Disk(step) => match log_context(&records, uid).scope(mounter.recover(*step)).await {
                Ok(()) => {}
                Err(MounterFailure::Refused(refused)) => {
                    tracing::error!(%uid, message = refused.message, "a tree could not be recovered");
                    refused_trees.insert(uid);
                }
                Err(failure @ (MounterFailure::Transport(_) | MounterFailure::Protocol)) => return Err(failure.into()),
            },
        }
    }
    for uid in &plan.orphans {
        tracing::warn!(%uid, "found a tree that no journal record names; it is kept");
    }
    for uid in &plan.lost {
        tracing::error!(%uid, "a tree is gone from the disk");
    }
    for name in &plan.foreign {
        tracing::warn!(name, "found something foreign in the data root; it is never touched");
    }
    for (uid, why) in &plan.unknown {
        tracing::error!(%uid, why, "a tree is left alone: what is known of it cannot be read");
    }
    tracing::info!(records = records.records.len(), trees = found.entries.len(), steps = plan.steps.len(), "journal and disk agree");
    let unreadable = found.unreadable.into_iter().map(|u| (u.uid, u.why)).collect();
    Ok(StartupDamage { lost: plan.lost.into_iter().collect(), unreadable, damaged: records.damaged })
}

/// Does what [`recover`] does, after the data root was mounted anew while the shim runs: the kernel has dropped what was not committed, as a power
/// cut does, and the rename that gives a tree its name may be among it. A tree that the mounter refuses to recover holds up no other.
pub async fn recover_mounted_anew(state: &ShimState) -> Result<(), Error> {
    for uid in recovery_steps(state).await?.iter().map(RecoveryStep::uid).collect::<BTreeSet<_>>() {
        let _tree = state.tree_locks.lock(uid).await;
        // Planned again, because whoever had the lock may have done it, or changed what is to do.
        for step in recovery_steps(state).await?.into_iter().filter(|step| step.uid() == uid) {
            tracing::info!(?step, "recovering");
            match step {
                RecoveryStep::Journal(step) => state.journal(move |journal| journal.apply(&step)).await?,
                RecoveryStep::Disk(step) => match state.mounter.recover(step).await {
                    Ok(()) => {}
                    Err(MounterFailure::Refused(refused)) => {
                        tracing::error!(%uid, message = refused.message, "a tree could not be recovered");
                        break;
                    }
                    Err(failure @ (MounterFailure::Transport(_) | MounterFailure::Protocol)) => return Err(failure.into()),
                },
            }
        }
    }
    Ok(())
}

async fn recovery_steps(state: &ShimState) -> Result<Vec<RecoveryStep>, Error> {
    let records = state.journal(|journal| journal.read()).await?;
    Ok(plan::recover(&records, &state.mounter.inventory().await?).steps)
}

fn log_context(known: &JournalContents, uid: Uid) -> LogContext {
    let record = known.records.iter().find(|r| r.uid == uid);
    LogContext { object: record.and_then(|r| r.object.clone()), ..LogContext::default() }
}
