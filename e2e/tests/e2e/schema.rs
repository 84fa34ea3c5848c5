//! The schema refuses invalid objects at `kubectl apply`, with a reason.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_e2e::test_namespace::TestNamespace;

fn object(kind: &str, name: &str, spec: Value) -> String {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec }).to_string()
}

#[tokio::test]
async fn p3_invalid_objects_are_refused_at_apply_with_a_reason() -> Result<()> {
    let ns = TestNamespace::create("schema").await?;
    let agent = json!({ "builtin": {} });
    let project = json!({ "name": "p" });
    let secret_url = json!({ "provider": "OpenAI", "name": "m", "baseUrl": "https://user:password@model.example/v1/" });
    let cases = [
        ("YoiPeer", "a.a", json!({ "members": ["a", "a"] }), "own peer"),
        ("YoiPeer", "b.a", json!({ "members": ["b", "a"] }), "sorted"),
        ("YoiPeer", "a.c", json!({ "members": ["a", "b"] }), "joined by a dot"),
        ("YoiPeer", "a.b", json!({ "members": ["a", "b", "c"] }), "members"),
        ("YoiProject", "p", json!({ "source": {} }), "exactly one"),
        ("YoiProject", "p", json!({ "source": { "git": { "url": "git://h/p" }, "empty": {} } }), "exactly one"),
        ("YoiProject", "p", json!({ "source": { "git": { "url": "file:///etc" } } }), "url"),
        ("YoiProject", "p", json!({ "source": { "git": { "url": "git://h/p", "ref": "--upload-pack=x" } } }), "ref"),
        ("YoiProject", "p", json!({ "source": { "git": { "url": "https://token@h/p" } } }), "credentialsSecretRef"),
        ("YoiProject", "p", json!({ "source": { "git": { "url": "git@h:p" } } }), "known_hosts"),
        (
            "YoiProject",
            "p",
            json!({ "source": { "git": { "url": "http://h/p", "credentialsSecretRef": { "name": "s" } } } }),
            "in the clear",
        ),
        ("YoiProject", "p", json!({ "source": { "empty": {} }, "path": "/workspace/../etc" }), "path"),
        ("YoiProject", "p", json!({ "source": { "empty": {} }, "path": "/yoi" }), "system folder"),
        ("YoiProject", "Upper", json!({ "source": { "empty": {} } }), "lowercase"),
        ("YoiProject", "with.dot", json!({ "source": { "empty": {} } }), "DNS label"),
        ("YoiPod", "a", json!({ "projectRef": project, "agent": {} }), "exactly one of builtin, cli and command"),
        (
            "YoiPod",
            "a",
            json!({ "projectRef": project, "agent": { "builtin": {}, "command": ["true"] } }),
            "exactly one of builtin, cli and command",
        ),
        ("YoiPod", "a", json!({ "projectRef": project, "agent": { "cli": {} } }), "exactly one of preset and presetFrom"),
        ("YoiPod", "a", json!({ "projectRef": project, "agent": { "command": [""] } }), "must not be empty"),
        ("YoiPod", "a", json!({ "projectRef": project, "agent": agent, "completion": "Stop" }), "needs a task"),
        (
            "YoiPod",
            "a",
            json!({ "projectRef": project, "agent": agent, "workspace": { "ref": { "name": "w" }, "template": {} } }),
            "exactly one",
        ),
        (
            "YoiPod",
            "a",
            json!({ "projectRef": project, "agent": agent, "pod": { "env": [{ "name": "YOI_X", "value": "1" }] } }),
            "reserved",
        ),
        ("YoiPod", "a", json!({ "projectRef": project, "agent": agent, "desiredState": "Paused" }), "desiredState"),
        ("YoiPod", "a", json!({ "projectRef": project, "agent": agent, "colour": "red" }), "unknown field"),
        ("YoiPod", "a", json!({ "projectRef": project, "agent": agent, "limits": { "turnsPerRun": "many" } }), "turnsPerRun"),
        ("YoiPod", "a", json!({ "projectRef": project, "agent": agent, "model": secret_url }), "must not hold a user, password or token"),
        (
            "YoiProject",
            "p",
            json!({ "source": { "empty": {} }, "defaults": { "model": secret_url } }),
            "must not hold a user, password or token",
        ),
        ("AgentWorkspace", "w", json!({ "source": { "empty": {} }, "ttlAfterRelease": "10s" }), "claim"),
        ("AgentWorkspace", "w", json!({ "source": { "empty": {} }, "provider": "InPlace" }), "provider"),
        ("AgentWorkspace", "w", json!({ "source": { "empty": {}, "project": project } }), "exactly one"),
        ("AgentWorkspace", "w", json!({ "source": { "project": project }, "owner": { "uid": 1000, "gid": 1000 } }), "owner cannot be set"),
        ("AgentWorkspace", "w", json!({ "source": { "empty": {} }, "path": "/yoi" }), "system folder"),
        ("YoiProject", "p", json!({ "source": { "empty": {} }, "path": "/tmp" }), "system folder"),
    ];
    for (kind, name, spec, word) in cases {
        let output = ns.try_apply(&object(kind, name, spec.clone())).await?;
        ensure!(output.code != 0, "{kind} {name} {spec} was taken");
        ensure!(output.err.contains(word), "{kind} {name} {spec}: no `{word}` in {}", output.err);
    }
    ns.remove().await
}

#[tokio::test]
async fn immutable_fields_stay_even_when_removed_and_added() -> Result<()> {
    let ns = TestNamespace::create("immutable").await?;
    let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "workspace": { "ref": { "name": "w" } } });
    ns.apply(&object("YoiPod", "a", spec)).await?;
    for patch in [
        json!({ "spec": { "projectRef": { "name": "q" } } }),
        json!({ "spec": { "workspace": { "ref": { "name": "v" } } } }),
        json!({ "spec": { "workspace": null } }),
        json!({ "spec": { "task": "more work" } }),
    ] {
        ensure!(ns.merge_patch::<YoiPod>("a", &patch).await.is_err(), "{patch} was taken");
    }
    ns.merge_patch::<YoiPod>("a", &json!({ "spec": { "desiredState": "Stopped" } })).await?;
    ns.remove().await
}
