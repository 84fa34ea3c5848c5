//! The harness of the fault tests: an agent works on a disk that fails, restarts, and has to find again all that was acknowledged.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, atomic::AtomicU64},
};

use uuid::Uuid;
use yoi_session::{
    Error, Inbox, InboxMessage, Lock, Log, LogState, Preallocate, PutOutcome, Reader, Sender, Token, Wake, current,
    disk::{Disk, DiskFault, MemoryDisk, Retained},
    fold,
};
use yoi_test_support::Share;
use yoi_wire::entry::{Body, Entry, Notice, SegmentReason};

use crate::{
    chain_fixture::{carried, config, first_bodies},
    fixture::{ROOT, agent, at, holder, started},
    planted_disks::{PlantedDisk, PlantedFault},
};

const STEPS: usize = 18;

/// Which faults the agent meets.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub fault: DiskFault,
    /// The fault lasts until the agent starts again.
    pub lasting: bool,
    /// What a power cut leaves when the agent dies of the fault; `None` when there is none.
    pub power: Option<Retained>,
    /// Which operation of the next start fails too.
    pub again: Option<usize>,
    /// What the power cut at the end leaves.
    pub end: Retained,
    pub preallocate: Preallocate,
    pub planted: PlantedFault,
    /// The planted fault of an inbox that does not get what the log has.
    pub inbox_not_told: bool,
    /// The planted fault of a new segment that carries no ids.
    pub forgets_ids: bool,
}

enum Stop {
    /// The disk failed, as the scenario says.
    DiskFailed(Error),
    /// The crate broke a promise.
    PromiseBroken(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Disk { .. } => Self::DiskFailed(error),
            other => Self::PromiseBroken(other.to_string()),
        }
    }
}

fn broken<T>(what: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::PromiseBroken(what.into()))
}

/// Every call of the crate that reaches the disk.
pub const CALLS: [&str; 15] = [
    "Lock::take",
    "Lock::take of one that is held",
    "current::read",
    "current::write",
    "Log::create",
    "Log::open",
    "Log::append of one",
    "Log::append of several",
    "Log::rotate",
    "Log::close",
    "Log::reader, read",
    "Reader::new, read",
    "Inbox::open",
    "Inbox::put",
    "Inbox::mark_delivered",
];

/// The call in which an operation failed, and the operation.
pub type FailedOperation = (&'static str, &'static str);

/// What the agent did and what was acknowledged to it.
#[derive(Default)]
struct History {
    disk: MemoryDisk,
    /// Each call, with the number of operations before it.
    calls: Vec<(usize, &'static str)>,
    step: usize,
    ids: u128,
    segments: u128,
    notices: usize,
    session: Option<Uuid>,
    /// Entries that were acknowledged, or shown by a replay.
    entries: Vec<Entry>,
    /// The bodies of a failed append. Some of them may be in the log.
    in_doubt: Vec<Body>,
    accepted: BTreeSet<String>,
}

impl History {
    fn begin_call(&mut self, call: &'static str) {
        assert!(CALLS.contains(&call));
        self.calls.push((self.disk.operations().len(), call));
    }

    fn failed(&self, nth: usize) -> Option<FailedOperation> {
        let done = self.disk.operations();
        let (operation, _) = done.get(nth - 1)?;
        let call = self.calls.iter().rev().find(|(from, _)| *from < nth)?.1;
        Some((call, operation))
    }

    fn id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + self.ids)
    }

    fn new_notice(&mut self, long: bool) -> Body {
        self.notices += 1;
        let message = format!("notice {} {}", self.notices, "x".repeat(if long { 700 } else { 0 }));
        Body::Notice(Notice { reason: "Said".into(), message })
    }

    fn replayed(&mut self, found: Vec<Entry>) -> Result<(), Stop> {
        // The replay begins with the last segment.
        let before = found.first().map_or(0, |first| usize::try_from(first.seq).unwrap() - 1);
        let mut all = self.entries.get(..before).unwrap_or_default().to_vec();
        all.extend(found);
        let found = all;
        let Some(more) = found.strip_prefix(&*self.entries) else {
            return broken(format!("lost: {} entries were acknowledged, {} are there", self.entries.len(), found.len()));
        };
        let in_doubt = std::mem::take(&mut self.in_doubt);
        if more.len() > in_doubt.len() || more.iter().zip(&in_doubt).any(|(entry, body)| !is_entry_of(entry, body)) {
            return broken(format!("invented: {more:?}"));
        }
        if matches!(in_doubt.first(), Some(Body::SegmentStarted(_))) && !more.is_empty() && more.len() < in_doubt.len() {
            return broken(format!("half a head: {more:?}"));
        }
        self.entries = found;
        Ok(())
    }

    /// Checks that every accepted message is once in the log or in the inbox.
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
            Some((id, count)) => broken(format!("message {id} was accepted and is there {count} times")),
            None => Ok(()),
        }
    }
}

/// Returns whether an entry is what an append or a rotation was asked for. The log itself makes the link of a head.
fn is_entry_of(entry: &Entry, body: &Body) -> bool {
    matches!((&entry.body, body), (Body::SegmentStarted(_), Body::SegmentStarted(_))) || entry.body == *body
}

fn message(id: String) -> InboxMessage {
    InboxMessage { id, from: Sender::Agent(agent("bob")), text: "hello".into(), wake: Wake::Run }
}

struct AgentRun<'a> {
    lock: Arc<Lock>,
    log: Option<Log>,
    reader: Reader,
    read: Token,
    inbox: Inbox,
    scenario: &'a Scenario,
    history: &'a mut History,
}

impl<'a> AgentRun<'a> {
    fn begin(disk: Arc<dyn Disk>, run: u64, scenario: &'a Scenario, history: &'a mut History) -> Result<Self, Stop> {
        history.begin_call("Lock::take");
        let lock = Lock::take(disk.clone(), Path::new(ROOT), holder(run))?;
        history.begin_call("current::read");
        let (log, session) = match current::read(&*disk, Path::new(ROOT))? {
            Some(session) => {
                history.begin_call("Log::open");
                let (log, replay) = Log::open(&lock, session, scenario.preallocate)?;
                history.replayed(replay.entries)?;
                if replay.state != fold::fold(&history.entries) {
                    return broken("the last segment gives another state than the session");
                }
                (log, session)
            }
            None if history.session.is_some() => return broken("lost: the session was the agent's"),
            None => {
                let (session, segment) = (history.id(), history.id());
                history.begin_call("Log::create");
                let mut log = Log::create(&lock, session, segment, scenario.preallocate)?;
                history.in_doubt = vec![started()];
                history.begin_call("Log::append of one");
                let entries = log.append(&history.in_doubt.clone(), at(), &mut || history.id())?;
                history.begin_call("current::write");
                current::write(&lock, session, segment)?;
                history.in_doubt.clear();
                history.entries = entries;
                (log, session)
            }
        };
        if history.session.replace(session).is_some_and(|before| before != session) {
            return broken("lost: another session is the agent's");
        }
        let state = if scenario.inbox_not_told { LogState::default() } else { fold::fold(&history.entries) };
        history.begin_call("Inbox::open");
        let mut inbox = Inbox::open(&lock, session, &state)?;
        history.count_messages(&inbox)?;
        // Their senders did not get the acknowledgement, and send them again.
        for id in history.accepted.clone().into_iter().filter(|_| !scenario.inbox_not_told) {
            if inbox.put(message(id.clone()), at())? != PutOutcome::Duplicate {
                return broken(format!("message {id} would be taken again"));
            }
        }
        history.begin_call("Log::reader, read");
        let mut reader = log.reader();
        let (seen, read) = reader.read(Token::Start, usize::MAX)?;
        if !seen.iter().map(|raw| &raw.entry).eq(&history.entries) {
            return broken("a reader sees another log than the replay");
        }
        Ok(Self { lock, log: Some(log), reader, read, inbox, scenario, history })
    }

    fn append(&mut self, bodies: Vec<Body>) -> Result<(), Stop> {
        let call = if bodies.len() > 1 { "Log::append of several" } else { "Log::append of one" };
        self.history.in_doubt = bodies.clone();
        self.write(call, |log, ids| log.append(&bodies, at(), ids))
    }

    fn rotate(&mut self) -> Result<(), Stop> {
        let mut carried = carried(&fold::fold(&self.history.entries), 2);
        if self.scenario.forgets_ids
            && let Some(state) = &mut carried[0].state
        {
            state.delivered.clear();
        }
        let [_, head] = first_bodies();
        self.history.in_doubt = std::iter::once(head).chain(carried.iter().cloned().map(Body::Carried)).collect();
        // The clock goes back, so each segment has a smaller name than the one before.
        self.history.segments += 1;
        let segment = Uuid::from_u128(0x0180_0000_0000_7000_8000_0000_0000_0000 - self.history.segments);
        self.write("Log::rotate", |log, ids| {
            let mut first = Some(segment);
            log.rotate(SegmentReason::Full, config(), carried, at(), &mut || first.take().unwrap_or_else(&mut *ids))
        })
    }

    fn write(
        &mut self,
        call: &'static str,
        act: impl FnOnce(&mut Log, &mut dyn FnMut() -> Uuid) -> yoi_session::Result<Vec<Entry>>,
    ) -> Result<(), Stop> {
        let log = self.log.as_mut().expect("a log is open but while it is opened again");
        let history = &mut *self.history;
        history.begin_call(call);
        let done = act(log, &mut || history.id());
        history.begin_call("Log::reader, read");
        let seen = self.reader.read(self.read, usize::MAX);
        match (done, seen) {
            (Err(_), Ok((seen, _))) if !seen.is_empty() => broken("a reader saw what was not acknowledged"),
            (Err(error), _) => {
                // A log that failed once refuses the next append without touching the disk.
                let log = self.log.as_mut().expect("still open");
                let before = history.disk.operations().len();
                match log.append(&[self.history.new_notice(false)], at(), &mut || Uuid::nil()) {
                    Err(Error::Poisoned { .. }) if self.history.disk.operations().len() == before => Err(error.into()),
                    other => broken(format!("after a failed append: {other:?}")),
                }
            }
            (Ok(entries), seen) => {
                self.history.in_doubt.clear();
                self.history.entries.extend_from_slice(&entries);
                let (seen, next) = seen?;
                self.read = next;
                if seen.iter().map(|raw| &raw.entry).eq(&entries) { Ok(()) } else { broken("a reader missed an entry") }
            }
        }
    }

    /// Checks that a reader of another process sees the acknowledged entries, and that another process does not get the lock.
    fn check_other_processes(&mut self) -> Result<(), Stop> {
        self.history.begin_call("Reader::new, read");
        let session = self.history.session.expect("a session is open");
        let mut outside = Reader::new(self.lock.disk().clone(), Path::new(ROOT), session);
        let (seen, _) = outside.read(Token::Start, usize::MAX)?;
        if !seen.iter().map(|raw| &raw.entry).eq(&self.history.entries) {
            return broken("a reader from outside sees another log");
        }
        self.history.begin_call("Lock::take of one that is held");
        match Lock::take(self.lock.disk().clone(), Path::new(ROOT), holder(1000)) {
            Ok(_) => broken("two hold the lock"),
            Err(Error::Locked { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn step(&mut self) -> Result<(), Stop> {
        match self.history.step % 9 {
            0 | 5 => {
                for n in 0..2 {
                    let id = format!("m{}.{n}", self.history.step);
                    self.history.begin_call("Inbox::put");
                    match self.inbox.put(message(id.clone()), at())? {
                        PutOutcome::Accepted | PutOutcome::Duplicate => self.history.accepted.insert(id),
                        refused => return broken(format!("{refused:?}")),
                    };
                }
            }
            1 | 4 => {
                let notices = vec![self.history.new_notice(false)];
                self.append(notices)?;
            }
            2 | 6 => {
                let notices = (0..4).map(|n| self.history.new_notice(n % 2 == 0)).collect();
                self.append(notices)?;
            }
            3 => {
                let waiting: Vec<InboxMessage> = self.inbox.pending().cloned().collect();
                self.append(waiting.iter().map(InboxMessage::body).collect())?;
                for message in waiting {
                    self.history.begin_call("Inbox::mark_delivered");
                    self.inbox.mark_delivered(&message.id)?;
                }
            }
            8 => self.rotate()?,
            _ => {
                self.check_other_processes()?;
                if let Some(log) = self.log.take() {
                    let session = log.session();
                    self.history.begin_call("Log::close");
                    log.close()?;
                    self.history.begin_call("Log::open");
                    let (log, replay) = Log::open(&self.lock, session, self.scenario.preallocate)?;
                    self.history.replayed(replay.entries)?;
                    self.log = Some(log);
                }
            }
        }
        self.history.count_messages(&self.inbox)?;
        self.history.step += 1;
        Ok(())
    }
}

fn run_agent(disk: &Arc<dyn Disk>, run: u64, scenario: &Scenario, history: &mut History) -> Result<(), Stop> {
    let mut agent_run = AgentRun::begin(disk.clone(), run, scenario, history)?;
    while agent_run.history.step < STEPS {
        agent_run.step()?;
    }
    // An agent with nothing left to do can still write.
    let last = agent_run.history.new_notice(false);
    agent_run.append(vec![last])
}

/// A disk in memory, and it behind the planted fault of a scenario.
fn disks(scenario: &Scenario) -> (MemoryDisk, Arc<dyn Disk>) {
    let memory = MemoryDisk::new(Path::new(ROOT));
    let planted = PlantedDisk { disk: Arc::new(memory.clone()), planted: scenario.planted, made: AtomicU64::new(0) };
    (memory, Arc::new(planted))
}

/// Runs the scenario with the `nth` operation failing. Returns which operation that was, `None` when there were fewer, or the broken promise.
pub fn run_scenario(scenario: &Scenario, nth: usize) -> Result<Option<FailedOperation>, String> {
    let (memory, disk) = disks(scenario);
    let mut history = History { disk: memory.clone(), ..History::default() };
    memory.fail(nth, scenario.fault, scenario.lasting);
    let mut failed = None;
    let mut again = scenario.again;
    for run in 1..10 {
        match run_agent(&disk, run, scenario, &mut history) {
            Ok(()) => {
                // Some faults are no error for the agent: a short write, a file that could not be removed.
                failed = failed.or_else(|| history.failed(nth));
                break;
            }
            Err(Stop::PromiseBroken(what)) => return Err(format!("{what} ({scenario:?}, operation {nth}, start {run})")),
            Err(Stop::DiskFailed(error)) if run > 4 => {
                return Err(format!("never came back: {error} ({scenario:?}, operation {nth})"));
            }
            Err(Stop::DiskFailed(_)) => failed = failed.or_else(|| history.failed(nth)),
        }
        match scenario.power {
            Some(retained) => memory.crash(retained),
            None => memory.clear_fault(),
        }
        if let Some(nth) = again.take() {
            memory.fail(nth, scenario.fault, scenario.lasting);
        }
    }
    memory.crash(scenario.end);
    match run_agent(&disk, 99, scenario, &mut history) {
        Ok(()) => Ok(failed),
        Err(Stop::PromiseBroken(what)) => Err(format!("{what} ({scenario:?}, operation {nth}, after the end)")),
        Err(Stop::DiskFailed(error)) => Err(format!("never came back: {error} ({scenario:?}, operation {nth}, after the end)")),
    }
}

/// Returns how many operations the scenario has when none fails.
fn operations(scenario: &Scenario) -> Result<usize, String> {
    let (memory, disk) = disks(scenario);
    let mut history = History { disk: memory.clone(), ..History::default() };
    match run_agent(&disk, 1, scenario, &mut history) {
        Ok(()) => Ok(memory.operations().len()),
        Err(Stop::PromiseBroken(what)) => Err(format!("{what} ({scenario:?}, no operation failed)")),
        Err(Stop::DiskFailed(error)) => Err(format!("nothing was to fail: {error} ({scenario:?})")),
    }
}

/// Runs the scenario once for each operation that is tried, and returns how often each call failed in each operation.
pub fn sweep(scenario: &Scenario, share: &mut Share) -> Result<BTreeMap<FailedOperation, usize>, String> {
    let mut all = BTreeMap::new();
    for nth in 1..=operations(scenario)? {
        if share.takes_next() {
            let Some(failed) = run_scenario(scenario, nth)? else {
                return Err(format!("operation {nth} did not fail ({scenario:?})"));
            };
            *all.entry(failed).or_default() += 1;
        }
    }
    Ok(all)
}
