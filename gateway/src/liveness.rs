//! Keeps the live hints true, and ends the lines of Pods that are no longer the agent.
//!
//! # Flow
//! A hint is taken away on an *edge*: the end of a line here, once, after a clear_live_delay in which it may come back. It is put back by *level*: a
//! replica that holds a line and sees no hint writes one. So two replicas that know nothing of each other agree after at most two writes,
//! and never argue: losing a line twice takes two lines.

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

#[derive(Clone)]
pub struct LivenessReconciler {
    pub agents: Arc<AgentIndex>,
    pub lines: Arc<OpenLines>,
    pub writer: Arc<StatusWriter>,
    pub metrics: Arc<GatewayMetrics>,
    pub settings: GatewaySettings,
    /// When this process goes, its lines end without meaning anything.
    pub stopping: CancellationToken,
}

impl LivenessReconciler {
    /// Follows changes of agents until dropped.
    pub async fn run(self, mut changes: mpsc::UnboundedReceiver<String>) {
        let mut waiting = HashSet::new();
        while let Some(uid) = changes.recv().await {
            // A burst of changes of one agent, or a whole list, is looked at once each.
            waiting.insert(uid);
            while let Ok(uid) = changes.try_recv() {
                waiting.insert(uid);
            }
            for uid in waiting.drain() {
                self.reconcile(&uid);
            }
        }
    }

    /// Compares the agent's line, if there is one, with what its object says now.
    pub fn reconcile(&self, uid: &str) {
        let Some(line) = self.lines.get(uid) else { return };
        match self.agents.by_uid(uid) {
            Some(record) if record.pod_uid.as_ref() == Some(&line.pod_uid) => match record.current_live() {
                Some(live) if live.activity == Activity::Running.as_str() => self.lines.set_activity(&line, Activity::Running),
                Some(_) => self.lines.set_activity(&line, Activity::Idle),
                None => drop(tokio::spawn(self.clone().set_live_after_delay(line))),
            },
            // A line may know a newer run than the store does.
            Some(record) if record.run_generation < line.run_generation => {}
            _ => line.handle.close(),
        }
    }

    /// Puts the hint up, once the runtime's own report had time to do it.
    async fn set_live_after_delay(self, line: OpenLine) {
        sleep(self.settings.set_live_delay).await;
        let Some(line) = self.lines.get(&line.agent.uid).filter(|now| now.id == line.id) else { return };
        if !self.stopping.is_cancelled() {
            self.write(&line.agent, line.run_generation, &StatusChange::SetLive { pod_uid: line.pod_uid, activity: line.activity }).await;
        }
    }

    /// Waits for the line's end, and takes the hint down if no other comes.
    pub async fn on_line_closed(self, line: OpenLine) {
        let end = line.handle.closed().await;
        self.lines.remove(&line);
        self.metrics.lines.set(self.lines.count() as i64);
        let OpenLine { agent, pod_uid, run_generation: run, .. } = &line;
        tracing::info!(object = %agent, uid = agent.uid, run, pod_uid, ?end, "line ended");
        sleep(self.settings.clear_live_delay).await;
        self.clear_live(line.agent, line.run_generation, line.pod_uid).await;
    }

    /// Takes down hints that no line of this replica bears out: those of Pods that went while no gateway was there to see it. Once, after
    /// every runtime had time to dial.
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
                let error = crate::chain(&error);
                tracing::warn!(object = %agent, uid = agent.uid, run, error, "live hint not written");
            }
        }
    }
}
