//! The agent's conversations: what they are started with, and those beside `main`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use yoi_engine::conversation::RunSettings;
use yoi_engine::driver::{ConversationObserver, ModelPatience};
use yoi_engine::log_reads::LogReads;
use yoi_engine::project::{ConversationKind, ConversationParts, Conversations, SEGMENT_BYTES, SubagentSource, TokenBudget};
use yoi_session::{Error as SessionError, Lock};
use yoi_wire::conversation::MAIN;
use yoi_wire::entry::RuntimeStarted;

use super::AgentProcess;
use crate::rng::random_fraction;

/// Keeps the budget at `spec.limits.tokens` as it is now.
pub(super) async fn follow_limit(budget: Arc<TokenBudget>, mut limit: watch::Receiver<Option<u64>>) {
    while limit.changed().await.is_ok() {
        budget.set_limit(*limit.borrow_and_update());
    }
}

impl AgentProcess<'_> {
    /// A program has one conversation.
    pub(super) fn has_no_others(&self) -> bool {
        self.settings.manifest.program.is_none() && self.conversations.borrow().is_none()
    }

    pub(super) async fn open_others(&self, lock: &Arc<Lock>) -> Result<(), SessionError> {
        let limit = self.settings.manifest.limits.most_conversations();
        let others = Conversations::open(lock.clone(), self.parts(), self.subagents.clone(), limit, self.stop.child_token()).await?;
        self.conversations.send_replace(Some(Arc::new(others)));
        Ok(())
    }

    /// What every conversation of the agent is started with, `main` among them.
    pub(super) fn parts(&self) -> ConversationParts {
        let manifest = &self.settings.manifest;
        let endpoint = manifest.model.as_ref();
        let status = self.status.clone();
        let observe = move |name: &str| -> Arc<dyn ConversationObserver> {
            if name == MAIN { Arc::new(status.clone()) } else { Arc::new(status.observer_of(name)) }
        };
        ConversationParts {
            agent_ref: manifest.agent.clone(),
            agent: self.agent.clone(),
            tools: self.instance.tools.clone(),
            budget: self.budget.clone(),
            settings: RunSettings {
                turns_per_run: manifest.limits.turns_per_run,
                tokens: None,
                compaction: manifest.compaction,
                window_tokens: endpoint.and_then(|endpoint| endpoint.window_tokens),
            },
            retries: self.settings.retries,
            patience: ModelPatience {
                total: endpoint.and_then(|endpoint| endpoint.patience_seconds).map(Duration::from_secs),
                // 5 and 30 minutes, unless a test has made the first back-off shorter.
                first_person: self.settings.retries.first * 300,
                next_person: self.settings.retries.first * 1800,
            },
            secrets: self.secrets.clone(),
            observe: Arc::new(observe),
            random: random_fraction,
            policy: self.policy.clone(),
            named_policy: manifest.policy.clone(),
            segment_bytes: manifest.segment_bytes.unwrap_or(SEGMENT_BYTES),
            form_config: self.form_config(),
            runtime: RuntimeStarted {
                pod_uid: self.settings.pod_uid.clone(),
                manifest_digest: self.settings.manifest_digest.clone(),
                cut_bytes: 0,
            },
            task: manifest.task.clone(),
            reads: LogReads::default(),
            subagents: self.subagents.clone().map(|pool| pool as Arc<dyn SubagentSource>),
            kind: ConversationKind::Own,
        }
    }
}
