//! A command and a program as the agent: processes, their log, proxy and socket.

use serde_json::{Value, json};
use yoi_wire::control::{ControlAction, ControlReason};
use yoi_wire::entry::{Body, RunEnded, RunOutcome, ToolOutcome};
use yoi_wire::hub::ReportReason;

use crate::harness::{Harness, kinds, outcomes, texts, tool_ends};
use crate::people::{ask as control, programs_in};

async fn command(words: &[&str]) -> Harness {
    let mut harness = Harness::new("rules: []\n").await;
    harness.manifest_settings = json!({"program": {"command": words}, "model": null});
    harness
}

/// A program that is a script of the shell. Its model is the scripted one.
pub async fn program(script: &str, more: Value) -> Harness {
    let mut harness = Harness::new("rules:\n- steps:\n  - text: from the model\n").await;
    let mut preset = json!({
        "name": "fake", "program": "sh", "firstArgs": ["-c", script], "speaks": ["ChatCompletions"], "parser": "Text",
        "env": {"PROXY": "${proxy}", "TOKEN": "${token}", "RUNTIME": "${runtime}", "MODEL": "${model}"},
        "files": [{"path": ".fake/settings", "content": "proxy=${proxy}"}],
    });
    preset.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    harness.manifest_settings = json!({"program": {"preset": preset}});
    harness
}

fn last_end(entries: &[yoi_wire::entry::Entry]) -> RunEnded {
    let mut ends = entries.iter().filter_map(|entry| match &entry.body {
        Body::RunEnded(end) => Some(end.clone()),
        _ => None,
    });
    ends.next_back().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gets_the_task_on_its_standard_input_and_its_output_is_the_answer() {
    let harness = command(&["sh", "-c", "read line; echo got $line in $PWD; echo aside >&2"]).await;
    let _runtime = harness.start(1, Some("do ${input} it"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(texts(&entries), [format!("got do ${{input}} it in {}", harness.tree().display())]);
    assert_eq!(outcomes(&entries), [RunOutcome::Finished]);
    assert!(kinds(&entries).ends_with("RuntimeStarted Input RunStarted Extension Extension Assistant RunEnded"), "{}", kinds(&entries));
    let answer = entries.iter().find_map(|entry| match &entry.body {
        Body::Assistant(answer) => Some(answer.api.clone()),
        _ => None,
    });
    assert_eq!(answer.as_deref(), Some("program/command"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_of_a_command_is_the_outcome_and_its_last_words_are_told() {
    let harness = command(&["sh", "-c", "cat > /dev/null; echo half; echo 'no space left' >&2; exit 3"]).await;
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let end = last_end(&entries);
    assert_eq!((end.outcome, end.reason.as_deref()), (RunOutcome::Failed, Some("ProgramFailed")));
    assert_eq!(end.message.unwrap(), "command ended with exit code 3; its last words: no space left");
    assert_eq!(texts(&entries), ["half"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_silent_for_too_long_fails_its_run_with_a_reason_of_its_own() {
    let mut harness = command(&["sh", "-c", "echo begun; exec sleep 300"]).await;
    harness.limits["silenceSeconds"] = 1.into();
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let end = last_end(&entries);
    assert_eq!((end.outcome, end.reason.as_deref()), (RunOutcome::Failed, Some("ProgramSilent")));
    assert!(end.message.unwrap().contains("wrote nothing for 1 s"), "{entries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_in_the_image_is_reported_and_its_task_waits() {
    let harness = command(&["no-such-program"]).await;
    let _runtime = harness.start(1, Some("go"));
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ProgramMissing).await;
    assert!(report.message.contains("no-such-program") && report.message.contains("image"), "{}", report.message);
    assert!(!kinds(&harness.entries()).contains("RunStarted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_is_the_next_run_and_none_is_lost_or_given_twice() {
    let harness = command(&["sh", "-c", "cat; sleep 0.3"]).await;
    let _runtime = harness.start(1, Some("one"));
    harness.wait_for_runs(1).await;
    let run = control(&harness, "r", ControlAction::Run { text: "two".to_owned() }).await;
    assert!(run.done.is_some(), "{run:?}");
    let entries = harness.wait_for_runs(2).await;
    assert_eq!(texts(&entries), ["one", "two"]);
    let refused = control(&harness, "c", ControlAction::Compact {}).await.refused.unwrap();
    assert_eq!(refused.reason, ControlReason::NotSupported);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_without_end_or_newline_is_bounded_in_log_and_memory() {
    let harness = command(&["sh", "-c", "cat > /dev/null; echo first; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo last"]).await;
    let runtime = harness.start(1, Some("go"));
    // All of it goes through two pipes, which takes minutes beside other work.
    let ended = |entries: &[yoi_wire::entry::Entry]| !outcomes(entries).is_empty();
    let entries = harness.wait_until_in(std::time::Duration::from_secs(240), "the end", ended).await;
    let text = texts(&entries).remove(0);
    assert!(text.len() < 300_000 && text.starts_with("first\n"), "{}", text.len());
    assert_eq!(outcomes(&entries), [RunOutcome::Finished]);
    let peak = crate::harness::status_kib(runtime.child.id(), "VmHWM");
    assert!(peak < 200 << 10, "the runtime took {peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_a_command_with_all_its_processes_and_the_next_start_gives_it_its_task_again() {
    let harness = command(&["sh", "-c", "cat >> given; setsid sh -c 'while :; do echo x >> alive; sleep 0.05; done' & sleep 300"]).await;
    let mut runtime = harness.start(1, Some("go"));
    let alive = || std::fs::metadata(harness.tree().join("alive")).map_or(0, |file| file.len());
    harness.wait_until("it runs", |_| alive() > 0).await;
    harness.stop(&mut runtime).await;
    assert_eq!(outcomes(&harness.entries()), [RunOutcome::Interrupted]);
    nothing_is_alive(&harness);
    let _runtime = harness.start(2, Some("go"));
    harness
        .wait_until("it was given again", |_| std::fs::read_to_string(harness.tree().join("given")).is_ok_and(|text| text == "gogo"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_asks_its_model_through_the_proxy_and_its_tokens_are_counted_once() {
    let script = "cat > /dev/null; cat $HOME/.fake/settings; echo; \
        curl -sS $PROXY/v1/chat/completions -H \"authorization: Bearer $TOKEN\" -H 'content-type: application/json' \
        -d \"{\\\"model\\\":\\\"$MODEL\\\",\\\"messages\\\":[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"hello\\\"}]}\"; env";
    let mut harness = program(script, json!({})).await;
    (harness.key, harness.needs_key) = (Some("k-canary-7351"), true);
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let text = texts(&entries).remove(0);
    assert!(text.starts_with("proxy=http://127.0.0.1:") && text.contains("from the model"), "{text}");
    assert!(!text.contains("k-canary-7351"), "{text}");
    assert!(text.contains(&format!("HOME={}", harness.session().join("home/fake").display())), "{text}");
    assert_eq!(harness.requests.lock().unwrap().len(), 1);
    let usages = entries.iter().filter(|entry| matches!(&entry.body, Body::Usage(_))).count();
    assert_eq!(usages, 1, "{}", kinds(&entries));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_returns_when_its_call_is_in_the_log() {
    // What the log has when the hook has returned is copied by the test, because the program cannot read it.
    let script = "cat > /dev/null; \
        echo '{\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"ls\"},\"tool_use_id\":\"t1\"}' | $RUNTIME hook before && touch begun; \
        while [ ! -e go-on ]; do sleep 0.02; done; \
        echo '{\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"ls\"},\"tool_use_id\":\"t1\",\"tool_response\":\"files\"}' | $RUNTIME hook after; \
        echo done";
    let harness = program(script, json!({"hooks": true})).await;
    let _runtime = harness.start(1, Some("go"));
    harness.wait_until("the hook has returned", |_| harness.tree().join("begun").exists()).await;
    assert!(kinds(&harness.entries()).ends_with("Assistant ToolStarted"), "{}", kinds(&harness.entries()));
    std::fs::write(harness.tree().join("go-on"), "").unwrap();
    let entries = harness.wait_for_runs(1).await;
    assert!(kinds(&entries).ends_with("RunStarted Assistant ToolStarted ToolEnded Extension Assistant RunEnded"), "{}", kinds(&entries));
    let end = tool_ends(&entries).remove(0);
    assert_eq!((end.call_id.as_str(), end.outcome, end.output.as_str()), ("t1", ToolOutcome::Succeeded, "files"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_tokens_are_used_up_is_ended_and_the_limit_holds_over_a_restart() {
    let ask = "curl -sS -o /dev/null -w '%{http_code} ' $PROXY/v1/chat/completions -H \"authorization: Bearer $TOKEN\" \
        -d '{\"model\":\"scripted\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'";
    let mut harness = program(&format!("cat > /dev/null; {ask}; {ask}; exit 1"), json!({})).await;
    harness.limits["tokens"] = 1.into();
    let mut runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!((outcomes(&entries), texts(&entries)), (vec![RunOutcome::LimitReached], vec!["200 429 ".to_owned()]));
    runtime.terminate().await;
    let _runtime = harness.start(2, Some("more"));
    let entries = harness.wait_for_runs(2).await;
    assert_eq!(outcomes(&entries), [RunOutcome::LimitReached; 2]);
    assert_eq!(harness.requests.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_wants_more_model_calls_than_one_run_may_have_is_ended_and_the_next_run_has_its_own() {
    let ask = "curl -sS -o /dev/null -w '%{http_code} ' $PROXY/v1/chat/completions -H \"authorization: Bearer $TOKEN\" \
        -d '{\"model\":\"scripted\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}'";
    let mut harness = program(&format!("cat > /dev/null; {ask}; {ask}; {ask}; sleep 60"), json!({})).await;
    harness.limits["turnsPerRun"] = 2.into();
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!((outcomes(&entries), texts(&entries)), (vec![RunOutcome::LimitReached], vec!["200 200 429 ".to_owned()]));
    let message = last_end(&entries).message.unwrap();
    assert_eq!(message, "the limit of 2 model calls in one run was reached");
    control(&harness, "r", ControlAction::Run { text: "more".to_owned() }).await;
    harness.wait_for_runs(2).await;
    assert_eq!(harness.requests.lock().unwrap().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_grows_beyond_its_bound_ends_the_run_and_the_next_begins_anew_with_the_seeded_files() {
    // The parser is that of Claude Code, because it tells of a session.
    let script = "read word; echo \"$word:$SESSION\" >> seen; \
        echo '{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s-1\"}'; \
        echo '{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"so\"}]}}'; \
        if [ $word = grow ]; then head -c 9000000 /dev/urandom > $HOME/cache; sleep 100; fi; cp $HOME/.fake/settings $word; \
        echo '{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"so\"}'";
    let more = json!({"parser": "Claude", "resumedArgs": ["-c", format!("SESSION=${{session}}; {script}")]});
    let mut harness = program(script, more).await;
    harness.env.push(("YOI_HOME_BYTES", (4 << 20).to_string()));
    let _runtime = harness.start(1, Some("small"));
    harness.wait_for_runs(1).await;
    control(&harness, "r", ControlAction::Run { text: "grow".to_owned() }).await;
    let entries = harness.wait_for_runs(2).await;
    let end = last_end(&entries);
    assert_eq!((end.outcome, end.reason.as_deref()), (RunOutcome::Failed, Some("ProgramHomeFull")));
    assert!(end.message.is_some_and(|message| message.contains("takes more than 4 MiB")), "{entries:?}");
    control(&harness, "s", ControlAction::Run { text: "after".to_owned() }).await;
    let entries = harness.wait_for_runs(3).await;
    assert_eq!(outcomes(&entries), [RunOutcome::Finished, RunOutcome::Failed, RunOutcome::Finished]);
    let seen = std::fs::read_to_string(harness.tree().join("seen")).unwrap();
    assert_eq!(seen, "small:\ngrow:s-1\nafter:\n", "the last run is a first one");
    assert!(!harness.session().join("home/fake/cache").exists());
    assert!(std::fs::read_to_string(harness.tree().join("after")).unwrap().starts_with("proxy="), "the file is seeded again");
}

/// A program that names a session, writes down how it was started, and works until it is ended.
const WORKS_ON: &str = "echo \"$(cat):$SESSION\" >> seen; \
    echo '{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s-1\"}'; \
    echo '{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"I begin.\"}]}}'; \
    setsid sh -c 'while :; do echo x >> alive; sleep 0.05; done' & sleep 300";

async fn works_on() -> Harness {
    program(WORKS_ON, json!({"parser": "Claude", "resumedArgs": ["-c", format!("SESSION=${{session}}; {WORKS_ON}")]})).await
}

/// Waits until the program has been started so often and has answered.
async fn started(harness: &Harness, times: usize) {
    let seen = || std::fs::read_to_string(harness.tree().join("seen")).unwrap_or_default();
    harness.wait_until("it was started", |entries| seen().lines().count() >= times && texts(entries).len() >= times).await;
}

/// Everything that a program starts works in the tree.
fn nothing_is_alive(harness: &Harness) {
    assert_eq!(programs_in(&harness.tree().canonicalize().unwrap()), 0, "something goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_program_is_ended_whole_and_goes_on_in_its_session_when_it_is_resumed_also_by_another_process() {
    let harness = works_on().await;
    let mut runtime = harness.start(1, Some("go"));
    started(&harness, 1).await;
    assert!(control(&harness, "p", ControlAction::Pause {}).await.done.is_some());
    harness.wait_until("it is paused", |entries| kinds(entries).ends_with("Paused")).await;
    nothing_is_alive(&harness);
    assert!(control(&harness, "r", ControlAction::Resume {}).await.done.is_some());
    started(&harness, 2).await;
    assert!(control(&harness, "s", ControlAction::Pause {}).await.done.is_some());
    harness.wait_until("it is paused", |entries| kinds(entries).ends_with("Paused")).await;
    runtime.terminate().await;
    harness.gateway.forget_line();
    let _runtime = harness.start(2, Some("go"));
    harness.gateway.wait_for_report(|report| report.run_generation == 2 && report.ready).await;
    nothing_is_alive(&harness);
    assert!(control(&harness, "t", ControlAction::Resume {}).await.done.is_some());
    started(&harness, 3).await;
    let seen = std::fs::read_to_string(harness.tree().join("seen")).unwrap();
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[0], "go:", "{seen}");
    assert!(lines[1..].iter().all(|line| line.ends_with(":s-1")), "a run that goes on was started without its session: {lines:?}");
    assert!(lines[1..].iter().all(|line| line.contains("interrupted in the middle")), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_program_is_ended_whole_and_its_session_serves_the_next_message() {
    let harness = works_on().await;
    let _runtime = harness.start(1, Some("go"));
    started(&harness, 1).await;
    assert!(control(&harness, "c", ControlAction::Cancel {}).await.done.is_some());
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(outcomes(&entries), [RunOutcome::Cancelled]);
    nothing_is_alive(&harness);
    let again = control(&harness, "d", ControlAction::Cancel {}).await.refused.map(|refused| refused.reason);
    assert_eq!(again, Some(ControlReason::NotRunning));
    control(&harness, "r", ControlAction::Run { text: "next".to_owned() }).await;
    started(&harness, 2).await;
    let seen = std::fs::read_to_string(harness.tree().join("seen")).unwrap();
    assert_eq!(seen, "go:\nnext:s-1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tools_of_yoi_answer_a_program_by_its_runs_token_and_nobody_with_another() {
    let list = "{ echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}'; \
        echo '{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}'; \
        echo '{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"ListPods\",\"arguments\":{}}}'; until grep -q id.:2 OUT; do sleep 0.1; done; } | $RUNTIME mcp > OUT";
    let (right, wrong) = (list.replace("OUT", "right"), list.replace("OUT", "wrong"));
    let script = format!("cat > /dev/null; {right}; export YOI_PROGRAM_TOKEN=yoi-0123; {wrong}; echo done");
    let harness = program(&script, json!({})).await;
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let said = |name: &str| std::fs::read_to_string(harness.tree().join(name)).unwrap();
    assert!(said("right").contains("\"id\":2") && !said("right").contains("token"), "{}", said("right"));
    assert!(said("wrong").contains("the token is not that of the current run"), "{}", said("wrong"));
    let calls = tool_ends(&entries);
    assert_eq!(calls.len(), 1, "a call without the token stands in the log: {}", kinds(&entries));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preset_of_the_users_is_read_as_yaml_and_what_is_wrong_with_it_is_reported() {
    let mut harness = Harness::new("rules: []\n").await;
    let file = harness.dir.path().join("preset/preset.yaml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    harness.manifest_settings = json!({"program": {"presetFile": file}});
    std::fs::write(&file, "name: mine\nprogram: sh\nfirstArgs: [-c, 'cat; echo; cat ${home}/seeded']\nspeaks: [ChatCompletions]\nparser: Text\nfiles: [{path: seeded, content: 'in ${tree}'}]\n").unwrap();
    let mut runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(texts(&entries), [format!("go\nin {}", harness.tree().display())]);
    runtime.terminate().await;
    for (text, words) in
        [("name: [", "understand"), ("name: mine\nprogram: sh\nfirstArgs: []\nspeaks: [Anthropic]\nparser: Text\n", "speaks only")]
    {
        std::fs::write(&file, text).unwrap();
        let mut runtime = harness.start(2, None);
        let report = harness.gateway.wait_for_report(|report| !report.ready && report.message.contains(words)).await;
        assert!([ReportReason::PresetInvalid, ReportReason::ModelFormatNotSpoken].iter().any(|reason| report.reason == *reason));
        runtime.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_another_version_runs_and_report_and_log_say_so() {
    let more = json!({"versionArgs": ["-c", "echo 3.1.4"], "versions": ["2.0."]});
    let harness = program("cat", more).await;
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(texts(&entries), ["go"]);
    assert!(entries.iter().any(|entry| matches!(&entry.body, Body::Notice(notice) if notice.reason == "ProgramVersionUnknown")));
    let report = harness.gateway.wait_for_report(|report| report.ready && report.program.is_some()).await;
    assert!(report.program.is_some_and(|message| message.contains("3.1.4") && message.contains("2.0.")));
}
