//! The security context of an agent's Pod: what *restricted* leaves to the user.

use k8s_openapi::api::core::v1::{AppArmorProfile, SELinuxOptions, SeccompProfile};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::volumes;

/// What *restricted* leaves to the user, and what a Pod says to pass it, which is always so. Other values are refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!has(self.runAsNonRoot) || self.runAsNonRoot", "agents never run as root: leave runAsNonRoot out"))]
#[x_kube(validation = ("!has(self.readOnlyRootFilesystem) || self.readOnlyRootFilesystem",
    "an agent writes its tree, /tmp and /home/agent, and nothing of its image: leave readOnlyRootFilesystem out, and mount an emptyDir where it needs more"))]
#[x_kube(validation = ("!has(self.allowPrivilegeEscalation) || !self.allowPrivilegeEscalation",
    "agents run under Pod Security restricted: leave allowPrivilegeEscalation out"))]
#[x_kube(validation = ("!has(self.privileged) || !self.privileged", "agents run under Pod Security restricted: leave privileged out"))]
#[serde(rename_all = "camelCase")]
pub struct SecuritySettings {
    /// The uid of the tree, if set: agents run as the owner of their tree, `spec.owner` of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// The gid of the tree, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_group: Option<i64>,
    /// The gid of the tree, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub fs_group: Option<i64>,
    /// Always true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// Always true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,
    /// Always false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// Always false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<bool>,
    /// All are dropped, always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// Further groups of the agent's processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "groups")]
    pub supplemental_groups: Vec<i64>,
    /// RuntimeDefault when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "seccomp_profile")]
    pub seccomp_profile: Option<SeccompProfile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "app_armor_profile")]
    pub app_armor_profile: Option<AppArmorProfile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "se_linux")]
    pub se_linux_options: Option<SELinuxOptions>,
}

/// Capabilities of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capabilities {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "capability_names")]
    pub drop: Vec<String>,
}

fn capability_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 64, "items": {"type": "string", "maxLength": 64}})
}

fn groups(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 16, "items": {"type": "integer", "format": "int64", "minimum": 1, "maximum": 2_147_483_647}})
}

/// A file below the kubelet's folder of profiles.
fn seccomp_profile(_: &mut SchemaGenerator) -> Schema {
    profile(&volumes::file())
}

/// A name, which Kubernetes refuses between blanks.
fn app_armor_profile(_: &mut SchemaGenerator) -> Schema {
    profile(&json!({"type": "string", "minLength": 1, "maxLength": 253, "pattern": r"^\S(.*\S)?$"}))
}

fn profile(name: &Value) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "required": ["type"],
        "properties": {
            "type": {"type": "string", "enum": ["RuntimeDefault", "Localhost"]},
            "localhostProfile": name,
        },
        "x-kubernetes-validations": [{
            "rule": "has(self.localhostProfile) == (self.type == 'Localhost')",
            "message": "type Localhost needs localhostProfile, and no other type has it",
        }],
    })
}

fn se_linux(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {
            "level": {"type": "string", "maxLength": 128},
            "type": {"type": "string", "enum": ["container_t", "container_init_t", "container_kvm_t", "container_engine_t"]},
        },
    })
}
