//! What goes from one segment to the next.

use yoi_wire::entry::{AgentConfig, Carried, CarriedItem, PromptItem, PromptToolResult, SegmentReason};

use super::{ConversationState, Intent};

/// Bytes of items in one entry, unless one item alone is longer.
const MAX_CARRIED_BYTES: usize = 4 << 20;

impl ConversationState {
    pub(super) fn rotate(&mut self, reason: SegmentReason, config: &AgentConfig, intents: &mut Vec<Intent>) {
        self.rotating = true;
        intents.push(Intent::Rotate { reason, config: Box::new(config.clone()), carried: self.carried() });
    }

    /// All that of the segments so far still counts: the state first, then the items. Each line stays far below the longest line of a log.
    #[must_use]
    pub fn carried(&self) -> Vec<Carried> {
        let mut all = self.log.carried();
        if let Some(state) = all.first_mut().and_then(|first| first.state.as_mut()) {
            state.unanswered = self.due().cloned().collect();
            state.requests = self.requests.logged();
            state.program = self.program.as_ref().map(super::program::ProgramState::carried);
        }
        let (state_lines, mut bytes) = (all.len(), 0);
        for item in self.carried_items() {
            let size = serde_json::to_string(&item).map_or(MAX_CARRIED_BYTES, |text| text.len());
            if bytes + size > MAX_CARRIED_BYTES || all.len() == state_lines {
                all.push(Carried::default());
                bytes = 0;
            }
            bytes += size;
            if let Some(last) = all.last_mut() {
                last.items.push(item);
            }
        }
        all
    }

    fn carried_items(&self) -> Vec<CarriedItem> {
        let mut items = Vec::new();
        let mut from = 0;
        if let Some((seq, keep_from_seq, item)) = self.summary_item() {
            items.push(CarriedItem { seq: seq.min(keep_from_seq.saturating_sub(1)), rewindable: false, item });
            from = keep_from_seq;
        }
        for (seq, rewindable, item) in self.prompt.with_origins().filter(|(seq, ..)| *seq >= from) {
            match item {
                // Many large results are one item, and have to fit into several lines.
                PromptItem::Results(results) => items.extend(results.chunks(1).map(|one: &[PromptToolResult]| CarriedItem {
                    seq,
                    rewindable: false,
                    item: PromptItem::Results(one.to_vec()),
                })),
                PromptItem::User(_) | PromptItem::Assistant(_) => items.push(CarriedItem { seq, rewindable, item: item.clone() }),
            }
        }
        items
    }
}
