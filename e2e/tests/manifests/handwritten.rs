//! Handwritten cases: manifests that must be refused whatever the schema says, and odd manifests that must be accepted. When a rule is missing from
//! the schema, its generated cases are missing too, and only these cases find it.

mod agents;
mod metadata;
mod models;

use serde_json::{Value, json};

use crate::case::{Case, Expected, Kind, Method, object, put};
use crate::specimen::{self, Specimen};

struct Table {
    cases: Vec<Case>,
    specimens: Vec<Specimen>,
}

pub fn all() -> Vec<Case> {
    let mut table = Table { cases: Vec::new(), specimens: specimen::all() };
    names(&mut table);
    paths(&mut table);
    sources(&mut table);
    agents::agents(&mut table);
    agents::pods(&mut table);
    models::models(&mut table);
    trees(&mut table);
    peers(&mut table);
    metadata::immutable(&mut table);
    metadata::metadata(&mut table);
    table.cases
}

impl Table {
    fn specimen(&self, label: &str) -> (Kind, &'static str, Value, &'static str) {
        let found = self.specimens.iter().find(|s| s.label == label).expect("a specimen");
        (found.kind, found.label, found.spec.clone(), found.existing)
    }

    fn add_case(
        &mut self,
        (class, label): (&'static str, &str),
        method: Method,
        name: &str,
        body: &Value,
        expected: Expected,
        names: &str,
    ) {
        let (kind, label, ..) = self.specimen(label);
        let (title, names) = (format!("{name} {}", truncate_json(body)), names.to_owned());
        self.cases.push(Case {
            kind,
            class,
            title,
            method,
            strict: true,
            name: name.to_owned(),
            text: body.to_string(),
            expected,
            names,
            label,
        });
    }

    /// Adds a case: a new object with these fields changed. Null removes a field.
    fn add(&mut self, class: &'static str, label: &str, changes: &[(&str, Value)], expected: Expected, names: &str) {
        let (kind, _, spec, _) = self.specimen(label);
        let name = if kind == Kind::YoiPeer { "a.b".to_owned() } else { format!("n-{}", self.cases.len()) };
        let mut body = object(kind, &name, &spec);
        for (pointer, value) in changes {
            assert!(put(&mut body, pointer, (!value.is_null()).then(|| value.clone())), "{pointer} does not stand in {label}");
        }
        let method = if self.cases.len().is_multiple_of(3) { Method::Apply } else { Method::Create };
        self.add_case((class, label), method, &name, &body, expected, names);
        let title = changes.iter().map(|(p, v)| format!("{p} = {}", truncate_json(v))).collect::<Vec<_>>().join(", ");
        self.cases.last_mut().expect("the one just made").title = title;
    }

    fn expect_refused(&mut self, class: &'static str, label: &str, changes: &[(&str, Value)], names: &str) {
        self.add(class, label, changes, Expected::Refused, names);
    }

    fn expect_accepted(&mut self, class: &'static str, label: &str, changes: &[(&str, Value)]) {
        self.add(class, label, changes, Expected::Accepted, "");
    }

    /// Adds a case: a merge patch of the existing specimen.
    fn add_patch(&mut self, class: &'static str, label: &str, patch: &Value, expected: Expected, names: &str) {
        let existing = self.specimen(label).3;
        self.add_case((class, label), Method::Merge, existing, patch, expected, names);
    }
}

fn truncate_json(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 90 { format!("{}…", text.chars().take(90).collect::<String>()) } else { text }
}

fn names(t: &mut Table) {
    let longest = "a".repeat(50);
    for label in ["empty", "template of nothing", "base"] {
        for wrong in
            ["Upper", "with.dot", "-front", "back-", "under_score", "white space", "ä", "a/b", "..", "", &"a".repeat(51), &"a".repeat(254)]
        {
            let (kind, _, spec, _) = t.specimen(label);
            let words = if wrong == "with.dot" { "DNS label" } else { "name" };
            t.add_case(("name", label), Method::Create, wrong, &object(kind, wrong, &spec), Expected::Refused, words);
        }
        for right in ["a", "0", "7-7", longest.as_str()] {
            let (kind, _, spec, _) = t.specimen(label);
            t.add_case(("name", label), Method::Create, right, &object(kind, right, &spec), Expected::Accepted, "");
        }
    }
    for wrong in ["Upper", "a.b", "-a", "a-", "a_b", "ä", "../w", "", &"a".repeat(51)] {
        t.expect_refused("reference", "template of nothing", &[("/spec/projectRef/name", json!(wrong))], "projectRef.name");
        t.expect_refused("reference", "ref", &[("/spec/workspace/ref/name", json!(wrong))], "workspace.ref.name");
        t.expect_refused("reference", "fork", &[("/spec/source/workspace/name", json!(wrong))], "source.workspace.name");
        t.expect_refused("reference", "pair", &[("/spec/members/0", json!(wrong))], "members");
    }
    t.expect_accepted("reference", "template of nothing", &[("/spec/projectRef/name", json!(longest))]);
}

fn paths(t: &mut Table) {
    let wrong = [
        "",
        "/",
        "//",
        "relative",
        "./a",
        "../a",
        "/..",
        "/a/..",
        "/a/../b",
        "/a/../../etc",
        "/a/./b",
        "/a/.",
        "/.",
        "//a",
        "/a//b",
        "/a/",
        "/a\u{0}b",
        "/a\nb",
        "/a b",
        "/a\tb",
        "/ä",
        "/a:b",
        "/a,b",
        "/a\\b",
        "/a;b",
        "/$(HOME)",
        "/~",
        "/a*",
        "C:\\a",
        "/proc",
        "/proc/self/root",
        "/sys",
        "/sys/fs",
        "/dev",
        "/dev/shm",
        "/etc",
        "/etc/passwd",
        "/run",
        "/run/secrets",
        "/var/run/secrets/x",
        "/yoi",
        "/yoi/socket",
        "/session",
        "/session/log",
        "/tmp",
        "/home",
        "/home/agent",
        "/usr",
        "/bin",
        "/lib",
        "/lib64",
        "/sbin",
        "/var",
        "/usr/local/bin",
        "/usr/src/app",
        "/bin/x",
        "/sbin/x",
        "/lib/x",
        "/lib64/x",
        "/opt/yoi",
        "/opt/yoi/x",
    ];
    for path in wrong {
        let words = if ["/yoi", "/tmp"].contains(&path) { "must not cover a system folder" } else { "path" };
        t.expect_refused("path", "empty", &[("/spec/path", json!(path))], words);
        t.expect_refused("path", "base", &[("/spec/path", json!(path))], words);
    }
    t.expect_refused("path", "empty", &[("/spec/path", json!(format!("/{}", "a".repeat(256))))], "path");
    t.expect_refused("path", "empty", &[("/spec/path", json!(format!("/{}", "a".repeat(256).replace("aa", "a/"))))], "path");
    for path in ["/workspace", "/a", "/...", "/a/...", "/.a", "/a..b", "/srv/x", "/home/other", "/opt", "/home/agent/tree"] {
        t.expect_accepted("path", "empty", &[("/spec/path", json!(path))]);
        t.expect_accepted("path", "base", &[("/spec/path", json!(path))]);
    }
}

fn sources(t: &mut Table) {
    let git = json!({ "url": "https://git.example/p.git" });
    for (label, source) in [
        ("git", json!({})),
        ("git", json!({ "git": git, "empty": {} })),
        ("project", json!({})),
        ("project", json!({ "project": { "name": "p" }, "empty": {} })),
        ("project", json!({ "project": { "name": "p" }, "workspace": { "name": "w" } })),
        ("project", json!({ "workspace": { "name": "w" }, "git": git })),
        ("project", json!({ "project": { "name": "p" }, "workspace": { "name": "w" }, "git": git, "empty": {} })),
    ] {
        t.expect_refused("two sources or none", label, &[("/spec/source", source.clone())], "exactly one");
        if label == "project" {
            t.expect_refused("two sources or none", "template of git", &[("/spec/workspace/template/source", source)], "exactly one");
        }
    }
    for source in [json!({}), json!({ "git": git, "empty": {} })] {
        let (.., existing) = t.specimen("fork");
        let patch = json!({ "status": { "origin": { "kind": "Base", "source": source } } });
        t.add_case(("two sources or none", "fork"), Method::MergeStatus, existing, &patch, Expected::Refused, "exactly one");
    }
    for url in [
        "file:///etc/passwd",
        "ssh://h",
        "ssh://user:word@h/p",
        "ssh://-oProxyCommand=x/p",
        "ssh://h:x/p",
        "git@h",
        "h:p",
        "git@-oProxyCommand=x:p",
        "git@h:-p",
        "git@h:p q",
        "ext::sh -c id",
        "https://",
        "http:// h/p",
        "https://h/p'x",
        "https://h/\"p",
        "https://h/p\n--upload-pack=x",
        "--upload-pack=x",
        "HTTPS://h/p",
        "ftp://h/p",
        "https://h/p\u{0}q",
        "/srv/git",
        "..",
        "git://\t",
        "https://token@h/p",
        "https://user:word@h/p",
        "git://@h/p",
    ] {
        let words = if url == "https://token@h/p" { "credentialsSecretRef" } else { "url" };
        t.expect_refused("address", "git", &[("/spec/source/git/url", json!(url))], words);
        t.expect_refused("address", "git tree", &[("/spec/source/git/url", json!(url))], words);
        t.expect_refused("address", "template of git", &[("/spec/workspace/template/source/git/url", json!(url))], words);
    }
    for ref_ in ["--upload-pack=x", "-b", "a b", "a\u{0}b", "a~1", "a^{}", "a:b", "refs/../x\n", "", "/a", ".a", "ä", "a\\b", "a*", "@{u}"]
    {
        t.expect_refused("address", "git", &[("/spec/source/git/ref", json!(ref_))], "ref");
    }
    for url in ["ssh://h/p", "ssh://git@h:2222/~/p.git", "git@h:p", "git@git.example:team/p.git", "https://h/p"] {
        t.expect_accepted("address", "git", &[("/spec/source/git/url", json!(url))]);
    }
    for url in ["http://h/p", "git://h/p"] {
        t.expect_refused("address", "git", &[("/spec/source/git/url", json!(url))], "in the clear");
        t.expect_refused("address", "git tree", &[("/spec/source/git/url", json!(url))], "in the clear");
        t.expect_refused("address", "template of git", &[("/spec/workspace/template/source/git/url", json!(url))], "in the clear");
        t.expect_accepted("address", "git", &[("/spec/source/git", json!({ "url": url }))]);
    }
    let words = "needs credentialsSecretRef: a Secret with the keys ssh-privatekey and known_hosts";
    for url in ["ssh://git@h/p", "git@h:p"] {
        t.expect_refused("address", "git", &[("/spec/source/git", json!({ "url": url }))], words);
        t.expect_refused("address", "git tree", &[("/spec/source/git", json!({ "url": url }))], words);
        let template = [("/spec/workspace/template/source/git", json!({ "url": url }))];
        t.expect_refused("address", "template of git", &template, words);
    }
    for host in ["", "-h", "H", "h/p", "https://h", "h:x", "u@h", "h h"] {
        t.expect_refused("address", "git", &[("/spec/source/git/submoduleHosts", json!([host]))], "submoduleHosts");
    }
    for (field, value, words) in [
        ("image", json!(""), "image"),
        ("image", json!("a b"), "image"),
        ("image", json!("--privileged"), "image"),
        ("image", json!("i".repeat(513)), "image"),
        ("command", json!([]), "command"),
        ("command", json!([""]), "must not be empty"),
        ("command", json!("make"), "command"),
        ("command", json!(["make", "a\u{0}b"]), "command"),
        ("command", json!(["make", "a".repeat(16_385)]), "command"),
        ("command", json!(vec!["x"; 65]), "command"),
        ("egress", json!("All"), "egress"),
        ("egress", json!("Unknown"), "egress"),
        ("egress", json!("agents"), "egress"),
        ("timeout", json!("0s"), "timeout"),
        ("timeout", json!("1d"), "timeout"),
        ("timeout", json!("1h30m"), "timeout"),
        ("timeout", json!("1000000h"), "timeout"),
        ("resources", json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "1" } }), "requests must not be above limits"),
        ("resources", json!({ "limits": { "apples": "1" } }), "of devices with names"),
        ("resources", json!({ "limits": { "example.com/gpu": "0.5" } }), "whole numbers"),
        ("resources", json!({ "requests": { "example.com/gpu": "1" }, "limits": { "example.com/gpu": "2" } }), "the same as their limits"),
    ] {
        t.expect_refused("prepare", "base", &[(&format!("/spec/base/prepare/{field}"), value.clone())], words);
        t.expect_refused("prepare", "git", &[(&format!("/spec/prepare/{field}"), value)], words);
    }
    for (field, value) in
        [("command", json!(["sh", "-c", ""])), ("egress", json!("Agents")), ("timeout", json!("999999h")), ("image", json!("i"))]
    {
        t.expect_accepted("prepare", "git", &[(&format!("/spec/prepare/{field}"), value)]);
    }
    for depth in [json!(0), json!(-1), json!("5"), json!(1_000_001)] {
        t.expect_refused("address", "git", &[("/spec/source/git/depth", depth)], "depth");
    }
    for often in ["", "0m", "30s", "1d", "m", "-1m", "1.5m", "1234567m"] {
        t.expect_refused("duration", "git", &[("/spec/source/git/refresh", json!(often))], "refresh");
    }
    t.expect_accepted("duration", "git", &[("/spec/source/git/refresh", json!("1m"))]);
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let still = [("/spec/source/git/refresh", json!("1m")), ("/spec/source/git/ref", json!(commit))];
    t.expect_refused("address", "git", &still, "can move");
    t.expect_refused("address", "git tree", &[("/spec/source/git/refresh", json!("1m"))], "fetched once");
    t.expect_refused("address", "template of git", &[("/spec/workspace/template/source/git/refresh", json!("1m"))], "fetched once");
    t.expect_refused("address", "synced", &[("/spec/source/git/refresh", json!("1m"))], "only one");
    t.expect_refused("address", "synced", &[("/spec/source/git/depth", json!(1))], "whole history");
    t.expect_refused("address", "git tree", &[("/spec/source/git/sync", json!({}))], "sync is of a project");
    t.expect_refused("address", "template of git", &[("/spec/workspace/template/source/git/sync", json!({}))], "sync is of a project");
    // Nothing but that rule refuses these.
    let synced = json!({ "url": "https://git.example/team/project.git", "sync": {} });
    t.expect_refused("address", "git tree", &[("/spec/source/git", synced.clone())], "sync is of a project");
    t.expect_accepted("address", "empty", &[("/spec/source/empty/sync", json!({}))]);
    t.expect_refused(
        "address",
        "template of nothing",
        &[("/spec/workspace/template/source/empty/sync", json!({}))],
        "sync is of a project",
    );
    t.expect_refused("address", "template of git", &[("/spec/workspace/template/source/git", synced)], "sync is of a project");
    for revision in ["", "-b", "a b", "a~1", "a:b", "@{u}"] {
        t.expect_refused("address", "project", &[("/spec/source/project/revision", json!(revision))], "revision");
        let template = [("/spec/workspace/template/source/project/revision", json!(revision))];
        t.expect_refused("address", "template of a project", &template, "revision");
    }
    t.expect_accepted("address", "project", &[("/spec/source/project/revision", json!(commit))]);
    for ref_ in
        ["main", "v1.2.3", "feature/x+y", "0123456789abcdef0123456789abcdef01234567", "refs/pull/7/head", "refs/merge-requests/7/head"]
    {
        t.expect_accepted("address", "git", &[("/spec/source/git/ref", json!(ref_))]);
    }
    for url in ["ftp://m/v1/", "m/v1", "javascript:alert(1)", "http://", "http:// m", "https://m/\u{0}", "http://m\n/", ""] {
        t.expect_refused("address", "empty", &[("/spec/defaults/model/baseUrl", json!(url))], "baseUrl");
    }
    let words = "must not hold a user, password or token";
    for url in ["https://token@m/v1/", "https://user:word@m/v1/", "http://@m/"] {
        t.expect_refused("address", "empty", &[("/spec/defaults/model/baseUrl", json!(url))], words);
        t.expect_refused("address", "ref", &[("/spec/model/baseUrl", json!(url))], words);
    }
    t.expect_accepted("address", "empty", &[("/spec/defaults/model/baseUrl", json!("https://m/v1/@tenant?user=a@b"))]);
    for owner in [
        json!({ "uid": 0, "gid": 1000 }),
        json!({ "uid": 1000, "gid": 0 }),
        json!({ "uid": -1, "gid": 1 }),
        json!({ "uid": 1_i64 << 31, "gid": 1 }),
        json!({ "uid": 1 }),
    ] {
        t.expect_refused("owner", "empty", &[("/spec/owner", owner.clone())], "owner");
        t.expect_refused("owner", "base", &[("/spec/owner", owner)], "owner");
    }
}

fn trees(t: &mut Table) {
    for ttl in ["", "s", "1", "1d", "-1s", "1.5h", "1h30m", "999999999s", " 1s", "1S", "∞", "1s\n", "١s"] {
        t.expect_refused("duration", "project", &[("/spec/ttlAfterRelease", json!(ttl))], "ttlAfterRelease");
    }
    for ttl in ["0s", "10m", "99999999h", "00000001s"] {
        t.expect_accepted("duration", "project", &[("/spec/ttlAfterRelease", json!(ttl))]);
    }
    t.expect_refused("tree", "project", &[("/spec/claim", json!(false))], "ttlAfterRelease");
    t.expect_refused("tree", "fork", &[("/spec/binding", json!("Immediate"))], "binding Immediate needs a claim");
    t.expect_accepted("tree", "project", &[("/spec/binding", json!("Immediate"))]);
    let owner = json!({ "uid": 1000, "gid": 1000 });
    t.expect_refused("tree", "project", &[("/spec/owner", owner.clone())], "owner");
    t.expect_refused("tree", "fork", &[("/spec/owner", owner)], "owner");
    let base = json!({ "generation": "0123456789", "node": "n" });
    for (field, value) in [
        ("/spec/source", json!({ "project": { "name": "p" } })),
        ("/spec/source", json!({ "workspace": { "name": "p" } })),
        ("/spec/claim", json!(true)),
        ("/spec/readOnly", json!(true)),
    ] {
        t.expect_refused("tree", "base", &[(field, value), ("/spec/base", base.clone())], "base");
    }
    for node in ["Node", "a b", "", "../n", "a_b"] {
        t.expect_refused("tree", "base", &[("/spec/base/node", json!(node))], "node");
    }
    for generation in ["", "a/b", "A", "../x", "g g", "ä"] {
        t.expect_refused("tree", "base", &[("/spec/base/generation", json!(generation))], "generation");
    }
    for quota in ["0", "-1", "-10Gi", "1023Ki", "1048575", "1M", "0.9Mi", "", "Gi", "10GB", " 1Gi", "1e9", "١Gi"] {
        t.expect_refused("tree", "fork", &[("/spec/quota", json!(quota))], "quota");
        t.expect_refused("tree", "host", &[("/spec/defaults/quota", json!(quota))], "quota");
    }
    for quota in ["1Mi", "1048576", "1.5Gi", "2M", "10Ti"] {
        t.expect_accepted("tree", "fork", &[("/spec/quota", json!(quota))]);
        t.expect_accepted("tree", "host", &[("/spec/defaults/quota", json!(quota))]);
    }
    for provider in ["InPlace", "auto", "ZFS", ""] {
        t.expect_refused("tree", "fork", &[("/spec/provider", json!(provider))], "provider");
    }
}

fn peers(t: &mut Table) {
    for (name, members, word) in [
        ("a.a", json!(["a", "a"]), "own peer"),
        ("b.a", json!(["b", "a"]), "sorted"),
        ("a.b", json!(["b", "a"]), "sorted"),
        ("a.c", json!(["a", "b"]), "joined by a dot"),
        ("ab", json!(["a", "b"]), "name"),
        ("a.b.c", json!(["a", "b"]), "name"),
        ("a", json!(["a"]), "members"),
        ("a.b", json!([]), "members"),
        ("a.b.c", json!(["a", "b", "c"]), "members"),
        ("a.b", json!(["a", ""]), "members"),
        ("a.b.c", json!(["a.b", "c"]), "members"),
        ("a.b", json!(["a", "B"]), "members"),
    ] {
        t.add_case(
            ("peer", "pair"),
            Method::Create,
            name,
            &object(Kind::YoiPeer, name, &json!({ "members": members })),
            Expected::Refused,
            word,
        );
    }
    let (x, y) = ("x".repeat(50), "y".repeat(50));
    for (name, members) in [(format!("{x}.{y}"), json!([x, y])), ("0.a".into(), json!(["0", "a"])), ("a-1.a1".into(), json!(["a-1", "a1"]))]
    {
        t.add_case(
            ("peer", "pair"),
            Method::Create,
            &name,
            &object(Kind::YoiPeer, &name, &json!({ "members": members })),
            Expected::Accepted,
            "",
        );
    }
}
