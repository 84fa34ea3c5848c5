//! What must hold whatever happens. Each of these is seen to find a fault in `planted`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use http::StatusCode;
use yoi_wire::entry::{Body, Entry};
use yoi_wire::hub::RuntimeReport;

use crate::bench::Bench;
use crate::conversation::Item;
use crate::restarts::person;

/// Asked of an agent while its world is poor.
const SOON: Duration = Duration::from_secs(1);

/// Messages are taken and the log is read while it lasts, and not only after it. A machine that does other work too may be slow once: of a few
/// times, the quickest counts. The last message's id is given back.
pub async fn obeys(bench: &Bench, id: &str) -> String {
    let (mut quickest, mut last) = (Duration::MAX, String::new());
    for attempt in 0..20 {
        last = format!("while-{id}-{attempt}");
        let begun = Instant::now();
        let (status, body) = bench.gateway.deliver(&last, person(), "say hello").await;
        assert_eq!(status, StatusCode::OK, "{body:?}");
        assert!(!bench.gateway.log("").await.is_empty());
        quickest = quickest.min(begun.elapsed());
        if quickest < SOON {
            return last;
        }
    }
    panic!("a message and the log took {quickest:?} at best; the last was {last}");
}

/// A sentence for people: no debug print, no number of the system's, no key, no word of the conversation.
pub fn sentence(message: &str) {
    for wrong in ["Error {", "Error(", "Some(", "None", "Ok(", "{ ", "kind:", "os error", "\\\"", "::", "sk-secret"] {
        assert!(!message.contains(wrong), "{wrong:?} in {message:?}");
    }
    assert!(message.len() > 10 && message.len() < 600, "{message:?}");
}

/// Reports never claim to be ready and unable at once, and each says it in a sentence.
pub fn reports(reports: &[RuntimeReport]) {
    for report in reports {
        assert_eq!(report.ready, report.reason == "Replayed", "{report:?}");
        sentence(&report.message);
    }
}

/// What a log tells the model, counted by a second hand: not by the runtime's own projection.
fn told(entries: &[Entry]) -> Vec<String> {
    let mut told = Vec::new();
    for entry in entries {
        match &entry.body {
            Body::Input(input) => told.push(format!("user {}", input.text)),
            Body::PeerMessage(message) => told.push(format!("user [message from agent {}]\n{}", message.from.name, message.text)),
            Body::Assistant(answer) if !answer.text.is_empty() || !answer.tool_calls.is_empty() => {
                told.push(format!("assistant {}", answer.text));
            }
            Body::ToolEnded(end) => told.push(format!("result {}", end.output)),
            _ => {}
        }
    }
    told
}

/// Every request holds what the log held at that time: its beginning, in its order, and nothing else.
///
/// # Errors
/// The first that does not.
pub fn nothing_but_the_log(entries: &[Entry], heard: &[serde_json::Value]) -> Result<(), String> {
    let told = told(entries);
    for (number, request) in heard.iter().enumerate() {
        let read = if request.get("max_tokens").is_some() { crate::anthropic::parse(request) } else { crate::openai::parse(request) };
        let said: Vec<String> = read?
            .items
            .into_iter()
            .map(|item| match item {
                Item::User(text) => format!("user {text}"),
                Item::Assistant(text) => format!("assistant {text}"),
                Item::Result(text) => format!("result {text}"),
            })
            .collect();
        // Anthropic's format has one message of the user where the log has two entries: the joined text counts.
        let (said, told) = (said.join("\n"), told.join("\n"));
        if !told.starts_with(&said) {
            return Err(format!("request {number} says what the log does not:\n{said}\n--- log\n{told}"));
        }
    }
    Ok(())
}

/// No message, call or end of a call stands twice, and no call began that was not asked for.
///
/// # Errors
/// What stands twice.
pub fn nothing_twice(entries: &[Entry]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let (mut asked, mut open): (BTreeMap<&str, usize>, Option<&str>) = (BTreeMap::new(), None);
    for entry in entries {
        let once = match &entry.body {
            Body::Input(input) => Some(format!("message {}", input.message_id)),
            Body::PeerMessage(message) => Some(format!("message {}", message.message_id)),
            Body::RunStarted(run) => Some(format!("begin of {}", run.run_id)),
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
            return Err(format!("{once} stands twice"));
        }
    }
    Ok(())
}

/// A command that leaves a line in a file ran as often as the log says that it began.
///
/// # Errors
/// Both numbers.
pub fn ran_as_logged(entries: &[Entry], trace: &Path) -> Result<(), String> {
    let began = entries.iter().filter(|entry| matches!(entry.body, Body::ToolStarted(_))).count();
    let ran = crate::bench::lines(trace);
    if ran == began { Ok(()) } else { Err(format!("the command ran {ran} times, and the log tells of {began}")) }
}

/// Every message that was acknowledged is in the log once, and none that was not.
///
/// # Errors
/// The first that is lost or doubled.
pub fn as_acknowledged(entries: &[Entry], acknowledged: &[String]) -> Result<(), String> {
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

/// Processes of this machine whose command line holds `mark` and that still live.
pub fn alive(mark: &str) -> Vec<String> {
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

/// All of the above that needs nothing but the bench.
pub fn well(bench: &Bench) {
    let entries = bench.entries();
    nothing_twice(&entries).unwrap();
    nothing_but_the_log(&entries, &bench.heard.lock().unwrap()).unwrap();
    reports(&bench.gateway.reports());
}
