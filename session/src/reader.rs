//! Reads a session, also while it is written.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use yoi_wire::entry::Entry;

use crate::{
    ChainDamage, Damage, Error, Lock, Result,
    disk::{Disk, OpenMode},
    layout,
    lock::SessionProgress,
    log::{
        chain::{Chain, Heads, SessionFolder},
        scan::{Expected, Scanned, Scanner},
    },
};

mod tail;

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

/// Reads the committed entries of a session, from its first segment to its last. A reader of [`crate::Log::reader`] sees what that log has
/// acknowledged; any other sees complete lines. A kind that this version does not know becomes [`yoi_wire::entry::Body::Unknown`].
#[derive(Debug)]
pub struct Reader {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    session: Uuid,
    progress: Option<Arc<SessionProgress>>,
    /// The chain as this reader has last found it, and what it was found by.
    chain: Option<(FoundBy, Arc<Chain>)>,
    /// Where the last read ended, so that the next one need not start at the beginning of a segment.
    position: Option<Position>,
}

/// By what a reader of another process finds the segments. While this is the same, the chain is.
#[derive(Debug, PartialEq, Eq)]
enum FoundBy {
    /// The pointer names the last one.
    Pointer(Uuid),
    /// The pointer does not. These are all files, and whether links count.
    Names(Vec<Uuid>, bool),
}

#[derive(Clone, Copy, Debug)]
struct Position {
    token: Token,
    segment: Uuid,
    at: u64,
    line: u64,
    expected: Expected,
}

/// Which entries a read returns.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Those after this place of a segment and sequence number in it. Sequence numbers alone would not do: a reader may have seen a foreign
    /// line whose number the session has given again, in the next segment.
    after: Option<(usize, u64)>,
    max: usize,
    max_bytes: u64,
}

/// What a read has found so far.
#[derive(Debug, Default)]
struct Found {
    entries: Vec<StoredEntry>,
    /// Bytes of their lines.
    bytes: u64,
}

impl Found {
    fn is_enough(&self, wanted: Wanted) -> bool {
        self.entries.len() >= wanted.max || self.bytes >= wanted.max_bytes
    }
}

/// The segments to read, and how far.
struct Extent {
    chain: Arc<Chain>,
    /// Where the acknowledged entries of the last segment end; `None` when only the file tells.
    end: Option<u64>,
}

impl Reader {
    /// Returns a reader for a session that another process may have open, or none. It may see lines of an append that is under way and not
    /// yet durable.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, root: &Path, session: Uuid) -> Self {
        Self { disk, root: root.to_owned(), session, progress: None, chain: None, position: None }
    }

    pub(crate) fn for_open_log(lock: &Lock, session: Uuid, progress: Arc<SessionProgress>) -> Self {
        Self { disk: lock.disk().clone(), root: lock.root().to_owned(), session, progress: Some(progress), chain: None, position: None }
    }

    /// Returns the token after which the entries give the state at the end of the session, as [`crate::fold`] computes it: those of the last
    /// segment, which carries what it needs of all before it. Of a session of format 1 these are all entries.
    ///
    /// # Errors
    /// [`Error::ChainDamaged`], [`Error::NoSession`], or the disk's.
    pub fn replay_token(&mut self) -> Result<Token> {
        let chain = self.extent()?.chain;
        let from = chain.replay_from();
        let link = chain.segments().get(from).and_then(|segment| segment.previous.as_ref());
        let before = from.checked_sub(1).and_then(|place| chain.segments().get(place));
        Ok(before.zip(link).map_or(Token::Start, |(before, link)| Token::After { segment: before.id, seq: link.last_seq }))
    }

    /// Returns the session.
    #[must_use]
    pub fn session(&self) -> Uuid {
        self.session
    }

    /// Returns the token before the first entry of the segment that `token` is in. What follows from the entries after it is the same for whoever reads them,
    /// wherever they go on; a segment of format 1 begins with the session.
    ///
    /// # Errors
    /// [`Error::UnknownToken`], [`Error::ChainDamaged`], [`Error::NoSession`], or the disk's.
    pub fn segment_start(&mut self, token: Token) -> Result<Token> {
        let Token::After { segment, .. } = token else { return Ok(Token::Start) };
        let chain = self.extent()?.chain;
        let place = chain.place(segment).ok_or_else(|| Error::UnknownToken { token: token.to_string() })?;
        let link = chain.segments().get(place).and_then(|segment| segment.previous.as_ref());
        let before = place.checked_sub(1).and_then(|place| chain.segments().get(place));
        Ok(before.zip(link).map_or(Token::Start, |(before, link)| Token::After { segment: before.id, seq: link.last_seq }))
    }

    /// Returns at most `max` entries after `token`, and the token to go on from, which is the given one when there is nothing new. A token
    /// stays valid when the session goes on in another segment.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::ChainDamaged`] after all entries before the damage have been read; [`Error::UnknownToken`];
    /// [`Error::NoSession`]; or the disk's.
    pub fn read(&mut self, token: Token, max: usize) -> Result<(Vec<StoredEntry>, Token)> {
        self.read_bytes(token, max, u64::MAX)
    }

    /// As [`Reader::read`], and returns no more entries once their lines have `max_bytes`.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_bytes(&mut self, token: Token, max: usize, max_bytes: u64) -> Result<(Vec<StoredEntry>, Token)> {
        let left_off = self.position.filter(|position| position.token == token);
        match self.read_from(left_off, token, max, max_bytes) {
            // One more read from the start tells damage from other causes. An append is copied page by page, so its newline may be visible
            // before its middle, which is there at the second look. This reader's position may be in lines that were never acknowledged and
            // have been cut since. And what it took for the end of the session may be a segment whose lines another writer's lines follow.
            Err(Error::Damaged { .. } | Error::ChainDamaged { .. }) => {
                self.chain = None;
                self.read_from(None, token, max, max_bytes)
            }
            done => done,
        }
    }

    fn read_from(&mut self, position: Option<Position>, token: Token, max: usize, max_bytes: u64) -> Result<(Vec<StoredEntry>, Token)> {
        self.position = None;
        let extent = self.extent()?;
        let chain = &*extent.chain;
        let wanted = Wanted { after: place_after(chain, token), max, max_bytes };
        let mut position = match position.filter(|position| chain.place(position.segment).is_some()) {
            Some(position) => position,
            None => first_position(chain, token)?,
        };
        let mut found = Found::default();
        let from = chain.place(position.segment).unwrap_or(0);
        for (place, segment) in chain.segments().iter().enumerate().skip(from) {
            if segment.id != position.segment {
                let expected = chain.expected(place).unwrap_or(position.expected);
                position = Position { segment: segment.id, at: 0, line: 1, expected, ..position };
            }
            match self.read_segment(&extent, place, wanted, &mut position, &mut found) {
                Ok(()) => {}
                // The entries before the damage come first. The next read fails.
                Err(Error::Damaged { .. } | Error::ChainDamaged { .. }) if !found.entries.is_empty() => break,
                Err(error) => return Err(error),
            }
            if found.is_enough(wanted) {
                break;
            }
        }
        Ok(self.finish(found.entries, position, token))
    }

    /// Reads one segment from the position on, and moves the position.
    fn read_segment(&self, extent: &Extent, place: usize, wanted: Wanted, position: &mut Position, found: &mut Found) -> Result<()> {
        let Extent { chain, end } = extent;
        let segment = position.segment;
        let link = chain.end(place);
        // Lines after the one to which the next segment is linked are not of the session.
        let is_over = |expected: Expected| link.is_some_and(|link| expected.seq > link.last_seq);
        if is_over(position.expected) {
            return Ok(());
        }
        let path = layout::segment(&self.root, self.session, segment);
        let file = self.disk.open(&path, OpenMode::Read).map_err(Error::disk("open", &path))?;
        let is_last = segment == chain.last();
        let until = match end.filter(|_| is_last) {
            Some(end) => end,
            None => file.len().map_err(Error::disk("measure", &path))?,
        };
        let mut scanner = Scanner::new(&*file, &path, (position.at, until.max(position.at)), position.line, position.expected);
        while !found.is_enough(wanted) {
            match scanner.next()? {
                Scanned::Line(line) => {
                    if let Some(link) = link.filter(|link| link.last_seq == line.entry.seq)
                        && line.digest() != link.digest
                    {
                        return Err(self.end_damaged(chain, place, ChainDamage::Digest { seq: link.last_seq }));
                    }
                    let next = Token::After { segment, seq: line.entry.seq };
                    *position = Position { token: next, segment, at: line.end, line: scanner.line_number(), expected: scanner.expected() };
                    if Some((place, line.entry.seq)) > wanted.after {
                        found.bytes += line.end - line.at;
                        found.entries.push(StoredEntry { entry: line.entry, token: next });
                    }
                    if is_over(position.expected) {
                        return Ok(());
                    }
                }
                Scanned::End { torn } => {
                    return match link {
                        Some(link) => Err(self.end_damaged(chain, place, ChainDamage::LastEntry { seq: link.last_seq })),
                        None if torn > 0 && !is_last => {
                            Err(Error::Damaged { file: path.clone(), line: scanner.line_number(), what: Damage::Unfinished })
                        }
                        None => Ok(()),
                    };
                }
            }
        }
        Ok(())
    }

    /// The error for a segment that does not end with the entry to which the next one is linked.
    fn end_damaged(&self, chain: &Chain, place: usize, what: ChainDamage) -> Error {
        let path = |place: usize| {
            let id = chain.segments().get(place).map_or(chain.last(), |segment| segment.id);
            layout::segment(&self.root, self.session, id)
        };
        Error::ChainDamaged { file: path(place + 1), other: path(place), what }
    }

    fn extent(&mut self) -> Result<Extent> {
        if let Some(end) = self.progress.as_ref().and_then(|progress| progress.committed_end()) {
            return Ok(Extent { chain: end.chain, end: Some(end.offset) });
        }
        let folder = SessionFolder { disk: &*self.disk, root: &self.root, session: self.session };
        let by = match folder.pointer()? {
            Some(Some(last)) => FoundBy::Pointer(last),
            pointer => FoundBy::Names(folder.names()?, pointer.is_none()),
        };
        if let Some((_, chain)) = self.chain.as_ref().filter(|(before, _)| *before == by) {
            return Ok(Extent { chain: chain.clone(), end: None });
        }
        let chain = match &by {
            FoundBy::Pointer(last) => folder.chain(*last, &Heads::new())?,
            FoundBy::Names(names, follow_links) => folder.discover(&folder.heads(names)?, *follow_links)?,
        };
        let chain = Arc::new(chain);
        self.chain = Some((by, chain.clone()));
        Ok(Extent { chain, end: None })
    }

    fn finish(&mut self, found: Vec<StoredEntry>, position: Position, token: Token) -> (Vec<StoredEntry>, Token) {
        let next = found.last().map_or(token, |last| last.token);
        // A token beyond the end has no position in the file.
        self.position = (position.token == next).then_some(position);
        (found, next)
    }
}

/// Returns where to begin for a token: at the start of its segment.
fn first_position(chain: &Chain, token: Token) -> Result<Position> {
    let unknown = || Error::UnknownToken { token: token.to_string() };
    let place = match token {
        Token::Start => 0,
        Token::After { segment, seq } => {
            let place = chain.place(segment).ok_or_else(unknown)?;
            if chain.expected(place).is_some_and(|first| seq < first.seq) {
                return Err(unknown());
            }
            place
        }
    };
    // Only the segment before knows the first numbers of a segment of format 1.
    let place = (0..=place).rev().find(|place| chain.expected(*place).is_some()).unwrap_or(0);
    let segment = chain.segments().get(place).map_or(chain.last(), |segment| segment.id);
    Ok(Position { token: Token::Start, segment, at: 0, line: 1, expected: chain.expected(place).unwrap_or(Expected::FIRST) })
}

fn place_after(chain: &Chain, token: Token) -> Option<(usize, u64)> {
    match token {
        Token::Start => None,
        Token::After { segment, seq } => Some((chain.place(segment)?, seq)),
    }
}
