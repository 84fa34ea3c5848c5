//! `session`: claims with sessions, of agents that live and of agents that are gone.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent};

/// A claim that was made for an agent of this name.
fn claim(agent: &str, made: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": format!("{agent}-session"), "uid": format!("uid-{agent}"), "creationTimestamp": made,
            "labels": { "yoi.dev/yoipod": agent }, "annotations": { "yoi.dev/yoipod-uid": "u" } },
        "spec": { "resources": { "requests": { "storage": "1Gi" } } } })
}

/// An agent that lives, one that is gone and left its session long ago, and one that is gone since a moment.
async fn scene() -> Result<(ApiServer, Plugin)> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut live = agent("live", &[("Ready", "True", "AllMet", "it listens")]);
    live["status"]["sessionClaimName"] = json!("live-session");
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let foreign = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "foreign" }, "spec": {} });
    let old = "2020-01-01T00:00:00Z";
    server.put(live).put(claim("live", old)).put(claim("old", old)).put(claim("new", &now)).put(foreign);
    Ok((server, plugin))
}

#[tokio::test]
async fn h3_the_sessions_of_agents_that_are_gone_are_listed() -> Result<()> {
    let (_server, plugin) = scene().await?;
    let listed = plugin.run(&["session", "ls"]).await?.expect_code(0)?;
    let line = |claim: &str| listed.out.lines().find(|line| line.starts_with(claim)).unwrap_or_default().to_owned();
    ensure!(line("old-session").contains("nobody") && line("new-session").contains("nobody"), "{listed:?}");
    ensure!(line("live-session").contains("live") && !line("live-session").contains("nobody"), "{listed:?}");
    ensure!(!listed.out.contains("foreign"), "{listed:?}");
    let json = plugin.run(&["session", "ls", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(json["items"][0]["namedBy"].is_null() && json["items"][2]["namedBy"] == "live" && json["items"][2]["size"] == "1Gi", "{json}");
    Ok(())
}

#[tokio::test]
async fn h1_h2_h4_a_session_that_lives_is_refused_and_without_force_there_is_a_report_only() -> Result<()> {
    let (server, plugin) = scene().await?;
    let named = plugin.run(&["session", "rm", "old-session", "live-session", "--force"]).await?.expect_code(1)?;
    ensure!(named.err.contains("YoiPod live names it") && named.err.contains("kubectl yoi rm live --purge -n ns"), "{named:?}");
    let missing = plugin.run(&["session", "rm", "foreign", "--force"]).await?.expect_code(3)?;
    ensure!(missing.err.contains("kubectl yoi session ls"), "{missing:?}");
    let told = plugin.run(&["session", "rm", "old-session"]).await?.expect_code(0)?;
    ensure!(told.out.contains("would be deleted. Nothing was done"), "{told:?}");
    let pruned = plugin.run(&["session", "prune", "--older-than", "30d"]).await?.expect_code(0)?;
    ensure!(
        pruned.out.contains("old-session") && !pruned.out.contains("new-session") && !pruned.out.contains("live-session"),
        "{pruned:?}"
    );
    let no_age = plugin.run(&["session", "prune", "--force"]).await?.expect_code(2)?;
    ensure!(no_age.err.contains("--older-than"), "{no_age:?}");
    ensure!(server.writes().is_empty(), "{:?}", server.writes());

    let reader = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "look" }, "status": { "phase": "Running" },
        "spec": { "containers": [], "volumes": [{ "name": "s", "persistentVolumeClaim": { "claimName": "new-session" } }] } });
    server.put(reader);
    let used = plugin.run(&["session", "rm", "new-session", "--force"]).await?.expect_code(1)?;
    ensure!(used.err.contains("Pod look uses it") && server.writes().is_empty(), "{used:?}");

    let done = plugin.run(&["session", "prune", "--older-than", "30d", "--force"]).await?.expect_code(0)?;
    ensure!(done.out.contains("session claim old-session deleted"), "{done:?}");
    let deleted: Vec<String> =
        server.requests().into_iter().filter(|request| request.method == "DELETE").map(|request| request.path).collect();
    ensure!(deleted.len() == 1 && deleted[0].ends_with("/persistentvolumeclaims/old-session"), "{deleted:?}");
    Ok(())
}

#[tokio::test]
async fn h3_f16_the_session_of_an_agent_that_is_gone_is_read_and_exported_whole_and_nothing_of_it_changes() -> Result<()> {
    let (server, plugin) = scene().await?;
    // The operator looks at what reads it, and the gateway answers for that, whatever its name.
    server.control(|collection, object| {
        if collection.ends_with("/yoipods") {
            object["status"] = json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "Stopped", "message": "desiredState is Stopped",
                "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
        }
    });
    let line = json!({ "token": "t:1", "entry": { "id": "e", "seq": 1, "run": 1, "at": "2026-01-01T10:20:30.000Z", "kind": "Assistant",
        "body": { "text": "what it did" } } });
    server.answer_for("*", "log", 200, line.to_string() + "\n");
    let log = plugin.run(&["session", "log", "old-session"]).await?.expect_code(0)?;
    ensure!(log.out.contains("what it did") && log.err.contains("reads it, and is deleted afterwards"), "{log:?}");
    let made = server.requests().into_iter().find(|request| request.method == "POST").map(|request| request.body).unwrap_or_default();
    ensure!(made["spec"]["desiredState"] == "Stopped" && made["spec"]["session"]["claimName"] == "old-session", "{made}");
    let name = made["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    ensure!(server.object("YoiPod", &name).is_none(), "{name} is left over");
    let changed: Vec<String> = server.writes().into_iter().filter(|write| !write.contains("/yoipods")).collect();
    ensure!(changed.is_empty(), "{changed:?}");

    server.answer_for("*", "log", 200, vec![0_u8; 1024]);
    let file = tempfile::tempdir()?;
    let path = file.path().join("old.tar");
    let export = plugin.run(&["session", "export", "old-session", "-f", &path.display().to_string()]).await?.expect_code(0)?;
    ensure!(std::fs::read(&path)?.len() == 1024, "{export:?}");
    // One that an agent names is read by that one, and nothing is made.
    let before = server.writes().len();
    server.answer_for("live", "log", 200, line.to_string() + "\n");
    let live = plugin.run(&["session", "log", "live-session"]).await?.expect_code(0)?;
    ensure!(live.out.contains("what it did") && server.writes().len() == before, "{live:?}");
    let missing = plugin.run(&["session", "log", "foreign"]).await?.expect_code(3)?;
    ensure!(missing.err.contains("kubectl yoi session ls"), "{missing:?}");
    Ok(())
}
