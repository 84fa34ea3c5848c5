//! One conversation of a project: its session, what drives it, and what may be asked of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use yoi_session::{InboxMessage, Lock, PutOutcome, Reader, Sender, StoredEntry, Token, Wake};
use yoi_wire::approval::{ApprovalRequest, ApprovalResponse, WaitingCall};
use yoi_wire::control::{ControlAction, ControlRequest, ControlResponse};
use yoi_wire::conversation::{ConversationState, ConversationStatus};
use yoi_wire::engine_api::{EventTaken, RunTool, ToolRun};
use yoi_wire::entry::{CallFrom, OfferedTool, RuntimeStarted};
use yoi_wire::people::MAX_LOG_TAIL;

use super::ProjectError;
use super::parts::ConversationParts;
use crate::conversation::CallRequest;
use crate::error_text::error_text;
use crate::follow::Follower;
use crate::log_reads::{BYTES_PER_READ, ENTRIES_PER_READ, LogReads, blocking};
use crate::open_session::{OpenSession, closed_session_reader};
use crate::outside_events::send_event;
use crate::tools::ToolGate;

/// How a conversation has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It was stopped.
    Stopped,
    /// It has ended by itself, for this reason.
    Failed(String),
}

impl Ending {
    fn why(&self) -> String {
        match self {
            Self::Stopped => "it was stopped".to_owned(),
            Self::Failed(why) => why.clone(),
        }
    }
}

/// A conversation, also one that does not run.
pub struct Conversation {
    name: String,
    /// Its folder on the volume.
    folder: PathBuf,
    /// `None`: it does not run.
    session: watch::Receiver<Option<Arc<OpenSession>>>,
    /// `None`: it runs.
    ended: watch::Receiver<Option<Ending>>,
    stop: CancellationToken,
    reads: LogReads,
    /// `None`: it did not run in this process.
    tools: Option<ToolGate>,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("name", &self.name).field("ended", &*self.ended.borrow()).finish_non_exhaustive()
    }
}

impl Conversation {
    /// Opens the session of the folder that `lock` covers, or creates it, and drives it in a task of its own until `stop`. A fault there ends this
    /// conversation alone.
    pub(super) async fn start(
        name: &str,
        lock: Arc<Lock>,
        parts: &ConversationParts,
        stop: CancellationToken,
    ) -> Result<Self, ProjectError> {
        let folder = lock.root().to_owned();
        let opening = {
            let (agent_ref, form_config) = (parts.agent_ref.clone(), parts.form_config_of(name));
            // A fault while it is formed is one of this conversation, too.
            tokio::task::spawn_blocking(move || OpenSession::open(&lock, &agent_ref, &*form_config))
        };
        let (session, replay) =
            opening.await.map_err(|fault| ProjectError::Ended { conversation: name.to_owned(), why: fault_text(&fault) })??;
        let driver = parts.driver(name, &session, &replay, stop.clone());
        let tools = driver.tools.clone();
        let gate = Some(tools.clone());
        let runtime = RuntimeStarted { cut_bytes: replay.cut_bytes(), ..parts.runtime.clone() };
        let (ending, ended) = watch::channel(None);
        let (opened, open_session) = watch::channel(Some(session));
        tokio::spawn(async move {
            // A task of its own, so that a fault there ends as a stop does: nothing of the conversation is left, and others go on.
            let driven = tokio::spawn(async move { driver.drive(replay, runtime).await }).await;
            tools.runner().stop_all().await;
            if let Some(session) = opened.send_replace(None) {
                blocking(move || session.close()).await;
            }
            ending.send_replace(Some(match driven {
                Ok(Ok(())) => Ending::Stopped,
                Ok(Err(error)) => Ending::Failed(error_text(&error)),
                Err(fault) => Ending::Failed(fault_text(&fault)),
            }));
        });
        Ok(Self { name: name.to_owned(), folder, session: open_session, ended, stop, reads: parts.reads.clone(), tools: gate })
    }

    /// A conversation that does not run.
    pub(super) fn ended_before(name: &str, folder: PathBuf, ending: Ending, reads: LogReads) -> Self {
        let stop = CancellationToken::new();
        stop.cancel();
        Self {
            name: name.to_owned(),
            folder,
            session: watch::channel(None).1,
            ended: watch::channel(Some(ending)).1,
            stop,
            reads,
            tools: None,
        }
    }

    /// The gate before its tools; `None`: it did not run in this process.
    #[must_use]
    pub fn gate(&self) -> Option<&ToolGate> {
        self.tools.as_ref()
    }

    /// The tools that policy and mode show to its model from the next turn on, which are those that [`Self::run_tool`] runs.
    ///
    /// # Errors
    /// It does not run.
    pub fn tools(&self) -> Result<Vec<OfferedTool>, ProjectError> {
        self.session()?;
        let gate = self.tools.as_ref().ok_or_else(|| self.not_running())?;
        Ok(gate.offered_now(CallFrom::Engine))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it runs, and what it does.
    #[must_use]
    pub fn status(&self) -> ConversationStatus {
        let (ended, not_running) = (self.ended.borrow().clone(), ConversationStatus::stopped(&self.name));
        match (ended, self.session.borrow().clone()) {
            (Some(Ending::Failed(why)), _) => {
                ConversationStatus { state: ConversationState::Failed.into(), message: Some(why), ..not_running }
            }
            (None, Some(session)) => running_status(&self.name, &session),
            (Some(Ending::Stopped), _) | (None, None) => not_running,
        }
    }

    /// Gives it a text, durable on return, and starts a run with it. The same id is the same message, however often it is sent.
    ///
    /// # Errors
    /// It was not taken.
    pub async fn send(&self, user: &str, id: Uuid, text: &str) -> Result<(), ProjectError> {
        let session = self.session()?;
        let message =
            InboxMessage { id: id.to_string(), from: Sender::Person { user: user.to_owned() }, text: text.to_owned(), wake: Wake::Run };
        match blocking(move || session.put(message)).await? {
            PutOutcome::Accepted | PutOutcome::Duplicate => Ok(()),
            PutOutcome::Full { limit } => Err(ProjectError::InboxFull { limit }),
            PutOutcome::TooOld => Err(ProjectError::TooOld),
            PutOutcome::TooLong { limit } => Err(ProjectError::TooLong { limit }),
        }
    }

    /// Asks it to pause, go on, cancel, compact or rewind, and returns its answer, which may be a refusal.
    ///
    /// # Errors
    /// It does not run.
    pub async fn control(&self, user: &str, action: ControlAction) -> Result<ControlResponse, ProjectError> {
        let request = ControlRequest { id: Uuid::now_v7().to_string(), action };
        self.session()?.ask(user.to_owned(), request).await.ok_or_else(|| self.not_running())
    }

    /// The calls that wait for a person, because the policy wants them asked; oldest first.
    ///
    /// # Errors
    /// It does not run.
    pub async fn waiting_calls(&self) -> Result<Vec<WaitingCall>, ProjectError> {
        self.session()?.waiting_calls().await.ok_or_else(|| self.not_running())
    }

    /// Says yes or no to a call that waits, and returns the answer that counts, which is the first one.
    ///
    /// # Errors
    /// No such call waits, or it is over.
    pub async fn approve(&self, user: &str, request: ApprovalRequest) -> Result<ApprovalResponse, ProjectError> {
        Ok(self.session()?.approve(user.to_owned(), request).await.ok_or_else(|| self.not_running())??)
    }

    /// Has a tool run that no model asked for, by the gate of all calls, and returns its end. What is not ended within the wait of the request, or waits for
    /// a person, is asked for again under the same id, which is the same call.
    ///
    /// # Errors
    /// It is no call, too many have not ended, or the conversation does not run.
    pub async fn run_tool(&self, user: &str, tool: &str, call: RunTool) -> Result<ToolRun, ProjectError> {
        let wait = call.wait();
        let request = CallRequest { id: call.id, tool: tool.to_owned(), args: call.args };
        Ok(self.session()?.run_tool(user.to_owned(), request, wait).await.ok_or_else(|| self.not_running())??)
    }

    /// Gives it an event from outside, an object as [`yoi_wire::engine_api::OutsideEvent`], and returns when its effect is durable.
    ///
    /// # Errors
    /// It is none that may come from outside, too many messages wait, the conversation is in no state for it, or it does not run.
    pub async fn send_event(&self, user: &str, event: Value) -> Result<EventTaken, ProjectError> {
        Ok(send_event(self.session()?, user, event).await?)
    }

    /// Follows it after `token`, or from its last `tail` entries: each entry and each piece of an answer once, in order.
    ///
    /// # Errors
    /// It does not run, or the token is none of its record.
    pub async fn follow(&self, token: Token, tail: Option<usize>) -> Result<Follower, ProjectError> {
        let session = self.session()?;
        let follower = Follower::start(&session, token, tail, self.reads.clone(), self.stop.clone()).await?;
        follower.ok_or_else(|| self.not_running())
    }

    /// Reads its log after `token`, or its last `tail` entries, also when it does not run: at most 64 entries or one MiB, and the token to read on with.
    ///
    /// # Errors
    /// The token is none of its record, or the disk's.
    pub async fn read_log(&self, token: Token, tail: Option<usize>) -> Result<(Vec<StoredEntry>, Token), ProjectError> {
        let mut reader = self.reader().await?;
        let read = move |reader: &mut Reader| {
            let token = tail.map_or(Ok(token), |tail| reader.tail(token, tail.min(MAX_LOG_TAIL), None))?;
            reader.read_bytes(token, ENTRIES_PER_READ, BYTES_PER_READ)
        };
        Ok(self.reads.with(&mut reader, read).await?.unwrap_or((Vec::new(), token)))
    }

    /// A reader of its log; `None` when it has never had one.
    pub(super) async fn reader(&self) -> Result<Option<Reader>, ProjectError> {
        let open = self.session.borrow().as_ref().and_then(|session| session.reader());
        match open {
            Some(reader) => Ok(Some(reader)),
            None => {
                let folder = self.folder.clone();
                Ok(blocking(move || closed_session_reader(&folder)).await?)
            }
        }
    }

    pub(super) fn log_reads(&self) -> &LogReads {
        &self.reads
    }

    /// The folder of its record.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its open session, for whoever serves it, and every change of that.
    #[must_use]
    pub fn watch_session(&self) -> watch::Receiver<Option<Arc<OpenSession>>> {
        self.session.clone()
    }

    /// Its open session; `None`: it does not run.
    #[must_use]
    pub fn open_session(&self) -> Option<Arc<OpenSession>> {
        self.session.borrow().clone()
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.ended.borrow().is_none()
    }

    /// Ends what runs, as interrupted, and every process of it. On return its record is closed.
    pub(super) async fn stop(&self) {
        self.stop.cancel();
        self.ended().await;
    }

    /// Waits until it has ended by a stop or by itself, because its record cannot be written, and says why.
    pub async fn ended(&self) -> String {
        // An error: the task that drives is gone.
        let _ = self.ended.clone().wait_for(Option::is_some).await;
        self.why_ended()
    }

    fn session(&self) -> Result<Arc<OpenSession>, ProjectError> {
        self.open_session().filter(|_| !self.stop.is_cancelled()).ok_or_else(|| self.not_running())
    }

    fn not_running(&self) -> ProjectError {
        ProjectError::Ended { conversation: self.name.clone(), why: self.why_ended() }
    }

    fn why_ended(&self) -> String {
        self.ended.borrow().as_ref().map_or_else(|| "it is being stopped".to_owned(), Ending::why)
    }
}

/// The status of a conversation that runs.
#[must_use]
pub fn running_status(name: &str, session: &OpenSession) -> ConversationStatus {
    let progress = session.feed.progress();
    ConversationStatus {
        name: name.to_owned(),
        state: ConversationState::Running.into(),
        message: None,
        activity: Some(progress.activity.into()),
        tokens: Some(progress.total),
        mode: progress.mode.map(Into::into),
        session: session.pointer().map(|pointer| pointer.id),
    }
}

fn fault_text(fault: &tokio::task::JoinError) -> String {
    format!("a fault of this program: {fault}")
}
