//! The manifest that a runtime reads at its start. It is complete and immutable, and is named by its digest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entry::AgentRef;

/// The content of `manifest.json` in the manifest ConfigMap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentManifest {
    /// The agent that runs.
    pub agent: AgentRef,
    /// Name of the YoiProject; empty in manifests of earlier versions.
    #[serde(default)]
    pub project: String,
    /// Where the tree is mounted; the working directory of every tool.
    pub path: String,
    /// Settings of the runtime's own loop.
    pub builtin: Builtin,
    /// The model endpoint.
    pub model: ModelEndpoint,
    /// Given to the agent once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// Where the gateway is.
    pub gateway: Gateway,
    /// Limits of a run.
    pub limits: RunLimits,
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

/// Wire format of a model endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ModelProvider {
    /// OpenAI-compatible chat completions.
    OpenAI,
    /// Anthropic messages.
    Anthropic,
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
}

impl Default for RunLimits {
    fn default() -> Self {
        RunLimits { turns_per_run: 50, tool_seconds: 30, tool_output_bytes: 256 * 1024 }
    }
}
