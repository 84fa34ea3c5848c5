//! The events of a conversation as somebody reads them, also while they come.
//!
//! # Guarantees
//! It reads when it is asked for more, a bounded part of the log at a time, and holds nothing else. So a slow reader costs neither memory nor the conversation's
//! time, and misses nothing.

use std::str::FromStr;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_session::{Error, Reader, StoredEntry, Token};
use yoi_wire::control::AttachLine;
use yoi_wire::engine_api::EventsQuery;
use yoi_wire::entry::AgentRef;
use yoi_wire::people::MAX_LOG_TAIL;
use yoi_wire::signal::CloudEvent;

use super::{Cursor, Signals};
use crate::follow::Follower;
use crate::log_reads::{BYTES_PER_READ, ENTRIES_PER_READ, LogReads};
use crate::open_session::OpenSession;

/// Where a reader begins, and whether it goes on with what comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventsFrom {
    /// Events after this one.
    pub after: Cursor,
    /// The last so many alone, of those after the cursor.
    pub tail: Option<usize>,
    /// Go on with what comes.
    pub follow: bool,
    /// With the pieces of an answer while it comes, which are not in the log; see [`EventStream::with_deltas`].
    pub deltas: bool,
}

impl TryFrom<&EventsQuery> for EventsFrom {
    type Error = Error;

    fn try_from(query: &EventsQuery) -> Result<Self, Error> {
        let after = query.after.as_deref().map_or(Ok(Cursor::default()), Cursor::from_str)?;
        Ok(Self { after, tail: query.tail, follow: query.follow, deltas: query.deltas })
    }
}

/// The events of one conversation.
#[derive(Debug)]
pub struct EventStream {
    reader: Option<Reader>,
    signals: Signals,
    token: Token,
    /// Events of the next entry that were read before.
    taken: usize,
    /// Events that come before the last ones that were asked for.
    surplus: usize,
    /// Entries and what is not in the log yet; `None`: entries alone, by `appended`.
    live: Option<Follower>,
    /// `None`: it ends with the log.
    appended: Option<watch::Receiver<u64>>,
    reads: LogReads,
    is_over: bool,
}

impl EventStream {
    /// Begins where `from` says. `appended` tells of new entries, and was subscribed to before `reader` was made. It has read up to its begin on return, so that
    /// a bad cursor is an error here.
    ///
    /// # Errors
    /// The cursor is none of this session, or the disk's.
    pub async fn start(
        reader: Reader,
        (agent, conversation): (&AgentRef, &str),
        from: EventsFrom,
        appended: Option<watch::Receiver<u64>>,
        reads: LogReads,
    ) -> Result<Self, Error> {
        let EventsFrom { after: Cursor { token, taken }, tail, follow, deltas: _ } = from;
        let session = reader.session().to_string();
        let signals = |segment| Signals::new(agent, &session, conversation, segment);
        let appended = appended.filter(|_| follow);
        let mut stream =
            Self { reader: Some(reader), signals: signals(token), token, taken, surplus: 0, live: None, appended, reads, is_over: false };
        let wanted = tail.map(|tail| tail.min(MAX_LOG_TAIL));
        let mut entries = wanted;
        loop {
            let begin = stream.begin_at(token, entries, &signals).await?;
            stream.taken = if begin == token { taken } else { 0 };
            let Some(wanted) = wanted else { return Ok(stream) };
            // Some entries have no event, and others several.
            let found = stream.count().await?;
            let is_all = begin == token || entries.is_none_or(|entries| entries >= MAX_LOG_TAIL);
            if found >= wanted || is_all {
                stream.begin_at(token, entries, &signals).await?;
                stream.surplus = found.saturating_sub(wanted);
                return Ok(stream);
            }
            entries = entries.map(|entries| entries.saturating_mul(4).clamp(1, MAX_LOG_TAIL));
        }
    }

    /// Goes on after `after`, or with the last so many entries after it, and returns where that is.
    async fn begin_at(&mut self, after: Token, tail: Option<usize>, signals: &impl Fn(Token) -> Signals) -> Result<Token, Error> {
        let find = move |reader: &mut Reader| {
            let begin = tail.map_or(Ok(after), |tail| reader.tail(after, tail, None))?;
            Ok((begin, reader.segment_start(begin)?))
        };
        // The reader is there: no read was given up yet.
        let (begin, segment) = self.reads.with(&mut self.reader, find).await?.unwrap_or((after, after));
        (self.signals, self.token) = (signals(segment), segment);
        self.skip_to(begin).await?;
        Ok(begin)
    }

    /// How many events there are from here on.
    async fn count(&mut self) -> Result<usize, Error> {
        let mut count: usize = 0;
        loop {
            let entries = self.read(ENTRIES_PER_READ).await?;
            if entries.is_empty() {
                return Ok(count.saturating_sub(self.taken));
            }
            for stored in &entries {
                count += self.signals.take(stored).len();
            }
        }
    }

    /// The same with the pieces of an answer while it comes. They come once, before the event of the whole answer, and to nobody again. Whoever reads so slowly
    /// that some are lost loses the stream, and goes on after the last cursor.
    ///
    /// # Errors
    /// The disk's.
    pub async fn with_deltas(mut self, session: &OpenSession, stop: CancellationToken) -> Result<Self, Error> {
        self.live = Follower::start(session, self.token, None, self.reads.clone(), stop).await?;
        Ok(self)
    }

    /// Reads what the events after `begin` follow from.
    async fn skip_to(&mut self, begin: Token) -> Result<(), Error> {
        while self.token != begin {
            let wanted = seq(begin).saturating_sub(seq(self.token));
            let count = usize::try_from(wanted).unwrap_or(usize::MAX).min(ENTRIES_PER_READ);
            let entries = self.read(count.max(1)).await?;
            if entries.is_empty() {
                // Nothing stands after a cursor beyond the end.
                self.token = begin;
                return Ok(());
            }
            for stored in &entries {
                self.signals.take(stored);
            }
        }
        Ok(())
    }

    async fn read(&mut self, count: usize) -> Result<Vec<StoredEntry>, Error> {
        let token = self.token;
        let read = move |reader: &mut Reader| reader.read_bytes(token, count, BYTES_PER_READ);
        match self.reads.with(&mut self.reader, read).await? {
            Some((entries, next)) => {
                self.token = next;
                Ok(entries)
            }
            // Whoever waited for the last read has given it up, and the reader went with it.
            None => {
                self.is_over = true;
                Ok(Vec::new())
            }
        }
    }

    /// Returns the next events as soon as there are some; `None` after the last one, once the conversation has ended, or after an error. Whoever drops the
    /// future begins again after the last cursor.
    pub async fn next(&mut self) -> Option<Result<Vec<CloudEvent>, Error>> {
        loop {
            let mut events = match self.next_events().await? {
                Ok(events) => events,
                Err(error) => return Some(Err(error)),
            };
            let surplus = self.surplus.min(events.len());
            self.surplus -= surplus;
            events.drain(..surplus);
            if !events.is_empty() {
                return Some(Ok(events));
            }
        }
    }

    async fn next_events(&mut self) -> Option<Result<Vec<CloudEvent>, Error>> {
        if self.is_over {
            return None;
        }
        if let Some(live) = &mut self.live {
            let lines = match live.next().await {
                Some(Ok(lines)) => lines,
                Some(Err(error)) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
                None => return None,
            };
            return Some(self.events_of(lines));
        }
        loop {
            if self.is_over {
                return None;
            }
            if let Some(appended) = &mut self.appended {
                appended.borrow_and_update();
            }
            let entries = match self.read(ENTRIES_PER_READ).await {
                Ok(entries) => entries,
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            };
            let mut events = Vec::new();
            for stored in &entries {
                let taken = std::mem::take(&mut self.taken);
                events.extend(self.signals.take(stored).into_iter().skip(taken));
            }
            if !events.is_empty() {
                return Some(Ok(events));
            }
            // Once the session is closed, the rest is read.
            if entries.is_empty() && self.appended.as_mut()?.changed().await.is_err() {
                self.appended = None;
            }
        }
    }
}

impl EventStream {
    fn events_of(&mut self, lines: Vec<AttachLine>) -> Result<Vec<CloudEvent>, Error> {
        let mut events = Vec::new();
        for line in lines {
            match line {
                AttachLine::Entry { token, entry } => {
                    let stored = StoredEntry { entry: *entry, token: token.parse()? };
                    let taken = std::mem::take(&mut self.taken);
                    events.extend(self.signals.take(&stored).into_iter().skip(taken));
                }
                AttachLine::Delta(delta) => events.extend(self.signals.delta(&delta)),
                // The follower ends after these.
                AttachLine::Behind {} | AttachLine::Ended {} => {}
                AttachLine::Greeting { .. } | AttachLine::Activity { .. } | AttachLine::Rotated { .. } | AttachLine::Unknown => {}
            }
        }
        Ok(events)
    }
}

fn seq(token: Token) -> u64 {
    match token {
        Token::Start => 0,
        Token::After { seq, .. } => seq,
    }
}
