//! The manifest that a runtime reads at its start. It is complete and immutable, and is named by its digest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::assets::AssetSettings;
use crate::conversation::MAX_CONVERSATIONS;
use crate::entry::AgentRef;
use crate::policy::ToolPolicy;
use crate::preset::Preset;
use crate::subagent::SubagentTemplate;

/// The content of `manifest.json` in the manifest ConfigMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentManifest {
    /// The agent that runs.
    pub agent: AgentRef,
    /// Name of the YoiProject; empty in manifests of earlier versions.
    #[serde(default)]
    pub project: String,
    /// Where the tree is mounted; what paths of tools are relative to.
    pub path: String,
    /// Settings of the runtime's own loop.
    pub builtin: Builtin,
    /// The program that is the agent; absent: the runtime's own loop is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
    /// The model endpoint. Only a program can do without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelEndpoint>,
    /// Given to the agent once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Where the gateway is.
    pub gateway: Gateway,
    /// Limits of a run.
    pub limits: RunLimits,
    /// When and how far the conversation is compacted.
    #[serde(default)]
    pub compaction: CompactionLimits,
    /// What calls of tools may do; absent in manifests of earlier versions.
    #[serde(default, skip_serializing_if = "ToolPolicy::is_empty")]
    pub policy: ToolPolicy,
    /// How skills, commands and workflows are read.
    #[serde(default, skip_serializing_if = "AssetSettings::is_default")]
    pub assets: AssetSettings,
    /// What sub-agents its conversations may start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<SubagentTemplate>,
    /// Whether the agent may start others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delegation: bool,
    /// Whether it may lend them paths of its tree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lends: bool,
    /// The folder in which commands of tools start, relative to `path`; absent: `path` itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Bytes of a segment of the session after which the next one begins; absent: 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u64>,
}

/// What a runtime needs to serve what a stopped agent has done. It stands in the environment, because it changes with each reader.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReaderManifest {
    /// The agent that is read.
    pub agent: AgentRef,
    /// Where the agent's tree is mounted; absent when the tree is gone or was never made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How skills, commands and workflows are read.
    #[serde(default, skip_serializing_if = "AssetSettings::is_default")]
    pub assets: AssetSettings,
    /// Where the gateway is.
    pub gateway: Gateway,
}

/// Settings of the runtime's own loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Builtin {
    /// The system prompt's part that the user wrote.
    #[serde(default)]
    pub instruction: String,
}

/// A program that is the agent: a preset's, or any command. One process is one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Program {
    /// The preset, where the operator knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// The file that holds the preset as YAML, where a ConfigMap of the user's has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset_file: Option<String>,
    /// Added to the preset's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The folder of the Secret in `credentialsSecretRef`, one file a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
    /// Program and arguments; empty where a preset is used. The input is its standard input, its output is the answer, and its exit code the outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// Wire format of a model endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ModelProvider {
    /// OpenAI, or an endpoint that is compatible with it.
    OpenAI,
    /// Anthropic messages.
    Anthropic,
    /// Gemini's own format.
    Gemini,
    /// A provider of another version. An object that names one must break no watch.
    #[schemars(skip)]
    Unknown,
}

impl<'de> Deserialize<'de> for ModelProvider {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'de, str> as Deserialize>::deserialize(from)?;
        Ok(match &*name {
            "OpenAI" => ModelProvider::OpenAI,
            "Anthropic" => ModelProvider::Anthropic,
            "Gemini" => ModelProvider::Gemini,
            _ => ModelProvider::Unknown,
        })
    }
}

/// How to reach the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEndpoint {
    /// Wire format of the endpoint.
    pub provider: ModelProvider,
    /// Name of the model, as the endpoint knows it.
    pub name: String,
    /// Base URL up to and including the version segment, e.g. `http://model.example/v1/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The Secret with the endpoint's key, if the user named one: its absence is then reported as SecretMissing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_secret: Option<SecretKeyName>,
    /// The variable of the runtime that holds the key; absent: [`crate::identity::env::MODEL_API_KEY`], if `key_secret` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_env: Option<String>,
    /// Which of a provider's wire formats; absent: Responses for OpenAI without a base URL, ChatCompletions with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<ModelApi>,
    /// The most tokens of one answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// How much to reason, in the endpoint's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Seconds without a sign of life from the endpoint; absent: 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Seconds for which a call that fails is tried again before the run ends; absent: without end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_seconds: Option<u64>,
    /// Certificates that are trusted beside the public ones, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The variable of the runtime that holds them, when `ca` does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_env: Option<String>,
    /// Headers of every request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<ModelHeader>,
    /// Proxy of all requests, as a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
    /// The context window in tokens, where the user knows it; absent: found out by what the endpoint refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u64>,
    /// What to call when this endpoint fails, in order. A fallback has no fallbacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<ModelEndpoint>,
}

impl ModelEndpoint {
    /// The model of this name, and the defaults for all else.
    #[must_use]
    pub fn new(provider: ModelProvider, name: &str) -> Self {
        Self {
            provider,
            name: name.to_owned(),
            base_url: None,
            key_secret: None,
            key_env: None,
            api: None,
            max_output_tokens: None,
            effort: None,
            timeout_seconds: None,
            patience_seconds: None,
            ca: None,
            ca_env: None,
            headers: Vec::new(),
            proxy_url: None,
            window_tokens: None,
            fallbacks: Vec::new(),
        }
    }
}

/// A wire format of OpenAI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModelApi {
    /// `/responses`.
    Responses,
    /// `/chat/completions`.
    ChatCompletions,
    /// One of a newer version.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// A header of every request to the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelHeader {
    /// Name of the header.
    pub name: String,
    /// Its value; absent when it comes from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The variable of the runtime that holds its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_env: Option<String>,
}

/// When and how far a conversation is compacted, in tokens as the endpoint counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionLimits {
    /// Above this many tokens of a request; absent: 80 % of the window, when it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// How many tokens of the latest turns stay as they are; absent: 20,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u64>,
}

/// Names a value of a Secret in the agent's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeyName {
    /// Name of the Secret.
    pub secret: String,
    /// Key in its data.
    pub key: String,
}

/// `spec.task`, submitted once by its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Derived from the YoiPod's UID and the text.
    pub id: String,
    /// What the model reads.
    pub text: String,
}

/// How to reach the gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// Headless Service and port. The runtime keeps one line to each address behind it.
    pub lines: String,
    /// Service name and port for the runtime's own requests.
    pub service: String,
    /// Name in the gateway's certificate.
    pub server_name: String,
    /// CA of that certificate, PEM.
    pub ca: String,
}

/// Limits of a run and of its tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunLimits {
    /// Model calls in one run.
    pub turns_per_run: u32,
    /// Seconds that one tool call may take.
    pub tool_seconds: u32,
    /// Bytes of output that a tool call may return.
    pub tool_output_bytes: u32,
    /// Tokens in and out over the agent's life, as the endpoint counts them. While the agent runs, the file [`crate::identity::TOKENS_FILE`] says it anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Seconds after which a program that is the agent and writes nothing is ended; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_seconds: Option<u32>,
    /// Conversations that may run beside `main`; absent: [`crate::conversation::MAX_CONVERSATIONS`], which is also the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversations: Option<u32>,
}

impl RunLimits {
    /// How many conversations may run beside `main`.
    #[must_use]
    pub fn most_conversations(&self) -> usize {
        let own = self.conversations.and_then(|most| usize::try_from(most).ok());
        own.map_or(MAX_CONVERSATIONS, |most| most.min(MAX_CONVERSATIONS))
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits {
            turns_per_run: 50,
            tool_seconds: 30,
            tool_output_bytes: 256 * 1024,
            tokens: None,
            silence_seconds: None,
            conversations: None,
        }
    }
}
