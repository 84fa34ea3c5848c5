//! One call of the model with its retries.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use yoi_wire::hub::ReportReason;

use super::ConversationObserver;
use crate::conversation::{ConversationEvent, EffectId, ModelFailed, ModelFailureKind, PromptRequest};
use crate::model::{ModelClient, ModelFailure, Retry, RetryPolicy};
use crate::open_session::OpenSession;

/// Tries of a call for a summary.
const SUMMARY_TRIES: u32 = 5;

/// How long a call is tried before the run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelPatience {
    /// In all, while the endpoint does not answer; `None`: without end.
    pub total: Option<Duration>,
    /// How long the endpoint may refuse the key before this process ends, so that the next one reads the Secret's new content.
    pub key: Duration,
    /// The first wait for a person.
    pub first_person: Duration,
    /// Each further wait for a person.
    pub next_person: Duration,
}

impl Default for ModelPatience {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self { total: None, key: Duration::from_secs(610), first_person: minutes(5), next_person: minutes(30) }
    }
}

pub(super) struct ModelCallTask {
    pub effect: EffectId,
    pub summary: bool,
    pub model: Arc<ModelClient>,
    pub retries: RetryPolicy,
    pub patience: ModelPatience,
    pub random: fn() -> f64,
    pub observer: Arc<dyn ConversationObserver>,
    pub events: mpsc::UnboundedSender<ConversationEvent>,
    pub retry: Arc<Notify>,
    pub session: Arc<OpenSession>,
    pub stop: CancellationToken,
}

impl ModelCallTask {
    /// Calls the model until it answers or the patience is at its end. Returns the event that says so.
    pub async fn run(self, request: PromptRequest) -> ConversationEvent {
        let effect = self.effect;
        let (begun, mut failed) = (Instant::now(), 0);
        let mut refused_since: Option<Instant> = None;
        loop {
            let failure = match self.model.call(request.items.to_vec()).await {
                Ok(answer) => {
                    self.observer.on_model_called(None);
                    return ConversationEvent::Answered { effect, answer };
                }
                Err(failure) => failure,
            };
            self.session.feed.discard_answer();
            failed += 1;
            let kind = kind(&failure);
            let mut wait = self.retries.wait_after(failed, &failure, (self.random)());
            let exhausted = self.patience.total.is_some_and(|total| begun.elapsed() + wait.unwrap_or_default() > total);
            if exhausted || (self.summary && failed >= SUMMARY_TRIES) {
                wait = None;
            }
            tracing::warn!(failure = failure.summary, failed, retry_in = ?wait, "model call failed");
            self.observer.on_model_called(Some(failure.summary.clone()));
            let Some(wait) = wait else {
                return ConversationEvent::ModelFailed { effect, failure: ModelFailed { kind, message: failure.detail } };
            };
            let reason = ReportReason::ModelUnreachable.as_str().to_owned();
            let _ = self.events.send(ConversationEvent::ModelTrouble {
                effect,
                reason,
                message: failure.detail.clone(),
                waits_for_person: failure.key_refused,
            });
            let since = if failure.key_refused { *refused_since.get_or_insert_with(Instant::now) } else { Instant::now() };
            if !failure.key_refused {
                refused_since = None;
            }
            if since.elapsed() >= self.patience.key {
                tracing::error!("the model's key is refused; the process ends, so that it starts again with the Secret's content");
                self.stop.cancel();
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.retry.notified() => {}
            }
        }
    }
}

fn kind(failure: &ModelFailure) -> ModelFailureKind {
    match failure.retry {
        Retry::Never => ModelFailureKind::HistoryRefused,
        Retry::Times(_) | Retry::Always => ModelFailureKind::Unreachable,
    }
}
