//! The model of an agent, and how far it may go.

use serde_json::{Value, json};

use super::Table;

pub(super) fn models(t: &mut Table) {
    for (label, model) in [("template of nothing", "/spec/model"), ("empty", "/spec/defaults/model")] {
        for endpoint in [model.to_owned(), format!("{model}/fallbacks/0")] {
            endpoint_rules(t, label, &endpoint);
        }
        let fallback = json!({ "provider": "Anthropic", "name": "m" });
        t.expect_refused("model", label, &[(&format!("{model}/fallbacks"), json!(vec![fallback.clone(); 4]))], "fallbacks");
        t.expect_accepted("model", label, &[(&format!("{model}/fallbacks"), json!(vec![fallback; 3]))]);
        t.expect_accepted("model", label, &[(&format!("{model}/fallbacks"), Value::Null)]);
    }
    let a = "template of nothing";
    for (at, keep) in [(json!(10_000), json!(10_000)), (json!(10_000), json!(20_000)), (json!(20_000), Value::Null)] {
        t.expect_refused("model", a, &[("/spec/compaction", json!({ "at": at, "keep": keep }))], "keep");
    }
    for fine in [json!({}), json!({ "at": 20_001 }), json!({ "keep": 0 }), json!({ "at": 1_000, "keep": 999 })] {
        t.expect_accepted("model", a, &[("/spec/compaction", fine)]);
    }
    for (field, n) in [("at", 999), ("at", -1), ("keep", -1), ("at", 1_000_000_001)] {
        t.expect_refused("model", a, &[("/spec/compaction", json!({ field: n }))], field);
    }
    for field in ["deny", "ask", "allow"] {
        for rule in ["", "Shell(", "Shell()", "(x)", "Shell (x)", "7z", "Shell(x", "a/b"] {
            t.expect_refused("policy", a, &[("/spec/policy", json!({ field: [rule] }))], field);
        }
        for rule in ["Shell", "Shell(a (b) *)", "mcp__a__b", "Read(**)"] {
            t.expect_accepted("policy", a, &[("/spec/policy", json!({ field: [rule] }))]);
        }
        t.expect_refused("policy", a, &[("/spec/policy", json!({ field: vec!["Shell"; 129] }))], field);
    }
    for timeout in ["", "10", "9s", "0m", "169h", "-1h", "1d", "605000s"] {
        for label in [a, "empty"] {
            t.expect_refused("policy", label, &[("/spec/policy", json!({ "approval": { "timeout": timeout } }))], "timeout");
        }
    }
    for timeout in ["10s", "90m", "168h"] {
        t.expect_accepted("policy", a, &[("/spec/policy", json!({ "approval": { "timeout": timeout } }))]);
    }
    for host in ["", "*.example.org", "-a", "a..b", "https://example.org", "example.org:443"] {
        t.expect_refused("policy", a, &[("/spec/policy", json!({ "network": { "hosts": [host] } }))], "hosts");
    }
    for word in ["redact", "Unknown", ""] {
        t.expect_refused("policy", a, &[("/spec/policy", json!({ "secretsInResults": word }))], "secretsInResults");
    }
    t.expect_refused("policy", a, &[("/spec/policy", json!({ "network": { "schemes": ["HTTP"] } }))], "schemes");
    t.expect_accepted("policy", a, &[("/spec/policy", json!({ "network": {} }))]);
    for dir in [".cursor", "jido", ".jido/", "", "/.jido"] {
        t.expect_refused("assets", "git", &[("/spec/assets", json!({ "dirs": [dir] }))], "dirs");
    }
    let set = |name: &str| json!({ "configMap": { "name": name } });
    let twice = json!([set("a"), set("b"), set("a")]);
    let many: Vec<Value> = (0..9).map(|n| set(&format!("s{n}"))).collect();
    for from in [json!([{}]), twice, json!(many), json!([set("")]), json!([set("A")]), json!([set("a/b")])] {
        t.expect_refused("assets", "git", &[("/spec/assets", json!({ "from": from }))], "from");
    }
    let git = |name: &str| json!({ "name": name, "git": { "url": "https://git.example/t.git" } });
    let image = |name: &str| json!({ "name": name, "image": { "reference": "registry.example/t:1" } });
    let with = |mut set: Value, kind: &str, field: &str, value: &str| {
        set[kind][field] = json!(value);
        json!([set])
    };
    let unnamed = json!([{ "git": { "url": "https://git.example/t.git" } }]);
    let named_map = json!([{ "name": "t", "configMap": { "name": "t" } }]);
    let both = json!([{ "name": "t", "git": { "url": "https://git.example/t.git" }, "image": { "reference": "t" } }]);
    for from in
        [unnamed, named_map, both, json!([git("t"), image("t")]), json!([git("T")]), json!([git("")]), json!([image(&"t".repeat(51))])]
    {
        t.expect_refused("assets", "git", &[("/spec/assets", json!({ "from": from }))], "from");
    }
    for url in ["https://user:token@git.example/t.git", "file:///etc", "ext::sh -c x", "ssh://git@git.example/t.git"] {
        t.expect_refused("assets", "git", &[("/spec/assets", json!({ "from": with(git("t"), "git", "url", url) }))], "url");
    }
    let clear = json!([{ "name": "t", "git": { "url": "http://git.example/t.git", "credentialsSecretRef": { "name": "key" } } }]);
    t.expect_refused("assets", "git", &[("/spec/assets", json!({ "from": clear }))], "credentialsSecretRef");
    for path in ["/etc", "../x", "a/../b", "a/./b", "..", ".", "a//b", "a b", ""] {
        for set in [with(git("t"), "git", "path", path), with(image("t"), "image", "path", path)] {
            t.expect_refused("assets", "git", &[("/spec/assets", json!({ "from": set }))], "path");
        }
    }
    t.expect_refused("assets", "git", &[("/spec/assets", json!({ "from": with(git("t"), "git", "ref", "--upload-pack=x") }))], "ref");
    t.expect_refused("assets", "git", &[("/spec/assets", json!({ "from": with(image("t"), "image", "reference", "-x") }))], "reference");
    let ssh = json!([{ "name": "t", "git": { "url": "git@git.example:t.git", "ref": "v1", "path": ".claude", "credentialsSecretRef": { "name": "key" } } }]);
    for from in [ssh, json!([git("t"), image("u"), set("t")]), with(image("t"), "image", "path", "opt/team..agents/.x")] {
        t.expect_accepted("assets", "git", &[("/spec/assets", json!({ "from": from }))]);
    }
    for fine in [json!({}), json!({ "dirs": [] }), json!({ "from": many[..8] }), json!({ "strict": true, "watch": true })] {
        t.expect_accepted("assets", "git", &[("/spec/assets", fine)]);
    }
    for tokens in [0_i64, -1, 1_000_000_000_000_001] {
        t.expect_refused("model", a, &[("/spec/limits/tokens", json!(tokens))], "tokens");
    }
    for size in ["1", "1048575", "0.5Mi", "-1Gi", "lots", "", "1GiB", "0"] {
        t.expect_refused("quantity", a, &[("/spec/session/segmentSize", json!(size))], "segmentSize");
    }
    for size in ["1Mi", "1048576", "1.5Gi", "256M"] {
        t.expect_accepted("quantity", a, &[("/spec/session/segmentSize", json!(size))]);
    }
}

fn endpoint_rules(t: &mut Table, label: &'static str, endpoint: &str) {
    let at = |field: &str| format!("{endpoint}/{field}");
    for provider in ["Anthropic", "Gemini"] {
        t.expect_refused("model", label, &[(&at("provider"), json!(provider))], "api may only be set with provider OpenAI");
        t.expect_accepted("model", label, &[(&at("provider"), json!(provider)), (&at("api"), Value::Null)]);
    }
    for api in ["Completions", "responses", ""] {
        t.expect_refused("model", label, &[(&at("api"), json!(api))], "api");
    }
    t.expect_accepted("model", label, &[(&at("api"), json!("Responses"))]);
    for (field, value) in [
        ("maxOutputTokens", json!(0)),
        ("maxOutputTokens", json!(-1)),
        ("window", json!(999)),
        ("effort", json!("")),
        ("effort", json!("very high")),
        ("timeout", json!("0s")),
        ("timeout", json!("000h")),
        ("timeout", json!("10")),
        ("timeout", json!("1d")),
        ("timeout", json!("-1s")),
        ("patience", json!("1.5h")),
        ("patience", json!("")),
        ("caRef", json!({ "name": "Upper" })),
        ("caRef", json!({ "name": "m", "key": "a/b" })),
        ("caRef", json!({ "key": "k" })),
    ] {
        t.expect_refused("model", label, &[(&at(field), value)], field);
    }
    for (field, value) in [
        ("timeout", json!("1s")),
        ("patience", json!("0s")),
        ("patience", json!("99999999h")),
        ("caRef", json!({ "name": "m" })),
        ("effort", json!("x-high")),
    ] {
        t.expect_accepted("model", label, &[(&at(field), value)]);
    }
    for url in ["socks5://p", "proxy:3128", "http://", "http://a b", ""] {
        t.expect_refused("address", label, &[(&at("proxyUrl"), json!(url))], "proxyUrl");
    }
    t.expect_refused("address", label, &[(&at("proxyUrl"), json!("http://user:word@proxy:3128"))], "proxyUrl must not hold a user");
    headers(t, label, endpoint);
}

fn headers(t: &mut Table, label: &'static str, endpoint: &str) {
    let headers = format!("{endpoint}/headers");
    let secret = json!({ "secretKeyRef": { "name": "s", "key": "k" } });
    for (header, names) in [
        (json!({ "name": "X-A" }), "exactly one"),
        (json!({ "name": "X-A", "value": "1", "valueFrom": secret }), "exactly one"),
        (json!({ "name": "X-A", "valueFrom": {} }), "secretKeyRef"),
        (json!({ "name": "X-A", "valueFrom": { "secretKeyRef": { "name": "S", "key": "k" } } }), "secretKeyRef"),
        (json!({ "name": "", "value": "1" }), "name"),
        (json!({ "name": "X A", "value": "1" }), "name"),
        (json!({ "name": "X-A:", "value": "1" }), "name"),
        (json!({ "name": "Ä", "value": "1" }), "name"),
        (json!({ "name": "X-A", "value": "a\nb" }), "value"),
        (json!({ "name": "X-A", "value": "ä" }), "value"),
        (json!({ "name": "Host", "value": "other" }), "the connection sets them"),
        (json!({ "name": "content-LENGTH", "value": "1" }), "the connection sets them"),
        (json!({ "name": "Authorization", "value": "1" }), "beside authSecretRef"),
        (json!({ "name": "X-API-Key", "valueFrom": secret }), "beside authSecretRef"),
    ] {
        t.expect_refused("model", label, &[(&headers, json!([header]))], names);
    }
    let twice = json!([{ "name": "X-A", "value": "1" }, { "name": "x-a", "value": "2" }]);
    t.expect_refused("model", label, &[(&headers, twice)], "once");
    let many: Vec<Value> = (0..17).map(|i| json!({ "name": format!("X-{i}"), "value": "1" })).collect();
    t.expect_refused("model", label, &[(&headers, json!(many))], "headers");
    let own_key = json!([{ "name": "Authorization", "valueFrom": secret }]);
    t.expect_accepted("model", label, &[(&headers, own_key), (&format!("{endpoint}/authSecretRef"), Value::Null)]);
    t.expect_accepted("model", label, &[(&headers, json!([{ "name": "X-Empty", "value": "" }]))]);
}
