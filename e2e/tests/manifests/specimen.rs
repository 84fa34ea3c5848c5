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
    let endpoint = json!({ "provider": "OpenAI", "name": "scripted", "baseUrl": "http://model.example/v1/", "api": "ChatCompletions",
        "authSecretRef": { "name": "key", "key": "apiKey" }, "maxOutputTokens": 4096, "effort": "low", "timeout": "10m", "patience": "1h",
        "caRef": { "name": "cas", "key": "ca.crt" }, "proxyUrl": "http://proxy.example:3128", "window": 100_000,
        "headers": [{ "name": "X-Team", "value": "blue" }, { "name": "X-Org", "valueFrom": { "secretKeyRef": { "name": "org", "key": "id" } } }] });
    let mut model = endpoint.clone();
    let mut fallback = endpoint;
    fallback["headers"].as_array_mut().expect("a list").reverse();
    model["fallbacks"] = json!([fallback]);
    model
}

fn pod() -> Value {
    let mut pod = json!({
        "image": "registry.example/agent:1", "imagePullPolicy": "IfNotPresent",
        "resources": { "requests": { "cpu": "10m" }, "limits": { "cpu": "1" } },
        "env": [
            { "name": "COLOUR", "value": "blue" },
            { "name": "TOKEN", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k", "optional": true } } },
            { "name": "SIZE", "valueFrom": { "configMapKeyRef": { "name": "m", "key": "k", "optional": false } } },
            { "name": "WHERE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
        ],
        "nodeSelector": { "cpu": "none-such" },
        "imagePullSecrets": [{ "name": "pull" }],
        "runtimeClassName": "plain",
        "tolerations": [{ "key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60 }],
        "securityContext": {
            "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000, "runAsNonRoot": true, "readOnlyRootFilesystem": true,
            "allowPrivilegeEscalation": false, "privileged": false, "capabilities": { "drop": ["ALL"] }, "supplementalGroups": [7],
            "seccompProfile": { "type": "Localhost", "localhostProfile": "p.json" },
            "appArmorProfile": { "type": "Localhost", "localhostProfile": "p" },
            "seLinuxOptions": { "level": "s0", "type": "container_t" },
        },
    });
    pod["affinity"] = affinity();
    pod["volumes"] = volumes();
    pod["volumeMounts"] = json!([{ "name": "cache", "mountPath": "/home/agent/.cache", "subPath": "a/b", "readOnly": false }]);
    pod
}

fn affinity() -> Value {
    let expressions = json!([{ "key": "zone", "operator": "In", "values": ["north"] }]);
    let node_term = json!({ "matchExpressions": expressions });
    let pod_term = json!({ "labelSelector": { "matchLabels": { "cpu": "x" }, "matchExpressions": expressions }, "topologyKey": "zone" });
    let pods = json!({
        "requiredDuringSchedulingIgnoredDuringExecution": [pod_term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "podAffinityTerm": pod_term }],
    });
    json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [node_term] },
            "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": node_term }],
        },
        "podAffinity": pods, "podAntiAffinity": pods,
    })
}

/// One volume of each kind.
fn volumes() -> Value {
    let at = |path: &str| json!([{ "key": "k", "path": path, "mode": 0o400 }]);
    let items = at("a/k");
    let fields = json!([{ "path": "name", "mode": 0o444, "fieldRef": { "fieldPath": "metadata.name" } }]);
    json!([
        { "name": "map", "configMap": { "name": "m", "items": items, "optional": true, "defaultMode": 0o444 } },
        { "name": "secret", "secret": { "secretName": "s", "items": items, "optional": true, "defaultMode": 0o400 } },
        { "name": "cache", "emptyDir": { "medium": "Memory", "sizeLimit": "64Mi" } },
        { "name": "claim", "persistentVolumeClaim": { "claimName": "c", "readOnly": true } },
        { "name": "fields", "downwardAPI": { "items": fields, "defaultMode": 0o444 } },
        { "name": "all", "projected": { "defaultMode": 0o444, "sources": [
            { "configMap": { "name": "m", "items": items, "optional": true } },
            { "secret": { "name": "s", "items": at("b/k"), "optional": true } },
            { "downwardAPI": { "items": fields } } ] } },
        { "name": "secrets", "projected": { "sources": [{ "secret": { "name": "s", "items": items, "optional": true } }] } },
        { "name": "itself", "projected": { "sources": [{ "downwardAPI": { "items": fields } }] } },
        { "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "plain", "resources": { "requests": { "storage": "1Gi" } } } } } },
        { "name": "csi", "csi": { "driver": "example.com", "fsType": "ext4", "readOnly": true, "volumeAttributes": { "cpu": "b" },
            "nodePublishSecretRef": { "name": "s" } } },
    ])
}

/// Spec of a stopped agent, so that existing specimens run nothing.
fn agent(workspace: Value, session: Value) -> Value {
    json!({
        "projectRef": { "name": "nowhere" }, "agent": { "builtin": { "instruction": "Be brief.", "subagents": [subagent()] } }, "workspace": workspace,
        "task": "Say hello.", "completion": "Keep", "model": model(), "pod": pod(), "desiredState": "Stopped", "session": session,
        "limits": { "turnsPerRun": 5, "toolSeconds": 10, "tokens": 1_000_000, "silenceSeconds": 600, "children": 4, "conversations": 4, "lifetime": "999999h" },
        "compaction": { "at": 80_000, "keep": 10_000 },
        "policy": policy(), "rest": { "after": "30m" }, "delegation": scope(), "scope": scope(), "workingDir": "docs",
    })
}

/// Every field of a template of sub-agents.
fn subagent() -> Value {
    json!({ "name": "look", "description": "Looks at files.", "instruction": "Change nothing.", "tools": ["Read", "Grep"], "mode": "Planning",
        "seconds": 60, "turns": 8, "tokens": 100_000 })
}

fn scope() -> Value {
    json!({ "allow": [{ "path": ".", "access": "Read", "recursive": true }, { "path": "src", "access": "Write", "recursive": false }],
        "deny": [{ "path": "src/keys", "access": "Read", "recursive": true }] })
}

fn policy() -> Value {
    json!({
        "deny": ["Shell(git push *)", "mcp__files__remove"], "ask": ["Shell(rm *)"], "approval": { "timeout": "30m" },
        "allow": ["Shell", "Read(docs/**)", "WebFetch(domain:example.org)"],
        "sensitiveFiles": { "add": ["*.tfstate"], "except": [".env.example"] },
        "outside": [{ "path": "/usr/include", "reason": "SystemHeaders" }], "environment": ["RUST_LOG"],
        "network": { "hosts": ["example.org"], "schemes": ["https"] }, "secretsInResults": "Redact",
    })
}

/// Every field of what runs in a base.
fn prepare() -> Value {
    json!({ "image": "registry.example/builder:1", "command": ["make", "-j4"], "egress": "None", "timeout": "90m",
        "resources": { "requests": { "cpu": "10m" }, "limits": { "cpu": "1" } } })
}

fn prepared(mut project: Value) -> Value {
    project["prepare"] = prepare();
    project["assets"] = json!({ "dirs": [".jido", ".jido_code"], "strict": true, "watch": false,
        "from": [{ "configMap": { "name": "team.assets" } }, { "configMap": { "name": "house" } },
            git_set(), image_set()] });
    project["warm"] = json!({ "sessions": 2, "claimTemplate": { "storageClassName": "plain", "size": "1Gi" } });
    project
}

fn git_set() -> Value {
    json!({ "name": "team", "git": { "url": "https://git.example/team.git", "ref": "v1", "credentialsSecretRef": { "name": "clone-key" },
        "caRef": { "name": "cas", "key": "ca.crt" }, "path": ".claude" } })
}

fn image_set() -> Value {
    json!({ "name": "all", "image": { "reference": "registry.example/all@sha256:abc", "path": "opt/agents" } })
}

fn with_set(mut project: Value, set: Value) -> Value {
    project["assets"] = json!({ "from": [set] });
    project
}

pub fn all() -> Vec<Specimen> {
    let git = git_source();
    let refreshed = {
        let mut git = git_source();
        git["refresh"] = json!("10m");
        git
    };
    let synced = json!({ "url": "https://127.0.0.1:1/p.git", "ref": "main", "sync": {} });
    let host = json!({ "name": "clone", "take": "1" });
    let template = |source: Value| json!({ "template": { "source": source, "provider": "Auto" } });
    let own = json!({ "claimTemplate": { "storageClassName": "plain", "size": "1Gi" }, "retain": "Delete", "segmentSize": "1Mi" });
    let named = json!({ "claimName": "kept", "retain": "Retain" });
    let project = |source: Value| {
        json!({ "source": source, "path": "/workspace/tree", "owner": { "uid": 1000, "gid": 1000 }, "provider": "Auto", "policy": policy(),
            "defaults": { "model": model(), "pod": pod(), "quota": "1Gi", "rest": { "after": "0s" } } })
    };
    let tree = |source: Value, more: Value| {
        let mut spec = json!({ "source": source, "provider": "Auto", "path": "/workspace/tree", "claim": false,
            "binding": "WaitForConsumer", "readOnly": false });
        spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        spec
    };
    let of = |kind, label, existing, spec| Specimen { kind, label, existing, spec };
    let program = |runs: Value, session: Value| {
        let mut spec = agent(template(json!({ "empty": {} })), session);
        spec["agent"] = runs;
        spec
    };
    let pushing = |mut spec: Value| {
        spec["completion"] = json!("Stop");
        spec["ttlAfterFinished"] = json!("99999999h");
        spec["push"] = json!({ "branch": "yoi/a" });
        spec
    };
    let mut all = vec![
        of(Kind::YoiProject, "git", "p-git", prepared(project(json!({ "git": git })))),
        of(Kind::YoiProject, "refreshed", "", project(json!({ "git": refreshed }))),
        of(Kind::YoiProject, "sets of a repository", "", with_set(project(json!({ "empty": {} })), git_set())),
        of(Kind::YoiProject, "sets of an image", "", with_set(project(json!({ "empty": {} })), image_set())),
        of(Kind::YoiProject, "synced", "", project(json!({ "git": synced }))),
        of(Kind::YoiProject, "empty", "p-empty", project(json!({ "empty": {} }))),
        of(Kind::YoiProject, "synced from nowhere", "", project(json!({ "empty": { "sync": {} } }))),
        of(Kind::YoiProject, "host", "p-host", project(json!({ "host": host }))),
        of(Kind::YoiPod, "ref", "y-ref", agent(json!({ "ref": { "name": "w" } }), named)),
        of(Kind::YoiPod, "template of git", "y-git", agent(template(json!({ "git": git })), own.clone())),
        of(Kind::YoiPod, "template of a folder of the host", "y-host", agent(template(json!({ "host": host })), own.clone())),
        of(
            Kind::YoiPod,
            "template of a project",
            "y-project",
            agent(template(json!({ "project": { "name": "q", "revision": "refs/pull/7/head" } })), own.clone()),
        ),
        of(Kind::YoiPod, "template of a fork", "y-fork", agent(template(json!({ "workspace": { "name": "v" } })), own.clone())),
        of(Kind::YoiPod, "template of nothing", "y-empty", agent(template(json!({ "empty": {} })), own.clone())),
        of(Kind::YoiPod, "push", "y-push", pushing(agent(template(json!({ "project": { "name": "q" } })), own.clone()))),
        of(
            Kind::YoiPod,
            "program",
            "y-program",
            program(
                json!({ "cli": { "preset": "claude", "args": ["--effort", "high"], "credentialsSecretRef": { "name": "login" } } }),
                own.clone(),
            ),
        ),
        of(
            Kind::YoiPod,
            "program of one's own",
            "y-own",
            program(json!({ "cli": { "presetFrom": { "name": "mine", "key": "preset.yaml" }, "args": [] } }), own.clone()),
        ),
        of(Kind::YoiPod, "command", "y-command", program(json!({ "command": ["make", "test"] }), own)),
        of(Kind::YoiPeer, "pair", "y.z", json!({ "members": ["a", "b"] })),
        of(
            Kind::AgentWorkspace,
            "project",
            "w-project",
            tree(json!({ "project": { "name": "nowhere", "revision": "main" } }), json!({ "claim": true, "ttlAfterRelease": "10m" })),
        ),
        of(Kind::AgentWorkspace, "fork", "w-fork", tree(json!({ "workspace": { "name": "gone" } }), json!({}))),
        of(Kind::AgentWorkspace, "git tree", "w-git", tree(json!({ "git": git }), json!({ "owner": { "uid": 1000, "gid": 1000 } }))),
        of(Kind::AgentWorkspace, "host tree", "w-host", tree(json!({ "host": host }), json!({ "quota": "1Gi" }))),
        of(
            Kind::AgentWorkspace,
            "base",
            "w-base",
            tree(
                json!({ "empty": {} }),
                json!({ "base": { "generation": "0123456789", "node": "none", "prepare": prepare(),
                    "revision": "0123456789abcdef0123456789abcdef01234567",
                    "bundle": { "sha256": "0123456789abcdef".repeat(4), "parts": ["p.sync-0"] } } }),
            ),
        ),
        of(Kind::WorkspaceNode, "node", "", json!({ "discard": ["0197c0de-0000-4000-8000-000000000001"] })),
    ];
    for (turns, label) in ROTATIONS.into_iter().enumerate() {
        let mut spec = project(json!({ "empty": {} }));
        rotate(&mut spec["defaults"], turns + 1);
        all.push(of(Kind::YoiProject, label, "", spec));
        let mut spec = agent(Value::Null, json!({ "claimName": "kept" }));
        spec.as_object_mut().expect("an object").remove("workspace");
        rotate(&mut spec, turns + 1);
        all.push(of(Kind::YoiPod, label, "", spec));
    }
    all
}

/// The cases change the first entry of each list, so each kind of volume, variable and header comes first in one specimen.
const ROTATIONS: [&str; 9] = [
    "1st rotation",
    "2nd rotation",
    "3rd rotation",
    "4th rotation",
    "5th rotation",
    "6th rotation",
    "7th rotation",
    "8th rotation",
    "9th rotation",
];

/// `of` is what a project and a YoiPod say of the model and the Pod.
fn rotate(of: &mut Value, turns: usize) {
    let turn = |list: &mut Value| {
        let list = list.as_array_mut().expect("a list");
        let turns = turns % list.len();
        list.rotate_left(turns);
    };
    turn(&mut of["pod"]["env"]);
    turn(&mut of["pod"]["volumes"]);
    turn(&mut of["model"]["headers"]);
    turn(&mut of["model"]["fallbacks"][0]["headers"]);
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

/// Returns statuses that together set every field.
pub fn statuses(kind: Kind) -> Vec<Value> {
    let mut all = vec![status(kind)];
    if kind == Kind::AgentWorkspace {
        for source in [json!({ "empty": {} }), json!({ "host": { "name": "clone", "take": "1" } })] {
            let mut other = status(kind);
            other["origin"]["source"] = source;
            all.push(other);
        }
    }
    all
}

/// Every field of a git source. Its Secret does not exist.
fn git_source() -> Value {
    json!({ "url": "https://127.0.0.1:1/p.git", "ref": "main", "credentialsSecretRef": { "name": "clone-key" },
        "caRef": { "name": "cas", "key": "ca.crt" }, "submoduleHosts": ["git.example"], "depth": 50, "submodules": "Skip", "lfs": "Skip" })
}

fn status(kind: Kind) -> Value {
    let condition = json!({ "type": "Ready", "status": "False", "reason": "Creating", "message": "It is being made.",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 });
    let conditions = json!([condition]);
    match kind {
        Kind::YoiProject => json!({ "observedGeneration": 1, "conditions": conditions, "path": "/workspace",
            "refresh": { "source": "0123456789", "lookedAt": "2026-01-01T00:00:00Z", "failure": "f", "revision": "r", "since": "2026-01-01T00:00:00Z",
                "inUse": "r", "request": "now" },
            "sync": { "last": { "machine": "m", "commit": "c", "capturedAt": "2026-01-01T00:00:00Z", "receivedAt": "2026-01-01T00:00:00Z", "person": "p" },
                "machines": [{ "machine": "m", "commit": "c" }], "deleted": ["c"],
                "uploads": [{ "machine": "m", "bundle": { "commit": "c", "sha256": "s", "bytes": 1, "parts": [{ "name": "n", "uid": "u" }] } }],
                "bundles": [{ "commit": "c", "sha256": "s", "bytes": 1, "parts": [{ "name": "n", "uid": "u" }] }] },
            "warm": { "claims": [{ "name": "c", "uid": "u", "node": "n" }], "failure": { "message": "m", "at": "2026-01-01T00:00:00Z" } },
            "generation": { "name": "0123456789", "revision": "r", "manifestDigest": "d", "nodes": ["n"] } }),
        Kind::YoiPod => json!({ "observedGeneration": 1, "runGeneration": 1, "manifest": { "name": "m", "digest": "d" },
            "pod": { "name": "p", "uid": "u" }, "workspace": { "name": "w", "uid": "u", "nodeName": "n" }, "sessionClaimName": "c",
            "loan": { "id": "l", "state": "Released", "message": "m" },
            "session": { "id": "i", "segment": "s" }, "task": { "id": "t", "state": "Failed", "reason": "Cancelled" },
            "live": { "podUID": "u", "activity": "Idle", "background": 1, "conversations": ["review"], "observedAt": "2026-01-01T00:00:00Z" },
            "report": { "podUID": "u", "runGeneration": 1, "ready": false, "reason": "Starting", "message": "It starts.", "volumeRunGeneration": 1,
                "scope": "The kernel has no Landlock.", "hasFrame": false, "hasGit": true, "program": "claude is 3.0.1, and 2. is known.",
                "programSession": "It began a new one.",
                "assets": { "generation": 1, "skills": 1, "commands": 0, "workflows": 0, "nodes": 0, "errors": 1, "refused": true,
                    "firstErrors": [".claude/skills/x/SKILL.md:2: is no YAML"] } },
            "rest": { "runGeneration": 1, "since": "2026-01-01T00:00:00Z", "wake": { "requestedAt": "2026-01-01T00:00:00Z", "by": "a message of b" } },
            "policy": "{}", "parent": { "name": "lead", "uid": "u" }, "children": 2, "ended": { "since": "2026-01-01T00:00:00Z", "by": "Task" },
            "reader": { "requestedAt": "2026-01-01T00:00:00Z", "pod": { "name": "p", "uid": "u" } },
            "push": { "request": { "id": "i", "branch": "yoi/y", "commit": "c", "expected": "e", "requestedAt": "2026-01-01T00:00:00Z" },
                "pod": { "name": "p", "uid": "u" }, "attempts": { "id": "i", "count": 1, "noPodSince": "2026-01-01T00:00:00Z" },
                "outcome": { "id": "i", "result": "Pushed", "branch": "yoi/y", "commit": "c", "previous": "e", "message": "m",
                    "finishedAt": "2026-01-01T00:00:00Z" }, "endedRequest": "i", "task": "t" },
            "conditions": conditions }),
        Kind::YoiPeer => json!({ "observedGeneration": 1, "members": [{ "name": "a", "uid": "u" }], "conditions": conditions }),
        Kind::AgentWorkspace => json!({ "observedGeneration": 1, "nodeName": "none", "path": "/workspace",
            "origin": { "kind": "Base", "workspaceUID": "u", "source": { "git": git_source() }, "revision": "r" },
            "owner": { "uid": 1000, "gid": 1000 }, "quotaBytes": 1048576, "claimName": "c", "podUID": "u", "readerPodUID": "u",
            "claims": [{ "loan": "l", "lender": { "name": "a", "uid": "u", "podUID": "p" }, "holder": { "name": "b", "uid": "u", "podUID": "p" },
                "rules": scope(), "state": "Active", "reservedAt": "2026-01-01T00:00:00Z", "message": "m" }],
            "loans": [{ "loan": "l", "covered": false, "message": "m" }],
            "provider": { "selected": "Copy", "reason": "the only one" },
            "volume": { "manifestDigest": "d", "revision": "r", "logicalBytes": 1, "exclusiveBytes": 1, "entries": 1 }, "conditions": conditions }),
        Kind::WorkspaceNode => json!({ "providers": [{ "name": "Copy", "available": true, "reason": "here" }],
            "capacity": { "totalBytes": 2, "freeBytes": 1, "total": "2", "free": "1" }, "kernel": "6",
            "hostSources": [{ "name": "clone", "available": true, "path": "/src/clone", "namespaces": ["default"] }], "runtimeDigests": ["d"],
            "unclaimed": { "trees": 1, "bases": 0, "exclusiveBytes": 1, "items": [{ "uid": "0197c0de-0000-4000-8000-000000000001", "base": false,
                "object": "team/a", "generation": "g", "createdAt": "2026-01-01T00:00:00Z", "logicalBytes": 1, "exclusiveBytes": 1, "refused": "r" }] },
            "conditions": conditions }),
    }
}
