//! Agents, and their fields about Pods.

use serde_json::{Value, json};

use super::Table;

fn scopes(t: &mut Table) {
    let a = "template of nothing";
    let scope = |allow: Value, deny: Value| [("/spec/scope", json!({ "allow": allow, "deny": deny }))];
    let rule = |path: &str| json!({ "path": path, "access": "Write" });
    let deepest = format!("{}a", "a/".repeat(255));
    for path in [".", "src", "src/parser", ".github", "a.b", "..a", ".gitignore", "a b", &deepest] {
        t.expect_accepted("agent", a, &scope(json!([rule(path)]), json!([rule(path)])));
    }
    for path in ["/", "/src", "src/", "a//b", "..", "../a", "a/../b", "a/..", "./a", "a/.", ".git", ".git/hooks", "a/.git", "a/.git/b"] {
        t.expect_refused("agent", a, &scope(json!([rule(path)]), json!([])), "a path is relative to the tree");
        t.expect_refused("agent", a, &scope(json!([rule(".")]), json!([rule(path)])), "a path is relative to the tree");
    }
    for path in ["", &"a".repeat(513), "a\0b"] {
        t.expect_refused("agent", a, &scope(json!([rule(path)]), json!([])), "path");
    }
    t.expect_refused("agent", a, &scope(json!([]), json!([])), "allow");
    t.expect_refused("agent", a, &[("/spec/scope", json!({ "deny": [rule("src")] }))], "allow");
    t.expect_refused("agent", a, &scope(json!([{ "path": ".", "access": "Append" }]), json!([])), "access");
    let hidden = json!([{ "path": "a", "access": "Read", "recursive": false }]);
    t.expect_refused("agent", a, &scope(json!([rule(".")]), hidden), "recursive must be true there");
    let many = |count: usize| Value::Array((0..count).map(|n| rule(&format!("f{n}"))).collect());
    t.expect_accepted("agent", a, &scope(many(32), many(32)));
    t.expect_refused("agent", a, &scope(many(33), many(32)), "at most 64 rules");
    t.expect_refused("agent", a, &scope(many(65), json!([])), "allow");
    t.expect_refused("agent", a, &scope(many(1), many(65)), "deny");
}

fn delegations(t: &mut Table) {
    let a = "template of nothing";
    let rule = |path: &str| json!({ "path": path, "access": "Write" });
    let delegation = |allow: Value, deny: Value| [("/spec/delegation", json!({ "allow": allow, "deny": deny }))];
    t.expect_accepted("agent", a, &[("/spec/delegation", json!({}))]);
    t.expect_accepted("agent", a, &delegation(json!([rule("docs")]), json!([rule("docs/api")])));
    t.expect_refused("agent", a, &[("/spec/delegation", json!({ "deny": [rule("docs")] }))], "without allow nothing is lent");
    for path in ["/docs", "docs/..", ".git", "a//b"] {
        t.expect_refused("agent", a, &delegation(json!([rule(path)]), json!([])), "a path is relative to the tree");
    }
    let many = |count: usize| Value::Array((0..count).map(|n| rule(&format!("f{n}"))).collect());
    t.expect_refused("agent", a, &delegation(many(33), many(32)), "at most 64 rules");
    let hidden = json!([{ "path": "a", "access": "Read", "recursive": false }]);
    t.expect_refused("agent", a, &delegation(json!([rule(".")]), hidden), "recursive must be true there");
}

pub(super) fn agents(t: &mut Table) {
    let a = "template of nothing";
    t.expect_accepted("agent", a, &[("/spec/workingDir", json!("."))]);
    for path in ["/docs", "docs/..", ".git", "a//b", ""] {
        t.expect_refused("agent", a, &[("/spec/workingDir", json!(path))], "workingDir");
    }
    t.expect_refused("agent", a, &[("/spec/agent", json!({}))], "builtin");
    programs(t);
    t.expect_refused("agent", a, &[("/spec/completion", json!("Stop")), ("/spec/task", Value::Null)], "completion Stop needs a task");
    t.expect_accepted("agent", a, &[("/spec/completion", json!("Stop"))]);
    pushes(t);
    t.expect_refused("agent", "ref", &[("/spec/workspace", json!({ "ref": { "name": "w" }, "template": {} }))], "exactly one");
    t.expect_refused("agent", "ref", &[("/spec/workspace", json!({}))], "exactly one");
    t.expect_refused("agent", a, &[("/spec/session", json!({ "claimName": "c", "claimTemplate": {} }))], "claimTemplate");
    t.expect_refused("agent", "ref", &[("/spec/session/retain", json!("Delete"))], "retain Delete is for a claim that Yoi makes");
    for word in ["Paused", "running", "Resting", ""] {
        t.expect_refused("agent", a, &[("/spec/desiredState", json!(word))], "desiredState");
    }
    t.expect_accepted("agent", a, &[("/spec/desiredState", json!("Suspended"))]);
    for after in ["0s", "10s", "30m", "999999h"] {
        t.expect_accepted("agent", a, &[("/spec/rest", json!({ "after": after }))]);
    }
    for after in ["9s", "1d", "", "1000000s"] {
        t.expect_refused("agent", a, &[("/spec/rest", json!({ "after": after }))], "after");
        t.expect_refused("agent", "empty", &[("/spec/defaults/rest", json!({ "after": after }))], "after");
    }
    for lifetime in ["10s", "8h", "999999h"] {
        let spec = [("/spec/limits", json!({ "lifetime": lifetime })), ("/spec/ttlAfterFinished", json!("0s"))];
        t.expect_accepted("agent", a, &spec);
    }
    for wrong in ["9s", "0s", "1d", "", "1000000s"] {
        t.expect_refused("agent", a, &[("/spec/limits", json!({ "lifetime": wrong }))], "lifetime");
    }
    for wrong in ["1d", "", "123456789s"] {
        let spec = [("/spec/limits", json!({ "lifetime": "8h" })), ("/spec/ttlAfterFinished", json!(wrong))];
        t.expect_refused("agent", a, &spec, "ttlAfterFinished");
    }
    let endless = [("/spec/ttlAfterFinished", json!("1h")), ("/spec/limits", json!({}))];
    t.expect_refused("agent", a, &endless, "needs completion Stop or limits.lifetime");
    t.expect_accepted("agent", a, &[("/spec/ttlAfterFinished", json!("1h")), ("/spec/completion", json!("Stop"))]);
    for (field, n) in [
        ("turnsPerRun", 0),
        ("turnsPerRun", -1),
        ("turnsPerRun", 10_001),
        ("toolSeconds", 0),
        ("toolSeconds", 86_401),
        ("silenceSeconds", 9),
        ("children", -1),
        ("children", 101),
        ("conversations", -1),
        ("conversations", 17),
    ] {
        t.expect_refused("agent", a, &[("/spec/limits", json!({ field: n }))], field);
    }
    t.expect_accepted("agent", a, &[("/spec/delegation", Value::Null)]);
    t.expect_accepted("agent", a, &[("/spec/limits", json!({ "children": 0, "conversations": 0 }))]);
    scopes(t);
    subagents(t);
    // Without delegation it is refused by the admission policy, which lets the gateway alone set it.
    let born = json!({ "name": "lead", "uid": "u", "requestId": "r" });
    t.expect_refused("agent", a, &[("/spec/spawnedBy", born.clone())], "starts none: leave delegation out");
    delegations(t);
    let lent = |loan: Value, rules: &Value| {
        let mut born = born.clone();
        born["loan"] = loan;
        born["rules"] = rules.clone();
        [
            ("/spec/delegation", Value::Null),
            ("/spec/scope", json!({ "allow": [{ "path": "src", "access": "Write" }] })),
            ("/spec/spawnedBy", born),
        ]
    };
    t.expect_refused("agent", a, &lent(json!("l"), &Value::Null), "loan and rules go together");
    let other = json!({ "allow": [{ "path": "docs", "access": "Write" }] });
    t.expect_refused("agent", a, &lent(json!("l"), &other), "is what it was lent, and does not change");
    for (key, secret) in [("a/b", "s"), ("", "s"), ("k", ""), ("k", "Upper"), ("k", "a b"), ("k", ".."), ("..", "s"), ("k\n", "s")] {
        t.expect_refused("reference", a, &[("/spec/model/authSecretRef", json!({ "name": secret, "key": key }))], "authSecretRef");
    }
    t.expect_accepted("agent", a, &[("/spec/model", Value::Null)]);
    t.expect_accepted(
        "agent",
        a,
        &[("/spec/task", json!("\u{1}".repeat(65_536))), ("/spec/agent/builtin/instruction", json!("\u{1}".repeat(65_536)))],
    );
}

fn subagents(t: &mut Table) {
    let a = "template of nothing";
    let with = |field: &str, value: Value| {
        let mut one = json!({ "name": "look", "description": "Looks.", "tools": ["Read"] });
        one[field] = value;
        json!([one])
    };
    let named = |name: &str| with("name", json!(name))[0].clone();
    t.expect_accepted("agent", a, &[("/spec/agent/builtin/subagents", json!([named("look"), named("mend")]))]);
    t.expect_refused("agent", a, &[("/spec/agent/builtin/subagents", json!([named("look"), named("look")]))], "subagents");
    t.expect_refused("agent", a, &[("/spec/agent/builtin/subagents", with("name", json!("main")))], "agent's own conversation");
    for (field, wrong) in [
        ("name", json!("Look")),
        ("description", json!(" ")),
        ("tools", json!([])),
        ("tools", json!(["SpawnPod"])),
        ("tools", json!(["SpawnSubagent"])),
        ("tools", json!(["Raed"])),
        ("mode", json!("Chatting")),
        ("seconds", json!(0)),
        ("seconds", json!(3601)),
        ("turns", json!(0)),
        ("tokens", json!(0)),
    ] {
        t.expect_refused("agent", a, &[("/spec/agent/builtin/subagents", with(field, wrong))], field);
    }
}

fn pushes(t: &mut Table) {
    t.expect_refused("push", "push", &[("/spec/completion", json!("Keep"))], "push needs completion Stop");
    t.expect_refused("push", "template of nothing", &[("/spec/push", json!({}))], "push needs completion Stop");
    t.expect_accepted("push", "push", &[("/spec/push", json!({}))]);
    for name in ["main", "yoi/a", "feature/a-b_c.d", "w\u{e4}g", "a@b", "refsx/a", "a/refs/b", "heads/main", "a-"] {
        t.expect_accepted("push", "push", &[("/spec/push/branch", json!(name))]);
    }
    for name in ["refs/heads/main", "refs", "HEAD", "@"] {
        t.expect_refused("push", "push", &[("/spec/push/branch", json!(name))], "branch is a name alone");
    }
    let wrong = ["../x", "a..b", "-f", "/a", "a/", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "a.", "a b", "a\nb", "a\u{1b}b"];
    for name in wrong.into_iter().chain(["a~1", "a^", "a:b", "a?", "a*", "a[b", "a\\b", "a@{1}"]) {
        t.expect_refused("push", "push", &[("/spec/push/branch", json!(name))], "branch is what git takes");
    }
    for name in [String::new(), "x".repeat(201)] {
        t.expect_refused("push", "push", &[("/spec/push/branch", json!(name))], "branch");
    }
}

fn programs(t: &mut Table) {
    let (a, p, own, c) = ("template of nothing", "program", "program of one's own", "command");
    let login = json!({ "name": "login" });
    for two in [
        json!({ "builtin": {}, "cli": { "preset": "claude" } }),
        json!({ "builtin": {}, "command": ["true"] }),
        json!({ "cli": { "preset": "claude" }, "command": ["true"] }),
    ] {
        t.expect_refused("program", a, &[("/spec/agent", two)], "exactly one of builtin, cli and command");
    }
    for preset in [json!({}), json!({ "credentialsSecretRef": login }), json!({ "preset": "claude", "presetFrom": { "name": "mine" } })] {
        t.expect_refused("program", p, &[("/spec/agent/cli", preset)], "exactly one of preset and presetFrom");
    }
    for name in ["Claude", "a/b", "../x", "", "a b", "-a", &"p".repeat(51)] {
        t.expect_refused("program", p, &[("/spec/agent/cli/preset", json!(name))], "preset");
    }
    for (key, name) in [("a/b", "m"), ("", "m"), ("k", ""), ("k", "Upper"), ("..", "m"), ("k\n", "m")] {
        t.expect_refused("reference", own, &[("/spec/agent/cli/presetFrom", json!({ "name": name, "key": key }))], "presetFrom");
    }
    for name in ["", "Upper", "a b", ".."] {
        t.expect_refused("reference", p, &[("/spec/agent/cli/credentialsSecretRef", json!({ "name": name }))], "credentialsSecretRef");
    }
    let many = |count: usize| json!(vec!["a"; count]);
    for args in [many(65), json!(["a".repeat(4097)]), json!(["a\u{0}"]), json!("-v")] {
        t.expect_refused("program", p, &[("/spec/agent/cli/args", args.clone())], "args");
        t.expect_refused("program", c, &[("/spec/agent/command", args)], "command");
    }
    t.expect_refused("program", c, &[("/spec/agent/command", json!([]))], "command");
    t.expect_refused("program", c, &[("/spec/agent/command", json!([""]))], "must not be empty");
    t.expect_accepted("program", p, &[("/spec/agent/cli", json!({ "preset": "claude" }))]);
    t.expect_accepted("program", own, &[("/spec/agent/cli", json!({ "presetFrom": { "name": "mine" } }))]);
    t.expect_accepted(
        "program",
        c,
        &[("/spec/agent/command", json!(["sh", "-c", "cat; printf '%s\\n' \"$0\"", ""])), ("/spec/model", Value::Null)],
    );
    t.expect_accepted("program", c, &[("/spec/agent/command", many(64))]);
}

const QUANTITIES: [&str; 18] =
    ["", "lots", "1 Gi", "1GiB", "-1", "-1Gi", "1.2.3", "0x10", "1e", "∞", "NaN", "1Gi\n", "１Gi", "+-1", ".", "1,5", "1g", "Gi"];

pub(super) fn pods(t: &mut Table) {
    let (a, p) = ("template of nothing", "empty");
    for (label, pod) in [(a, "/spec/pod"), (p, "/spec/defaults/pod")] {
        for quantity in QUANTITIES {
            t.expect_refused("quantity", label, &[(&format!("{pod}/resources/requests/cpu"), json!(quantity))], "requests");
            t.expect_refused("quantity", label, &[(&format!("{pod}/resources/limits/cpu"), json!(quantity))], "limits");
        }
        for quantity in ["1", "0", "100m", "0.5", "1e3", "1000000u", "2k"] {
            t.expect_accepted("quantity", label, &[(&format!("{pod}/resources"), json!({ "limits": { "cpu": quantity } }))]);
        }
        let more = json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } });
        t.expect_refused("quantity", label, &[(&format!("{pod}/resources"), more)], "requests");
        let device = |requests: Value, limits: Value| json!({ "requests": requests, "limits": limits });
        for wrong in [
            device(json!({ "example.com/gpu": "1" }), json!({})),
            device(json!({ "example.com/gpu": "1" }), json!({ "example.com/gpu": "2" })),
            device(json!({}), json!({ "example.com/gpu": "1.5" })),
            device(json!({}), json!({ "example.com/gpu": "500m" })),
        ] {
            t.expect_refused("quantity", label, &[(&format!("{pod}/resources"), wrong)], "devices");
        }
        let one = json!({ "example.com/gpu": "1" });
        t.expect_accepted("quantity", label, &[(&format!("{pod}/resources"), device(one.clone(), one.clone()))]);
        t.expect_accepted("quantity", label, &[(&format!("{pod}/resources"), json!({ "limits": one }))]);
        for name in ["Cpu", "memory ", "a b", "", "gpu", "../x", "pods"] {
            t.expect_refused("quantity", label, &[(&format!("{pod}/resources"), json!({ "limits": { name: "1" } }))], "limits");
        }
        for name in ["YOI_X", "YOI_", "1A", "A=B", "A B", "", "A\u{0}", "Ä", "A-B"] {
            t.expect_refused("environment", label, &[(&format!("{pod}/env"), json!([{ "name": name, "value": "1" }]))], "name");
        }
        t.expect_refused("environment", label, &[(&format!("{pod}/env"), json!([{ "name": "A" }, { "name": "A" }]))], "env");
        t.expect_refused("environment", label, &[(&format!("{pod}/env/0/value"), json!("a\u{0}b"))], "value");
        let large: Vec<Value> = (0..64).map(|i| json!({ "name": format!("A{i}"), "value": "v".repeat(32_768) })).collect();
        t.expect_refused("environment", label, &[(&format!("{pod}/env"), json!(large))], "env");
        for image in ["", " ", " a", "a b", "a\nb", "a\u{0}", "-a", "ä"] {
            t.expect_refused("image", label, &[(&format!("{pod}/image"), json!(image))], "image");
        }
        t.expect_accepted(
            "image",
            label,
            &[(&format!("{pod}/image"), json!(format!("registry.example:5000/Team/agent:v1@sha256:{}", "a".repeat(64))))],
        );
        for (key, value) in [
            ("a b", "x"),
            ("", "x"),
            ("a/b/c", "x"),
            ("-a", "x"),
            ("ok", "a b"),
            ("ok", "-x"),
            ("ok", &"x".repeat(64)),
            (&"k".repeat(64), "x"),
        ] {
            t.expect_refused("selector", label, &[(&format!("{pod}/nodeSelector"), json!({ key: value }))], "nodeSelector");
        }
        t.expect_accepted("selector", label, &[(&format!("{pod}/nodeSelector"), json!({ "example.com/Pool_1": "", "x.y": "A.b_c" }))]);
        settings(t, label, pod);
        for name in ["Plain", "a b", "", "a_b", "-a", "a..b"] {
            t.expect_refused("reference", label, &[(&format!("{pod}/runtimeClassName"), json!(name))], "runtimeClassName");
            t.expect_refused("reference", label, &[(&format!("{pod}/imagePullSecrets"), json!([{ "name": name }]))], "imagePullSecrets");
        }
    }
    for (label, size_of) in [(a, "/spec/session/claimTemplate/size"), ("git", "/spec/warm/claimTemplate/size")] {
        for size in QUANTITIES.into_iter().chain(["0", "1e3", "10u", "0Gi"]) {
            t.expect_refused("quantity", label, &[(size_of, json!(size))], "size");
        }
        for size in ["1", "1.5Gi", "500Mi", "100000000000Ti"] {
            t.expect_accepted("quantity", label, &[(size_of, json!(size))]);
        }
    }
    for name in ["Plain", "a b", "", "a_b", "-a", "a..b"] {
        t.expect_refused("reference", a, &[("/spec/session/claimTemplate/storageClassName", json!(name))], "storageClassName");
        t.expect_refused("reference", "ref", &[("/spec/session/claimName", json!(name))], "claimName");
    }
}

/// What *restricted* forbids, what belongs to the runtime, and what Kubernetes would refuse only when the Pod is made.
fn settings(t: &mut Table, label: &'static str, pod: &str) {
    let from = |source: Value| json!([{ "name": "A", "valueFrom": source }]);
    let secret = json!({ "name": "s", "key": "k" });
    for (env, names) in [
        (from(json!({})), "exactly one"),
        (from(json!({ "secretKeyRef": secret, "configMapKeyRef": secret })), "exactly one"),
        (from(json!({ "fieldRef": { "fieldPath": "status.hostIP" } })), "fieldPath"),
        (json!([{ "name": "A", "value": "1", "valueFrom": { "secretKeyRef": secret } }]), "at most one"),
        (json!([{ "name": "YOI_MODEL_API_KEY", "valueFrom": { "secretKeyRef": secret } }]), "reserved"),
    ] {
        t.expect_refused("environment", label, &[(&format!("{pod}/env"), env)], names);
    }
    for (volume, names) in [
        (json!({ "name": "v" }), "exactly one"),
        (json!({ "name": "v", "emptyDir": {}, "configMap": { "name": "m" } }), "exactly one"),
        (json!({ "name": "tree", "emptyDir": {} }), "take another name"),
        (json!({ "name": "yoi-credentials", "emptyDir": {} }), "take another name"),
        (json!({ "name": "v", "csi": { "driver": "csi.yoi.dev" } }), "spec.workspace"),
        (json!({ "name": "v", "projected": { "sources": [{}] } }), "exactly one"),
        (json!({ "name": "v", "configMap": { "name": "m", "items": [{ "key": "k", "path": "../k" }] } }), "path"),
        (json!({ "name": "v", "emptyDir": { "sizeLimit": "lots" } }), "sizeLimit"),
        (json!({ "name": "v", "persistentVolumeClaim": { "claimName": "x-session" } }), "reserved for the sessions"),
    ] {
        t.expect_refused("volume", label, &[(&format!("{pod}/volumes"), json!([volume]))], names);
    }
    for path in [
        "/",
        "data",
        "/yoi",
        "/yoi/bin",
        "/session",
        "/etc/yoi",
        "/etc/yoi-preset",
        "/etc/yoi-credentials/x",
        "/var/run/yoi/x",
        "/tmp",
        "/home/agent",
        "/home",
        "/proc/x",
        "/a/../b",
        "/a:b",
    ] {
        t.expect_refused("mount", label, &[(&format!("{pod}/volumeMounts"), json!([{ "name": "cache", "mountPath": path }]))], "mountPath");
    }
    for path in ["/data", "/dev/shm", "/etc/ssl/certs", "/home/agent/.npm", "/tmp/x"] {
        t.expect_accepted("mount", label, &[(&format!("{pod}/volumeMounts"), json!([{ "name": "cache", "mountPath": path }]))]);
    }
    for (security, names) in [
        (json!({ "runAsNonRoot": false }), "runAsNonRoot"),
        (json!({ "readOnlyRootFilesystem": false }), "readOnlyRootFilesystem"),
        (json!({ "allowPrivilegeEscalation": true }), "allowPrivilegeEscalation"),
        (json!({ "privileged": true }), "privileged"),
        (json!({ "capabilities": { "add": ["NET_ADMIN"] } }), "capabilities"),
        (json!({ "seccompProfile": { "type": "Unconfined" } }), "seccompProfile"),
        (json!({ "seccompProfile": { "type": "Localhost" } }), "localhostProfile"),
        (json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": "../p.json" } }), "localhostProfile"),
        (json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": "/p.json" } }), "localhostProfile"),
        (json!({ "appArmorProfile": { "type": "Localhost", "localhostProfile": " p" } }), "localhostProfile"),
        (json!({ "appArmorProfile": { "type": "Unconfined" } }), "appArmorProfile"),
        (json!({ "seLinuxOptions": { "type": "spc_t" } }), "seLinuxOptions"),
        (json!({ "supplementalGroups": [0] }), "supplementalGroups"),
    ] {
        t.expect_refused("security", label, &[(&format!("{pod}/securityContext"), security)], names);
    }
    for (toleration, names) in [
        (json!({}), "needs operator Exists"),
        (json!({ "operator": "Exists", "value": "x" }), "takes no value"),
        (json!({ "key": "a", "effect": "NoSchedule", "tolerationSeconds": 1 }), "tolerationSeconds"),
        (json!({ "key": "a", "effect": "Never" }), "effect"),
    ] {
        t.expect_refused("toleration", label, &[(&format!("{pod}/tolerations"), json!([toleration]))], names);
    }
    t.expect_accepted("toleration", label, &[(&format!("{pod}/tolerations"), json!([{ "operator": "Exists" }]))]);
    let required =
        |term: Value| json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } });
    for (term, names) in [
        (json!({}), "matchExpressions"),
        (json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] }), "need values"),
        (json!({ "matchExpressions": [{ "key": "a", "operator": "Exists", "values": ["x"] }] }), "take no values"),
        (json!({ "matchExpressions": [{ "key": "a", "operator": "Gt", "values": ["x"] }] }), "whole number"),
        (json!({ "matchExpressions": [{ "key": "a b", "operator": "Exists" }] }), "key"),
    ] {
        t.expect_refused("affinity", label, &[(&format!("{pod}/affinity"), required(term))], names);
    }
    for key in ["", "a b", "a/b/c", &"k".repeat(64)] {
        let term = json!({ "labelSelector": { "matchLabels": { key: "x" } }, "topologyKey": "zone" });
        let affinity = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term] } });
        t.expect_refused("affinity", label, &[(&format!("{pod}/affinity"), affinity)], "matchLabels");
    }
}
