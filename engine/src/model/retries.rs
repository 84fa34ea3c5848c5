//! How long to wait before another try, and when to give up. Does no I/O.

use std::time::Duration;

use super::failure::{ModelFailure, ModelFailureClass};

/// The longest wait that an endpoint may ask for.
const MAX_REQUESTED_WAIT: Duration = Duration::from_secs(120);

/// Exponential back-off between model calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first wait. Each further one is twice as long.
    pub first: Duration,
    /// The longest wait, unless the endpoint asks for a longer one.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), cap: Duration::from_secs(60) }
    }
}

impl RetryPolicy {
    /// The wait after `failed` failures in a row, at least one; `None` means to give up. `random` in `0.0..1.0` spreads the calls of many
    /// agents.
    #[must_use]
    pub fn wait_after(&self, failed: u32, failure: &ModelFailure, random: f64) -> Option<Duration> {
        match failure.class {
            ModelFailureClass::History(_) => return None,
            ModelFailureClass::TryAgain { tries: Some(tries) } if failed >= tries => return None,
            ModelFailureClass::TryAgain { .. } | ModelFailureClass::Unusable | ModelFailureClass::WaitForPerson(_) => {}
        }
        let bound = self.first.saturating_mul(2u32.saturating_pow(failed - 1)).min(self.cap);
        let own = bound.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0));
        Some(failure.retry_after.map_or(own, |requested| requested.min(MAX_REQUESTED_WAIT).max(own)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::HistoryFault;

    const ALWAYS: ModelFailureClass = ModelFailureClass::TryAgain { tries: None };

    fn failure(class: ModelFailureClass, after: Option<u64>) -> ModelFailure {
        let retry_after = after.map(Duration::from_secs);
        ModelFailure { summary: String::new(), detail: String::new(), class, retry_after, usage: None, status: 0, window_tokens: None }
    }

    #[test]
    fn waits_double_up_to_the_cap_and_the_endpoint_may_ask_for_longer_ones_up_to_a_limit() {
        let retries = RetryPolicy { first: Duration::from_secs(1), cap: Duration::from_secs(3) };
        let waits =
            |failure: &ModelFailure| (1..6).map(|n| retries.wait_after(n, failure, 1.0).map(|wait| wait.as_secs())).collect::<Vec<_>>();
        assert_eq!(waits(&failure(ALWAYS, None)), [Some(1), Some(2), Some(3), Some(3), Some(3)]);
        assert_eq!(waits(&failure(ALWAYS, Some(7))), [Some(7); 5]);
        assert_eq!(waits(&failure(ALWAYS, Some(100_000))), [Some(120); 5]);
        assert_eq!(waits(&failure(ModelFailureClass::TryAgain { tries: Some(3) }, None)), [Some(1), Some(2), None, None, None]);
        assert_eq!(waits(&failure(ModelFailureClass::History(HistoryFault::Refused), Some(7))), [None; 5]);
        assert_eq!(retries.wait_after(u32::MAX, &failure(ALWAYS, None), 0.0), Some(Duration::from_millis(1500)));
    }
}
