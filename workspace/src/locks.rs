use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::Uid;

/// One writer or many readers per UID. All that a verb needs is taken at once, so no order of taking can deadlock.
#[derive(Default)]
pub(crate) struct Locks {
    held: Mutex<HashMap<Uid, Held>>,
    released: Condvar,
}

enum Held {
    Exclusive,
    Shared(usize),
}

/// Gives its UIDs back when dropped.
pub(crate) struct Taken<'a> {
    locks: &'a Locks,
    exclusive: Option<Uid>,
    shared: Vec<Uid>,
}

impl Locks {
    pub fn exclusive(&self, uid: Uid) -> Taken<'_> {
        self.take(Some(uid), Vec::new())
    }

    /// To make `uid` out of `from`.
    pub fn derive(&self, uid: Uid, from: Uid) -> Taken<'_> {
        self.take(Some(uid), vec![from])
    }

    pub fn shared(&self, uids: &[Uid]) -> Taken<'_> {
        self.take(None, uids.to_vec())
    }

    fn take(&self, exclusive: Option<Uid>, mut shared: Vec<Uid>) -> Taken<'_> {
        shared.sort();
        shared.dedup();
        let mut held = self.lock();
        let blocked = |held: &HashMap<Uid, Held>| {
            exclusive.is_some_and(|uid| held.contains_key(&uid)) || shared.iter().any(|uid| matches!(held.get(uid), Some(Held::Exclusive)))
        };
        while blocked(&held) {
            held = self.released.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.extend(exclusive.map(|uid| (uid, Held::Exclusive)));
        for uid in &shared {
            match held.entry(*uid).or_insert(Held::Shared(0)) {
                Held::Shared(n) => *n += 1,
                // Only our own: a tree derived from itself, which the verb refuses.
                Held::Exclusive => {}
            }
        }
        Taken { locks: self, exclusive, shared }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uid, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.lock();
        for uid in &self.shared {
            match held.get_mut(uid) {
                Some(Held::Shared(n)) if *n > 1 => *n -= 1,
                Some(Held::Shared(_)) => drop(held.remove(uid)),
                Some(Held::Exclusive) | None => {}
            }
        }
        if let Some(uid) = self.exclusive {
            held.remove(&uid);
        }
        self.locks.released.notify_all();
    }
}
