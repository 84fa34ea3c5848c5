//! Endpoints that are down, slow, refuse requests or send invalid answers.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use yoi_line::{ClientAuth, ServeLimits, serve_tls, tls_server_config};
use yoi_test_support::{Share, assert_no_sooner};
use yoi_wire::entry::{Body, RunOutcome, ToolOutcome};
use yoi_wire::hub::{Activity, ReportReason, TaskState};

use super::invariants::{assert_invariants, assert_responsive, assert_user_sentence};
use crate::endpoints::restart_after;
use crate::harness::{Harness, kinds, outcomes, texts, tool_ends};

const PROVIDERS: [&str; 2] = ["OpenAI", "Anthropic"];

/// A task of two turns, with a fault before the first, and an answer to a person's message.
fn script(fault: &str) -> String {
    format!(
        "rules:\n- when: {{lastUserContains: say hello}}\n  steps: [{{text: Hello.}}]\n- steps:\n  - toolCalls: [{{tool: Shell, args: {{command: echo ran >> ran}}}}]\n    \
         fault: {{{fault}}}\n  - text: done\n"
    )
}

async fn fresh(provider: &'static str, script: &str, timeouts: &str) -> Harness {
    Harness { provider, env: vec![("YOI_MODEL_TIMEOUTS_MS", timeouts.to_owned())], ..Harness::new(script).await }
}

/// Checks that the agent reports `words`, stays responsive, goes on by itself, and runs every call once.
async fn recovers(provider: &'static str, name: &str, fault: &str, timeouts: &str, words: &str) {
    // A person has to do something about these, though here the endpoint itself changes its mind.
    let reason = if ["401", "403", "404"].contains(&name) { ReportReason::ModelRefused } else { ReportReason::ModelUnreachable };
    let mut harness = fresh(provider, &script(fault), timeouts).await;
    if reason == ReportReason::ModelRefused {
        // A wait for a person is 300 times as long as one for an endpoint, and the next one 1,800 times.
        harness.env.push(("YOI_MODEL_BACKOFF_MS", "2".to_owned()));
    }
    let (harness, report_seen) = harness.held_after_first_request().await;
    let mut runtime = harness.start(1, Some("go"));
    println!("{provider} {name}: began");
    let report = harness.gateway.wait_for_report(|report| report.reason == reason).await;
    report_seen.send_replace(true);
    assert!(!report.ready && report.message.contains(words), "{provider} {name}: {}", report.message);
    assert_user_sentence(&report.message);
    let id = assert_responsive(&harness, name).await;
    let entries = harness
        .wait_until(&format!("{provider} {name}: the end"), |entries| {
            outcomes(entries).contains(&RunOutcome::Finished)
                && texts(entries).last().is_some_and(|text| text == "Hello." || text == "done")
                && entries.iter().any(|entry| matches!(&entry.body, Body::Input(input) if input.message_id == id))
                && entries.last().is_some_and(|entry| matches!(entry.body, Body::RunEnded(_)))
        })
        .await;
    assert!(outcomes(&entries).iter().all(|outcome| *outcome == RunOutcome::Finished), "{provider} {name}: {:?}", outcomes(&entries));
    assert_eq!(crate::harness::lines(&harness.tree().join("ran")), 1, "{provider} {name}: {}", kinds(&entries));
    let notices = entries.iter().filter(|entry| matches!(&entry.body, Body::Notice(notice) if notice.reason == reason.as_str())).count();
    assert_eq!(notices, 1, "{provider} {name}: {}", kinds(&entries));
    harness.gateway.wait_for_report(|report| report.ready && report.activity == Activity::Idle).await;
    assert!(runtime.terminate().await.success());
    assert_invariants(&harness);
}

const FAULTS: [(&str, &str, &str, &str); 15] = [
    ("429", "status: 429, times: 2", "9000,9000,9000", "answered 429 Too Many Requests"),
    ("429-after", "status: 429, times: 1, retryAfterSeconds: 1", "9000,9000,9000", "answered 429 Too Many Requests"),
    ("500", "status: 500, times: 2", "9000,9000,9000", "answered 500 Internal Server Error"),
    ("503", "status: 503, times: 3", "9000,9000,9000", "answered 503 Service Unavailable"),
    ("401", "status: 401, times: 2", "9000,9000,9000", "it wants a key: name its Secret in the model's authSecretRef"),
    ("403", "status: 403, times: 2", "9000,9000,9000", "answered 403 Forbidden"),
    ("404", "status: 404, times: 2", "9000,9000,9000", "check the model's baseUrl and name"),
    ("hang", "show: hang, times: 2", "3000,9000,9000", "took the request and did not begin to answer"),
    ("trickle", "show: trickle, times: 1", "9000,9000,5500", "did not end its answer within 5 s"),
    ("html", "show: html, times: 2", "9000,9000,9000", "no stream of a chat; check the model's baseUrl"),
    ("noise", "show: noise, times: 2", "9000,9000,9000", "sent a stream that cannot be read"),
    ("cut", "cut: true, times: 2", "9000,9000,9000", "broke its answer off"),
    ("cut-call", "show: cutCall, times: 2", "9000,9000,9000", "broke its answer off"),
    ("cut-end", "show: cutEnd, times: 2", "9000,9000,9000", "broke its answer off"),
    ("endless", "show: endless, times: 1", "60000,60000,60000", "was longer than 2 MiB"),
];

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reports_every_endpoint_failure_stays_responsive_and_goes_on_by_itself() {
    let mut one_format = Share::one_in(PROVIDERS.len() as u64);
    let all = FAULTS.iter().flat_map(|fault| PROVIDERS.map(|provider| (provider, fault)));
    let cases: Vec<_> = all.filter(|_| one_format.takes_next()).collect();
    println!("{one_format}");
    for cases in cases.chunks(8) {
        join_all(cases.iter().map(|&(provider, &(name, fault, timeouts, words))| recovers(provider, name, fault, timeouts, words))).await;
    }
}

/// Alone in its test, because the client copies the growing line again and again until the process is over its limit of memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_without_end_fills_no_memory() {
    recovers("OpenAI", "endless-line", "show: endlessLine, times: 1", "600000,600000,600000", "was longer than 2 MiB").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_that_an_endpoint_asks_for_is_kept() {
    let harness = fresh("OpenAI", &script("status: 429, times: 1, retryAfterSeconds: 2"), "9000,9000,9000").await;
    let began = Instant::now();
    let _runtime = harness.start(1, Some("go"));
    harness.wait_for_runs(1).await;
    assert_no_sooner(began, Duration::from_secs(2), "the second request");
    // Two requests of the first turn, one of the second.
    assert_eq!(harness.requests.lock().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_keeps_trying_an_endpoint_that_refuses_connections_until_it_listens() {
    for provider in PROVIDERS {
        let harness = fresh(provider, &script("status: 500, times: 0"), "9000,9000,9000").await;
        // The socket stays bound, because a free port could be given to another test, which would answer there.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let place = socket.local_addr().unwrap();
        let harness = Harness { model_url: format!("http://{place}/v1"), env: vec![("YOI_MODEL_BACKOFF_MS", "1".to_owned())], ..harness };
        let _runtime = harness.start(1, Some("go"));
        let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ModelUnreachable).await;
        assert_eq!(
            report.message,
            format!("nobody listens at the model endpoint {place} (connection refused); is it up, and is the model's baseUrl right?")
        );
        let failed = |count: usize| format!("\"failed\":{count},");
        harness.wait_until("more tries than were ever counted", |_| harness.stderr().contains(&failed(13))).await;
        assert_responsive(&harness, "away").await;
        let listener = socket.listen(64).unwrap();
        let model = harness.model();
        tokio::spawn(async move { axum::serve(listener, model).await });
        let entries = harness.wait_until("the end", |entries| outcomes(entries).contains(&RunOutcome::Finished)).await;
        let notices: Vec<_> = entries.iter().filter(|entry| matches!(entry.body, Body::Notice(_))).collect();
        assert_eq!(notices.len(), 1, "{notices:?}");
        harness.gateway.wait_for_report(|report| report.ready).await;
        assert_invariants(&harness);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_reach_its_endpoint_stops_at_once_and_goes_on_with_a_corrected_url() {
    // A name that cannot be resolved, an unknown CA, and a listener that never accepts. Of the URL only host and port are reported.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let strange = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tls = tls_server_config(&made.cert.pem(), &made.signing_key.serialize_pem(), &ClientAuth::None).unwrap();
    let (_keep, tls) = watch::channel(tls);
    let (silent_at, strange_at) = (silent.local_addr().unwrap(), strange.local_addr().unwrap());
    tokio::spawn(serve_tls(strange, tls, axum::Router::new(), ServeLimits::default(), std::future::pending::<()>()));
    for (url, timeouts, words) in [
        (
            "http://user:sk-secret@no-such-host.invalid:81/v1".to_owned(),
            "9000,9000,9000",
            "the model endpoint no-such-host.invalid:81 has a name that cannot be resolved",
        ),
        (format!("https://localhost:{}/v1", strange_at.port()), "9000,9000,9000", "its certificate is not signed by a public CA"),
        (format!("http://{silent_at}/v1"), "3000,9000,9000", "took the request and did not begin to answer"),
    ] {
        let harness = fresh("OpenAI", &script("status: 500, times: 0"), timeouts).await;
        let right = harness.model_url.clone();
        let harness = Harness { model_url: url, ..harness };
        let mut runtime = harness.start(1, Some("go"));
        let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ModelUnreachable).await;
        assert!(report.message.contains(words), "{}: {:?}", report.message, harness.entries());
        assert_user_sentence(&report.message);
        assert_responsive(&harness, "lost").await;
        harness.stop(&mut runtime).await;
        assert!(kinds(&harness.entries()).ends_with("Notice RunEnded Extension"), "{}", kinds(&harness.entries()));
        assert!(!harness.stderr().contains("sk-secret"));
        let harness = Harness { model_url: right, ..harness };
        let _runtime = harness.start(2, Some("go"));
        let entries = harness.wait_until("the end", |entries| outcomes(entries).contains(&RunOutcome::Finished)).await;
        assert_eq!(outcomes(&entries)[0], RunOutcome::Interrupted);
        assert_invariants(&harness);
    }
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_is_read_again_and_is_never_shown() {
    let echo = "rules:\n- steps: [{text: Hello.}]\n";
    let harness = Harness { needs_key: true, key: Some("sk-secret-1"), ..Harness::with_key(echo, Some("sk-right")).await };
    // By itself it would end after hours.
    let harness = Harness { env: vec![restart_after("600000")], ..harness };
    let mut runtime = harness.start(1, Some("go"));
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ModelRefused).await;
    assert!(report.message.contains("it does not take the key: correct the Secret"), "{}", report.message);
    assert_responsive(&harness, "refused").await;
    assert!(runtime.terminate().await.success());
    // The first process of the next Pod ends by itself. In a cluster, the kubelet starts it again with the Secret's new content.
    let harness = Harness { env: vec![restart_after("10")], ..harness };
    assert!(harness.start(2, Some("go")).wait_for_exit().await.success());
    let everything = format!("{:?}{:?}{}", harness.entries(), harness.gateway.reports(), harness.stderr());
    assert!(!everything.contains("sk-secret-1"));
    let harness = Harness { key: Some("sk-right"), ..harness };
    let _runtime = harness.start(3, Some("go"));
    let entries = harness.wait_until("the end", |entries| outcomes(entries).contains(&RunOutcome::Finished)).await;
    assert_eq!(outcomes(&entries), [RunOutcome::Interrupted, RunOutcome::Interrupted, RunOutcome::Finished], "{}", kinds(&entries));
    assert_invariants(&harness);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_with_endless_or_empty_answers_fails_the_run_but_not_the_agent() {
    for provider in PROVIDERS {
        // Of the second, the endpoint is no cause: it answers.
        for (fault, reason) in
            [("show: endless, times: 99", ReportReason::ModelUnreachable), ("show: empty, times: 99", ReportReason::Replayed)]
        {
            let harness = fresh(provider, &script(fault), "60000,60000,60000").await;
            let _runtime = harness.start(1, Some("go"));
            let entries = harness.wait_for_runs(1).await;
            assert_eq!(outcomes(&entries), [RunOutcome::Failed], "{provider} {fault}: {}", kinds(&entries));
            assert_eq!(harness.requests.lock().unwrap().len(), 3, "{provider} {fault}");
            let report =
                harness.gateway.wait_for_report(|report| report.task.as_ref().is_some_and(|task| task.state == TaskState::Failed)).await;
            assert_eq!(report.reason, reason, "{provider} {fault}");
            // The agent still answers other requests.
            assert_responsive(&harness, "after").await;
            let outcomes = outcomes(&harness.wait_for_runs(2).await);
            assert!(outcomes[0] == RunOutcome::Failed && outcomes[1..].iter().all(|end| *end == RunOutcome::Finished), "{outcomes:?}");
            harness.gateway.wait_for_report(|report| report.ready).await;
            assert_invariants(&harness);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p22_an_invalid_call_is_refused_with_a_reason_and_does_not_start() {
    let script = r#"
rules:
- steps:
  - toolCalls: [{tool: Shell, rawArgs: '{"command": "echo ran >> ran'}]
  - toolCalls: [{tool: Shell, rawArgs: '["echo ran >> ran"]'}]
  - toolCalls: [{tool: Shell, rawArgs: ''}]
  - toolCalls: [{tool: Teleport, args: {to: mars}}]
  - toolCalls: [{tool: Shell, args: {command: echo ran >> ran}}]
  - text: done
"#;
    for provider in PROVIDERS {
        let harness = fresh(provider, script, "9000,9000,9000").await;
        let _runtime = harness.start(1, Some("go"));
        let entries = harness.wait_for_runs(1).await;
        assert_eq!(outcomes(&entries), [RunOutcome::Finished], "{provider}");
        let ends = tool_ends(&entries);
        for (end, words) in ends.iter().zip(["invalid_args", "invalid_args", "missing field `command`", "unknown_tool"]) {
            assert!(end.outcome == ToolOutcome::Refused && end.output.contains(words), "{provider}: {end:?}");
        }
        assert_eq!((ends.len(), ends[4].outcome), (5, ToolOutcome::Succeeded), "{provider}");
        assert_eq!(crate::harness::lines(&harness.tree().join("ran")), 1);
        assert_invariants(&harness);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_calls_tools_without_end_reaches_the_limit_and_the_agent_stays_responsive() {
    let script = "rules:\n- when: {lastUserContains: say hello}\n  steps: [{text: Hello.}]\n- repeat: true\n  steps:\n  - toolCalls: [{tool: Shell, args: {command: echo ran >> ran}}]\n";
    let harness = Harness { limits: json!({"turnsPerRun": 7, "toolSeconds": 30, "toolOutputBytes": 4096}), ..Harness::new(script).await };
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(outcomes(&entries), [RunOutcome::LimitReached]);
    let Some(Body::RunEnded(end)) = entries.last().map(|entry| &entry.body) else { panic!() };
    assert_eq!(end.message.as_deref(), Some("the limit of 7 model calls in one run was reached"));
    assert_eq!(crate::harness::lines(&harness.tree().join("ran")), 7);
    harness
        .gateway
        .wait_for_report(|report| report.ready && report.task.as_ref().is_some_and(|task| task.state == TaskState::Failed))
        .await;
    assert_responsive(&harness, "after").await;
    assert_eq!(outcomes(&harness.wait_for_runs(2).await).last(), Some(&RunOutcome::Finished));
    assert_invariants(&harness);
}
