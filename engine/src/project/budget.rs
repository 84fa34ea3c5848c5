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
    /// Of what is used, what its log does not have.
    before: u64,
    /// The most that it may have by its log.
    most: Option<u64>,
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
        self.open_within(name, used, 0, None)
    }

    /// As [`Self::open`], for one whose log does not have the tokens that count as used `before`, and that may have used `most` by its log at any time.
    pub fn open_within(&self, name: &str, used: u64, before: u64, most: Option<u64>) -> watch::Receiver<Option<u64>> {
        let mut accounts = self.lock();
        let (left, receiver) = watch::channel(accounts.limit);
        accounts.by_name.insert(name.to_owned(), Account { used: before.saturating_add(used), before, most, left });
        accounts.tell();
        receiver
    }

    /// Counts what a conversation has used, by its log.
    pub fn set_used(&self, name: &str, used: u64) {
        let mut accounts = self.lock();
        if let Some(account) = accounts.by_name.get_mut(name)
            && account.used != account.before.saturating_add(used)
        {
            account.used = account.before.saturating_add(used);
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
            let left = self.limit.map(|limit| limit.saturating_sub(sum - account.used).saturating_sub(account.before));
            let left = left.into_iter().chain(account.most).min();
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

    #[test]
    fn p38_a_sub_agent_has_its_own_limit_within_what_is_left_and_what_others_used_in_its_place_counts_for_all() {
        let budget = TokenBudget::new(Some(100));
        let main = budget.open("main", 10);
        let of_subagent = budget.open_within("sub-1", 0, 30, Some(20));
        assert_eq!((*main.borrow(), *of_subagent.borrow()), (Some(70), Some(20)));
        budget.set_used("sub-1", 15);
        assert_eq!((*main.borrow(), budget.used("sub-1")), (Some(55), 45));
        budget.set_used("main", 55);
        assert_eq!(*of_subagent.borrow(), Some(15), "no more than all together have");
        budget.set_limit(None);
        assert_eq!(*of_subagent.borrow(), Some(20));
    }
}
