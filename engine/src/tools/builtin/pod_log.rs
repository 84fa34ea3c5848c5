//! The tool PodLog.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::evidence::{ChildLog, ChildLogRequest, LogText, MAX_ENTRIES};
use yoi_wire::manifest::RunLimits;

use super::child::ask;
use crate::decision::Refusal;
use crate::tools::arguments::{invalid, not_empty, some_not_empty};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

const DEFAULT_ENTRIES: u32 = 40;

/// Reads a part of a child's log.
pub struct PodLog;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of an agent that you started.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
    /// Read on from here: what the last call of PodLog said, or "start" for the begin of the log. Without it, the end of the log is read.
    #[serde(default, deserialize_with = "some_not_empty")]
    #[schemars(length(min = 1))]
    after: Option<String>,
    /// How many entries at most, 40 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    entries: Option<u32>,
}

impl TypedTool for PodLog {
    type Args = Args;
    const NAME: &'static str = "PodLog";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Read the log of an agent that you started, living or stopped: what it was asked, what it said, its calls of tools with their results, and how its \
         runs ended. It is evidence, where ReadPodOutput has only what the agent says of itself. The end says where to read on."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        if args.entries.is_some_and(|entries| entries == 0 || entries > MAX_ENTRIES) {
            return Err(invalid(format_args!("/entries: must be 1 to {MAX_ENTRIES}")));
        }
        context.children().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let Args { name, after, entries } = args;
        let request = ChildLogRequest { name, after, entries: entries.unwrap_or(DEFAULT_ENTRIES) };
        ask(context, |children| async move {
            let log = children.log(&request).await?;
            Ok(CallResult::succeeded(text(&request.name, &log, context.output_bytes())))
        })
        .await
    }
}

/// State and position come first, because a long text is cut in its middle.
fn text(name: &str, log: &ChildLog, most: usize) -> String {
    let ChildLog { entries, after, more, state, why } = log;
    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let next = match after {
        Some(after) if *more => format!(" There is more: read on after {after:?}."),
        Some(after) => format!(" What comes later is after {after:?}."),
        None => String::new(),
    };
    let head = format!("[{name} is {state}{why}.{next}]");
    if entries.is_empty() {
        return format!("{head}\n[There are no entries here.]");
    }
    // Each has the same room, so that none is cut away whole.
    let room = most.saturating_sub(head.len()) / entries.len();
    let lines = entries.iter().map(|LogText { seq, at, who, text }| format!("{seq} {at} {who}: {}", shortened(text, room.max(200))));
    format!("{head}\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// At most so many bytes of a text: an answer that is too long would be cut in its middle, and lose whole entries.
fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most.saturating_sub(40));
    format!("{} [{} more bytes]", &text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_where_to_read_on_and_no_entry_of_it_is_lost() {
        let entry = |seq| LogText { seq, at: "t".into(), who: "tool".into(), text: "x".repeat(4000) };
        let log =
            ChildLog { entries: (1..=30).map(entry).collect(), after: Some("s.30".into()), more: true, state: "Idle".into(), why: None };
        let text = text("c", &log, 16 << 10);
        assert!(text.starts_with("[c is Idle. There is more: read on after \"s.30\".]\n1 t tool: xxx"), "{text}");
        assert!((1..=30).all(|seq| text.contains(&format!("\n{seq} t tool"))) && text.len() <= 17 << 10, "{}", text.len());
        let nothing = ChildLog { entries: Vec::new(), after: None, more: false, state: "Unreachable".into(), why: Some("no line".into()) };
        assert_eq!(super::text("c", &nothing, 100), "[c is Unreachable: no line.]\n[There are no entries here.]");
    }
}
