//! The tool Skill.

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_assets::Source;
use yoi_wire::manifest::RunLimits;

use crate::assets::{SKILL, is_for_model};
use crate::decision::Refusal;
use crate::tools::arguments::{invalid, not_empty};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};

/// Loads a skill of the tree.
pub struct Skill;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of the skill, as the list of skills has it.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    name: String,
}

impl TypedTool for Skill {
    type Args = Args;
    const NAME: &'static str = SKILL;
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Load a skill of the repository: its instructions, and the folder of its files. What they name, read by path; scripts run with Shell.".to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        find(context, &args.name).map(|_| ())
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        match find(context, &args.name) {
            Ok(text) => CallResult::succeeded(text),
            Err(refusal) => CallResult::refused(refusal),
        }
    }
}

/// What the model reads of a skill.
fn find(context: &ToolContext, name: &str) -> Result<String, Refusal> {
    let snapshot = context.assets.current();
    let Some(skill) = snapshot.skill(name).filter(|skill| is_for_model(skill)) else {
        let names: Vec<&str> = snapshot.skills.iter().filter(|skill| is_for_model(skill)).map(|skill| skill.name.as_str()).collect();
        let there = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
        return Err(invalid(format_args!("/name: there is no skill {name:?} for you; there is {there}")));
    };
    let head = format!("Skill {}, of {}.", skill.name, skill.path);
    let mut text = match (skill.source, context.assets.folder_in_set(&skill.path)) {
        // A set's skill lies in no folder of the tree.
        (Source::Team, Some(folder)) => format!(
            "{head} Its files are in {}, outside of the tree, and can only be read: paths that it names are relative to that folder, and Shell reaches them.\n",
            folder.display()
        ),
        (Source::Team, None) => format!("{head} It has no other files.\n"),
        (Source::Jido | Source::Agents | Source::Claude | Source::GitHub | Source::Gemini | Source::JidoCode, _) => {
            format!("{head} Its files are in {}: paths that it names are relative to that folder.\n", skill.folder)
        }
    };
    if let Some(tools) = skill.allowed_tools.as_ref().filter(|tools| !tools.is_empty()) {
        text.push_str(&format!("It is written for these tools: {}. The policy decides about each call all the same.\n", tools.join(", ")));
    }
    text.push('\n');
    text.push_str(skill.body.trim());
    Ok(text)
}
