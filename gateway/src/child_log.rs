//! A child's log as its parent reads it: entries in words, with calls and their results, and without reasoning.

use std::ops::ControlFlow;

use axum::body::Body;
use yoi_wire::entry::{Body as EntryBody, Entry, RunEnded};
use yoi_wire::entry_text::entry_text;
use yoi_wire::evidence::{LogFacts, LogText, RunFacts};
use yoi_wire::people::LogLine;

use crate::log_lines::for_each_line;

/// Bytes of all texts of one answer, unless one text alone is longer.
const MAX_TEXTS: usize = 64 << 10;
/// Bytes of one text: the first and the last of them.
const MAX_BEGIN: usize = 3 << 10;
const MAX_END: usize = 1 << 10;

/// Entries of a part of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogPart {
    pub entries: Vec<LogText>,
    /// Of the last line that was looked at.
    pub token: Option<String>,
    /// The log goes on.
    pub more: bool,
    /// Why it ended early.
    pub broken: Option<String>,
}

impl LogPart {
    /// Reads at most `entries` lines of a log from the first on.
    pub async fn read(body: Body, entries: u32) -> Self {
        let (mut part, mut lines, mut bytes) = (LogPart::default(), 0, 0_usize);
        let take = |line: &[u8]| -> Result<ControlFlow<()>, serde_json::Error> {
            if lines >= entries || bytes >= MAX_TEXTS {
                part.more = true;
                return Ok(ControlFlow::Break(()));
            }
            let LogLine { token, entry } = serde_json::from_slice(line)?;
            lines += 1;
            if let Some(text) = in_words(entry) {
                bytes = bytes.saturating_add(text.text.len());
                part.entries.push(text);
            }
            part.token = Some(token);
            Ok(ControlFlow::Continue(()))
        };
        let broken = for_each_line(body, take).await;
        LogPart { broken, ..part }
    }
}

fn in_words(entry: Entry) -> Option<LogText> {
    let words = entry_text(&entry)?;
    Some(LogText { seq: entry.seq, at: entry.at, who: words.who.to_owned(), text: begin_and_end(words.text) })
}

fn begin_and_end(text: String) -> String {
    if text.len() <= MAX_BEGIN + MAX_END {
        return text;
    }
    let (begin, end) = (text.floor_char_boundary(MAX_BEGIN), text.ceil_char_boundary(text.len() - MAX_END));
    format!("{}\n[{} bytes are left out here]\n{}", &text[..begin], end - begin, &text[end..])
}

/// Reads the end of a log: its last entry and its last run. Returns the facts, none of an empty log, and why it ended early.
pub async fn facts(body: Body) -> (Option<LogFacts>, Option<String>) {
    let mut facts: Option<LogFacts> = None;
    let take = |line: &[u8]| -> Result<ControlFlow<()>, serde_json::Error> {
        let LogLine { token: _, entry: Entry { id: _, seq, run: _, at, body } } = serde_json::from_slice(line)?;
        let run = facts.take().and_then(|facts| facts.run);
        facts = Some(LogFacts { seq, at, run: run_after(run, body) });
        Ok(ControlFlow::Continue(()))
    };
    let broken = for_each_line(body, take).await;
    (facts, broken)
}

fn run_after(run: Option<RunFacts>, body: EntryBody) -> Option<RunFacts> {
    match body {
        EntryBody::RunStarted(started) => Some(RunFacts { run_id: started.run_id, outcome: None, reason: None, message: None }),
        EntryBody::RunEnded(RunEnded { run_id, outcome, reason, message, by: _ }) => {
            Some(RunFacts { run_id, outcome: Some(outcome), reason, message })
        }
        _ => run,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use yoi_wire::entry::RunOutcome;

    use super::*;

    fn line(seq: usize, kind: &str, body: Value) -> String {
        let entry = json!({ "id": "i", "seq": seq, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
        format!("{}\n", json!({ "token": format!("s.{seq}"), "entry": entry }))
    }

    fn ended(seq: usize, output: &str) -> String {
        line(seq, "ToolEnded", json!({ "callId": "c", "outcome": "failed", "output": output }))
    }

    #[tokio::test]
    async fn d11_the_log_has_calls_and_results_and_a_long_one_its_begin_and_its_end() {
        let call = json!([{ "callId": "c", "tool": "Shell", "args": { "command": "make" } }]);
        let says = line(1, "Assistant", json!({ "text": "I build it.", "toolCalls": call, "reasoning": "secret thought" }));
        let long = format!("first{}last", "\u{e4}".repeat(4 << 10));
        let part = LogPart::read(Body::from(says + &ended(2, "no rule") + &ended(3, &long)), 9).await;
        let texts: Vec<&str> = part.entries.iter().map(|entry| entry.text.as_str()).collect();
        assert_eq!(texts[..2], ["I build it.\n\u{2192} Shell {\"command\":\"make\"}", "failed\nno rule"]);
        assert!(texts[2].starts_with("failed\nfirst") && texts[2].ends_with("last") && texts[2].contains("bytes are left out"));
        assert!(texts[2].len() < MAX_BEGIN + MAX_END + 100);
        assert_eq!((part.token.as_deref(), part.more, part.broken), (Some("s.3"), false, None));
    }

    #[tokio::test]
    async fn d11_a_part_is_bounded_and_the_next_one_goes_on_behind_it() {
        let lines: Vec<String> = (1..=40).map(|seq| ended(seq, &"x".repeat(3 << 10))).collect();
        let first = LogPart::read(Body::from(lines.concat()), 200).await;
        let read = first.entries.len();
        assert!(first.more && (20..40).contains(&read), "{read} entries");
        assert_eq!(first.token, Some(format!("s.{read}")));
        let few = LogPart::read(Body::from(lines.concat()), 2).await;
        assert_eq!((few.entries.len(), few.more, few.token.as_deref()), (2, true, Some("s.2")));
    }

    #[tokio::test]
    async fn d11_the_last_run_is_the_one_that_began_last_and_says_how_it_ended() {
        let started = |seq: usize, id: &str| line(seq, "RunStarted", json!({ "runId": id, "cause": [] }));
        let end = line(2, "RunEnded", json!({ "runId": "r1", "outcome": "failed", "reason": "Refused", "message": "no" }));
        let log = [started(1, "r1"), end];
        let (facts_of_both, broken) = facts(Body::from(log.concat())).await;
        let run = facts_of_both.unwrap().run.unwrap();
        assert_eq!((run.run_id.as_str(), run.outcome, run.reason.as_deref()), ("r1", Some(RunOutcome::Failed), Some("Refused")));
        assert_eq!(broken, None);
        let (under_way, _) = facts(Body::from(log.concat() + &started(3, "r2"))).await;
        let under_way = under_way.unwrap();
        assert_eq!((under_way.seq, under_way.run.unwrap().outcome), (3, None));
        assert_eq!(facts(Body::empty()).await, (None, None));
    }
}
