//! When a replica may get requests: once every live agent, and every reader of a stopped one, has its line here.
//!
//! Runtimes learn of a new replica through DNS, whose answers are cached for up to 30 s. A replica that is Ready before they have dialled
//! replaces one that they have lines to, and the agents are unreachable. So are the sessions that people read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use yoi_crds::pod::DesiredState;

use crate::agent_index::{AgentIndex, AgentRecord};
use crate::open_lines::OpenLines;

/// Whether the lines are there that a replica waits for before it is Ready. Once they were, the answer stays: an agent whose line breaks later
/// does not make the replica unready.
pub struct LineReadiness {
    agents: Arc<AgentIndex>,
    lines: Arc<OpenLines>,
    reader_lines: Arc<OpenLines>,
    /// How long to wait for lines.
    within: Duration,
    /// Since when runtimes can open lines.
    since: OnceLock<Instant>,
    complete: AtomicBool,
}

impl LineReadiness {
    pub fn new(agents: Arc<AgentIndex>, lines: Arc<OpenLines>, reader_lines: Arc<OpenLines>, within: Duration) -> Self {
        LineReadiness { agents, lines, reader_lines, within, since: OnceLock::new(), complete: AtomicBool::new(false) }
    }

    /// From now on runtimes can open lines.
    pub fn start(&self) {
        self.since.get_or_init(Instant::now);
    }

    /// Why the replica is not Ready. `None` once every expected line is here, or the time has passed.
    pub fn missing(&self) -> Option<String> {
        if self.complete.load(Ordering::Relaxed) {
            return None;
        }
        // Before the start, another reason is reported.
        let since = self.since.get()?;
        let agents = self.agents.all();
        let expected: Vec<_> = agents.iter().filter_map(|agent| self.has_line(agent)).collect();
        let missing = expected.iter().filter(|has_line| !**has_line).count();
        if missing > 0 && since.elapsed() < self.within {
            return Some(format!("{missing} of {} live agents and readers have no line here yet", expected.len()));
        }
        if !self.complete.swap(true, Ordering::Relaxed) {
            tracing::info!(expected = expected.len(), missing, after = ?since.elapsed(), "lines complete, or no longer waited for");
        }
        None
    }

    /// Whether the line is here that this agent's Pod, or its reader, opens to every replica; `None` when it has neither.
    fn has_line(&self, agent: &AgentRecord) -> Option<bool> {
        let (lines, pod_uid) = match agent {
            _ if is_live(agent) => (&self.lines, &agent.pod_uid),
            _ if is_read(agent) => (&self.reader_lines, &agent.reader_pod_uid),
            _ => return None,
        };
        Some(lines.get(&agent.name.uid).is_some_and(|line| Some(&line.pod_uid) == pod_uid.as_ref()))
    }
}

/// Whether a replica had a line to the agent's Pod: the runtime will dial this one too.
fn is_live(agent: &AgentRecord) -> bool {
    match agent.desired {
        DesiredState::Running | DesiredState::Suspended => agent.current_live().is_some() && !agent.has_closed_inbox(),
        DesiredState::Stopped | DesiredState::Unknown => false,
    }
}

/// Whether the agent has stopped and the Pod that people read it by is Ready.
fn is_read(agent: &AgentRecord) -> bool {
    agent.is_stopped && agent.reader_pod_uid.is_some() && agent.reader_unready.is_none()
}
