//! The session as this process has it open: log and inbox, and who wants to know of changes.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::{Notify, watch};
use uuid::Uuid;
use yoi_session::disk::{Disk, RealDisk};
use yoi_session::{Error, Inbox, InboxMessage, Lock, Log, Preallocate, Put, Reader, Replay, Result, current};
use yoi_wire::entry::{AgentRef, Body, Entry, FORMAT, SessionStarted};
use yoi_wire::hub::SessionPointer;

/// An open session. Shared between the conversation, which writes the log, and the line, which reads it and fills the inbox.
#[derive(Debug)]
pub struct OpenSession {
    /// `None` once it is closed.
    log: Mutex<Option<Log>>,
    inbox: Mutex<Inbox>,
    /// Something is in the inbox.
    pub message_stored: Notify,
    /// The seq of the last entry.
    appended: watch::Sender<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[must_use]
pub fn disk() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}

impl OpenSession {
    /// Opens the agent's session, or makes it. What is replayed has at least one entry.
    ///
    /// # Errors
    /// The session's.
    pub fn open(lock: &Arc<Lock>, agent: &AgentRef) -> Result<(Arc<Self>, Replay)> {
        let (log, replay) = match current::read(&**lock.disk(), lock.root())? {
            Some(session) => Log::open(lock, session, Preallocate::default())?,
            None => {
                let session = Uuid::now_v7();
                let log = Log::create(lock, session, Uuid::now_v7(), Preallocate::default())?;
                current::write(lock, session)?;
                (log, Replay { entries: Vec::new(), state: yoi_session::LogState::default(), cut: None })
            }
        };
        let session = log.session();
        let inbox = Inbox::open(lock, session, &replay.state)?;
        let open = Self {
            log: Mutex::new(Some(log)),
            inbox: Mutex::new(inbox),
            message_stored: Notify::new(),
            appended: watch::channel(replay.state.last_seq).0,
        };
        let mut replay = replay;
        // Also after a crash between making the session and its first entry.
        if replay.entries.is_empty() {
            let first = SessionStarted { session: session.to_string(), agent: agent.clone(), format: FORMAT };
            let entries = open.append(&[Body::SessionStarted(first)])?;
            replay.state = yoi_session::fold::fold(&entries);
            replay.entries = entries;
        }
        Ok((Arc::new(open), replay))
    }

    /// Durable on return; messages among the bodies leave the inbox.
    ///
    /// # Errors
    /// The log's; it then has to be opened again.
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
            if let Err(error) = inbox.settle(id) {
                // The log has it; the next opening removes the file.
                tracing::warn!(%error, "delivered message left in the inbox");
            }
        }
        if let Some(last) = entries.last() {
            self.appended.send_replace(last.seq);
        }
        Ok(entries)
    }

    /// # Errors
    /// The disk's.
    pub fn put(&self, message: InboxMessage) -> Result<Put> {
        let put = lock(&self.inbox).put(message)?;
        if put == Put::Accepted {
            self.message_stored.notify_one();
        }
        Ok(put)
    }

    #[must_use]
    pub fn pending(&self) -> Vec<InboxMessage> {
        lock(&self.inbox).pending().cloned().collect()
    }

    /// Changes with every append, and is closed with this session.
    #[must_use]
    pub fn appended(&self) -> watch::Receiver<u64> {
        self.appended.subscribe()
    }

    #[must_use]
    pub fn reader(&self) -> Option<Reader> {
        lock(&self.log).as_ref().map(Log::reader)
    }

    #[must_use]
    pub fn pointer(&self) -> Option<SessionPointer> {
        lock(&self.log).as_ref().map(|log| SessionPointer { id: log.session().to_string(), segment: log.segment().to_string() })
    }

    /// Closes the log; nothing is lost when it fails.
    pub fn close(&self) {
        if let Some(log) = lock(&self.log).take()
            && let Err(error) = log.close()
        {
            tracing::warn!(%error, "log not trimmed");
        }
    }
}

/// A reader of the agent's session when this process does not have it open.
///
/// # Errors
/// The disk's; `None` when there is no session.
pub fn closed_session_reader(root: &Path) -> Result<Option<Reader>> {
    let disk = disk();
    Ok(current::read(&*disk, root)?.map(|session| Reader::new(disk, root, session)))
}
