//! An endpoint and those that stand in for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use yoi_wire::entry::{AgentConfig, Assistant, ModelConfig};
use yoi_wire::manifest::ModelEndpoint;

use super::{DeltaSink, ModelClient, ModelError, ModelFailure, ModelFailureClass, ModelRequest, ModelSecrets, ModelTimeouts};

/// Failures in a row that another try may mend, before the next endpoint is asked.
const TRIES_EACH: u32 = 3;
/// After this long the first endpoint is asked again. A change costs what the endpoint has cached, and hides the other's reasoning.
const FALLBACK_STAY: Duration = Duration::from_secs(600);

/// Calls an endpoint, and its fallbacks while it fails.
#[derive(Debug)]
pub struct FallbackModels {
    clients: Vec<ModelClient>,
    choice: Mutex<Choice>,
}

/// Which endpoint to ask.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    current: usize,
    failures: u32,
    /// When an endpoint other than the first was chosen.
    since: Option<Instant>,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterFailure {
    /// Ask the next endpoint now.
    AskNext,
    /// Tell the caller, who waits and calls again.
    Return,
}

impl FallbackModels {
    /// `secrets` has those of the endpoint, then those of its fallbacks in their order.
    ///
    /// # Errors
    /// One of the clients cannot be set up.
    pub fn new(endpoint: &ModelEndpoint, secrets: &[ModelSecrets], timeouts: ModelTimeouts) -> Result<Self, ModelError> {
        let none = ModelSecrets::default();
        let endpoints = std::iter::once(endpoint).chain(&endpoint.fallbacks).enumerate();
        let clients = endpoints.map(|(at, endpoint)| ModelClient::new(endpoint, secrets.get(at).unwrap_or(&none), timeouts));
        Ok(Self { clients: clients.collect::<Result<_, _>>()?, choice: Mutex::default() })
    }

    /// Format, name and options of the first endpoint.
    #[must_use]
    pub fn config(&self) -> ModelConfig {
        self.clients.first().map(ModelClient::config).unwrap_or_default()
    }

    /// Calls one endpoint after another until one answers: [`Assistant::model`] and [`Assistant::api`] say which. A failure that another try may mend
    /// is returned, and counted: the third in a row leads to the next endpoint. The last endpoint's failure is returned.
    ///
    /// # Errors
    /// As [`ModelClient::call`]. When all have failed, the next call begins with the first.
    pub async fn call(&self, request: ModelRequest, sink: DeltaSink) -> Result<Assistant, ModelFailure> {
        loop {
            let at = self.change(|choice| choice.begin(Instant::now()));
            let Some(client) = self.clients.get(at) else { return Err(ModelFailure::call_panicked()) };
            let answer = client.call(for_client(&request, client), sink.clone()).await;
            let failure = match answer {
                Ok(answer) => {
                    self.change(Choice::answered);
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            let after = self.change(|choice| choice.failed(failure.class, self.clients.len(), Instant::now()));
            if after == AfterFailure::Return {
                return Err(failure);
            }
            tracing::warn!(failure = failure.summary, "the next endpoint of spec.model.fallbacks is asked");
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Choice) -> T) -> T {
        change(&mut self.choice.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The request with the client's own model and options.
fn for_client(request: &ModelRequest, client: &ModelClient) -> ModelRequest {
    if request.config.model == client.config {
        return request.clone();
    }
    let config = AgentConfig { model: client.config(), ..(*request.config).clone() };
    ModelRequest { config: Arc::new(config), ..request.clone() }
}

impl Choice {
    fn begin(&mut self, now: Instant) -> usize {
        if self.since.is_some_and(|since| now.duration_since(since) >= FALLBACK_STAY) {
            *self = Self::default();
        }
        self.current
    }

    fn answered(&mut self) {
        self.failures = 0;
    }

    fn failed(&mut self, class: ModelFailureClass, endpoints: usize, now: Instant) -> AfterFailure {
        self.failures += 1;
        let exhausted = match class {
            ModelFailureClass::TryAgain { tries } => self.failures >= tries.unwrap_or(TRIES_EACH).min(TRIES_EACH),
            ModelFailureClass::WaitForPerson(_) => true,
            // Another endpoint would read the same conversation. It is healed first.
            ModelFailureClass::History(_) => false,
        };
        if !exhausted {
            return AfterFailure::Return;
        }
        if self.current + 1 < endpoints {
            *self = Self { current: self.current + 1, failures: 0, since: Some(now) };
            return AfterFailure::AskNext;
        }
        if endpoints > 1 {
            *self = Self::default();
        }
        AfterFailure::Return
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::WaitReason;

    const TRY_AGAIN: ModelFailureClass = ModelFailureClass::TryAgain { tries: None };
    const KEY: ModelFailureClass = ModelFailureClass::WaitForPerson(WaitReason::Key);

    #[test]
    fn the_third_failure_in_a_row_leads_to_the_next_endpoint_and_a_persons_turn_at_once() {
        let now = Instant::now();
        let mut choice = Choice::default();
        assert_eq!(choice.failed(TRY_AGAIN, 3, now), AfterFailure::Return);
        assert_eq!(choice.failed(TRY_AGAIN, 3, now), AfterFailure::Return);
        choice.answered();
        let after: Vec<_> = (0..3).map(|_| choice.failed(TRY_AGAIN, 3, now)).collect();
        assert_eq!((after, choice.begin(now)), (vec![AfterFailure::Return, AfterFailure::Return, AfterFailure::AskNext], 1));
        assert_eq!((choice.failed(KEY, 3, now), choice.begin(now)), (AfterFailure::AskNext, 2));
        // All have failed: the caller waits, and the first is asked again.
        assert_eq!((choice.failed(KEY, 3, now), choice.begin(now)), (AfterFailure::Return, 0));
    }

    #[test]
    fn a_conversation_that_is_refused_is_given_to_no_other_endpoint() {
        let mut choice = Choice::default();
        for _ in 0..5 {
            let refused = ModelFailureClass::History(crate::model::HistoryFault::TooLong);
            assert_eq!(choice.failed(refused, 2, Instant::now()), AfterFailure::Return);
        }
        assert_eq!(choice.begin(Instant::now()), 0);
    }

    #[test]
    fn a_fallback_stays_for_ten_minutes() {
        let now = Instant::now();
        let mut choice = Choice::default();
        assert_eq!(choice.failed(KEY, 2, now), AfterFailure::AskNext);
        choice.answered();
        assert_eq!(choice.begin(now + Duration::from_secs(599)), 1);
        assert_eq!(choice.begin(now + Duration::from_secs(600)), 0);
    }
}
