//! `workspace create` and `workspace rm`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, project, status};

fn operator(reason: &'static str, message: &'static str) -> impl Fn(&str, &mut Value) + Send + 'static {
    move |collection, object| {
        if collection.ends_with("agentworkspaces") {
            object["status"] = status(&[("Ready", "False", reason, message)]);
        }
    }
}

#[tokio::test]
async fn what_a_tree_is_made_from_is_checked_first() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    for (flag, kind) in [("--project", "YoiProject"), ("--fork", "AgentWorkspace")] {
        let missing = plugin.run(&["workspace", "create", "w", flag, "absent", "--claim", "--wait"]).await?.expect_code(3)?;
        ensure!(missing.err.contains(&format!("{kind} ns/absent does not exist")), "{missing:?}");
    }
    let words = ["workspace", "create", "w", "--git", "https://h/p", "--ref", "wrong", "--claim", "--wait"];
    let late = plugin.run(&words).await?.expect_code(1)?;
    ensure!(late.err.contains("nothing to wait for") && late.err.contains("--immediate"), "{late:?}");
    ensure!(server.object("AgentWorkspace", "w").is_none() && server.writes().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_wait_for_a_tree_of_a_wrong_ref_ends_with_gits_words() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.control(operator("PopulateFailed", "fatal: Remote branch wrong not found"));
    let words =
        ["workspace", "create", "w", "--git", "https://h/p", "--ref", "wrong", "--claim", "--immediate", "--wait", "--timeout", "90s"];
    let failed = plugin.run(&words).await?.expect_code(1)?;
    ensure!(failed.err.contains("Remote branch wrong not found"), "{failed:?}");
    Ok(())
}

#[tokio::test]
async fn a_late_tree_waits_for_the_project_that_it_is_made_from() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[("Ready", "False", "Populating", "it is being fetched")]));
    server.control(operator("WaitingForConsumer", "no Pod yet"));
    let words = ["workspace", "create", "w", "--project", "p", "--claim", "--wait", "--timeout"];
    let late = plugin.run(&[&words[..], &["4s"]].concat()).await?.expect_code(5)?;
    ensure!(late.err.contains("YoiProject ns/p: ready is not there yet"), "{late:?}");
    server.remove("AgentWorkspace", "w");
    server.put(project(&[("Ready", "True", "AllMet", "fine")]));
    let made = plugin.run(&[&words[..], &["90s"]].concat()).await?.expect_code(0)?;
    ensure!(made.out.contains("its tree is made with the first Pod"), "{made:?}");
    Ok(())
}

#[tokio::test]
async fn a_refresh_asks_for_one_look_and_says_what_it_found() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut git = project(&[("Ready", "True", "AllMet", "fine")]);
    git["spec"]["source"] = json!({ "git": { "url": "https://h/p" } });
    git["status"]["generation"] = json!({ "name": "g", "revision": "1111", "nodes": ["n"] });
    server.put(git.clone());
    // As the operator answers a request.
    server.control(|collection, object| {
        let request = object["metadata"]["annotations"]["yoi.dev/look"].clone();
        if collection.ends_with("yoiprojects") && request.is_string() {
            object["status"]["refresh"] =
                json!({ "source": "g", "lookedAt": "2026-01-01T00:00:00Z", "revision": "2222", "request": request });
            object["status"]["generation"]["revision"] = json!("2222");
        }
    });
    let moved = plugin.run(&["refresh", "p"]).await?.expect_code(0)?;
    ensure!(moved.out.contains("has moved from commit 1111 to 2222"), "{moved:?}");
    let same = plugin.run(&["refresh", "p"]).await?.expect_code(0)?;
    ensure!(same.out.contains("is at commit 2222, as before"), "{same:?}");
    let read: Value = serde_json::from_str(&plugin.run(&["refresh", "p", "-o", "json"]).await?.expect_code(0)?.out)?;
    ensure!(read["status"]["generation"]["revision"] == "2222", "{read}");
    server.control(|collection, object| {
        if collection.ends_with("yoiprojects") {
            let request = object["metadata"]["annotations"]["yoi.dev/look"].clone();
            object["status"]["refresh"] =
                json!({ "source": "g", "lookedAt": "2026-01-01T00:00:00Z", "failure": "fatal: no such host", "request": request });
        }
    });
    let failed = plugin.run(&["refresh", "p"]).await?.expect_code(1)?;
    ensure!(failed.err.contains("fatal: no such host"), "{failed:?}");
    // A source that is not fetched is not looked at either, and nobody waits for that.
    server.control(|_, _| ());
    git["status"]["conditions"] = json!([{ "type": "SourceReady", "status": "False", "reason": "PopulateFailed", "message": "couldn't find remote ref wrong",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    server.put(git);
    let unfetched = plugin.run(&["refresh", "p", "--timeout", "90s"]).await?.expect_code(1)?;
    ensure!(unfetched.err.contains("couldn't find remote ref wrong"), "{unfetched:?}");
    server.put(project(&[("Ready", "True", "AllMet", "fine")]));
    let refused = plugin.run(&["refresh", "p"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("its source is no git repository"), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn all_trees_are_those_that_belong_to_no_agent() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let tree = |name: &str, owner: Value| {
        json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name, "ownerReferences": owner },
            "spec": { "source": { "empty": {} } } })
    };
    let owner = json!([{ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "u" }]);
    server.put(tree("mine", json!([]))).put(tree("of-a", owner));
    plugin.run(&["workspace", "rm", "--all", "--force"]).await?.expect_code(0)?;
    ensure!(server.object("AgentWorkspace", "mine").is_none() && server.object("AgentWorkspace", "of-a").is_some());
    Ok(())
}

#[tokio::test]
async fn take_writes_another_word_each_time_and_only_into_a_project_of_a_folder() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[("Ready", "True", "AllMet", "fine")]));
    let refused = plugin.run(&["take", "p"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("no folder of a node") && server.writes().is_empty(), "{refused:?}");
    let mut of_folder = project(&[("Ready", "True", "AllMet", "fine")]);
    of_folder["spec"]["source"] = json!({ "host": { "name": "clone" } });
    server.put(of_folder);
    let mut words = Vec::new();
    for _ in 0..2 {
        plugin.run(&["take", "p"]).await?.expect_code(0)?;
        let stored = server.object("YoiProject", "p").unwrap_or_default();
        words.push(stored["spec"]["source"]["host"]["take"].as_str().unwrap_or_default().to_owned());
        ensure!(stored["spec"]["source"]["host"]["name"] == "clone", "{stored}");
    }
    ensure!(words[0] != words[1] && words.iter().all(|word| word.len() == 20 && word.ends_with('Z')), "{words:?}");
    Ok(())
}

#[tokio::test]
async fn a_quota_of_a_workspace_is_given_by_a_flag() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    plugin.run(&["workspace", "create", "w", "--empty", "--quota", "1.5Gi"]).await?.expect_code(0)?;
    let spec = server.object("AgentWorkspace", "w").map(|w| w["spec"].clone()).unwrap_or_default();
    ensure!(spec["quota"] == "1.5Gi", "{spec}");
    plugin.run(&["workspace", "create", "without", "--empty"]).await?.expect_code(0)?;
    let spec = server.object("AgentWorkspace", "without").map(|w| w["spec"].clone()).unwrap_or_default();
    ensure!(spec["empty"].is_null() && spec["quota"].is_null(), "{spec}");
    plugin.run(&["workspace", "create", "x", "--empty", "--quota", "10"]).await?.expect_code(2)?;
    ensure!(server.object("AgentWorkspace", "x").is_none(), "it was made");
    Ok(())
}
