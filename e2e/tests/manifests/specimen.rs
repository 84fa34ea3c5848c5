//! Valid manifests of every kind. Together they set every field of the schemas.

use serde_json::{Value, json};

use crate::case::Kind;

pub struct Specimen {
    pub kind: Kind,
    pub label: &'static str,
    /// Name of the object that exists in the namespace during a test, or empty.
    pub existing: &'static str,
    pub spec: Value,
}

fn model() -> Value {
    json!({ "provider": "OpenAI", "name": "scripted", "baseUrl": "http://model.example/v1/", "authSecretRef": { "name": "key", "key": "apiKey" } })
}

fn pod() -> Value {
    json!({
        "image": "registry.example/agent:1", "imagePullPolicy": "IfNotPresent",
        "resources": { "requests": { "cpu": "10m" }, "limits": { "cpu": "1" } },
        "env": [{ "name": "COLOUR", "value": "blue" }],
        "nodeSelector": { "cpu": "none-such" },
        "imagePullSecrets": [{ "name": "pull" }],
        "runtimeClassName": "plain",
    })
}

/// Spec of a stopped agent, so that existing specimens run nothing.
fn agent(workspace: Value, session: Value) -> Value {
    json!({
        "projectRef": { "name": "nowhere" }, "agent": { "builtin": { "instruction": "Be brief." } }, "workspace": workspace,
        "task": "Say hello.", "completion": "Keep", "model": model(), "pod": pod(), "desiredState": "Stopped", "session": session,
        "limits": { "turnsPerRun": 5, "toolSeconds": 10 },
    })
}

pub fn all() -> Vec<Specimen> {
    let git = json!({ "url": "https://127.0.0.1:1/p.git", "ref": "main" });
    let template = |source: Value| json!({ "template": { "source": source, "provider": "Auto" } });
    let own = json!({ "claimTemplate": { "storageClassName": "plain", "size": "1Gi" }, "retain": "Delete" });
    let named = json!({ "claimName": "kept", "retain": "Retain" });
    let project = |source: Value| {
        json!({ "source": source, "path": "/workspace/tree", "owner": { "uid": 1000, "gid": 1000 }, "provider": "Auto",
            "defaults": { "model": model(), "pod": pod() } })
    };
    let tree = |source: Value, more: Value| {
        let mut spec = json!({ "source": source, "provider": "Auto", "path": "/workspace/tree", "claim": false,
            "binding": "WaitForConsumer", "readOnly": false });
        spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        spec
    };
    let of = |kind, label, existing, spec| Specimen { kind, label, existing, spec };
    vec![
        of(Kind::YoiProject, "git", "p-git", project(json!({ "git": git }))),
        of(Kind::YoiProject, "empty", "p-empty", project(json!({ "empty": {} }))),
        of(Kind::YoiPod, "ref", "y-ref", agent(json!({ "ref": { "name": "w" } }), named)),
        of(Kind::YoiPod, "template of git", "y-git", agent(template(json!({ "git": git })), own.clone())),
        of(Kind::YoiPod, "template of a project", "y-project", agent(template(json!({ "project": { "name": "q" } })), own.clone())),
        of(Kind::YoiPod, "template of a fork", "y-fork", agent(template(json!({ "workspace": { "name": "v" } })), own.clone())),
        of(Kind::YoiPod, "template of nothing", "y-empty", agent(template(json!({ "empty": {} })), own)),
        of(Kind::YoiPeer, "pair", "y.z", json!({ "members": ["a", "b"] })),
        of(
            Kind::AgentWorkspace,
            "project",
            "w-project",
            tree(json!({ "project": { "name": "nowhere" } }), json!({ "claim": true, "ttlAfterRelease": "10m" })),
        ),
        of(Kind::AgentWorkspace, "fork", "w-fork", tree(json!({ "workspace": { "name": "gone" } }), json!({}))),
        of(Kind::AgentWorkspace, "git tree", "w-git", tree(json!({ "git": git }), json!({ "owner": { "uid": 1000, "gid": 1000 } }))),
        of(
            Kind::AgentWorkspace,
            "base",
            "w-base",
            tree(json!({ "empty": {} }), json!({ "base": { "generation": "0123456789", "node": "none" } })),
        ),
        of(Kind::WorkspaceNode, "node", "", json!({})),
    ]
}

impl Specimen {
    /// Returns the spec of the existing object. The members of a YoiPeer must fit its name.
    pub fn existing_spec(&self) -> Value {
        match self.kind {
            Kind::YoiPeer => json!({ "members": self.existing.split('.').collect::<Vec<_>>() }),
            _ => self.spec.clone(),
        }
    }
}

/// Returns a status with every field set.
pub fn status(kind: Kind) -> Value {
    let condition = json!({ "type": "Ready", "status": "False", "reason": "Creating", "message": "It is being made.",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 });
    let conditions = json!([condition]);
    match kind {
        Kind::YoiProject => json!({ "observedGeneration": 1, "conditions": conditions,
            "generation": { "name": "0123456789", "revision": "r", "manifestDigest": "d", "nodes": ["n"] } }),
        Kind::YoiPod => json!({ "observedGeneration": 1, "runGeneration": 1, "manifest": { "name": "m", "digest": "d" },
            "pod": { "name": "p", "uid": "u" }, "workspace": { "name": "w", "nodeName": "n" }, "sessionClaimName": "c",
            "session": { "id": "i", "segment": "s" }, "task": { "id": "t", "state": "Running" },
            "live": { "podUID": "u", "activity": "Idle", "observedAt": "2026-01-01T00:00:00Z" },
            "report": { "podUID": "u", "runGeneration": 1, "ready": false, "reason": "Starting", "message": "It starts.", "volumeRunGeneration": 1 },
            "reader": { "requestedAt": "2026-01-01T00:00:00Z", "pod": { "name": "p", "uid": "u" } },
            "conditions": conditions }),
        Kind::YoiPeer => json!({ "observedGeneration": 1, "members": [{ "name": "a", "uid": "u" }], "conditions": conditions }),
        Kind::AgentWorkspace => json!({ "observedGeneration": 1, "nodeName": "none", "origin": { "kind": "Base", "workspaceUID": "u" },
            "owner": { "uid": 1000, "gid": 1000 }, "claimName": "c", "podUID": "u", "readerPodUID": "u",
            "provider": { "selected": "Copy", "reason": "the only one" },
            "volume": { "manifestDigest": "d", "revision": "r", "logicalBytes": 1, "entries": 1 }, "conditions": conditions }),
        Kind::WorkspaceNode => json!({ "providers": [{ "name": "Copy", "available": true, "reason": "here" }],
            "capacity": { "totalBytes": 2, "freeBytes": 1 }, "kernel": "6", "runtimeDigests": ["d"], "conditions": conditions }),
    }
}
