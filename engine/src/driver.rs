//! Carries out the intents of a conversation. Effects run side by side; appends and rotations one after another.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet, block_in_place};
use tokio_util::sync::CancellationToken;
use yoi_session::{Error, Replay};
use yoi_wire::control::ControlResponse;
use yoi_wire::entry::{
    AgentConfig, Body, CallDecision, CallFrom, Carried, Entry, RefusalClass, RuntimeStarted, SegmentReason, ToolEnded, ToolOutcome,
};
use yoi_wire::hub::{Activity, ReportReason, SessionPointer, TaskReport};
use yoi_wire::manifest::Task;
use yoi_wire::policy::ToolPolicy;

use crate::assets::AssetNews;
use crate::conversation::program::{ProgramEnd, ProgramRole};
use crate::conversation::{
    ApprovalResult, AskId, CallEnd, ConversationEvent, ConversationState, EffectId, Intent, ModelFailed, ModelFailureKind, PolicyChange,
    RunSettings, RunToolResult, StartInput, apply, policy_of,
};
use crate::live_feed::Progress;
use crate::model::{FallbackModels, RetryPolicy};
use crate::open_session::OpenSession;
use crate::policy::Policy;
use crate::program::agent::ProgramAgent;
use crate::tools::ToolGate;

mod effects;
mod model_call;
mod people;
mod program_run;

pub use model_call::ModelPatience;
use people::{expiry, next_expiry};
use program_run::Acknowledgements;

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
    /// Its log says what becomes of the project's assets.
    pub logs_assets: bool,
    /// The policy that the present manifest names.
    pub named_policy: ToolPolicy,
    /// Bytes of a segment after which the next one begins.
    pub segment_bytes: u64,
    /// Forms system prompt, tools and model options by the present manifest. It may block.
    pub form_config: Arc<dyn Fn() -> AgentConfig + Send + Sync>,
}

/// The effects that run, and who waits for answers.
struct Running<'a> {
    driver: &'a Driver,
    events: mpsc::UnboundedSender<ConversationEvent>,
    tasks: JoinSet<()>,
    effects: BTreeMap<EffectId, EffectHandle>,
    by_task: HashMap<Id, EffectId>,
    asks: HashMap<AskId, oneshot::Sender<ControlResponse>>,
    approvals: HashMap<AskId, oneshot::Sender<ApprovalResult>>,
    calls: HashMap<AskId, oneshot::Sender<RunToolResult>>,
    next_ask: AskId,
    acknowledgements: Arc<Acknowledgements>,
}

struct EffectHandle {
    abort: AbortHandle,
    retry: Arc<Notify>,
    kind: EffectKind,
}

/// What has to be done when an effect ends without having said how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EffectKind {
    Model,
    Tool,
    Program,
    Loans,
}

impl Driver {
    /// Drives the conversation until the process is asked to stop and the log has the end of everything that was running.
    ///
    /// # Errors
    /// An append failed. Nothing that depends on it was done. The caller opens the session again.
    pub async fn drive(&self, replay: Replay, runtime: RuntimeStarted) -> Result<(), Error> {
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
            next_ask: 0,
            acknowledgements: Arc::default(),
        };
        let mut event = ConversationEvent::Started(Box::new(start));
        loop {
            let exit;
            (state, exit) = running.carry_out(state, event)?;
            self.report_progress(&state);
            if exit {
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
                    news.map_or_else(continue_event, |news| ConversationEvent::AssetsRead(Box::new(news.body())))
                }
                () = self.session.message_stored.notified() => ConversationEvent::InboxChanged,
                Some(request) = requests.recv() => running.asked(&state, request),
                event = expiry(next_expiry(&state)) => event,
            };
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

/// An effect whose end the conversation has by another event changes nothing.
fn continue_event() -> ConversationEvent {
    ConversationEvent::Gone { effect: 0 }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.acknowledgements.close();
    }
}

impl Running<'_> {
    /// Gives the event to the conversation and carries out what it wants, up to what has to be waited for. True: it is over.
    fn carry_out(&mut self, mut state: ConversationState, event: ConversationEvent) -> Result<(ConversationState, bool), Error> {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let intents;
            (state, intents) = apply(state, event);
            for intent in intents {
                match intent {
                    Intent::Append(bodies) => {
                        let entries = match self.append(&bodies) {
                            // What another writer appended stays where it is, and the session goes on in another segment.
                            Err(Error::ForeignAppend { file }) => {
                                tracing::error!(file = %file.display(), "another process has written to the log");
                                state = self.leave_segment(state)?;
                                self.append(&bodies)?
                            }
                            entries => entries?,
                        };
                        // They come before everything else: the conversation waits for them.
                        for entry in entries.into_iter().rev() {
                            events.push_front(ConversationEvent::Logged(entry));
                        }
                        if self.driver.session.segment_bytes() >= self.driver.segment_bytes {
                            events.push_back(ConversationEvent::SegmentFull);
                        }
                    }
                    Intent::Rotate { reason, config, carried } => {
                        let (segment, entries) = self.rotate(reason, &config, carried)?;
                        events.push_front(ConversationEvent::Rotated { segment, entries });
                    }
                    Intent::ReadInbox => events.push_back(ConversationEvent::InboxRead(self.driver.session.pending())),
                    Intent::CallModel { effect, request, summary } => self.call_model(effect, request, summary, state.tokens()),
                    Intent::RetryModel { effect } => {
                        if let Some(handle) = self.effects.get(&effect) {
                            handle.retry.notify_one();
                        }
                    }
                    Intent::Check { effect, calls, from } => {
                        let decisions = block_in_place(|| self.decide(&calls, from));
                        events.push_back(ConversationEvent::Checked { effect, decisions });
                    }
                    Intent::Prepare { effect, mut wanted } => {
                        let loans = wanted.loans.take();
                        let prepared = block_in_place(|| self.prepare(wanted));
                        match loans {
                            Some(request) => self.ask_loans(effect, request, prepared),
                            None => events.push_back(ConversationEvent::Prepared { effect, prepared }),
                        }
                    }
                    Intent::Run { effect, call, from } => self.run_tool(effect, call, from),
                    Intent::End { effect } => {
                        if let Some(handle) = self.effects.get(&effect) {
                            handle.abort.abort();
                            if handle.kind != EffectKind::Tool {
                                self.driver.session.feed.discard_answer();
                            }
                        }
                    }
                    Intent::RunProgram { effect, input, session } => self.run_program(effect, input, session, state.tokens()),
                    Intent::Acknowledge { ask, result } => self.acknowledgements.answer(ask, result),
                    Intent::EndBackground { effect } => self.end_background(effect),
                    Intent::Answer { ask, response } => {
                        // The asker may be gone.
                        if let Some(answer) = self.asks.remove(&ask) {
                            let _ = answer.send(response);
                        }
                    }
                    Intent::AnswerApproval { ask, result } => {
                        if let Some(answer) = self.approvals.remove(&ask) {
                            let _ = answer.send(result);
                        }
                    }
                    Intent::AnswerCall { ask, result } => {
                        if let Some(answer) = self.calls.remove(&ask) {
                            let _ = answer.send(result);
                        }
                    }
                    Intent::Wait => {
                        self.driver.observer.on_wait();
                        self.renew_secrets();
                    }
                    Intent::Exit => return Ok((state, true)),
                }
            }
        }
        Ok((state, false))
    }

    fn rotate(&self, reason: SegmentReason, config: &AgentConfig, carried: Vec<Carried>) -> Result<(String, Vec<Entry>), Error> {
        let entries = block_in_place(|| self.driver.session.rotate(reason, config, carried))?;
        self.driver.observer.on_entries_logged();
        log_entries(&entries);
        let pointer = self.driver.session.pointer();
        let segment = pointer.as_ref().map(|pointer| pointer.segment.clone()).unwrap_or_default();
        pointer.into_iter().for_each(|pointer| self.driver.observer.on_rotated(pointer));
        Ok((segment, entries))
    }

    /// While nothing runs, an endpoint's other Secrets are read although a fallback has answered in its place.
    fn renew_secrets(&self) {
        let refused = match &self.driver.agent {
            Agent::Builtin(model) => model.refused_for(),
            Agent::Program(_) | Agent::Blocked(_) => None,
        };
        if refused.is_some_and(|refused| self.driver.secrets.due_in(refused).is_zero()) {
            self.driver.secrets.renew();
        }
    }

    /// Goes on in a new segment in the middle of an append.
    fn leave_segment(&self, state: ConversationState) -> Result<ConversationState, Error> {
        let config = state.config().map(|config| (**config).clone()).unwrap_or_default();
        let (segment, entries) = self.rotate(SegmentReason::ForeignAppend, &config, state.carried())?;
        Ok(apply(state, ConversationEvent::Rotated { segment, entries }).0)
    }

    fn append(&self, bodies: &[Body]) -> Result<Vec<Entry>, Error> {
        let entries = block_in_place(|| self.driver.session.append(bodies))?;
        self.driver.observer.on_entries_logged();
        if entries.iter().any(|entry| matches!(entry.body, Body::RunStarted(_))) {
            self.driver.tools.runner().start_run();
        }
        for entry in &entries {
            if let Body::ToolEnded(ToolEnded { decision: Some(CallDecision { refused: Some(class), .. }), .. }) = &entry.body {
                self.driver.observer.on_call_refused(*class);
            }
            if let Body::ModeSwitched(switch) = &entry.body {
                self.driver.tools.set_mode(Some(switch.mode));
            }
            // It was one when it was told.
            if let Some(Ok(policy)) = policy_of(&entry.body).map(|policy| Policy::new(&policy)) {
                self.driver.tools.runner().set_policy(Arc::new(policy));
            }
        }
        log_entries(&entries);
        Ok(entries)
    }

    /// What the end of an effect's task means, where the effect has not said it itself.
    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) -> Option<ConversationEvent> {
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let effect = self.by_task.remove(&id)?;
        let handle = self.effects.remove(&effect)?;
        match ended {
            Ok(_) => None,
            Err(error) if error.is_cancelled() => Some(ConversationEvent::Gone { effect }),
            Err(error) => {
                let message = format!("it broke: {error}");
                tracing::error!(%error, "an effect of the conversation panicked");
                Some(match handle.kind {
                    EffectKind::Loans => ConversationEvent::Gone { effect },
                    EffectKind::Model => {
                        let failure = ModelFailed::new(ModelFailureKind::Unreachable, message);
                        ConversationEvent::ModelFailed { effect, failure }
                    }
                    EffectKind::Tool => {
                        let end = CallEnd {
                            outcome: ToolOutcome::Failed,
                            output: message,
                            images: Vec::new(),
                            refused: None,
                            read: None,
                            millis: 0,
                        };
                        ConversationEvent::Ended { effect, end }
                    }
                    EffectKind::Program => {
                        let end = ProgramEnd::not_started(message);
                        ConversationEvent::ProgramEnded { effect, end }
                    }
                })
            }
        }
    }
}

fn log_entries(entries: &[Entry]) {
    for entry in entries {
        // Only the kind is logged, never the content: transcripts stay on the session volume.
        tracing::info!(seq = entry.seq, kind = entry.body.kind(), call = call_id(&entry.body), "entry logged");
    }
}

/// The id of the tool call that an entry is about.
fn call_id(body: &Body) -> Option<&str> {
    match body {
        Body::ToolStarted(start) => Some(&start.call_id),
        Body::ToolEnded(end) => Some(&end.call_id),
        Body::ToolRequested(requested) => Some(&requested.call_id),
        Body::ToolAsked(asked) => Some(&asked.call_id),
        Body::ToolAnswered(answered) => Some(&answered.call_id),
        Body::SessionStarted(_)
        | Body::RuntimeStarted(_)
        | Body::Input(_)
        | Body::PeerMessage(_)
        | Body::RunStarted(_)
        | Body::Assistant(_)
        | Body::RunEnded(_)
        | Body::Notice(_)
        | Body::SegmentStarted(_)
        | Body::Carried(_)
        | Body::ConfigChanged(_)
        | Body::SystemItem(_)
        | Body::Paused(_)
        | Body::Resumed(_)
        | Body::Abandoned(_)
        | Body::RolledBack(_)
        | Body::Rewound(_)
        | Body::Usage(_)
        | Body::ModeSwitched(_)
        | Body::CompactionStarted(_)
        | Body::CompactionEnded(_)
        | Body::Extension(_)
        | Body::Unknown { .. } => None,
    }
}
