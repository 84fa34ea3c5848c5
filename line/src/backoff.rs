//! How long to wait before the next dial. The functions are pure: the random number is an argument.

use std::sync::Arc;
use std::time::Duration;

/// Returns a random number in `0.0..1.0`, a new one at each call.
pub type RandomFraction = Arc<dyn Fn() -> f64 + Send + Sync>;

/// The bounds of a [`Backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// The upper bound of the first delay. The bound doubles with each failure.
    pub first: Duration,
    /// The largest upper bound: no delay is longer.
    pub cap: Duration,
    /// A line that was up for this long resets the failures. A line that ended sooner counts as one more failure, because a gateway that
    /// accepts and closes at once must not be dialled in a tight loop.
    pub settled: Duration,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        Self { first: Duration::from_millis(250), cap: Duration::from_secs(10), settled: Duration::from_secs(10) }
    }
}

/// Counts failures and computes the delay before the next attempt.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
}

impl Backoff {
    /// A backoff without failures.
    pub fn new(policy: BackoffPolicy) -> Self {
        Self { policy, failures: 0 }
    }

    /// Counts one more failure and returns the delay until the next attempt. `up` is how long the line was up, if it came up at all.
    ///
    /// `random` moves the delay between half its bound and the whole of it, so that agents that lost the same gateway do not all dial at
    /// the same time.
    pub fn after_failure(&mut self, up: Option<Duration>, random: f64) -> Duration {
        if up.is_some_and(|up| up >= self.policy.settled) {
            self.failures = 0;
        }
        let bound = self.policy.first.saturating_mul(2u32.saturating_pow(self.failures)).min(self.policy.cap);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BackoffPolicy =
        BackoffPolicy { first: Duration::from_millis(100), cap: Duration::from_secs(1), settled: Duration::from_secs(5) };

    #[test]
    fn delays_double_up_to_the_cap_and_stay_there() {
        let mut backoff = Backoff::new(POLICY);
        let delays: Vec<_> = (0..6).map(|_| backoff.after_failure(None, 1.0).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1000, 1000]);
        for _ in 0..100 {
            assert_eq!(backoff.after_failure(None, 1.0), POLICY.cap);
        }
    }

    #[test]
    fn the_random_number_moves_a_delay_between_half_and_whole() {
        for (random, millis) in [(0.0, 50), (0.5, 75), (1.0, 100), (-3.0, 50), (9.0, 100)] {
            assert_eq!(Backoff::new(POLICY).after_failure(None, random).as_millis(), millis);
        }
    }

    #[test]
    fn only_a_settled_line_resets_the_failures() {
        let mut backoff = Backoff::new(POLICY);
        for _ in 0..3 {
            backoff.after_failure(None, 1.0);
        }
        assert_eq!(backoff.after_failure(Some(Duration::from_secs(4)), 1.0).as_millis(), 800);
        assert_eq!(backoff.after_failure(Some(Duration::from_secs(5)), 1.0).as_millis(), 100);
    }
}
