//! Calls of the engine that act, by persons who may do one kind of them and nothing else.

use anyhow::{Result, ensure};
use serde_json::json;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::Body;

const SCRIPT: &str = "
rules:
- steps:
  - text: I have read it.
";

/// Lets the service account of this name make calls of this kind.
async fn allow(ns: &TestNamespace, name: &str, kind: &str) -> Result<()> {
    let rule = |groups: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [groups], "resources": resources, "verbs": verbs });
    let rules = [
        rule("runtime.yoi.dev", &["yoipods/proxy", &format!("yoipods/{kind}")], &["create"]),
        rule("yoi.dev", &["yoipods"], &["get", "list"]),
    ];
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": name }, "rules": rules });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": ns.name }] });
    ns.apply(&role.to_string()).await?;
    ns.apply(&binding.to_string()).await
}

#[tokio::test]
async fn p67_a_person_with_that_right_alone_runs_a_tool_and_another_sends_an_event() -> Result<()> {
    let ns = TestNamespace::create("engine-calls").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    let (runner, sender) = (ns.kubeconfig_for("runner", None).await?, ns.kubeconfig_for("sender", None).await?);
    allow(&ns, "runner", "tools").await?;
    allow(&ns, "sender", "events").await?;
    ns.create_agent("a", "p", json!({ "policy": { "deny": ["Write"] } })).await?;
    ns.wait_agent_ready("a").await?;
    let id = "0197c0de-0000-4000-8000-000000000001";
    let make = ["tools", "a", "run", "Shell", "--id", id, "--args", r#"{"command": "echo once >> made; cat made"}"#];
    // The gateway may learn of the agent, and everybody of a binding, a moment later.
    let run = async || {
        let ran = ns.yoi_as(&runner, &make).await?;
        Ok((![4, 5].contains(&ran.code)).then_some(ran))
    };
    let (ran, _) = poll_until(TIMEOUT, "the tool has run", run).await?;
    ensure!(ran.exit_ok()?.out.starts_with("once\n"), "a command has run before it, or not at all");
    let again = ns.yoi_as(&runner, &make).await?.exit_ok()?;
    ensure!(again.out.starts_with("once\n[exit code 0]"), "the same id is the same call: {again:?}");
    let denied = ns.yoi_as(&runner, &["tools", "a", "run", "Write", "--args", r#"{"path": "x", "content": "x"}"#]).await?;
    ensure!(denied.code == 6 && denied.err.contains("tool_denied"), "{denied:?}");

    let message = ["events", "a", "send", "conversation.user.message", "--data", r#"{"text": "Read this."}"#];
    let send = async || {
        let sent = ns.yoi_as(&sender, &message).await?;
        Ok((sent.code != 4).then_some(sent))
    };
    poll_until(TIMEOUT, "the event is taken", send).await?.0.exit_ok()?;
    let internal = ns.yoi_as(&sender, &["events", "a", "send", "conversation.run.closed"]).await?;
    ensure!(internal.code == 1 && internal.err.contains("is internal"), "{internal:?}");
    // Neither may do what the other may, or anything else.
    for (who, words) in [
        (&runner, &message[..]),
        (&sender, &make),
        (&runner, &["log", "a"]),
        (&sender, &["send", "a", "hello"]),
        (&runner, &["tools", "a"]),
    ] {
        let refused = ns.yoi_as(who, words).await?;
        ensure!(refused.code == 4, "{words:?}: {refused:?}");
    }
    let answered = async || Ok(ns.yoi(&["log", "a"]).await?.out.contains("I have read it.").then_some(()));
    poll_until(TIMEOUT, "the agent has answered", answered).await?;
    let log = ns.log("a").await?;
    let who = |name: &str| format!("system:serviceaccount:{}:{name}", ns.name);
    let requested: Vec<_> = log
        .iter()
        .filter_map(|line| if let Body::ToolRequested(request) = &line.entry.body { Some(&request.by.user) } else { None })
        .collect();
    ensure!(requested == [&who("runner"), &who("runner")], "{requested:?}");
    let is_message = |body: &Body| matches!(body, Body::Input(input) if input.text == "Read this." && input.user == Some(who("sender")));
    ensure!(log.iter().any(|line| is_message(&line.entry.body)), "{log:?}");
    for file in [runner, sender] {
        std::fs::remove_file(file)?;
    }
    ns.remove().await
}
