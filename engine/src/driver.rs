//! Carries out the intents of a conversation. Effects run side by side; appends and rotations one after another.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, block_in_place};
use tokio_util::sync::CancellationToken;
use yoi_session::{Error, Replay};
use yoi_wire::entry::{AgentConfig, Body, CallFrom, Extension, RefusalClass, RuntimeStarted};
use yoi_wire::hub::{Activity, ReportReason, SessionPointer, TaskReport};
use yoi_wire::manifest::Task;
use yoi_wire::policy::ToolPolicy;

use crate::assets::AssetNews;
use crate::conversation::program::ProgramRole;
use crate::conversation::{ConversationEvent, ConversationState, PolicyChange, RunSettings, STOPPED, StartInput, apply, policy_of};
use crate::live_feed::Progress;
use crate::model::{FallbackModels, RetryPolicy};
use crate::open_session::OpenSession;
use crate::policy::Policy;
use crate::program::agent::ProgramAgent;
use crate::subagents::{Subagents, subagents_of};
use crate::tools::ToolGate;

mod effects;
mod model_call;
mod people;
mod program_run;
mod running;

pub use model_call::ModelPatience;
use people::{expiry, next_expiry};
use running::{EffectHandle, EffectKind, Running};

/// Learns what becomes of a conversation. The driver calls it between two steps, so it must not block.
pub trait ConversationObserver: Send + Sync {
    /// The log has taken entries. A log that can be replayed but takes none is not usable.
    fn on_entries_logged(&self);
    /// A call of the model has ended; `None`: with an answer.
    fn on_model_called(&self, failure: Option<FailedCall>);
    /// The conversation's activity or the state of its task may have changed.
    fn on_progress(&self, activity: Activity, task: Option<TaskReport>);
    /// The program that is the agent has lost its own session, as the sentence says; `None`: it has not. Told as often as the progress.
    fn on_program_session(&self, lost: Option<String>);
    /// The log goes on in another segment.
    fn on_rotated(&self, session: SessionPointer);
    /// A call of a tool was refused.
    fn on_call_refused(&self, _class: RefusalClass) {}
    /// The conversation begins to wait for a message, perhaps for long.
    fn on_wait(&self);
}

/// Gets the present content of the model's Secrets into the agent, which reads it only when its process starts.
pub trait SecretRenewal: Send + Sync {
    /// After how long the process may end for it, when an endpoint has refused for `refused_for` what the Secrets held; zero: now.
    fn due_in(&self, refused_for: Duration) -> Duration;
    /// Ends the process, by [`Driver::stop`]. What runs it starts it again.
    fn renew(&self);
}

/// A call of the model that brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// For people, without what the endpoint said.
    pub summary: String,
    /// What it means: [`ReportReason::ModelUnreachable`], [`ReportReason::ModelRefused`] or [`ReportReason::ModelRefusedHistory`].
    pub reason: ReportReason,
}

/// What answers the inputs of a conversation.
#[derive(Clone, Debug)]
pub enum Agent {
    /// The engine's own loop, over this model.
    Builtin(Arc<FallbackModels>),
    /// A program.
    Program(Arc<ProgramAgent>),
    /// Nothing for now, and inputs are kept: the model's key is missing, or the program is not there. The conversation is that of this program, or of the
    /// engine's own loop.
    Blocked(Option<ProgramRole>),
}

impl Agent {
    fn role(&self) -> Option<ProgramRole> {
        match self {
            Self::Builtin(_) => None,
            Self::Program(program) => Some(program.role()),
            Self::Blocked(role) => role.clone(),
        }
    }

    fn may_run(&self) -> bool {
        match self {
            Self::Builtin(_) | Self::Program(_) => true,
            Self::Blocked(_) => false,
        }
    }
}

/// Drives one conversation.
pub struct Driver {
    /// Log, inbox and live feed.
    pub session: Arc<OpenSession>,
    /// What answers.
    pub agent: Agent,
    /// Decides about tool calls, and runs them.
    pub tools: ToolGate,
    /// Waits between calls of the model.
    pub retries: RetryPolicy,
    /// How long calls of the model are tried.
    pub patience: ModelPatience,
    /// Ends the process when endpoints want other Secrets.
    pub secrets: Arc<dyn SecretRenewal>,
    /// Learns what happens.
    pub observer: Arc<dyn ConversationObserver>,
    /// Returns a random number in `0.0..1.0`.
    pub random: fn() -> f64,
    /// Ends the conversation when it is cancelled.
    pub stop: CancellationToken,
    /// The agent's task.
    pub task: Option<Task>,
    /// Limits and sizes.
    pub settings: RunSettings,
    /// Tokens in and out over the agent's life, when that changes.
    pub token_limit: watch::Receiver<Option<u64>>,
    /// What calls may do, when that changes.
    pub policy: watch::Receiver<Arc<Policy>>,
    /// Its sub-agents; `None`: it starts none.
    pub subagents: Option<Arc<dyn Subagents>>,
    /// Its log says what becomes of the project's assets.
    pub logs_assets: bool,
    /// The policy that the present manifest names.
    pub named_policy: ToolPolicy,
    /// Bytes of a segment after which the next one begins.
    pub segment_bytes: u64,
    /// Forms system prompt, tools and model options by the present manifest. It may block.
    pub form_config: Arc<dyn Fn() -> AgentConfig + Send + Sync>,
}

impl Driver {
    /// Drives the conversation until the process is asked to stop and the log has the end of everything that was running.
    ///
    /// # Errors
    /// An append failed. Nothing that depends on it was done. The caller opens the session again.
    pub async fn drive(&self, replay: Replay, runtime: RuntimeStarted) -> Result<(), Error> {
        let logged = replay.entries.iter().rev().find_map(|entry| subagents_of(&entry.body)).unwrap_or_default();
        let entries = self.subagents.as_ref().map(|subagents| subagents.begin(logged));
        let with_subagents = WithSubagents::new(self);
        let ended = self.drive_conversation(replay, runtime, entries).await;
        if let Some(subagents) = &self.subagents {
            subagents.stop_all("the conversation that started it has ended").await;
        }
        drop(with_subagents);
        ended
    }

    async fn drive_conversation(
        &self,
        replay: Replay,
        runtime: RuntimeStarted,
        mut of_subagents: Option<mpsc::UnboundedReceiver<Body>>,
    ) -> Result<(), Error> {
        let had_changed = replay.entries.iter().any(|entry| policy_of(&entry.body).is_some());
        let mut state = ConversationState::new(self.tools.runner().tools().read_only()).for_program(self.agent.role()).prepared_from_tree();
        state = state.lending(self.tools.runner().lends());
        for entry in replay.entries {
            (state, _) = apply(state, ConversationEvent::Recorded(entry));
        }
        self.tools.set_mode(state.mode());
        self.tools.set_of_program(self.agent.role().is_some());
        let mut policy = self.policy.clone();
        let mut assets = self.tools.runner().assets().subscribe();
        // What was loaded before this is told, too.
        assets.mark_changed();
        let mut was_told = false;
        let in_force = policy.borrow_and_update().clone();
        self.tools.runner().set_policy(in_force.clone());
        self.tools.runner().set_read(state.read());
        let config = self.changed_config(&state, &runtime);
        // A configuration that stays has the tools of what changed before.
        let is_another = *in_force.source() != self.named_policy || (had_changed && config.is_none());
        let mut token_limit = self.token_limit.clone();
        let start = StartInput {
            runtime,
            task: self.task.clone(),
            // Another conversation may have used tokens since this one was opened.
            settings: RunSettings { tokens: *token_limit.borrow_and_update(), ..self.settings },
            may_run: self.agent.may_run(),
            config,
            policy: is_another.then(|| self.policy_change(&in_force)),
            segment: self.session.pointer().map(|pointer| pointer.segment).unwrap_or_default(),
        };
        let (events, mut received) = mpsc::unbounded_channel();
        let mut requests = self.session.take_requests();
        let mut running = Running {
            driver: self,
            events,
            tasks: JoinSet::new(),
            effects: BTreeMap::new(),
            by_task: HashMap::new(),
            asks: HashMap::new(),
            approvals: HashMap::new(),
            calls: HashMap::new(),
            recorded: Vec::new(),
            next_ask: 0,
            acknowledgements: Arc::default(),
        };
        let mut event = ConversationEvent::Started(Box::new(start));
        loop {
            let exit;
            (state, exit) = running.carry_out(state, event)?;
            self.report_progress(&state);
            if exit {
                self.note_stop();
                return Ok(());
            }
            event = tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    // Nothing that a tool started is left when the log says that it ended.
                    running.tasks.shutdown().await;
                    ConversationEvent::Stopping
                }
                Some(event) = received.recv() => event,
                Some(ended) = running.tasks.join_next_with_id() => match running.ended(ended) {
                    Some(event) => event,
                    None => continue_event(),
                },
                // Before messages: a run that one of them starts has the limit that was set before.
                Ok(()) = token_limit.changed() => ConversationEvent::TokenLimit(*token_limit.borrow_and_update()),
                Ok(()) = policy.changed() => {
                    let policy = policy.borrow_and_update().clone();
                    ConversationEvent::PolicyChanged(self.policy_change(&policy))
                }
                Ok(()) = assets.changed(), if self.logs_assets => {
                    let loaded = assets.borrow_and_update().clone();
                    let news = AssetNews::new(&loaded, was_told);
                    was_told |= news.is_some();
                    news.map_or_else(continue_event, |news| ConversationEvent::ProjectNews(Box::new(news.body())))
                }
                Some(body) = next_of(&mut of_subagents) => ConversationEvent::ProjectNews(Box::new(body)),
                () = self.session.inbox_full.notified() => ConversationEvent::QueueFull { waiting: self.session.pending().len() },
                () = self.session.message_stored.notified() => ConversationEvent::InboxChanged,
                Some(request) = requests.recv() => running.asked(&state, request),
                event = expiry(next_expiry(&state)) => event,
            };
        }
    }

    /// The last entry of a process that stops. Each conversation ends with its own; that of the project is in the log of the first one.
    fn note_stop(&self) {
        if !self.logs_assets {
            return;
        }
        let body = Body::Extension(Extension { name: STOPPED.to_owned(), data: serde_json::json!({}) });
        // All that counts is in the log without it.
        if let Err(error) = block_in_place(|| self.session.append(&[body])) {
            tracing::warn!(%error, "the stop is not in the log");
        }
    }

    fn policy_change(&self, policy: &Policy) -> Box<PolicyChange> {
        Box::new(PolicyChange { policy: policy.source().clone(), tools: self.tools.offered_under(policy, CallFrom::Model) })
    }

    /// The configuration by the present manifest, where the log has another one.
    fn changed_config(&self, state: &ConversationState, runtime: &RuntimeStarted) -> Option<AgentConfig> {
        let same = state.config().is_some_and(|config| config.manifest_digest == runtime.manifest_digest);
        (!same).then(|| block_in_place(|| (self.form_config)()))
    }

    fn report_progress(&self, state: &ConversationState) {
        let task = self.task.as_ref().and_then(|task| {
            let known = state.task(&task.id)?;
            Some(TaskReport { id: task.id.clone(), state: known.state.into(), reason: known.reason.clone() })
        });
        let (run, turns) = state.run_usage();
        let activity = state.activity();
        self.session.feed.set_progress(Progress { activity, total: state.tokens(), run, turns, mode: state.mode() });
        self.observer.on_progress(activity, task);
        self.observer.on_program_session(state.lost_program_session());
    }
}

/// The sub-agents are those of the tools while the conversation is driven. A fault in it ends them, too.
struct WithSubagents<'a>(&'a Driver);

impl<'a> WithSubagents<'a> {
    fn new(driver: &'a Driver) -> Self {
        driver.tools.runner().set_subagents(driver.subagents.clone());
        Self(driver)
    }
}

impl Drop for WithSubagents<'_> {
    fn drop(&mut self) {
        self.0.tools.runner().set_subagents(None);
        if let Some(subagents) = &self.0.subagents {
            subagents.end_run();
        }
    }
}

async fn next_of(entries: &mut Option<mpsc::UnboundedReceiver<Body>>) -> Option<Body> {
    match entries {
        Some(entries) => entries.recv().await,
        None => std::future::pending().await,
    }
}

/// An effect whose end the conversation has by another event changes nothing.
fn continue_event() -> ConversationEvent {
    ConversationEvent::Gone { effect: 0 }
}
