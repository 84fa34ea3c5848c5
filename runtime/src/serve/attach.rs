//! `GET` of the attach stream: entries of the log and what is not in it yet, each once and in order.
//!
//! The subscription comes before the first read. It says up to which entry the log is read at first; later entries are read when the feed
//! announces them, so an entry never comes before the pieces of the block that it holds, nor twice.

use std::collections::VecDeque;
use std::str::FromStr;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::{StatusCode, header};
use serde::Deserialize;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;
use yoi_engine::live_feed::{FeedEvent, Subscription};
use yoi_session::{Error, Reader, StoredEntry, Token};
use yoi_wire::control::{AttachLine, Delta};
use yoi_wire::hub::RefusalReason;
use yoi_wire::people::MAX_LOG_TAIL;

use super::{BYTES_PER_READ, ENTRIES_PER_READ, LogReads, ReadState, refuse, session_error_response};

#[derive(Debug, Deserialize)]
pub(super) struct AttachQuery {
    after: Option<String>,
    tail: Option<usize>,
}

pub(super) async fn attach(State(api): State<ReadState>, Query(query): Query<AttachQuery>) -> Response {
    let token = match query.after.as_deref().map_or(Ok(Token::Start), Token::from_str) {
        Ok(token) => token,
        Err(error) => return session_error_response(&error),
    };
    let session = api.open_session.borrow().clone();
    let opened = session.and_then(|session| Some((session.feed.subscribe()?, session.pointer()?, session.reader()?)));
    let Some((subscription, pointer, reader)) = opened else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open");
    };
    let Subscription { last_seq, progress, blocks, events } = subscription;
    let greeting =
        AttachLine::Greeting { session: pointer.id, segment: pointer.segment, activity: progress.activity, tokens: progress.total };
    let mut stream = AttachStream {
        reader: Some(reader),
        token,
        read: VecDeque::new(),
        up_to: last_seq,
        lines: VecDeque::from([greeting]),
        blocks,
        events,
        reads: api.log_reads,
        stop: api.stop,
        state: StreamState::Open,
    };
    // The first read comes before the answer's head, so that a bad token gets an HTTP status.
    if let Err(error) = stream.start(query.tail).await {
        return session_error_response(&error);
    }
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(stream::unfold(stream, AttachStream::next))).into_response()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Open,
    /// The log has no more entries up to the announced one.
    Read,
    Ended,
}

struct AttachStream {
    reader: Option<Reader>,
    token: Token,
    /// Entries that were read; those after `up_to` are not announced yet.
    read: VecDeque<StoredEntry>,
    /// The last entry that the client may have.
    up_to: u64,
    lines: VecDeque<AttachLine>,
    /// Unfinished blocks at the subscription, until they are sent.
    blocks: Vec<Delta>,
    events: broadcast::Receiver<FeedEvent>,
    reads: LogReads,
    stop: CancellationToken,
    state: StreamState,
}

impl AttachStream {
    async fn start(&mut self, tail: Option<usize>) -> Result<(), Error> {
        if let Some(tail) = tail {
            let (token, up_to) = (self.token, self.up_to);
            let find = move |reader: &mut Reader| reader.tail(token, tail.min(MAX_LOG_TAIL), Some(up_to));
            self.token = self.reads.with(&mut self.reader, find).await?.unwrap_or(token);
        }
        self.fill().await
    }

    async fn fill(&mut self) -> Result<(), Error> {
        let token = self.token;
        let read = move |reader: &mut Reader| reader.read_bytes(token, ENTRIES_PER_READ, BYTES_PER_READ);
        if let Some((entries, next)) = self.reads.with(&mut self.reader, read).await? {
            self.read.extend(entries);
            self.token = next;
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

    async fn next(mut self) -> Option<(Result<Bytes, Error>, Self)> {
        loop {
            if !self.lines.is_empty() {
                let mut bytes = Vec::new();
                for line in self.lines.drain(..) {
                    if serde_json::to_writer(&mut bytes, &line).is_ok() {
                        bytes.push(b'\n');
                    }
                }
                return Some((Ok(bytes.into()), self));
            }
            match self.state {
                StreamState::Ended => return None,
                StreamState::Open => {
                    if let Err(error) = self.take_entries().await {
                        self.state = StreamState::Ended;
                        return Some((Err(error), self));
                    }
                    if self.lines.is_empty() {
                        self.state = StreamState::Read;
                        self.lines.extend(std::mem::take(&mut self.blocks).into_iter().map(AttachLine::Delta));
                    }
                }
                StreamState::Read => self.wait().await,
            }
        }
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
                (self.up_to, self.state) = (seq, StreamState::Open);
                return;
            }
            Err(RecvError::Lagged(_)) => {
                self.state = StreamState::Ended;
                AttachLine::Behind {}
            }
            Err(RecvError::Closed) => {
                self.state = StreamState::Ended;
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
