//! Planted faults, in stand-ins for the runtime. The checks in `invariants` find each.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use yoi_test_support::eventually;
use yoi_wire::entry::{Assistant, Body, Entry, ToolCall, ToolEnded, ToolOutcome, ToolStarted};

use super::commands::{MISBEHAVING_COMMANDS, MisbehavingCommand, mark};
use super::disks::deliver_all;
use super::invariants::{check_acknowledged, check_prompts_match_log, check_runs_match_log, living_processes};
use super::loop_volume::LoopVolume;
use crate::harness::{Harness, texts};

#[tokio::test(flavor = "multi_thread")]
async fn the_checks_find_a_runtime_that_acknowledges_messages_on_a_full_disk() {
    let harness = Harness::new("rules: [{steps: [{text: Hello.}]}]").await;
    let Some(volume) = LoopVolume::over(&harness.session(), 8) else { return };
    let mut runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    volume.fill();
    let (mut acknowledged, refused) = deliver_all(&harness, "full", 3).await;
    assert!(!refused.is_empty());
    volume.make_room();
    harness.wait_until("what was acknowledged", |entries| check_acknowledged(entries, &acknowledged).is_ok()).await;
    // The stand-in acknowledges every message.
    acknowledged.extend((0..3).map(|n| format!("full-{n}")));
    harness.gateway.wait_for_report(|report| report.ready).await;
    runtime.kill();
    harness.gateway.forget_line();
    let _runtime = harness.start(1, None);
    eventually("a message that is taken", async || {
        let (status, _) = harness.gateway.deliver("last", crate::gateway::person(), "say hello").await;
        (status == http::StatusCode::OK).then_some(())
    })
    .await;
    let entries = harness.wait_until("an answer", |entries| !texts(entries).is_empty()).await;
    let found = check_acknowledged(&entries, &acknowledged).unwrap_err();
    assert!(found.ends_with("was acknowledged and is in the log 0 times"), "{found}");
}

/// For plain HTTP: it trusts no certificate.
pub fn http_client() -> reqwest::Client {
    reqwest::Client::builder().tls_backend_preconfigured(tls()).build().unwrap()
}

/// An agent loop that runs a call as soon as it has arrived, and asks the model again when the stream breaks after it.
async fn run_careless_loop(model: &str, trace: &Path) -> Vec<Entry> {
    let http = http_client();
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    let mut bodies: Vec<Body> = Vec::new();
    loop {
        let request = json!({"model": "m", "stream": true, "messages": messages}).to_string();
        let mut answer =
            http.post(format!("{model}/chat/completions")).header("content-type", "application/json").body(request).send().await.unwrap();
        let (mut text, mut whole) = (String::new(), false);
        while let Ok(Some(piece)) = answer.chunk().await {
            text.push_str(std::str::from_utf8(&piece).unwrap());
            whole |= text.contains("[DONE]");
        }
        let deltas = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
        let (mut id, mut args) = (String::new(), String::new());
        for delta in deltas {
            let call = &delta["choices"][0]["delta"]["tool_calls"][0];
            id.push_str(call["id"].as_str().unwrap_or_default());
            args.push_str(call["function"]["arguments"].as_str().unwrap_or_default());
        }
        if let Ok(args) = serde_json::from_str::<Value>(&args) {
            let command = args["command"].as_str().unwrap().to_owned();
            assert!(Command::new("sh").arg("-c").arg(command).current_dir(trace.parent().unwrap()).status().unwrap().success());
            if !whole {
                continue;
            }
            let call = ToolCall { call_id: id.clone(), tool: "Shell".to_owned(), args: args.clone() };
            bodies.push(Body::Assistant(Assistant { text: String::new(), tool_calls: vec![call], usage: None, ..Assistant::default() }));
            bodies.push(Body::ToolStarted(ToolStarted { call_id: id.clone(), tool: "Shell".to_owned(), decision: None }));
            bodies.push(Body::ToolEnded(ToolEnded {
                call_id: id.clone(),
                outcome: ToolOutcome::Succeeded,
                output: String::new(),
                images: Vec::new(),
                millis: None,
                decision: None,
                read: None,
            }));
            let asked = json!([{"id": id, "type": "function", "function": {"name": "Shell", "arguments": args.to_string()}}]);
            messages.push(json!({"role": "assistant", "content": "", "tool_calls": asked}));
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": ""}));
        } else if whole {
            break;
        }
    }
    let entry = |(seq, body)| Entry { id: String::new(), seq, run: 1, at: String::new(), body };
    (1..).zip(bodies).map(entry).collect()
}

fn tls() -> rustls::ClientConfig {
    rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checks_find_a_retry_that_repeats_a_tool_call() {
    let script = "rules:\n- steps:\n  - toolCalls: [{tool: Shell, args: {command: echo ran >> ran}}]\n    fault: {show: cutEnd, times: 1}\n  - text: done\n";
    let harness = Harness::new(script).await;
    let trace = harness.tree().join("ran");
    let entries = run_careless_loop(&harness.model_url, &trace).await;
    assert_eq!(check_runs_match_log(&entries, &trace).unwrap_err(), "the command ran 2 times, and the log tells of 1");
    // The runtime, with the same script.
    let harness = Harness::new(script).await;
    let _runtime = harness.start(1, Some("go"));
    check_runs_match_log(&harness.wait_for_runs(1).await, &harness.tree().join("ran")).unwrap();
}

/// The command that a killed child is not the end of.
const LEAVES: &str = "leaves session, parents and environment";

#[tokio::test(flavor = "multi_thread")]
async fn the_checks_find_a_time_limit_that_kills_only_the_direct_child() {
    let mut found = Vec::new();
    for MisbehavingCommand { name, command, .. } in MISBEHAVING_COMMANDS.into_iter().take(3) {
        let (mark, dir) = (mark(&format!("planted-{name}")), tempfile::tempdir().unwrap());
        let mut child = Command::new("bash")
            .arg("-c")
            .arg(command.replace("MARK", &mark))
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("its start", async || dir.path().join("begun").exists().then_some(())).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let left = || Some(living_processes(&mark)).filter(|left| !left.is_empty());
        // A process has no command line while it starts another program.
        let left = if name == LEAVES { eventually("what it has left", async || left()).await } else { left().unwrap_or_default() };
        if !left.is_empty() {
            found.push(name);
        }
        for line in left {
            let pid = line.split(' ').next().and_then(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?)).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    assert!(found.contains(&LEAVES), "{found:?}");
}

/// What a file has after a power loss that follows its careless replacement. `None` where mounting is not allowed.
fn after_careless_replacement() -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("tree");
    std::fs::create_dir(&at).unwrap();
    let volume = LoopVolume::over(&at, 16)?;
    std::fs::write(at.join("old"), "before\n").unwrap();
    volume.flush();
    // Makes the content durable, but not the name.
    std::fs::write(at.join("new.tmp"), "after\n").unwrap();
    std::fs::File::open(at.join("new.tmp")).unwrap().sync_data().unwrap();
    std::fs::rename(at.join("new.tmp"), at.join("old")).unwrap();
    let later = dir.path().join("later");
    let _found = volume.after_power_loss(&later)?;
    Some(std::fs::read_to_string(later.join("old")).unwrap())
}

#[test]
fn the_checks_find_a_write_whose_name_does_not_survive_a_power_loss() {
    // The name becomes durable by luck when the journal commits by itself, or somebody on the machine calls sync(2), before the disk is copied.
    for _ in 0..20 {
        match after_careless_replacement().as_deref() {
            None | Some("before\n") => return,
            Some(content) => assert_eq!(content, "after\n"),
        }
    }
    panic!("the name has survived every power loss");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checks_find_a_request_with_text_that_is_not_in_the_log() {
    let harness = Harness::new("rules: [{steps: [{text: Hello.}]}]").await;
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let mut requests = harness.requests.lock().unwrap().clone();
    check_prompts_match_log(&entries, &requests).unwrap();
    requests[0]["messages"].as_array_mut().unwrap().push(json!({"role": "user", "content": "and hurry"}));
    assert!(check_prompts_match_log(&entries, &requests).unwrap_err().starts_with("request 0 has text that is not in the log"));
}
