//! Tokens of runs: a program shows its run's token to the model proxy and to the runtime's socket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

/// Tokens that are valid now, each with what it opens. Only digests are kept.
#[derive(Debug)]
pub struct RunTokens<T> {
    granted: Mutex<Granted<T>>,
}

#[derive(Debug)]
struct Granted<T> {
    next_id: u64,
    tokens: Vec<(u64, [u8; 32], T)>,
}

impl<T> Default for RunTokens<T> {
    fn default() -> Self {
        Self { granted: Mutex::new(Granted { next_id: 0, tokens: Vec::new() }) }
    }
}

impl<T: Clone> RunTokens<T> {
    /// `token` opens `opens` until the grant is dropped.
    #[must_use = "dropping the grant revokes the token"]
    pub fn allow(self: &Arc<Self>, token: &str, opens: T) -> RunGrant<T> {
        let mut granted = self.lock();
        let id = granted.next_id;
        granted.next_id += 1;
        granted.tokens.push((id, digest(token), opens));
        RunGrant { tokens: self.clone(), id }
    }

    /// What a token opens; `None` when it is not valid. How long it takes says nothing about valid tokens.
    pub fn find(&self, token: &str) -> Option<T> {
        let shown = digest(token);
        let differing = |known: &[u8; 32]| known.iter().zip(&shown).fold(0, |all, (a, b)| all | (a ^ b));
        self.lock().tokens.iter().filter(|(_, known, _)| differing(known) == 0).map(|(_, _, opens)| opens.clone()).next_back()
    }
}

impl<T> RunTokens<T> {
    fn lock(&self) -> MutexGuard<'_, Granted<T>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// A token is valid. Dropping this revokes it.
#[derive(Debug)]
pub struct RunGrant<T> {
    tokens: Arc<RunTokens<T>>,
    id: u64,
}

impl<T> Drop for RunGrant<T> {
    fn drop(&mut self) {
        self.tokens.lock().tokens.retain(|(id, ..)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_valid_until_its_grant_is_dropped() {
        let tokens = Arc::new(RunTokens::default());
        let first = tokens.allow("first", 1);
        let second = tokens.allow("two", 2);
        assert_eq!([tokens.find("first"), tokens.find("two"), tokens.find("firs"), tokens.find("")], [Some(1), Some(2), None, None]);
        assert!(!format!("{tokens:?}").contains("first"));
        drop(first);
        assert_eq!([tokens.find("first"), tokens.find("two")], [None, Some(2)]);
        drop(second);
        assert_eq!(tokens.find("two"), None);
    }
}
