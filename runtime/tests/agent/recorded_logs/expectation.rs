//! What a recorded volume is expected to hold, as JSON that no type of the runtime derives: a type that changes does not change it.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use yoi_engine::conversation::{ConversationEvent, ConversationState, apply, project};
use yoi_session::disk::{Disk, RealDisk};
use yoi_session::fold::{OpenCall, OpenRun};
use yoi_session::{Error, Holder, Inbox, Lock, Log, LogState, Preallocate, Replay, current};
use yoi_test_support::wait_until;
use yoi_wire::entry::{Body, Entry, PromptItem, ToolCall};

use super::volume::Padded;

/// The file `expected.json` of a recorded volume.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expectation {
    /// Commit whose runtime wrote the volume.
    pub written_by: String,
    pub padded: Padded,
    pub opened: Opened,
    /// What the runtime does with the volume; absent where it refuses it.
    pub continued: Option<Continued>,
}

/// What opening the session finds.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Opened {
    Replayed(Box<Replayed>),
    Refused {
        reason: String,
        /// File name, line and what is wrong, or the error's text without its folder.
        what: String,
    },
}

/// What a log holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    pub entries: usize,
    pub cut_bytes: u64,
    pub state: Value,
    pub tasks: Value,
    pub recovery: Vec<Body>,
    /// Ids of the messages in the inbox.
    pub pending: Vec<String>,
    pub projection: Value,
}

/// What a start of the runtime and one more message add to a session.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Continued {
    /// Kinds of the entries that it adds.
    pub kinds: String,
    /// Messages of its last request to the model, without the system prompt.
    pub messages: Vec<Value>,
}

/// Opens the session of the volume at `root` as a runtime does.
pub fn open(root: &Path) -> Opened {
    match replay(root) {
        Ok((replay, pending)) => replayed(&replay, pending),
        Err(error) => Opened::Refused { reason: error.reason().as_str().to_owned(), what: without_folder(&error, root) },
    }
}

fn replay(root: &Path) -> Result<(Replay, Vec<String>), Error> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let lock = take_lock(&disk, root)?;
    let session = current::read(&*disk, root)?.expect("the volume has a session");
    let (log, replay) = Log::open(&lock, session, Preallocate::Off)?;
    let inbox = Inbox::open(&lock, session, &replay.state)?;
    let pending = inbox.pending().map(|message| message.id.clone()).collect();
    log.close()?;
    Ok((replay, pending))
}

/// A process that another test starts holds the descriptor of a lock until it runs its program.
fn take_lock(disk: &Arc<dyn Disk>, root: &Path) -> Result<Arc<Lock>, Error> {
    let take = || Lock::take(disk.clone(), root, Holder { run_generation: u64::MAX, pod_uid: "test".to_owned() });
    wait_until("the lock", || match take() {
        Err(Error::Locked { .. }) => None,
        other => Some(other),
    })
}

fn replayed(replay: &Replay, pending: Vec<String>) -> Opened {
    let entries = &replay.entries;
    let mut state = ConversationState::default();
    for entry in entries {
        state = apply(state, ConversationEvent::Recorded(entry.clone())).0;
    }
    assert_eq!(**state.prompt().items(), project(entries));
    assert_eq!(state.log, replay.state);
    let tasks = replay.state.tasks.iter().map(|(id, task)| {
        assert_eq!(state.task(id), Some(task));
        (id.clone(), json!(task.state))
    });
    let tasks = tasks.collect();
    Opened::Replayed(Box::new(Replayed {
        entries: entries.len(),
        cut_bytes: replay.cut_bytes(),
        state: state_json(&replay.state),
        tasks: Value::Object(tasks),
        recovery: replay.state.recovery(),
        pending,
        projection: projection_json(entries),
    }))
}

/// The messages that the model reads of these entries.
pub fn projection_json(entries: &[Entry]) -> Value {
    let items = project(entries).into_iter().map(|item| match item {
        PromptItem::User(text) => json!({ "user": text }),
        PromptItem::Assistant(answer) => {
            // Members in the order of the alphabet, which every build of serde_json keeps.
            let text = &answer.text;
            let calls =
                answer.tool_calls.iter().map(|ToolCall { call_id, tool, args }| json!({ "args": args, "callId": call_id, "tool": tool }));
            json!({ "assistant": text, "calls": calls.collect::<Vec<_>>() })
        }
        PromptItem::Results(results) => {
            let results = results.iter().map(|result| json!({ "callId": result.call_id, "output": result.output }));
            json!({ "results": results.collect::<Vec<_>>() })
        }
    });
    items.collect()
}

fn state_json(state: &LogState) -> Value {
    // What format 1 had. The rest is the same in the state of the conversation, which the tasks and the continued run show.
    let LogState { last_seq, run_generation, delivered, tasks, unanswered, open_run, open_calls, interrupted: _, tokens: _, .. } = state;
    let tasks: Vec<&String> = tasks.keys().collect();
    let open_run = open_run.as_ref().map(|OpenRun { run_id, cause, seq, .. }| json!({ "runId": run_id, "cause": cause, "seq": seq }));
    let open_calls = open_calls.iter().map(
        |OpenCall { call_id, tool, request, started, question: _ }| json!({ "callId": call_id, "tool": tool, "request": request, "started": started }),
    );
    json!({
        "lastSeq": last_seq, "runGeneration": run_generation, "delivered": delivered.to_map(), "tasks": tasks, "unanswered": unanswered,
        "openRun": open_run, "openCalls": open_calls.collect::<Vec<_>>(),
    })
}

fn without_folder(error: &Error, root: &Path) -> String {
    error.to_string().replace(&format!("{}/", root.display()), "")
}
