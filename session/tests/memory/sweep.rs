//! Lives of an agent on a disk that fails, with a ledger of every acknowledgement.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use uuid::Uuid;
use yoi_session::{
    Error, Inbox, InboxMessage, Lock, Log, LogState, Preallocate, Put, Reader, Sender, Token, Wake, current,
    disk::{Disk, DiskFault, MemoryDisk, Survive},
    fold,
};
use yoi_wire::entry::{Body, Entry, Notice};

use crate::{
    bed::{ROOT, agent, at, holder, started},
    planted::{Liar, Lie},
};

const STEPS: usize = 16;

/// One way for things to go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    pub fault: DiskFault,
    /// The disk stays so until the agent starts again.
    pub lasting: bool,
    /// Whether the power goes too when the agent dies of it.
    pub power: Option<Survive>,
    /// A fault in the life after.
    pub again: Option<usize>,
    /// The power cut at the end of the story.
    pub end: Survive,
    pub fill: Preallocate,
    pub lie: Lie,
    /// The inbox is not told what the log has.
    pub forgetful: bool,
}

enum Stop {
    /// The disk failed, as planned.
    Failed(Error),
    /// A promise is broken.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Disk { .. } => Self::Failed(error),
            other => Self::Wrong(other.to_string()),
        }
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Wrong(what.into()))
}

/// Every verb of the crate that reaches the disk.
pub const VERBS: [&str; 14] = [
    "Lock::take",
    "Lock::take of one that is held",
    "current::read",
    "current::write",
    "Log::create",
    "Log::open",
    "Log::append of one",
    "Log::append of several",
    "Log::close",
    "Log::reader, read",
    "Reader::new, read",
    "Inbox::open",
    "Inbox::put",
    "Inbox::settle",
];

/// Where the failing operation struck: the verb, and what it asked of the disk.
pub type Struck = (&'static str, &'static str);

/// What the agent was told, and may rely on.
#[derive(Default)]
struct Ledger {
    disk: MemoryDisk,
    /// Which verb began at which operation.
    verbs: Vec<(usize, &'static str)>,
    step: usize,
    ids: u128,
    words: usize,
    session: Option<Uuid>,
    /// Acknowledged, or shown by a replay.
    entries: Vec<Entry>,
    /// An append that failed: some of it may be there.
    in_doubt: Vec<Body>,
    accepted: BTreeSet<String>,
}

impl Ledger {
    fn doing(&mut self, verb: &'static str) {
        assert!(VERBS.contains(&verb));
        self.verbs.push((self.disk.done().len(), verb));
    }

    fn struck(&self, nth: usize) -> Option<Struck> {
        let done = self.disk.done();
        let (deed, _) = done.get(nth - 1)?;
        let verb = self.verbs.iter().rev().find(|(from, _)| *from < nth)?.1;
        Some((verb, deed))
    }

    fn id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + self.ids)
    }

    fn word(&mut self, long: bool) -> Body {
        self.words += 1;
        let message = format!("word {} {}", self.words, "x".repeat(if long { 700 } else { 0 }));
        Body::Notice(Notice { reason: "Said".into(), message })
    }

    fn replayed(&mut self, found: Vec<Entry>) -> Result<(), Stop> {
        let Some(more) = found.strip_prefix(&*self.entries) else {
            return wrong(format!("lost: {} entries were acknowledged, {} are there", self.entries.len(), found.len()));
        };
        let in_doubt = std::mem::take(&mut self.in_doubt);
        if more.len() > in_doubt.len() || more.iter().zip(&in_doubt).any(|(entry, body)| entry.body != *body) {
            return wrong(format!("invented: {more:?}"));
        }
        self.entries = found;
        Ok(())
    }

    /// Every accepted message is in the log or waits, once.
    fn count_messages(&self, inbox: &Inbox) -> Result<(), Stop> {
        let mut count: BTreeMap<&str, usize> = self.accepted.iter().map(|id| (&**id, 0)).collect();
        for entry in &self.entries {
            if let Body::PeerMessage(message) = &entry.body {
                *count.entry(&message.message_id).or_default() += 1;
            }
        }
        for message in inbox.pending() {
            *count.entry(&message.id).or_default() += 1;
        }
        match count.into_iter().find(|(id, count)| *count > 1 || (*count == 0 && self.accepted.contains(*id))) {
            Some((id, count)) => wrong(format!("message {id} was accepted and is there {count} times")),
            None => Ok(()),
        }
    }
}

struct Life<'a> {
    lock: Arc<Lock>,
    log: Option<Log>,
    reader: Reader,
    read: Token,
    inbox: Inbox,
    trouble: &'a Trouble,
    ledger: &'a mut Ledger,
}

impl<'a> Life<'a> {
    fn begin(disk: Arc<dyn Disk>, run: u64, trouble: &'a Trouble, ledger: &'a mut Ledger) -> Result<Self, Stop> {
        ledger.doing("Lock::take");
        let lock = Lock::take(disk.clone(), Path::new(ROOT), holder(run))?;
        ledger.doing("current::read");
        let (log, session) = match current::read(&*disk, Path::new(ROOT))? {
            Some(session) => {
                ledger.doing("Log::open");
                let (log, replay) = Log::open(&lock, session, trouble.fill)?;
                ledger.replayed(replay.entries)?;
                (log, session)
            }
            None if ledger.session.is_some() => return wrong("lost: the session was the agent's"),
            None => {
                let (session, segment) = (ledger.id(), ledger.id());
                ledger.doing("Log::create");
                let mut log = Log::create(&lock, session, segment, trouble.fill)?;
                ledger.in_doubt = vec![started()];
                ledger.doing("Log::append of one");
                let entries = log.append(&ledger.in_doubt.clone(), at(), &mut || ledger.id())?;
                ledger.doing("current::write");
                current::write(&lock, session)?;
                ledger.in_doubt.clear();
                ledger.entries = entries;
                (log, session)
            }
        };
        if ledger.session.replace(session).is_some_and(|before| before != session) {
            return wrong("lost: another session is the agent's");
        }
        let state = if trouble.forgetful { LogState::default() } else { fold::fold(&ledger.entries) };
        ledger.doing("Inbox::open");
        let inbox = Inbox::open(&lock, session, &state)?;
        ledger.count_messages(&inbox)?;
        ledger.doing("Log::reader, read");
        let mut reader = log.reader();
        let (seen, read) = reader.read(Token::Start, usize::MAX)?;
        if !seen.iter().map(|raw| &raw.entry).eq(&ledger.entries) {
            return wrong("a reader sees another log than the replay");
        }
        Ok(Self { lock, log: Some(log), reader, read, inbox, trouble, ledger })
    }

    fn append(&mut self, bodies: Vec<Body>) -> Result<(), Stop> {
        let log = self.log.as_mut().expect("a log is open but while it is opened again");
        let ledger = &mut *self.ledger;
        ledger.in_doubt = bodies;
        ledger.doing(if ledger.in_doubt.len() > 1 { "Log::append of several" } else { "Log::append of one" });
        let done = log.append(&ledger.in_doubt.clone(), at(), &mut || ledger.id());
        ledger.doing("Log::reader, read");
        let seen = self.reader.read(self.read, usize::MAX);
        match (done, seen) {
            (Err(_), Ok((seen, _))) if !seen.is_empty() => wrong("a reader saw what was not acknowledged"),
            (Err(error), _) => {
                // An agent that goes on all the same gets nothing either.
                let log = self.log.as_mut().expect("still open");
                let before = ledger.disk.done().len();
                match log.append(&[self.ledger.word(false)], at(), &mut || Uuid::nil()) {
                    Err(Error::Poisoned { .. }) if self.ledger.disk.done().len() == before => Err(error.into()),
                    other => wrong(format!("after a failed append: {other:?}")),
                }
            }
            (Ok(entries), seen) => {
                self.ledger.in_doubt.clear();
                self.ledger.entries.extend_from_slice(&entries);
                let (seen, next) = seen?;
                self.read = next;
                if seen.iter().map(|raw| &raw.entry).eq(&entries) { Ok(()) } else { wrong("a reader missed an entry") }
            }
        }
    }

    /// What others see who have no lock: as much as was acknowledged, or a little more. And they do not get the lock.
    fn others(&mut self) -> Result<(), Stop> {
        self.ledger.doing("Reader::new, read");
        let session = self.ledger.session.expect("a session is open");
        let mut outside = Reader::new(self.lock.disk().clone(), Path::new(ROOT), session);
        let (seen, _) = outside.read(Token::Start, usize::MAX)?;
        if !seen.iter().map(|raw| &raw.entry).eq(&self.ledger.entries) {
            return wrong("a reader from outside sees another log");
        }
        self.ledger.doing("Lock::take of one that is held");
        match Lock::take(self.lock.disk().clone(), Path::new(ROOT), holder(1000)) {
            Ok(_) => wrong("two hold the lock"),
            Err(Error::Locked { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn step(&mut self) -> Result<(), Stop> {
        match self.ledger.step % 8 {
            0 | 5 => {
                for n in 0..2 {
                    let id = format!("m{}.{n}", self.ledger.step);
                    let message = InboxMessage { id: id.clone(), from: Sender::Agent(agent("bob")), text: "hello".into(), wake: Wake::Run };
                    self.ledger.doing("Inbox::put");
                    match self.inbox.put(message)? {
                        Put::Accepted | Put::Duplicate => self.ledger.accepted.insert(id),
                        refused => return wrong(format!("{refused:?}")),
                    };
                }
            }
            1 | 4 => {
                let words = vec![self.ledger.word(false)];
                self.append(words)?;
            }
            2 | 6 => {
                let words = (0..4).map(|n| self.ledger.word(n % 2 == 0)).collect();
                self.append(words)?;
            }
            3 => {
                let waiting: Vec<InboxMessage> = self.inbox.pending().cloned().collect();
                self.append(waiting.iter().map(InboxMessage::body).collect())?;
                for message in waiting {
                    self.ledger.doing("Inbox::settle");
                    self.inbox.settle(&message.id)?;
                }
            }
            _ => {
                self.others()?;
                if let Some(log) = self.log.take() {
                    let session = log.session();
                    self.ledger.doing("Log::close");
                    log.close()?;
                    self.ledger.doing("Log::open");
                    let (log, replay) = Log::open(&self.lock, session, self.trouble.fill)?;
                    self.ledger.replayed(replay.entries)?;
                    self.log = Some(log);
                }
            }
        }
        self.ledger.count_messages(&self.inbox)?;
        self.ledger.step += 1;
        Ok(())
    }
}

fn live(disk: &Arc<dyn Disk>, run: u64, trouble: &Trouble, ledger: &mut Ledger) -> Result<(), Stop> {
    let mut life = Life::begin(disk.clone(), run, trouble, ledger)?;
    while life.ledger.step < STEPS {
        life.step()?;
    }
    // Also one that only came up to look can write.
    let last = life.ledger.word(false);
    life.append(vec![last])
}

/// The whole story with the `nth` operation failing: where it struck, if it came to that, or the promise that was broken.
pub fn story(trouble: &Trouble, nth: usize) -> Result<Option<Struck>, String> {
    let memory = MemoryDisk::new(Path::new(ROOT));
    let disk: Arc<dyn Disk> = Arc::new(Liar { disk: Arc::new(memory.clone()), lie: trouble.lie });
    let mut ledger = Ledger { disk: memory.clone(), ..Ledger::default() };
    memory.fail(nth, trouble.fault, trouble.lasting);
    let mut struck = None;
    let mut again = trouble.again;
    for run in 1..10 {
        match live(&disk, run, trouble, &mut ledger) {
            Ok(()) => {
                // Not every fault kills: a short write, a file that could not be removed.
                struck = struck.or_else(|| ledger.struck(nth));
                break;
            }
            Err(Stop::Wrong(what)) => return Err(format!("{what} ({trouble:?}, operation {nth}, life {run})")),
            Err(Stop::Failed(error)) if run > 4 => {
                return Err(format!("never came back: {error} ({trouble:?}, operation {nth})"));
            }
            Err(Stop::Failed(_)) => struck = struck.or_else(|| ledger.struck(nth)),
        }
        match trouble.power {
            Some(survive) => memory.crash(survive),
            None => memory.heal(),
        }
        if let Some(nth) = again.take() {
            memory.fail(nth, trouble.fault, trouble.lasting);
        }
    }
    memory.crash(trouble.end);
    match live(&disk, 99, trouble, &mut ledger) {
        Ok(()) => Ok(struck),
        Err(Stop::Wrong(what)) => Err(format!("{what} ({trouble:?}, operation {nth}, after the end)")),
        Err(Stop::Failed(error)) => Err(format!("never came back: {error} ({trouble:?}, operation {nth}, after the end)")),
    }
}

/// Every operation fails once, from the first on until none is left: how often which of them did.
pub fn sweep(trouble: &Trouble) -> Result<BTreeMap<Struck, usize>, String> {
    let mut all = BTreeMap::new();
    for nth in 1.. {
        match story(trouble, nth)? {
            Some(struck) => *all.entry(struck).or_default() += 1,
            None => break,
        }
    }
    Ok(all)
}
