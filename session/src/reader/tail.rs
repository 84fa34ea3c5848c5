//! Where the last entries of a session begin.

use std::collections::VecDeque;

use super::{Extent, Position, Reader, Token, first_position, place_after};
use crate::{
    Error, Result,
    disk::OpenMode,
    layout,
    log::{
        backwards::{self, Numbers},
        chain::Chain,
        scan::Expected,
    },
};

/// Entries, and bytes of them, that are read at once where the log has to be read from the front.
const READ_ENTRIES: usize = 64;
const READ_BYTES: u64 = 1 << 20;

impl Reader {
    /// Returns the token after which the last `count` entries stand, or `after` where that is later. With `up_to`, entries after that
    /// sequence number do not count. The log is read from its end, and no more than one entry of it is in memory; only where that end is
    /// torn, or is of format 1, it is read from the front.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn tail(&mut self, after: Token, count: usize, up_to: Option<u64>) -> Result<Token> {
        let extent = self.extent()?;
        first_position(&extent.chain, after)?;
        match self.tail_backwards(&extent, count, up_to)? {
            Some(position) if place_after(&extent.chain, position.token) > place_after(&extent.chain, after) => {
                self.position = Some(position);
                Ok(position.token)
            }
            Some(_) => Ok(after),
            None => self.tail_forwards(after, count, up_to),
        }
    }

    fn tail_backwards(&self, extent: &Extent, count: usize, up_to: Option<u64>) -> Result<Option<Position>> {
        let chain = &*extent.chain;
        let last = match up_to {
            Some(seq) => seq,
            None => match self.last_line(extent)? {
                Some(last) => last.seq,
                None => return Ok(None),
            },
        };
        let before = last.saturating_sub(count as u64);
        if before == 0 {
            return Ok(first_position(chain, Token::Start).ok());
        }
        let holds_it = |place: &usize| chain.end(*place).is_none_or(|link| link.last_seq >= before);
        let Some(place) = (0..chain.segments().len()).find(holds_it) else { return Ok(None) };
        let Some(segment) = chain.segments().get(place).map(|segment| segment.id) else { return Ok(None) };
        let found = self.with_file(extent, place, |file, end| backwards::line_of_seq(file, end, before))?;
        let position = found.map(|(Numbers { seq, batch, run }, at)| {
            let token = Token::After { segment, seq };
            // A read that meets damage begins again at the start of the segment, and counts its lines.
            Position { token, segment, at, line: 1, expected: Expected { seq: seq + 1, batch, run } }
        });
        Ok(position)
    }

    fn last_line(&self, extent: &Extent) -> Result<Option<Numbers>> {
        let last = extent.chain.segments().len().saturating_sub(1);
        let found = self.with_file(extent, last, backwards::last_line)?;
        Ok(found.map(|(numbers, _)| numbers))
    }

    fn with_file<T>(
        &self,
        extent: &Extent,
        place: usize,
        look: impl FnOnce(&dyn crate::disk::DiskFile, u64) -> std::io::Result<T>,
    ) -> Result<T> {
        let chain: &Chain = &extent.chain;
        let segment = chain.segments().get(place).map_or(chain.last(), |segment| segment.id);
        let path = layout::segment(&self.root, self.session, segment);
        let file = self.disk.open(&path, OpenMode::Read).map_err(Error::disk("open", &path))?;
        let end = match extent.end.filter(|_| segment == chain.last()) {
            Some(end) => end,
            None => file.len().map_err(Error::disk("measure", &path))?,
        };
        look(&*file, end).map_err(Error::disk("read", &path))
    }

    fn tail_forwards(&mut self, after: Token, count: usize, up_to: Option<u64>) -> Result<Token> {
        let (mut tokens, mut token) = (VecDeque::from([after]), after);
        loop {
            let (entries, next) = self.read_bytes(token, READ_ENTRIES, READ_BYTES)?;
            if entries.is_empty() {
                break;
            }
            for stored in entries.into_iter().filter(|stored| up_to.is_none_or(|last| stored.entry.seq <= last)) {
                tokens.push_back(stored.token);
                if tokens.len() > count.saturating_add(1) {
                    tokens.pop_front();
                }
            }
            token = next;
        }
        Ok(tokens.front().copied().unwrap_or(after))
    }
}
