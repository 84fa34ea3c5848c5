//! The segments of a session in their order.
//!
//! Each head names the segment before it, and the pointer of the volume names the last one. Names and clocks mean nothing, but for the
//! segments of format 1, which have no heads: they come first, in the order of their names.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use uuid::Uuid;
use yoi_wire::entry::SegmentLink;

use super::{head::Head, scan::Expected};
use crate::{ChainDamage, Damage, Error, Result, current, disk::Disk, layout};

/// The segments of a session, oldest first. There is always one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    segments: Vec<ChainSegment>,
    last: Uuid,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainSegment {
    pub id: Uuid,
    /// The link to the segment before. The first segment has none, and no segment of format 1 has.
    pub previous: Option<SegmentLink>,
}

impl Chain {
    /// Returns the chain of a session with one segment.
    pub(crate) fn first(id: Uuid) -> Self {
        Self { segments: vec![ChainSegment { id, previous: None }], last: id }
    }

    /// Returns the chain with one more segment.
    pub(crate) fn with_next(&self, id: Uuid, link: SegmentLink) -> Self {
        let mut segments = self.segments.clone();
        segments.push(ChainSegment { id, previous: Some(link) });
        Self { segments, last: id }
    }

    pub(crate) fn last(&self) -> Uuid {
        self.last
    }

    /// Returns the number of the last segment, which is the number of segments.
    pub(crate) fn number(&self) -> u64 {
        self.segments.len() as u64
    }

    pub(crate) fn segments(&self) -> &[ChainSegment] {
        &self.segments
    }

    pub(crate) fn place(&self, id: Uuid) -> Option<usize> {
        self.segments.iter().rposition(|segment| segment.id == id)
    }

    /// Returns the place of the oldest segment that a runtime has to read to know the state at the end.
    pub(crate) fn replay_from(&self) -> usize {
        self.segments.iter().rposition(|segment| segment.previous.is_some()).unwrap_or(0)
    }

    /// Returns the numbers of the first line of the segment at this place; `None` when only the segment before knows them.
    pub(crate) fn expected(&self, place: usize) -> Option<Expected> {
        match &self.segments.get(place)?.previous {
            Some(link) => Some(Expected::after_link(link.last_seq)),
            None => (place == 0).then_some(Expected::FIRST),
        }
    }

    /// Returns the link to the end of the segment at this place; `None` when no head follows it.
    pub(crate) fn end(&self, place: usize) -> Option<&SegmentLink> {
        self.segments.get(place + 1)?.previous.as_ref()
    }
}

/// The folder of a session, as far as the chain is read from it.
pub(crate) struct SessionFolder<'a> {
    pub disk: &'a dyn Disk,
    pub root: &'a Path,
    pub session: Uuid,
}

/// The beginnings of all segments in a folder.
pub(crate) type Heads = BTreeMap<Uuid, Head>;

impl SessionFolder<'_> {
    /// Returns what the pointer of the volume says of this session: nothing, or its last segment, if it names one.
    pub(crate) fn pointer(&self) -> Result<Option<Option<Uuid>>> {
        let pointer = current::pointer(self.disk, self.root)?;
        Ok(pointer.filter(|pointer| pointer.session == self.session).map(|pointer| pointer.segment))
    }

    /// Returns the segments by name.
    ///
    /// # Errors
    /// [`Error::NoSession`] when there is none, or the disk's.
    pub(crate) fn names(&self) -> Result<Vec<Uuid>> {
        let dir = layout::session(self.root, self.session);
        let names = match self.disk.list(&dir) {
            Ok(names) => layout::segments(&names),
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::disk("list", &dir)(error)),
        };
        if names.is_empty() { Err(Error::NoSession { session: self.session }) } else { Ok(names) }
    }

    pub(crate) fn heads(&self, names: &[Uuid]) -> Result<Heads> {
        let mut heads = Heads::new();
        for &name in names {
            if let Some(head) = self.head(name)? {
                heads.insert(name, head);
            }
        }
        Ok(heads)
    }

    fn head(&self, segment: Uuid) -> Result<Option<Head>> {
        Head::read(self.disk, &self.path(segment))
    }

    pub(crate) fn path(&self, segment: Uuid) -> PathBuf {
        layout::segment(self.root, self.session, segment)
    }

    /// Returns the chain of a session whose last segment no pointer names. Segments of format 1 are in the order of their names; with
    /// `follow_links`, those that are linked to them come after.
    ///
    /// # Errors
    /// [`Error::ChainDamaged`] or [`Error::LogNewer`].
    pub(crate) fn discover(&self, heads: &Heads, follow_links: bool) -> Result<Chain> {
        let unlinked = without_link(heads);
        let Some(&last) = unlinked.last() else { return Err(self.without_first(heads)) };
        let mut chain = Chain { segments: unlinked.into_iter().map(|id| ChainSegment { id, previous: None }).collect(), last };
        if !follow_links {
            return Ok(chain);
        }
        loop {
            let last = chain.last.to_string();
            let mut next = heads.iter().filter_map(|(id, head)| match head {
                Head::Linked { number, link, .. } if link.segment == last => Some((*id, *number, link)),
                Head::Linked { .. } | Head::First | Head::Unwritten | Head::Damaged(_) | Head::Newer => None,
            });
            let Some((id, number, link)) = next.next() else { return Ok(chain) };
            if let Some((other, ..)) = next.next() {
                return Err(self.damaged(other, id, ChainDamage::Doubled { number }));
            }
            let before = chain.number();
            if number != before + 1 {
                return Err(self.damaged(id, chain.last, ChainDamage::Number { expected: number - 1, found: before }));
            }
            chain = chain.with_next(id, link.clone());
        }
    }

    /// The error for a session in which every segment follows another.
    fn without_first(&self, heads: &Heads) -> Error {
        for (id, head) in heads {
            match head {
                Head::Linked { link, .. } => {
                    if let Ok(previous) = Uuid::try_parse(&link.segment)
                        && !heads.contains_key(&previous)
                    {
                        return self.damaged(*id, previous, ChainDamage::Missing);
                    }
                }
                Head::Newer => return self.newer(*id),
                Head::First | Head::Unwritten | Head::Damaged(_) => {}
            }
        }
        Error::NoSession { session: self.session }
    }

    fn newer(&self, segment: Uuid) -> Error {
        Error::LogNewer { file: self.path(segment), line: 1, kind: "the head of the segment".to_owned() }
    }

    /// Follows the links from the last segment to the first. It reads the heads that are not `known`.
    ///
    /// # Errors
    /// [`Error::ChainDamaged`], [`Error::LogNewer`], or the disk's.
    pub(crate) fn chain(&self, last: Uuid, known: &Heads) -> Result<Chain> {
        let mut newest_first = Vec::new();
        let mut at = last;
        let mut before = match self.known_head(known, last)? {
            Some(head) => head,
            None => {
                let (file, other) = (current::path(self.root), self.path(last));
                return Err(Error::ChainDamaged { file, other, what: ChainDamage::Missing });
            }
        };
        loop {
            let (number, link, seq) = match before {
                Head::Linked { number, link, seq } => (number, link, seq),
                Head::Newer => return Err(self.newer(at)),
                // The scan of the last segment tells a torn first line from a damaged one.
                Head::First | Head::Unwritten | Head::Damaged(_) => {
                    newest_first.push(ChainSegment { id: at, previous: None });
                    break;
                }
            };
            let Ok(previous) = Uuid::try_parse(&link.segment) else {
                return Err(Error::Damaged { file: self.path(at), line: 1, what: Damage::Head });
            };
            if number < 2 || Expected::after_link(link.last_seq).seq != seq {
                return Err(self.damaged(at, previous, ChainDamage::Head(Damage::Head)));
            }
            let Some(head) = self.known_head(known, previous)? else {
                return Err(self.damaged(at, previous, ChainDamage::Missing));
            };
            newest_first.push(ChainSegment { id: at, previous: Some(link) });
            match &head {
                Head::Linked { number: found, .. } if *found != number - 1 => {
                    return Err(self.damaged(at, previous, ChainDamage::Number { expected: number - 1, found: *found }));
                }
                Head::Linked { .. } | Head::Newer => {}
                Head::Unwritten => return Err(self.damaged(at, previous, ChainDamage::Head(Damage::Unfinished))),
                Head::Damaged(what) => return Err(self.damaged(at, previous, ChainDamage::Head(what.clone()))),
                Head::First if number == 2 => {}
                Head::First => {
                    let unlinked = without_link(&self.heads(&self.names()?)?);
                    if unlinked.last() != Some(&previous) || unlinked.len() as u64 != number - 1 {
                        return Err(self.damaged(at, previous, ChainDamage::Number { expected: number - 1, found: 1 }));
                    }
                    newest_first.extend(unlinked.into_iter().rev().map(|id| ChainSegment { id, previous: None }));
                    break;
                }
            }
            (at, before) = (previous, head);
        }
        newest_first.reverse();
        Ok(Chain { segments: newest_first, last })
    }

    fn known_head(&self, known: &Heads, segment: Uuid) -> Result<Option<Head>> {
        known.get(&segment).cloned().map_or_else(|| self.head(segment), |head| Ok(Some(head)))
    }

    /// Removes segments, durably.
    pub(crate) fn remove(&self, segments: &[Uuid]) -> Result<()> {
        for &segment in segments {
            let path = self.path(segment);
            self.disk.remove_file(&path).map_err(Error::disk("remove", &path))?;
        }
        if !segments.is_empty() {
            let dir = layout::session(self.root, self.session);
            self.disk.fsync_dir(&dir).map_err(Error::disk("sync", &dir))?;
        }
        Ok(())
    }

    pub(crate) fn damaged(&self, file: Uuid, other: Uuid, what: ChainDamage) -> Error {
        Error::ChainDamaged { file: self.path(file), other: self.path(other), what }
    }
}

/// Returns the segments that follow no other, by name. A file without a finished line is one only when there is no other: an unfinished
/// [`crate::Log::rotate`] leaves such files too.
fn without_link(heads: &Heads) -> Vec<Uuid> {
    let begun = heads.iter().filter(|(_, head)| matches!(head, Head::First | Head::Damaged(_)));
    let begun: Vec<Uuid> = begun.map(|(id, _)| *id).collect();
    if !begun.is_empty() {
        return begun;
    }
    heads.iter().filter(|(_, head)| matches!(head, Head::Unwritten)).map(|(id, _)| *id).take(1).collect()
}
