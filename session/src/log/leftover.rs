//! What an unfinished [`crate::Log::rotate`] leaves: a segment that the pointer never named.

use uuid::Uuid;
use yoi_wire::entry::Body;

use super::{
    chain::{Chain, Heads, SessionFolder},
    head::Head,
    scan::{Expected, Scanned, Scanner},
};
use crate::{ChainDamage, Error, Result, disk::OpenMode};

/// Returns the segments in the folder that are not of the chain, all of them left over.
///
/// # Errors
/// [`Error::ChainDamaged`] when one of them holds more than an unfinished rotation leaves, or the disk's.
pub(crate) fn find(folder: &SessionFolder<'_>, chain: &Chain, heads: &Heads) -> Result<Vec<Uuid>> {
    let mut found = Vec::new();
    for (&id, head) in heads.iter().filter(|(id, _)| chain.place(**id).is_none()) {
        if !is_leftover(folder, chain, id, head)? {
            return Err(damage(folder, chain, id, head));
        }
        found.push(id);
    }
    Ok(found)
}

fn is_leftover(folder: &SessionFolder<'_>, chain: &Chain, id: Uuid, head: &Head) -> Result<bool> {
    match head {
        Head::Unwritten => Ok(true),
        Head::Linked { number, link, .. } => {
            let follows = link.segment == chain.last().to_string() && *number == chain.number() + 1;
            Ok(follows && holds_only_its_head(folder, id, Expected::after_link(link.last_seq))?)
        }
        Head::First | Head::Damaged(_) | Head::Newer => Ok(false),
    }
}

/// Returns whether all lines of the segment are its head and what it carries, of one append.
fn holds_only_its_head(folder: &SessionFolder<'_>, id: Uuid, expected: Expected) -> Result<bool> {
    let path = folder.path(id);
    let file = folder.disk.open(&path, OpenMode::Read).map_err(Error::disk("open", &path))?;
    let len = file.len().map_err(Error::disk("measure", &path))?;
    let mut scanner = Scanner::new(&*file, &path, (0, len), 1, expected);
    loop {
        match scanner.next()? {
            Scanned::End { .. } => return Ok(true),
            Scanned::Line(line) => {
                let carried = matches!(line.entry.body, Body::SegmentStarted(_) | Body::Carried(_));
                if !carried || line.batch != expected.seq {
                    return Ok(false);
                }
            }
        }
    }
}

fn damage(folder: &SessionFolder<'_>, chain: &Chain, id: Uuid, head: &Head) -> Error {
    let (number, previous) = match head {
        Head::Linked { number, link, .. } => (*number, Uuid::try_parse(&link.segment).ok()),
        Head::First => (1, None),
        Head::Damaged(what) => return folder.damaged(chain.last(), id, ChainDamage::Head(what.clone())),
        Head::Unwritten | Head::Newer => return folder.damaged(id, chain.last(), ChainDamage::Unlinked),
    };
    let same = usize::try_from(number.saturating_sub(1)).ok().and_then(|place| chain.segments().get(place));
    match (same, previous) {
        (Some(same), _) => folder.damaged(id, same.id, ChainDamage::Doubled { number }),
        // A segment between the chain and this one is gone.
        (None, Some(previous)) if chain.place(previous).is_none() => folder.damaged(id, previous, ChainDamage::Missing),
        (None, _) => folder.damaged(id, chain.last(), ChainDamage::Unlinked),
    }
}
