//! When to ask again, and when to give up. Pure.

use std::time::Duration;

use super::failure::{Again, Failure};

/// The longest wait that an endpoint may ask for.
const LONGEST: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// The first wait; it doubles.
    pub first: Duration,
    /// No wait is longer, unless the endpoint asks for it.
    pub cap: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), cap: Duration::from_secs(60) }
    }
}

impl Retries {
    /// The wait after the `failed`-th failure in a row, from 1; `None`: give up. `chance` in `0.0..1.0` spreads a fleet.
    #[must_use]
    pub fn after(&self, failed: u32, failure: &Failure, chance: f64) -> Option<Duration> {
        match failure.again {
            Again::Never => return None,
            Again::Times(tries) if failed >= tries => return None,
            Again::Times(_) | Again::Always => {}
        }
        let bound = self.first.saturating_mul(2u32.saturating_pow(failed - 1)).min(self.cap);
        let ours = bound.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0));
        Some(failure.after.map_or(ours, |asked| asked.min(LONGEST).max(ours)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(again: Again, after: Option<u64>) -> Failure {
        Failure { summary: String::new(), detail: String::new(), again, after: after.map(Duration::from_secs), key_refused: false }
    }

    #[test]
    fn waits_double_up_to_the_cap_and_the_endpoints_wish_is_heard_up_to_a_bound() {
        let retries = Retries { first: Duration::from_secs(1), cap: Duration::from_secs(3) };
        let waits = |failure: &Failure| (1..6).map(|n| retries.after(n, failure, 1.0).map(|wait| wait.as_secs())).collect::<Vec<_>>();
        assert_eq!(waits(&failure(Again::Always, None)), [Some(1), Some(2), Some(3), Some(3), Some(3)]);
        assert_eq!(waits(&failure(Again::Always, Some(7))), [Some(7); 5]);
        assert_eq!(waits(&failure(Again::Always, Some(100_000))), [Some(120); 5]);
        assert_eq!(waits(&failure(Again::Times(3), None)), [Some(1), Some(2), None, None, None]);
        assert_eq!(waits(&failure(Again::Never, Some(7))), [None; 5]);
        assert_eq!(retries.after(u32::MAX, &failure(Again::Always, None), 0.0), Some(Duration::from_millis(1500)));
    }
}
