//! Keeps the live hints true, and ends the lines of Pods that are no longer the agent.
//!
//! # Flow
//! A hint is taken away on an *edge*: the end of a line here, once, after a grace in which it may come back. It is put back by *level*: a
//! replica that holds a line and sees no hint writes one. So two replicas that know nothing of each other agree after at most two writes,
//! and never argue: losing a line twice takes two lines.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::Activity;

use crate::Settings;
use crate::metrics::Metrics;
use crate::registry::{Line, Lines};
use crate::status::{StatusWriter, Wish};
use crate::world::World;

#[derive(Clone)]
pub struct Keeper {
    pub world: Arc<World>,
    pub lines: Arc<Lines>,
    pub writer: Arc<StatusWriter>,
    pub metrics: Arc<Metrics>,
    pub settings: Settings,
    /// When this process goes, its lines end without meaning anything.
    pub stopping: CancellationToken,
}

impl Keeper {
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
                self.look(&uid);
            }
        }
    }

    /// Compares the agent's line, if there is one, with what its object says now.
    pub fn look(&self, uid: &str) {
        let Some(line) = self.lines.get(uid) else { return };
        match self.world.agent_by_uid(uid) {
            Some(record) if record.pod_uid.as_ref() == Some(&line.pod_uid) => match record.hinted_live() {
                Some(live) if live.activity == Activity::Running.as_str() => self.lines.note(&line, Activity::Running),
                Some(_) => self.lines.note(&line, Activity::Idle),
                None => drop(tokio::spawn(self.clone().hint(line))),
            },
            // A line may know a newer run than the store does.
            Some(record) if record.run_generation < line.run_generation => {}
            _ => line.handle.close(),
        }
    }

    /// Puts the hint up, once the runtime's own report had time to do it.
    async fn hint(self, line: Line) {
        sleep(self.settings.hint_after).await;
        let Some(line) = self.lines.get(&line.agent.uid).filter(|now| now.id == line.id) else { return };
        if !self.stopping.is_cancelled() {
            self.make_so(&line.agent, line.run_generation, &Wish::Live { pod_uid: line.pod_uid, activity: line.activity }).await;
        }
    }

    /// Waits for the line's end, and takes the hint down if no other comes.
    pub async fn mourn(self, line: Line) {
        let end = line.handle.closed().await;
        self.lines.remove(&line);
        self.metrics.lines.set(self.lines.count() as i64);
        let Line { agent, pod_uid, run_generation: run, .. } = &line;
        tracing::info!(object = %agent, uid = agent.uid, run, pod_uid, ?end, "line ended");
        sleep(self.settings.grace).await;
        self.unhint(line.agent, line.run_generation, line.pod_uid).await;
    }

    /// Takes down hints that no line of this replica bears out: those of Pods that went while no gateway was there to see it. Once, after
    /// every runtime had time to dial.
    pub async fn sweep(self) {
        self.world.listed().await;
        sleep(self.settings.sweep_after).await;
        for record in self.world.agents() {
            if let Some(live) = &record.ours.live {
                self.clone().unhint(record.name.clone(), record.run_generation, live.pod_uid.clone()).await;
            }
        }
    }

    async fn unhint(self, agent: AgentRef, run: i64, pod_uid: String) {
        let up = self.lines.get(&agent.uid).is_some_and(|line| line.pod_uid == pod_uid);
        if !up && !self.stopping.is_cancelled() {
            self.make_so(&agent, run, &Wish::NotLive { pod_uid }).await;
        }
    }

    async fn make_so(&self, agent: &AgentRef, run: i64, wish: &Wish) {
        match self.writer.write(agent, wish).await {
            Ok(_) | Err(crate::status::WriteError::Gone(_)) => {}
            Err(error) => {
                let error = crate::chain(&error);
                tracing::warn!(object = %agent, uid = agent.uid, run, error, "live hint not written");
            }
        }
    }
}
