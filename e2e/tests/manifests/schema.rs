//! Walks a schema: every field, list item and map value that a user can write.

use serde_json::Value;

use crate::case::Kind;

/// One field, list item or map value of a kind's schema.
#[derive(Clone, Debug)]
pub struct SchemaNode {
    /// JSON pointer from the root of the object. A list item is `0`, a map value is [`MAP_KEY`].
    pub pointer: String,
    pub schema: Value,
    /// Whether `required` of its object names it.
    pub required: bool,
}

/// Key of the entry that specimens set in every map.
pub const MAP_KEY: &str = "cpu";

impl SchemaNode {
    pub fn word(&self, name: &str) -> Option<&str> {
        self.schema[name].as_str()
    }

    pub fn number(&self, name: &str) -> Option<i64> {
        let n = &self.schema[name];
        n.as_i64().or_else(|| n.as_f64().map(|f| f as i64))
    }

    /// Returns `string`, `integer`, `boolean`, `array`, `object` or `number`.
    pub fn type_(&self) -> &str {
        self.word("type").unwrap_or_default()
    }

    pub fn nullable(&self) -> bool {
        self.schema["nullable"] == true
    }

    pub fn defaulted(&self) -> bool {
        !self.schema["default"].is_null()
    }

    /// Returns the names of the field and of its parents, separated by `|`. A refusal must contain one of them: a rule about immutability is on a
    /// parent.
    pub fn fields(&self) -> String {
        let named = |s: &&str| !s.is_empty() && s.parse::<usize>().is_err() && *s != MAP_KEY;
        let all: Vec<&str> = self.pointer.split('/').filter(named).collect();
        if all.len() > 1 { all[1..].join("|") } else { all.join("|") }
    }

    /// Returns whether this is an object with named fields, in which an unknown field can be set.
    pub fn has_fields(&self) -> bool {
        self.schema["properties"].is_object() || self.type_() == "object" && self.schema["additionalProperties"].is_null()
    }
}

/// Returns the schema of a kind, as this source tree generates it.
pub fn of(kind: Kind) -> Value {
    let crd = yoi_crds::all().into_iter().find(|c| c.spec.names.kind == kind.as_str()).expect("a CRD of every kind");
    serde_json::to_value(&crd.spec.versions[0].schema).expect("schemas are JSON")["openAPIV3Schema"].clone()
}

/// Returns every node below `/spec` or `/status` and that node itself, parents before children.
pub fn nodes(kind: Kind, part: &str) -> Vec<SchemaNode> {
    let schema = of(kind);
    let required = requires(&schema, part);
    let mut all = Vec::new();
    walk(&schema["properties"][part], format!("/{part}"), required, &mut all);
    all
}

fn requires(schema: &Value, field: &str) -> bool {
    schema["required"].as_array().is_some_and(|r| r.iter().any(|f| f == field))
}

fn walk(schema: &Value, pointer: String, required: bool, all: &mut Vec<SchemaNode>) {
    all.push(SchemaNode { pointer: pointer.clone(), schema: schema.clone(), required });
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        walk(inner, format!("{pointer}/{name}"), requires(schema, name), all);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], format!("{pointer}/0"), false, all);
    }
    if schema["additionalProperties"].is_object() {
        walk(&schema["additionalProperties"], format!("{pointer}/{MAP_KEY}"), false, all);
    }
}

/// Returns every CEL rule of a schema with its message.
pub fn rules(schema: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    walk_all(schema, &mut |node| {
        for rule in node["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let text = |name: &str| rule[name].as_str().unwrap_or_default().to_owned();
            found.push((text("rule"), text("message")));
        }
    });
    found
}

/// Removes the rules for whose message `drop` returns true.
pub fn without_rules(schema: &mut Value, drop: &dyn Fn(&str) -> bool) {
    if let Some(rules) = schema.get_mut("x-kubernetes-validations").and_then(Value::as_array_mut) {
        rules.retain(|r| !drop(r["message"].as_str().unwrap_or_default()));
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(|v| without_rules(v, drop)),
        Value::Array(items) => items.iter_mut().for_each(|v| without_rules(v, drop)),
        _ => {}
    }
}

fn walk_all(node: &Value, visit: &mut dyn FnMut(&Value)) {
    if node.is_object() {
        visit(node);
    }
    match node {
        Value::Object(fields) => fields.values().for_each(|v| walk_all(v, visit)),
        Value::Array(items) => items.iter().for_each(|v| walk_all(v, visit)),
        _ => {}
    }
}
