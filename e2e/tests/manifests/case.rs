//! One manifest, how it is sent, and the expected answer.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    YoiProject,
    YoiPod,
    YoiPeer,
    AgentWorkspace,
    WorkspaceNode,
}

pub const KINDS: [Kind; 5] = [Kind::YoiProject, Kind::YoiPod, Kind::YoiPeer, Kind::AgentWorkspace, Kind::WorkspaceNode];

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::YoiProject => "YoiProject",
            Kind::YoiPod => "YoiPod",
            Kind::YoiPeer => "YoiPeer",
            Kind::AgentWorkspace => "AgentWorkspace",
            Kind::WorkspaceNode => "WorkspaceNode",
        }
    }

    pub fn plural(self) -> String {
        format!("{}s", self.as_str().to_lowercase())
    }

    pub fn namespaced(self) -> bool {
        self != Kind::WorkspaceNode
    }
}

/// The request by which a manifest is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Create,
    /// Server-side apply of a whole object that does not exist yet.
    Apply,
    /// PUT that replaces the existing specimen.
    Update,
    /// Merge patch of the existing specimen.
    Merge,
    /// Merge patch of the existing specimen's status.
    MergeStatus,
}

/// The expected answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Refused,
    Accepted,
    /// Either answer, but API server, Rust's types and the operator must agree.
    Either,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub kind: Kind,
    pub class: &'static str,
    /// Names the specimen, the field and the change.
    pub title: String,
    pub method: Method,
    /// Whether unknown and duplicate fields are errors.
    pub strict: bool,
    /// Name of the object that is created, or of the existing specimen.
    pub name: String,
    /// The body, exactly as it is sent.
    pub text: String,
    pub expected: Expected,
    /// Words of which a refusal must contain at least one, separated by `|`.
    pub names: String,
    /// Label of the specimen that the case was made from.
    pub label: &'static str,
}

impl Case {
    pub fn description(&self) -> String {
        format!("{} [{}, {:?}{}] {}", self.kind.as_str(), self.class, self.method, if self.strict { ", strict" } else { "" }, self.title)
    }
}

pub fn object(kind: Kind, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": kind.as_str(), "metadata": { "name": name }, "spec": spec })
}

/// Placeholder for text that no JSON value can hold. [`raw`] replaces it.
pub const RAW: &str = "@raw@";

/// Returns the text of `value` with `with` in place of the string [`RAW`].
pub fn raw(value: &Value, with: &str) -> String {
    value.to_string().replacen(&format!("\"{RAW}\""), with, 1)
}

/// Sets the field at `pointer` to `value`, or removes it. Returns false when its parent does not exist.
pub fn put(object: &mut Value, pointer: &str, value: Option<Value>) -> bool {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return false };
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            match value {
                Some(value) => fields.insert(last.to_owned(), value),
                None => fields.remove(last),
            };
            true
        }
        Some(Value::Array(items)) => match (last.parse::<usize>(), value) {
            (Ok(i), Some(value)) if i < items.len() => {
                items[i] = value;
                true
            }
            (Ok(i), None) if i < items.len() => {
                items.remove(i);
                true
            }
            _ => false,
        },
        _ => false,
    }
}
