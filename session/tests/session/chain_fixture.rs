//! Sessions of several segments, and what they carry.

use std::path::{Path, PathBuf};

use uuid::Uuid;
use yoi_session::{
    Lock, Log, LogState, Preallocate, Result, current,
    disk::{Disk, MemoryDisk, OpenMode},
    fold,
};
use yoi_wire::entry::{AgentConfig, Body, Carried, CarriedItem, Entry, FORMAT, PromptItem, SegmentReason, SegmentStarted};

use crate::fixture::*;

pub fn config() -> AgentConfig {
    AgentConfig { system: vec!["You work in a tree.".into()], manifest_digest: "d".into(), ..AgentConfig::default() }
}

/// Returns what a session begins with.
pub fn first_bodies() -> [Body; 2] {
    let head = SegmentStarted { number: 1, format: FORMAT, previous: None, reason: SegmentReason::SessionStarted, config: config() };
    [started(), Body::SegmentStarted(head)]
}

/// Returns what the next segment carries: the state, and items on lines of their own.
pub fn carried(state: &LogState, items: usize) -> Vec<Carried> {
    let item = |n: usize| CarriedItem { seq: 1, rewindable: true, item: PromptItem::User(format!("item {n} {}", "x".repeat(400))) };
    state.carried().into_iter().chain((0..items).map(|n| Carried { items: vec![item(n)], ..Carried::default() })).collect()
}

/// A session that a test writes, and what it has written.
pub struct Session {
    pub disk: MemoryDisk,
    pub lock: std::sync::Arc<Lock>,
    /// `None` while nobody has it open.
    pub log: Option<Log>,
    pub entries: Vec<Entry>,
    pub segments: Vec<Uuid>,
    ids: Box<dyn FnMut() -> Uuid>,
}

impl Session {
    /// Creates the session; `ids` gives the name of each later segment.
    pub fn create(ids: impl FnMut() -> Uuid + 'static) -> Self {
        let disk = MemoryDisk::new(Path::new(ROOT));
        let lock = take(&disk, 1).unwrap();
        let log = Log::create(&lock, SESSION, SEGMENT, SMALL).unwrap();
        current::write(&lock, SESSION, SEGMENT).unwrap();
        let mut session = Self { disk, lock, log: Some(log), entries: Vec::new(), segments: vec![SEGMENT], ids: Box::new(ids) };
        session.append(&first_bodies());
        session
    }

    /// Returns a session of so many segments of which each has so many notices.
    pub fn of(segments: usize, notices: usize) -> Self {
        let mut session = Self::create(counter());
        for n in 0..segments {
            if n > 0 {
                session.rotate(SegmentReason::Full).unwrap();
            }
            session.append(&[input(&format!("m{n}"), yoi_wire::entry::InputFrom::Person)]);
            for notice_number in 0..notices {
                session.append(&[notice(n * notices + notice_number)]);
            }
        }
        session
    }

    pub fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    pub fn append(&mut self, bodies: &[Body]) {
        let entries = self.log.as_mut().unwrap().append(bodies, at(), &mut self.ids).unwrap();
        self.entries.extend(entries);
    }

    pub fn rotate(&mut self, reason: SegmentReason) -> Result<()> {
        let carried = carried(&fold::fold(&self.entries), 2);
        let log = self.log.as_mut().unwrap();
        let entries = log.rotate(reason, config(), carried, at(), &mut self.ids)?;
        self.segments.push(log.segment());
        self.entries.extend(entries);
        Ok(())
    }

    /// Closes the log and opens it again.
    pub fn reopen(&mut self) -> Result<yoi_session::Replay> {
        drop(self.log.take());
        let (log, replay) = Log::open(&self.lock, SESSION, Preallocate::Off)?;
        self.log = Some(log);
        Ok(replay)
    }

    pub fn path(&self, n: usize) -> PathBuf {
        path_of(self.segments[n])
    }

    pub fn bytes(&self, n: usize) -> Vec<u8> {
        self.disk.bytes(&self.path(n)).unwrap()
    }

    /// Returns the entries of the `n`th segment.
    pub fn entries_of(&self, n: usize) -> Vec<Entry> {
        let begins = |entry: &Entry| match &entry.body {
            Body::SegmentStarted(head) => head.number > 1,
            _ => false,
        };
        let starts: Vec<usize> = self.entries.iter().enumerate().filter(|(_, entry)| begins(entry)).map(|(at, _)| at).collect();
        let from = if n == 0 { 0 } else { starts[n - 1] };
        self.entries[from..starts.get(n).copied().unwrap_or(self.entries.len())].to_vec()
    }

    /// Puts a file into the folder of the session.
    pub fn add(&self, segment: Uuid, bytes: &[u8]) -> PathBuf {
        let path = path_of(segment);
        self.disk.open(&path, OpenMode::Create).unwrap();
        self.disk.set_bytes(&path, bytes);
        path
    }

    /// Appends to a segment as a writer does that has no lock.
    pub fn append_foreign(&self, n: usize, bytes: &[u8]) {
        let file = self.disk.open(&self.path(n), OpenMode::Write).unwrap();
        let end = file.len().unwrap();
        file.write_at(bytes, end).unwrap();
        file.fsync().unwrap();
    }
}

pub fn path_of(segment: Uuid) -> PathBuf {
    Path::new(ROOT).join(format!("sessions/{SESSION}/{segment}.jsonl"))
}

/// Returns a line with another content and the checksum that fits it.
pub fn altered(line: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut value: serde_json::Value = serde_json::from_slice(line).unwrap();
    value.as_object_mut().unwrap().remove("crc");
    change(&mut value);
    let mut new = Vec::new();
    yoi_session::frame::encode(&value, &mut new).unwrap();
    new
}

/// Returns the first line of a file, newline included, and the rest.
pub fn split_first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1)
}
