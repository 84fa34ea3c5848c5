//! The endpoint of an agent's model.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use yoi_wire::manifest::{ModelApi, ModelProvider};

use super::SecretKeyRef;
use crate::source::SUBDOMAIN;

/// The model that an agent uses, and what is called when it fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    #[serde(flatten)]
    pub endpoint: ModelEndpointSpec,
    /// Called in this order when the endpoint fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 3))]
    pub fallbacks: Vec<ModelEndpointSpec>,
}

/// One model at one endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!has(self.baseUrl) || !self.baseUrl.matches('^[a-z]+://[^/?#]*@')",
    "baseUrl must not hold a user, password or token: it stands in a ConfigMap that many may read; put the key into a Secret and name it in authSecretRef"))]
#[x_kube(validation = ("!has(self.proxyUrl) || !self.proxyUrl.matches('^[a-z]+://[^/?#]*@')",
    "proxyUrl must not hold a user, password or token: it stands in a ConfigMap that many may read"))]
#[x_kube(validation = ("!has(self.api) || self.provider == 'OpenAI'", "api may only be set with provider OpenAI: the others have one format"))]
#[x_kube(validation = ("!has(self.headers) || self.headers.all(h, self.headers.exists_one(o, o.name.lowerAscii() == h.name.lowerAscii()))",
    "each name may stand in headers once, in whatever case"))]
#[x_kube(validation = ("!has(self.headers) || !has(self.authSecretRef) \
    || !self.headers.exists(h, h.name.lowerAscii() in ['authorization', 'x-api-key', 'x-goog-api-key'])",
    "headers must not hold Authorization, x-api-key or x-goog-api-key beside authSecretRef, which sets that header: leave one of them out"))]
#[x_kube(validation = ("!has(self.headers) \
    || !self.headers.exists(h, h.name.lowerAscii() in ['host', 'content-type', 'content-length', 'transfer-encoding', 'connection', 'te', 'upgrade'])",
    "headers must not hold Host, Content-Type, Content-Length, Transfer-Encoding, Connection, TE or Upgrade: the connection sets them"))]
#[serde(rename_all = "camelCase")]
pub struct ModelEndpointSpec {
    /// The wire format of the endpoint.
    pub provider: ModelProvider,
    /// As the endpoint knows it. It is sent as written.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// Base URL with its version segment and without user and password, e.g. `https://model.example/v1/`; the provider's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^\s\x00-\x1f\x7f]+$"))]
    pub base_url: Option<String>,
    /// Key of a Secret of this namespace that holds the endpoint's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_secret_ref: Option<SecretKeyRef>,
    /// Which format of provider OpenAI. Absent: Responses without `baseUrl`, ChatCompletions with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<ModelApi>,
    /// The most tokens of one answer. The endpoint's own limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_output_tokens: Option<i32>,
    /// How much the model reasons, in the endpoint's word, e.g. `low` or `high`. Nothing is asked for when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[A-Za-z0-9][-_A-Za-z0-9]*$"))]
    pub effort: Option<String>,
    /// How long the endpoint may give no sign of life, e.g. `90s`, `10m` or `1h`; 10m when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 9), regex(pattern = r"^[0-9]{1,8}(s|m|h)$"))]
    #[x_kube(validation = ("!self.matches('^0+[smh]$')", "timeout must be more than nothing: without one of its own, leave it out"))]
    pub timeout: Option<String>,
    /// For how long a call that fails is tried again before the run ends, e.g. `30m`. Without end when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 9), regex(pattern = r"^[0-9]{1,8}(s|m|h)$"))]
    pub patience: Option<String>,
    /// Key of a ConfigMap of this namespace with PEM certificates that are trusted beside the public ones, of at most 128 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<ConfigMapKeyRef>,
    /// Headers of every request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub headers: Vec<ModelHeaderSpec>,
    /// HTTP proxy of all requests, without user and password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = r"^https?://[^\s\x00-\x1f\x7f]+$"))]
    pub proxy_url: Option<String>,
    /// The context window in tokens. Absent: what the endpoint refuses tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1_000, max = 1_000_000_000))]
    pub window: Option<i64>,
}

impl ModelEndpointSpec {
    /// An endpoint of which only provider and name are said.
    #[must_use]
    pub fn new(provider: ModelProvider, name: String) -> Self {
        ModelEndpointSpec {
            provider,
            name,
            base_url: None,
            auth_secret_ref: None,
            api: None,
            max_output_tokens: None,
            effort: None,
            timeout: None,
            patience: None,
            ca_ref: None,
            headers: Vec::new(),
            proxy_url: None,
            window: None,
        }
    }

    /// The field whose value this version does not know.
    pub(crate) fn unknown_field(&self) -> Option<&'static str> {
        match (self.provider, self.api) {
            (ModelProvider::Unknown, _) => Some("provider"),
            (_, Some(ModelApi::Unknown)) => Some("api"),
            (
                ModelProvider::OpenAI | ModelProvider::Anthropic | ModelProvider::Gemini,
                None | Some(ModelApi::Responses | ModelApi::ChatCompletions),
            ) => None,
        }
    }
}

impl From<ModelEndpointSpec> for Model {
    fn from(endpoint: ModelEndpointSpec) -> Self {
        Model { endpoint, fallbacks: Vec::new() }
    }
}

/// A header of every request: a value, or where the value stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("has(self.value) != has(self.valueFrom)", "exactly one of value and valueFrom must be set"))]
#[serde(rename_all = "camelCase")]
pub struct ModelHeaderSpec {
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[-!#$%&'*+.^_`|~0-9A-Za-z]+$"))]
    pub name: String,
    /// For values that anybody may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096), regex(pattern = r"^[\x20-\x7e]*$"))]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<HeaderSource>,
}

/// Where a header's value stands. The agent does not start without it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("has(self.secretKeyRef)", "secretKeyRef must be set"))]
#[serde(rename_all = "camelCase")]
pub struct HeaderSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeyRef>,
}

/// A key of a ConfigMap of this namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMapKeyRef {
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    #[serde(default = "default_ca_key")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^(\.?[-_a-zA-Z0-9])[-._a-zA-Z0-9]*$"))]
    pub key: String,
}

fn default_ca_key() -> String {
    "ca.crt".to_owned()
}
