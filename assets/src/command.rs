//! Commands: prompts with parameters, of `.md` and of Gemini's `.toml`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{AssetState, Source};

mod arguments;
mod gemini;
mod markdown;
mod parameters;
mod template;

pub use parameters::{Parameter, ParameterType};
pub(crate) use template::{Dialect, Template};
pub use template::{Part, Rendered};

pub(crate) use gemini::read as read_toml;
pub(crate) use markdown::read as read_markdown;

/// A prompt with parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// What stands after the `/`.
    pub name: String,
    /// What it does: as the file says, else the first line of the prompt.
    pub description: String,
    /// What its arguments are, in the words of its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument_hint: Option<String>,
    /// Of its file, relative to the root.
    pub path: String,
    /// Whose folder it comes from.
    pub source: Source,
    /// The parameters by name, in the order of the file. None: what stands after the name is one text.
    pub parameters: Vec<Parameter>,
    /// The prompt, as the file has it.
    #[serde(skip)]
    pub body: String,
    /// Rules that a call which stands in the command has to match, beside the policy's own: they only narrow. `None`: they narrow nothing; an
    /// empty list: they allow no tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Whether the model may call it, as the tool `command.run.NAME`.
    pub for_model: bool,
    /// Whether it is in effect.
    pub state: AssetState,
    /// `model`, of the file. The model of an agent does not follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip)]
    pub(crate) template: Template,
}

/// A command cannot be made a prompt of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The file is not as its format has it.
    #[error("the command {name:?} is invalid, so nothing was done: {reason}")]
    Invalid {
        /// Of the command.
        name: String,
        /// Why.
        reason: String,
    },
    /// Parameters without a value.
    #[error("the command {name:?} needs a value for {}: write {usage}", .missing.join(", "))]
    Missing {
        /// Of the command.
        name: String,
        /// Of the parameters.
        missing: Vec<String>,
        /// How the command is called.
        usage: String,
    },
    /// Values that belong to no parameter.
    #[error("the command {name:?} has no parameter for {}: write {usage}", .surplus.join(", "))]
    Surplus {
        /// Of the command.
        name: String,
        /// The names, or the words.
        surplus: Vec<String>,
        /// How the command is called.
        usage: String,
    },
    /// A value is not of its parameter's type.
    #[error("the parameter {parameter:?} of the command {name:?} has to be {expected}")]
    WrongType {
        /// Of the command.
        name: String,
        /// Of the parameter.
        parameter: String,
        /// A noun with its article.
        expected: &'static str,
    },
    /// What stands after the name cannot be cut into words, or is no object of JSON.
    #[error("failed to understand what stands after {name:?}: {reason}")]
    Arguments {
        /// Of the command.
        name: String,
        /// Why.
        reason: String,
    },
    /// The prompt would be too long.
    #[error("the text of the command {name:?} with its parameters is longer than {} bytes", template::MAX_RENDERED_BYTES)]
    TooLong {
        /// Of the command.
        name: String,
    },
}

impl Command {
    /// The prompt with what stands after `/name `. Each parameter is inserted once, as it is, and the text is not read again.
    ///
    /// # Errors
    /// The command is invalid, or its arguments are not what it needs.
    pub fn render(&self, arguments: &str) -> Result<Rendered, RenderError> {
        self.check()?;
        let values = parameters::from_text(self, arguments)?;
        self.template.render(&self.name, arguments, &values)
    }

    /// The prompt with values by name, as [`Command::input_schema`] has them.
    ///
    /// # Errors
    /// The command is invalid, or the values are not what it needs.
    pub fn render_named(&self, values: &Map<String, Value>) -> Result<Rendered, RenderError> {
        self.check()?;
        if self.parameters.is_empty() {
            let arguments = parameters::only_text(self, values)?;
            return self.template.render(&self.name, &arguments, &[]);
        }
        let (values, text) = parameters::from_values(self, values)?;
        self.template.render(&self.name, &text, &values)
    }

    /// A JSON schema of the values that [`Command::render_named`] takes. That of an invalid command says nothing about them.
    #[must_use]
    pub fn input_schema(&self) -> Value {
        if matches!(self.state, AssetState::Invalid { .. }) {
            return json!({"type": "object"});
        }
        parameters::schema(self)
    }

    /// How the command is called.
    #[must_use]
    pub fn usage(&self) -> String {
        parameters::usage(self)
    }

    fn check(&self) -> Result<(), RenderError> {
        match &self.state {
            AssetState::Invalid { reason, .. } => Err(RenderError::Invalid { name: self.name.clone(), reason: reason.clone() }),
            AssetState::Valid | AssetState::Shadowed { .. } | AssetState::Disabled => Ok(()),
        }
    }
}
