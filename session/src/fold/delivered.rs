//! The ids of what was delivered: as many as a runtime has to remember, and no more.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Most ids that are remembered. A message that is sent again after so many others is taken for a new one, unless its id says how old it is.
pub const MAX_DELIVERED: usize = 100_000;

/// The ids of the latest inputs and messages, each with the sequence number of its entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveredIds {
    by_id: BTreeMap<Arc<str>, u64>,
    by_seq: BTreeSet<(u64, Arc<str>)>,
}

impl DeliveredIds {
    /// Adds an id. Beyond [`MAX_DELIVERED`], that with the lowest sequence number is forgotten.
    pub fn insert(&mut self, id: &str, seq: u64) {
        let id: Arc<str> = id.into();
        if let Some(before) = self.by_id.insert(id.clone(), seq) {
            self.by_seq.remove(&(before, id.clone()));
        }
        self.by_seq.insert((seq, id));
        if self.by_seq.len() > MAX_DELIVERED
            && let Some((_, oldest)) = self.by_seq.pop_first()
        {
            self.by_id.remove(&oldest);
        }
    }

    /// Adds an id after all others.
    pub(crate) fn insert_last(&mut self, id: &str) {
        let seq = self.by_seq.last().map_or(0, |(last, _)| *last);
        self.insert(id, seq.saturating_add(1));
    }

    /// Returns the sequence number of the entry that delivered this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<u64> {
        self.by_id.get(id).copied()
    }

    /// Returns whether the id is remembered.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    /// Returns the ids, the latest first.
    pub fn latest_first(&self) -> impl Iterator<Item = (&str, u64)> {
        self.by_seq.iter().rev().map(|(seq, id)| (&**id, *seq))
    }

    /// Returns the ids with their sequence numbers, by id.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<String, u64> {
        self.by_id.iter().map(|(id, seq)| (id.to_string(), *seq)).collect()
    }

    /// Returns how many ids are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns whether no id is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns whether there may have been ids that are forgotten.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.by_id.len() >= MAX_DELIVERED
    }
}
