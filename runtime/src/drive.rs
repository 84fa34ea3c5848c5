//! Carries out what a conversation wants, one intent at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::block_in_place;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use yoi_session::{Error, Replay};
use yoi_wire::entry::{Body, Notice, RuntimeStarted};
use yoi_wire::hub::TaskReport;
use yoi_wire::manifest::Task;

use crate::chance::chance;
use crate::conversation::{Event, Intent, Start, State, apply, project};
use crate::memory::Memory;
use crate::model::{Model, Retries};
use crate::status::{Session, Status};
use crate::tools::ToolRunner;

/// Notices of one model call.
const MAX_NOTICES: u32 = 8;

/// What a conversation is driven with.
pub struct Driver {
    pub memory: Arc<Memory>,
    /// `None`: the model's key is missing.
    pub model: Option<Arc<Model>>,
    pub tools: ToolRunner,
    pub retries: Retries,
    /// How long the endpoint may refuse the key before this process makes room for one with the Secret's new content.
    pub key_retry: Duration,
    pub status: Status,
    pub stop: CancellationToken,
    pub task: Option<Task>,
    pub turns_per_run: u32,
}

impl Driver {
    /// Drives the conversation until the process is asked to stop, and all that was under way is closed in the log.
    ///
    /// # Errors
    /// The log took no entry: nothing that was to follow it has happened, and the session has to be opened again.
    pub async fn drive(&self, replay: Replay, runtime: RuntimeStarted) -> Result<(), Error> {
        let mut state = State::default();
        for entry in replay.entries {
            (state, _) = apply(state, Event::Recorded(entry));
        }
        let start = Start { runtime, task: self.task.clone(), turns_per_run: self.turns_per_run, may_run: self.model.is_some() };
        let mut intents;
        (state, intents) = apply(state, Event::Started(start));
        let mut stopping = false;
        loop {
            // An append is carried out also when the end is near: what it tells has happened.
            let stop = self.stop.is_cancelled() && !stopping && !matches!(intents.first(), Some(Intent::Append(_)));
            let events = if stop {
                stopping = true;
                vec![Event::Stopping]
            } else {
                match intents.pop() {
                    Some(Intent::Exit) => return Ok(()),
                    Some(intent) => self.perform(intent, &mut state).await?,
                    // No intent is only given while an append is under way, and those end in this loop.
                    None => vec![Event::Woken],
                }
            };
            for event in events {
                (state, intents) = apply(state, event);
            }
            self.tell(&state);
        }
    }

    async fn perform(&self, intent: Intent, state: &mut State) -> Result<Vec<Event>, Error> {
        Ok(match intent {
            Intent::Append(bodies) => {
                let entries = block_in_place(|| self.memory.append(&bodies))?;
                // Not before: a log that is replayed and takes no entry is of no use.
                self.status.session_is(Session::Open);
                if entries.iter().any(|entry| matches!(entry.body, Body::RunStarted(_))) {
                    self.tools.new_run();
                }
                for entry in &entries {
                    // The kind and never the words: transcripts stay on the session volume.
                    tracing::info!(seq = entry.seq, kind = entry.body.kind(), call = call_of(&entry.body), "entry logged");
                }
                entries.into_iter().map(Event::Logged).collect()
            }
            Intent::Drain => vec![Event::Drained(self.memory.pending())],
            Intent::CallModel => self.ask(state).await?,
            Intent::Check(call) => vec![match block_in_place(|| self.tools.check(&call)) {
                Ok(()) => Event::Allowed,
                Err(output) => {
                    tracing::info!(tool = call.tool, call = call.call_id, "tool refused");
                    Event::Refused { output }
                }
            }],
            Intent::Run(call) => {
                let begun = Instant::now();
                tokio::select! {
                    end = self.tools.run(&call) => {
                        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                        tracing::info!(tool = call.tool, call = call.call_id, outcome = ?end.outcome, millis, "tool ended");
                        vec![Event::Ended { outcome: end.outcome, output: end.output, millis }]
                    }
                    // Dropping the call ends its processes.
                    () = self.stop.cancelled() => Vec::new(),
                }
            }
            Intent::Rest => {
                crate::memory_use::give_back();
                tokio::select! {
                    () = self.memory.woken.notified() => vec![Event::Woken],
                    () = self.stop.cancelled() => Vec::new(),
                }
            }
            Intent::Exit => Vec::new(),
        })
    }

    async fn ask(&self, state: &mut State) -> Result<Vec<Event>, Error> {
        let Some(model) = &self.model else {
            return Ok(vec![Event::GaveUp { message: "the model's key is missing".to_owned() }]);
        };
        let (mut failed, mut noted, mut last) = (0, 0, String::new());
        let mut refused_since: Option<Instant> = None;
        loop {
            let answer = tokio::select! {
                answer = model.ask(project(state.entries())) => answer,
                () = self.stop.cancelled() => return Ok(Vec::new()),
            };
            let failure = match answer {
                Ok(answer) => {
                    self.status.model_is(None);
                    return Ok(vec![Event::Answered(answer)]);
                }
                Err(failure) => failure,
            };
            failed += 1;
            let wait = self.retries.after(failed, &failure, chance());
            tracing::warn!(failure = failure.summary, failed, retry_in = ?wait, "model call failed");
            self.status.model_is(Some(failure.summary.clone()));
            // Once for each kind of failure, and not without end when they take turns.
            if wait.is_some() && noted < MAX_NOTICES && failure.summary != last {
                noted += 1;
                last.clone_from(&failure.summary);
                let notice = Notice { reason: "ModelUnreachable".to_owned(), message: failure.detail.clone() };
                for entry in block_in_place(|| self.memory.append(&[Body::Notice(notice)]))? {
                    *state = apply(std::mem::take(state), Event::Recorded(entry)).0;
                }
            }
            let Some(wait) = wait else { return Ok(vec![Event::GaveUp { message: failure.detail }]) };
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

    fn tell(&self, state: &State) {
        let task = self.task.as_ref().and_then(|task| Some(TaskReport { id: task.id.clone(), state: state.task(&task.id)? }));
        self.status.progress(state.activity(), task);
    }
}

/// The tool call that an entry is about.
fn call_of(body: &Body) -> Option<&str> {
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
        | Body::Unknown { .. } => None,
    }
}
