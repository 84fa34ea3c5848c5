//! What a restart does before any socket opens: the mounter answers, journal and disk agree, records and mounts agree.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use yoi_workspace::plan::{self, DiskStep, JournalStep, Step};
use yoi_workspace::{Journal, Probe, Uid};

use super::world::Trouble;
use crate::chain::whole;
use crate::mounter::client::{Failure, Mounter};

/// The containers of a Pod start in any order.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the mounter answers.
pub async fn meet(mounter: &dyn Mounter) -> Result<Probe, Failure> {
    let (mut clock, deadline) = (interval(Duration::from_millis(200)), Instant::now() + PATIENCE);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        match mounter.probe().await {
            Err(Failure::Unheard(error)) if Instant::now() < deadline => tracing::debug!(%error, "the mounter does not answer yet"),
            answer => return answer,
        }
    }
}

/// Brings every crash point to done or undone. Answers with the trees that the journal promises and the disk has not.
pub async fn recover(journal: &Arc<Journal>, mounter: &dyn Mounter) -> Result<HashSet<Uid>, Trouble> {
    let records = journal.all()?;
    let found = mounter.inventory().await?;
    let plan = plan::recover(&records, &found);
    let mut stuck = HashSet::new();
    for step in &plan.steps {
        let uid = of(step);
        // The steps of one tree build on each other.
        if stuck.contains(&uid) {
            continue;
        }
        tracing::info!(?step, "recovering");
        match step {
            Step::Journal(step) => journal.apply(step)?,
            Step::Disk(step) => match mounter.recover(*step).await {
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
    tracing::info!(records = records.len(), trees = found.entries.len(), steps = plan.steps.len(), "journal and disk agree");
    Ok(plan.lost.into_iter().collect())
}

fn of(step: &Step) -> Uid {
    match *step {
        Step::Disk(DiskStep::Discard { uid } | DiskStep::Commit { uid } | DiskStep::Purge { uid })
        | Step::Disk(DiskStep::Destroy { uid, .. } | DiskStep::Seal { uid, .. })
        | Step::Journal(JournalStep::Ready { uid } | JournalStep::Sealed { uid } | JournalStep::Forget { uid }) => uid,
    }
}

/// A sweep or a socket that fails must not keep the doors of all other Pods shut.
pub fn tolerate(deed: &'static str, done: Result<(), Trouble>) {
    if let Err(error) = done {
        tracing::error!(deed, error = whole(&error), "recovery is incomplete");
    }
}
