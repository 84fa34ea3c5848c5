//! What attached clients see before it is in the log, and in which order with the log's entries.
//!
//! # Guarantees
//! A subscription has one instant: every entry up to its `last_seq` is in the log, every block in its snapshot is unfinished then, and every
//! later change comes through its receiver, once and in order. A block ends with [`FeedEvent::Logged`] of the entry that holds it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use yoi_wire::control::{Delta, DeltaKind, MAX_UNREAD_DELTAS};
use yoi_wire::entry::{Body, Entry, TokenUsage};
use yoi_wire::hub::Activity;
use yoi_wire::mode::Mode;

/// Bytes of one unfinished block that a new client still gets.
const MAX_BLOCK_BYTES: usize = 256 << 10;

/// A change that attached clients see.
#[derive(Clone, Debug)]
pub enum FeedEvent {
    /// More of an unfinished block.
    Delta(Arc<Delta>),
    /// The log has entries up to this sequence number. Blocks that they hold have ended.
    Logged(u64),
    /// What the agent does has changed.
    Progress(Progress),
    /// The log goes on in this segment.
    Rotated(String),
}

/// What the agent does, and what it has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it does.
    pub activity: Activity,
    /// Tokens over its life.
    pub total: TokenUsage,
    /// Tokens of the open run, or of the last one.
    pub run: TokenUsage,
    /// Model calls of that run.
    pub turns: u32,
    /// The mode that a person has set.
    pub mode: Option<Mode>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { activity: Activity::Idle, total: TokenUsage::default(), run: TokenUsage::default(), turns: 0, mode: None }
    }
}

/// What a client gets at first, and what comes after.
#[derive(Debug)]
pub struct Subscription {
    /// The last entry that is not announced by [`FeedEvent::Logged`].
    pub last_seq: u64,
    /// What the agent does.
    pub progress: Progress,
    /// The unfinished blocks.
    pub blocks: Vec<Delta>,
    /// Everything later. A receiver that is more than [`MAX_UNREAD_DELTAS`] behind loses its place.
    pub events: broadcast::Receiver<FeedEvent>,
}

/// The feed of one open session.
#[derive(Debug)]
pub struct LiveFeed {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` after [`LiveFeed::close`].
    events: Option<broadcast::Sender<FeedEvent>>,
    last_seq: u64,
    progress: Progress,
    next_block: u64,
    blocks: BTreeMap<u64, Block>,
}

#[derive(Debug)]
struct Block {
    key: BlockKey,
    tool: Option<String>,
    /// Bytes before `text` that are no longer kept.
    dropped: u64,
    text: String,
}

/// What a block is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BlockKey {
    kind: DeltaKind,
    call_id: Option<String>,
}

impl LiveFeed {
    /// A feed of a log whose last entry is `last_seq`.
    #[must_use]
    pub fn new(last_seq: u64) -> Self {
        let events = Some(broadcast::channel(MAX_UNREAD_DELTAS).0);
        Self { inner: Mutex::new(Inner { events, last_seq, progress: Progress::default(), next_block: 1, blocks: BTreeMap::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes; `None` after [`LiveFeed::close`].
    #[must_use]
    pub fn subscribe(&self) -> Option<Subscription> {
        let inner = self.lock();
        let events = inner.events.as_ref()?.subscribe();
        let blocks = inner.blocks.iter().map(|(id, block)| block.delta(*id, block.dropped, block.text.clone())).collect();
        Some(Subscription { last_seq: inner.last_seq, progress: inner.progress, blocks, events })
    }

    /// What the agent does now.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.lock().progress
    }

    /// Adds text to the block of this kind and call, which begins with it if there is none.
    pub fn add(&self, kind: DeltaKind, call: Option<(&str, &str)>, text: &str) {
        let mut inner = self.lock();
        let key = BlockKey { kind, call_id: call.map(|(id, _)| id.to_owned()) };
        let found = inner.blocks.iter().find(|(_, block)| block.key == key).map(|(id, _)| *id);
        let id = found.unwrap_or_else(|| {
            let id = inner.next_block;
            inner.next_block += 1;
            let tool = call.map(|(_, tool)| tool.to_owned());
            inner.blocks.insert(id, Block { key, tool, dropped: 0, text: String::new() });
            id
        });
        let Some(block) = inner.blocks.get_mut(&id) else { return };
        let delta = block.delta(id, block.dropped + block.text.len() as u64, text.to_owned());
        block.push(text);
        inner.send(FeedEvent::Delta(Arc::new(delta)));
    }

    /// The model call brought no answer: its blocks are void.
    pub fn discard_answer(&self) {
        let mut inner = self.lock();
        let Some((id, _)) = inner.blocks.iter().find(|(_, block)| block.key.kind != DeltaKind::ToolOutput).map(|(id, block)| (*id, block))
        else {
            return;
        };
        inner.blocks.retain(|_, block| block.key.kind == DeltaKind::ToolOutput);
        let delta = Delta { block: id, kind: DeltaKind::Discarded, call_id: None, tool: None, offset: 0, text: String::new() };
        inner.send(FeedEvent::Delta(Arc::new(delta)));
    }

    /// These entries are in the log now.
    pub fn logged(&self, entries: &[Entry]) {
        let Some(last) = entries.last() else { return };
        let mut inner = self.lock();
        for entry in entries {
            match &entry.body {
                Body::Assistant(_) => inner.blocks.retain(|_, block| block.key.kind == DeltaKind::ToolOutput),
                Body::ToolEnded(end) => inner
                    .blocks
                    .retain(|_, block| block.key.kind != DeltaKind::ToolOutput || block.key.call_id.as_deref() != Some(&end.call_id)),
                Body::SegmentStarted(_)
                | Body::SessionStarted(_)
                | Body::RuntimeStarted(_)
                | Body::Input(_)
                | Body::PeerMessage(_)
                | Body::RunStarted(_)
                | Body::ToolRequested(_)
                | Body::ToolAsked(_)
                | Body::ToolAnswered(_)
                | Body::ToolStarted(_)
                | Body::RunEnded(_)
                | Body::Notice(_)
                | Body::Carried(_)
                | Body::ConfigChanged(_)
                | Body::SystemItem(_)
                | Body::Paused(_)
                | Body::Resumed(_)
                | Body::Abandoned(_)
                | Body::RolledBack(_)
                | Body::Rewound(_)
                | Body::Usage(_)
                | Body::ModeSwitched(_)
                | Body::CompactionStarted(_)
                | Body::CompactionEnded(_)
                | Body::Extension(_)
                | Body::Unknown { .. } => {}
            }
        }
        inner.last_seq = last.seq;
        inner.send(FeedEvent::Logged(last.seq));
    }

    /// The log goes on in another segment. Its entries are announced after this.
    pub fn rotated(&self, segment: &str) {
        self.lock().send(FeedEvent::Rotated(segment.to_owned()));
    }

    /// Sets what the agent does.
    pub fn set_progress(&self, progress: Progress) {
        let mut inner = self.lock();
        if inner.progress != progress {
            inner.progress = progress;
            inner.send(FeedEvent::Progress(progress));
        }
    }

    /// Ends all subscriptions.
    pub fn close(&self) {
        self.lock().events = None;
    }
}

impl Inner {
    fn send(&self, event: FeedEvent) {
        // Nobody may listen.
        let _ = self.events.as_ref().map(|events| events.send(event));
    }
}

impl Block {
    fn delta(&self, block: u64, offset: u64, text: String) -> Delta {
        let BlockKey { kind, call_id } = self.key.clone();
        Delta { block, kind, call_id, tool: self.tool.clone(), offset, text }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > 2 * MAX_BLOCK_BYTES {
            let cut = self.text.floor_char_boundary(self.text.len() - MAX_BLOCK_BYTES);
            self.text.drain(..cut);
            self.dropped += cut as u64;
        }
    }
}

#[cfg(test)]
mod tests;
