//! `ls` and `workspace ls`.

use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use yoi_test_support::eventually;

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent, output};

fn tree(name: &str) -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name }, "spec": { "source": { "empty": {} } },
        "status": { "path": "/workspace", "volume": { "logicalBytes": 1_572_864 } } })
}

fn peer(a: &str, b: &str) -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer", "metadata": { "name": format!("{a}.{b}") }, "spec": { "members": [a, b] },
        "status": { "members": [{ "name": a, "uid": format!("uid-{a}") }, { "name": b, "uid": format!("uid-{b}") }] } })
}

#[tokio::test]
async fn a_list_for_programs_is_of_kind_list_and_each_item_has_its_kind() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[])).put(agent("b", &[])).put(tree("w")).put(peer("a", "b"));
    for (words, kinds) in [
        (&["ls", "-o", "json"][..], &["YoiPod", "YoiPod", "AgentWorkspace", "YoiPeer"][..]),
        (&["ls", "agents", "-o", "json"], &["YoiPod", "YoiPod"]),
        (&["workspace", "ls", "-o", "json"], &["AgentWorkspace"]),
        (&["ls", "peers", "-o", "json"], &["YoiPeer"]),
    ] {
        let list = plugin.run(words).await?.expect_code(0)?.json()?;
        ensure!(list["kind"] == "List" && list["apiVersion"] == "v1", "{words:?}: {list}");
        let items = list["items"].as_array().context("no items")?;
        ensure!(items.iter().map(|item| item["kind"].as_str().unwrap_or_default()).collect::<Vec<_>>() == kinds, "{words:?}: {list}");
        ensure!(items.iter().all(|item| item["apiVersion"] == "yoi.dev/v1alpha1"), "{words:?}: {list}");
    }
    Ok(())
}

#[tokio::test]
async fn a_list_says_why_an_agent_is_not_ready_and_a_wide_one_says_more() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let long = format!("0/3 nodes are available\u{1b}[2J:\nD {}", "x".repeat(80));
    let mut a = agent("a", &[("Ready", "False", "PodPending", &long)]);
    a["status"]["pod"] = json!({ "name": "a-7", "uid": "u" });
    a["metadata"]["labels"] = json!({ "team": "blue" });
    server.put(a).put(agent("b", &[("Ready", "True", "AllMet", "fine")])).put(tree("w")).put(peer("a", "b"));
    let short = plugin.run(&["ls", "agents"]).await?.expect_code(0)?;
    ensure!(
        short.out.contains("MESSAGE") && short.out.contains("0/3 nodes are available^[[2J: D xx") && short.out.contains('…'),
        "{short:?}"
    );
    ensure!(short.out.lines().count() == 3 && !short.out.contains("fine") && short.out.contains("  b  "), "{short:?}");
    let wide = plugin.run(&["ls", "agents", "-o", "wide"]).await?.expect_code(0)?;
    for word in ["NODE", "POD", "SESSION", "a-7", "fine", &"x".repeat(80)] {
        ensure!(wide.out.contains(word), "{word}: {wide:?}");
    }
    let trees = plugin.run(&["workspace", "ls", "-o", "wide"]).await?.expect_code(0)?;
    ensure!(trees.out.contains("1.5 MiB") && trees.out.contains("/workspace"), "{trees:?}");
    let blue = plugin.run(&["ls", "agents", "-l", "team=blue"]).await?.expect_code(0)?;
    ensure!(blue.out.lines().count() == 2 && blue.out.contains("  b  "), "it sees b, which is not listed: {blue:?}");
    Ok(())
}

#[tokio::test]
async fn a_list_goes_on_when_it_is_watched() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[("Ready", "False", "Starting", "s")]));
    let mut running = plugin.start(&["ls", "-w"])?;
    ensure!(running.line().await?.starts_with("AGENT"));
    ensure!(running.line().await?.contains("Starting"));
    let is_watched = async || server.requests().iter().any(|request| request.query.contains_key("watch")).then_some(());
    eventually("the watch, which begins after the list", is_watched).await;
    server.put(agent("a", &[("Ready", "True", "AllMet", "s")]));
    ensure!(running.line().await?.contains("AllMet"));
    server.put(agent("b", &[("Ready", "False", "Stopped", "s")]));
    ensure!(running.line().await?.contains("Stopped"));
    Ok(())
}

/// An API server with this many agents, and the plugin that lists them.
async fn fleet(agents: usize) -> Result<(ApiServer, Plugin)> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let name = |n: usize| format!("agent-{n:05}");
    for n in 0..agents {
        server.put(agent(&name(n), &[("Ready", "True", "AllMet", "fine")])).put(tree(&name(n)));
    }
    // Each is a peer of the first ten.
    for n in 10..agents {
        server.put(peer(&name(n % 10), &name(n)));
    }
    Ok((server, plugin))
}

/// Returns the processor's seconds that a list of all agents takes. Other tests on the machine do not lengthen them as they do the time by
/// the clock.
async fn seconds_to_list(agents: usize, (server, plugin): &(ApiServer, Plugin)) -> Result<f64> {
    let before = server.requests().len();
    let script = r#"TIMEFORMAT="%3U %3S"; time "$0" ls"#;
    let mut timed = plugin.command("bash".as_ref(), &["-c", script, plugin.program.to_str().context("a path")?]);
    timed.stdout(Stdio::piped()).stderr(Stdio::piped());
    let listed = output(timed).await?.expect_code(0)?;
    let times = listed.err.lines().last().context("bash printed no times")?;
    let took = times.split(' ').map(str::parse::<f64>).sum::<Result<f64, _>>().with_context(|| listed.err.clone())?;
    ensure!(listed.out.lines().count() > 2 * agents, "{} lines", listed.out.lines().count());
    let requests = server.requests().len() - before;
    ensure!(requests == 3, "{requests} requests");
    Ok(took)
}

#[tokio::test]
async fn four_times_the_agents_take_about_four_times_the_time() -> Result<()> {
    let (few_agents, many_agents) = (fleet(1000).await?, fleet(4000).await?);
    let (mut few, mut many) = (f64::MAX, f64::MAX);
    // Other work on the machine may slow any one of them down, but not the quickest of many. A list of quadratic cost takes 16 times.
    for _ in 1..=12 {
        few = few.min(seconds_to_list(1000, &few_agents).await?);
        many = many.min(seconds_to_list(4000, &many_agents).await?);
        if many < few * 6.0 {
            return Ok(());
        }
    }
    bail!("1000 agents take {few:.2} s, and 4000 take {many:.2} s")
}

/// The line of an agent in a table.
fn row<'a>(table: &'a str, name: &str) -> Result<&'a str> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    row.with_context(|| format!("{name} is not listed: {table}"))
}

#[tokio::test]
async fn b4_an_agent_that_is_pending_is_listed_and_has_no_session_in_the_list() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut ran = agent("ran", &[("Ready", "True", "AllMet", "fine")]);
    ran["status"]["session"] = json!({ "id": "its-session", "segment": "its-segment" });
    server.put(agent("pending", &[("Ready", "False", "PodPending", "no node has room")])).put(ran);
    let agents = plugin.run(&["ls", "agents", "-o", "wide"]).await?.expect_code(0)?;
    let line = row(&agents.out, "pending")?;
    ensure!(line.contains("PodPending") && line.contains("no node has room") && !line.contains("its-session"), "{agents:?}");
    let sessions = plugin.run(&["ls", "sessions"]).await?.expect_code(0)?;
    ensure!(sessions.out.contains("its-segment") && !sessions.out.contains("pending"), "{sessions:?}");
    Ok(())
}

#[tokio::test]
async fn b5_an_agent_whose_log_is_damaged_is_listed_with_the_error_and_so_are_all_others() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let error = "g.jsonl line 3: the checksum does not fit";
    server.put(agent("damaged", &[("Ready", "False", "ReplayFailed", error)]));
    server.put(agent("a", &[("Ready", "True", "AllMet", "fine")])).put(agent("z", &[("Ready", "True", "AllMet", "fine")]));
    let listed = plugin.run(&["ls", "agents"]).await?.expect_code(0)?;
    let line = |name: &str| row(&listed.out, name);
    ensure!(line("damaged")?.contains("ReplayFailed") && line("damaged")?.contains(error), "{listed:?}");
    for other in ["a", "z"] {
        ensure!(line(other)?.contains("AllMet") && !line(other)?.contains(error), "{listed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn b5_an_object_that_cannot_be_read_is_listed_with_the_error_and_so_are_all_others() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut strange = agent("strange", &[]);
    strange["spec"]["projectRef"] = json!(7);
    server.put(agent("a", &[("Ready", "True", "AllMet", "fine")])).put(strange).put(agent("z", &[("Ready", "True", "AllMet", "fine")]));
    let mut tree_of_another_version = tree("odd");
    tree_of_another_version["spec"] = json!({ "source": "git" });
    server.put(tree("w")).put(tree_of_another_version);
    for words in [&["ls"][..], &["ls", "-o", "wide"], &["ls", "agents"], &["ls", "agents", "-A"]] {
        let listed = plugin.run(words).await?.expect_code(0)?;
        let line = listed.out.lines().find(|line| line.contains(" strange ") || line.starts_with("strange "));
        let line = line.with_context(|| format!("{words:?}: {listed:?}"))?;
        ensure!(line.contains("Unreadable") && line.contains("invalid type: integer `7`"), "{words:?}: {line}");
        let others = listed.out.lines().filter(|line| line.contains("AllMet")).count();
        ensure!(others == 2, "{words:?}: {listed:?}");
    }
    let trees = plugin.run(&["workspace", "ls"]).await?.expect_code(0)?;
    ensure!(row(&trees.out, "odd")?.contains("Unreadable") && row(&trees.out, "w")?.contains("1.5 MiB"), "{trees:?}");
    let json = plugin.run(&["ls", "agents", "-o", "json"]).await?.expect_code(0)?;
    let items = json.json()?["items"].clone();
    let strange = items.as_array().and_then(|items| items.iter().find(|item| item["metadata"]["name"] == "strange"));
    ensure!(strange.is_some_and(|strange| strange["spec"]["projectRef"] == 7 && strange["kind"] == "YoiPod"), "{items}");
    ensure!(items.as_array().is_some_and(|items| items.len() == 3) && json.err.contains("ns/strange: "), "{json:?}");
    let names = plugin.run(&["ls", "-o", "name"]).await?.expect_code(0)?;
    for name in ["yoipod.yoi.dev/strange", "yoipod.yoi.dev/a", "agentworkspace.yoi.dev/odd", "agentworkspace.yoi.dev/w"] {
        ensure!(names.out.lines().any(|line| line == name), "{names:?}");
    }
    let usage = plugin.run(&["top"]).await?.expect_code(0)?;
    ensure!(usage.out.contains("strange: its object cannot be read: "), "{usage:?}");
    Ok(())
}

#[tokio::test]
async fn a_watched_list_goes_on_past_an_object_that_cannot_be_read() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut strange = agent("strange", &[]);
    strange["spec"]["projectRef"] = json!(7);
    server.put(agent("a", &[("Ready", "False", "Starting", "s")])).put(strange);
    let mut running = plugin.start(&["ls", "-w"])?;
    ensure!(running.line().await?.starts_with("AGENT"));
    let first = [running.line().await?, running.line().await?];
    ensure!(first.iter().any(|line| line.contains("Starting")), "{first:?}");
    ensure!(first.iter().any(|line| line.starts_with("strange") && line.contains("Unreadable")), "{first:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_was_stopped_is_listed_as_restorable_and_one_without_a_session_is_not() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut stopped = agent("stopped", &[("Ready", "False", "Stopped", "desiredState is Stopped")]);
    stopped["spec"]["desiredState"] = json!("Stopped");
    stopped["status"]["session"] = json!({ "id": "its-session", "segment": "its-segment" });
    server.put(stopped).put(agent("pending", &[("Ready", "False", "PodPending", "no node has room")]));
    let agents = plugin.run(&["ls", "agents", "-o", "wide"]).await?.expect_code(0)?;
    ensure!(agents.out.contains("RESTORABLE") && row(&agents.out, "stopped")?.contains("  yes  "), "{agents:?}");
    ensure!(row(&agents.out, "pending")?.contains("no: NoSession"), "{agents:?}");
    let sessions = plugin.run(&["ls", "sessions"]).await?.expect_code(0)?;
    ensure!(row(&sessions.out, "its-session")?.ends_with("yes"), "{sessions:?}");
    Ok(())
}
