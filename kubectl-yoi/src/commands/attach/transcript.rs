//! What happened, as the terminal shows it: entries of the log, with each tool call in one place.

use std::collections::VecDeque;

use serde_json::Value;
use yoi_wire::entry::{Body, Entry, ToolOutcome};
use yoi_wire::entry_text::{EntryText, Tone, entry_text};

use super::edit_diff::{DiffLine, edit_diff};

/// What is kept: the end.
const MAX_ITEMS: usize = 2000;
/// The longest output of a tool that is kept, in bytes: its begin and its end.
const MAX_OUTPUT: usize = 16 * 1024;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Number of the entry that it begins with.
    pub seq: u64,
    /// It has left the conversation.
    pub is_hidden: bool,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Text(EntryText),
    Call(Call),
}

/// A tool call and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub tool: String,
    /// Its arguments in one line.
    pub summary: String,
    /// Its arguments, for whoever wants to see all.
    pub args: String,
    pub diff: Vec<DiffLine>,
    pub state: CallState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallState {
    Waiting,
    Running,
    Ended { outcome: ToolOutcome, millis: Option<u64>, output: String },
}

/// The items, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Transcript(VecDeque<Item>);

impl Transcript {
    /// From the newest to the oldest.
    pub fn newest_first(&self) -> impl Iterator<Item = &Item> {
        self.0.iter().rev()
    }

    /// Adds a sentence of this program's own.
    pub fn note(&mut self, text: impl Into<String>) {
        let seq = self.0.back().map_or(0, |item| item.seq);
        self.push(seq, Content::Text(EntryText { who: "yoi", text: text.into(), tone: Tone::Warning }));
    }

    /// Adds an entry of the log.
    pub fn record(&mut self, entry: &Entry) {
        let seq = entry.seq;
        match &entry.body {
            Body::Assistant(answer) => {
                if !answer.text.is_empty() {
                    let text = EntryText { who: "agent", text: answer.text.clone(), tone: Tone::Agent };
                    self.push(seq, Content::Text(text));
                }
                for call in &answer.tool_calls {
                    self.push(seq, Content::Call(Call::new(&call.call_id, &call.tool, &call.args)));
                }
            }
            Body::ToolStarted(started) => self.set_call(seq, &started.call_id, &started.tool, CallState::Running),
            Body::ToolEnded(ended) => {
                let output = shortened(ended.output.trim_end());
                let state = CallState::Ended { outcome: ended.outcome, millis: ended.millis, output };
                self.set_call(seq, &ended.call_id, "?", state);
            }
            Body::Rewound(rewound) => {
                self.hide(|seq| seq >= rewound.from_seq);
                self.push_text(entry);
            }
            Body::RolledBack(rolled_back) => {
                self.hide(|seq| rolled_back.hidden.contains(&seq));
                self.push_text(entry);
            }
            Body::SessionStarted(_) | Body::RuntimeStarted(_) | Body::Input(_) | Body::PeerMessage(_) | Body::RunStarted(_) => {
                self.push_text(entry);
            }
            Body::RunEnded(_) | Body::Notice(_) | Body::SegmentStarted(_) | Body::Carried(_) | Body::ConfigChanged(_) => {
                self.push_text(entry);
            }
            Body::ToolRequested(requested) => {
                self.push(seq, Content::Call(Call::new(&requested.call_id, &requested.tool, &requested.args)))
            }
            Body::ToolAsked(_) | Body::ToolAnswered(_) => self.push_text(entry),
            Body::SystemItem(_) | Body::Paused(_) | Body::Resumed(_) | Body::Abandoned(_) | Body::Usage(_) => self.push_text(entry),
            Body::ModeSwitched(_) | Body::CompactionStarted(_) | Body::CompactionEnded(_) | Body::Extension(_) => self.push_text(entry),
            Body::Unknown { .. } => self.push_text(entry),
        }
    }

    fn push_text(&mut self, entry: &Entry) {
        if let Some(text) = entry_text(entry) {
            self.push(entry.seq, Content::Text(text));
        }
    }

    fn push(&mut self, seq: u64, content: Content) {
        self.0.push_back(Item { seq, is_hidden: false, content });
        while self.0.len() > MAX_ITEMS {
            self.0.pop_front();
        }
    }

    fn hide(&mut self, which: impl Fn(u64) -> bool) {
        self.0.iter_mut().filter(|item| which(item.seq)).for_each(|item| item.is_hidden = true);
    }

    /// Sets how far the last open call with this id is. There is none if its answer came before the first entry that was read.
    fn set_call(&mut self, seq: u64, id: &str, tool: &str, state: CallState) {
        let calls = self.0.iter_mut().rev().filter_map(|item| match &mut item.content {
            Content::Call(call) => Some(call),
            Content::Text(_) => None,
        });
        if let Some(call) = calls.into_iter().find(|call| call.id == id && !call.has_ended()) {
            call.state = state;
        } else {
            self.push(seq, Content::Call(Call { state, ..Call::new(id, tool, &Value::Null) }));
        }
    }
}

impl Call {
    fn new(id: &str, tool: &str, args: &Value) -> Self {
        let pretty = serde_json::to_string_pretty(args).unwrap_or_default();
        Call {
            id: id.to_owned(),
            tool: tool.to_owned(),
            summary: summary(args),
            args: if args.is_null() { String::new() } else { shortened(&pretty) },
            diff: edit_diff(tool, args),
            state: CallState::Waiting,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, CallState::Ended { .. })
    }
}

/// The argument that says most: the command, path, pattern or name, else all of them.
fn summary(args: &Value) -> String {
    let first = ["command", "path", "pattern", "to", "name"].iter().find_map(|field| args.get(field).and_then(Value::as_str));
    match (first, args) {
        (Some(text), _) => text.to_owned(),
        (None, Value::Null) => String::new(),
        (None, args) => args.to_string(),
    }
}

/// The begin and the end of a text that is too long.
fn shortened(text: &str) -> String {
    if text.len() <= MAX_OUTPUT {
        return text.to_owned();
    }
    let begin = text.floor_char_boundary(MAX_OUTPUT / 2);
    let end = text.ceil_char_boundary(text.len() - MAX_OUTPUT / 2);
    let (head, tail) = (text.get(..begin).unwrap_or_default(), text.get(end..).unwrap_or_default());
    format!("{head}\n… {} bytes are not shown …\n{tail}", end - begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(seq: u64, kind: &str, body: Value) -> Entry {
        serde_json::from_value(json!({ "id": "i", "seq": seq, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body }))
            .unwrap()
    }

    fn calls(transcript: &Transcript) -> Vec<(&str, &str, bool)> {
        let mut calls: Vec<_> = transcript
            .newest_first()
            .filter_map(|item| match &item.content {
                Content::Call(call) => Some((call.tool.as_str(), call.summary.as_str(), call.has_ended())),
                Content::Text(_) => None,
            })
            .collect();
        calls.reverse();
        calls
    }

    #[test]
    fn a_tool_call_is_one_item_from_its_answer_to_its_end() {
        let mut transcript = Transcript::default();
        let both = json!([{ "callId": "c1", "tool": "Shell", "args": { "command": "ls" } }, { "callId": "c2", "tool": "Read", "args": { "path": "a" } }]);
        transcript.record(&entry(1, "Assistant", json!({ "text": "", "toolCalls": both })));
        transcript.record(&entry(2, "ToolStarted", json!({ "callId": "c2", "tool": "Read" })));
        transcript.record(&entry(3, "ToolEnded", json!({ "callId": "c2", "outcome": "succeeded", "output": "x" })));
        assert_eq!(calls(&transcript), [("Shell", "ls", false), ("Read", "a", true)]);
        // The same id in a later answer is another call, and an end without a begin is shown.
        transcript.record(&entry(4, "Assistant", json!({ "text": "", "toolCalls": both })));
        transcript.record(&entry(5, "ToolEnded", json!({ "callId": "c2", "outcome": "failed", "output": "" })));
        transcript.record(&entry(6, "ToolEnded", json!({ "callId": "c9", "outcome": "failed", "output": "" })));
        let ended: Vec<bool> = calls(&transcript).iter().map(|call| call.2).collect();
        assert_eq!(ended, [false, true, false, true, true]);
    }

    #[test]
    fn e11_what_was_rewound_is_shown_as_hidden() {
        let mut transcript = Transcript::default();
        for (seq, text) in [(1, "one"), (2, "two"), (3, "three")] {
            transcript.record(&entry(seq, "Input", json!({ "from": "task", "messageId": "m", "text": text })));
        }
        let by = json!({ "user": "jane", "requestId": "r" });
        transcript.record(&entry(4, "Rewound", json!({ "fromSeq": 2, "by": by })));
        let hidden: Vec<bool> = transcript.newest_first().map(|item| item.is_hidden).collect();
        assert_eq!(hidden, [false, true, true, false]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut transcript = Transcript::default();
        for seq in 0..3000 {
            transcript.record(&entry(
                seq,
                "ToolEnded",
                json!({ "callId": format!("c{seq}"), "outcome": "succeeded", "output": "é".repeat(20_000) }),
            ));
        }
        assert_eq!(transcript.newest_first().count(), MAX_ITEMS);
        let Content::Call(Call { state: CallState::Ended { output, .. }, .. }) = &transcript.newest_first().next().unwrap().content else {
            panic!()
        };
        assert!(output.len() < MAX_OUTPUT + 100 && output.contains("bytes are not shown"));
    }
}
