//! Follows an open session: entries of the log and what is not in it yet, each once and in order.
//!
//! The subscription comes before the first read. It says up to which entry the log is read at first; later entries are read when the feed
//! announces them, so an entry never comes before the pieces of the block that it holds, nor twice.

use std::collections::VecDeque;

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use yoi_session::{Error, Reader, StoredEntry, Token};
use yoi_wire::control::{AttachLine, Delta};
use yoi_wire::people::MAX_LOG_TAIL;

use crate::live_feed::{FeedEvent, Subscription};
use crate::log_reads::{BYTES_PER_READ, ENTRIES_PER_READ, LogReads};
use crate::open_session::OpenSession;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The log has no more entries up to the announced one.
    Read,
    Ended,
}

/// What somebody who follows the session gets, from a greeting on.
#[derive(Debug)]
pub struct Follower {
    reader: Option<Reader>,
    token: Token,
    /// Entries that were read; those after `up_to` are not announced yet.
    read: VecDeque<StoredEntry>,
    /// The last entry that the follower may have.
    up_to: u64,
    lines: VecDeque<AttachLine>,
    /// Unfinished blocks at the subscription, until they are handed over.
    blocks: Vec<Delta>,
    events: broadcast::Receiver<FeedEvent>,
    reads: LogReads,
    stop: CancellationToken,
    state: State,
}

impl Follower {
    /// Begins after `token`, or with the last `tail` entries after it. `None`: the session is closed. It has read for the first time on return, so that a
    /// bad token is an error here.
    ///
    /// # Errors
    /// The token is none of this session, or the disk's.
    pub async fn start(
        session: &OpenSession,
        token: Token,
        tail: Option<usize>,
        reads: LogReads,
        stop: CancellationToken,
    ) -> Result<Option<Self>, Error> {
        let Some(subscription) = session.feed.subscribe() else { return Ok(None) };
        let (Some(pointer), Some(reader)) = (session.pointer(), session.reader()) else { return Ok(None) };
        let Subscription { last_seq, progress, blocks, events } = subscription;
        let greeting =
            AttachLine::Greeting { session: pointer.id, segment: pointer.segment, activity: progress.activity, tokens: progress.total };
        let mut follower = Self {
            reader: Some(reader),
            token,
            read: VecDeque::new(),
            up_to: last_seq,
            lines: VecDeque::from([greeting]),
            blocks,
            events,
            reads,
            stop,
            state: State::Open,
        };
        if let Some(tail) = tail {
            let find = move |reader: &mut Reader| reader.tail(token, tail.min(MAX_LOG_TAIL), Some(last_seq));
            follower.token = follower.reads.with(&mut follower.reader, find).await?.unwrap_or(token);
        }
        follower.fill().await?;
        Ok(Some(follower))
    }

    async fn fill(&mut self) -> Result<(), Error> {
        let token = self.token;
        let read = move |reader: &mut Reader| reader.read_bytes(token, ENTRIES_PER_READ, BYTES_PER_READ);
        match self.reads.with(&mut self.reader, read).await? {
            Some((entries, next)) => {
                self.read.extend(entries);
                self.token = next;
            }
            // Whoever waited for the last read has given it up, and the reader went with it.
            None => {
                self.state = State::Ended;
                self.lines.push_back(AttachLine::Behind {});
            }
        }
        Ok(())
    }

    /// Moves announced entries to the lines, and reads more when there may be some.
    async fn take_entries(&mut self) -> Result<(), Error> {
        loop {
            while let Some(stored) = self.read.pop_front_if(|stored| stored.entry.seq <= self.up_to) {
                self.lines.push_back(AttachLine::Entry { token: stored.token.to_string(), entry: Box::new(stored.entry) });
            }
            if !self.lines.is_empty() || !self.read.is_empty() || seq(self.token) >= self.up_to {
                return Ok(());
            }
            self.fill().await?;
            if self.read.is_empty() {
                return Ok(());
            }
        }
    }

    /// Returns the next lines as soon as there are some; `None` after the last one, [`AttachLine::Behind`] or [`AttachLine::Ended`], or an error.
    ///
    /// Whoever drops the future while it reads the log is told [`AttachLine::Behind`] next, and starts again after the last token:
    /// [`Self::into_receiver`] is for a `select!`.
    pub async fn next(&mut self) -> Option<Result<Vec<AttachLine>, Error>> {
        loop {
            if !self.lines.is_empty() {
                return Some(Ok(self.lines.drain(..).collect()));
            }
            match self.state {
                State::Ended => return None,
                State::Open => {
                    if let Err(error) = self.take_entries().await {
                        self.state = State::Ended;
                        return Some(Err(error));
                    }
                    if self.lines.is_empty() {
                        self.state = State::Read;
                        self.lines.extend(std::mem::take(&mut self.blocks).into_iter().map(AttachLine::Delta));
                    }
                }
                State::Read => self.wait().await,
            }
        }
    }

    /// Follows in a task of its own, for whoever waits for something else beside it. The task ends with the receiver; at most one batch waits in between.
    #[must_use]
    pub fn into_receiver(mut self) -> mpsc::Receiver<Result<Vec<AttachLine>, Error>> {
        let (lines, received) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(next) = self.next().await {
                if lines.send(next).await.is_err() {
                    return;
                }
            }
        });
        received
    }

    async fn wait(&mut self) {
        let event = tokio::select! {
            event = self.events.recv() => event,
            () = self.stop.cancelled() => Err(RecvError::Closed),
        };
        let line = match event {
            Ok(FeedEvent::Delta(delta)) => AttachLine::Delta((*delta).clone()),
            Ok(FeedEvent::Progress(progress)) => AttachLine::Activity { activity: progress.activity, tokens: progress.total },
            Ok(FeedEvent::Rotated(segment)) => AttachLine::Rotated { segment },
            Ok(FeedEvent::Logged(seq)) => {
                (self.up_to, self.state) = (seq, State::Open);
                return;
            }
            Err(RecvError::Lagged(_)) => {
                self.state = State::Ended;
                AttachLine::Behind {}
            }
            Err(RecvError::Closed) => {
                self.state = State::Ended;
                AttachLine::Ended {}
            }
        };
        self.lines.push_back(line);
    }
}

fn seq(token: Token) -> u64 {
    match token {
        Token::Start => 0,
        Token::After { seq, .. } => seq,
    }
}
