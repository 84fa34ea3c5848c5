//! What a child has said, out of its log: the texts of its answers. No reasoning, no call and no result of one leaves here.

use std::ops::ControlFlow;

use axum::body::Body;
use yoi_wire::entry::Body as EntryBody;
use yoi_wire::people::LogLine;

use crate::log_lines::for_each_line;

/// Bytes of text in one answer, unless one text alone is longer.
const MAX_TEXT: usize = 64 << 10;
/// Bytes of a log that are looked through for one answer, unless one line alone is longer.
const MAX_SCANNED: usize = 16 << 20;
const MAX_TOKEN: usize = 256;

/// Texts of a part of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Words {
    pub text: String,
    /// Of the last line that was looked at.
    pub token: Option<String>,
    /// The log goes on.
    pub more: bool,
    /// Why it ended early.
    pub broken: Option<String>,
}

/// Whether this can be a token: it is put into a path.
pub fn is_token(token: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.:~/".contains(&c);
    !token.is_empty() && token.len() <= MAX_TOKEN && token.bytes().all(plain)
}

impl Words {
    /// Reads the lines of a log from the first on.
    pub async fn read(body: Body) -> Self {
        let (mut words, mut scanned) = (Words::default(), 0_usize);
        let take = |line: &[u8]| -> Result<ControlFlow<()>, serde_json::Error> {
            if words.is_full(scanned) {
                words.more = true;
                return Ok(ControlFlow::Break(()));
            }
            scanned = scanned.saturating_add(line.len());
            words.take(line).map(ControlFlow::Continue)
        };
        let broken = for_each_line(body, take).await;
        Words { broken, ..words }
    }

    fn is_full(&self, scanned: usize) -> bool {
        self.text.len() >= MAX_TEXT || scanned >= MAX_SCANNED
    }

    fn take(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        let LogLine { token, entry } = serde_json::from_slice(line)?;
        if let EntryBody::Assistant(answer) = entry.body
            && !answer.text.trim().is_empty()
        {
            if !self.text.is_empty() {
                self.text.push_str("\n\n");
            }
            self.text.push_str(&answer.text);
        }
        self.token = Some(token);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(seq: usize, kind: &str, body: Value) -> String {
        let entry = json!({ "id": "i", "seq": seq, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
        format!("{}\n", json!({ "token": format!("s:{seq}"), "entry": entry }))
    }

    fn says(seq: usize, text: &str) -> String {
        let calls = json!([{ "callId": "c", "tool": "Shell", "args": { "command": "secret" } }]);
        line(seq, "Assistant", json!({ "text": text, "toolCalls": calls }))
    }

    #[tokio::test]
    async fn d5_the_words_are_all_texts_and_neither_calls_nor_results() {
        let ended = line(2, "ToolEnded", json!({ "callId": "c", "outcome": "succeeded", "output": "secret" }));
        let log = [says(1, "First."), ended, says(3, ""), says(4, "Second.")].concat();
        // However it is cut into pieces.
        for size in [1, 7, log.len()] {
            let pieces: Vec<_> = log.as_bytes().chunks(size).map(|piece| Ok::<_, std::io::Error>(piece.to_vec())).collect();
            let words = Words::read(Body::from_stream(futures::stream::iter(pieces))).await;
            let all = Words { text: "First.\n\nSecond.".to_owned(), token: Some("s:4".to_owned()), more: false, broken: None };
            assert_eq!(words, all);
        }
        assert_eq!(Words::read(Body::empty()).await, Words::default());
    }

    #[tokio::test]
    async fn a_long_log_is_read_in_parts_and_no_word_is_in_two_of_them_or_in_none() {
        let text = "x".repeat(MAX_TEXT / 2);
        let lines: Vec<String> = (1..=5).map(|seq| says(seq, &text)).collect();
        let first = Words::read(Body::from(lines.concat())).await;
        assert_eq!((first.token.as_deref(), first.more), (Some("s:2"), true));
        let second = Words::read(Body::from(lines[2..].concat())).await;
        assert_eq!((second.token.as_deref(), second.more), (Some("s:4"), true));
        let third = Words::read(Body::from(lines[4..].concat())).await;
        assert_eq!((third.token.as_deref(), third.more), (Some("s:5"), false));
        assert_eq!([first, second, third].iter().map(|part| part.text.matches('x').count()).sum::<usize>(), 5 * text.len());
    }

    #[tokio::test]
    async fn what_was_read_before_a_break_counts_and_what_cannot_be_read_is_said() {
        let words = Words::read(Body::from(says(1, "First.") + "no line\n")).await;
        assert_eq!((words.text.as_str(), words.token.as_deref()), ("First.", Some("s:1")));
        assert!(words.broken.is_some());
    }

    #[test]
    fn a_token_leads_nowhere_else() {
        assert!(is_token("0198-ab:12") && !is_token("") && !is_token("a&follow=true") && !is_token(&"a".repeat(MAX_TOKEN + 1)));
    }
}
