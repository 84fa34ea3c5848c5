//! How much of an answer has come.

use std::collections::BTreeMap;
use std::time::Duration;

use genai::chat::ChatStreamEvent;

use super::MAX_ANSWER;

/// An answer with more calls than this is none.
const MAX_CALLS: usize = 128;
/// How much the process may grow during one answer, beside what the request itself needs.
const MAX_GROWTH: u64 = 48 << 20;
/// A request is held so many times: as messages, as JSON values, as text, each with its copies.
const COPIES: u64 = 10;
/// How long this thread may work on one answer: pieces of what is no event yet are copied anew with each that comes.
const MAX_WORK: u64 = 4 * TICKS;
/// Of a second, in `/proc`.
const TICKS: u64 = 100;
/// Of a conversation, that a tick is enough for.
const MOST_BYTES: u64 = 16 << 10;
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct Meter {
    text: usize,
    /// By call, of its arguments: each event repeats all that came before it.
    calls: BTreeMap<String, usize>,
    events: u64,
}

impl Meter {
    /// Whether the answer, with this event, is within its bounds.
    pub fn take(&mut self, event: &ChatStreamEvent) -> bool {
        match event {
            // Comes before the first byte.
            ChatStreamEvent::Start => return true,
            ChatStreamEvent::Chunk(chunk) | ChatStreamEvent::ReasoningChunk(chunk) | ChatStreamEvent::ThoughtSignatureChunk(chunk) => {
                self.text += chunk.content.len();
            }
            ChatStreamEvent::ToolCallChunk(chunk) => {
                let length = chunk.tool_call.fn_arguments.as_str().map_or(0, str::len);
                self.calls.insert(chunk.tool_call.call_id.clone(), length);
            }
            ChatStreamEvent::Heartbeat | ChatStreamEvent::End(_) => {}
        }
        self.events += 1;
        self.calls.len() <= MAX_CALLS && self.text + self.calls.values().sum::<usize>() <= MAX_ANSWER
    }

    /// Nothing of a chat has come.
    pub fn nothing(&self) -> bool {
        self.events == 0
    }
}

/// Ends when this process has grown, or this thread has worked, by more than any answer to a conversation of so many bytes may need.
pub(super) async fn outgrown(conversation: u64) {
    let Some(before) = resident() else { return std::future::pending().await };
    let most = before + MAX_GROWTH + COPIES * conversation;
    let begun = worked();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let long = begun.zip(worked()).is_some_and(|(begun, now)| now > begun + MAX_WORK + conversation / MOST_BYTES);
        if long || resident().is_some_and(|now| now > most) {
            return;
        }
    }
}

/// Ticks of this thread.
fn worked() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Bytes of this process in memory.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use genai::chat::{StreamChunk, ToolCall, ToolChunk};
    use serde_json::json;

    use super::*;

    #[test]
    fn words_thoughts_and_arguments_count_together_and_arguments_once() {
        let text = |bytes: usize| ChatStreamEvent::Chunk(StreamChunk { content: "x".repeat(bytes) });
        let call = |id: &str, bytes: usize| {
            let tool_call = ToolCall {
                call_id: id.to_owned(),
                fn_name: "Write".to_owned(),
                fn_arguments: json!("x".repeat(bytes)),
                thought_signatures: None,
            };
            ChatStreamEvent::ToolCallChunk(ToolChunk { tool_call })
        };
        let mut meter = Meter::default();
        assert!(meter.take(&ChatStreamEvent::Start) && meter.nothing());
        assert!(meter.take(&text(MAX_ANSWER / 2)) && !meter.nothing());
        for bytes in [10, 1000, MAX_ANSWER / 2] {
            assert!(meter.take(&call("a", bytes)), "{bytes}");
        }
        assert!(!meter.take(&call("b", 1)));
        let mut many = Meter::default();
        assert!((0..MAX_CALLS).all(|n| many.take(&call(&n.to_string(), 1))) && !many.take(&call("one more", 1)));
        assert!(resident().is_some_and(|bytes| bytes > 1 << 20) && worked().is_some());
    }
}
