//! A long conversation becomes a short one: when, what is summed up, and whether the summary is used.

use std::sync::Arc;

use serde_json::json;
use yoi_wire::entry::{
    AgentConfig, Assistant, Body, CompactionEnded, CompactionOutcome, CompactionReason, CompactionStarted, PromptItem, Requester,
    SegmentReason,
};

use super::{ConversationState, Effect, Intent, ModelCall, PromptRequest, compaction_failed};
use crate::estimate::{text_bytes, tokens_of_config, tokens_of_item};

/// Tokens of the latest turns that stay, unless the agent's owner says otherwise.
const DEFAULT_KEEP: u64 = 20_000;
/// To how many bytes each text is cut in the request for a summary of what is too long, try by try.
const CUTS: [usize; 3] = [8 << 10, 1 << 10, 128];

const INSTRUCTION: &str = "[The conversation above is about to be replaced by your summary. Write all that is needed to go on with the work: \
    what was asked and by whom, what was decided and why, what has been done, with the names of files, commands and commits, what is under \
    way, what is left, and what went wrong. Write plain text. Call no tools.]";
const SUMMARY_HEAD: &str = "[Summary of the conversation up to here, which you wrote yourself]";

/// Tokens of an item with what stands around it in a request, roughly.
fn estimate(item: &PromptItem) -> u64 {
    let parts = if let PromptItem::Assistant(answer) = item { answer.parts.len() } else { 0 };
    tokens_of_item(item) + 4 + 4 * parts as u64
}

impl ConversationState {
    /// Tokens of the next request, as the endpoint counted them as far as it did.
    pub(super) fn context_tokens(&self) -> u64 {
        let (measured, from) = self.measured.unwrap_or((0, 0));
        let base = if from == 0 { self.config_tokens() } else { measured };
        base + self.prompt.items().iter().skip(from).map(estimate).sum::<u64>()
    }

    fn config_tokens(&self) -> u64 {
        tokens_of_config(&self.config_or_default())
    }

    /// The begin of a compaction, when the next request would be over the threshold.
    pub(super) fn due_compaction(&self) -> Option<Body> {
        if self.program.is_some() {
            return None;
        }
        let limits = self.settings.compaction;
        // In a window that system prompt and tools nearly fill, a summary would follow the other.
        let told = self.told_window.filter(|window| window / 4 > self.config_tokens());
        let window = [self.settings.window_tokens, told].into_iter().flatten().min();
        // The owner's threshold may have been meant for another window than the one that the endpoint has.
        let at = [limits.at, window.map(|window| window / 5 * 4)]
            .into_iter()
            .flatten()
            .reduce(|own, of_window| if told.is_some() { own.min(of_window) } else { own })?;
        let tokens = self.context_tokens();
        // After a compaction that brought nothing, the prompt has to grow by a tenth before the next.
        let refused = self.compaction_refused_at > 0 && tokens < self.compaction_refused_at + self.compaction_refused_at / 10;
        if tokens <= at || refused || self.token_limit_reached().is_some() {
            return None;
        }
        self.start_compaction(CompactionReason::Threshold, None)
    }

    /// The begin of a compaction; `None` when there is nothing that could be replaced, or all has been tried.
    pub(super) fn start_compaction(&self, reason: CompactionReason, by: Option<Requester>) -> Option<Body> {
        if self.facts.failed_compactions as usize >= CUTS.len() && reason == CompactionReason::TooLong {
            return None;
        }
        let keep_from_seq = self.keep_from(reason)?;
        Some(Body::CompactionStarted(CompactionStarted { reason, instruction: INSTRUCTION.to_owned(), keep_from_seq, by }))
    }

    /// From which entry on the items are kept. Results are never kept without their calls, nor calls without their results.
    fn keep_from(&self, reason: CompactionReason) -> Option<u64> {
        let items: Vec<_> = self.prompt.with_origins().collect();
        let total: u64 = items.iter().map(|(_, _, item)| estimate(item)).sum();
        let share = if reason == CompactionReason::TooLong { total / 4 } else { total / 2 };
        let keep = self.settings.compaction.keep.unwrap_or(DEFAULT_KEEP).min(share);
        let (mut kept, mut first) = (0, items.len());
        for (at, (_, _, item)) in items.iter().enumerate().rev() {
            kept += estimate(item);
            // What nobody has answered is kept as it is, unless it is what is too long.
            let unanswered = reason != CompactionReason::TooLong
                && matches!(item, PromptItem::User(_))
                && items[at..].iter().all(|(_, _, item)| matches!(item, PromptItem::User(_)));
            if kept > keep && !unanswered {
                break;
            }
            if !matches!(item, PromptItem::Results(_)) {
                first = at;
            }
        }
        match first {
            0 => None,
            first => Some(items.get(first).map_or(self.log.last_seq + 1, |(seq, ..)| *seq)),
        }
    }

    pub(super) fn go_on_compacting(&mut self, intents: &mut Vec<Intent>) {
        if !self.effects.is_empty() {
            return;
        }
        let Some(start) = self.facts.compaction.clone() else { return };
        if let Some(message) = self.token_limit_reached() {
            return self.append(vec![compaction_failed(&message)], intents);
        }
        let replaced = self.prompt.count_before(start.keep_from_seq);
        let cut = (start.reason == CompactionReason::TooLong).then(|| CUTS[(self.facts.failed_compactions as usize).min(CUTS.len() - 1)]);
        let mut items: Vec<PromptItem> = self.prompt.items()[..replaced].iter().map(|item| shortened(item, cut)).collect();
        items.push(PromptItem::User(start.instruction));
        let request = PromptRequest { config: self.config_or_default(), items: Arc::new(items), offer_tools: false };
        let effect = self.new_effect(Effect::Model(ModelCall { summary: true, ..ModelCall::default() }));
        intents.push(Intent::CallModel { effect, request, summary: true });
    }

    /// Judges a summary.
    pub(super) fn end_compaction(&mut self, answer: Assistant, intents: &mut Vec<Intent>) {
        let Some(start) = &self.facts.compaction else { return };
        let replaced = self.prompt.count_before(start.keep_from_seq);
        let bytes: usize = self.prompt.items()[..replaced].iter().map(text_bytes).sum();
        let fault = if !answer.tool_calls.is_empty() {
            Some("the model called tools instead of writing a summary")
        } else if answer.text.trim().is_empty() {
            Some("the summary is empty")
        } else if answer.text.len() + SUMMARY_HEAD.len() >= bytes {
            Some("the summary is not shorter than what it stands for")
        } else {
            None
        };
        let outcome = if fault.is_some() { CompactionOutcome::Rejected } else { CompactionOutcome::Used };
        let ended = CompactionEnded { outcome, summary: answer.text, usage: answer.usage, message: fault.map(str::to_owned) };
        self.append(vec![Body::CompactionEnded(ended)], intents);
    }

    /// The segment that has to begin now.
    pub(super) fn due_rotation(&self) -> Option<(SegmentReason, AgentConfig)> {
        let reason = match (&self.facts.summary, self.segment_full) {
            (Some(_), _) => SegmentReason::Compacted,
            (None, true) => SegmentReason::Full,
            (None, false) => return None,
        };
        Some((reason, self.config.as_deref()?.clone()))
    }

    /// The text that stands for what was summed up.
    pub(super) fn summary_item(&self) -> Option<(u64, u64, PromptItem)> {
        let summary = self.facts.summary.as_ref()?;
        Some((summary.seq, summary.keep_from_seq, PromptItem::User(format!("{SUMMARY_HEAD}\n{}", summary.text))))
    }
}

/// The item with each text cut to its head and tail.
fn shortened(item: &PromptItem, cut: Option<usize>) -> PromptItem {
    let Some(bytes) = cut else { return item.clone() };
    match item {
        PromptItem::User(text) => PromptItem::User(head_and_tail(text, bytes)),
        PromptItem::Assistant(answer) => {
            let mut short = Assistant { text: head_and_tail(&answer.text, bytes), ..(**answer).clone() };
            for call in short.tool_calls.iter_mut().filter(|call| call.args.to_string().len() > bytes) {
                call.args = json!({ "shortened": head_and_tail(&call.args.to_string(), bytes) });
            }
            // The parts say where the bytes of the whole text belong.
            short.parts.clear();
            PromptItem::Assistant(Box::new(short))
        }
        PromptItem::Results(results) => PromptItem::Results(
            results
                .iter()
                .map(|result| {
                    let output = head_and_tail(&result.output, bytes);
                    yoi_wire::entry::PromptToolResult { output, images: Vec::new(), ..result.clone() }
                })
                .collect(),
        ),
    }
}

pub(super) fn head_and_tail(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(bytes / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - bytes / 2)..];
    format!("{head}\n[{} bytes in all; the middle is left out]\n{tail}", text.len())
}
