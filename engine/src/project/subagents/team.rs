//! The sub-agents of one conversation: their start, their end, and what its log says of them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use yoi_session::conversations as stored;
use yoi_session::{Lock, Token};
use yoi_wire::conversation::ConversationState;
use yoi_wire::entry::{Body, RefusalClass};
use yoi_wire::subagent::{MAX_SUBAGENTS, SubagentTemplate};

use super::narrowing::{TaskEnd, narrowed_parts};
use super::{SubagentPool, TakenName, prepare_folder, record};
use crate::decision::Refusal;
use crate::error_text::error_text;
use crate::log_reads::blocking;
use crate::project::ProjectError;
use crate::project::conversation::Conversation;
use crate::project::parts::{ConversationParts, SubagentSource};
use crate::subagents::{SpawnError, SubagentRequest, SubagentResult, SubagentState, SubagentStatus, Subagents, entry_of, unknown};

/// Those of a conversation that are remembered when they have ended.
const MAX_ENDED: usize = 8;
/// Letters of a task in the log of the conversation that gave it. The sub-agent's own log has all of it.
const TASK_CHARS: usize = 200;
const RUN_ENDED: &str = "the run that started it has ended";
/// How long the end of a sub-agent is waited for. Its processes are killed at once.
const STOP_LIMIT: Duration = Duration::from_secs(30);

impl SubagentSource for SubagentPool {
    fn of_conversation(self: Arc<Self>, parts: ConversationParts, stop: &CancellationToken) -> Arc<dyn Subagents> {
        Arc::new(ConversationSubagents::new(self, parts, stop.clone()))
    }
}

/// The sub-agents of one conversation.
#[derive(Clone, Debug)]
struct ConversationSubagents(Arc<Inner>);

struct Inner {
    pool: Arc<SubagentPool>,
    /// As the conversation itself was started with.
    parts: ConversationParts,
    stop: CancellationToken,
    all: Mutex<Vec<Subagent>>,
    changed: watch::Sender<u64>,
    entries: Mutex<Option<mpsc::UnboundedSender<Body>>>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("all", &self.all).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Subagent {
    status: SubagentStatus,
    words: String,
    stop: CancellationToken,
    /// Why it is being ended.
    why: Option<String>,
}

impl Subagent {
    fn is_running(&self) -> bool {
        self.status.state == SubagentState::Running
    }

    fn result(&self) -> SubagentResult {
        SubagentResult { status: self.status.clone(), words: self.words.clone() }
    }
}

impl ConversationSubagents {
    fn new(pool: Arc<SubagentPool>, parts: ConversationParts, stop: CancellationToken) -> Self {
        let inner = Inner { pool, parts, stop, all: Mutex::default(), changed: watch::channel(0).0, entries: Mutex::default() };
        Self(Arc::new(inner))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Subagent>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn template(&self, name: &str) -> Option<&SubagentTemplate> {
        self.0.pool.templates.iter().find(|template| template.name == name)
    }

    /// Says in the log how all are, and what is new.
    fn announce(&self, all: &[Subagent], change: Option<&SubagentStatus>) {
        let statuses: Vec<SubagentStatus> = all.iter().map(|one| one.status.clone()).collect();
        if let Some(entries) = self.0.entries.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            // The conversation may have ended.
            let _ = entries.send(entry_of(&statuses, change));
        }
        self.0.changed.send_modify(|times| *times += 1);
    }

    /// The sub-agent has ended.
    fn finish(&self, name: &str, state: SubagentState, why: Option<String>, words: String) {
        let mut all = self.all();
        let Some(one) = all.iter_mut().find(|one| one.status.name == name && one.is_running()) else { return };
        (one.status.state, one.words) = (state, words);
        one.status.why = one.why.take().filter(|_| state == SubagentState::Stopped).or(why);
        let change = one.status.clone();
        self.announce(&all, Some(&change));
    }

    async fn start(self, request: SubagentRequest) -> Result<SubagentStatus, SpawnError> {
        self.check(&request).map_err(SpawnError::Refused)?;
        let SubagentRequest { template, task, seconds, tools } = request;
        // It was looked for above.
        let Some(template) = self.template(&template).cloned() else { return Err(SpawnError::Failed("its template is gone".to_owned())) };
        let pool = self.0.pool.clone();
        let taken = blocking(move || pool.take()).await?;
        let status = SubagentStatus {
            name: taken.name.clone(),
            template: template.name.clone(),
            state: SubagentState::Running,
            task: task.chars().take(TASK_CHARS).collect(),
            tools: tools.unwrap_or_else(|| template.tools.clone()),
            mode: template.mode,
            seconds: seconds.map_or(template.most_seconds(), |seconds| seconds.min(template.most_seconds())),
            why: None,
        };
        let stop = self.0.stop.child_token();
        {
            let mut all = self.all();
            if let Err(refusal) = quota(&all) {
                drop(all);
                self.0.pool.free(&taken.name);
                return Err(SpawnError::Refused(refusal));
            }
            all.retain(|one| one.status.name != status.name);
            let ended = all.iter().filter(|one| !one.is_running()).count();
            if ended >= MAX_ENDED
                && let Some(at) = all.iter().position(|one| !one.is_running())
            {
                all.remove(at);
            }
            all.push(Subagent { status: status.clone(), words: String::new(), stop: stop.clone(), why: None });
        }
        let (name, volume) = (taken.name.clone(), taken.volume.clone());
        match self.drive(taken, &template, &status, task, &stop).await {
            Ok((conversation, ended)) => {
                let conversation = Arc::new(conversation);
                self.0.pool.set_conversation(&name, conversation.clone());
                {
                    let all = self.all();
                    self.announce(&all, Some(&status));
                }
                let limit = Duration::from_secs(u64::from(status.seconds));
                tokio::spawn(self.watch(volume, conversation, ended, stop, limit));
                Ok(status)
            }
            Err(error) => {
                self.all().retain(|one| one.status.name != name);
                drop(volume);
                self.0.pool.free(&name);
                Err(SpawnError::Failed(error_text(&error)))
            }
        }
    }

    async fn drive(
        &self,
        taken: TakenName,
        template: &SubagentTemplate,
        status: &SubagentStatus,
        task: String,
        stop: &CancellationToken,
    ) -> Result<(Conversation, watch::Receiver<TaskEnd>), ProjectError> {
        let TakenName { name, volume, tokens } = taken;
        let (parts, ended) = narrowed_parts(&self.0.parts, template, status, task, tokens, stop)?;
        let lock = stored::lock(&volume, &name);
        let of = name.clone();
        blocking(move || prepare_folder(&volume, &of, tokens)).await?;
        Ok((Conversation::start(&name, lock, &parts, stop.child_token()).await?, ended))
    }

    /// Waits until it has done its task, or has to end, and records that.
    async fn watch(
        self,
        volume: Arc<Lock>,
        conversation: Arc<Conversation>,
        mut ended: watch::Receiver<TaskEnd>,
        stop: CancellationToken,
        limit: Duration,
    ) {
        let name = conversation.name().to_owned();
        let (state, why) = tokio::select! {
            () = stop.cancelled() => (SubagentState::Stopped, Some("it was ended".to_owned())),
            end = ended.wait_for(Option::is_some) => match end.ok().and_then(|end| end.clone()) {
                Some(end) => end,
                None => ended_by_itself(&conversation),
            },
            _ = conversation.ended() => ended_by_itself(&conversation),
            () = sleep(limit) => (SubagentState::Stopped, Some(format!("its {} s are over", limit.as_secs()))),
        };
        let words = last_words(&conversation).await;
        conversation.stop().await;
        let (of, tokens) = (name.clone(), self.0.parts.budget.used(&name));
        let written = blocking(move || stored::write(&volume, &of, record(tokens))).await;
        if let Err(error) = written {
            tracing::warn!(error = error_text(&error), subagent = name, "tokens of a sub-agent are not recorded");
        }
        self.finish(&name, state, why, words);
        self.0.pool.free(&name);
    }

    /// How those of these names are, once the condition holds or the time is over.
    async fn wait_until(
        &self,
        names: &[String],
        limit: Duration,
        is_met: impl Fn(&[SubagentResult]) -> bool,
    ) -> Result<Vec<SubagentResult>, Refusal> {
        let deadline = Instant::now() + limit;
        let mut changed = self.0.changed.subscribe();
        loop {
            let found = self.find(names)?;
            if is_met(&found) {
                return Ok(found);
            }
            // An error: the time is over. The sender is in `self`.
            if timeout_at(deadline, changed.changed()).await.is_err() {
                return self.find(names);
            }
        }
    }

    fn find(&self, names: &[String]) -> Result<Vec<SubagentResult>, Refusal> {
        let all = self.all();
        if names.is_empty() {
            return Ok(all.iter().map(Subagent::result).collect());
        }
        let known: Vec<String> = all.iter().map(|one| one.status.name.clone()).collect();
        let find =
            |name: &String| all.iter().find(|one| one.status.name == *name).map(Subagent::result).ok_or_else(|| unknown(name, &known));
        names.iter().map(find).collect()
    }

    /// Has those that run end, those of this name or all. They go on until they have.
    fn cancel(&self, name: Option<&str>, why: &str) {
        for one in self.all().iter_mut().filter(|one| one.is_running() && name.is_none_or(|name| one.status.name == name)) {
            one.why.get_or_insert_with(|| why.to_owned());
            one.stop.cancel();
        }
    }
}

impl Subagents for ConversationSubagents {
    fn templates(&self) -> &[SubagentTemplate] {
        &self.0.pool.templates
    }

    fn begin(&self, told: Vec<SubagentStatus>) -> mpsc::UnboundedReceiver<Body> {
        let (sender, entries) = mpsc::unbounded_channel();
        *self.0.entries.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        let mut all = self.all();
        for mut status in told {
            if all.iter().any(|one| one.status.name == status.name) {
                continue;
            }
            let was_running = status.state == SubagentState::Running;
            if was_running {
                (status.state, status.why) = (SubagentState::Stopped, Some("the process that it ran in has ended".to_owned()));
            }
            all.push(Subagent { status: status.clone(), words: String::new(), stop: CancellationToken::new(), why: None });
            if was_running {
                self.announce(&all, Some(&status));
            }
        }
        entries
    }

    fn tell_again(&self) {
        let all = self.all();
        if !all.is_empty() {
            self.announce(&all, None);
        }
    }

    fn end_run(&self) {
        self.cancel(None, RUN_ENDED);
    }

    fn check(&self, request: &SubagentRequest) -> Result<(), Refusal> {
        let denied = |why: String| Err(Refusal::new(RefusalClass::SubagentDenied, why));
        let Some(template) = self.template(&request.template) else {
            let known: Vec<&str> = self.templates().iter().map(|template| template.name.as_str()).collect();
            return denied(format!("there is no template {:?} of sub-agents; there are {}", request.template, known.join(", ")));
        };
        if let Some(tool) = request.tools.iter().flatten().find(|tool| !template.tools.contains(tool)) {
            return denied(format!("the template {} does not have the tool {tool:?}; it has {}", template.name, template.tools.join(", ")));
        }
        if request.seconds == Some(0) || request.tools.as_ref().is_some_and(Vec::is_empty) {
            return Err(Refusal::new(RefusalClass::InvalidArgs, "a sub-agent has at least one second and one tool"));
        }
        quota(&self.all())
    }

    fn spawn(&self, request: SubagentRequest) -> BoxFuture<'_, Result<SubagentStatus, SpawnError>> {
        // In a task of its own: a call that is given up leaves nothing half started.
        let started = tokio::spawn(self.clone().start(request));
        async move { started.await.unwrap_or_else(|fault| Err(SpawnError::Failed(format!("a fault of this program: {fault}")))) }.boxed()
    }

    fn wait<'a>(&'a self, names: &'a [String], all: bool, limit: Duration) -> BoxFuture<'a, Result<Vec<SubagentResult>, Refusal>> {
        let has_ended = |one: &SubagentResult| one.status.state != SubagentState::Running;
        let is_met =
            move |found: &[SubagentResult]| if all { found.iter().all(has_ended) } else { found.is_empty() || found.iter().any(has_ended) };
        self.wait_until(names, limit, is_met).boxed()
    }

    fn stop<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<SubagentResult, Refusal>> {
        async move {
            let names = [name.to_owned()];
            self.cancel(Some(name), "its conversation has ended it");
            // The end of its processes is waited for elsewhere, and not without end.
            let found = self.wait_until(&names, STOP_LIMIT, all_have_ended).await?;
            found.into_iter().next().ok_or_else(|| unknown(name, &[]))
        }
        .boxed()
    }

    fn stop_all<'a>(&'a self, why: &'a str) -> BoxFuture<'a, ()> {
        async move {
            self.cancel(None, why);
            // No name can be unknown.
            let _ = self.wait_until(&[], STOP_LIMIT, all_have_ended).await;
        }
        .boxed()
    }
}

fn all_have_ended(found: &[SubagentResult]) -> bool {
    found.iter().all(|one| one.status.state != SubagentState::Running)
}

fn quota(all: &[Subagent]) -> Result<(), Refusal> {
    let running: Vec<&str> = all.iter().filter(|one| one.is_running()).map(|one| one.status.name.as_str()).collect();
    if running.len() < MAX_SUBAGENTS {
        return Ok(());
    }
    let why =
        format_args!("{} work for this conversation, and {MAX_SUBAGENTS} are the most; wait for one, or stop one", running.join(", "));
    Err(Refusal::new(RefusalClass::SubagentQuota, why))
}

/// A conversation that has ended before its task.
fn ended_by_itself(conversation: &Conversation) -> (SubagentState, Option<String>) {
    let status = conversation.status();
    if status.state.known() == Some(ConversationState::Failed) {
        (SubagentState::Failed, status.message)
    } else {
        (SubagentState::Stopped, Some("it was stopped".to_owned()))
    }
}

/// The last text that it has said.
async fn last_words(conversation: &Conversation) -> String {
    let (mut token, mut words) = (Token::Start, String::new());
    while let Ok((entries, next)) = conversation.read_log(token, None).await {
        if entries.is_empty() {
            break;
        }
        for stored in entries {
            if let Body::Assistant(answer) = stored.entry.body
                && !answer.text.trim().is_empty()
            {
                words = answer.text;
            }
        }
        token = next;
    }
    words
}
