//! What the log says of a conversation, in forms for programs. The same log gives the same bytes, whoever reads it and whenever.
//!
//! A projection is made from the last segment of the log, which carries what counts of those before. Its size is bounded: by a number of items, and by what
//! is kept of each text.

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr;

use serde_json::{Value, json};
use yoi_session::{Error as SessionError, LogState, Reader, StoredEntry, fold};
use yoi_wire::entry::{Body, Entry};
use yoi_wire::mode::Mode;

use super::{Conversation, ProjectError};
use crate::bounded_json::cut;
use crate::conversation::Prompt;
use crate::log_reads::{BYTES_PER_READ, ENTRIES_PER_READ, LogReads};
use crate::subagents::{SubagentStatus, subagents_of};

/// Entries of a timeline.
const TIMELINE_ENTRIES: usize = 200;
/// Items of what the model has read.
const CONTEXT_ITEMS: usize = 40;

/// Which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    /// The last 200 entries.
    Timeline,
    /// The last 40 items of what the model is given: inputs, answers, results of tools.
    LlmContext,
    /// Counts of runs, calls, refusals and notices since the segment began, and tokens over the conversation's life.
    Diagnostics,
    /// The mode, who has set it and by which request, what it closes, its limit of steps, and the open run. The limit of a conversation whose mode nobody
    /// has set is that of its agent.
    ModeRuntime,
    /// The sub-agents of the conversation that work, and the last of those that have ended.
    SubagentStatus,
    /// The calls of the open run that have not ended, oldest first; then those that no model asked for.
    PendingToolCalls,
}

impl FromStr for Projection {
    type Err = ProjectError;

    fn from_str(key: &str) -> Result<Self, ProjectError> {
        match key {
            "timeline" => Ok(Self::Timeline),
            "llm_context" => Ok(Self::LlmContext),
            "diagnostics" => Ok(Self::Diagnostics),
            "mode_runtime" => Ok(Self::ModeRuntime),
            "pending_tool_calls" => Ok(Self::PendingToolCalls),
            "subagent_status" => Ok(Self::SubagentStatus),
            _ => Err(ProjectError::UnknownProjection { key: key.to_owned() }),
        }
    }
}

impl Conversation {
    /// What its log says in this form, also when it does not run; `Null` when it has no log yet.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn projection(&self, of: Projection) -> Result<Value, ProjectError> {
        Ok(match self.reader().await? {
            Some(reader) => read_projection(reader, self.log_reads(), of).await?,
            None => Value::Null,
        })
    }
}

/// What the log of `reader` says in this form.
///
/// # Errors
/// The log cannot be read.
pub async fn read_projection(mut reader: Reader, reads: &LogReads, of: Projection) -> Result<Value, SessionError> {
    let read = move || {
        let mut read = ReadLog::default();
        let mut token = reader.replay_token()?;
        loop {
            let (entries, next) = reader.read_bytes(token, ENTRIES_PER_READ, BYTES_PER_READ)?;
            if entries.is_empty() {
                return Ok(read.project(of));
            }
            token = next;
            entries.into_iter().for_each(|StoredEntry { entry, .. }| read.take(entry, of));
        }
    };
    reads.run(read).await
}

/// What has been read of a log.
#[derive(Default)]
struct ReadLog {
    state: LogState,
    prompt: Prompt,
    last: VecDeque<Entry>,
    runs: BTreeMap<String, u64>,
    calls: BTreeMap<String, u64>,
    refused: BTreeMap<String, u64>,
    notices: BTreeMap<String, u64>,
    subagents: Vec<SubagentStatus>,
}

impl ReadLog {
    fn take(&mut self, entry: Entry, of: Projection) {
        self.state = fold::apply(std::mem::take(&mut self.state), &entry);
        match of {
            Projection::Timeline => {
                self.last.push_back(entry);
                if self.last.len() > TIMELINE_ENTRIES {
                    self.last.pop_front();
                }
            }
            Projection::LlmContext => self.prompt.record(&entry),
            Projection::Diagnostics => self.count(&entry.body),
            Projection::SubagentStatus => {
                if let Some(subagents) = subagents_of(&entry.body) {
                    self.subagents = subagents;
                }
            }
            Projection::ModeRuntime | Projection::PendingToolCalls => {}
        }
    }

    fn count(&mut self, body: &Body) {
        let one_more = |of: &mut BTreeMap<String, u64>, name: Value| {
            *of.entry(name.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        };
        if let Body::RunEnded(end) = body {
            one_more(&mut self.runs, json!(end.outcome));
        } else if let Body::ToolEnded(end) = body {
            one_more(&mut self.calls, json!(end.outcome));
            if let Some(class) = end.decision.as_ref().and_then(|decision| decision.refused) {
                one_more(&mut self.refused, json!(class));
            }
        } else if let Body::Notice(notice) = body {
            one_more(&mut self.notices, json!(notice.reason));
        }
    }

    fn project(self, of: Projection) -> Value {
        let Self { state, prompt, last, runs, calls, refused, notices, subagents } = self;
        match of {
            Projection::Timeline => last.iter().map(|entry| cut(json!(entry))).collect(),
            Projection::LlmContext => {
                let items = prompt.items();
                items.iter().skip(items.len().saturating_sub(CONTEXT_ITEMS)).map(|item| cut(json!(item))).collect()
            }
            Projection::Diagnostics => {
                let run = state.open_run.as_ref().map(|run| json!({"runId": run.run_id, "turns": run.turns, "paused": run.paused}));
                json!({
                    "entries": state.last_seq, "openRun": run, "openCalls": state.open_calls.len() + state.requested.len(), "unanswered": state.unanswered.len(),
                    "tokens": state.tokens, "runs": runs, "calls": calls, "refused": refused, "notices": notices,
                })
            }
            Projection::ModeRuntime => {
                let mode = state.mode.as_ref().map(|set| set.mode);
                let run = state.open_run.as_ref().map(|run| json!({"runId": run.run_id, "turns": run.turns, "paused": run.paused}));
                json!({
                    "mode": mode.unwrap_or_default(), "setBy": state.mode.as_ref().map(|set| &set.by),
                    "onlyReads": mode.is_some_and(Mode::only_reads), "steps": mode.map(Mode::steps), "openRun": run,
                })
            }
            Projection::SubagentStatus => json!(subagents),
            Projection::PendingToolCalls => {
                let requested = state.requested.iter().map(|requested| &requested.call);
                let calls = state.open_calls.iter().chain(requested).map(|call| {
                    let phase = match (&call.question, call.started) {
                        (_, Some(_)) => "started",
                        (Some(_), None) => "asked",
                        (None, None) => "requested",
                    };
                    let args = call.request.as_ref().map(|request| &request.args);
                    cut(json!({"callId": call.call_id, "tool": call.tool, "args": args, "phase": phase}))
                });
                calls.collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;
    use yoi_session::Token;
    use yoi_test_support::in_time;
    use yoi_wire::control::AttachLine;

    use super::*;
    use crate::model::test_server::serve;
    use crate::project::tests::{Folders, calls, run, says};
    use crate::project::{Project, ProjectOptions};

    const ALL: [&str; 6] = ["timeline", "llm_context", "diagnostics", "pending_tool_calls", "mode_runtime", "subagent_status"];

    async fn all(conversation: &Conversation) -> Vec<String> {
        let mut found = Vec::new();
        for key in ALL {
            found.push(conversation.projection(key.parse().unwrap()).await.unwrap().to_string());
        }
        found
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn p31_projections_are_bounded_and_another_reader_of_the_same_log_gets_the_same_bytes() {
        let place = Folders::new();
        let long = "x".repeat(5000);
        let (url, _) = serve(vec![calls("Write", &json!({"path": "note", "content": long})), says("done")]).await;
        let project = Project::start(place.options("p", &url)).await.unwrap();
        let conversation = project.start_conversation("c").await.unwrap();
        let mut follower = conversation.follow(Token::Start, Some(0)).await.unwrap();
        conversation.send("jane", Uuid::now_v7(), "write a note").await.unwrap();
        run(&mut follower).await;
        let live = all(&conversation).await;
        let context: Value = serde_json::from_str(&live[1]).unwrap();
        assert_eq!(context.as_array().unwrap().len(), 4, "input, call, result, answer: {context}");
        assert!(live[1].contains("[cut: the text has 5000 bytes]") && live.iter().all(|text| !text.contains(&long)));
        let diagnostics: Value = serde_json::from_str(&live[2]).unwrap();
        assert_eq!((&diagnostics["runs"]["finished"], &diagnostics["calls"]["succeeded"]), (&json!(1), &json!(1)), "{diagnostics}");
        assert_eq!(live[3], "[]");
        project.stop_conversation("c").await.unwrap();
        assert_eq!(all(&project.conversation("c").unwrap()).await, live);
        let unknown = "state".parse::<Projection>().unwrap_err();
        assert!(matches!(unknown, ProjectError::UnknownProjection { .. }), "{unknown}");
        project.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_call_that_waits_for_a_person_is_pending_until_it_has_ended() {
        let place = Folders::new();
        let (url, _) = serve(vec![calls("Shell", &json!({"command": "echo one"})), says("done")]).await;
        let policy = serde_json::from_value(json!({"ask": ["Shell"]})).unwrap();
        let project = Project::start(ProjectOptions { policy, ..place.options("p", &url) }).await.unwrap();
        let main = project.conversation("main").unwrap();
        let mut follower = main.follow(Token::Start, Some(0)).await.unwrap();
        main.send("jane", Uuid::now_v7(), "go").await.unwrap();
        let asked = async {
            loop {
                for line in follower.next().await.unwrap().unwrap() {
                    if matches!(&line, AttachLine::Entry { entry, .. } if matches!(entry.body, Body::ToolAsked(_))) {
                        return;
                    }
                }
            }
        };
        in_time("the question", asked).await;
        let pending = main.projection(Projection::PendingToolCalls).await.unwrap();
        assert_eq!((&pending[0]["tool"], &pending[0]["phase"]), (&json!("Shell"), &json!("asked")), "{pending}");
        assert_eq!(pending[0]["args"]["command"], "echo one");
        project.stop().await;
    }
}
