//! `attach`, in a terminal and without one.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use yoi_test_support::eventually;

use crate::api_server::{ApiServer, Request, status};
use crate::plugin::{Plugin, agent};
use crate::terminal::Terminal;

fn greeting(activity: &str) -> String {
    let tokens = json!({ "inputTokens": 1200, "outputTokens": 34 });
    json!({ "type": "greeting", "session": "s", "segment": "g", "activity": activity, "tokens": tokens }).to_string() + "\n"
}

fn entry(n: u64, kind: &str, body: Value) -> String {
    let entry = json!({ "id": format!("e{n}"), "seq": n, "run": 1, "at": "2026-01-01T10:20:30.000Z", "kind": kind, "body": body });
    json!({ "type": "entry", "token": format!("g:{n}"), "entry": entry }).to_string() + "\n"
}

fn said(n: u64) -> String {
    entry(n, "Assistant", json!({ "text": format!("sentence {n}.") }))
}

fn stopped(name: &str) -> Value {
    let mut stopped = agent(name, &[]);
    stopped["spec"]["desiredState"] = json!("Stopped");
    stopped
}

/// An agent that is not to run, and whose Pod is still there.
fn stopping(name: &str) -> Value {
    let mut stopping = stopped(name);
    stopping["status"]["pod"] = json!({ "name": format!("{name}-1"), "uid": "u" });
    stopping
}

/// A line of the log.
fn logged(n: u64) -> String {
    let mut line: Value = serde_json::from_str(&said(n)).unwrap_or_default();
    line.as_object_mut().and_then(|line| line.remove("type"));
    line.to_string() + "\n"
}

/// The gateway's answer while the reader of a stopped agent is only starting.
fn reader_is_starting() -> String {
    let mut starting: Value =
        serde_json::from_str(&status(503, "ServiceUnavailable", "YoiPod ns/a has stopped; try again")).unwrap_or_default();
    starting["details"] =
        json!({ "name": "a", "kind": "yoipods", "retryAfterSeconds": 1, "causes": [{ "message": "it is being started" }] });
    starting.to_string()
}

/// Waits until so many requests for a subresource have come.
async fn requests(server: &ApiServer, subresource: &str, count: usize) -> Result<Vec<Request>> {
    let look = async || Some(server.requests_for("a", subresource)).filter(|requests| requests.len() >= count);
    Ok(eventually(format!("{count} requests for {subresource}"), look).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn f8_f9_without_a_terminal_each_entry_is_printed_once_whatever_breaks() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    for lines in [
        greeting("Running") + &said(1) + &said(2),
        String::new(),
        greeting("Running") + &said(2) + &said(3) + &json!({ "type": "behind" }).to_string() + "\n",
        greeting("Idle") + &said(4) + &entry(5, "Carried", json!({})) + &said(6),
    ] {
        let stream = server.stream_for("a", "attach");
        stream.send(lines)?;
    }
    // The plugin may ask again before the agent is seen to be stopped.
    for _ in 0..20 {
        server.stream_for("a", "attach").send(String::new())?;
    }
    // The log has no more than what has come.
    server.answer_for("a", "log", 200, "");
    let running = plugin.run(&["attach", "a", "--tail", "7"]);
    let stopping = async {
        requests(&server, "attach", 4).await?;
        server.put(stopped("a"));
        anyhow::Ok(())
    };
    let (done, stopping) = tokio::join!(running, stopping);
    stopping?;
    let done = done?.expect_code(0)?;
    let wanted: String = [1, 2, 3, 4, 6].iter().map(|n| format!("2026-01-01T10:20:30Z    agent sentence {n}.\n")).collect();
    ensure!(done.out == wanted && done.err.is_empty(), "{done:#?}");
    let queries: Vec<_> = server.requests_for("a", "attach").iter().map(|request| request.query.get("after").cloned()).collect();
    ensure!(queries[..4] == [None, Some("g:2".to_owned()), Some("g:2".to_owned()), Some("g:3".to_owned())], "{queries:?}");
    ensure!(server.requests_for("a", "attach")[0].query["tail"] == "7");
    ensure!(server.requests_for("a", "log")[0].query["after"] == "g:6");
    Ok(())
}

/// Whoever is attached by `stream` to an agent that stops while its gateway goes gets the rest by this reader.
async fn play_the_stop(server: &ApiServer, stream: UnboundedSender<String>) -> Result<()> {
    requests(server, "attach", 1).await?;
    // What the agent still logs while it stops goes to no stream.
    server.answer_for("a", "attach", 409, status(409, "Conflict", "YoiPod ns/a is Stopped: start it with kubectl yoi start a -n ns"));
    server.answer_for("a", "log", 503, reader_is_starting());
    drop(stream);
    server.put(stopping("a"));
    // It looks at the agent, sees that its Pod is still there, and looks again.
    let looks = || server.requests().iter().filter(|request| request.path.ends_with("/yoi.dev/v1alpha1/namespaces/ns/yoipods/a")).count();
    let before = looks();
    eventually("two looks at the agent", async || (looks() >= before + 2).then_some(())).await;
    ensure!(server.requests_for("a", "log").is_empty(), "the log was read before its last entry was in it");
    server.put(stopped("a"));
    requests(server, "log", 2).await?;
    server.answer_for("a", "log", 200, logged(3) + &logged(4) + &logged(5));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_attached_until_the_agent_has_stopped_gets_its_last_entries_from_the_log() -> Result<()> {
    for output in [None, Some("json")] {
        let server = ApiServer::start().await?;
        let plugin = Plugin::new(&server)?;
        server.put(agent("a", &[]));
        let stream = server.stream_for("a", "attach");
        stream.send(greeting("Running") + &said(1) + &said(2))?;
        let words = [&["attach", "a"][..], output.map_or(&[][..], |_| &["-o", "json"])].concat();
        let (done, stop) = tokio::join!(plugin.run(&words), play_the_stop(&server, stream));
        stop?;
        let done = done?.expect_code(0)?;
        let wanted = match output {
            None => (1..=5).map(|n| format!("2026-01-01T10:20:30Z    agent sentence {n}.\n")).collect(),
            Some(_) => greeting("Running") + &(1..=5).map(said).collect::<String>(),
        };
        let values = |text: &str| text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>();
        let same = if output.is_some() { values(&done.out)? == values(&wanted)? } else { done.out == wanted };
        ensure!(same && done.err.is_empty(), "{done:#?}");
        let log = server.requests_for("a", "log");
        ensure!(log.iter().all(|request| request.query["after"] == "g:2" && request.query["follow"] == "false"), "{log:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_an_agent_that_stops_while_an_attachment_waits_for_a_gateway_there_is_the_log() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    server.answer_for("a", "attach", 503, status(503, "ServiceUnavailable", "service unavailable"));
    server.answer_for("a", "log", 200, logged(1) + &logged(2));
    let stop = async {
        requests(&server, "attach", 2).await?;
        server.put(stopped("a"));
        anyhow::Ok(())
    };
    let (done, stop) = tokio::join!(plugin.run(&["attach", "a"]), stop);
    stop?;
    let done = done?.expect_code(0)?;
    let wanted: String = [1, 2].iter().map(|n| format!("2026-01-01T10:20:30Z    agent sentence {n}.\n")).collect();
    ensure!(done.out == wanted && done.err.contains("waiting for it: "), "{done:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_the_last_entries_of_an_agent_that_has_stopped_and_goes_on_when_it_is_started() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let first = server.stream_for("a", "attach");
    first.send(greeting("Running") + &said(1) + &said(2))?;
    let mut terminal = Terminal::start(&plugin, &["attach", "a"])?;
    terminal.wait_until("the first entries", |screen| screen.contains("agent sentence 2.")).await?;
    play_the_stop(&server, first).await?;
    let screen = terminal.wait_until("the stop", |screen| screen.contains("it has stopped; Ctrl-D leaves")).await?;
    ensure!((1..=5).all(|n| screen.matches(&format!("agent sentence {n}.")).count() == 1), "{screen}");
    let second = server.stream_for("a", "attach");
    let before = server.requests_for("a", "attach").len();
    let mut started = agent("a", &[]);
    started["status"]["runGeneration"] = json!(2);
    server.put(started);
    second.send(greeting("Idle") + &said(6))?;
    terminal
        .wait_until("the agent that was started again", |screen| screen.contains("agent sentence 6.") && screen.contains(" a  Idle"))
        .await?;
    ensure!(requests(&server, "attach", before + 1).await?[before].query["after"] == "g:5");
    terminal.type_keys("\x04")?;
    ensure!(terminal.end().await? == 0);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_attached_to_is_an_error_as_of_any_verb() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(stopped("a"));
    let words = "YoiPod ns/a is Stopped: start it with kubectl yoi start a -n ns";
    server.answer_for("a", "attach", 409, status(409, "Conflict", words));
    let refused = plugin.run(&["attach", "a"]).await?.expect_code(5)?;
    ensure!(refused.err.contains("start it with kubectl yoi start a -n ns"), "{refused:?}");
    server.put(agent("a", &[])).answer_for("a", "attach", 400, status(400, "BadRequest", "after is not a token of this log"));
    let refused = plugin.run(&["attach", "a", "--after", "x"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("not a token"), "{refused:?}");
    server.answer_for("a", "attach", 403, status(403, "Forbidden", "you may not"));
    plugin.run(&["attach", "a"]).await?.expect_code(4)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_talks_with_an_agent_through_a_break_and_leaves_the_terminal_as_it_was() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let done = json!({ "id": "i", "done": { "message": "it is done" } });
    server.put(agent("a", &[])).answer_for("a", "control", 200, done.to_string());
    let first = server.stream_for("a", "attach");
    let second = server.stream_for("a", "attach");
    first.send(greeting("Idle") + &said(1))?;
    let mut terminal = Terminal::start(&plugin, &["attach", "a"])?;
    terminal
        .wait_until("the first entry", |screen| screen.contains("agent sentence 1.") && screen.contains(" a  Idle  1.2k tokens in, 34 out"))
        .await?;
    ensure!(terminal.is_alternate());

    terminal.type_keys("grüß dich\x7fh\r")?;
    let asked = requests(&server, "control", 1).await?;
    ensure!(asked[0].body["action"] == json!({ "type": "run", "text": "grüß dich" }), "{:?}", asked[0].body);
    terminal.wait_until("the answer", |screen| screen.contains("it is done")).await?;

    let tokens = json!({ "inputTokens": 1300, "outputTokens": 40 });
    first.send(json!({ "type": "activity", "activity": "Running", "tokens": tokens }).to_string() + "\n")?;
    let delta =
        |offset: u64, text: &str| json!({ "type": "delta", "block": 1, "kind": "text", "offset": offset, "text": text }).to_string() + "\n";
    first.send(delta(0, "I am think"))?;
    terminal.wait_until("the text as it comes", |screen| screen.contains("agent I am think\n")).await?;

    // The gateway goes. The next one repeats an entry and the unfinished block.
    drop(first);
    terminal.wait_until("the break", |screen| screen.contains("attaching again")).await?;
    second.send(greeting("Running") + &said(1) + &said(2) + &delta(0, "I am thinking") + &delta(13, " of it"))?;
    let screen = terminal.wait_until("the rest", |screen| screen.contains("I am thinking of it")).await?;
    ensure!(screen.matches("sentence 1.").count() == 1 && screen.matches("I am").count() == 1, "{screen}");
    ensure!(requests(&server, "attach", 2).await?[1].query["after"] == "g:1");

    terminal.type_keys("\x03")?;
    ensure!(requests(&server, "control", 2).await?[1].body["action"] == json!({ "type": "pause" }));
    terminal.type_keys(":peer b\r")?;
    terminal.wait_until("a local refusal", |screen| screen.contains("a run is under way")).await?;
    terminal.type_keys(":help\r")?;
    terminal.wait_until("the help", |screen| screen.contains("let this agent and another see")).await?;
    terminal.type_keys("q\x04")?;
    // The status line is on every screen of the program.
    terminal.wait_until("the end", |screen| !screen.contains(":help")).await?;
    ensure!(!terminal.is_alternate(), "the terminal was not given back");
    ensure!(terminal.end().await? == 0);
    ensure!(server.requests_for("a", "control").len() == 2, "a refused peer was sent");
    Ok(())
}
