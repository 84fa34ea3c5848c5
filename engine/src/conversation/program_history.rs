//! What the log knows of a program's conversation, for a program that has lost its own session.

use yoi_wire::entry::{Body, Input, InputFrom, PromptItem};

use super::ConversationState;
use super::compaction::head_and_tail;
use super::prompt::peer_text;

/// Bytes of all of it.
const MAX_BYTES: usize = 64 << 10;
/// Bytes of one text.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Bytes of a call's arguments.
const MAX_ARGS_BYTES: usize = 400;

const HEAD: &str = "[Your own record of this conversation is lost. This is what the agent's log has of it, the oldest first. The files are as you left \
    them: look before you repeat anything.]";

/// The lines that an entry adds.
pub(super) fn lines_of(body: &Body) -> Vec<String> {
    let short = |text: &str| head_and_tail(text, MAX_TEXT_BYTES);
    match body {
        Body::Input(Input { from: InputFrom::Task, text, .. }) => vec![format!("[task] {}", short(text))],
        Body::Input(Input { user, text, .. }) => vec![format!("[{}] {}", user.as_deref().unwrap_or("a person"), short(text))],
        Body::PeerMessage(message) => vec![short(&peer_text(&message.from.name, &message.text))],
        Body::Assistant(answer) => {
            let text = (!answer.text.trim().is_empty()).then(|| format!("[you] {}", short(&answer.text)));
            let calls = answer.tool_calls.iter().map(|call| {
                let args = head_and_tail(&call.args.to_string(), MAX_ARGS_BYTES);
                format!("[you called] {} {args}", call.tool)
            });
            text.into_iter().chain(calls).collect()
        }
        _ => Vec::new(),
    }
}

/// Adds lines, and forgets the oldest ones.
pub(super) fn add(history: &mut Vec<String>, lines: Vec<String>) {
    history.extend(lines);
    let mut bytes: usize = history.iter().map(String::len).sum();
    let surplus = history.iter().take_while(|line| {
        let over = bytes > MAX_BYTES;
        bytes -= line.len();
        over
    });
    let surplus = surplus.count();
    history.drain(..surplus);
}

impl ConversationState {
    /// What a program is told that begins anew. What it is given for this run anyway is left out.
    pub(super) fn history_text(&self, history: &[String]) -> String {
        let given: usize =
            self.prompt.with_origins().filter(|(_, rewindable, item)| *rewindable && matches!(item, PromptItem::User(_))).count();
        let known = &history[..history.len().saturating_sub(given)];
        format!("{HEAD}\n{}", known.join("\n"))
    }
}
