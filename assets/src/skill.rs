//! Skills, by the Agent Skills standard (agentskills.io), and with the keys of jido.

use std::sync::Arc;

use serde::Serialize;

use crate::command::{Rendered, Template};
use crate::{AssetState, Source};

mod read;
pub(crate) use read::read;

/// A skill: what the model learns to do from its text and from the files of its folder.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Skill {
    /// Of the front matter; of the folder where that has none.
    pub name: String,
    /// What it does and when it is of use. Empty in one that is invalid for want of it.
    pub description: String,
    /// Of its `SKILL.md`, relative to the root.
    pub path: String,
    /// The folder of that file, whose other files are read by path.
    pub folder: String,
    /// Whose folder it comes from.
    pub source: Source,
    /// The text below the front matter.
    #[serde(skip)]
    pub body: Arc<str>,
    /// Rules that a call which stands in the skill has to match, beside the policy's own: they only narrow. `None`: they narrow nothing;
    /// an empty list: they allow no tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Whether the model may load it.
    pub for_model: bool,
    /// Whether people may call it by `/name`.
    pub for_people: bool,
    /// Whether it is in effect.
    pub state: AssetState,
    /// `version`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `license`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// `compatibility`: what it needs, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// `metadata`, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<(String, String)>,
    /// `jido.actions`: tools that it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// `jido.router`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    #[serde(skip)]
    pub(crate) template: Template,
}

/// A signal of a skill, and the tool that it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Dotted: `path/to/thing` of the file is `path.to.thing`.
    pub signal: String,
    /// One of the skill's actions.
    pub action: String,
}

impl Skill {
    /// The skill's text with what stands after `/name `. [`Command::render`](crate::Command::render) says how it is inserted.
    ///
    /// # Errors
    /// It is not in effect, or the text would be too long.
    pub fn render(&self, arguments: &str) -> Result<Rendered, crate::RenderError> {
        if let AssetState::Invalid { reason, .. } = &self.state {
            return Err(crate::RenderError::Invalid { name: self.name.clone(), reason: reason.clone() });
        }
        self.template.render(&self.name, arguments, &[])
    }
}
