//! The tool ReadPodOutput.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::children::{ChildWords, ReadRequest};
use yoi_wire::manifest::RunLimits;

use super::peers_error_sentence;
use crate::decision::Refusal;
use crate::tools::arguments::not_empty;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit, with_timeout};

/// Reads what a child has said since the last time.
pub struct ReadPodOutput;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of an agent that you started.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
}

impl TypedTool for ReadPodOutput {
    type Args = Args;
    const NAME: &'static str = "ReadPodOutput";

    fn description(&self, _limits: &RunLimits) -> String {
        "Read what an agent that you started has said since you read it last, and how it is: Idle, Running, Stopped, or why it is not reachable. It says \
         nothing of its calls of tools: DiffPod shows what it changed."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &Args) -> Result<(), Refusal> {
        context.children().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let children = match context.children() {
            Ok(children) => children,
            Err(refusal) => return CallResult::refused(refusal),
        };
        let request = ReadRequest { after: context.read.get(&args.name), name: args.name };
        let read = async {
            match children.read(&request).await {
                Ok(words) => {
                    if let Some(position) = &words.position {
                        context.read.set(position.clone());
                    }
                    CallResult { read: words.position.clone(), ..CallResult::succeeded(sentence(&request.name, &words)) }
                }
                Err(error) => CallResult::failed(peers_error_sentence(&error)),
            }
        };
        with_timeout(default_time_limit(&context.limits), read).await
    }
}

/// The state first: a long text is cut in its middle.
fn sentence(name: &str, words: &ChildWords) -> String {
    let ChildWords { text, position: _, more, state, why } = words;
    let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let more = if *more { " There is more: read it again." } else { "" };
    match text.is_empty() {
        true => format!("[{name} is {state}{why}. It has said nothing new.{more}]"),
        false => format!("[{name} is {state}{why}.{more}]\n{text}"),
    }
}
