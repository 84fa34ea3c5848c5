use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::Uid;

/// One writer or many readers per tree, by the tree's UID. A call takes all its locks at once, so it cannot deadlock with another.
#[derive(Default)]
pub(crate) struct Locks {
    held: Mutex<HashMap<Uid, LockState>>,
    released: Condvar,
}

enum LockState {
    Exclusive,
    Shared(usize),
}

/// Releases its locks when dropped.
pub(crate) struct LocksGuard<'a> {
    locks: &'a Locks,
    exclusive: Vec<Uid>,
    shared: Vec<Uid>,
}

impl Locks {
    /// Waits for the only lock on `uid`.
    pub fn exclusive(&self, uid: Uid) -> LocksGuard<'_> {
        self.take(vec![uid], Vec::new())
    }

    /// Waits for the only lock on `uid`, the clone to make, and a shared one on `from`, its source.
    pub fn for_clone(&self, uid: Uid, from: Uid) -> LocksGuard<'_> {
        self.take(vec![uid], vec![from])
    }

    /// Waits for the only lock on each of two different trees.
    pub fn exclusive_pair(&self, one: Uid, other: Uid) -> LocksGuard<'_> {
        self.take(vec![one, other], Vec::new())
    }

    /// Waits for a shared lock on each of `uids`.
    pub fn shared(&self, uids: &[Uid]) -> LocksGuard<'_> {
        self.take(Vec::new(), uids.to_vec())
    }

    fn take(&self, exclusive: Vec<Uid>, mut shared: Vec<Uid>) -> LocksGuard<'_> {
        shared.sort();
        shared.dedup();
        let mut held = self.lock();
        let blocked = |held: &HashMap<Uid, LockState>| {
            exclusive.iter().any(|uid| held.contains_key(uid))
                || shared.iter().any(|uid| matches!(held.get(uid), Some(LockState::Exclusive)))
        };
        while blocked(&held) {
            held = self.released.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.extend(exclusive.iter().map(|uid| (*uid, LockState::Exclusive)));
        for uid in &shared {
            match held.entry(*uid).or_insert(LockState::Shared(0)) {
                LockState::Shared(n) => *n += 1,
                // Only our own lock: a clone of a tree from itself, which `clone_tree` refuses.
                LockState::Exclusive => {}
            }
        }
        LocksGuard { locks: self, exclusive, shared }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uid, LockState>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LocksGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.lock();
        for uid in &self.shared {
            match held.get_mut(uid) {
                Some(LockState::Shared(n)) if *n > 1 => *n -= 1,
                Some(LockState::Shared(_)) => drop(held.remove(uid)),
                Some(LockState::Exclusive) | None => {}
            }
        }
        for uid in &self.exclusive {
            held.remove(uid);
        }
        self.locks.released.notify_all();
    }
}
