//! Messages that are accepted and not in the log yet.
//!
//! # Flow
//! [`Inbox::put`] accepts a message, and the runtime acknowledges it to the sender. Before its next model call the runtime appends
//! [`InboxMessage::body`] of each message in [`Inbox::pending`] to the log. Then it calls [`Inbox::mark_delivered`] for each.
//!
//! # Guarantees
//! An accepted message gets into the log once, whatever crashes in between: [`Inbox::open`] drops what is also in the log, and [`Inbox::put`]
//! does not accept an id that is in the inbox or among the latest [`crate::fold::MAX_DELIVERED`] of the log. Once older ids are forgotten, an id
//! whose UUIDv7 is more than an hour old is refused.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use yoi_wire::entry::{AgentRef, Body, Input, InputFrom, PeerMessage};

use crate::{Error, Lock, LogState, Result, disk::OpenMode, fold::DeliveredIds, layout, record_file};

/// Most messages that are pending at the same time.
pub const MAX_MESSAGES: usize = 256;
/// Most bytes of text in one message.
pub const MAX_TEXT: usize = yoi_wire::hub::MAX_MESSAGE_TEXT;
/// Most bytes of a message's id.
pub const MAX_ID: usize = 256;
/// How old an id may be, when ids have been forgotten. The id of a UUIDv7 says when it was made; any other id counts as new.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// A message as it came from the gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxMessage {
    /// Id that the sender chose. The same id is the same message, however often it is sent.
    pub id: String,
    /// Who sent it.
    pub from: Sender,
    /// What the agent reads.
    pub text: String,
    /// What it does to an idle agent.
    pub wake: Wake,
}

/// Who sent a message, as the gateway has authenticated it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sender {
    /// A person, through the API server.
    Person {
        /// User name at the API server.
        user: String,
    },
    /// Another agent.
    Agent(AgentRef),
}

/// What a message does to an idle agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wake {
    /// It starts a run.
    Run,
    /// It waits for the next run: what an idle agent should know and need not work for, as the end of a child's run.
    Wait,
}

impl InboxMessage {
    /// Returns the entry that delivers the message.
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
                Body::PeerMessage(PeerMessage { message_id: self.id.clone(), from: from.clone(), text: self.text.clone(), prompt: None })
            }
        }
    }
}

/// What [`Inbox::put`] did with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// It is durable in the inbox.
    Accepted,
    /// It is in the inbox or in the log already. The caller treats it as accepted.
    Duplicate,
    /// The inbox is full. The sender may try again later.
    Full {
        /// Most messages that are pending at the same time.
        limit: usize,
    },
    /// Its id was made so long ago that a message of that id may have been delivered and forgotten.
    TooOld,
    /// Its text or its id is too long.
    TooLong {
        /// Most bytes of it.
        limit: usize,
    },
}

/// The inbox of one session: a file for each message.
#[derive(Debug)]
pub struct Inbox {
    lock: Arc<Lock>,
    dir: PathBuf,
    /// By number, which is the order of arrival.
    pending: BTreeMap<u64, InboxMessage>,
    pending_ids: BTreeSet<String>,
    delivered: DeliveredIds,
    next: u64,
}

impl Inbox {
    /// Reads the pending messages, and drops those that are in the log according to `replayed`.
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
                        // Its writer died before it accepted the message.
                        disk.remove_file(&path).map_err(Error::disk("remove", &path))?;
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(Error::NoSession { session }),
            Err(error) => return Err(Error::disk("list", &dir)(error)),
        }
        names.sort_unstable();
        let next = names.last().map_or(1, |(last, _)| last + 1);
        let delivered = replayed.delivered.clone();
        let mut inbox = Self { lock: lock.clone(), dir, pending: BTreeMap::new(), pending_ids: BTreeSet::new(), delivered, next };
        for (number, path) in names {
            let message = inbox.load(&path)?;
            // A message is here twice when the first `put` failed after its file was in place and the sender tried again.
            if inbox.delivered.contains(&message.id) || inbox.pending_ids.contains(&message.id) {
                disk.remove_file(&path).map_err(Error::disk("remove", &path))?;
            } else {
                inbox.pending_ids.insert(message.id.clone());
                inbox.pending.insert(number, message);
            }
        }
        // A process that died before its sync may have put these files in place. From now on they count as accepted.
        disk.fsync_dir(&inbox.dir).map_err(Error::disk("sync", &inbox.dir))?;
        Ok(inbox)
    }

    fn load(&self, path: &Path) -> Result<InboxMessage> {
        let file = self.lock.disk().open(path, OpenMode::Read).map_err(Error::disk("open", path))?;
        record_file::read(&*file, path)
    }

    /// Accepts a message. It is durable when this returns [`PutOutcome::Accepted`]. `now` is the time by which the age of its id is told.
    ///
    /// # Errors
    /// The disk's. The message is not accepted then, although the next [`Inbox::open`] may find it. The caller may try again with the same id.
    pub fn put(&mut self, message: InboxMessage, now: SystemTime) -> Result<PutOutcome> {
        if self.pending_ids.contains(&message.id) || self.delivered.contains(&message.id) {
            return Ok(PutOutcome::Duplicate);
        }
        if self.delivered.is_full() && is_older(&message.id, now, MAX_AGE) {
            return Ok(PutOutcome::TooOld);
        }
        if message.id.len() > MAX_ID {
            return Ok(PutOutcome::TooLong { limit: MAX_ID });
        }
        if message.text.len() > MAX_TEXT {
            return Ok(PutOutcome::TooLong { limit: MAX_TEXT });
        }
        if self.pending.len() >= MAX_MESSAGES {
            return Ok(PutOutcome::Full { limit: MAX_MESSAGES });
        }
        // A number is never used twice, so that the file of a failed `put` cannot be taken for this one.
        let number = self.next;
        self.next += 1;
        if let Err(error) = record_file::write(&**self.lock.disk(), &self.dir, &file_name(number), &message) {
            let _ = self.lock.disk().remove_file(&self.dir.join(file_name(number)));
            return Err(error);
        }
        self.pending_ids.insert(message.id.clone());
        self.pending.insert(number, message);
        Ok(PutOutcome::Accepted)
    }

    /// Returns the pending messages in the order of their arrival.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = &InboxMessage> {
        self.pending.values()
    }

    /// Removes a message whose entry is in the log. It is not pending any more, even after an error.
    ///
    /// # Errors
    /// The disk's. The file stays behind, and the next [`Inbox::open`] removes it.
    pub fn mark_delivered(&mut self, id: &str) -> Result<()> {
        self.delivered.insert_last(id);
        if !self.pending_ids.remove(id) {
            return Ok(());
        }
        let Some(number) = self.pending.iter().find(|(_, message)| message.id == id).map(|(number, _)| *number) else { return Ok(()) };
        self.pending.remove(&number);
        // The removal need not be durable: if the file comes back, its id is in the log.
        let path = self.dir.join(file_name(number));
        self.lock.disk().remove_file(&path).map_err(Error::disk("remove", &path))
    }
}

fn is_older(id: &str, now: SystemTime, age: Duration) -> bool {
    let made = Uuid::try_parse(id).ok().filter(|id| id.get_version_num() == 7).and_then(|id| id.get_timestamp());
    let made = made.map(|time| SystemTime::UNIX_EPOCH + Duration::from_secs(time.to_unix().0));
    made.and_then(|made| now.duration_since(made).ok()).is_some_and(|since| since > age)
}

fn file_name(number: u64) -> String {
    format!("{number:020}.json")
}

fn file_number(name: &str) -> Option<u64> {
    name.strip_suffix(".json")?.parse().ok()
}
