//! What the user may say of the Kubernetes Pod that runs an agent.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration, Volume, VolumeMount};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::security::SecuritySettings;
use super::{SecretRef, scheduling, volumes};
use crate::open_enum::open_enum;
use crate::source::SUBDOMAIN;

/// What the user may say of the Kubernetes Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSettings {
    /// The chart's agent image when absent. It needs git and a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), regex(pattern = r"^[A-Za-z0-9\[][-A-Za-z0-9._:/@+\[\]]*$"))]
    pub image: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    #[serde(default, skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// Environment of the agent's tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[x_kube(validation = ("self.map(e, has(e.value) ? size(e.value) : 0).sum() <= 131072", "the values of env must not hold more than 131072 letters in all"))]
    pub env: Vec<EnvVar>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "labels")]
    pub node_selector: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<SecretRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub runtime_class_name: Option<String>,
    /// As of a Pod. It counts beside the nodes that hold the tree or can make it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "scheduling::affinity")]
    pub affinity: Option<Box<Affinity>>,
    /// As of a Pod. Those of a project's defaults count when a node is chosen for its first base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "scheduling::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// As of a Pod, of the kinds that Pod Security *restricted* allows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "volumes::volumes")]
    pub volumes: Vec<Volume>,
    /// Where the agent's container has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "volumes::mounts")]
    pub volume_mounts: Vec<VolumeMount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<Box<SecuritySettings>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ImagePullPolicy {
    Always,
    IfNotPresent,
    Never,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(ImagePullPolicy: Always, IfNotPresent, Never);

/// Quantities as in a Pod: `cpu`, `memory`, `ephemeral-storage`, and what devices a cluster offers under names like `example.com/gpu`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits) \
    || quantity(self.requests[k]).compareTo(quantity(self.limits[k])) <= 0)", "requests must not be above limits"))]
#[x_kube(validation = ("!has(self.requests) || self.requests.all(k, !k.contains('/') \
    || (has(self.limits) && k in self.limits && self.limits[k] == self.requests[k]))", "requests of devices must be the same as their limits"))]
pub struct Resources {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub requests: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantities")]
    pub limits: BTreeMap<String, String>,
}

/// What a Pod would be refused for later is refused here.
fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "type": "string",
            "maxLength": 32,
            "pattern": r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][0-9]{1,2})?$",
        },
        "x-kubernetes-validations": [
            {
                "rule": r"self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'] || k.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",
                "message": "requests and limits are of cpu, memory, ephemeral-storage, or of devices with names like example.com/gpu",
            },
            {
                "rule": "self.all(k, !k.contains('/') || self[k].matches('^[0-9]+$'))",
                "message": "requests and limits of devices are whole numbers",
            },
        ],
    })
}

fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"},
        "x-kubernetes-validations": [{
            "rule": r"self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))",
            "message": "nodeSelector must be of names of labels",
        }],
    })
}

impl Resources {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }
}

/// A variable: a value, or where the value stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!has(self.valueFrom) || !has(self.value) || self.value == ''", "at most one of value and valueFrom may be set"))]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    #[x_kube(validation = ("!self.startsWith('YOI_')", "names that begin with YOI_ are reserved"))]
    pub name: String,
    #[schemars(length(max = 32_768), regex(pattern = r"^[^\x00]*$"))]
    #[serde(default)]
    pub value: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvSource>,
}

/// Where a variable's value stands. The agent does not start without it, unless it is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].filter(x, x).size() == 1",
    "exactly one of secretKeyRef, configMapKeyRef and fieldRef must be set"))]
#[serde(rename_all = "camelCase")]
pub struct EnvSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
}

/// A key of a Secret or ConfigMap of this namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRef {
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[-._a-zA-Z0-9]+$"))]
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the agent's own Pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldRef {
    #[schemars(schema_with = "field_path")]
    pub field_path: String,
}

fn field_path(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "status.podIP"]})
}
