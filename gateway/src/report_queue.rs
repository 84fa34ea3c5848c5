//! Writes the reports of runtimes into the status of their YoiPods, at a bounded rate for each Pod.
//!
//! # Guarantees
//! * Of one Pod, at most one report waits and at most one is being written. A newer report replaces the one that waits.
//! * The newest report is written in the end, also when its sender has gone.
//! * At most [`ReportRate::burst`] writes at once, and then one in each [`ReportRate::interval`]. A report that changes nothing is no write.
//!
//! # Caveats
//! The rate is of this replica. A runtime that reports to all replicas has as many times the rate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::RuntimeReport;

use crate::status::{StatusChange, StatusWriter, WriteError};

/// Beyond this many Pods, each new Pod removes those that may write their whole burst again.
const PRUNE_ABOVE: usize = 1_000;

/// How often the reports of one Pod are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportRate {
    /// Writes that need not wait. A start takes a handful: starting, replayed, a task submitted, running, finished.
    pub burst: u32,
    /// The time in which one more write is allowed.
    pub interval: Duration,
}

/// The write of a report failed.
pub type SharedWriteError = Arc<WriteError>;

pub struct ReportQueue {
    writer: Arc<StatusWriter>,
    rate: ReportRate,
    /// By UID of the Pod: a report of a former Pod must not replace one of its successor.
    by_pod: Mutex<HashMap<String, Arc<PodReports>>>,
}

struct PodReports {
    waiting: Mutex<Waiting>,
    written: watch::Sender<LastWrite>,
}

/// The last report that was written, and how that ended.
struct LastWrite {
    number: u64,
    result: Result<(), SharedWriteError>,
}

struct Waiting {
    newest: Option<(AgentRef, StatusChange)>,
    /// The number of the newest report.
    number: u64,
    /// Whether a task writes this Pod's reports.
    running: bool,
    /// When the whole burst is allowed again.
    full_at: Instant,
}

impl ReportQueue {
    pub fn new(writer: Arc<StatusWriter>, rate: ReportRate) -> Self {
        ReportQueue { writer, rate, by_pod: Mutex::default() }
    }

    /// Returns when this report, or a newer one of the Pod, is written. Dropping the future does not take the report back.
    ///
    /// # Errors
    /// That of the write.
    pub async fn write(&self, agent: &AgentRef, pod_uid: String, report: RuntimeReport) -> Result<(), SharedWriteError> {
        let (number, mut written) = self.put(agent, pod_uid, report);
        match written.wait_for(|last| last.number >= number).await {
            Ok(last) => last.result.clone(),
            // The sender is gone: the process stops.
            Err(_) => Ok(()),
        }
    }

    fn put(&self, agent: &AgentRef, pod_uid: String, report: RuntimeReport) -> (u64, watch::Receiver<LastWrite>) {
        let mut by_pod = self.by_pod.lock().unwrap_or_else(PoisonError::into_inner);
        if by_pod.len() >= PRUNE_ABOVE && !by_pod.contains_key(&pod_uid) {
            let now = Instant::now();
            by_pod.retain(|_, reports| {
                let waiting = reports.waiting();
                waiting.running || waiting.full_at > now
            });
        }
        let reports = by_pod.entry(pod_uid.clone()).or_default().clone();
        let mut waiting = reports.waiting();
        waiting.number += 1;
        waiting.newest = Some((agent.clone(), StatusChange::Reported { pod_uid, report: Box::new(report) }));
        if !std::mem::replace(&mut waiting.running, true) {
            tokio::spawn(write_all(reports.clone(), self.writer.clone(), self.rate));
        }
        (waiting.number, reports.written.subscribe())
    }
}

/// Writes the Pod's newest report until there is no newer one.
async fn write_all(reports: Arc<PodReports>, writer: Arc<StatusWriter>, rate: ReportRate) {
    loop {
        let allowed_at = reports.waiting().full_at.checked_sub(rate.interval * rate.burst.saturating_sub(1));
        if let Some(allowed_at) = allowed_at {
            sleep_until(allowed_at).await;
        }
        let (number, newest) = {
            let mut waiting = reports.waiting();
            let newest = waiting.newest.take();
            waiting.running = newest.is_some();
            (waiting.number, newest)
        };
        let Some((agent, change)) = newest else { return };
        let result = writer.write(&agent, &change).await;
        if !matches!(result, Ok(false)) {
            let mut waiting = reports.waiting();
            waiting.full_at = waiting.full_at.max(Instant::now()) + rate.interval;
        }
        reports.written.send_modify(|last| *last = LastWrite { number, result: result.map(drop).map_err(Arc::new) });
    }
}

impl Default for PodReports {
    fn default() -> Self {
        PodReports {
            waiting: Mutex::new(Waiting { newest: None, number: 0, running: false, full_at: Instant::now() }),
            written: watch::channel(LastWrite { number: 0, result: Ok(()) }).0,
        }
    }
}

impl PodReports {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
