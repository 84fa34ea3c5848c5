//! `trees` and `trees discard`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::Plugin;

const WORK: &str = "0197c0de-0000-4000-8000-000000000001";
const BASE: &str = "0197c0de-0000-4000-8000-000000000002";
const GONE: &str = "0197c0de-0000-4000-8000-000000000003";

fn node() -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "WorkspaceNode", "metadata": { "name": "n" }, "spec": { "discard": [GONE] },
        "status": { "unclaimed": { "trees": 61, "bases": 1, "exclusiveBytes": 1536, "items": [
            { "uid": BASE, "base": true, "object": "team/base-g-1", "generation": "g", "createdAt": "2026-01-01T00:00:00Z",
                "logicalBytes": 2048, "exclusiveBytes": 1024 },
            { "uid": WORK, "base": false, "object": "team/alice", "refused": "1 mounts of it are left" }] } } })
}

fn discarded(server: &ApiServer) -> Value {
    server.object("WorkspaceNode", "n").unwrap_or_default()["spec"]["discard"].clone()
}

#[tokio::test]
async fn trees_without_an_object_are_listed_with_what_they_take_and_how_many_more_there_are() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let none = plugin.run(&["trees"]).await?.expect_code(0)?;
    ensure!(none.out.contains("every tree"), "{none:?}");
    server.put(node());
    let listed = plugin.run(&["trees"]).await?.expect_code(0)?;
    let lines: Vec<&str> = listed.out.lines().collect();
    ensure!(lines[1].contains(BASE) && lines[1].contains("base") && lines[1].contains("1.0 KiB"), "{listed:?}");
    ensure!(lines[2].contains("team/alice") && lines[2].ends_with("not discarded: 1 mounts of it are left"), "{listed:?}");
    ensure!(lines[3].starts_with("60 more are on n"), "{listed:?}");
    let json = plugin.run(&["trees", "--node", "n", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(json["items"][0]["node"] == "n" && json["items"][0]["uid"] == BASE, "{json}");
    plugin.run(&["trees", "--node", "other"]).await?.expect_code(3)?;
    Ok(())
}

#[tokio::test]
async fn a_tree_without_an_object_is_shown_with_its_folder_and_the_command_that_opens_it_on_its_node() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(node());
    plugin.run(&["trees", "show", "n", GONE]).await?.expect_code(3)?;
    // Whoever may not read DaemonSets is told the chart's own folder, and that it is a guess.
    let guessed = plugin.run(&["trees", "show", "n", BASE]).await?.expect_code(0)?;
    ensure!(guessed.out.contains(&format!("/var/lib/yoi/trees/*/{BASE} (unless")) && guessed.out.contains("2.0 KiB in all"), "{guessed:?}");
    server.put(json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "yoi-agent-shim" },
        "spec": { "selector": {}, "template": { "spec": { "containers": [
            { "name": "shim", "args": ["shim"] }, { "name": "mounter", "args": ["mounter", "--data-root=/srv/yoi"] }] } } } }));
    let shown = plugin.run(&["trees", "show", "n", WORK]).await?.expect_code(0)?;
    ensure!(shown.out.starts_with(&format!("tree {WORK} of team/alice is on node n in /srv/yoi/trees/*/{WORK}\n")), "{shown:?}");
    let command = format!("kubectl debug node/n -it --profile=sysadmin --image=busybox -- sh -c 'cd /host/srv/yoi/trees/*/{WORK} && ");
    ensure!(shown.out.contains(&command) && shown.out.contains("not discarded: 1 mounts of it are left"), "{shown:?}");
    let json = plugin.run(&["trees", "show", "n", WORK, "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(json["uid"] == WORK && json["folder"] == format!("/srv/yoi/trees/*/{WORK}"), "{json}");
    ensure!(server.writes().is_empty(), "{:?}", server.writes());
    Ok(())
}

#[tokio::test]
async fn a_discard_tells_first_and_then_writes_what_the_node_lists_and_nothing_else() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(node());
    let told = plugin.run(&["trees", "discard", "n", WORK]).await?.expect_code(0)?;
    ensure!(told.out.contains(&format!("would discard tree {WORK} of team/alice")) && told.out.contains("--force"), "{told:?}");
    let unlisted = plugin.run(&["trees", "discard", "n", WORK, GONE, "--force"]).await?.expect_code(1)?;
    ensure!(unlisted.err.contains("an AgentWorkspace claims it, or it is not there"), "{unlisted:?}");
    ensure!(server.writes().is_empty(), "{:?}", server.writes());
    plugin.run(&["trees", "discard", "n", WORK, "--force"]).await?.expect_code(0)?;
    ensure!(discarded(&server) == json!([WORK]), "what the node lists no more is taken out: {}", discarded(&server));
    plugin.run(&["trees", "discard", "n", "--bases", "--force"]).await?.expect_code(0)?;
    ensure!(discarded(&server) == json!([WORK, BASE]), "{}", discarded(&server));
    Ok(())
}

#[tokio::test]
async fn a_tree_that_a_volume_names_is_kept() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" },
        "spec": { "csi": { "driver": "csi.yoi.dev", "volumeHandle": WORK } } });
    server.put(node()).put(volume);
    let listed = plugin.run(&["trees"]).await?.expect_code(0)?;
    ensure!(listed.out.contains("kept by PersistentVolume pv-1"), "{listed:?}");
    let refused = plugin.run(&["trees", "discard", "n", WORK, "--force"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("PersistentVolume pv-1 names it") && server.writes().is_empty(), "{refused:?}");
    Ok(())
}
