//! Reads a session, also while it is written.

use std::{
    fmt,
    io::ErrorKind,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use yoi_wire::entry::Entry;

use crate::{
    Damage, Error, Lock, Result,
    disk::{Disk, DiskFile, OpenMode},
    layout,
    lock::SessionProgress,
    log::scan::{Expected, Scanned, Scanner},
};

/// How far a reader has read. Its text is `start` or `<segment>.<seq>`. It stays valid when reader or writer restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Token {
    /// Before the first entry.
    #[default]
    Start,
    /// After this entry.
    After {
        /// The segment that holds the entry.
        segment: Uuid,
        /// Sequence number of the entry.
        seq: u64,
    },
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::After { segment, seq } => write!(f, "{segment}.{seq}"),
        }
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(given: &str) -> Result<Self> {
        if given == "start" {
            return Ok(Self::Start);
        }
        given
            .split_once('.')
            .and_then(|(segment, seq)| Some(Self::After { segment: Uuid::try_parse(segment).ok()?, seq: seq.parse().ok()? }))
            .ok_or_else(|| Error::BadToken { given: given.to_owned() })
    }
}

impl TryFrom<String> for Token {
    type Error = Error;

    fn try_from(given: String) -> Result<Self> {
        given.parse()
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.to_string()
    }
}

/// A committed entry and its place in the session.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntry {
    /// The entry, understood as far as this version can.
    pub entry: Entry,
    /// The token to read on after it.
    pub token: Token,
}

/// Reads the committed entries of a session. A reader of [`crate::Log::reader`] sees what that log has acknowledged; any other sees complete
/// lines. A kind that this version does not know becomes [`yoi_wire::entry::Body::Unknown`].
#[derive(Debug)]
pub struct Reader {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    session: Uuid,
    progress: Option<Arc<SessionProgress>>,
    /// Where the last read ended, so that the next one need not start at the beginning of the session.
    position: Option<Position>,
}

#[derive(Clone, Copy, Debug)]
struct Position {
    token: Token,
    segment: Uuid,
    at: u64,
    line: u64,
    expected: Expected,
}

impl Reader {
    /// Returns a reader for a session that another process may have open, or none. It may see lines of an append that is under way and not
    /// yet durable.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, root: &Path, session: Uuid) -> Self {
        Self { disk, root: root.to_owned(), session, progress: None, position: None }
    }

    pub(crate) fn for_open_log(lock: &Lock, session: Uuid, progress: Arc<SessionProgress>) -> Self {
        Self { disk: lock.disk().clone(), root: lock.root().to_owned(), session, progress: Some(progress), position: None }
    }

    /// Returns at most `max` entries after `token`, and the token to go on from, which is the given one when there is nothing new.
    ///
    /// # Errors
    /// [`Error::Damaged`] after all entries before the damage have been read; [`Error::UnknownToken`]; [`Error::NoSession`]; or the disk's.
    pub fn read(&mut self, token: Token, max: usize) -> Result<(Vec<StoredEntry>, Token)> {
        let left_off = self.position.filter(|position| position.token == token);
        match self.read_from(left_off, token, max) {
            // One more read from the start tells damage from two other causes. An append is copied page by page, so its newline may be
            // visible before its middle, which is there at the second look. And this reader's position may be in lines that were never
            // acknowledged and have been cut since.
            Err(Error::Damaged { .. }) => self.read_from(None, token, max),
            done => done,
        }
    }

    fn read_from(&mut self, position: Option<Position>, token: Token, max: usize) -> Result<(Vec<StoredEntry>, Token)> {
        self.position = None;
        let dir = layout::session(&self.root, self.session);
        let segments = match self.disk.list(&dir) {
            Ok(names) => layout::segments(&names),
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::disk("list", &dir)(error)),
        };
        let Some(&last) = segments.last() else { return Err(Error::NoSession { session: self.session }) };
        if let Token::After { segment, .. } = token
            && !segments.contains(&segment)
        {
            return Err(Error::UnknownToken { token: token.to_string() });
        }

        let first = Position { token: Token::Start, segment: segments[0], at: 0, line: 1, expected: Expected::FIRST };
        let mut position = position.unwrap_or(first);
        let mut found = Vec::new();
        let from = segments.iter().position(|segment| *segment == position.segment).unwrap_or(0);
        for &segment in &segments[from..] {
            if segment != position.segment {
                position = Position { segment, at: 0, line: 1, ..position };
            }
            let path = layout::segment(&self.root, self.session, segment);
            let file = self.disk.open(&path, OpenMode::Read).map_err(Error::disk("open", &path))?;
            let end = self.end(segment, &*file).map_err(Error::disk("measure", &path))?;
            let mut scanner = Scanner::new(&*file, &path, (position.at, end.max(position.at)), position.line, position.expected);
            loop {
                if found.len() == max {
                    return Ok(self.finish(found, position, token));
                }
                match scanner.next() {
                    Ok(Scanned::Line(line)) => {
                        let next = Token::After { segment, seq: line.entry.seq };
                        position =
                            Position { token: next, segment, at: line.end, line: scanner.line_number(), expected: scanner.expected() };
                        if line.entry.seq > seq(token) {
                            found.push(StoredEntry { entry: line.entry, token: next });
                        }
                    }
                    Ok(Scanned::End { torn }) if torn > 0 && segment != last => {
                        return self.stop(
                            Error::Damaged { file: path.clone(), line: scanner.line_number(), what: Damage::Unfinished },
                            found,
                            position,
                            token,
                        );
                    }
                    Ok(Scanned::End { .. }) => break,
                    Err(error) => return self.stop(error, found, position, token),
                }
            }
        }
        Ok(self.finish(found, position, token))
    }

    fn end(&self, segment: Uuid, file: &dyn DiskFile) -> std::io::Result<u64> {
        match self.progress.as_ref().map(|progress| progress.committed_end()) {
            Some(end) if end.segment == segment => Ok(end.offset),
            _ => file.len(),
        }
    }

    /// Returns the entries before a failure first. The next read fails.
    fn stop(&mut self, error: Error, found: Vec<StoredEntry>, position: Position, token: Token) -> Result<(Vec<StoredEntry>, Token)> {
        if found.is_empty() { Err(error) } else { Ok(self.finish(found, position, token)) }
    }

    fn finish(&mut self, found: Vec<StoredEntry>, position: Position, token: Token) -> (Vec<StoredEntry>, Token) {
        let next = found.last().map_or(token, |last| last.token);
        // A token beyond the end has no position in the file.
        self.position = (position.token == next).then_some(position);
        (found, next)
    }
}

fn seq(token: Token) -> u64 {
    match token {
        Token::Start => 0,
        Token::After { seq, .. } => seq,
    }
}
