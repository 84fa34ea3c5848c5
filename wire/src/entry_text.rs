//! An entry of a session log in words: who, and what. People read them, and an agent the log of one that it has started.

use crate::entry::{
    Answer, Body, CompactionOutcome, CompactionReason, Entry, InputFrom, Requester, RunOutcome, SegmentReason, TokenUsage, ToolOutcome,
};

use crate::quantity;
use crate::ssh::{self, SshEntry};

/// One entry for people. Nothing in it is safe for a terminal yet: agents and persons wrote parts of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryText {
    /// Who did it, in one word.
    pub who: &'static str,
    /// What, in one line or several.
    pub text: String,
    /// Whose it is, for who has colours.
    pub tone: Tone,
}

/// How an entry is shown where there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// What the runtime did.
    Quiet,
    /// What a person may have to look at.
    Warning,
    /// What a person said or did.
    Person,
    /// What another agent said.
    Peer,
    /// What the agent said.
    Agent,
}

/// Returns the entry in words, or `None` for one that only repeats what earlier entries said.
#[must_use]
pub fn entry_text(entry: &Entry) -> Option<EntryText> {
    let quiet = |who, text: String| EntryText { who, text, tone: Tone::Quiet };
    let warning = |who, text: String| EntryText { who, text, tone: Tone::Warning };
    Some(match &entry.body {
        Body::SessionStarted(s) => quiet("session", format!("{} of {}", s.session, s.agent.name)),
        Body::RuntimeStarted(s) => {
            let cut = if s.cut_bytes > 0 { format!(", cut {} of a torn tail", quantity::bytes(s.cut_bytes)) } else { String::new() };
            quiet("runtime", format!("started, run {}{cut}", entry.run))
        }
        Body::Input(i) => {
            let text = match i.from {
                InputFrom::Task => i.text.clone(),
                InputFrom::Person => format!("{}: {}", i.user.as_deref().unwrap_or("?"), i.text),
            };
            EntryText { who: if i.from == InputFrom::Task { "task" } else { "person" }, text, tone: Tone::Person }
        }
        Body::PeerMessage(m) => EntryText { who: "peer", text: format!("{}: {}", m.from.name, m.text), tone: Tone::Peer },
        Body::RunStarted(r) => quiet("run", format!("started {}", r.run_id)),
        Body::Assistant(a) => {
            let calls = a.tool_calls.iter().map(|call| format!("→ {} {}", call.tool, call.args));
            let parts: Vec<String> = std::iter::once(a.text.clone()).filter(|text| !text.is_empty()).chain(calls).collect();
            EntryText { who: "agent", text: parts.join("\n"), tone: Tone::Agent }
        }
        Body::ToolRequested(t) => quiet("request", format!("{} {}{}", t.tool, t.args, by(&t.by))),
        Body::ToolAsked(t) => {
            let which = if t.unreadable { "its command cannot be read, and the policy asks for" } else { "the policy asks for" };
            let text = format!("call {} of {} waits for a person: {which} {}", entry.seq, t.tool, t.rules.join(", "));
            warning("asked", text)
        }
        Body::ToolAnswered(t) => {
            let Answer { approved, always, because, by } = &t.answer;
            let what = match (approved, always) {
                (true, false) => "approved",
                (true, true) => "approved for the whole conversation",
                (false, _) => "denied",
            };
            let because = because.as_ref().map(|because| format!(": {because}")).unwrap_or_default();
            EntryText { who: "answer", text: format!("call {} {what} by {by}{because}", t.asked), tone: Tone::Person }
        }
        Body::ToolStarted(t) => quiet("tool", format!("{} began", t.tool)),
        Body::ToolEnded(t) => {
            let millis = t.millis.map(|m| format!(" in {m} ms")).unwrap_or_default();
            let images = if t.images.is_empty() { String::new() } else { format!(", with {} images", t.images.len()) };
            let text = format!("{}{millis}{images}\n{}", tool_outcome(t.outcome), t.output.trim_end()).trim_end().to_owned();
            EntryText { who: "tool", text, tone: if t.outcome == ToolOutcome::Succeeded { Tone::Quiet } else { Tone::Warning } }
        }
        Body::RunEnded(r) => {
            let by = r.by.as_ref().map(by).unwrap_or_default();
            let reason = r.reason.as_deref().filter(|reason| !repeats(r.outcome, reason));
            let why = [reason, r.message.as_deref()].into_iter().flatten().map(|why| format!(": {why}")).collect::<String>();
            quiet("run", format!("{}{by}{why}", run_outcome(r.outcome)))
        }
        Body::Notice(n) => warning("notice", format!("{}: {}", n.reason, n.message)),
        Body::SegmentStarted(s) => {
            let model = if s.config.model.name.is_empty() { String::new() } else { format!(", model {}", s.config.model.name) };
            quiet("segment", format!("{} began: {}; {} tools{model}", s.number, segment_reason(s.reason), s.config.tools.len()))
        }
        // The entries that it repeats stand in the segments before.
        Body::Carried(_) => return None,
        Body::ConfigChanged(_) => quiet("runtime", "system prompt, tools or model are others from here on".to_owned()),
        Body::SystemItem(item) => EntryText { who: "runtime", text: format!("{}: {}", item.topic, item.text), tone: Tone::Person },
        Body::Paused(p) => quiet("run", format!("paused{}", by(&p.by))),
        Body::Resumed(r) => quiet("run", format!("resumed{}", by(&r.by))),
        Body::Abandoned(a) => quiet("run", format!("cancelled while it was paused{}", by(&a.by))),
        Body::RolledBack(r) => quiet("run", format!("rolled back{}: its input left the conversation", by(&r.by))),
        Body::Rewound(r) => warning("rewind", format!("everything from entry {} on left the conversation{}", r.from_seq, by(&r.by))),
        Body::ModeSwitched(m) => quiet("mode", format!("{} from here on{}", m.mode, by(&m.by))),
        // The calls of a program: their answers are told by the program, their tokens by its proxy.
        Body::Usage(u) if u.reason == "Program" => quiet("model", tokens(u.usage)),
        Body::Usage(u) => quiet("model", format!("no answer ({}), and {}", u.reason, tokens(u.usage))),
        Body::CompactionStarted(c) => {
            let why = match c.reason {
                CompactionReason::Threshold => "the conversation has grown",
                CompactionReason::TooLong => "the conversation is too long for the model",
                CompactionReason::Requested => "it was asked for",
            };
            quiet("compact", format!("a summary is asked of the model{}: {why}", c.by.as_ref().map(by).unwrap_or_default()))
        }
        Body::CompactionEnded(c) => match c.outcome {
            CompactionOutcome::Used => quiet("compact", format!("the conversation goes on with this summary:\n{}", c.summary.trim_end())),
            CompactionOutcome::Rejected | CompactionOutcome::Failed => {
                let why = c.message.as_deref().unwrap_or("the model gave none that can be used");
                warning("compact", format!("the conversation goes on without a summary: {why}"))
            }
        },
        Body::Extension(e) if e.name == "program/output" => {
            let field = |name: &str| e.data.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().trim_end().to_owned();
            if field("stream") == "stderr" { warning("stderr", field("text")) } else { quiet("stdout", field("text")) }
        }
        Body::Extension(e) if e.name == ssh::EXTENSION => match SshEntry::of(e) {
            Some(entry) => EntryText { who: "ssh", text: entry.text(), tone: Tone::Person },
            None => quiet("ssh", e.data.to_string()),
        },
        Body::Extension(e) => quiet("added", format!("{}: {}", e.name, e.data)),
        Body::Unknown { kind, fields, .. } => warning("?", format!("{kind} (a newer version wrote this): {fields}")),
    })
}

fn by(requester: &Requester) -> String {
    format!(" by {}", requester.user)
}

/// Returns how a tool call ended.
#[must_use]
pub fn tool_outcome(outcome: ToolOutcome) -> &'static str {
    match outcome {
        ToolOutcome::Succeeded => "succeeded",
        ToolOutcome::Failed => "failed",
        ToolOutcome::Refused => "refused",
        ToolOutcome::TimedOut => "timed out",
        ToolOutcome::Unknown => "outcome unknown",
    }
}

/// Returns how a run ended.
#[must_use]
pub fn run_outcome(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Finished => "finished",
        RunOutcome::Failed => "failed",
        RunOutcome::LimitReached => "limit reached",
        RunOutcome::Interrupted => "interrupted",
        RunOutcome::Truncated => "ended in the middle: the model's answer was cut off at its limit",
        RunOutcome::Cancelled => "cancelled",
        RunOutcome::RolledBack => "ended before anything of an answer had come",
    }
}

/// Whether the reason says no more than the outcome in words does.
fn repeats(outcome: RunOutcome, reason: &str) -> bool {
    match outcome {
        RunOutcome::LimitReached => reason == "LimitReached",
        RunOutcome::Cancelled => reason == "Cancelled",
        RunOutcome::Truncated => reason == "Truncated",
        RunOutcome::Finished | RunOutcome::Failed | RunOutcome::Interrupted | RunOutcome::RolledBack => false,
    }
}

fn segment_reason(reason: SegmentReason) -> &'static str {
    match reason {
        SegmentReason::SessionStarted => "the session began",
        SegmentReason::Upgraded => "the one before is of an older format",
        SegmentReason::Full => "the one before was full",
        SegmentReason::Compacted => "the conversation was compacted",
        SegmentReason::ForeignAppend => "another writer had appended to the one before",
    }
}

/// Returns a count of tokens in words.
#[must_use]
pub fn tokens(usage: TokenUsage) -> String {
    let part = |count: u64, word: &str| if count > 0 { format!(" ({} {word})", quantity::count(count)) } else { String::new() };
    let (cached, reasoning) = (part(usage.cached_tokens, "cached"), part(usage.reasoning_tokens, "reasoning"));
    format!("{} tokens in{cached}, {} out{reasoning}", quantity::count(usage.input_tokens), quantity::count(usage.output_tokens))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn text(kind: &str, body: Value) -> Option<String> {
        let entry = json!({ "id": "i", "seq": 9, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
        entry_text(&serde_json::from_value(entry).unwrap()).map(|text| format!("{}|{}", text.who, text.text))
    }

    #[test]
    fn what_people_did_names_them() {
        let by = json!({ "user": "jane", "requestId": "r" });
        for (kind, body, words) in [
            ("Paused", json!({ "runId": "run-1", "by": by }), "run|paused by jane"),
            ("Resumed", json!({ "runId": "run-1", "by": by }), "run|resumed by jane"),
            ("Abandoned", json!({ "runId": "run-1", "by": by }), "run|cancelled while it was paused by jane"),
            (
                "RolledBack",
                json!({ "runId": "run-1", "hidden": [4], "by": by }),
                "run|rolled back by jane: its input left the conversation",
            ),
            ("Rewound", json!({ "fromSeq": 4, "by": by }), "rewind|everything from entry 4 on left the conversation by jane"),
            ("ModeSwitched", json!({ "mode": "planning", "by": by }), "mode|planning from here on by jane"),
            ("RunEnded", json!({ "runId": "r", "outcome": "cancelled", "by": by, "reason": "Cancelled" }), "run|cancelled by jane"),
            ("RunEnded", json!({ "runId": "r", "outcome": "failed", "reason": "Cancelled", "message": "no" }), "run|failed: Cancelled: no"),
            (
                "RunEnded",
                json!({ "runId": "r", "outcome": "limitReached", "reason": "LimitReached", "message": "9 of 9" }),
                "run|limit reached: 9 of 9",
            ),
            (
                "ToolEnded",
                json!({ "callId": "c", "outcome": "unknown", "output": "The program ended while this tool ran." }),
                "tool|outcome unknown\nThe program ended while this tool ran.",
            ),
            (
                "ToolAsked",
                json!({ "callId": "c", "tool": "Shell", "from": "model", "rules": ["Shell(rm *)", "Shell(git *)"], "seconds": 60 }),
                "asked|call 9 of Shell waits for a person: the policy asks for Shell(rm *), Shell(git *)",
            ),
            (
                "ToolAnswered",
                json!({ "callId": "c", "asked": 9, "answer": { "approved": false, "because": "not today", "by": "jane" } }),
                "answer|call 9 denied by jane: not today",
            ),
            (
                "ToolAnswered",
                json!({ "callId": "c", "asked": 9, "answer": { "approved": true, "always": true, "by": "jane" } }),
                "answer|call 9 approved for the whole conversation by jane",
            ),
            (
                "ToolRequested",
                json!({ "callId": "engine-i", "tool": "Shell", "args": { "command": "ls" }, "by": by }),
                "request|Shell {\"command\":\"ls\"} by jane",
            ),
            ("Extension", json!({ "name": "program/output", "data": { "stream": "stderr", "text": "a\nb\n" } }), "stderr|a\nb"),
        ] {
            assert_eq!(text(kind, body).as_deref(), Some(words));
        }
    }

    #[test]
    fn a_segment_is_one_line_and_what_it_repeats_is_not_shown() {
        let head = json!({ "number": 2, "format": 2, "reason": "full", "config": { "system": ["long\ntext"], "tools": [],
            "model": { "api": "responses", "name": "m" } } });
        let line = text("SegmentStarted", head).unwrap();
        assert!(line.starts_with("segment|2 began: the one before was full; 0 tools, model m") && !line.contains('\n'), "{line}");
        assert_eq!(text("Carried", json!({})), None);
    }

    #[test]
    fn tokens_name_what_was_cached_and_what_was_reasoning() {
        let usage = TokenUsage { input_tokens: 12_300, output_tokens: 20, cached_tokens: 1_000_000, ..TokenUsage::default() };
        assert_eq!(tokens(usage), "12.3k tokens in (1.0M cached), 20 out");
    }
}
