//! The tokens that the conversations of a project may use together.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use yoi_wire::entry::TokenUsage;

/// Divides the limit among conversations: each is told what the others have left of it.
#[derive(Debug, Default)]
pub struct TokenBudget(Mutex<Accounts>);

#[derive(Debug, Default)]
struct Accounts {
    limit: Option<u64>,
    by_name: BTreeMap<String, Account>,
}

#[derive(Debug)]
struct Account {
    used: u64,
    left: watch::Sender<Option<u64>>,
}

impl TokenBudget {
    /// No conversation has used any. `None`: there is no limit.
    #[must_use]
    pub fn new(limit: Option<u64>) -> Self {
        Self(Mutex::new(Accounts { limit, by_name: BTreeMap::new() }))
    }

    /// Changes the limit of all together.
    pub fn set_limit(&self, limit: Option<u64>) {
        let mut accounts = self.lock();
        accounts.limit = limit;
        accounts.tell();
    }

    /// Counts what a conversation has used so far, and returns how many tokens it may have used at most, now and at every change.
    pub fn open(&self, name: &str, used: u64) -> watch::Receiver<Option<u64>> {
        let mut accounts = self.lock();
        let (left, receiver) = watch::channel(accounts.limit);
        accounts.by_name.insert(name.to_owned(), Account { used, left });
        accounts.tell();
        receiver
    }

    /// Counts what a conversation has used over its life.
    pub fn set_used(&self, name: &str, used: u64) {
        let mut accounts = self.lock();
        if let Some(account) = accounts.by_name.get_mut(name)
            && account.used != used
        {
            account.used = used;
            accounts.tell();
        }
    }

    /// What a conversation has used over its life.
    #[must_use]
    pub fn used(&self, name: &str) -> u64 {
        self.lock().by_name.get(name).map_or(0, |account| account.used)
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
    fn tell(&self) {
        let sum = self.by_name.values().fold(0_u64, |sum, account| sum.saturating_add(account.used));
        for account in self.by_name.values() {
            let left = self.limit.map(|limit| limit.saturating_sub(sum - account.used));
            account.left.send_if_modified(|known| std::mem::replace(known, left) != left);
        }
    }
}

/// Tokens in and out.
pub(super) fn sum(usage: TokenUsage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_conversation_uses_the_others_lack_and_a_stopped_one_still_counts() {
        let budget = TokenBudget::new(Some(100));
        let (main, other) = (budget.open("main", 10), budget.open("other", 0));
        assert_eq!((*main.borrow(), *other.borrow()), (Some(100), Some(90)));
        budget.set_used("other", 70);
        assert_eq!((*main.borrow(), *other.borrow()), (Some(30), Some(90)));
        drop(other);
        budget.set_limit(Some(60));
        assert_eq!(*main.borrow(), Some(0), "what is used already is not more than the limit");
        assert_eq!(*budget.open("other", 70).borrow(), Some(50));
        budget.set_limit(None);
        assert_eq!(*main.borrow(), None);
    }
}
