//! Checks that hold in every test. `planted` shows for each that it finds a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use http::StatusCode;
use yoi_wire::entry::{Body, Entry};
use yoi_wire::hub::{ReportReason, RuntimeReport};

use crate::conversation::Item;
use crate::harness::Harness;
use crate::restarts::person;

/// How fast an agent has to answer while something around it fails.
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
        if fastest < RESPONSE_TIME {
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
fn expected_prompt(entries: &[Entry]) -> Vec<String> {
    let mut expected = Vec::new();
    for entry in entries {
        match &entry.body {
            Body::Input(input) => expected.push(format!("user {}", input.text)),
            Body::PeerMessage(message) => expected.push(format!("user [message from agent {}]\n{}", message.from.name, message.text)),
            Body::Assistant(answer) if !answer.text.is_empty() || !answer.tool_calls.is_empty() => {
                expected.push(format!("assistant {}", answer.text));
            }
            Body::ToolEnded(end) => expected.push(format!("result {}", end.output)),
            _ => {}
        }
    }
    expected
}

/// The lines, with those of users that follow each other as one.
fn join_users(lines: &[String]) -> String {
    let mut joined = String::new();
    let mut after_user = false;
    for line in lines {
        let text = line.strip_prefix("user ");
        joined += if after_user { text.unwrap_or(line) } else { line };
        joined.push('\n');
        after_user = text.is_some();
    }
    joined.trim_end_matches('\n').to_owned()
}

/// Checks that every request holds a beginning of the log, in its order, and nothing else.
///
/// # Errors
/// The first request that does not.
pub fn check_prompts_match_log(entries: &[Entry], requests: &[serde_json::Value]) -> Result<(), String> {
    let expected = expected_prompt(entries);
    for (number, request) in requests.iter().enumerate() {
        let read = if request.get("max_tokens").is_some() { crate::anthropic::parse(request) } else { crate::openai::parse(request) };
        let sent: Vec<String> = read?
            .items
            .into_iter()
            .map(|item| match item {
                Item::User(text) => format!("user {text}"),
                Item::Assistant(text) => format!("assistant {text}"),
                Item::Result(text) => format!("result {text}"),
            })
            .collect();
        // Anthropic's format joins two entries of the log to one message, so the joined texts are compared.
        let (sent, expected) = (join_users(&sent), join_users(&expected));
        if !expected.starts_with(&sent) {
            return Err(format!("request {number} has text that is not in the log:\n{sent}\n--- log\n{expected}"));
        }
    }
    Ok(())
}

/// Checks that no message and no start or end of a run is in the log twice, and that each call started at most once and was asked for.
///
/// # Errors
/// What is in the log twice.
pub fn check_no_duplicates(entries: &[Entry]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let (mut asked, mut open): (BTreeMap<&str, usize>, Option<&str>) = (BTreeMap::new(), None);
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
                if let Some(open) = open.replace(&start.call_id) {
                    return Err(format!("call {} began while {open} ran", start.call_id));
                }
                match asked.get_mut(start.call_id.as_str()).filter(|left| **left > 0) {
                    Some(left) => *left -= 1,
                    None => return Err(format!("call {} began more often than it was asked for", start.call_id)),
                }
                None
            }
            Body::ToolEnded(_) => {
                open = None;
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
