//! The lines that are open at this replica, one per agent.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;
use yoi_line::LineHandle;
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::Activity;

/// The line of an agent.
#[derive(Clone, Debug)]
pub struct OpenLine {
    /// Unique in this process.
    pub id: u64,
    pub agent: AgentRef,
    pub pod_uid: String,
    pub run_generation: i64,
    /// The last `status.live.activity`. When another replica clears `status.live`, this replica sets it again with this activity.
    pub activity: Activity,
    /// Since when it is that a call waits for a person, as this replica knows it.
    pub waits_since: Option<Instant>,
    pub handle: LineHandle,
}

#[derive(Default)]
struct Table {
    lines: HashMap<String, OpenLine>,
    last_id: u64,
}

/// The lines by UID of their agent.
pub struct OpenLines {
    open: Mutex<Table>,
    /// Raised when a line opens. A request that waits for a line then looks again.
    version: watch::Sender<u64>,
}

impl Default for OpenLines {
    fn default() -> Self {
        OpenLines { open: Mutex::default(), version: watch::channel(0).0 }
    }
}

/// A line of a newer Pod of the same agent is open already.
#[derive(Debug, thiserror::Error)]
#[error("failed to take the line of run {offered}: run {open} is open")]
pub struct NewerLineOpen {
    pub offered: i64,
    pub open: i64,
}

impl OpenLines {
    /// Makes this the agent's line and closes the former one. The newest Pod wins. Of one Pod the newest line wins, because a restarted
    /// container dials long before its former line is noticed to be dead.
    pub fn open(&self, agent: AgentRef, pod_uid: String, run_generation: i64, handle: LineHandle) -> Result<OpenLine, NewerLineOpen> {
        let mut open = self.lock();
        if let Some(known) = open.lines.get(&agent.uid)
            && known.run_generation > run_generation
            && !known.handle.is_closed()
        {
            return Err(NewerLineOpen { offered: run_generation, open: known.run_generation });
        }
        open.last_id += 1;
        let line = OpenLine { id: open.last_id, agent, pod_uid, run_generation, activity: Activity::Idle, waits_since: None, handle };
        let former = open.lines.insert(line.agent.uid.clone(), line.clone());
        drop(open);
        if let Some(former) = former {
            former.handle.close();
        }
        self.version.send_modify(|version| *version += 1);
        Ok(line)
    }

    /// Removes the line, unless another line of the agent has replaced it.
    pub fn remove(&self, line: &OpenLine) {
        let mut open = self.lock();
        if open.lines.get(&line.agent.uid).is_some_and(|known| known.id == line.id) {
            open.lines.remove(&line.agent.uid);
        }
    }

    /// Stores the activity of `status.live`.
    pub fn set_activity(&self, line: &OpenLine, activity: Activity) {
        if let Some(known) = self.lock().lines.get_mut(&line.agent.uid).filter(|known| known.id == line.id) {
            known.activity = activity;
            known.waits_since = (activity == Activity::NeedsInput).then(|| known.waits_since.unwrap_or_else(Instant::now));
        }
    }

    /// How many agents have a call that waits for a person, and how long the longest of them has waited.
    pub fn waiting_agents(&self) -> (usize, Duration) {
        let open = self.lock();
        let since = open.lines.values().filter_map(|line| line.waits_since);
        since.fold((0, Duration::ZERO), |(count, longest), since| (count + 1, longest.max(since.elapsed())))
    }

    /// The agent's line, if it is open.
    pub fn get(&self, agent_uid: &str) -> Option<OpenLine> {
        self.lock().lines.get(agent_uid).filter(|line| !line.handle.is_closed()).cloned()
    }

    /// The agent's line of this Pod. Waits up to `within` for it to open.
    pub async fn wait_for(&self, agent_uid: &str, pod_uid: &str, within: Duration) -> Option<OpenLine> {
        let mut version = self.version.subscribe();
        let found = async {
            loop {
                if let Some(line) = self.get(agent_uid).filter(|line| line.pod_uid == pod_uid) {
                    return line;
                }
                // `self` holds the sender, so the channel does not close.
                let _ = version.changed().await;
            }
        };
        timeout(within, found).await.ok()
    }

    /// Raised when a line opens.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub fn count(&self) -> usize {
        self.lock().lines.len()
    }

    /// Closes every line at once.
    pub fn close_all(&self) {
        for line in self.lock().lines.values() {
            line.handle.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
