//! The tool Write.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Writes a file.
pub struct Write;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Path relative to the root of the tree.
    path: String,
    content: String,
}

impl TypedTool for Write {
    type Args = Args;
    const NAME: &'static str = "Write";

    fn description(&self, _limits: &RunLimits) -> String {
        "Write a text file, whole, with the folders it needs. What stood there is replaced.".to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        context.check_path(&args.path)?;
        context.check_new_text(&args.content)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let write = move |tree: &crate::tools::tree::Tree| match tree.replace(&args.path, args.content.as_bytes()) {
            Ok(()) => CallResult::succeeded(format!("wrote {} bytes to {}", args.content.len(), args.path)),
            Err(error) => error.into(),
        };
        context.run_on_tree(write).await
    }
}
