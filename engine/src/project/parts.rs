//! What the conversations of a project are started with, and what drives one of them.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_session::Replay;
use yoi_wire::conversation::MAIN;
use yoi_wire::entry::{AgentConfig, AgentRef, RuntimeStarted};
use yoi_wire::manifest::Task;
use yoi_wire::policy::ToolPolicy;

use super::budget::{TokenBudget, sum};
use super::progress_observer::ProgressObserver;
use crate::conversation::RunSettings;
use crate::driver::{Agent, ConversationObserver, Driver, ModelPatience, SecretRenewal};
use crate::log_reads::LogReads;
use crate::model::RetryPolicy;
use crate::open_session::OpenSession;
use crate::policy::Policy;
use crate::subagents::Subagents;
use crate::tools::ToolGate;

/// Gives the one that learns what happens in the conversation of a name.
pub type ObserverOf = Arc<dyn Fn(&str) -> Arc<dyn ConversationObserver> + Send + Sync>;

/// What all conversations of a project are started with.
#[derive(Clone)]
pub struct ConversationParts {
    /// The agent, as the log names it.
    pub agent_ref: AgentRef,
    /// What answers.
    pub agent: Agent,
    /// The gate to the tools of [`MAIN`].
    pub tools: ToolGate,
    /// The tokens of all together.
    pub budget: Arc<TokenBudget>,
    /// Limits and sizes. Its limit of tokens is that of `budget`.
    pub settings: RunSettings,
    /// Waits between calls of the model.
    pub retries: RetryPolicy,
    /// How long calls of the model are tried.
    pub patience: ModelPatience,
    /// Ends the process when endpoints want other Secrets.
    pub secrets: Arc<dyn SecretRenewal>,
    /// Who learns what happens in them.
    pub observe: ObserverOf,
    /// Returns a random number in `0.0..1.0`.
    pub random: fn() -> f64,
    /// What calls may do, when that changes.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// The policy that the manifest or the options name. A conversation that starts under another one says so in its log.
    pub named_policy: ToolPolicy,
    /// Bytes of a segment after which the next one begins.
    pub segment_bytes: u64,
    /// Forms system prompt, tools and model options. It may block.
    pub form_config: Arc<dyn Fn() -> AgentConfig + Send + Sync>,
    /// The process, as each log names it.
    pub runtime: RuntimeStarted,
    /// The agent's task, which [`MAIN`] has.
    pub task: Option<Task>,
    /// Bounds what all reads of logs hold in memory.
    pub reads: LogReads,
    /// The sub-agents of the project; `None`: there are no templates, or this is one.
    pub subagents: Option<Arc<dyn SubagentSource>>,
    /// What the conversation is.
    pub kind: ConversationKind,
}

/// Gives each conversation its sub-agents.
pub trait SubagentSource: Send + Sync {
    /// Those of a conversation that is started with these parts and runs until `stop`.
    fn of_conversation(self: Arc<Self>, parts: ConversationParts, stop: &CancellationToken) -> Arc<dyn Subagents>;
}

/// What a conversation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConversationKind {
    /// [`MAIN`], or one beside it.
    #[default]
    Own,
    /// A sub-agent of one of these.
    Subagent {
        /// Tokens that others have used under its name.
        used_before: u64,
        /// Those that it may use, by its template.
        tokens: Option<u64>,
    },
}

impl ConversationParts {
    /// What drives the conversation of this name, whose session has been opened. Its tokens count from now on.
    #[must_use]
    pub fn driver(&self, name: &str, session: &Arc<OpenSession>, replay: &Replay, stop: CancellationToken) -> Driver {
        let used = sum(replay.state.tokens);
        let token_limit = match self.kind {
            ConversationKind::Own => self.budget.open(name, used),
            ConversationKind::Subagent { used_before, tokens } => self.budget.open_within(name, used, used_before, tokens),
        };
        let tokens = *token_limit.borrow();
        let (of_name, counted, budget) = (name.to_owned(), session.clone(), self.budget.clone());
        let count_tokens = move |task| {
            budget.set_used(&of_name, sum(counted.feed.progress().total));
            task
        };
        let observer = ProgressObserver { next: (self.observe)(name), on_task: count_tokens };
        Driver {
            session: session.clone(),
            agent: self.agent.clone(),
            subagents: self.subagents.clone().map(|source| source.of_conversation(self.clone(), &stop)),
            tools: if self.has_own_parts(name) { self.tools.clone() } else { self.tools.for_another_conversation() },
            retries: self.retries,
            patience: self.patience,
            secrets: self.secrets.clone(),
            observer: Arc::new(observer),
            random: self.random,
            stop,
            task: self.task.clone().filter(|_| self.has_own_parts(name)),
            settings: RunSettings { tokens, ..self.settings },
            token_limit,
            policy: self.policy.clone(),
            logs_assets: name == MAIN,
            named_policy: self.named_policy.clone(),
            segment_bytes: self.segment_bytes,
            form_config: self.form_config_of(name),
        }
    }

    pub(super) fn form_config_of(&self, name: &str) -> Arc<dyn Fn() -> AgentConfig + Send + Sync> {
        if self.has_own_parts(name) { self.form_config.clone() } else { config_of_other(name, self.form_config.clone()) }
    }

    /// Whether tools, task and configuration are those of this very conversation.
    fn has_own_parts(&self, name: &str) -> bool {
        match self.kind {
            ConversationKind::Own => name == MAIN,
            ConversationKind::Subagent { .. } => true,
        }
    }
}

/// The model of a conversation beside [`MAIN`] is told that others change the tree, too.
fn config_of_other(name: &str, form: Arc<dyn Fn() -> AgentConfig + Send + Sync>) -> Arc<dyn Fn() -> AgentConfig + Send + Sync> {
    let text = format!(
        "This is your conversation {name:?}. You have others, which work in the same tree at the same time: files may change between two of your calls, and \
         you do not see what is said there."
    );
    Arc::new(move || {
        let mut config = form();
        config.system.push(text.clone());
        config
    })
}
