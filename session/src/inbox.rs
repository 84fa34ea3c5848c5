//! Messages that were accepted and are not in the log yet.
//!
//! # Flow
//! [`Inbox::put`] → the sender is told "accepted" → before its next model call the runtime takes [`Inbox::pending`], appends
//! [`InboxMessage::body`] of each to the log → [`Inbox::settle`].
//!
//! # Guarantees
//! An accepted message gets into the log, once, whatever crashes in between: what [`Inbox::open`] finds both here and in the log is
//! dropped here, and an id that is here or in the log is not accepted again.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use yoi_wire::entry::{AgentRef, Body, Input, InputFrom, PeerMessage};

use crate::{Error, Lock, LogState, Result, disk::OpenMode, layout, record_file};

/// Messages that wait at the same time.
pub const MAX_MESSAGES: usize = 256;
/// Bytes of text in one message.
pub const MAX_TEXT: usize = 64 << 10;
/// Bytes of a message's id.
pub const MAX_ID: usize = 256;

/// A message as it came from the gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxMessage {
    /// The sender's: the same id is the same message, however often it is sent.
    pub id: String,
    pub from: Sender,
    pub text: String,
    pub wake: Wake,
}

/// Who sent it, as the gateway has authenticated it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sender {
    Person { user: String },
    Agent(AgentRef),
}

/// What a message does to an idle agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wake {
    /// Starts a run.
    Run,
    /// Waits for the next one.
    Wait,
}

impl InboxMessage {
    /// The entry that delivers it.
    #[must_use]
    pub fn body(&self) -> Body {
        match &self.from {
            Sender::Person { user } => Body::Input(Input {
                from: InputFrom::Person,
                message_id: self.id.clone(),
                user: Some(user.clone()),
                text: self.text.clone(),
            }),
            Sender::Agent(from) => {
                Body::PeerMessage(PeerMessage { message_id: self.id.clone(), from: from.clone(), text: self.text.clone() })
            }
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is durable here.
    Accepted,
    /// It is here or in the log already: as good as accepted.
    Duplicate,
    /// So many messages wait; later there may be room.
    Full { limit: usize },
    /// Its text or its id is longer than this.
    TooLong { limit: usize },
}

/// The inbox of one session: a file for each message.
#[derive(Debug)]
pub struct Inbox {
    lock: Arc<Lock>,
    dir: PathBuf,
    /// By arrival.
    pending: BTreeMap<u64, InboxMessage>,
    pending_ids: BTreeSet<String>,
    delivered: BTreeSet<String>,
    next: u64,
}

impl Inbox {
    /// Reads what waits, and drops what `replayed` says is in the log.
    ///
    /// # Errors
    /// [`Error::Damaged`] for a message that cannot be read, or the disk's.
    pub fn open(lock: &Arc<Lock>, session: Uuid, replayed: &LogState) -> Result<Self> {
        let (disk, dir) = (lock.disk(), layout::inbox(lock.root(), session));
        let mut names: Vec<(u64, PathBuf)> = Vec::new();
        match disk.list(&dir) {
            Ok(found) => {
                for name in found.iter().filter_map(|name| name.to_str()) {
                    let path = dir.join(name);
                    if let Some(number) = file_number(name) {
                        names.push((number, path));
                    } else if name.ends_with(".tmp") {
                        // Its writer died before it accepted anything.
                        disk.remove_file(&path).map_err(Error::disk("remove", &path))?;
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Error::NoSession { session }),
            Err(error) => return Err(Error::disk("list", &dir)(error)),
        }
        names.sort_unstable();
        let next = names.last().map_or(1, |(last, _)| last + 1);
        let delivered = replayed.delivered.keys().cloned().collect();
        let mut inbox = Self { lock: lock.clone(), dir, pending: BTreeMap::new(), pending_ids: BTreeSet::new(), delivered, next };
        for (number, path) in names {
            let message = inbox.load(&path)?;
            // Twice here: the first acknowledgement failed after the file was in place, and the sender came again.
            if inbox.delivered.contains(&message.id) || inbox.pending_ids.contains(&message.id) {
                disk.remove_file(&path).map_err(Error::disk("remove", &path))?;
            } else {
                inbox.pending_ids.insert(message.id.clone());
                inbox.pending.insert(number, message);
            }
        }
        // What is found may have been put in place by a process that died before its sync, and will be shown as accepted.
        disk.fsync_dir(&inbox.dir).map_err(Error::disk("sync", &inbox.dir))?;
        Ok(inbox)
    }

    fn load(&self, path: &Path) -> Result<InboxMessage> {
        let file = self.lock.disk().open(path, OpenMode::Read).map_err(Error::disk("open", path))?;
        record_file::read(&*file, path)
    }

    /// Accepts a message: it is durable before this returns [`Put::Accepted`].
    ///
    /// # Errors
    /// The disk's. Nothing is accepted then, but the message may be found at the next [`Inbox::open`]; its id makes another try safe.
    pub fn put(&mut self, message: InboxMessage) -> Result<Put> {
        if self.pending_ids.contains(&message.id) || self.delivered.contains(&message.id) {
            return Ok(Put::Duplicate);
        }
        if message.id.len() > MAX_ID {
            return Ok(Put::TooLong { limit: MAX_ID });
        }
        if message.text.len() > MAX_TEXT {
            return Ok(Put::TooLong { limit: MAX_TEXT });
        }
        if self.pending.len() >= MAX_MESSAGES {
            return Ok(Put::Full { limit: MAX_MESSAGES });
        }
        // A number is never used twice, so that a failed try cannot be taken for this one.
        let number = self.next;
        self.next += 1;
        if let Err(error) = record_file::write(&**self.lock.disk(), &self.dir, &file_name(number), &message) {
            let _ = self.lock.disk().remove_file(&self.dir.join(file_name(number)));
            return Err(error);
        }
        self.pending_ids.insert(message.id.clone());
        self.pending.insert(number, message);
        Ok(Put::Accepted)
    }

    /// What waits, in the order in which it came.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = &InboxMessage> {
        self.pending.values()
    }

    /// Tells that the entry of this message is in the log. It is not pending any more whatever this returns.
    ///
    /// # Errors
    /// The disk's: its file stays behind, and the next [`Inbox::open`] removes it.
    pub fn settle(&mut self, id: &str) -> Result<()> {
        self.delivered.insert(id.to_owned());
        if !self.pending_ids.remove(id) {
            return Ok(());
        }
        let Some(number) = self.pending.iter().find(|(_, message)| message.id == id).map(|(number, _)| *number) else { return Ok(()) };
        self.pending.remove(&number);
        // Not made durable: should the file come back, the log knows its id.
        let path = self.dir.join(file_name(number));
        self.lock.disk().remove_file(&path).map_err(Error::disk("remove", &path))
    }
}

fn file_name(number: u64) -> String {
    format!("{number:020}.json")
}

fn file_number(name: &str) -> Option<u64> {
    name.strip_suffix(".json")?.parse().ok()
}
