//! `scope`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent};

fn scoped(scope: Value, conditions: &[(&str, &str, &str, &str)]) -> Value {
    let mut agent = agent("a", conditions);
    agent["spec"]["scope"] = scope;
    agent
}

#[tokio::test]
async fn the_scope_of_an_agent_is_shown_with_its_covers_and_whether_they_hold() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let open = plugin.run(&["scope", "a"]).await?.expect_code(0)?;
    ensure!(open.out == "a may write its whole tree: it has no spec.scope\n", "{open:?}");

    let scope = json!({ "allow": [{ "path": "src", "access": "Write", "recursive": true }, { "path": "docs", "access": "Write", "recursive": false }],
        "deny": [{ "path": "src/keys", "access": "Read", "recursive": true }] });
    let (enforced, changed) = (("ScopeEnforced", "True", "CoversLaid", "m"), ("ManifestCurrent", "False", "SpecChanged", "m"));
    server.put(scoped(scope.clone(), &[enforced]));
    let shown = plugin.run(&["scope", "a"]).await?.expect_code(0)?;
    let lines: Vec<String> = shown.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "allow Write src yes",
        "allow Write docs files only",
        "deny Read src/keys yes",
        ". read-only -",
        "docs writable read-only",
        "src writable -",
        "src/keys hidden -",
        "ScopeEnforced",
    ] {
        ensure!(lines.iter().any(|shown| shown == line), "no line {line:?} in {}", shown.out);
    }
    let json: Value = serde_json::from_str(&plugin.run(&["scope", "a", "-o", "json"]).await?.expect_code(0)?.out)?;
    let paths: Vec<&Value> = json["covers"].as_array().into_iter().flatten().map(|cover| &cover["path"]).collect();
    ensure!(json["scope"] == scope && paths == [".", "docs", "src", "src/keys"] && json["enforced"]["reason"] == "CoversLaid", "{json}");

    server.put(scoped(scope, &[("ScopeEnforced", "False", "CoverRefused", "src/keys: it is not in the tree"), changed]));
    let refused = plugin.run(&["scope", "a"]).await?.expect_code(0)?;
    ensure!(refused.out.contains("not ScopeEnforced: CoverRefused: src/keys: it is not in the tree\n"), "{refused:?}");
    ensure!(refused.out.contains("The spec has changed since the agent was started"), "{refused:?}");
    plugin.run(&["scope", "b"]).await?.expect_code(3)?;
    Ok(())
}
