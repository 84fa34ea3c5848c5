//! One manifest, how it is sent, and what must become of it.

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
    pub fn word(self) -> &'static str {
        match self {
            Kind::YoiProject => "YoiProject",
            Kind::YoiPod => "YoiPod",
            Kind::YoiPeer => "YoiPeer",
            Kind::AgentWorkspace => "AgentWorkspace",
            Kind::WorkspaceNode => "WorkspaceNode",
        }
    }

    pub fn plural(self) -> String {
        format!("{}s", self.word().to_lowercase())
    }

    pub fn namespaced(self) -> bool {
        self != Kind::WorkspaceNode
    }
}

/// How a manifest gets to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Create,
    /// Server-side apply of a whole object that does not exist yet.
    Apply,
    /// PUT over the standing specimen.
    Update,
    /// Merge patch of the standing specimen.
    Merge,
    /// Merge patch of the standing specimen's status.
    MergeStatus,
}

/// What must become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Refused,
    Accepted,
    /// Either; but the server, Rust and the cluster must agree.
    Either,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub kind: Kind,
    pub class: &'static str,
    /// Which specimen, which place, which change.
    pub title: String,
    pub method: Method,
    /// Unknown and doubled fields are errors.
    pub strict: bool,
    /// Of the object that is made, or of the standing specimen.
    pub name: String,
    /// Exactly what is sent.
    pub text: String,
    pub expected: Expected,
    /// What a refusal must name.
    pub names: String,
    /// The specimen's name and `spec`, so that the object can really be made.
    pub label: &'static str,
}

impl Case {
    pub fn description(&self) -> String {
        format!("{} [{}, {:?}{}] {}", self.kind.word(), self.class, self.method, if self.strict { ", strict" } else { "" }, self.title)
    }
}

pub fn object(kind: Kind, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": kind.word(), "metadata": { "name": name }, "spec": spec })
}

/// Stands for text that no JSON value can hold, until [`raw`] puts it in.
pub const RAW: &str = "@raw@";

/// The text of `value` with `with` in the place of the string [`RAW`].
pub fn raw(value: &Value, with: &str) -> String {
    value.to_string().replacen(&format!("\"{RAW}\""), with, 1)
}

/// Puts `value` at `pointer`, or takes away what stands there; false where its parent does not stand.
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
