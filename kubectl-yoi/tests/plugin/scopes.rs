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

#[tokio::test]
async fn what_an_agent_has_lent_is_shown_with_who_holds_it_and_to_the_holder_too() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let rules = json!({ "allow": [{ "path": "docs", "access": "Write", "recursive": true }] });
    let mut lead = agent("lead", &[]);
    lead["spec"]["delegation"] = json!({ "allow": [{ "path": "docs", "access": "Write", "recursive": true }] });
    let uid = lead["metadata"]["uid"].clone();
    let mut child = agent("child", &[]);
    child["spec"]["spawnedBy"] = json!({ "name": "lead", "uid": uid, "requestId": "r", "loan": "l-1", "rules": rules });
    child["spec"]["scope"] = rules.clone();
    child["spec"]["workspace"] = json!({ "ref": { "name": "lead" } });
    let claim = |loan: &str, holder: &str, state: &str| {
        json!({ "loan": loan, "lender": { "name": "lead", "uid": uid }, "holder": { "name": holder }, "rules": rules, "state": state,
            "reservedAt": "2026-01-01T00:00:00Z" })
    };
    server.put(lead);
    server.put(child);
    server.put(json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "lead", "uid": "t" },
        "spec": { "source": { "empty": {} } }, "status": { "claims": [claim("l-1", "child", "Active"), claim("l-2", "former", "Reclaiming")],
            "loans": [{ "loan": "l-1", "covered": true }, { "loan": "l-2", "covered": false, "message": "why" }] } }));
    let shown = plugin.run(&["scope", "lead"]).await?.expect_code(0)?;
    let lines: Vec<String> = shown.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in ["lead may lend: docs", "l-1 docs lead child Active yes", "l-2 docs lead former (gone) Reclaiming no: why"] {
        ensure!(lines.iter().any(|shown| shown == line), "no line {line:?} in {}", shown.out);
    }
    let of_child = plugin.run(&["scope", "child"]).await?.expect_code(0)?;
    ensure!(of_child.out.contains("l-1") && !of_child.out.contains("l-2"), "{of_child:?}");
    let json: Value = serde_json::from_str(&plugin.run(&["scope", "lead", "-o", "json"]).await?.expect_code(0)?.out)?;
    ensure!(json["loans"][0]["covered"] == true && json["loans"][1]["holderMissing"] == true, "{json}");
    Ok(())
}
