//! How a program is driven as an agent. It is data: another program is another preset, and no code.
//!
//! Texts of a preset may hold placeholders, which the runtime fills in for each run:
//!
//! | Placeholder | Stands for |
//! |---|---|
//! | `${input}` | what the agent is asked |
//! | `${session}` | the program's own session id, in arguments of a resumed run |
//! | `${model}` | the model's name |
//! | `${proxy}` | base URL of the model proxy on the Pod's loopback, without a slash at its end |
//! | `${token}` | the run's token: it opens the proxy and the runtime's socket, and nothing else |
//! | `${runtime}` | path of the binary `yoi-runtime` |
//! | `${home}`, `${tree}` | the program's HOME, and the root of the tree |

mod check;

use std::collections::BTreeMap;

pub use check::PresetError;
use serde::{Deserialize, Serialize};

/// How one program is driven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Preset {
    /// Name in `spec.agent.cli.preset`: a DNS label.
    pub name: String,
    /// The executable, looked up in PATH.
    pub program: String,
    /// Arguments that print the version.
    #[serde(default)]
    pub version_args: Vec<String>,
    /// Versions whose output the parser knows, as prefixes such as `2.0.`. Another one runs too, and the condition says so.
    #[serde(default)]
    pub versions: Vec<String>,
    /// Arguments of a run without a session of the program's own.
    pub first_args: Vec<String>,
    /// Arguments of a run that goes on in the program's session; absent: the program cannot, and each run is a first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_args: Option<Vec<String>>,
    /// How the program is given what it is asked.
    #[serde(default)]
    pub input: PresetInput,
    /// Variables of the program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Files in HOME that are written anew before each run.
    #[serde(default)]
    pub files: Vec<PresetFile>,
    /// Wire formats that the program can speak to its model, the best first.
    pub speaks: Vec<ProgramFormat>,
    /// What reads its output.
    pub parser: ParserName,
    /// Whether its seeded files make it call `yoi-runtime hook` before and after each tool, so that a call is durable before it starts. With `hook before
    /// --wait SECONDS` a call may wait so long for a person; the program has to wait 20 s longer for its hook.
    #[serde(default)]
    pub hooks: bool,
    /// Keys of the Secret in `credentialsSecretRef`, and the files in HOME that they become. The agent does not start while the first one is missing.
    #[serde(default)]
    pub credentials: Vec<PresetCredential>,
    /// What is different for an agent with such credentials: the program then asks its own provider, and not the proxy. Absent: nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<PresetLogin>,
}

/// How a program is driven that has a login of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PresetLogin {
    /// All variables of the program, in place of the preset's.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// In place of the preset's files with the same path.
    #[serde(default)]
    pub files: Vec<PresetFile>,
    /// Words of the program when its login is not good, or no longer. They are looked for when a run has failed.
    #[serde(default)]
    pub prompts: Vec<String>,
}

impl Preset {
    /// The preset for an agent that brings a login. `login` stays, so that its prompts are known.
    #[must_use]
    pub fn with_login(self) -> Self {
        let Some(login) = self.login.clone() else { return self };
        let mut files = self.files;
        files.retain(|file| login.files.iter().all(|own| own.path != file.path));
        files.extend(login.files);
        Preset { env: login.env, files, ..self }
    }

    /// The format of a model of provider OpenAI that has a URL of its own and names no `api`. Most such endpoints have chat completions only, so it is
    /// that, unless the program speaks Responses and not chat completions.
    #[must_use]
    pub fn format_of_compatible_endpoint(&self) -> ProgramFormat {
        let speaks = |format| self.speaks.contains(&format);
        if speaks(ProgramFormat::Responses) && !speaks(ProgramFormat::ChatCompletions) {
            ProgramFormat::Responses
        } else {
            ProgramFormat::ChatCompletions
        }
    }
}

/// How a program is given what it is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PresetInput {
    /// On its standard input, which is then closed.
    #[default]
    Stdin,
    /// As the placeholder `${input}` in its arguments. Standard input is empty.
    Argument,
}

/// A file that is written before each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PresetFile {
    /// Path below HOME.
    pub path: String,
    /// Its content, with placeholders.
    pub content: String,
}

/// A credential that the user brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PresetCredential {
    /// Key in the Secret's data.
    pub key: String,
    /// Path below HOME. It is written once: the program may renew it.
    pub path: String,
}

/// A wire format between a program and its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProgramFormat {
    /// Anthropic messages: `/v1/messages`.
    Anthropic,
    /// OpenAI Responses: `/v1/responses`.
    Responses,
    /// OpenAI chat completions: `/v1/chat/completions`.
    ChatCompletions,
    /// Gemini: `/v1beta/models/...`.
    Gemini,
}

/// What reads a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParserName {
    /// `claude -p --output-format stream-json`.
    Claude,
    /// `codex exec --json`.
    Codex,
    /// `gemini -p --output-format stream-json`.
    Gemini,
    /// `copilot -p` with its JSON output.
    Copilot,
    /// `opencode run --format json`.
    Opencode,
    /// `goose run --output-format stream-json`.
    Goose,
    /// All of its output is one answer.
    Text,
}
