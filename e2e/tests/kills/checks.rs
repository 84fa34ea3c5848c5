//! What must hold for a log, whatever was killed. The checks are pure functions; their tests give them logs with planted faults.

pub mod steering;

use std::collections::BTreeMap;

use yoi_wire::entry::{Body, ToolOutcome};
use yoi_wire::people::LogLine;

use crate::agent_client::input_id;

/// What clients know about one agent.
pub struct AgentHistory<'a> {
    pub agent: &'a str,
    /// Lines of its log now.
    pub log: &'a [String],
    /// Lines of its log as the reader got them earlier.
    pub read: &'a [String],
    /// Ids of the messages sent to it, in the order of their acknowledgements.
    pub acknowledged: &'a [String],
    /// Content of the file to which each tool call appends its id.
    pub traces: &'a str,
}

/// Returns one sentence for each broken promise.
pub fn violations(history: &AgentHistory) -> Vec<String> {
    let mut found = Vec::new();
    let agent = history.agent;
    if let Some(at) = (0..history.read.len()).find(|at| history.log.get(*at) != history.read.get(*at)) {
        let now = history.log.get(at).map_or("nothing", |line| line.as_str());
        found.push(format!(
            "an entry that was read is gone from the log of {agent} or changed: line {} was {}, now {now}",
            at + 1,
            history.read[at]
        ));
    }
    let mut lines: Vec<LogLine> = Vec::new();
    for line in history.log {
        match serde_json::from_str(line) {
            Ok(line) => lines.push(line),
            Err(error) => found.push(format!("the log of {agent} holds a line that is no entry ({error}): {line}")),
        }
    }
    for (line, wanted) in lines.iter().zip(1..) {
        if line.entry.seq != wanted {
            found.push(format!("a gap in the log of {agent}: {} appears where {wanted} should", line.entry.seq));
            break;
        }
    }
    found.extend(message_violations(agent, &lines, history.acknowledged));
    found.extend(call_violations(agent, &lines, history.traces));
    found
}

fn message_violations(agent: &str, lines: &[LogLine], acknowledged: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let inputs: Vec<&str> = lines.iter().filter_map(|line| input_id(&line.entry.body)).collect();
    let mut before = None;
    for id in acknowledged {
        match inputs.iter().filter(|input| **input == id.as_str()).count() {
            0 => found.push(format!("an acknowledged message is not in the log of {agent}: {id}")),
            1 => {}
            times => found.push(format!("an acknowledged message appears {times} times in the log of {agent}: {id}")),
        }
        let at = inputs.iter().position(|input| *input == id.as_str());
        if at.is_some() && at < before {
            found.push(format!("messages appear in the log of {agent} in another order than that of their acknowledgements: {id}"));
        }
        before = at.or(before);
    }
    found
}

fn call_violations(agent: &str, lines: &[LogLine], traces: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut traced: BTreeMap<&str, usize> = BTreeMap::new();
    for call in traces.lines().filter_map(|line| line.split_whitespace().last()) {
        *traced.entry(call).or_default() += 1;
    }
    let mut started: BTreeMap<&str, &str> = BTreeMap::new();
    let mut ended: BTreeMap<&str, ToolOutcome> = BTreeMap::new();
    let mut alive = 0;
    for line in lines {
        match &line.entry.body {
            Body::ToolStarted(call) if started.insert(&call.call_id, &call.tool).is_some() => {
                found.push(format!("the log of {agent} says twice that the call {} began", call.call_id));
            }
            Body::ToolEnded(call) if ended.insert(&call.call_id, call.outcome).is_some() => {
                found.push(format!("the log of {agent} says twice that the call {} ended", call.call_id));
            }
            Body::RuntimeStarted(_) => {
                alive += 1;
                if let Some(open) = started.keys().find(|call| !ended.contains_key(**call)) {
                    found.push(format!("runtime {alive} of {agent} went on without marking the call {open}, whose outcome is unknown"));
                }
            }
            _ => {}
        }
    }
    for (call, times) in &traced {
        if !started.contains_key(call) {
            found.push(format!("the call {call} of {agent} ran before the log said so"));
        }
        if *times > 1 {
            found.push(format!("the call {call} of {agent} ran {times} times; its outcome in the log: {:?}", ended.get(call)));
        }
    }
    for (call, outcome) in &ended {
        let shell = started.get(call) == Some(&"Shell");
        if shell && *outcome == ToolOutcome::Succeeded && !traced.contains_key(call) {
            found.push(format!("the call {call} of {agent} succeeded and left no trace in the tree"));
        }
    }
    found
}

/// Checks that each acknowledged message of `from` is once in the log of `to`, in the order of the acknowledgements.
pub fn peer_message_violations(from: &str, sender: &[String], to: &str, receiver: &[String]) -> Vec<String> {
    let parse = |lines: &[String]| -> Vec<LogLine> { lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect() };
    let (sender, receiver) = (parse(sender), parse(receiver));
    let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
    let mut sent: Vec<&str> = Vec::new();
    for line in &sender {
        match &line.entry.body {
            Body::Assistant(turn) => texts.extend(
                turn.tool_calls
                    .iter()
                    .filter(|call| call.tool == "SendToPeerPod")
                    .filter_map(|call| Some((call.call_id.as_str(), call.args["message"].as_str()?))),
            ),
            Body::ToolEnded(end) if end.outcome == ToolOutcome::Succeeded => sent.extend(texts.get(end.call_id.as_str())),
            _ => {}
        }
    }
    let received: Vec<&str> = receiver
        .iter()
        .filter_map(|line| match &line.entry.body {
            Body::PeerMessage(message) if message.from.name == from => Some(message.text.as_str()),
            _ => None,
        })
        .collect();
    let mut found = Vec::new();
    for text in texts.values() {
        let times = received.iter().filter(|received| *received == text).count();
        if times > 1 {
            found.push(format!("{to} received `{text}` from {from} {times} times"));
        }
        if times == 0 && sent.contains(text) {
            found.push(format!("{from} got the answer that {to} has `{text}`, and {to} never got it"));
        }
    }
    let places: Vec<usize> = sent.iter().filter_map(|text| received.iter().position(|received| received == text)).collect();
    if places.windows(2).any(|pair| pair[1] < pair[0]) {
        found.push(format!("{to} received {from}'s messages in another order than they were acknowledged"));
    }
    found
}

/// Checks that everything that `agent` sent to the model is in its log. The script's model reads what a user message has between blank lines as
/// messages of their own (`textsApart`), because an agent puts all that it has to say into one.
pub fn unlogged_model_input(agent: &str, log: &[String], shown: &str) -> Vec<String> {
    let lines: Vec<LogLine> = log.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let known: std::collections::BTreeSet<(&str, String)> = lines
        .iter()
        .filter_map(|line| match &line.entry.body {
            Body::Input(input) => Some(("user", input.text.clone())),
            Body::PeerMessage(message) => Some(("user", format!("[message from agent {}]\n{}", message.from.name, message.text))),
            Body::SystemItem(item) => Some(("user", item.text.clone())),
            Body::Assistant(turn) => Some(("assistant", turn.text.clone())),
            Body::ToolEnded(end) => Some(("result", end.output.clone())),
            _ => None,
        })
        .flat_map(|(kind, text)| {
            let parts: Vec<_> = if kind == "user" { text.split("\n\n").map(str::to_owned).collect() } else { vec![text] };
            parts.into_iter().map(move |part| (kind, part))
        })
        .collect();
    let mut found = Vec::new();
    for line in shown.lines() {
        let Ok(item) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let word = |field: &str| item[field].as_str().unwrap_or_default();
        if word("system").contains(&format!("the agent \"{agent}\"")) && !known.contains(&(word("kind"), word("text").to_owned())) {
            found.push(format!("the model was shown what is not in the log of {agent}: {} {:?}", word("kind"), word("text")));
        }
    }
    found
}

#[cfg(test)]
mod tests;
