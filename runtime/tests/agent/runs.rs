//! Runs from input to end.

use http::StatusCode;
use yoi_wire::entry::{AgentRef, Body, RunOutcome, ToolOutcome};
use yoi_wire::hub::{Activity, DeliverRequest, MessageSender, Refusal, RefusalReason, ReportReason, TaskState, runtime_api};

use crate::endpoints::restart_after;
use crate::harness::{EXAMPLE, Harness, kinds, outcomes, texts, tool_ends};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_runs_to_its_end_over_both_wire_formats() {
    for provider in ["OpenAI", "Anthropic"] {
        let (harness, report_seen) = Harness { provider, ..Harness::new(EXAMPLE).await }.held_after_first_request().await;
        let mut runtime = harness.start(1, Some("write the greeting"));
        harness.gateway.wait_for_report(|report| report.activity == Activity::Running).await;
        report_seen.send_replace(true);
        let entries = harness.wait_for_runs(1).await;
        assert_eq!(outcomes(&entries), [RunOutcome::Finished], "{provider}");
        assert_eq!(
            kinds(&entries),
            "SessionStarted SegmentStarted RuntimeStarted Input RunStarted Assistant ToolStarted ToolEnded ToolStarted ToolEnded Assistant ToolStarted ToolEnded Assistant RunEnded"
        );
        assert_eq!(texts(&entries), ["I write it first.", "", "The greeting is written."]);
        assert!(tool_ends(&entries).iter().all(|end| end.outcome == ToolOutcome::Succeeded));
        assert_eq!(tool_ends(&entries)[2].output, "hello from the script\n[exit code 0]");
        assert_eq!(std::fs::read_to_string(harness.tree().join("greeting.txt")).unwrap(), "hello from the script\ndone\n");
        let Body::Assistant(answer) = &entries[5].body else { panic!() };
        assert!(answer.usage.is_some_and(|usage| usage.input_tokens > 0 && usage.output_tokens > 0), "{provider}");

        let report =
            harness.gateway.wait_for_report(|report| report.task.as_ref().is_some_and(|task| task.state == TaskState::Succeeded)).await;
        assert!(report.ready && report.reason == ReportReason::Replayed && report.session.is_some() && report.run_generation == 1);
        assert!(runtime.terminate().await.success());
        assert_eq!(harness.gateway.reports().last().unwrap().reason, ReportReason::Stopping);

        // At a second start the task is done, so nothing runs.
        let _runtime = harness.start(1, Some("write the greeting"));
        let entries = harness.wait_until("a second start", |entries| kinds(entries).ends_with("RuntimeStarted")).await;
        assert_eq!(outcomes(&entries).len(), 1);
        harness.gateway.wait_for_report(|report| report.reason == ReportReason::Replayed && report.activity == Activity::Idle).await;
        let stderr = std::fs::read_to_string(harness.dir.path().join("stderr")).unwrap();
        assert!(!stderr.contains("greeting"), "transcript in the log of the process: {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_a_message_for_an_idle_agent_is_refused_while_it_works_and_nothing_is_queued() {
    let (harness, report_seen) = Harness::new(EXAMPLE).await.held_after_first_request().await;
    let _runtime = harness.start(1, Some("write the greeting"));
    harness.gateway.wait_for_report(|report| report.activity == Activity::Running).await;
    let deliver = async |id: &str| {
        let lead = AgentRef { namespace: "ns".to_owned(), name: "lead".to_owned(), uid: "u".to_owned() };
        let from = MessageSender { agent: Some(lead), person: None };
        let message = DeliverRequest { message_id: id.to_owned(), from, text: "more".to_owned(), only_when_idle: true, weak: false };
        harness.gateway.request("POST", runtime_api::INBOX, serde_json::to_vec(&message).unwrap()).await
    };
    let (status, answer) = deliver("m-1").await;
    let refusal: Refusal = serde_json::from_slice(&answer).unwrap();
    assert_eq!((status, refusal.reason), (StatusCode::CONFLICT, RefusalReason::AlreadyRunning));
    report_seen.send_replace(true);
    harness.wait_for_runs(1).await;
    harness.gateway.wait_for_report(|report| report.activity == Activity::Idle).await;
    assert_eq!(deliver("m-2").await.0, StatusCode::OK);
    let entries = harness.wait_for_runs(2).await;
    let messages = entries
        .iter()
        .filter_map(|entry| if let Body::PeerMessage(message) = &entry.body { Some(message.message_id.as_str()) } else { None });
    assert_eq!(messages.collect::<Vec<_>>(), ["m-2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_model_call_and_a_broken_stream_are_tried_again() {
    let (harness, report_seen) = Harness::new(EXAMPLE).await.held_after_first_request().await;
    let _runtime = harness.start(1, Some("try again"));
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ModelUnreachable).await;
    assert!(!report.ready && report.message.contains("503"));
    report_seen.send_replace(true);
    let entries = harness.wait_for_runs(1).await;
    assert_eq!((outcomes(&entries), texts(&entries)), (vec![RunOutcome::Finished], vec!["It worked in the end.".to_owned()]));
    let notices: Vec<_> =
        entries.iter().filter(|entry| matches!(&entry.body, Body::Notice(notice) if notice.reason == "ModelUnreachable")).collect();
    assert_eq!(notices.len(), 1);
    harness.gateway.wait_for_report(|report| report.ready && report.activity == Activity::Idle).await;

    for provider in ["OpenAI", "Anthropic"] {
        let harness = Harness { provider, ..Harness::new(EXAMPLE).await };
        let _runtime = harness.start(1, Some("break off"));
        let entries = harness.wait_for_runs(1).await;
        assert_eq!(texts(&entries), ["This one came whole."], "{provider}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_fails_the_run_and_the_report_holds_nothing_of_the_request() {
    let harness = Harness::new(EXAMPLE).await;
    let _runtime = harness.start(1, Some("nobody knows this sentence"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(outcomes(&entries), [RunOutcome::Failed]);
    let Some(Body::RunEnded(end)) = entries.last().map(|entry| &entry.body) else { panic!() };
    assert!(end.message.as_ref().unwrap().contains("no rule of the script matches"));
    let report = harness
        .gateway
        .wait_for_report(|report| report.reason == ReportReason::ModelRefusedHistory && report.activity == Activity::Idle)
        .await;
    let endpoint = harness.model_url.trim_start_matches("http://").trim_end_matches("/v1");
    assert_eq!(report.message, format!("the model endpoint {endpoint} answered 400 Bad Request; the log holds its words"));
    assert_eq!(report.task.unwrap().state, TaskState::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_used_and_an_empty_one_is_reported() {
    for provider in ["OpenAI", "Anthropic"] {
        let harness = Harness {
            provider,
            needs_key: true,
            // By itself it would end after hours.
            env: vec![restart_after("600000")],
            ..Harness::with_key(EXAMPLE, Some("k-123")).await
        };
        let mut runtime = harness.start(1, Some("say hello"));
        let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::SecretMissing && report.task.is_some()).await;
        assert!(report.message.contains("key api-key of Secret model-key ") && report.message.contains("is empty"), "{}", report.message);
        assert_eq!((report.ready, report.task.unwrap().state), (false, TaskState::Submitted.into()));
        runtime.kill();
        // It ends by itself. In a cluster, the kubelet starts it again with the Secret's new content.
        let harness = Harness { env: vec![restart_after("10")], ..harness };
        assert!(harness.start(2, Some("say hello")).wait_for_exit().await.success());
        let harness = Harness { key: Some("k-123"), ..harness };
        let _runtime = harness.start(3, Some("say hello"));
        let entries = harness.wait_for_runs(1).await;
        assert_eq!((outcomes(&entries), texts(&entries)), (vec![RunOutcome::Finished], vec!["Hello.".to_owned()]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_tools_are_answered_by_the_gateway() {
    let script = r#"
rules:
- steps:
  - toolCalls:
    - {tool: ListPods}
    - {tool: SendToPeerPod, args: {to: b, message: hi}}
    - {tool: SendToPeerPod, args: {to: z, message: hi}}
    - {tool: SendToPeerPod, args: {to: b}}
    - {tool: Teleport}
    - {tool: Read, args: {path: ../session/current.json}}
  - text: done
"#;
    let harness = Harness::new(script).await;
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let ends: Vec<(ToolOutcome, String)> = tool_ends(&entries).into_iter().map(|end| (end.outcome, end.output)).collect();
    assert_eq!(ends[0], (ToolOutcome::Succeeded, "a (self): live, Idle\nb (peer): not live, Idle; restorable".to_owned()));
    assert!(ends[1].0 == ToolOutcome::Failed && ends[1].1.contains("inbox of \"b\" is full"));
    assert!(ends[2].0 == ToolOutcome::Failed && ends[2].1.contains("no agent \"z\""));
    assert_eq!(ends[3], (ToolOutcome::Refused, "invalid_args: missing field `message`".to_owned()));
    assert!(ends[4].0 == ToolOutcome::Refused && ends[4].1.starts_with("unknown_tool"));
    assert!(ends[5].0 == ToolOutcome::Refused && ends[5].1.starts_with("sandbox_violation"));
    // Refused calls have not started.
    assert_eq!(entries.iter().filter(|entry| matches!(entry.body, Body::ToolStarted(_))).count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_read_from_any_token_and_followed() {
    let harness = Harness::new(EXAMPLE).await;
    let _runtime = harness.start(1, Some("say hello"));
    let entries = harness.wait_for_runs(1).await;
    let all = harness.gateway.log("").await;
    assert_eq!(all.iter().map(|line| line.entry.clone()).collect::<Vec<_>>(), entries);
    assert_eq!(harness.gateway.log("tail=2").await, all[all.len() - 2..]);
    assert_eq!(harness.gateway.log(&format!("tail={}", u64::MAX)).await, all);
    assert_eq!(harness.gateway.log(&format!("after={}", all[1].token)).await, all[2..]);
    assert_eq!(harness.gateway.request("GET", "/v1/log?after=nonsense", "").await.0, StatusCode::BAD_REQUEST);
    let segment = "01900000-0000-7000-8000-000000000000";
    assert_eq!(harness.gateway.request("GET", &format!("/v1/log?after={segment}.1"), "").await.0, StatusCode::GONE);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_name_is_sent_as_it_is_and_proxies_are_used() {
    let script = "rules:\n- {when: {model: wise-max}, steps: [{text: known}]}\n- {when: {model: \"a::b\"}, steps: [{text: known}]}\n";
    for model in ["wise-max", "a::b"] {
        for provider in ["OpenAI", "Anthropic"] {
            let proxied = vec![("HTTP_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "127.0.0.1")];
            let harness = Harness { provider, model, user_env: proxied, ..Harness::new(script).await };
            let _runtime = harness.start(1, Some("go"));
            assert_eq!(texts(&harness.wait_for_runs(1).await), ["known"], "{provider} {model}");
        }
    }
    let harness = Harness { user_env: vec![("HTTP_PROXY", "http://127.0.0.1:1")], ..Harness::new(EXAMPLE).await };
    let _runtime = harness.start(1, Some("say hello"));
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ModelUnreachable).await;
    assert!(report.message.starts_with("nobody listens at the model endpoint"), "{}", report.message);
}
