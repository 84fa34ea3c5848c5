//! Which run reads a message, and how that ends: a function of the entries of the log.
//!
//! An idle agent starts a run with the message as its cause, in the same append. A run under way reads it before its next model call, and does not
//! finish before the model has answered to it. So the run that ends next after the message's entry is the one; only an interrupted run goes on as
//! another.

use yoi_wire::entry::{Body, Entry, RunOutcome};

pub struct MessageRun {
    id: String,
    is_read: bool,
    is_paused: bool,
    answer: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// With the agent's last words.
    Finished(String),
    /// With the reason.
    Failed(String),
}

impl MessageRun {
    pub fn new(id: &str) -> Self {
        MessageRun { id: id.to_owned(), is_read: false, is_paused: false, answer: String::new() }
    }

    /// What a person sees while it is under way.
    pub fn progress(&self) -> &'static str {
        match (self.is_read, self.is_paused) {
            (_, true) => "the run is paused, and goes on when a person resumes it",
            (true, false) => "it works on it",
            (false, false) => "it has not read it yet",
        }
    }

    /// Takes the next entry of the log. Returns the end of the run once it is there.
    pub fn record(&mut self, entry: &Entry) -> Option<RunEnd> {
        if matches!(entry.body, Body::RunStarted(_) | Body::Resumed(_) | Body::Abandoned(_) | Body::Assistant(_)) {
            self.is_paused = false;
        }
        match &entry.body {
            Body::Input(input) if input.message_id == self.id => self.is_read = true,
            Body::RunStarted(run) if run.cause.contains(&self.id) => self.is_read = true,
            Body::Assistant(said) if self.is_read && !said.text.is_empty() => self.answer.clone_from(&said.text),
            Body::RunEnded(end) if self.is_read => {
                let why = |outcome: &str| RunEnd::Failed(end.message.as_ref().map_or(outcome.to_owned(), |m| format!("{outcome}: {m}")));
                return match end.outcome {
                    RunOutcome::Finished => Some(RunEnd::Finished(std::mem::take(&mut self.answer))),
                    RunOutcome::Failed => Some(why("it failed")),
                    RunOutcome::LimitReached => Some(why("a limit was reached")),
                    RunOutcome::Truncated => Some(why("the model's answer was cut off at its limit")),
                    RunOutcome::Cancelled => Some(why("a person cancelled it")),
                    RunOutcome::RolledBack => Some(why("a person took it back before anything of an answer had come")),
                    // It goes on after the restart.
                    RunOutcome::Interrupted => None,
                };
            }
            Body::Paused(_) => self.is_paused = true,
            Body::SessionStarted(_) | Body::RuntimeStarted(_) | Body::Input(_) | Body::PeerMessage(_) | Body::RunStarted(_) => {}
            Body::Resumed(_) | Body::Abandoned(_) => {}
            Body::Assistant(_)
            | Body::ToolRequested(_)
            | Body::ToolAsked(_)
            | Body::ToolAnswered(_)
            | Body::ToolStarted(_)
            | Body::ToolEnded(_)
            | Body::RunEnded(_)
            | Body::Notice(_)
            | Body::SegmentStarted(_)
            | Body::Carried(_)
            | Body::ConfigChanged(_)
            | Body::SystemItem(_)
            | Body::RolledBack(_)
            | Body::Rewound(_)
            | Body::Usage(_)
            | Body::ModeSwitched(_)
            | Body::CompactionStarted(_)
            | Body::CompactionEnded(_)
            | Body::Extension(_) => {}
            Body::Unknown { .. } => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn end(entries: &[(&str, Value)]) -> Option<RunEnd> {
        let mut run = MessageRun::new("m");
        let entry = |(kind, body): &(&str, Value)| -> Entry {
            serde_json::from_value(json!({ "id": "i", "seq": 1, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body }))
                .unwrap()
        };
        entries.iter().find_map(|row| run.record(&entry(row)))
    }

    fn input(id: &str) -> (&'static str, Value) {
        ("Input", json!({ "from": "person", "messageId": id, "text": "x" }))
    }

    fn started(cause: &str) -> (&'static str, Value) {
        ("RunStarted", json!({ "runId": "r", "cause": [cause] }))
    }

    fn assistant_entry(text: &str) -> (&'static str, Value) {
        ("Assistant", json!({ "text": text }))
    }

    fn ended(outcome: &str) -> (&'static str, Value) {
        ("RunEnded", json!({ "runId": "r", "outcome": outcome }))
    }

    #[test]
    fn the_run_of_another_message_is_not_the_answer() {
        assert_eq!(end(&[input("other"), started("other"), assistant_entry("no"), ended("finished")]), None);
        let both = [
            input("other"),
            started("other"),
            assistant_entry("no"),
            ended("finished"),
            input("m"),
            started("m"),
            assistant_entry("yes"),
            ended("finished"),
        ];
        assert_eq!(end(&both), Some(RunEnd::Finished("yes".to_owned())));
    }

    #[test]
    fn a_run_under_way_that_reads_the_message_answers_it() {
        let entries = [started("other"), assistant_entry("no"), input("m"), assistant_entry("yes"), ended("finished")];
        assert_eq!(end(&entries), Some(RunEnd::Finished("yes".to_owned())));
    }

    #[test]
    fn a_paused_run_says_so_and_has_not_ended() {
        let mut run = MessageRun::new("m");
        let by = json!({ "user": "jane", "requestId": "r" });
        let seen: Vec<&str> =
            [input("m"), started("m"), ("Paused", json!({ "runId": "r", "by": by })), ("Resumed", json!({ "runId": "r", "by": by }))]
                .iter()
                .map(|(kind, body)| {
                    let entry = json!({ "id": "i", "seq": 1, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
                    assert_eq!(run.record(&serde_json::from_value(entry).unwrap()), None);
                    run.progress()
                })
                .collect();
        assert!(seen[1] == "it works on it" && seen[2].contains("paused") && seen[3] == "it works on it", "{seen:?}");
    }

    #[test]
    fn an_interrupted_run_goes_on_and_a_failed_one_is_a_failure() {
        let entries = [input("m"), started("m"), ended("interrupted"), started("m"), assistant_entry("yes"), ended("finished")];
        assert_eq!(end(&entries), Some(RunEnd::Finished("yes".to_owned())));
        for outcome in ["cancelled", "rolledBack", "truncated"] {
            assert!(matches!(end(&[input("m"), started("m"), ended(outcome)]), Some(RunEnd::Failed(_))), "{outcome}");
        }
        assert_eq!(end(&[input("m"), started("m"), ended("limitReached")]), Some(RunEnd::Failed("a limit was reached".to_owned())));
    }
}
