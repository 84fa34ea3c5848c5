//! What a restart does before any socket opens: the mounter answers, journal and disk agree, records and mounts agree.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use yoi_workspace::journal::{DamagedRecord, JournalContents};
use yoi_workspace::plan::{self, RecoveryStep};
use yoi_workspace::{ErrorReason, ExpectedRoot, Journal, RecordState, Uid};

use super::world::Trouble;
use crate::chain::whole;
use crate::mounter::client::{Failure, Mounter};
use crate::mounter::whose::Whose;

/// The containers of a Pod start in any order.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a data root that is not there is looked for.
const LOOK: Duration = Duration::from_secs(5);

/// What this node knows of its data root before it has seen it.
pub fn expected(folder: &Path, journal: &Journal) -> Result<ExpectedRoot, Trouble> {
    if let Some(name) = RootName::read(folder)? {
        return Ok(ExpectedRoot::Named(name));
    }
    let JournalContents { records, damaged } = journal.read_and_clean()?;
    let promised = records.iter().any(|r| matches!(r.state, RecordState::Ready | RecordState::Sealing | RecordState::Sealed));
    Ok(if promised || !damaged.is_empty() { ExpectedRoot::Used } else { ExpectedRoot::Any })
}

/// Waits until the mounter answers and has opened the data root that this node's trees are in. While it is another one, says so to `tell`,
/// again and again: an empty folder where a file system should be mounted must never be taken for a new node.
pub async fn meet(mounter: &dyn Mounter, expected: ExpectedRoot, folder: &Path, mut tell: impl AsyncFnMut(&str)) -> Result<(), Trouble> {
    let (mut clock, deadline) = (interval(Duration::from_millis(200)), Instant::now() + PATIENCE);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        match mounter.open(expected).await {
            Ok(name) => return RootName::write(folder, name).map_err(Trouble::Root),
            Err(Failure::Unheard(error)) if Instant::now() < deadline => tracing::debug!(%error, "the mounter does not answer yet"),
            Err(Failure::Refused(refused)) if refused.reason == ErrorReason::WrongDataRoot => {
                let (root, journal) = (folder.join(ROOT_NAME), folder.join("journal"));
                let message = format!(
                    "{}. Mount it, and this goes on by itself. If it is gone for good, remove {} and {} and delete this node's AgentWorkspaces",
                    refused.message,
                    root.display(),
                    journal.display()
                );
                tracing::error!(message, "the data root is not the one that this node's trees are in; nothing is served");
                tell(&message).await;
                clock.reset_after(LOOK);
            }
            Err(failure) => return Err(failure.into()),
        }
    }
}

const ROOT_NAME: &str = "data-root";

/// The name of the data root, as this node remembers it apart from it.
struct RootName;

impl RootName {
    fn read(folder: &Path) -> Result<Option<Uid>, Trouble> {
        match std::fs::read_to_string(folder.join(ROOT_NAME)) {
            // What cannot be understood is no leave to take any other.
            Ok(text) => text.trim().parse().map(Some).map_err(|e| Trouble::Root(io::Error::other(e))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Trouble::Root(e)),
        }
    }

    fn write(folder: &Path, name: Uid) -> io::Result<()> {
        let (path, fresh) = (folder.join(ROOT_NAME), folder.join(".data-root.new"));
        if std::fs::read_to_string(&path).is_ok_and(|text| text == name.to_string()) {
            return Ok(());
        }
        let mut file = File::create(&fresh)?;
        file.write_all(name.to_string().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        File::open(folder)?.sync_all()
    }
}

/// Trees that a restart found in trouble. None of them keeps another from being served.
#[derive(Debug, Default)]
pub struct Troubled {
    /// The journal promises them and the disk has not got them.
    pub lost: HashSet<Uid>,
    /// Their entry on disk could not be read, and why.
    pub unreadable: BTreeMap<Uid, String>,
    /// Their record could not be understood, and why.
    pub damaged: Vec<DamagedRecord>,
}

/// Brings every crash point to done or undone.
pub async fn recover(journal: &Arc<Journal>, mounter: &dyn Mounter) -> Result<Troubled, Trouble> {
    let records = journal.read_and_clean()?;
    let found = mounter.inventory().await?;
    let plan = plan::recover(&records, &found);
    let mut stuck = HashSet::new();
    for step in &plan.steps {
        let uid = step.uid();
        // The steps of one tree build on each other.
        if stuck.contains(&uid) {
            continue;
        }
        tracing::info!(?step, "recovering");
        match step {
            RecoveryStep::Journal(step) => journal.apply(step)?,
            RecoveryStep::Disk(step) => match whose(&records, uid).during(mounter.recover(*step)).await {
                Ok(()) => {}
                Err(Failure::Refused(refused)) => {
                    tracing::error!(%uid, message = refused.message, "a tree could not be recovered");
                    stuck.insert(uid);
                }
                Err(failure @ (Failure::Unheard(_) | Failure::Misheard)) => return Err(failure.into()),
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
    Ok(Troubled { lost: plan.lost.into_iter().collect(), unreadable, damaged: records.damaged })
}

/// As far as the journal remembers it.
fn whose(known: &JournalContents, uid: Uid) -> Whose {
    let record = known.records.iter().find(|r| r.uid == uid);
    Whose { object: record.and_then(|r| r.object.clone()), ..Whose::default() }
}

/// A sweep or a socket that fails must not keep the doors of all other Pods shut.
pub fn tolerate(deed: &'static str, done: Result<(), Trouble>) {
    if let Err(error) = done {
        tracing::error!(deed, error = whole(&error), "recovery is incomplete");
    }
}
