//! What an agent's runtime is told at its start: resolved, immutable, named by digest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entry::AgentRef;

/// The whole of it, as it stands in `manifest.json` of the manifest ConfigMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentManifest {
    pub agent: AgentRef,
    /// Where the tree is mounted; the working directory of every tool.
    pub path: String,
    pub builtin: Builtin,
    pub model: ModelEndpoint,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    pub gateway: Gateway,
    pub limits: RunLimits,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Builtin {
    /// The system prompt's part that the user wrote.
    #[serde(default)]
    pub instruction: String,
}

/// Wire format of a model endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ModelProvider {
    /// OpenAI-compatible chat completions.
    OpenAI,
    /// Anthropic messages.
    Anthropic,
    /// Of another version: an object that names it must stop no watch.
    #[schemars(skip)]
    Unknown,
}

impl<'de> Deserialize<'de> for ModelProvider {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = <std::borrow::Cow<'de, str> as Deserialize>::deserialize(from)?;
        Ok(match &*word {
            "OpenAI" => ModelProvider::OpenAI,
            "Anthropic" => ModelProvider::Anthropic,
            _ => ModelProvider::Unknown,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEndpoint {
    pub provider: ModelProvider,
    pub name: String,
    /// Base URL up to and including the version segment, e.g. `http://model.example/v1/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// True when the user named a Secret: its absence is then reported as SecretMissing.
    #[serde(default)]
    pub needs_key: bool,
}

/// `spec.task`, submitted once by its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Derived from the YoiPod's UID and the text.
    pub id: String,
    pub text: String,
}

/// How to reach the hub.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// Headless name and port: one line to every address behind it.
    pub lines: String,
    /// Service name and port for the runtime's own requests.
    pub service: String,
    /// Name that the gateway's certificate bears.
    pub server_name: String,
    /// CA that signed it, PEM.
    pub ca: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunLimits {
    /// Model calls in one run.
    pub turns_per_run: u32,
    /// Seconds that one tool call may take.
    pub tool_seconds: u32,
    /// Bytes of output that a tool call may return.
    pub tool_output_bytes: u32,
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits { turns_per_run: 50, tool_seconds: 30, tool_output_bytes: 256 * 1024 }
    }
}
