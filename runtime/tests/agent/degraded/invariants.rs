//! Checks that hold in every test. `planted` shows for each that it finds a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use http::StatusCode;
use yoi_test_support::slowness;
use yoi_wire::entry::{Body, Entry};
use yoi_wire::hub::{ReportReason, RuntimeReport};

use crate::endpoint::conversation::Item;
use crate::endpoint::wire::Wire;
use crate::gateway::person;
use crate::harness::Harness;

/// How fast an agent has to answer while something around it fails, the quickest of several times.
const RESPONSE_TIME: Duration = Duration::from_secs(1);

/// Asserts that the agent takes messages and gives its log while the failure lasts. A busy machine may be slow once, so the fastest of
/// several tries counts. Returns the id of the last message.
pub async fn assert_responsive(harness: &Harness, id: &str) -> String {
    let (mut fastest, mut last) = (Duration::MAX, String::new());
    for attempt in 0..20 {
        last = format!("while-{id}-{attempt}");
        let started = Instant::now();
        let (status, body) = harness.gateway.deliver(&last, person(), "say hello").await;
        assert_eq!(status, StatusCode::OK, "{body:?}");
        assert!(!harness.gateway.log("").await.is_empty());
        fastest = fastest.min(started.elapsed());
        // A true bound: what is promised is that the agent answers as if nothing were wrong.
        if fastest < RESPONSE_TIME.mul_f64(slowness()) {
            return last;
        }
    }
    panic!("a message and the log took {fastest:?} at best; the last was {last}");
}

/// Asserts that a message is for people: no debug output, no error number, no key.
pub fn assert_user_sentence(message: &str) {
    for wrong in ["Error {", "Error(", "Some(", "None", "Ok(", "{ ", "kind:", "os error", "\\\"", "::", "sk-secret"] {
        assert!(!message.contains(wrong), "{wrong:?} in {message:?}");
    }
    assert!(message.len() > 10 && message.len() < 600, "{message:?}");
}

/// Asserts that only reports with the reason Replayed are ready, and that each has a message for people.
pub fn assert_reports(reports: &[RuntimeReport]) {
    for report in reports {
        assert_eq!(report.ready, report.reason == ReportReason::Replayed, "{report:?}");
        assert_user_sentence(&report.message);
    }
}

/// What a request made from the log has to hold. Computed without the runtime's own projection.
fn expected_prompt(entries: &[Entry]) -> Vec<Item> {
    let mut expected = Vec::new();
    for entry in entries {
        match &entry.body {
            Body::Input(input) => expected.push(Item::User(input.text.clone())),
            Body::PeerMessage(message) => {
                expected.push(Item::User(format!("[message from agent {}]\n{}", message.from.name, message.text)));
            }
            Body::Assistant(answer) if !answer.text.is_empty() || !answer.tool_calls.is_empty() => {
                expected.push(Item::Assistant(answer.text.clone()));
            }
            Body::SystemItem(item) => expected.push(Item::User(item.text.clone())),
            Body::ToolEnded(end) => expected.push(Item::Result(end.output.clone())),
            _ => {}
        }
    }
    expected
}

/// Items as one text. Requests join the texts of users that follow each other, or the scripted model's parser does, so here they are joined,
/// too; empty lines do not count.
fn joined(items: impl IntoIterator<Item = Item>) -> String {
    let (mut text, mut after_user) = (String::new(), false);
    for item in items {
        let (role, words) = match &item {
            Item::User(words) => ("user", words),
            Item::Assistant(words) => ("assistant", words),
            Item::Result(words) => ("result", words),
        };
        let user = matches!(item, Item::User(_));
        let head = if user && after_user { "\n".to_owned() } else { format!("\n{role} ") };
        text.push_str(&head);
        text.push_str(words);
        after_user = user;
    }
    text.replace("\n\n", "\n")
}

/// Checks that every request holds a beginning of the log, in its order, and nothing else.
///
/// # Errors
/// The first request that does not.
pub fn check_prompts_match_log(entries: &[Entry], requests: &[serde_json::Value]) -> Result<(), String> {
    let expected = joined(expected_prompt(entries));
    for (number, request) in requests.iter().enumerate() {
        let wire = if request.get("max_tokens").is_some() { Wire::Messages } else { Wire::Chat };
        let sent = joined(wire.conversation(request).items);
        if !expected.starts_with(&sent) {
            return Err(format!("request {number} has text that is not in the log:\n{sent}\n--- log\n{expected}"));
        }
    }
    Ok(())
}

/// Calls of these run side by side.
const READS_ONLY: [&str; 4] = ["Read", "Grep", "Glob", "List"];

/// Checks that no message and no start or end of a run is in the log twice, that each call started at most once and was asked for, and that a call that may
/// write began while no other ran.
///
/// # Errors
/// What is in the log twice.
pub fn check_no_duplicates(entries: &[Entry]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let (mut asked, mut open): (BTreeMap<&str, usize>, BTreeMap<&str, &str>) = (BTreeMap::new(), BTreeMap::new());
    for entry in entries {
        let once = match &entry.body {
            Body::Input(input) => Some(format!("message {}", input.message_id)),
            Body::PeerMessage(message) => Some(format!("message {}", message.message_id)),
            Body::RunStarted(run) => Some(format!("start of {}", run.run_id)),
            Body::RunEnded(run) => Some(format!("end of {}", run.run_id)),
            Body::Assistant(answer) => {
                for call in &answer.tool_calls {
                    *asked.entry(&call.call_id).or_default() += 1;
                }
                None
            }
            Body::ToolStarted(start) => {
                let reads = |tool: &str| READS_ONLY.contains(&tool);
                if let Some((other, _)) = open.iter().find(|(_, tool)| !reads(tool) || !reads(&start.tool)) {
                    return Err(format!("call {} began while {other} ran", start.call_id));
                }
                open.insert(&start.call_id, &start.tool);
                match asked.get_mut(start.call_id.as_str()).filter(|left| **left > 0) {
                    Some(left) => *left -= 1,
                    None => return Err(format!("call {} began more often than it was asked for", start.call_id)),
                }
                None
            }
            Body::ToolEnded(end) => {
                open.remove(end.call_id.as_str());
                None
            }
            _ => None,
        };
        if let Some(once) = once
            && !seen.insert(once.clone())
        {
            return Err(format!("{once} is in the log twice"));
        }
    }
    Ok(())
}

/// Checks that a command, which adds a line to `trace` each time, ran as often as the log says.
///
/// # Errors
/// Both numbers.
pub fn check_runs_match_log(entries: &[Entry], trace: &Path) -> Result<(), String> {
    let began = entries.iter().filter(|entry| matches!(entry.body, Body::ToolStarted(_))).count();
    let ran = crate::harness::lines(trace);
    if ran == began { Ok(()) } else { Err(format!("the command ran {ran} times, and the log tells of {began}")) }
}

/// Checks that every acknowledged message is in the log once.
///
/// # Errors
/// The first that is lost or there twice.
pub fn check_acknowledged(entries: &[Entry], acknowledged: &[String]) -> Result<(), String> {
    for id in acknowledged {
        let count = entries
            .iter()
            .filter(|entry| match &entry.body {
                Body::Input(input) => input.message_id == *id,
                Body::PeerMessage(message) => message.message_id == *id,
                _ => false,
            })
            .count();
        if count != 1 {
            return Err(format!("message {id} was acknowledged and is in the log {count} times"));
        }
    }
    Ok(())
}

/// Living processes of this machine with `mark` in their command line.
pub fn living_processes(mark: &str) -> Vec<String> {
    let mut alive = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(mark) && pid != std::process::id() {
            alive.push(format!("{pid} {line}"));
        }
    }
    alive
}

/// Asserts all of the above that needs nothing but the harness.
pub fn assert_invariants(harness: &Harness) {
    let entries = harness.entries();
    check_no_duplicates(&entries).unwrap();
    check_prompts_match_log(&entries, &harness.requests.lock().unwrap()).unwrap();
    assert_reports(&harness.gateway.reports());
}
