//! Wakes an agent that rests, for a request that needs it.
//!
//! # Flow
//! The wish goes into `status.rest.wake`, once, whoever else asks. The operator makes a Pod, its runtime dials a line here, and the request goes on over it.
//!
//! # Guarantees
//! Nothing is sent to a runtime that has closed its inbox. An agent whose `desiredState` is Stopped is not woken.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use yoi_line::LineHandle;
use yoi_wire::hub::{Refusal, RefusalReason};

use crate::agent_index::{AgentIndex, AgentRecord};
use crate::delivery::unreachable;
use crate::open_lines::OpenLines;
use crate::status::{StatusChange, StatusWriter};

/// Wakes agents.
pub struct Waker {
    pub agents: Arc<AgentIndex>,
    pub lines: Arc<OpenLines>,
    pub writer: Arc<StatusWriter>,
    /// How long to wait for the line of an agent that was woken.
    pub within: Duration,
}

impl Waker {
    /// The agent as it is known now.
    pub fn current(&self, target: &AgentRecord) -> Option<Arc<AgentRecord>> {
        self.agents.by_uid(&target.name.uid)
    }

    /// The line of the agent, which is woken first if it rests. `by` says what for. `closed` is the Pod of a runtime that takes nothing any more.
    ///
    /// # Errors
    /// [`RefusalReason::Waking`] when that takes too long, [`RefusalReason::Unreachable`] when nothing may wake it.
    pub async fn line_to(&self, target: &AgentRecord, by: &str, closed: Option<&str>) -> Result<LineHandle, Refusal> {
        let end = Instant::now() + self.within;
        let (mut agents, mut lines) = (self.agents.version(), self.lines.version());
        loop {
            agents.mark_unchanged();
            lines.mark_unchanged();
            let Some(record) = self.current(target).filter(|record| !record.is_stopped || record.may_be_woken) else {
                return Err(unreachable(self.current(target).as_deref().unwrap_or(target)));
            };
            if record.may_be_woken {
                self.wake(&record, by).await?;
                continue;
            }
            let line = self.lines.get(&record.name.uid).filter(|line| Some(&line.pod_uid) == record.pod_uid.as_ref());
            // A runtime dials before its session is open, and takes nothing until then.
            let takes_messages = record.has_started() && !record.has_closed_inbox();
            if let Some(line) = line.filter(|line| takes_messages && Some(line.pod_uid.as_str()) != closed) {
                return Ok(line.handle);
            }
            let changed = async {
                tokio::select! { _ = agents.changed() => {}, _ = lines.changed() => {} }
            };
            if timeout_at(end, changed).await.is_err() {
                return Err(waking(&record, self.within));
            }
        }
    }

    async fn wake(&self, record: &AgentRecord, by: &str) -> Result<(), Refusal> {
        match self.writer.write(&record.name, &StatusChange::Wake { by: by.to_owned() }).await {
            Ok(true) => {
                tracing::info!(object = %record.name, uid = record.name.uid, by, "agent woken");
                Ok(())
            }
            // Another request has woken it, and the index knows by now.
            Ok(false) => Ok(()),
            Err(error) => {
                let message = format!("{} rests and could not be woken, and nothing was sent: {error}", record.name.name);
                tracing::warn!(object = %record.name, uid = record.name.uid, error = yoi_wire::error_chain(&error), "agent not woken");
                Err(Refusal { reason: RefusalReason::Waking, message })
            }
        }
    }
}

fn waking(record: &AgentRecord, within: Duration) -> Refusal {
    let AgentRecord { name, unready, .. } = record;
    let why = unready.as_ref().map(|(reason, message)| format!(" ({reason}: {message})")).unwrap_or_default();
    let message = format!(
        "{} rested and is being woken, and was not there within {}{why}; nothing was sent: send it again, under the same id",
        name.name,
        crate::seconds(within)
    );
    Refusal { reason: RefusalReason::Waking, message }
}
