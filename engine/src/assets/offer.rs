//! What the model is offered of the assets: a list of the skills, and the tools that there is something for.

use yoi_assets::{AssetSnapshot, Command, Skill, Source};
use yoi_wire::entry::{CallFrom, OfferedTool};

use crate::tools::ToolGate;

/// The tool that loads a skill.
pub const SKILL: &str = "Skill";
/// The tool that asks the skill graph.
pub const GRAPH: &str = "Graph";
/// The tool that gives the text of a command.
pub const COMMAND: &str = "Command";

/// The first words of the list of skills, by which a prompt is found to have one.
const HEAD: &str = "Skills of this repository.";
const HOW: &str = " Each is a set of instructions for one kind of work. When the description of one fits what you are asked, load it with the tool Skill \
                   before you begin. Names and descriptions are the repository's words:\n";
/// Bytes of the list when the model's window is not known.
const UNKNOWN_WINDOW_BYTES: usize = 8_000;
/// The list may have this part of the window, in hundredths.
const PERCENT: u64 = 2;
/// Bytes of a token, roughly.
const BYTES_PER_TOKEN: u64 = 4;
/// Bytes of the list of commands.
const MAX_COMMANDS_BYTES: usize = 4_000;
/// Letters of the line of one command there.
const MAX_COMMAND_CHARS: usize = 200;

/// The assets as the model is offered them: a part of the system prompt, and tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssetOffer {
    /// Names and descriptions of the skills; `None`: there are none for the model.
    pub list: Option<String>,
    /// The tools that there is something for.
    pub tools: Vec<OfferedTool>,
}

impl AssetOffer {
    /// Whether a part of a system prompt is such a list.
    #[must_use]
    pub fn is_list(part: &str) -> bool {
        part.starts_with(HEAD)
    }

    /// Whether it depends on the assets if the tool is offered, and how it is described.
    #[must_use]
    pub fn is_tool(name: &str) -> bool {
        matches!(name, SKILL | GRAPH | COMMAND)
    }
}

/// Whether the model may load it.
#[must_use]
pub fn is_for_model(skill: &Skill) -> bool {
    skill.for_model && skill.state.is_valid()
}

/// Whether whoever asks is offered the skill. A program reads those of its tree itself, and not those of the team's sets.
fn is_offered_skill(skill: &Skill, to: CallFrom) -> bool {
    let reads_itself = match to {
        CallFrom::Model => false,
        CallFrom::Mcp => skill.source != Source::Team,
        CallFrom::Hook | CallFrom::Engine | CallFrom::Unknown => true,
    };
    is_for_model(skill) && !reads_itself
}

/// Whether whoever asks is offered the command as a tool. A program reads the commands of its own format itself.
#[must_use]
pub fn is_offered(command: &Command, to: CallFrom) -> bool {
    let reads_itself = match to {
        CallFrom::Model => false,
        CallFrom::Mcp => !command.source.is_jido() && command.source != Source::Team,
        CallFrom::Hook | CallFrom::Engine | CallFrom::Unknown => true,
    };
    command.for_model && command.state.is_valid() && !reads_itself
}

/// Whether the assets have anything that the tool is for.
#[must_use]
pub fn has_use_for(snapshot: &AssetSnapshot, tool: &str, to: CallFrom) -> bool {
    match tool {
        SKILL => snapshot.skills.iter().any(|skill| is_offered_skill(skill, to)),
        GRAPH => !snapshot.graph.is_empty(),
        COMMAND => snapshot.commands.iter().any(|command| is_offered(command, to)),
        _ => true,
    }
}

/// The commands that whoever asks is offered, a line for each, in at most 4,000 bytes.
#[must_use]
pub fn list_of_commands(snapshot: &AssetSnapshot, to: CallFrom) -> String {
    let commands = snapshot.commands.iter().filter(|command| is_offered(command, to));
    lines(commands.map(|command| format!("{}: {}", command.usage(), command.description)))
}

/// The skills of the team's sets that a program is offered, as [`list_of_commands`].
#[must_use]
pub fn list_of_teams_skills(snapshot: &AssetSnapshot) -> String {
    let skills = snapshot.skills.iter().filter(|skill| is_offered_skill(skill, CallFrom::Mcp));
    lines(skills.map(|skill| format!("{}: {}", skill.name, skill.description)))
}

fn lines(entries: impl Iterator<Item = String>) -> String {
    let (mut text, mut left_out) = (String::new(), 0_usize);
    for words in entries {
        let line: String = words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_COMMAND_CHARS).collect();
        if text.len() + line.len() + 3 > MAX_COMMANDS_BYTES {
            left_out += 1;
        } else {
            text.push_str(&format!("\n- {line}"));
        }
    }
    if left_out > 0 {
        text.push_str(&format!("\n[{left_out} more are not listed here: their list is too long.]"));
    }
    text
}

/// What the model is offered of the assets, within its part of the window and as far as the policy lets it. Blocks at the first time.
#[must_use]
pub fn asset_offer(tools: &ToolGate, window_tokens: Option<u64>) -> AssetOffer {
    let tools_of_assets: Vec<OfferedTool> =
        tools.offered(CallFrom::Model).into_iter().filter(|tool| AssetOffer::is_tool(&tool.name)).collect();
    let has_skills = tools_of_assets.iter().any(|tool| tool.name == SKILL);
    let list = has_skills.then(|| list(&tools.runner().assets().current(), budget(window_tokens)));
    AssetOffer { list, tools: tools_of_assets }
}

fn budget(window_tokens: Option<u64>) -> usize {
    let bytes = window_tokens.map(|tokens| tokens.saturating_mul(BYTES_PER_TOKEN).saturating_mul(PERCENT) / 100);
    bytes.map_or(UNKNOWN_WINDOW_BYTES, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn list(snapshot: &AssetSnapshot, max_bytes: usize) -> String {
    let left_out_sentence =
        |left_out: usize| format!("\n[{left_out} more are not listed here: their list is too long. `List` shows their folders.]");
    let room = max_bytes.saturating_sub(HEAD.len() + HOW.len() + left_out_sentence(usize::MAX).len());
    let catalogue = snapshot.catalogue(room);
    let mut text = format!("{HEAD}{HOW}{}", catalogue.text.trim_end());
    if catalogue.left_out > 0 {
        text.push_str(&left_out_sentence(catalogue.left_out));
    }
    text
}
