//! Schemas of volumes and their mounts: those of a Pod, of the kinds that Pod Security *restricted* allows, with a bound on each string and list.
//!
//! A projected token is not among them: an agent has no token for the API server.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::source::{PATH_PATTERN, SUBDOMAIN};

const QUANTITY: &str = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$";
const MODE: i32 = 0o777;

fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 253, "pattern": SUBDOMAIN})
}

fn mode() -> Value {
    json!({"type": "integer", "format": "int32", "minimum": 0, "maximum": MODE})
}

/// A relative path to a file, without `..`.
pub(super) fn file() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 256, "pattern": r"^[A-Za-z0-9._+@-]+(/[A-Za-z0-9._+@-]+)*$",
        "x-kubernetes-validations": [{"rule": "!self.contains('..')", "message": "path must not hold .."}]})
}

/// Which keys become which files.
fn items() -> Value {
    json!({"type": "array", "maxItems": 32, "items": {"type": "object", "required": ["key", "path"], "properties": {
        "key": {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[-._a-zA-Z0-9]+$"}, "path": file(), "mode": mode(),
    }}})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

/// The fields of the agent's own Pod that become files.
fn fields() -> Value {
    json!({"type": "array", "maxItems": 16, "items": {"type": "object", "required": ["path", "fieldRef"], "properties": {
        "path": file(),
        "mode": mode(),
        "fieldRef": {"type": "object", "required": ["fieldPath"], "properties": {"fieldPath": {"type": "string",
            "enum": ["metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"]}}},
    }}})
}

fn projected() -> Value {
    json!({"type": "object", "required": ["sources"], "properties": {
        "defaultMode": mode(),
        "sources": {"type": "array", "minItems": 1, "maxItems": 16, "items": {
            "type": "object",
            "properties": {
                "configMap": {"type": "object", "required": ["name"], "properties": {"name": name(), "items": items(), "optional": boolean()}},
                "secret": {"type": "object", "required": ["name"], "properties": {"name": name(), "items": items(), "optional": boolean()}},
                "downwardAPI": {"type": "object", "properties": {"items": fields()}},
            },
            "x-kubernetes-validations": [{
                "rule": "[has(self.configMap), has(self.secret), has(self.downwardAPI)].filter(x, x).size() == 1",
                "message": "a source has exactly one of configMap, secret and downwardAPI; an agent has no token for the API server",
            }],
        }},
    }})
}

fn ephemeral() -> Value {
    let requests = json!({"type": "object", "required": ["storage"], "properties": {
        "storage": {"type": "string", "maxLength": 32, "pattern": QUANTITY}}});
    json!({"type": "object", "required": ["volumeClaimTemplate"], "properties": {
        "volumeClaimTemplate": {"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["accessModes", "resources"], "properties": {
                "accessModes": {"type": "array", "minItems": 1, "maxItems": 4, "items": {"type": "string",
                    "enum": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]}},
                "storageClassName": name(),
                "resources": {"type": "object", "required": ["requests"], "properties": {"requests": requests}},
            }},
        }},
    }})
}

fn csi() -> Value {
    json!({
        "type": "object",
        "required": ["driver"],
        "properties": {
            "driver": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$"},
            "fsType": {"type": "string", "maxLength": 32},
            "readOnly": boolean(),
            "volumeAttributes": {"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 512}},
            "nodePublishSecretRef": {"type": "object", "required": ["name"], "properties": {"name": name()}},
        },
        "x-kubernetes-validations": [{
            "rule": format!("self.driver != '{}'", yoi_wire::identity::CSI_DRIVER),
            "message": "an agent gets its tree by spec.workspace; another workspace with a claim is a persistentVolumeClaim",
        }],
    })
}

/// The claim that an agent gets for its session is named after it. Another agent that mounted it could read and change what the first has done.
fn claim() -> Value {
    let mut name = name();
    name["x-kubernetes-validations"] = json!([{
        "rule": "!self.endsWith('-session')",
        "message": "claims whose names end in -session are reserved for the sessions of agents, and nothing else mounts them",
    }]);
    json!({"type": "object", "required": ["claimName"], "properties": {"claimName": name, "readOnly": boolean()}})
}

pub(super) fn volumes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 16, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                "x-kubernetes-validations": [{
                    "rule": "!(self in ['runtime', 'tree', 'session', 'manifest', 'token', 'tmp', 'home', 'yoi-preset', 'yoi-credentials']) && !self.startsWith('yoi-assets-')",
                    "message": "runtime, tree, session, manifest, token, tmp, home, yoi-preset, yoi-credentials and yoi-assets-* are volumes of agents: take another name",
                }]},
            "configMap": {"type": "object", "required": ["name"],
                "properties": {"name": name(), "items": items(), "optional": boolean(), "defaultMode": mode()}},
            "secret": {"type": "object", "required": ["secretName"],
                "properties": {"secretName": name(), "items": items(), "optional": boolean(), "defaultMode": mode()}},
            "emptyDir": {"type": "object", "properties": {"medium": {"type": "string", "enum": ["", "Memory"]},
                "sizeLimit": {"type": "string", "maxLength": 32, "pattern": QUANTITY}}},
            "persistentVolumeClaim": claim(),
            "downwardAPI": {"type": "object", "properties": {"items": fields(), "defaultMode": mode()}},
            "projected": projected(),
            "ephemeral": ephemeral(),
            "csi": csi(),
        },
        "x-kubernetes-validations": [{
            "rule": "[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim), has(self.downwardAPI), \
                has(self.projected), has(self.ephemeral), has(self.csi)].filter(x, x).size() == 1",
            "message": "a volume has exactly one of configMap, csi, downwardAPI, emptyDir, ephemeral, persistentVolumeClaim, projected and secret; \
                Pod Security restricted allows no other, and so no hostPath",
        }],
    }})
}

/// The mounts of every agent, and what lies above or beneath them, stay as they are. Beneath `/tmp` and `/home/agent` there is room for others.
const MOUNT_RULE: &str = "!self.contains('/../') && !self.endsWith('/..') && !self.contains('/./') && !self.endsWith('/.') \
    && !['/', '/yoi', '/session', '/tmp', '/home', '/home/agent', '/etc', '/etc/yoi', '/etc/yoi-preset', '/etc/yoi-credentials', '/etc/yoi-assets', '/var', '/var/run', '/var/run/yoi', '/run', '/run/yoi', '/proc', \
    '/sys', '/dev'].exists(p, self == p) \
    && !['/yoi/', '/session/', '/etc/yoi/', '/etc/yoi-preset/', '/etc/yoi-credentials/', '/etc/yoi-assets/', '/var/run/yoi/', '/run/yoi/', '/proc/', '/sys/'].exists(p, self.startsWith(p))";

pub(super) fn mounts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 32, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["mountPath"], "items": {
        "type": "object",
        "required": ["name", "mountPath"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 63},
            "mountPath": {"type": "string", "minLength": 2, "maxLength": 256, "pattern": PATH_PATTERN, "x-kubernetes-validations": [{
                "rule": MOUNT_RULE,
                "message": "mountPath must not hold . or .. and must not cover a system folder or a volume of agents (/yoi, /session, /etc/yoi, \
                    /etc/yoi-preset, /etc/yoi-credentials, /etc/yoi-assets, /var/run/yoi, /tmp, /home/agent)",
            }]},
            "subPath": file(),
            "readOnly": boolean(),
        },
    }})
}
