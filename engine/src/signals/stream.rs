//! The events of a conversation as somebody reads them, also while they come.
//!
//! # Guarantees
//! It reads when it is asked for more, a bounded part of the log at a time, and holds nothing else. So a slow reader costs neither memory nor the conversation's
//! time, and misses nothing.

use std::str::FromStr;

use tokio::sync::watch;
use yoi_session::{Error, Reader, StoredEntry, Token};
use yoi_wire::engine_api::EventsQuery;
use yoi_wire::entry::AgentRef;
use yoi_wire::people::MAX_LOG_TAIL;
use yoi_wire::signal::CloudEvent;

use super::{Cursor, Signals};
use crate::log_reads::{BYTES_PER_READ, ENTRIES_PER_READ, LogReads};

/// Where a reader begins, and whether it goes on with what comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventsFrom {
    /// Events after this one.
    pub after: Cursor,
    /// Those of the last so many entries alone, of those after the cursor.
    pub tail: Option<usize>,
    /// Go on with what comes.
    pub follow: bool,
}

impl TryFrom<&EventsQuery> for EventsFrom {
    type Error = Error;

    fn try_from(query: &EventsQuery) -> Result<Self, Error> {
        let after = query.after.as_deref().map_or(Ok(Cursor::default()), Cursor::from_str)?;
        Ok(Self { after, tail: query.tail, follow: query.follow })
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
        let EventsFrom { after: Cursor { token, taken }, tail, follow } = from;
        let session = reader.session().to_string();
        let mut reader = Some(reader);
        let find = move |reader: &mut Reader| {
            let begin = tail.map_or(Ok(token), |tail| reader.tail(token, tail.min(MAX_LOG_TAIL), None))?;
            Ok((begin, reader.segment_start(begin)?))
        };
        // The reader is there: no read was given up yet.
        let (begin, segment) = reads.with(&mut reader, find).await?.unwrap_or((token, token));
        let taken = if begin == token { taken } else { 0 };
        let signals = Signals::new(agent, &session, conversation, segment);
        let appended = appended.filter(|_| follow);
        let mut stream = Self { reader, signals, token: segment, taken, appended, reads, is_over: false };
        stream.skip_to(begin).await?;
        Ok(stream)
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

fn seq(token: Token) -> u64 {
    match token {
        Token::Start => 0,
        Token::After { seq, .. } => seq,
    }
}
