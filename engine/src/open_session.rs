//! The open session: its log, its inbox, and notifications of changes.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, mpsc, oneshot, watch};
use uuid::Uuid;
use yoi_session::disk::{Disk, RealDisk};
use yoi_session::{Error, Inbox, InboxMessage, Lock, Log, Preallocate, PutOutcome, Reader, Replay, Result, Wake, current};
use yoi_wire::approval::{ApprovalRequest, WaitingCall};
use yoi_wire::control::{ControlRequest, ControlResponse};
use yoi_wire::engine_api::ToolRun;
use yoi_wire::entry::{AgentConfig, AgentRef, Body, Carried, Entry, FORMAT, SegmentReason, SegmentStarted, SessionStarted};
use yoi_wire::hub::SessionPointer;

use crate::conversation::{ApprovalResult, CallRequest, RunToolResult, call_id_of};
use crate::live_feed::LiveFeed;

/// Requests of people that wait for the conversation. Further ones take turns.
const MAX_WAITING_REQUESTS: usize = 32;

/// A person's request, and where its answer goes. That is dropped when the session closes first.
#[derive(Debug)]
pub enum PersonRequest {
    /// Steer the run or the conversation.
    Control {
        /// The person's authenticated user name.
        user: String,
        /// The request.
        request: ControlRequest,
        /// Takes the answer.
        answer: oneshot::Sender<ControlResponse>,
    },
    /// Answer a call that waits.
    Approve {
        /// The person's authenticated user name.
        user: String,
        /// The answer.
        request: ApprovalRequest,
        /// Takes what counts.
        answer: oneshot::Sender<ApprovalResult>,
    },
    /// Run a tool.
    RunTool {
        /// The person's authenticated user name.
        user: String,
        /// The call.
        request: CallRequest,
        /// Takes how far it is.
        answer: oneshot::Sender<RunToolResult>,
    },
    /// Note something in the log that a person may want to know.
    Notice {
        /// In CamelCase, of the vocabulary of condition reasons.
        reason: String,
        /// For people.
        message: String,
    },
    /// Note in the log what a person does beside the conversation.
    Record {
        /// The entry, which changes nothing.
        body: Box<Body>,
        /// Told when it is durable.
        recorded: oneshot::Sender<()>,
    },
    /// List the calls that wait.
    ListWaiting {
        /// Takes the list.
        answer: oneshot::Sender<Vec<WaitingCall>>,
    },
}

/// An open session. The conversation writes its log; requests of the gateway read the log and fill the inbox.
#[derive(Debug)]
pub struct OpenSession {
    /// `None` after [`OpenSession::close`].
    log: Mutex<Option<Log>>,
    inbox: Mutex<Inbox>,
    /// Notified when a message was stored in the inbox.
    pub message_stored: Notify,
    /// Notified when a message was refused, because too many wait.
    pub inbox_full: Notify,
    /// The sequence number of the last entry.
    appended: watch::Sender<u64>,
    /// What attached clients see.
    pub feed: LiveFeed,
    requests: mpsc::Sender<PersonRequest>,
    received_requests: Mutex<Option<mpsc::Receiver<PersonRequest>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[must_use]
pub fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

impl OpenSession {
    /// Opens the agent's session, or creates it. The replay has at least one entry. `form_config` gives the configuration of a new session.
    ///
    /// # Errors
    /// The session's log or inbox cannot be opened.
    pub fn open(lock: &Arc<Lock>, agent: &AgentRef, form_config: &dyn Fn() -> AgentConfig) -> Result<(Arc<Self>, Replay)> {
        let (log, replay) = match current::read(&**lock.disk(), lock.root())? {
            Some(session) => Log::open(lock, session, Preallocate::default())?,
            None => {
                let (session, segment) = (Uuid::now_v7(), Uuid::now_v7());
                let log = Log::create(lock, session, segment, Preallocate::default())?;
                current::write(lock, session, segment)?;
                (log, Replay { entries: Vec::new(), state: yoi_session::LogState::default(), cut: None })
            }
        };
        let session = log.session();
        let inbox = Inbox::open(lock, session, &replay.state)?;
        let (requests, received) = mpsc::channel(MAX_WAITING_REQUESTS);
        let open = Self {
            feed: LiveFeed::new(replay.state.last_seq),
            requests,
            received_requests: Mutex::new(Some(received)),
            log: Mutex::new(Some(log)),
            inbox: Mutex::new(inbox),
            message_stored: Notify::new(),
            inbox_full: Notify::new(),
            appended: watch::channel(replay.state.last_seq).0,
        };
        let mut replay = replay;
        // The log is also empty after a crash between creating the session and its first entry.
        if replay.entries.is_empty() {
            let first = SessionStarted { session: session.to_string(), agent: agent.clone(), format: FORMAT };
            let (reason, config) = (SegmentReason::SessionStarted, form_config());
            let head = SegmentStarted { number: 1, format: FORMAT, previous: None, reason, config };
            let entries = open.append(&[Body::SessionStarted(first), Body::SegmentStarted(head)])?;
            replay.state = yoi_session::fold::fold(&entries);
            replay.entries = entries;
        }
        Ok((Arc::new(open), replay))
    }

    /// Appends entries, durable on return, and removes messages among them from the inbox.
    ///
    /// # Errors
    /// The append failed. The session then has to be opened again.
    pub fn append(&self, bodies: &[Body]) -> Result<Vec<Entry>> {
        let entries = {
            let mut log = lock(&self.log);
            let Some(log) = log.as_mut() else { return Err(Error::NoSession { session: Uuid::nil() }) };
            log.append(bodies, SystemTime::now(), &mut Uuid::now_v7)?
        };
        let mut inbox = lock(&self.inbox);
        for entry in &entries {
            let id = match &entry.body {
                Body::Input(input) => &input.message_id,
                Body::PeerMessage(message) => &message.message_id,
                _ => continue,
            };
            if let Err(error) = inbox.mark_delivered(id) {
                // The message is in the log, so the next opening removes its file.
                tracing::warn!(%error, "delivered message left in the inbox");
            }
        }
        self.announce(&entries);
        Ok(entries)
    }

    fn announce(&self, entries: &[Entry]) {
        if let Some(last) = entries.last() {
            self.appended.send_replace(last.seq);
        }
        self.feed.logged(entries);
    }

    /// Goes on in a new segment, durable on return, and returns its first entries.
    ///
    /// # Errors
    /// The rotation failed. The session then has to be opened again.
    pub fn rotate(&self, reason: SegmentReason, config: &AgentConfig, carried: Vec<Carried>) -> Result<Vec<Entry>> {
        let entries = {
            let mut log = lock(&self.log);
            let Some(log) = log.as_mut() else { return Err(Error::NoSession { session: Uuid::nil() }) };
            let entries = log.rotate(reason, config.clone(), carried, SystemTime::now(), &mut Uuid::now_v7)?;
            self.feed.rotated(&log.segment().to_string());
            entries
        };
        self.announce(&entries);
        Ok(entries)
    }

    /// Bytes of entries in the segment.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        lock(&self.log).as_ref().map_or(0, Log::segment_bytes)
    }

    /// Asks the conversation for something, and returns its answer; `None` when the session closes first.
    pub async fn ask(&self, user: String, request: ControlRequest) -> Option<ControlResponse> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(PersonRequest::Control { user, request, answer }).await.ok()?;
        answered.await.ok()
    }

    /// Answers a call that waits for a person; `None` when the session closes first.
    pub async fn approve(&self, user: String, request: ApprovalRequest) -> Option<ApprovalResult> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(PersonRequest::Approve { user, request, answer }).await.ok()?;
        answered.await.ok()
    }

    /// Has a tool run that no model asked for, and returns its end; how far it is when that is not there within `wait`, or when it waits for a person;
    /// `None` when the session closes first. The same id is the same call.
    pub async fn run_tool(&self, user: String, request: CallRequest, wait: Duration) -> Option<RunToolResult> {
        let id = request.id.clone();
        let (answer, answered) = oneshot::channel();
        self.requests.send(PersonRequest::RunTool { user, request, answer }).await.ok()?;
        match tokio::time::timeout(wait, answered).await {
            Ok(answered) => answered.ok(),
            Err(_) => Some(Ok(ToolRun { call_id: call_id_of(&id), end: None, asked: None })),
        }
    }

    /// Has something noted in the log that a person may want to know. It is not when the session closes first.
    pub async fn notice(&self, reason: &str, message: String) {
        // The receiver is gone with the session.
        let _ = self.requests.send(PersonRequest::Notice { reason: reason.to_owned(), message }).await;
    }

    /// Has an entry appended that changes nothing, durable on return; false when the session closes first.
    pub async fn record(&self, body: Body) -> bool {
        let (recorded, done) = oneshot::channel();
        let sent = self.requests.send(PersonRequest::Record { body: Box::new(body), recorded }).await;
        sent.is_ok() && done.await.is_ok()
    }

    /// The calls that wait for a person; `None` when the session closes first.
    pub async fn waiting_calls(&self) -> Option<Vec<WaitingCall>> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(PersonRequest::ListWaiting { answer }).await.ok()?;
        answered.await.ok()
    }

    /// The requests of people, for the one that drives the conversation. A second call gets a channel without senders.
    #[must_use]
    pub fn take_requests(&self) -> mpsc::Receiver<PersonRequest> {
        lock(&self.received_requests).take().unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Stores a message in the inbox, durable on return, and notifies the conversation.
    ///
    /// # Errors
    /// The disk's.
    pub fn put(&self, message: InboxMessage) -> Result<PutOutcome> {
        let put = lock(&self.inbox).put(message, SystemTime::now())?;
        match put {
            PutOutcome::Accepted => self.message_stored.notify_one(),
            PutOutcome::Full { .. } => self.inbox_full.notify_one(),
            PutOutcome::Duplicate | PutOutcome::TooOld | PutOutcome::TooLong { .. } => {}
        }
        Ok(put)
    }

    /// The messages in the inbox, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<InboxMessage> {
        lock(&self.inbox).pending().cloned().collect()
    }

    /// Whether the inbox holds a message that starts a run. Others wait there for the next one.
    #[must_use]
    pub fn has_work_pending(&self) -> bool {
        lock(&self.inbox).pending().any(|message| message.wake == Wake::Run)
    }

    /// The sequence number of the last entry. It changes with every append, and the channel closes when this value is dropped.
    #[must_use]
    pub fn watch_last_seq(&self) -> watch::Receiver<u64> {
        self.appended.subscribe()
    }

    /// A reader of the log; `None` after [`OpenSession::close`].
    #[must_use]
    pub fn reader(&self) -> Option<Reader> {
        lock(&self.log).as_ref().map(Log::reader)
    }

    /// Session and segment, for the report; `None` after [`OpenSession::close`].
    #[must_use]
    pub fn pointer(&self) -> Option<SessionPointer> {
        lock(&self.log).as_ref().map(|log| SessionPointer { id: log.session().to_string(), segment: log.segment().to_string() })
    }

    /// Closes the log and trims it. Nothing is lost when that fails.
    pub fn close(&self) {
        self.feed.close();
        lock(&self.received_requests).take();
        if let Some(log) = lock(&self.log).take()
            && let Err(error) = log.close()
        {
            tracing::warn!(%error, "log not trimmed");
        }
    }
}

/// A reader of the agent's session for when this process does not have it open; `None` when there is no session.
///
/// # Errors
/// The disk's.
pub fn closed_session_reader(root: &Path) -> Result<Option<Reader>> {
    let disk = disk();
    Ok(current::read(&*disk, root)?.map(|session| Reader::new(disk, root, session)))
}
