//! How fast warm claims are made, in the whole cluster: some at once, and then one a second. A burst of agents must not become a burst of volumes.

use std::time::Duration;

/// A token bucket. Time comes in by argument.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    most: u32,
    every: Duration,
    tokens: u32,
    /// Up to when tokens were added.
    at: jiff::Timestamp,
}

impl TokenBucket {
    /// A full bucket of `most` tokens that gains one `every` so long.
    #[must_use]
    pub fn new(most: u32, every: Duration, now: jiff::Timestamp) -> Self {
        TokenBucket { most, every, tokens: most, at: now }
    }

    /// Takes one token. False: there is none.
    pub fn take(&mut self, now: jiff::Timestamp) -> bool {
        let passed = Duration::try_from(now.duration_since(self.at)).unwrap_or_default();
        let gained = passed.as_millis().checked_div(self.every.as_millis()).unwrap_or(u128::MAX);
        if gained >= u128::from(self.most.saturating_sub(self.tokens)) {
            (self.tokens, self.at) = (self.most, now);
        } else if let Ok(gained) = u32::try_from(gained) {
            self.tokens += gained;
            self.at = self.at.saturating_add(self.every * gained).unwrap_or(now);
        }
        let has_one = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(1_700_000_000_000 + milliseconds).unwrap()
    }

    #[test]
    fn a_full_bucket_gives_its_tokens_at_once_and_then_one_a_second() {
        let mut bucket = TokenBucket::new(2, Duration::from_secs(1), at(0));
        let taken: Vec<bool> = [0, 0, 0, 999, 1000, 1500, 2000, 9000, 9000, 9000].map(|time| bucket.take(at(time))).to_vec();
        assert_eq!(taken, [true, true, false, false, true, false, true, true, true, false]);
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let mut bucket = TokenBucket::new(1, Duration::from_secs(1), at(5000));
        assert!(bucket.take(at(5000)));
        assert!(!bucket.take(at(0)) && !bucket.take(at(5500)) && bucket.take(at(6000)));
    }
}
