//! `push`: what it asks for, what it waits for, and what it says. Gateway and operator are scripted.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, status};
use crate::plugin::{Plugin, agent};

fn commit() -> String {
    "c0".repeat(20)
}

fn response(id: Option<&str>, branch: &str) -> String {
    let mut response = json!({ "branch": branch, "commit": commit(), "base": "ba".repeat(20), "commits": 2, "uncommitted": { "count": 1, "paths": ["a b"] } });
    if let Some(id) = id {
        response["id"] = json!(id);
    }
    response.to_string()
}

/// The agent, whose push `id` ended so.
fn ended(name: &str, id: &str, branch: &str, result: &str, message: &str) -> Value {
    let mut agent = agent(name, &[]);
    let request = json!({ "id": id, "branch": branch, "commit": commit(), "requestedAt": "t" });
    let outcome = json!({ "id": id, "result": result, "branch": branch, "commit": commit(), "message": message, "finishedAt": "t" });
    agent["status"]["push"] = json!({ "request": request, "outcome": outcome });
    agent
}

async fn scene() -> Result<(ApiServer, Plugin)> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    Ok((server, plugin))
}

fn bodies(server: &ApiServer, name: &str) -> Vec<Value> {
    server.requests_for(name, "push").into_iter().map(|request| request.body).collect()
}

#[tokio::test]
async fn it_says_where_the_branch_is_and_what_is_not_committed() -> Result<()> {
    let (server, plugin) = scene().await?;
    server.put(ended("a", "one", "yoi/a", "Pushed", "branch yoi/a of https://git.example/p.git is at c0"));
    server.answer_for("a", "push", 200, response(Some("one"), "yoi/a"));
    let done = plugin.run(&["push", "a"]).await?.expect_code(0)?;
    ensure!(done.out == "branch yoi/a of https://git.example/p.git is at c0: 2 commits since babababababa\n", "{done:?}");
    ensure!(
        done.err.contains("not committed, so not on the branch: 1 path") && done.err.contains("push a --commit -m MESSAGE"),
        "{done:?}"
    );
    let done = plugin.run(&["push", "a", "-o", "json"]).await?.expect_code(0)?;
    let shown: Value = serde_json::from_str(&done.out)?;
    ensure!(shown["agent"] == "a" && shown["branch"] == "yoi/a" && shown["commit"] == json!(commit()) && shown["commits"] == 2, "{shown}");
    ensure!(bodies(&server, "a") == [json!({}), json!({})], "the branch is the gateway's choice");
    server.answer_for("a", "push", 200, response(None, "yoi/a"));
    let nothing = plugin.run(&["push", "a"]).await?.expect_code(0)?;
    ensure!(nothing.out.contains("has committed nothing since the base of its tree; nothing was pushed"), "{nothing:?}");
    Ok(())
}

#[tokio::test]
async fn a_push_that_failed_is_told_in_the_words_of_the_operator() -> Result<()> {
    let (server, plugin) = scene().await?;
    server.put(ended("a", "one", "yoi/a", "Failed", "branch yoi/a has moved:\u{1b}[2J it is at d0"));
    server.answer_for("a", "push", 200, response(Some("one"), "yoi/a"));
    let failed = plugin.run(&["push", "a"]).await?.expect_code(1)?;
    ensure!(failed.err.contains("branch yoi/a has moved") && failed.err.contains("push a --branch B"), "{failed:?}");
    ensure!(!failed.err.contains('\u{1b}') && failed.out.is_empty(), "{failed:?}");
    server.answer_for("a", "push", 403, status(403, "Forbidden", "alice cannot create resource \"yoipods/push\""));
    plugin.run(&["push", "a"]).await?.expect_code(4)?;
    Ok(())
}

#[tokio::test]
async fn a_lease_without_a_commit_is_on_where_the_last_push_left_the_branch() -> Result<()> {
    let (server, plugin) = scene().await?;
    server.put(ended("a", "one", "yoi/a", "Pushed", "m"));
    server.answer_for("a", "push", 200, response(Some("one"), "yoi/a"));
    plugin.run(&["push", "a", "--force-with-lease"]).await?.expect_code(0)?;
    let named = "e0".repeat(20);
    plugin.run(&["push", "a", &format!("--force-with-lease={named}"), "--branch", "other"]).await?.expect_code(0)?;
    ensure!(
        bodies(&server, "a") == [json!({ "expected": commit() }), json!({ "branch": "other", "expected": named })],
        "{:?}",
        bodies(&server, "a")
    );
    let unknown = plugin.run(&["push", "a", "--force-with-lease", "--branch", "other"]).await?.expect_code(1)?;
    ensure!(unknown.err.contains("name the commit that the branch is at: --force-with-lease=COMMIT"), "{unknown:?}");
    for words in [
        &["--force-with-lease=main"][..],
        &["--branch", "refs/heads/main"],
        &["--branch", "../x"],
        &["--commit"],
        &["--all", "--branch", "x"],
    ] {
        plugin.run(&[&["push", "a"], words].concat()).await?.expect_code(2)?;
    }
    ensure!(bodies(&server, "a").len() == 2, "it asked for a push");
    Ok(())
}

#[tokio::test]
async fn of_several_agents_each_is_pushed_to_its_own_branch_and_one_that_fails_holds_up_no_other() -> Result<()> {
    let (server, plugin) = scene().await?;
    server.put(ended("a", "one", "yoi/a", "Failed", "refused"));
    server.put(ended("b", "two", "yoi/b", "Pushed", "branch yoi/b is there"));
    server.answer_for("a", "push", 200, response(Some("one"), "yoi/a"));
    server.answer_for("b", "push", 200, response(Some("two"), "yoi/b"));
    for words in [&["push", "a", "b"][..], &["push", "--all"]] {
        let both = plugin.run(words).await?.expect_code(1)?;
        ensure!(both.out.contains("branch yoi/b is there") && both.err.contains("refused"), "{both:?}");
    }
    let one = plugin.run(&["push", "a", "b", "--branch", "x"]).await?.expect_code(1)?;
    ensure!(one.err.contains("a branch takes the commits of one agent"), "{one:?}");
    Ok(())
}
