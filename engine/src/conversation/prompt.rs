//! What the model reads: a projection of the log, with nothing added.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use yoi_wire::entry::{Assistant, Body, CarriedItem, Entry, PromptItem, PromptToolResult, ToolCall};

use super::requested::is_requested;

/// The items of the next request. Each entry of the log changes at most one of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    items: Arc<Vec<PromptItem>>,
    /// For each item, where it comes from.
    origins: Vec<ItemOrigin>,
    /// Calls of the last answer without a result. The endpoint refuses a result of any other call.
    open: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ItemOrigin {
    seq: u64,
    rewindable: bool,
}

impl Prompt {
    /// The items, oldest first.
    #[must_use]
    pub fn items(&self) -> &Arc<Vec<PromptItem>> {
        &self.items
    }

    /// Each item with the sequence number of its entry and whether the conversation can be turned back to it.
    pub fn with_origins(&self) -> impl DoubleEndedIterator<Item = (u64, bool, &PromptItem)> {
        self.origins.iter().zip(self.items.iter()).map(|(origin, item)| (origin.seq, origin.rewindable, item))
    }

    /// How many items come from entries before `seq`.
    #[must_use]
    pub fn count_before(&self, seq: u64) -> usize {
        self.origins.partition_point(|origin| origin.seq < seq)
    }

    /// Takes one more entry of the log, in its order.
    pub fn record(&mut self, entry: &Entry) {
        match &entry.body {
            Body::Input(input) => self.push(entry.seq, true, PromptItem::User(input.text.clone())),
            Body::PeerMessage(message) => {
                // Format 1 formed the text here.
                let formed = || peer_text(&message.from.name, &message.text);
                self.push(entry.seq, true, PromptItem::User(message.prompt.clone().unwrap_or_else(formed)));
            }
            Body::SystemItem(item) => self.push(entry.seq, false, PromptItem::User(item.text.clone())),
            Body::Assistant(answer) => {
                self.open = answer.tool_calls.iter().map(|call| call.call_id.clone()).collect();
                // An empty answer is left out: the endpoints refuse it.
                if !answer.text.is_empty() || !answer.tool_calls.is_empty() {
                    let tool_calls = answer.tool_calls.iter().map(with_object_args).collect();
                    self.push(entry.seq, false, PromptItem::Assistant(Box::new(Assistant { tool_calls, ..answer.clone() })));
                }
            }
            // No model reads what came of a call that none asked for.
            Body::ToolEnded(end) if is_requested(end) => {}
            Body::ToolEnded(end) => {
                let Some(index) = self.open.iter().position(|id| *id == end.call_id) else { return };
                self.open.remove(index);
                let result = PromptToolResult {
                    call_id: end.call_id.clone(),
                    tool: self.tool_of(&end.call_id),
                    output: end.output.clone(),
                    failed: end.outcome != yoi_wire::entry::ToolOutcome::Succeeded,
                    images: end.images.clone(),
                };
                self.push_results(entry.seq, vec![result]);
            }
            Body::Carried(carried) => {
                if carried.state.is_some() {
                    *self = Self::default();
                }
                for CarriedItem { seq, rewindable, item } in &carried.items {
                    match item {
                        PromptItem::Results(results) => self.push_results(*seq, results.clone()),
                        PromptItem::User(_) | PromptItem::Assistant(_) => self.push(*seq, *rewindable, item.clone()),
                    }
                }
                self.find_open_calls();
            }
            Body::RolledBack(back) => self.retain(|seq| !back.hidden.contains(&seq)),
            Body::Rewound(rewound) => self.retain(|seq| seq < rewound.from_seq),
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::RunStarted(_)
            | Body::ToolRequested(_)
            | Body::ToolAsked(_)
            | Body::ToolAnswered(_)
            | Body::ToolStarted(_)
            | Body::RunEnded(_)
            | Body::Notice(_)
            | Body::SegmentStarted(_)
            | Body::ConfigChanged(_)
            | Body::Paused(_)
            | Body::Resumed(_)
            | Body::Abandoned(_)
            | Body::Usage(_)
            | Body::ModeSwitched(_)
            | Body::CompactionStarted(_)
            | Body::CompactionEnded(_)
            | Body::Extension(_)
            | Body::Unknown { .. } => {}
        }
    }

    fn push(&mut self, seq: u64, rewindable: bool, item: PromptItem) {
        Arc::make_mut(&mut self.items).push(item);
        self.origins.push(ItemOrigin { seq, rewindable });
    }

    fn push_results(&mut self, seq: u64, more: Vec<PromptToolResult>) {
        match Arc::make_mut(&mut self.items).last_mut() {
            Some(PromptItem::Results(results)) => results.extend(more),
            _ => self.push(seq, false, PromptItem::Results(more)),
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let kept: Vec<bool> = self.origins.iter().map(|origin| keep(origin.seq)).collect();
        let mut marks = kept.iter();
        Arc::make_mut(&mut self.items).retain(|_| marks.next().is_some_and(|kept| *kept));
        self.origins.retain(|origin| keep(origin.seq));
        self.find_open_calls();
    }

    fn find_open_calls(&mut self) {
        let Some(at) = self.items.iter().rposition(|item| matches!(item, PromptItem::Assistant(_))) else {
            self.open.clear();
            return;
        };
        let mut answered = BTreeSet::new();
        for item in &self.items[at..] {
            if let PromptItem::Results(results) = item {
                answered.extend(results.iter().map(|result| result.call_id.clone()));
            }
        }
        if let PromptItem::Assistant(answer) = &self.items[at] {
            self.open = answer.tool_calls.iter().map(|call| call.call_id.clone()).filter(|id| !answered.contains(id)).collect();
        }
    }

    fn tool_of(&self, call_id: &str) -> String {
        let calls = self.items.iter().rev().find_map(|item| match item {
            PromptItem::Assistant(answer) => Some(&answer.tool_calls),
            PromptItem::User(_) | PromptItem::Results(_) => None,
        });
        calls.into_iter().flatten().find(|call| call.call_id == call_id).map(|call| call.tool.clone()).unwrap_or_default()
    }
}

/// A peer's message as the model reads it.
pub(super) fn peer_text(sender: &str, text: &str) -> String {
    format!("[message from agent {sender}]\n{text}")
}

/// The items that a log's entries make, oldest first.
#[must_use]
pub fn project(entries: &[Entry]) -> Vec<PromptItem> {
    let mut prompt = Prompt::default();
    entries.iter().for_each(|entry| prompt.record(entry));
    Arc::unwrap_or_clone(prompt.items)
}

/// Turns arguments into an object, because the endpoint takes nothing else. Arguments that the model broke off are text.
fn with_object_args(call: &ToolCall) -> ToolCall {
    let args = match &call.args {
        Value::Object(_) => call.args.clone(),
        Value::Null => json!({}),
        other => json!({ "unreadable": other }),
    };
    ToolCall { args, ..call.clone() }
}
