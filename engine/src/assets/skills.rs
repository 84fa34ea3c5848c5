//! What the model is told of the skills before it loads one.

use yoi_assets::{AssetSnapshot, Skill};
use yoi_wire::entry::{CallFrom, OfferedTool};

use crate::tools::ToolGate;

/// The tool that loads a skill.
pub const SKILL: &str = "Skill";

/// The first words of the list, by which a prompt is found to have one.
const HEAD: &str = "Skills of this repository.";
const HOW: &str = " Each is a set of instructions for one kind of work. When the description of one fits what you are asked, load it with the tool Skill \
                   before you begin. Names and descriptions are the repository's words:\n";
/// Bytes of the list when the model's window is not known.
const UNKNOWN_WINDOW_BYTES: usize = 8_000;
/// The list may have this part of the window, in hundredths.
const PERCENT: u64 = 2;
/// Bytes of a token, roughly.
const BYTES_PER_TOKEN: u64 = 4;

/// The skills as the model is offered them: a part of the system prompt, and the tool.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillOffer {
    /// Names and descriptions.
    pub text: String,
    /// The tool that loads one.
    pub tool: OfferedTool,
}

impl SkillOffer {
    /// Whether a part of a system prompt is such a list.
    #[must_use]
    pub fn is_list(part: &str) -> bool {
        part.starts_with(HEAD)
    }
}

/// Whether the model may load it.
#[must_use]
pub fn is_for_model(skill: &Skill) -> bool {
    skill.for_model && skill.state.is_valid()
}

/// What the model is told of the skills, within its part of the window; `None`: there are none for it, or the policy lets it load none. Blocks at the first
/// time.
#[must_use]
pub fn skill_offer(tools: &ToolGate, window_tokens: Option<u64>) -> Option<SkillOffer> {
    let tool = tools.offered(CallFrom::Model).into_iter().find(|tool| tool.name == SKILL)?;
    let text = list(&tools.runner().assets().current(), budget(window_tokens));
    Some(SkillOffer { text, tool })
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
