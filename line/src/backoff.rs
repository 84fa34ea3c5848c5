//! How long to wait before the next dial. Pure: chance comes in by argument.

use std::sync::Arc;
use std::time::Duration;

/// A number in `0.0..1.0`, another one each time.
pub type RandomFraction = Arc<dyn Fn() -> f64 + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// The bound of the first delay; it doubles with each failure.
    pub first: Duration,
    /// No delay is longer.
    pub cap: Duration,
    /// A line that was up this long forgives all failures before it. A shorter one counts as one more: a gateway that accepts and drops at
    /// once must not be dialled in a tight loop.
    pub settled: Duration,
}

impl Default for BackoffPolicy {
    fn default() -> Self {
        Self { first: Duration::from_millis(250), cap: Duration::from_secs(10), settled: Duration::from_secs(10) }
    }
}

#[derive(Clone, Debug)]
pub struct Backoff {
    policy: BackoffPolicy,
    failures: u32,
}

impl Backoff {
    pub fn new(policy: BackoffPolicy) -> Self {
        Self { policy, failures: 0 }
    }

    /// One more failure, after a line that was up for `up`, if there was one: the delay until the next dial, half of it by rng, so that
    /// a fleet that lost the same gateway does not come back as one wave.
    pub fn after_failure(&mut self, up: Option<Duration>, rng: f64) -> Duration {
        if up.is_some_and(|up| up >= self.policy.settled) {
            self.failures = 0;
        }
        let bound = self.policy.first.saturating_mul(2u32.saturating_pow(self.failures)).min(self.policy.cap);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(0.5 + 0.5 * rng.clamp(0.0, 1.0))
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
    fn chance_moves_a_delay_between_half_and_whole() {
        for (rng, millis) in [(0.0, 50), (0.5, 75), (1.0, 100), (-3.0, 50), (9.0, 100)] {
            assert_eq!(Backoff::new(POLICY).after_failure(None, rng).as_millis(), millis);
        }
    }

    #[test]
    fn only_a_settled_line_forgives() {
        let mut backoff = Backoff::new(POLICY);
        for _ in 0..3 {
            backoff.after_failure(None, 1.0);
        }
        assert_eq!(backoff.after_failure(Some(Duration::from_secs(4)), 1.0).as_millis(), 800);
        assert_eq!(backoff.after_failure(Some(Duration::from_secs(5)), 1.0).as_millis(), 100);
    }
}
