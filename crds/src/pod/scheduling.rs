//! Schemas of affinity and tolerations: those of a Pod, with a bound on each string and list.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Names of labels, as Kubernetes takes them.
pub(super) const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const LABEL_VALUE: &str = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$";

fn key() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 317, "pattern": LABEL_KEY})
}

fn values() -> Value {
    json!({"type": "array", "maxItems": 32, "items": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE}})
}

fn weight() -> Value {
    json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 100})
}

/// Requirements of labels; `numbers` also by Gt and Lt, which only nodes have.
fn expressions(numbers: bool) -> Value {
    let operators: &[&str] =
        if numbers { &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] } else { &["In", "NotIn", "Exists", "DoesNotExist"] };
    let mut rules = vec![
        json!({"rule": "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)", "message": "In and NotIn need values"}),
        json!({"rule": "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
            "message": "Exists and DoesNotExist take no values"}),
    ];
    if numbers {
        rules.push(json!({"rule": "!(self.operator in ['Gt', 'Lt']) || (has(self.values) && size(self.values) == 1 && self.values[0].matches('^-?[0-9]{1,18}$'))",
            "message": "Gt and Lt need one whole number"}));
    }
    json!({"type": "array", "minItems": 1, "maxItems": 8, "items": {
        "type": "object",
        "required": ["key", "operator"],
        "properties": {"key": key(), "operator": {"type": "string", "enum": operators}, "values": values()},
        "x-kubernetes-validations": rules,
    }})
}

fn node_term() -> Value {
    json!({"type": "object", "required": ["matchExpressions"], "properties": {"matchExpressions": expressions(true)}})
}

fn node_affinity() -> Value {
    json!({"type": "object", "properties": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"type": "object", "required": ["nodeSelectorTerms"], "properties": {
            "nodeSelectorTerms": {"type": "array", "minItems": 1, "maxItems": 8, "items": node_term()},
        }},
        "preferredDuringSchedulingIgnoredDuringExecution": {"type": "array", "maxItems": 8, "items": {
            "type": "object", "required": ["weight", "preference"], "properties": {"weight": weight(), "preference": node_term()},
        }},
    }})
}

/// Pods of the namespace by their labels, and what of a node is to be the same for them.
fn pod_term() -> Value {
    json!({"type": "object", "required": ["labelSelector", "topologyKey"], "properties": {
        "labelSelector": {"type": "object", "properties": {
            "matchLabels": {"type": "object", "maxProperties": 16,
                "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
                "x-kubernetes-validations": [{
                    "rule": format!("self.all(k, k.matches('{LABEL_KEY}'))"), "message": "matchLabels must be of names of labels",
                }]},
            "matchExpressions": expressions(false),
        }},
        "topologyKey": key(),
    }})
}

fn pod_affinity() -> Value {
    json!({"type": "object", "properties": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"type": "array", "maxItems": 8, "items": pod_term()},
        "preferredDuringSchedulingIgnoredDuringExecution": {"type": "array", "maxItems": 8, "items": {
            "type": "object", "required": ["weight", "podAffinityTerm"], "properties": {"weight": weight(), "podAffinityTerm": pod_term()},
        }},
    }})
}

pub(super) fn affinity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "properties": {"nodeAffinity": node_affinity(), "podAffinity": pod_affinity(), "podAntiAffinity": pod_affinity()},
    })
}

pub(super) fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": 16, "items": {
        "type": "object",
        "properties": {
            "key": key(),
            "operator": {"type": "string", "enum": ["Equal", "Exists"]},
            "value": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE},
            "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
            "tolerationSeconds": {"type": "integer", "format": "int64"},
        },
        "x-kubernetes-validations": [
            {"rule": "has(self.key) || (has(self.operator) && self.operator == 'Exists')", "message": "a toleration without a key needs operator Exists"},
            {"rule": "!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'", "message": "operator Exists takes no value"},
            {"rule": "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "message": "tolerationSeconds needs effect NoExecute"},
        ],
    }})
}
