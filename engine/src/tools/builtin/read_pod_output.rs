//! The tool ReadPodOutput.

use yoi_wire::children::{ChildWords, ReadRequest};
use yoi_wire::manifest::RunLimits;

use super::child::{ChildName, ask};
use crate::decision::Refusal;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Reads what a child has said since the last time.
pub struct ReadPodOutput;

impl TypedTool for ReadPodOutput {
    type Args = ChildName;
    const NAME: &'static str = "ReadPodOutput";

    fn description(&self, _limits: &RunLimits) -> String {
        "Read what an agent that you started has said since you read it last, and how it is: Idle, Running, Stopped, or why it is not reachable. It says \
         nothing of its calls of tools: PodLog has them, and DiffPod shows what it changed."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, _args: &ChildName) -> Result<(), Refusal> {
        context.children().map(drop)
    }

    async fn run(&self, context: &ToolContext, args: ChildName, _live: &LiveOutput) -> CallResult {
        let request = ReadRequest { after: context.read.get(&args.name), name: args.name };
        ask(context, |children| async move {
            let words = children.read(&request).await?;
            if let Some(position) = &words.position {
                context.read.set(position.clone());
            }
            Ok(CallResult { read: words.position.clone(), ..CallResult::succeeded(sentence(&request.name, &words)) })
        })
        .await
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
