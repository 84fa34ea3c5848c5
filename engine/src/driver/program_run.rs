//! A run of the program that is the agent, and what its hooks and tools ask of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::block_in_place;
use uuid::Uuid;
use yoi_wire::control::DeltaKind;
use yoi_wire::entry::{CallFrom, OfferedTool, TokenUsage, ToolCall, ToolOutcome};

use super::{Agent, Running};
use crate::conversation::program::ProgramEnd;
use crate::conversation::{AskId, CallEnd, ConversationEvent, DecidedCall, EffectId};
use crate::decision::Decision;
use crate::open_session::OpenSession;
use crate::program::access::{RunBudget, UsedUp};
use crate::program::agent::{ProgramAgent, ProgramVersion};
use crate::program::calls::ProgramCalls;
use crate::program::event::ProgramEvent;
use crate::program::run::{ProgramLog, RunInput, run};
use crate::tools::{CallResult, LiveOutput, ToolGate};

const SESSION_CLOSED: &str = "the agent's session is closed, so nothing more of this run begins";

/// Who waits until something is in the log.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    last: AskId,
    closed: bool,
    senders: HashMap<AskId, oneshot::Sender<Result<String, String>>>,
}

impl Acknowledgements {
    fn expect(&self) -> (AskId, oneshot::Receiver<Result<String, String>>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.last += 1;
        let ask = waiting.last;
        if !waiting.closed {
            waiting.senders.insert(ask, sender);
        }
        (ask, receiver)
    }

    /// Nobody is answered any more.
    pub fn close(&self) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (waiting.closed, waiting.senders) = (true, HashMap::new());
    }

    pub fn answer(&self, ask: AskId, result: Result<String, String>) {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).senders.remove(&ask);
        // Whoever asked may be gone.
        let _ = sender.map(|sender| sender.send(result));
    }
}

/// The run under way, as its process, its hooks and its tools see it.
struct ProgramRun {
    effect: EffectId,
    events: mpsc::UnboundedSender<ConversationEvent>,
    waiting: Arc<Acknowledgements>,
    session: Arc<OpenSession>,
    tools: ToolGate,
    /// The proxy counts the tokens, so what the program says of them is left out.
    counted_by_proxy: AtomicBool,
    /// Calls that wait for a person.
    asking: AtomicUsize,
}

/// A call that may wait for a person. Dropping it before the answer says that nobody waits for it any more.
struct Asking<'a> {
    run: &'a ProgramRun,
    ask: AskId,
    answered: bool,
}

impl<'a> Asking<'a> {
    fn new(run: &'a ProgramRun, ask: AskId) -> Self {
        run.asking.fetch_add(1, Ordering::Relaxed);
        Self { run, ask, answered: false }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.run.asking.fetch_sub(1, Ordering::Relaxed);
        if !self.answered {
            // The conversation may have ended.
            let _ = self.run.events.send(ConversationEvent::ProgramCallWithdrawn { ask: self.ask });
        }
    }
}

impl ProgramRun {
    async fn ask(&self, event: impl FnOnce(AskId) -> ConversationEvent) -> Result<String, String> {
        let (ask, answer) = self.waiting.expect();
        if self.events.send(event(ask)).is_err() {
            return Err(SESSION_CLOSED.to_owned());
        }
        answer.await.unwrap_or_else(|_| Err(SESSION_CLOSED.to_owned()))
    }

    async fn tell(&self, mut said: Vec<ProgramEvent>) {
        if self.counted_by_proxy.load(Ordering::Relaxed) {
            said.retain_mut(|event| match event {
                ProgramEvent::Usage(_) => false,
                ProgramEvent::Answer(answer) => {
                    answer.usage = None;
                    true
                }
                _ => true,
            });
        }
        let redact = |text: &mut String| *text = self.tools.runner().redact(std::mem::take(text));
        for event in &mut said {
            match event {
                ProgramEvent::CallEnded { output: text, .. } | ProgramEvent::Output { text, .. } => redact(text),
                ProgramEvent::Other { line } => redact(line),
                _ => {}
            }
        }
        let effect = self.effect;
        let _ = self.ask(|ask| ConversationEvent::ProgramSaid { effect, ask, said }).await;
    }

    /// Has the call decided about, and waits until the decision is durable: the id that the call has in the log, or why it may not begin.
    async fn begin_call(&self, call: ToolCall, from: CallFrom, wait_seconds: u64) -> Result<String, String> {
        let decision = block_in_place(|| self.tools.begin(&call, from));
        let (ask, answer) = self.waiting.expect();
        let mut asking = matches!(decision, Decision::Ask(_)).then(|| Asking::new(self, ask));
        let call = Box::new(DecidedCall { call, from, decision, wait_seconds });
        let sent = self.events.send(ConversationEvent::ProgramCall { effect: self.effect, ask, call });
        let closed = || Err(SESSION_CLOSED.to_owned());
        let result = if sent.is_err() { closed() } else { answer.await.unwrap_or_else(|_| closed()) };
        if let Some(asking) = &mut asking {
            asking.answered = true;
        }
        result
    }
}

impl ProgramLog for ProgramRun {
    fn say(&self, said: Vec<ProgramEvent>) -> BoxFuture<'_, ()> {
        self.tell(said).boxed()
    }

    fn show(&self, text: &str) {
        self.session.feed.add(DeltaKind::Text, None, &self.tools.runner().redact(text.to_owned()));
    }

    fn waits_for_person(&self) -> bool {
        self.asking.load(Ordering::Relaxed) > 0
    }
}

impl ProgramCalls for ProgramRun {
    fn call_starts(&self, call: ToolCall, wait_seconds: u64) -> BoxFuture<'_, Result<(), String>> {
        async move { self.begin_call(call, CallFrom::Hook, wait_seconds).await.map(|_| ()) }.boxed()
    }

    fn call_ended(&self, call_id: String, outcome: ToolOutcome, output: String) -> BoxFuture<'_, ()> {
        self.tell(vec![ProgramEvent::CallEnded { call_id, outcome, output }]).boxed()
    }

    fn run_tool(&self, call: ToolCall) -> BoxFuture<'_, CallEnd> {
        async move {
            let begun = Instant::now();
            // A client of MCP tells nobody how long it waits.
            let result = match self.begin_call(call.clone(), CallFrom::Mcp, 0).await {
                Ok(call_id) => {
                    let result = self.tools.run(&call, CallFrom::Mcp, &LiveOutput::discard()).await;
                    let (outcome, output) = (result.outcome, result.output.clone());
                    self.tell(vec![ProgramEvent::CallEnded { call_id, outcome, output }]).await;
                    result
                }
                Err(message) => CallResult::new(ToolOutcome::Refused, message),
            };
            let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let CallResult { outcome, output, images, refused, read } = result;
            CallEnd { outcome, output, images, refused, read, millis }
        }
        .boxed()
    }

    fn offered(&self) -> Vec<OfferedTool> {
        self.tools.offered(CallFrom::Mcp)
    }
}

/// Counts the tokens of a run on top of those of the agent's life, and the model calls of this process of the program.
struct Budget {
    events: mpsc::UnboundedSender<ConversationEvent>,
    used: AtomicU64,
    limit: watch::Receiver<Option<u64>>,
    turns: AtomicU32,
    turns_per_run: u32,
    /// The program wanted more turns.
    out_of_turns: AtomicBool,
    used_up: Notify,
}

impl Budget {
    /// Why no more calls of the model were let through, unless it was for the tokens.
    fn turns_used_up(&self) -> Option<u32> {
        self.out_of_turns.load(Ordering::Relaxed).then_some(self.turns_per_run)
    }
}

impl RunBudget for Budget {
    fn used(&self, usage: TokenUsage) {
        self.used.fetch_add(usage.input_tokens.saturating_add(usage.output_tokens), Ordering::Relaxed);
        let _ = self.events.send(ConversationEvent::Used { usage, reason: "Program".to_owned() });
    }

    fn ask(&self) -> Result<(), UsedUp> {
        let may = if self.limit.borrow().is_some_and(|limit| self.used.load(Ordering::Relaxed) >= limit) {
            Err(UsedUp::Tokens)
        } else if self.turns.fetch_add(1, Ordering::Relaxed) >= self.turns_per_run {
            self.out_of_turns.store(true, Ordering::Relaxed);
            Err(UsedUp::Turns)
        } else {
            Ok(())
        };
        if may.is_err() {
            self.used_up.notify_one();
        }
        may
    }
}

impl Running<'_> {
    pub(super) fn run_program(&mut self, effect: EffectId, input: String, session: Option<String>, tokens: TokenUsage) {
        let Agent::Program(agent) = &self.driver.agent else { return };
        let agent = agent.clone();
        // What the tree has now counts for this run, and what the program asks for in it blocks nobody.
        block_in_place(|| self.driver.tools.runner().assets().look());
        let program_run = Arc::new(ProgramRun {
            effect,
            events: self.events.clone(),
            waiting: self.acknowledgements.clone(),
            session: self.driver.session.clone(),
            tools: self.driver.tools.clone(),
            counted_by_proxy: AtomicBool::new(false),
            asking: AtomicUsize::new(0),
        });
        let budget = Arc::new(Budget {
            events: self.events.clone(),
            used: AtomicU64::new(tokens.input_tokens.saturating_add(tokens.output_tokens)),
            limit: self.driver.token_limit.clone(),
            turns: AtomicU32::new(0),
            turns_per_run: self.driver.settings.turns_per_run,
            out_of_turns: AtomicBool::new(false),
            used_up: Notify::new(),
        });
        let task = async move {
            note_version(&agent, &program_run.events).await;
            // It opens proxy and socket, and nothing else: any process of the Pod may learn it.
            let token = format!("yoi-{}", Uuid::new_v4().simple());
            let end = match agent.access.open(&token, program_run.clone(), budget.clone()).await {
                Ok(access) => {
                    program_run.counted_by_proxy.store(access.proxy.is_some(), Ordering::Relaxed);
                    let given =
                        RunInput { input: &input, session: session.as_deref(), token: &token, access: &access, used_up: &budget.used_up };
                    let end = run(&agent, given, &*program_run).await;
                    ProgramEnd { turns_used_up: budget.turns_used_up(), ..end }
                }
                Err(message) => ProgramEnd::not_started(message),
            };
            tracing::info!(program = agent.preset.name, exit = ?end.exit, "program ended");
            ConversationEvent::ProgramEnded { effect, end }
        };
        self.spawn_program(effect, task);
    }
}

/// Says once in the life of a process that the program is of another version than its parser knows.
async fn note_version(agent: &ProgramAgent, events: &mpsc::UnboundedSender<ConversationEvent>) {
    match agent.version().await {
        ProgramVersion::Other(_) if !agent.noted.swap(true, Ordering::Relaxed) => {
            let message = agent.version_message().await.unwrap_or_default();
            let _ = events.send(ConversationEvent::Noticed { reason: "ProgramVersionUnknown".to_owned(), message });
        }
        ProgramVersion::Other(_) | ProgramVersion::Known | ProgramVersion::Missing => {}
    }
}
