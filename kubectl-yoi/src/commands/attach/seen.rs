//! Which entries of a session have come: each is shown once, and a lost one is noticed.

/// The entries that have come, by their place in the session.
#[derive(Clone, Debug, Default)]
pub struct SeenEntries {
    session: Option<String>,
    last: Option<u64>,
}

/// What an entry is, in the order of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The next one, or the first that came.
    Next,
    /// It has come before.
    Again,
    /// So many before it have not come.
    After(u64),
}

impl SeenEntries {
    /// Takes the session of a greeting. Returns whether it is another one than before.
    pub fn greet(&mut self, session: &str) -> bool {
        let changed = self.session.as_deref().is_some_and(|known| known != session);
        if changed {
            self.last = None;
        }
        self.session = Some(session.to_owned());
        changed
    }

    /// Takes the sequence number of an entry.
    pub fn place(&mut self, seq: u64) -> Place {
        let place = match self.last {
            Some(last) if seq <= last => return Place::Again,
            Some(last) if seq > last + 1 => Place::After(seq - last - 1),
            Some(_) | None => Place::Next,
        };
        self.last = Some(seq);
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_counts_once_and_a_gap_is_noticed() {
        let mut seen = SeenEntries::default();
        assert!(!seen.greet("s"));
        assert_eq!(
            [40, 41, 41, 40, 44, 45].map(|seq| seen.place(seq)),
            [Place::Next, Place::Next, Place::Again, Place::Again, Place::After(2), Place::Next]
        );
        assert!(!seen.greet("s"));
        assert_eq!(seen.place(45), Place::Again);
        assert!(seen.greet("another"));
        assert_eq!(seen.place(1), Place::Next);
    }
}
