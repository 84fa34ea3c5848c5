//! An endpoint and those that stand in for it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use yoi_wire::entry::{AgentConfig, Assistant, ModelConfig};
use yoi_wire::manifest::ModelEndpoint;

use super::upstream::takes_secret;
use super::{DeltaSink, ModelClient, ModelError, ModelFailure, ModelFailureClass, ModelRequest, ModelSecrets, ModelTimeouts};

/// Failures in a row that another try may mend, before the next endpoint is asked.
const TRIES_EACH: u32 = 3;
/// After this long the first endpoint is asked again. A change costs what the endpoint has cached, and hides the other's reasoning.
const FALLBACK_STAY: Duration = Duration::from_secs(600);

/// Calls an endpoint, and its fallbacks while it fails.
#[derive(Debug)]
pub struct FallbackModels {
    clients: Vec<ModelClient>,
    /// Which of them take something from a Secret.
    take_secrets: BTreeSet<usize>,
    choice: Mutex<Choice>,
    refusals: Mutex<Refusals>,
}

/// The endpoints whose last word was that they want other Secrets.
#[derive(Debug, Default)]
struct Refusals {
    endpoints: BTreeSet<usize>,
    /// Since when there is one.
    since: Option<Instant>,
}

/// Which endpoint to ask.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    current: usize,
    failures: u32,
    /// When an endpoint other than the first was chosen.
    since: Option<Instant>,
}

/// A call of one endpoint that brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedTry {
    /// What failed.
    pub failure: ModelFailure,
    /// Another endpoint is asked by the next call, which need not wait.
    pub ask_next: bool,
}

impl FailedTry {
    fn last(failure: ModelFailure) -> Self {
        Self { failure, ask_next: false }
    }
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterFailure {
    /// The next endpoint is asked now.
    AskNext,
    /// The caller waits and calls again.
    Return,
}

impl FallbackModels {
    /// `secrets` has those of the endpoint, then those of its fallbacks in their order.
    ///
    /// # Errors
    /// One of the clients cannot be set up.
    pub fn new(endpoint: &ModelEndpoint, secrets: &[ModelSecrets], timeouts: ModelTimeouts) -> Result<Self, ModelError> {
        let none = ModelSecrets::default();
        let endpoints = || {
            let all = std::iter::once(endpoint).chain(&endpoint.fallbacks).enumerate();
            all.map(|(at, endpoint)| (at, endpoint, secrets.get(at).unwrap_or(&none)))
        };
        let clients = endpoints().map(|(_, endpoint, secrets)| ModelClient::new(endpoint, secrets, timeouts));
        let take_secrets = endpoints().filter(|(_, endpoint, secrets)| takes_secret(endpoint, secrets)).map(|(at, ..)| at);
        Ok(Self {
            clients: clients.collect::<Result<_, _>>()?,
            take_secrets: take_secrets.collect(),
            choice: Mutex::default(),
            refusals: Mutex::default(),
        })
    }

    /// For how long an endpoint has refused what its Secrets held when this process started, or the account of its key; `None` when none does. An
    /// endpoint that is then only out of reach still counts.
    #[must_use]
    pub fn refused_for(&self) -> Option<Duration> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).since.map(|since| since.elapsed())
    }

    /// Format, name and options of the first endpoint.
    #[must_use]
    pub fn config(&self) -> ModelConfig {
        self.clients.first().map(ModelClient::config).unwrap_or_default()
    }

    /// Calls the endpoint whose turn it is: [`Assistant::model`] and [`Assistant::api`] say which. A failure that another try may mend is counted:
    /// the third in a row leads to the next endpoint, which [`FailedTry::ask_next`] says.
    ///
    /// # Errors
    /// As [`ModelClient::call`]. When all have failed, the next call begins with the first.
    pub async fn call(&self, request: ModelRequest, sink: DeltaSink) -> Result<Assistant, FailedTry> {
        let at = self.change(|choice| choice.begin(Instant::now()));
        let Some(client) = self.clients.get(at) else { return Err(FailedTry::last(ModelFailure::call_panicked())) };
        let failure = match client.call(for_client(&request, client), sink).await {
            Ok(answer) => {
                self.change(Choice::answered);
                self.change_refusals(|refusals| refusals.answered(at));
                return Ok(answer);
            }
            Err(failure) => failure,
        };
        if self.take_secrets.contains(&at) && failure.class.wants_another_secret() {
            self.change_refusals(|refusals| refusals.refused(at, Instant::now()));
        }
        let after = self.change(|choice| choice.failed(failure.class, self.clients.len(), Instant::now()));
        Err(FailedTry { failure, ask_next: after == AfterFailure::AskNext })
    }

    fn change_refusals(&self, change: impl FnOnce(&mut Refusals)) {
        change(&mut self.refusals.lock().unwrap_or_else(PoisonError::into_inner));
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

impl Refusals {
    fn refused(&mut self, at: usize, now: Instant) {
        self.endpoints.insert(at);
        self.since.get_or_insert(now);
    }

    fn answered(&mut self, at: usize) {
        self.endpoints.remove(&at);
        if self.endpoints.is_empty() {
            self.since = None;
        }
    }
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
            ModelFailureClass::Unusable => self.failures >= TRIES_EACH,
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
    fn a_request_that_is_refused_without_a_reason_is_given_to_the_next_endpoint_at_once() {
        let (now, unknown) = (Instant::now(), ModelFailureClass::WaitForPerson(WaitReason::Request));
        let mut choice = Choice::default();
        assert_eq!((choice.failed(unknown, 2, now), choice.begin(now)), (AfterFailure::AskNext, 1));
        assert_eq!((choice.failed(unknown, 2, now), choice.begin(now)), (AfterFailure::Return, 0));
    }

    #[test]
    fn an_endpoint_wants_another_secret_until_it_answers_itself() {
        let now = Instant::now();
        let mut refusals = Refusals::default();
        refusals.refused(0, now);
        refusals.refused(1, now + Duration::from_secs(9));
        refusals.answered(1);
        assert_eq!(refusals.since, Some(now), "an answer of a fallback is none of the first endpoint's");
        refusals.answered(0);
        assert_eq!(refusals.since, None);
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
