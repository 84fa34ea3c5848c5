//! Immutable fields, metadata, and everything outside `spec`.

use serde_json::{Value, json};

use super::Table;
use crate::case::{Case, Expected, Kind, Method, object};
use crate::specimen;

pub(super) fn immutable(t: &mut Table) {
    let mut fixed =
        |label: &str, spec: Value, word: &str| t.add_patch("immutable", label, &json!({ "spec": spec }), Expected::Refused, word);
    fixed("ref", json!({ "projectRef": { "name": "other" } }), "projectRef");
    fixed("ref", json!({ "workspace": { "ref": { "name": "other" } } }), "workspace");
    fixed("ref", json!({ "workspace": null }), "workspace");
    fixed("ref", json!({ "workspace": { "ref": null, "template": {} } }), "workspace");
    fixed("ref", json!({ "task": "Another one." }), "kubectl yoi send");
    fixed("ref", json!({ "task": null }), "task");
    fixed("ref", json!({ "session": { "claimName": "other" } }), "claimName");
    fixed("ref", json!({ "session": { "claimName": null } }), "claimName");
    fixed("ref", json!({ "session": null }), "claimName");
    fixed("template of git", json!({ "session": { "claimTemplate": null, "claimName": "late" } }), "claimName");
    fixed("template of git", json!({ "workspace": { "template": { "provider": "Copy" } } }), "workspace");
    fixed("template of git", json!({ "workspace": { "template": { "source": null } } }), "workspace");
    fixed("git", json!({ "source": null }), "source");
    fixed("pair", json!({ "members": ["a", "c"] }), "members");
    fixed("pair", json!({ "members": null }), "members");
    for (label, spec, word) in [
        ("project", json!({ "source": { "project": { "name": "other" } } }), "source"),
        ("project", json!({ "source": { "project": null, "empty": {} } }), "source"),
        ("project", json!({ "provider": "Copy" }), "provider"),
        ("project", json!({ "path": "/other" }), "path"),
        ("project", json!({ "path": null }), "path"),
        ("project", json!({ "claim": false, "ttlAfterRelease": null }), "claim"),
        ("project", json!({ "binding": "Immediate" }), "binding"),
        ("project", json!({ "readOnly": true }), "readOnly"),
        ("base", json!({ "base": null }), "base"),
        ("base", json!({ "base": { "node": "other" } }), "base"),
        ("base", json!({ "owner": { "uid": 1, "gid": 1 } }), "owner"),
        ("fork", json!({ "source": { "workspace": { "name": "other" } } }), "source"),
    ] {
        t.add_patch("immutable", label, &json!({ "spec": spec }), Expected::Refused, word);
    }
    for (label, spec) in [
        ("ref", json!({ "desiredState": "Stopped", "limits": { "toolSeconds": 7 } })),
        ("template of git", json!({ "session": { "retain": "Retain" } })),
        ("project", json!({ "ttlAfterRelease": "1h" })),
        ("project", json!({ "ttlAfterRelease": null })),
        ("empty", json!({ "path": "/other", "owner": { "uid": 7, "gid": 7 } })),
        ("empty", json!({ "path": null })),
    ] {
        t.add_patch("mutable", label, &json!({ "spec": spec }), Expected::Accepted, "");
    }
}

pub(super) fn metadata(t: &mut Table) {
    let a = "template of nothing";
    let reference = |controller: bool, uid: &str| json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "name": "p", "uid": uid, "controller": controller });
    let stranger = "00000000-0000-4000-8000-000000000000";
    for (class, meta, expected) in [
        ("finalizers", json!({ "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"] }), Expected::Accepted),
        ("finalizers", json!({ "finalizers": ["yoi.dev/operator", "yoi.dev/operator"] }), Expected::Accepted),
        ("finalizers", json!({ "finalizers": ["no slash", "x/y"] }), Expected::Refused),
        ("finalizers", json!({ "finalizers": [7] }), Expected::Refused),
        ("finalizers", json!({ "finalizers": "yoi.dev/operator" }), Expected::Refused),
        ("owners", json!({ "ownerReferences": [reference(true, stranger)] }), Expected::Accepted),
        (
            "owners",
            json!({ "ownerReferences": [reference(true, stranger), reference(true, "11111111-0000-4000-8000-000000000000")] }),
            Expected::Refused,
        ),
        ("owners", json!({ "ownerReferences": [reference(false, "")] }), Expected::Refused),
        ("owners", json!({ "ownerReferences": [{}] }), Expected::Refused),
        (
            "labels",
            json!({ "labels": { "yoi.dev/yoipod": "a", "yoi.dev/project": "p", "yoi.dev/workspace": "w", "yoi.dev/role": "agent" } }),
            Expected::Accepted,
        ),
        ("labels", json!({ "labels": { "yoi.dev/yoipod": "not a value" } }), Expected::Refused),
        ("labels", json!({ "labels": { "a b": "x" } }), Expected::Refused),
        ("labels", json!({ "labels": { "a": 7 } }), Expected::Refused),
        (
            "annotations",
            json!({ "annotations": { "yoi.dev/run-generation": "9223372036854775807", "yoi.dev/yoipod-uid": "x", "volume.kubernetes.io/selected-node": "none" } }),
            Expected::Accepted,
        ),
        ("annotations", json!({ "annotations": { "a": "🦀".repeat(50_000) } }), Expected::Accepted),
        ("annotations", json!({ "annotations": { "a": "x".repeat(300_000) } }), Expected::Refused),
        ("annotations", json!({ "annotations": { "a": { "b": "c" } } }), Expected::Refused),
        (
            "dates",
            json!({ "deletionTimestamp": "2020-01-01T00:00:00Z", "creationTimestamp": "1000-01-01T00:00:00Z", "generation": -7, "uid": "mine", "resourceVersion": "" }),
            Expected::Accepted,
        ),
        ("dates", json!({ "creationTimestamp": "yesterday" }), Expected::Refused),
        ("dates", json!({ "resourceVersion": "7" }), Expected::Either),
    ] {
        for label in ["empty", a, "fork"] {
            let (kind, _, spec, _) = t.specimen(label);
            let name = format!("m-{}", t.cases.len());
            let mut body = object(kind, &name, &spec);
            body["metadata"].as_object_mut().expect("metadata").extend(meta.as_object().cloned().unwrap_or_default());
            t.add_case(
                (class, label),
                Method::Create,
                &name,
                &body,
                expected,
                meta.as_object().and_then(|m| m.keys().next()).map_or("", String::as_str),
            );
        }
    }
    for label in ["empty", a, "pair", "fork"] {
        let (kind, _, spec, _) = t.specimen(label);
        let name = if kind == Kind::YoiPeer { "a.b".to_owned() } else { format!("s-{}", t.cases.len()) };
        let mut body = object(kind, &name, &spec);
        body["status"] = specimen::statuses(kind).swap_remove(0);
        t.add_case(("status sent along", label), Method::Create, &name, &body, Expected::Accepted, "");
        for (field, value) in [("kind", json!("Pod")), ("apiVersion", json!("yoi.dev/v2")), ("metadata", json!("x")), ("spec", Value::Null)]
        {
            let mut body = object(kind, &name, &spec);
            body[field] = value;
            t.add_case(("head", label), Method::Create, &name, &body, Expected::Refused, field);
        }
    }
    for (title, text) in [
        ("nothing", ""),
        ("null", "null"),
        ("a list", "[]"),
        ("half of it", "{\"apiVersion\": \"yoi.dev"),
        ("bytes", "\u{0}\u{1}\u{fffd}"),
        ("a number", "7"),
    ] {
        for label in ["empty", a, "pair", "fork"] {
            let (kind, label, ..) = t.specimen(label);
            t.cases.push(Case {
                kind,
                class: "head",
                title: title.into(),
                method: Method::Create,
                strict: true,
                name: "h".into(),
                text: text.into(),
                expected: Expected::Refused,
                names: String::new(),
                label,
            });
        }
    }
    for label in ["empty", a] {
        let (kind, label, spec, _) = t.specimen(label);
        let text = object(kind, "d", &spec).to_string();
        let doubled = text.replacen("\"spec\":", "\"spec\":{},\"spec\":", 1);
        for (strict, expected) in [(true, Expected::Refused), (false, Expected::Either)] {
            t.cases.push(Case {
                kind,
                class: "doubled",
                title: "spec twice".into(),
                method: Method::Create,
                strict,
                name: "d".into(),
                text: doubled.clone(),
                expected,
                names: "spec".into(),
                label,
            });
        }
        let padded = text.replacen('{', &format!("{{{}", " ".repeat(4 << 20)), 1);
        t.cases.push(Case {
            kind,
            class: "huge",
            title: "4 MiB of blanks".into(),
            method: Method::Create,
            strict: true,
            name: "d".into(),
            text: padded,
            expected: Expected::Refused,
            names: String::new(),
            label,
        });
    }
}
