//! Reconciles `status.live` with the open lines. A line is the connection that a runtime dialled to this gateway; it is closed once the agent
//! runs in another Pod.
//!
//! # Flow
//! `status.live` is cleared on an *edge*: once after the end of a line, after a delay in which the line may come back. It is set by *level*: a
//! replica that has a line and sees no `status.live` sets it. So two replicas that know nothing of each other agree after at most two
//! writes: each line that ends clears it at most once.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::Activity;

use crate::GatewaySettings;
use crate::agent_index::AgentIndex;
use crate::metrics::GatewayMetrics;
use crate::open_lines::{OpenLine, OpenLines};
use crate::status::{StatusChange, StatusWriter};

/// The reconciler. A clone shares its state.
#[derive(Clone)]
pub struct LivenessReconciler {
    pub agents: Arc<AgentIndex>,
    pub lines: Arc<OpenLines>,
    pub writer: Arc<StatusWriter>,
    pub metrics: Arc<GatewayMetrics>,
    pub settings: GatewaySettings,
    /// After this is cancelled, the end of a line does not clear `status.live`.
    pub stopping: CancellationToken,
}

impl LivenessReconciler {
    /// Reconciles each agent whose UID comes from `changes`. Runs until dropped.
    pub async fn run(self, mut changes: mpsc::UnboundedReceiver<String>) {
        let mut waiting = HashSet::new();
        while let Some(uid) = changes.recv().await {
            // Several changes of one agent, or a whole listing, reconcile each agent once.
            waiting.insert(uid);
            while let Ok(uid) = changes.try_recv() {
                waiting.insert(uid);
            }
            for uid in waiting.drain() {
                self.reconcile(&uid);
            }
        }
    }

    /// Compares the agent's line, if there is one, with the YoiPod.
    pub fn reconcile(&self, uid: &str) {
        let Some(line) = self.lines.get(uid) else { return };
        match self.agents.by_uid(uid) {
            Some(record) if record.pod_uid.as_ref() == Some(&line.pod_uid) => match record.current_live() {
                // An activity of another version counts as Idle.
                Some(live) => self.lines.set_activity(&line, live.activity.known().unwrap_or(Activity::Idle)),
                None => drop(tokio::spawn(self.clone().set_live_after_delay(line))),
            },
            // The line may be of a newer run than the cache has.
            Some(record) if record.run_generation < line.run_generation => {}
            _ => line.handle.close(),
        }
    }

    /// Sets `status.live` after a delay, in which the runtime's own report may set it.
    async fn set_live_after_delay(self, line: OpenLine) {
        sleep(self.settings.set_live_delay).await;
        let Some(line) = self.lines.get(&line.agent.uid).filter(|now| now.id == line.id) else { return };
        if !self.stopping.is_cancelled() {
            self.write(&line.agent, line.run_generation, &StatusChange::SetLive { pod_uid: line.pod_uid, activity: line.activity }).await;
        }
    }

    /// Waits until the line closes, and clears `status.live` unless another line of the Pod opens.
    pub async fn on_line_closed(self, line: OpenLine) {
        let end = line.handle.closed().await;
        self.lines.remove(&line);
        self.metrics.lines.set(self.lines.count() as i64);
        let OpenLine { agent, pod_uid, run_generation: run, .. } = &line;
        tracing::info!(object = %agent, uid = agent.uid, run, pod_uid, ?end, "line ended");
        sleep(self.settings.clear_live_delay).await;
        self.clear_live(line.agent, line.run_generation, line.pod_uid).await;
    }

    /// Clears `status.live` where the Pod has no line to this replica: its line ended while no gateway ran. It runs once, after every
    /// runtime had time to dial.
    pub async fn clear_stale_live(self) {
        self.agents.wait_until_listed().await;
        sleep(self.settings.stale_live_delay).await;
        for record in self.agents.all() {
            if let Some(live) = &record.gateway_status.live {
                self.clone().clear_live(record.name.clone(), record.run_generation, live.pod_uid.clone()).await;
            }
        }
    }

    async fn clear_live(self, agent: AgentRef, run: i64, pod_uid: String) {
        let up = self.lines.get(&agent.uid).is_some_and(|line| line.pod_uid == pod_uid);
        if !up && !self.stopping.is_cancelled() {
            self.write(&agent, run, &StatusChange::ClearLive { pod_uid }).await;
        }
    }

    async fn write(&self, agent: &AgentRef, run: i64, change: &StatusChange) {
        match self.writer.write(agent, change).await {
            Ok(_) | Err(crate::status::WriteError::Gone(_)) => {}
            Err(error) => {
                let error = yoi_wire::error_chain(&error);
                tracing::warn!(object = %agent, uid = agent.uid, run, error, "live hint not written");
            }
        }
    }
}
