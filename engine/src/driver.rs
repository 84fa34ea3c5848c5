//! Carries out the intents of a conversation, one at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::block_in_place;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use yoi_session::{Error, Replay};
use yoi_wire::entry::{Body, Notice, RuntimeStarted};
use yoi_wire::hub::{Activity, ReportReason, TaskReport};
use yoi_wire::manifest::Task;

use crate::conversation::{ConversationEvent, ConversationState, Intent, StartInput, apply, project};
use crate::model::{ModelClient, RetryPolicy};
use crate::open_session::OpenSession;
use crate::tools::ToolRunner;

/// The most notices in the log for one model call.
const MAX_NOTICES: u32 = 8;

/// Learns what becomes of a conversation. The driver calls it between two steps, so it must not block.
pub trait ConversationObserver: Send + Sync {
    /// The log has taken entries. A log that can be replayed but takes none is not usable.
    fn on_entries_logged(&self);
    /// A call of the model has ended; `failure` says how it failed, `None` that it did not.
    fn on_model_called(&self, failure: Option<String>);
    /// The conversation's activity or the state of its task may have changed.
    fn on_progress(&self, activity: Activity, task: Option<TaskReport>);
    /// The conversation begins to wait for a message, perhaps for long.
    fn on_wait(&self);
}

/// Drives one conversation.
pub struct Driver {
    pub session: Arc<OpenSession>,
    /// `None`: the model's key is missing.
    pub model: Option<Arc<ModelClient>>,
    pub tools: ToolRunner,
    pub retries: RetryPolicy,
    /// How long the endpoint may refuse the key before this process ends, so that the next one reads the Secret's new content.
    pub key_retry: Duration,
    pub observer: Arc<dyn ConversationObserver>,
    /// Returns a random number in `0.0..1.0`.
    pub random: fn() -> f64,
    pub stop: CancellationToken,
    pub task: Option<Task>,
    pub turns_per_run: u32,
}

impl Driver {
    /// Drives the conversation until the process is asked to stop and the log has the end of everything that was running.
    ///
    /// # Errors
    /// An append failed. Nothing that depends on it was done. The caller opens the session again.
    pub async fn drive(&self, replay: Replay, runtime: RuntimeStarted) -> Result<(), Error> {
        let mut state = ConversationState::default();
        for entry in replay.entries {
            (state, _) = apply(state, ConversationEvent::Recorded(entry));
        }
        let start = StartInput { runtime, task: self.task.clone(), turns_per_run: self.turns_per_run, may_run: self.model.is_some() };
        let mut intents;
        (state, intents) = apply(state, ConversationEvent::Started(start));
        let mut stopping = false;
        loop {
            // An append is carried out even when stopping: its entries say what has happened.
            let stop = self.stop.is_cancelled() && !stopping && !matches!(intents.first(), Some(Intent::Append(_)));
            let events = if stop {
                stopping = true;
                vec![ConversationEvent::Stopping]
            } else {
                match intents.pop() {
                    Some(Intent::Exit) => return Ok(()),
                    Some(intent) => self.execute(intent, &mut state).await?,
                    // Every append ends within this loop, so there is always an intent here. If there were none, the inbox would be looked at.
                    None => vec![ConversationEvent::InboxChanged],
                }
            };
            for event in events {
                (state, intents) = apply(state, event);
            }
            self.report_progress(&state);
        }
    }

    async fn execute(&self, intent: Intent, state: &mut ConversationState) -> Result<Vec<ConversationEvent>, Error> {
        Ok(match intent {
            Intent::Append(bodies) => {
                let entries = block_in_place(|| self.session.append(&bodies))?;
                self.observer.on_entries_logged();
                if entries.iter().any(|entry| matches!(entry.body, Body::RunStarted(_))) {
                    self.tools.start_run();
                }
                for entry in &entries {
                    // Only the kind is logged, never the content: transcripts stay on the session volume.
                    tracing::info!(seq = entry.seq, kind = entry.body.kind(), call = call_id(&entry.body), "entry logged");
                }
                entries.into_iter().map(ConversationEvent::Logged).collect()
            }
            Intent::ReadInbox => vec![ConversationEvent::InboxRead(self.session.pending())],
            Intent::CallModel => self.call_model(state).await?,
            Intent::Check(call) => vec![match block_in_place(|| self.tools.check(&call)) {
                Ok(()) => ConversationEvent::Allowed,
                Err(output) => {
                    tracing::info!(tool = call.tool, call = call.call_id, "tool refused");
                    ConversationEvent::Refused { output }
                }
            }],
            Intent::Run(call) => {
                let started = Instant::now();
                tokio::select! {
                    end = self.tools.run(&call) => {
                        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                        tracing::info!(tool = call.tool, call = call.call_id, outcome = ?end.outcome, millis, "tool ended");
                        vec![ConversationEvent::Ended { outcome: end.outcome, output: end.output, millis }]
                    }
                    // Dropping the call ends its processes.
                    () = self.stop.cancelled() => Vec::new(),
                }
            }
            Intent::Wait => {
                self.observer.on_wait();
                tokio::select! {
                    () = self.session.message_stored.notified() => vec![ConversationEvent::InboxChanged],
                    () = self.stop.cancelled() => Vec::new(),
                }
            }
            Intent::Exit => Vec::new(),
        })
    }

    async fn call_model(&self, state: &mut ConversationState) -> Result<Vec<ConversationEvent>, Error> {
        let Some(model) = &self.model else {
            return Ok(vec![ConversationEvent::ModelFailed { message: "the model's key is missing".to_owned() }]);
        };
        let (mut failed, mut notices, mut last) = (0, 0, String::new());
        let mut refused_since: Option<Instant> = None;
        loop {
            let answer = tokio::select! {
                answer = model.call(project(state.entries())) => answer,
                () = self.stop.cancelled() => return Ok(Vec::new()),
            };
            let failure = match answer {
                Ok(answer) => {
                    self.observer.on_model_called(None);
                    return Ok(vec![ConversationEvent::Answered(answer)]);
                }
                Err(failure) => failure,
            };
            failed += 1;
            let wait = self.retries.wait_after(failed, &failure, (self.random)());
            tracing::warn!(failure = failure.summary, failed, retry_in = ?wait, "model call failed");
            self.observer.on_model_called(Some(failure.summary.clone()));
            // One notice for each kind of failure. The count bounds them when two kinds alternate.
            if wait.is_some() && notices < MAX_NOTICES && failure.summary != last {
                notices += 1;
                last.clone_from(&failure.summary);
                let notice = Notice { reason: ReportReason::ModelUnreachable.as_str().to_owned(), message: failure.detail.clone() };
                for entry in block_in_place(|| self.session.append(&[Body::Notice(notice)]))? {
                    *state = apply(std::mem::take(state), ConversationEvent::Recorded(entry)).0;
                }
            }
            let Some(wait) = wait else { return Ok(vec![ConversationEvent::ModelFailed { message: failure.detail }]) };
            let since = if failure.key_refused { *refused_since.get_or_insert_with(Instant::now) } else { Instant::now() };
            if !failure.key_refused {
                refused_since = None;
            }
            if since.elapsed() >= self.key_retry {
                tracing::error!("the model's key is refused; the process ends, so that it starts again with the Secret's content");
                self.stop.cancel();
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = self.stop.cancelled() => return Ok(Vec::new()),
            }
        }
    }

    fn report_progress(&self, state: &ConversationState) {
        let task =
            self.task.as_ref().and_then(|task| Some(TaskReport { id: task.id.clone(), state: state.task(&task.id)?.into(), reason: None }));
        self.observer.on_progress(state.activity(), task);
    }
}

/// The id of the tool call that an entry is about.
fn call_id(body: &Body) -> Option<&str> {
    match body {
        Body::ToolStarted(start) => Some(&start.call_id),
        Body::ToolEnded(end) => Some(&end.call_id),
        Body::SessionStarted(_)
        | Body::RuntimeStarted(_)
        | Body::Input(_)
        | Body::PeerMessage(_)
        | Body::RunStarted(_)
        | Body::Assistant(_)
        | Body::RunEnded(_)
        | Body::Notice(_)
        | Body::SegmentStarted(_)
        | Body::Carried(_)
        | Body::ConfigChanged(_)
        | Body::SystemItem(_)
        | Body::Paused(_)
        | Body::Resumed(_)
        | Body::Abandoned(_)
        | Body::RolledBack(_)
        | Body::Rewound(_)
        | Body::Usage(_)
        | Body::CompactionStarted(_)
        | Body::CompactionEnded(_)
        | Body::Extension(_)
        | Body::Unknown { .. } => None,
    }
}
