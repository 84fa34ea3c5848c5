//! Limits of one answer: its size, and the memory and processor time that it takes.

use std::collections::BTreeMap;
use std::time::Duration;

use genai::chat::ChatStreamEvent;

use super::MAX_ANSWER_BYTES;

/// The most tool calls in one answer.
const MAX_CALLS: usize = 128;
/// How much the process may grow during one answer, in addition to the copies of the request.
const MAX_GROWTH_BYTES: u64 = 48 << 20;
/// The most copies of a request in memory: as messages, as JSON values and as text.
const REQUEST_COPIES: u64 = 10;
/// Processor time of this thread for one answer. The client copies bytes that are not yet an event again with every chunk.
const MAX_WORK_TICKS: u64 = 4 * TICKS_PER_SECOND;
/// Clock ticks per second, in `/proc`.
const TICKS_PER_SECOND: u64 = 100;
/// Bytes of the conversation that add one tick to the limit.
const BYTES_PER_TICK: u64 = 16 << 10;
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Counts the events of one answer.
#[derive(Debug, Default)]
pub(super) struct AnswerMeter {
    text: usize,
    /// Bytes of arguments by call id. Each event repeats all arguments that came before it.
    calls: BTreeMap<String, usize>,
    events: u64,
}

impl AnswerMeter {
    /// Adds an event and returns whether the answer is still within its limits.
    pub fn add(&mut self, event: &ChatStreamEvent) -> bool {
        match event {
            // genai sends this before the first byte.
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
        self.calls.len() <= MAX_CALLS && self.text + self.calls.values().sum::<usize>() <= MAX_ANSWER_BYTES
    }

    /// Whether no event has come.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }
}

/// Returns when this process has grown, or this thread has worked, more than an answer to a conversation of this many bytes may need.
pub(super) async fn over_limit(conversation: u64) {
    let Some(before) = resident_bytes() else { return std::future::pending().await };
    let max_resident = before + MAX_GROWTH_BYTES + REQUEST_COPIES * conversation;
    let start_ticks = thread_ticks();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let long = start_ticks.zip(thread_ticks()).is_some_and(|(start, now)| now > start + MAX_WORK_TICKS + conversation / BYTES_PER_TICK);
        if long || resident_bytes().is_some_and(|now| now > max_resident) {
            return;
        }
    }
}

/// Processor time of this thread, in clock ticks.
fn thread_ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> Option<u64> {
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
    fn text_reasoning_and_arguments_count_together_and_arguments_once() {
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
        let mut meter = AnswerMeter::default();
        assert!(meter.add(&ChatStreamEvent::Start) && meter.is_empty());
        assert!(meter.add(&text(MAX_ANSWER_BYTES / 2)) && !meter.is_empty());
        for bytes in [10, 1000, MAX_ANSWER_BYTES / 2] {
            assert!(meter.add(&call("a", bytes)), "{bytes}");
        }
        assert!(!meter.add(&call("b", 1)));
        let mut many = AnswerMeter::default();
        assert!((0..MAX_CALLS).all(|n| many.add(&call(&n.to_string(), 1))) && !many.add(&call("one more", 1)));
        assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20) && thread_ticks().is_some());
    }
}
