//! `run`, `stop`, `start`, `restart`, `rm` and `peer`.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_test_support::eventually;

use crate::api_server::{ApiServer, collection, status};
use crate::plugin::{Plugin, agent, project, status as status_of};

const RETAIN: &str = "/api/v1/persistentvolumes/pv-1";

/// The claim and the volume that an agent `a` has left.
fn left_session(server: &ApiServer) {
    server.put(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "a-session", "annotations": { "yoi.dev/yoipod-uid": "former" } }, "spec": { "volumeName": "pv-1" } }));
    server.put(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" },
        "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
}

#[tokio::test]
async fn f12_p4_run_says_what_a_former_agent_has_left_and_how_to_go_on_and_changes_none_that_is_there() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[]));
    left_session(&server);
    let refused = plugin.run(&["run", "a", "-p", "p"]).await?.expect_code(1)?;
    for words in [
        "claim a-session holds the session of a former agent of this name",
        "kubectl yoi run a --project p --claim a-session -n ns",
        "kubectl yoi rm a --purge --force -n ns",
    ] {
        ensure!(refused.err.contains(words), "{words}: {refused:?}");
    }
    ensure!(server.writes().is_empty(), "{:?}", server.writes());
    plugin.run(&["run", "a", "-p", "p", "--claim", "a-session"]).await?.expect_code(0)?;
    let made = server.object("YoiPod", "a").context("no agent")?;
    ensure!(made["spec"]["session"]["claimName"] == "a-session", "{made}");
    let again = plugin.run(&["run", "a", "-p", "p"]).await?.expect_code(1)?;
    ensure!(again.err.contains("exists already"), "{again:?}");
    ensure!(server.object("YoiPod", "a").as_ref() == Some(&made), "the one that is there was changed");
    Ok(())
}

#[tokio::test]
async fn a_purge_does_not_wait_for_a_volume_whose_node_is_gone() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    left_session(&server);
    let term = json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["gone"] }] });
    let volume = |spec: Value| json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" }, "spec": spec });
    server
        .put(volume(json!({ "persistentVolumeReclaimPolicy": "Retain", "nodeAffinity": { "required": { "nodeSelectorTerms": [term] } } })));
    let node = json!({ "metadata": { "name": "n1", "labels": { "kubernetes.io/hostname": "n1" } } });
    server.answer("/api/v1/nodes", 200, json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [node] }).to_string());
    let purged = plugin.run(&["rm", "a", "--purge", "--force"]).await?.expect_code(0)?;
    ensure!(purged.err.contains("a node that does not exist any more") && purged.err.contains("kubectl delete pv pv-1"), "{purged:?}");
    ensure!(server.object("PersistentVolumeClaim", "a-session").is_none(), "the claim stays");
    Ok(())
}

/// The agent `a`, stopped, whose status names a session claim.
fn stopped_agent() -> Value {
    let mut a = agent("a", &[]);
    a["spec"]["desiredState"] = json!("Stopped");
    a["status"]["sessionClaimName"] = json!("a-session");
    a
}

#[tokio::test]
async fn a_purge_of_an_agent_that_never_had_a_session_says_so() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(stopped_agent());
    let told = plugin.run(&["rm", "a", "--purge"]).await?.expect_code(0)?;
    ensure!(told.out.contains("it has no session claim"), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn a_purge_deletes_the_data_and_not_only_the_claim() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(stopped_agent());
    left_session(&server);
    let told = plugin.run(&["rm", "a", "--purge"]).await?.expect_code(0)?;
    ensure!(told.out.contains("session claim a-session with volume pv-1 and its data goes too") && server.writes().is_empty(), "{told:?}");
    let purge = plugin.start(&["rm", "a", "--purge", "--force"])?;
    let is_gone = async || server.object("PersistentVolumeClaim", "a-session").is_none().then_some(());
    eventually("the end of the claim", is_gone).await;
    // The provisioner deletes a volume whose policy allows it.
    let policy = server.object("PersistentVolume", "pv-1").map(|volume| volume["spec"]["persistentVolumeReclaimPolicy"].clone());
    ensure!(policy == Some(json!("Delete")), "{policy:?}");
    server.remove("PersistentVolume", "pv-1");
    ensure!(purge.end().await?.0 == Some(0) && server.object("YoiPod", "a").is_none());
    // Another agent's session, and a volume that the user may not change: nothing is deleted.
    left_session(&server);
    server.answer(RETAIN, 403, status(403, "Forbidden", "no"));
    let forbidden = plugin.run(&["rm", "a", "--purge", "--force"]).await?.expect_code(4)?;
    ensure!(forbidden.err.contains("nothing was deleted") && forbidden.err.contains("kubectl patch pv pv-1"), "{forbidden:?}");
    let mut b = agent("b", &[]);
    b["spec"]["session"] = json!({ "claimName": "a-session" });
    server.put(b);
    let used = plugin.run(&["rm", "a", "--purge", "--force"]).await?.expect_code(1)?;
    ensure!(used.err.contains("YoiPod b uses it") && server.object("PersistentVolumeClaim", "a-session").is_some(), "{used:?}");
    Ok(())
}

#[tokio::test]
async fn names_addresses_and_invalid_objects_are_answered_by_the_rule() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[]));
    let long = "a".repeat(51);
    let refused = plugin.run(&["run", &long, "-p", "p"]).await?.expect_code(2)?;
    ensure!(refused.err.contains("at most 50 characters, and this one has 51: take a shorter one"), "{refused:?}");
    let token = plugin.run(&["workspace", "create", "w", "--git", "https://me:token@github.com/team/p.git"]).await?.expect_code(2)?;
    ensure!(token.err.contains("name it by --git-secret") && !token.err.contains("^("), "{token:?}");
    ensure!(server.requests().is_empty(), "the cluster was asked");
    let mut invalid: Value =
        serde_json::from_str(&status(422, "Invalid", "YoiPod.yoi.dev \"a\" is invalid: <nil>: Invalid value: \"object\": no such"))?;
    invalid["details"] = json!({ "causes": [{ "reason": "FieldValueInvalid", "field": "<nil>",
        "message": "Invalid value: \"object\": completion Stop needs a task" }] });
    server.answer(&collection("YoiPod"), 422, invalid.to_string());
    let refused = plugin.run(&["run", "a", "-p", "p"]).await?.expect_code(1)?;
    ensure!(refused.err.starts_with("error: failed to create YoiPod ns/a: completion Stop needs a task\n"), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn run_takes_peers_image_environment_and_seconds() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[])).put(agent("b", &[]));
    let words = ["run", "c", "-p", "p", "--peer", "b", "--image", "reg/i:1", "--env", "A=1", "-e", "B=x=y", "--tool-seconds", "90"];
    plugin.run(&words).await?.expect_code(0)?;
    let spec = server.object("YoiPod", "c").context("no agent")?["spec"].clone();
    ensure!(
        spec["pod"] == json!({ "image": "reg/i:1", "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "x=y" }] }),
        "{spec}"
    );
    ensure!(spec["limits"]["toolSeconds"] == 90, "{spec}");
    ensure!(server.object("YoiPeer", "b.c").is_some_and(|peer| peer["spec"]["members"] == json!(["b", "c"])));
    // The words of the command line are lower-case, those of the objects are not; both are taken.
    for (n, word) in ["gemini", "Gemini"].into_iter().enumerate() {
        let agent = format!("g{n}");
        plugin
            .run(&["run", &agent, "-p", "p", "--model-provider", word, "--model", "m", "--model-secret", "keys/g"])
            .await?
            .expect_code(0)?;
        let model = server.object("YoiPod", &agent).context("no agent")?["spec"]["model"].clone();
        ensure!(model == json!({ "provider": "Gemini", "name": "m", "authSecretRef": { "name": "keys", "key": "g" } }), "{model}");
    }
    let missing = plugin.run(&["run", "d", "-p", "p", "--peer", "absent"]).await?.expect_code(3)?;
    ensure!(server.object("YoiPod", "d").is_none(), "{missing:?}");
    Ok(())
}

#[tokio::test]
async fn run_makes_a_program_or_a_command_the_agent_and_asks_for_a_model_only_where_one_is_needed() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut without_model = project(&[]);
    without_model["spec"]["defaults"] = json!({});
    server.put(without_model);
    let made = |name: &str| server.object("YoiPod", name).map(|agent| agent["spec"]["agent"].clone());
    let refused = plugin.run(&["run", "web", "-p", "p", "--program", "claude"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("says which model to use") && made("web").is_none(), "{refused:?}");
    let model = ["--model-provider", "anthropic", "--model", "m"];
    let words = ["run", "web", "-p", "p", "--program", "claude", "--program-arg", "--effort", "--program-arg", "high"];
    plugin.run(&[&words[..], &model[..]].concat()).await?.expect_code(0)?;
    ensure!(made("web") == Some(json!({ "cli": { "preset": "claude", "args": ["--effort", "high"] } })), "{:?}", made("web"));
    plugin.run(&["run", "own", "-p", "p", "--program", "claude", "--credentials", "login"]).await?.expect_code(0)?;
    ensure!(
        made("own") == Some(json!({ "cli": { "preset": "claude", "credentialsSecretRef": { "name": "login" } } })),
        "{:?}",
        made("own")
    );
    let model = ["--model-provider", "openai", "--model", "m", "--model-url", "http://m.example/v1/", "--api", "responses"];
    plugin.run(&[&["run", "mine", "-p", "p", "--preset-from", "presets/mine.yaml"], &model[..]].concat()).await?.expect_code(0)?;
    ensure!(made("mine") == Some(json!({ "cli": { "presetFrom": { "name": "presets", "key": "mine.yaml" } } })), "{:?}", made("mine"));
    let api = server.object("YoiPod", "mine").map(|agent| agent["spec"]["model"]["api"].clone());
    ensure!(api == Some(json!("Responses")), "{api:?}");
    plugin.run(&["run", "lint", "-p", "p", "--command", "--", "make", "-j", "--wait"]).await?.expect_code(0)?;
    ensure!(made("lint") == Some(json!({ "command": ["make", "-j", "--wait"] })), "{:?}", made("lint"));

    let listed = plugin.run(&["ls", "agents", "-o", "wide"]).await?.expect_code(0)?;
    let line = |name: &str| listed.out.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default().to_owned();
    ensure!(listed.out.contains("RUNS") && line("own").contains("claude") && line("lint").contains("make"), "{listed:?}");
    Ok(())
}

#[tokio::test]
async fn a_dry_run_changes_nothing() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[])).put(agent("a", &[])).put(agent("b", &[]));
    let shown = plugin.run(&["run", "c", "-p", "p", "--dry-run=client", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(shown["kind"] == "YoiPod" && shown["metadata"] == json!({ "name": "c", "namespace": "ns" }), "{shown}");
    ensure!(server.writes().is_empty(), "{:?}", server.writes());
    for (words, mark) in [
        (&["run", "c", "-p", "p", "--dry-run"][..], "created (server dry run)"),
        (&["peer", "a", "b", "--dry-run=server"], "(server dry run)"),
        (&["rm", "a", "--force", "--dry-run"], "(server dry run)"),
        (&["stop", "a", "--dry-run=client"], "(dry run)"),
        (&["workspace", "create", "w", "--empty", "--dry-run"], "(server dry run)"),
    ] {
        let told = plugin.run(words).await?.expect_code(0)?;
        ensure!(told.out.contains(mark), "{words:?}: {told:?}");
    }
    ensure!(server.object("YoiPod", "c").is_none() && server.object("YoiPeer", "a.b").is_none() && server.object("YoiPod", "a").is_some());
    ensure!(server.object("YoiPod", "a").is_some_and(|a| a["spec"]["desiredState"].is_null()), "it was stopped");
    Ok(())
}

#[tokio::test]
async fn verbs_act_on_all_agents_or_on_those_with_labels() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut blue = agent("a", &[]);
    blue["metadata"]["labels"] = json!({ "team": "blue" });
    server.put(blue).put(agent("b", &[]));
    let state = |name: &str| server.object("YoiPod", name).map(|a| a["spec"]["desiredState"].clone()).unwrap_or_default();
    plugin.run(&["stop", "-l", "team=blue"]).await?.expect_code(0)?;
    ensure!(state("a") == "Stopped" && state("b").is_null());
    plugin.run(&["stop", "--all"]).await?.expect_code(0)?;
    ensure!(state("b") == "Stopped");
    let none = plugin.run(&["start", "-l", "team=red"]).await?.expect_code(3)?;
    ensure!(none.err.contains("team=red") && state("a") == "Stopped", "{none:?}");
    plugin.run(&["stop"]).await?.expect_code(2)?;
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_suspended_is_listed_last_while_it_rests_and_top_asks_nobody() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[("Ready", "False", "Resting", "it rests since noon")])).put(agent("b", &[("Ready", "True", "AllMet", "fine")]));
    let told = plugin.run(&["suspend", "a"]).await?.expect_code(0)?;
    ensure!(told.out.contains("yoipod.yoi.dev/a rests when it has nothing to do"), "{told:?}");
    let mut a = server.object("YoiPod", "a").unwrap_or_default();
    ensure!(a["spec"]["desiredState"] == "Suspended", "{a}");
    a["status"]["runGeneration"] = json!(2);
    a["status"]["report"] = json!({ "podUID": "u", "runGeneration": 1, "ready": false, "reason": "Resting", "message": "m" });
    a["status"]["rest"] = json!({ "runGeneration": 1, "since": "2026-01-01T12:00:00Z" });
    server.put(a);
    let list = plugin.run(&["ls", "agents"]).await?.expect_code(0)?.out;
    let line = |name: &str| list.lines().position(|line| line.trim_start().starts_with(&format!("{name} ")));
    ensure!(line("b") < line("a") && list.contains("Resting") && list.contains("it rests since noon"), "{list}");
    let top = plugin.run(&["top"]).await?.out;
    ensure!(top.lines().any(|line| line.trim_start().starts_with("a ") && line.contains("Resting")), "{top}");
    Ok(())
}

#[tokio::test]
async fn a_restart_waits_for_the_end_of_the_pod_before_it_starts_another() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut a = agent("a", &[("Ready", "True", "AllMet", "fine")]);
    a["status"]["pod"] = json!({ "name": "a-1", "uid": "u" });
    server.put(project(&[])).put(a);
    let mut running = plugin.start(&["restart", "a"])?;
    let is_asked = async || server.object("YoiPod", "a").filter(|a| a["spec"]["desiredState"] == "Stopped");
    let mut stopping = eventually("the stop", is_asked).await;
    // What it says of a state, it has looked at.
    stopping["status"]["conditions"] = status_of(&[("Ready", "False", "Terminating", "the Pod gets its time")])["conditions"].clone();
    server.put(stopping.clone());
    running.error_line("Terminating: the Pod gets its time").await?;
    let starts = |server: &ApiServer| server.object("YoiPod", "a").is_none_or(|a| a["spec"]["desiredState"] != "Stopped");
    ensure!(!starts(&server), "it was started while its Pod was there");
    let generation = stopping["metadata"]["generation"].clone();
    stopping["status"] = json!({ "observedGeneration": generation, "conditions": [] });
    server.put(stopping);
    let (code, done) = running.end().await?;
    let a = server.object("YoiPod", "a").context("no agent")?;
    ensure!(code == Some(0) && a["spec"]["desiredState"] == "Running" && done.contains("restarting"), "{a} {done:?}");
    Ok(())
}

fn ready_peer(reason: &'static str, status: &'static str) -> impl Fn(&str, &mut Value) + Send + 'static {
    move |collection, object| {
        if collection.ends_with("yoipeers") {
            object["status"] = crate::plugin::status(&[("Ready", status, reason, "in the operator's words")]);
        }
    }
}

#[tokio::test]
async fn a_peer_that_is_not_ready_is_no_success() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[])).put(agent("b", &[]));
    server.control(ready_peer("Starting", "False"));
    let late = plugin.run(&["peer", "a", "b", "--timeout", "5s"]).await?.expect_code(5)?;
    ensure!(
        late.err.contains("YoiPeer ns/a.b") && late.err.contains("Starting: in the operator's words") && late.out.is_empty(),
        "{late:?}"
    );
    server.remove("YoiPeer", "a.b");
    server.control(ready_peer("MemberMissing", "False"));
    let missing = plugin.run(&["peer", "a", "b"]).await?.expect_code(1)?;
    ensure!(missing.err.contains("only a person can fix that: MemberMissing"), "{missing:?}");
    server.remove("YoiPeer", "a.b");
    server.control(ready_peer("MembersBound", "True"));
    let joined = plugin.run(&["peer", "b", "a"]).await?.expect_code(0)?;
    ensure!(joined.out.contains("a and b see each other"), "{joined:?}");
    Ok(())
}

#[tokio::test]
async fn a_peer_of_a_former_agent_is_made_anew() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let former = json!({ "members": [{ "name": "a", "uid": "uid-a" }, { "name": "b", "uid": "of-former" }],
        "conditions": [{ "type": "Ready", "status": "False", "reason": "MemberReplaced", "message": "b is another", "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
    server.put(agent("a", &[])).put(agent("b", &[]));
    server.put(json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer", "metadata": { "name": "a.b", "uid": "old" },
        "spec": { "members": ["a", "b"] }, "status": former }));
    server.control(ready_peer("MembersBound", "True"));
    plugin.run(&["peer", "a", "b"]).await?.expect_code(0)?;
    ensure!(server.object("YoiPeer", "a.b").is_some_and(|peer| peer["metadata"]["uid"] != "old"), "it is the former one");
    Ok(())
}
