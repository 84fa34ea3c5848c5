//! One call of the model with its retries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use yoi_wire::control::DeltaKind;
use yoi_wire::hub::ReportReason;

use super::{ConversationObserver, FailedCall, SecretRenewal};
use crate::conversation::{ConversationEvent, EffectId, ModelFailed, ModelFailureKind, PromptRequest};
use crate::model::{
    DeltaSink, FallbackModels, HistoryFault, ModelDelta, ModelFailure, ModelFailureClass, ModelRequest, RetryPolicy, WaitReason,
};
use crate::open_session::OpenSession;

/// Tries of a call for a summary.
const SUMMARY_TRIES: u32 = 5;

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
}

impl ModelCallTask {
    /// Calls the model until it answers or the patience is at its end. Returns the event that says so.
    pub async fn run(self, request: PromptRequest) -> ConversationEvent {
        let effect = self.effect;
        let (begun, mut failed, mut waited) = (Instant::now(), 0, 0);
        let PromptRequest { config, items, offer_tools } = request;
        loop {
            let request = ModelRequest { config: config.clone(), items: items.clone(), offer_tools };
            // Also when this future is dropped in the middle of the call.
            let mut used = UsedTokens { sink: self.sink(), events: self.events.clone(), reason: "Cancelled" };
            let failure = match self.model.call(request, used.sink.clone()).await {
                Ok(answer) => {
                    used.forget();
                    self.observer.on_model_called(None);
                    return ConversationEvent::Answered { effect, answer };
                }
                Err(failure) => failure,
            };
            used.reason = "Failed";
            drop(used);
            self.session.feed.discard_answer();
            failed += 1;
            let (kind, person) = kind(failure.class);
            let wait = match failure.class {
                ModelFailureClass::WaitForPerson(reason) => {
                    (!self.summary).then(|| self.wait_for_person(reason, failed, &mut waited, &failure))
                }
                ModelFailureClass::TryAgain { .. } | ModelFailureClass::History(_) => {
                    self.retries.wait_after(failed, &failure, (self.random)())
                }
            };
            let over = |wait: &Duration| person || self.patience.total.is_none_or(|total| begun.elapsed() + *wait <= total);
            let wait = wait.filter(over).filter(|_| !self.summary || failed < SUMMARY_TRIES);
            tracing::warn!(failure = failure.summary, failed, retry_in = ?wait, "model call failed");
            self.observer.on_model_called(Some(FailedCall { summary: failure.summary.clone(), waits_for_person: person }));
            let Some(wait) = wait else {
                return ConversationEvent::ModelFailed { effect, failure: ModelFailed { kind, message: failure.detail } };
            };
            let reason = if person { ReportReason::ModelRefused } else { ReportReason::ModelUnreachable };
            let reason = reason.as_str().to_owned();
            let message = failure.detail.clone();
            // The last fallback may be out of reach while another endpoint wants a Secret: a person can then do something, too.
            let waits_for_person = person || self.model.refused_for().is_some();
            let _ = self.events.send(ConversationEvent::ModelTrouble { effect, reason, message, waits_for_person });
            let asked = tokio::select! {
                () = tokio::time::sleep(self.until_renewal(failure.class).map_or(wait, |renewal| wait.min(renewal))) => false,
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
            ModelFailureClass::WaitForPerson(WaitReason::Credit | WaitReason::Quota | WaitReason::Settings) => None,
            ModelFailureClass::WaitForPerson(WaitReason::Key) | ModelFailureClass::TryAgain { .. } | ModelFailureClass::History(_) => {
                self.model.refused_for().map(|refused| self.secrets.due_in(refused))
            }
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
    fn wait_for_person(&self, reason: WaitReason, failed: u32, waited: &mut u32, failure: &ModelFailure) -> Duration {
        *waited += 1;
        match reason {
            WaitReason::Key => self.retries.wait_after(failed, failure, (self.random)()).unwrap_or(self.patience.first_person),
            WaitReason::Credit | WaitReason::Quota | WaitReason::Settings if *waited == 1 => self.patience.first_person,
            WaitReason::Credit | WaitReason::Quota | WaitReason::Settings => self.patience.next_person,
        }
    }
}

/// Tells the tokens of a call that brings no answer, whatever ends it.
struct UsedTokens {
    sink: DeltaSink,
    events: mpsc::UnboundedSender<ConversationEvent>,
    reason: &'static str,
}

impl UsedTokens {
    /// The answer has come, and its entry has the tokens.
    fn forget(mut self) {
        self.sink = DeltaSink::none();
    }
}

impl Drop for UsedTokens {
    fn drop(&mut self) {
        if let Some(usage) = self.sink.usage() {
            let _ = self.events.send(ConversationEvent::Used { usage, reason: self.reason.to_owned() });
        }
    }
}

/// What a failure means when it is not tried again, and whether it waits for a person.
fn kind(class: ModelFailureClass) -> (ModelFailureKind, bool) {
    match class {
        ModelFailureClass::TryAgain { .. } => (ModelFailureKind::Unreachable, false),
        ModelFailureClass::WaitForPerson(_) => (ModelFailureKind::Unreachable, true),
        ModelFailureClass::History(HistoryFault::TooLong) => (ModelFailureKind::TooLong, false),
        ModelFailureClass::History(HistoryFault::Refused) => (ModelFailureKind::HistoryRefused, false),
    }
}
