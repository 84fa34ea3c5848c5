//! One call of the model with its retries, within the limit of tokens.
//!
//! Nothing is tried without end at the user's cost: failures that tokens were paid for are counted, and the limit is looked at before each try.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use yoi_wire::control::DeltaKind;
use yoi_wire::entry::TokenUsage;
use yoi_wire::hub::ReportReason;

use super::{ConversationObserver, FailedCall, SecretRenewal};
use crate::conversation::{ConversationEvent, EffectId, ModelFailed, ModelFailureKind, PromptRequest};
use crate::estimate::{tokens_of_bytes, tokens_of_config, tokens_of_item};
use crate::model::{
    DeltaSink, FailedTry, FallbackModels, HistoryFault, ModelDelta, ModelFailure, ModelFailureClass, ModelRequest, RetryPolicy, WaitReason,
};
use crate::open_session::OpenSession;

/// Tries of a call for a summary.
const SUMMARY_TRIES: u32 = 5;
/// Failures in a row that tokens were paid for, before the call is given up.
const MAX_PAID_FAILURES: u32 = 10;
/// Tries of an endpoint whose answers cannot be used, before a person has to look.
const MAX_UNUSABLE_TRIES: u32 = 12;
/// Errors of a server in a row, with the same words for the same request, before a person has to look. A server that restarts has other words.
const MAX_SAME_ERRORS: u32 = 12;

/// How long a call is tried before the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelPatience {
    /// In all, while the endpoint does not answer; `None`: without end.
    pub total: Option<Duration>,
    /// The first wait for a person.
    pub first_person: Duration,
    /// Each further wait for a person.
    pub next_person: Duration,
}

impl Default for ModelPatience {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self { total: None, first_person: minutes(5), next_person: minutes(30) }
    }
}

pub(super) struct ModelCallTask {
    pub effect: EffectId,
    pub summary: bool,
    pub model: Arc<FallbackModels>,
    pub retries: RetryPolicy,
    pub patience: ModelPatience,
    pub random: fn() -> f64,
    pub observer: Arc<dyn ConversationObserver>,
    pub events: mpsc::UnboundedSender<ConversationEvent>,
    pub retry: Arc<Notify>,
    pub session: Arc<OpenSession>,
    pub secrets: Arc<dyn SecretRenewal>,
    pub account: TokenAccount,
}

/// What the agent may still use.
pub(super) struct TokenAccount {
    /// Tokens in and out over the agent's life.
    pub used: u64,
    pub limit: watch::Receiver<Option<u64>>,
}

impl TokenAccount {
    fn is_used_up(&self) -> bool {
        self.limit.borrow().is_some_and(|limit| self.used >= limit)
    }
}

/// Failures since the last answer.
#[derive(Debug, Default)]
struct Failures {
    /// Those after which the caller waits.
    count: u32,
    /// Those that tokens were paid for.
    paid: u32,
    /// Waits for a person.
    waited: u32,
    /// Errors of the server in a row with the same words.
    same: u32,
    last_words: String,
}

impl Failures {
    /// Counts a failure, and returns its class in the light of those before it.
    fn add(&mut self, failure: &ModelFailure, paid: bool, waits: bool) -> ModelFailureClass {
        self.count += u32::from(waits);
        self.paid += u32::from(paid);
        let words = without_numbers(&failure.detail);
        let same = failure.status == 500 && words == self.last_words;
        self.same = if same { self.same + 1 } else { 1 };
        self.last_words = words;
        match failure.class {
            ModelFailureClass::Unusable if self.count >= MAX_UNUSABLE_TRIES => ModelFailureClass::WaitForPerson(WaitReason::Answers),
            ModelFailureClass::TryAgain { tries: None } if self.same >= MAX_SAME_ERRORS => {
                ModelFailureClass::WaitForPerson(WaitReason::Answers)
            }
            class => class,
        }
    }
}

/// The words of a message that are the same each time: numbers and ids of requests are not.
fn without_numbers(message: &str) -> String {
    let words = message.split(|letter: char| letter.is_whitespace() || ",;:()[]{}\"'".contains(letter));
    words.filter(|word| !word.is_empty() && !word.contains(|letter: char| letter.is_ascii_digit())).collect::<Vec<_>>().join(" ")
}

impl ModelCallTask {
    /// Calls the model until it answers, the tokens are used up or the patience is at its end. Returns the event that says so.
    pub async fn run(mut self, request: PromptRequest) -> ConversationEvent {
        let effect = self.effect;
        let (begun, mut failures) = (Instant::now(), Failures::default());
        let PromptRequest { config, items, offer_tools } = request;
        let request = ModelRequest { config, items, offer_tools };
        let ended =
            |kind, message, window_tokens| ConversationEvent::ModelFailed { effect, failure: ModelFailed { kind, message, window_tokens } };
        loop {
            if self.account.is_used_up() {
                let message = "the agent's tokens are used up: spec.limits.tokens allows no further call of its model".to_owned();
                return ended(ModelFailureKind::LimitReached, message, None);
            }
            // Also when this future is dropped in the middle of the call.
            let mut used = UsedTokens { sink: self.sink(), events: self.events.clone(), request: request.clone(), reason: "Cancelled" };
            let answer = self.model.call(request.clone(), used.sink.clone()).await;
            for message in used.sink.take_changes() {
                let _ = self.events.send(ConversationEvent::Noticed { reason: "ModelRequestChanged".to_owned(), message });
            }
            let FailedTry { failure, ask_next } = match answer {
                Ok(answer) => {
                    used.end_with_answer(answer.usage);
                    self.observer.on_model_called(None);
                    return ConversationEvent::Answered { effect, answer };
                }
                Err(failed) => failed,
            };
            used.reason = "Failed";
            let cost = used.tokens().map_or(0, |usage| usage.input_tokens.saturating_add(usage.output_tokens));
            self.account.used = self.account.used.saturating_add(cost);
            drop(used);
            self.session.feed.discard_answer();
            let class = failures.add(&failure, cost > 0, !ask_next);
            let failed = failures.count;
            if failures.paid >= MAX_PAID_FAILURES {
                let message = format!(
                    "{}; {MAX_PAID_FAILURES} tries in a row used tokens and brought no answer, so none is made after them",
                    failure.detail
                );
                self.observer.on_model_called(failed_call(&failure, class));
                return ended(ModelFailureKind::Unreachable, message, None);
            }
            if ask_next {
                tracing::warn!(failure = failure.summary, "the next fallback of the model is asked");
                continue;
            }
            let (kind, person) = kind(class);
            let wait = match class {
                ModelFailureClass::WaitForPerson(reason) => (!self.summary).then(|| self.wait_for_person(reason, &mut failures, &failure)),
                ModelFailureClass::TryAgain { .. } | ModelFailureClass::Unusable | ModelFailureClass::History(_) => {
                    self.retries.wait_after(failed, &failure, (self.random)())
                }
            };
            let over = |wait: &Duration| person || self.patience.total.is_none_or(|total| begun.elapsed() + *wait <= total);
            let wait = wait.filter(over).filter(|_| !self.summary || failed < SUMMARY_TRIES);
            tracing::warn!(failure = failure.summary, failed, retry_in_seconds = wait.map(|wait| wait.as_secs_f64()), "model call failed");
            self.observer.on_model_called(failed_call(&failure, class));
            let Some(wait) = wait else { return ended(kind, failure.detail, failure.window_tokens) };
            let reason = if person { ReportReason::ModelRefused } else { ReportReason::ModelUnreachable };
            let reason = reason.as_str().to_owned();
            let message = failure.detail.clone();
            // The last fallback may be out of reach while another endpoint wants a Secret: a person can then do something, too.
            let waits_for_person = person || self.model.refused_for().is_some();
            let _ = self.events.send(ConversationEvent::ModelTrouble { effect, reason, message, waits_for_person });
            let asked = tokio::select! {
                () = tokio::time::sleep(self.until_renewal(class).map_or(wait, |renewal| wait.min(renewal))) => false,
                () = self.retry.notified() => true,
            };
            if self.model.refused_for().is_some_and(|refused| asked || self.secrets.due_in(refused).is_zero()) {
                self.secrets.renew();
                // The end of the process ends this task, too.
                std::future::pending::<()>().await;
            }
        }
    }

    /// How long a wait may be at most, so that a Secret is read in time. Credit and quota have a slower rhythm, which is kept.
    fn until_renewal(&self, class: ModelFailureClass) -> Option<Duration> {
        match class {
            ModelFailureClass::WaitForPerson(
                WaitReason::Credit | WaitReason::Quota | WaitReason::Settings | WaitReason::Request | WaitReason::Answers,
            ) => None,
            ModelFailureClass::WaitForPerson(WaitReason::Key)
            | ModelFailureClass::TryAgain { .. }
            | ModelFailureClass::Unusable
            | ModelFailureClass::History(_) => self.model.refused_for().map(|refused| self.secrets.due_in(refused)),
        }
    }

    /// What comes of the answer is shown at once, and told to the conversation when it begins.
    fn sink(&self) -> DeltaSink {
        let (session, events, effect, summary) = (self.session.clone(), self.events.clone(), self.effect, self.summary);
        let begun = AtomicBool::new(false);
        DeltaSink::new(move |delta| {
            if !begun.swap(true, Ordering::Relaxed) {
                let _ = events.send(ConversationEvent::OutputBegan { effect });
            }
            // A summary is no answer: it is shown when it is used.
            if summary {
                return;
            }
            match delta {
                ModelDelta::Text(text) => session.feed.add(DeltaKind::Text, None, &text),
                ModelDelta::Reasoning(text) => session.feed.add(DeltaKind::Reasoning, None, &text),
                ModelDelta::ToolCall { index: _, call_id, tool, args } => {
                    session.feed.add(DeltaKind::ToolCall, Some((&call_id, &tool)), &args);
                }
            }
        })
    }

    /// A key is tried again soon: the endpoint may have taken a new one up late. Everything else waits for minutes.
    fn wait_for_person(&self, reason: WaitReason, failures: &mut Failures, failure: &ModelFailure) -> Duration {
        failures.waited += 1;
        match reason {
            WaitReason::Key => self.retries.wait_after(failures.count, failure, (self.random)()).unwrap_or(self.patience.first_person),
            WaitReason::Credit | WaitReason::Quota | WaitReason::Settings | WaitReason::Request | WaitReason::Answers => {
                if failures.waited == 1 { self.patience.first_person } else { self.patience.next_person }
            }
        }
    }
}

/// Tells the tokens of a call that brings no answer, whatever ends it, and of one whose answer tells none.
struct UsedTokens {
    sink: DeltaSink,
    events: mpsc::UnboundedSender<ConversationEvent>,
    request: ModelRequest,
    reason: &'static str,
}

impl UsedTokens {
    /// As the endpoint counted them. Where it tells none and an answer has begun, they are reckoned by the sizes of request and answer.
    fn tokens(&self) -> Option<TokenUsage> {
        let told = self.sink.usage().filter(|usage| usage.input_tokens.saturating_add(usage.output_tokens) > 0);
        let bytes = self.sink.bytes();
        told.or_else(|| (bytes > 0).then(|| self.reckoned(bytes)))
    }

    fn reckoned(&self, bytes: usize) -> TokenUsage {
        let input_tokens = tokens_of_config(&self.request.config) + self.request.items.iter().map(tokens_of_item).sum::<u64>();
        let output_tokens = tokens_of_bytes(bytes).max(1);
        TokenUsage { input_tokens, output_tokens, ..TokenUsage::default() }
    }

    /// The answer has come. Its entry has the tokens, if the endpoint has told them.
    fn end_with_answer(mut self, told: Option<TokenUsage>) {
        if told.is_none_or(|usage| usage.input_tokens.saturating_add(usage.output_tokens) == 0) {
            let usage = self.reckoned(self.sink.bytes());
            let _ = self.events.send(ConversationEvent::Used { usage, reason: "Reckoned".to_owned() });
        }
        self.sink = DeltaSink::none();
    }
}

impl Drop for UsedTokens {
    fn drop(&mut self) {
        if let Some(usage) = self.tokens() {
            let _ = self.events.send(ConversationEvent::Used { usage, reason: self.reason.to_owned() });
        }
    }
}

/// What the condition says. A conversation that is too long is no trouble of the endpoint: it is made shorter.
fn failed_call(failure: &ModelFailure, class: ModelFailureClass) -> Option<FailedCall> {
    let reason = match class {
        ModelFailureClass::TryAgain { .. } | ModelFailureClass::Unusable => ReportReason::ModelUnreachable,
        ModelFailureClass::WaitForPerson(_) => ReportReason::ModelRefused,
        ModelFailureClass::History(HistoryFault::Refused) => ReportReason::ModelRefusedHistory,
        ModelFailureClass::History(HistoryFault::TooLong) => return None,
    };
    let summary = if class == ModelFailureClass::WaitForPerson(WaitReason::Answers) {
        let happened = failure.summary.split("; ").next().unwrap_or_default();
        format!("{happened}, and so again and again: find out why; the log holds its words")
    } else {
        failure.summary.clone()
    };
    Some(FailedCall { summary, reason })
}

/// What a failure means when it is not tried again, and whether it waits for a person.
fn kind(class: ModelFailureClass) -> (ModelFailureKind, bool) {
    match class {
        ModelFailureClass::TryAgain { .. } | ModelFailureClass::Unusable => (ModelFailureKind::Unreachable, false),
        ModelFailureClass::WaitForPerson(_) => (ModelFailureKind::Unreachable, true),
        ModelFailureClass::History(HistoryFault::TooLong) => (ModelFailureKind::TooLong, false),
        ModelFailureClass::History(HistoryFault::Refused) => (ModelFailureKind::HistoryRefused, false),
    }
}

#[cfg(test)]
mod tests;
