//! What the manifest says of the model's endpoints: their secrets by variables, and limits that change while the process runs.

use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use yoi_line::{ClientAuth, ServeLimits, serve_tls, tls_server_config};
use yoi_test_support::{assert_no_sooner, thorough};
use yoi_wire::control::ControlAction;
use yoi_wire::entry::RunOutcome;
use yoi_wire::hub::ReportReason;
use yoi_wire::identity::{TOKENS_FILE, env};

use crate::gateway::person;
use crate::harness::{Harness, Runtime, outcomes, texts, tool_ends};
use crate::people::ask;

const LOOKS_AROUND: &str = "rules:\n- steps:\n  - toolCalls: [{tool: Shell, args: {command: env}}]\n  - text: done\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_is_called_with_its_own_key_header_and_certificates_and_tools_see_none_of_them() {
    let harness = Harness { needs_key: true, key: Some("sk-first"), ..Harness::with_key(LOOKS_AROUND, Some("sk-another")).await };
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    let tls = tls_server_config(&made.cert.pem(), &made.signing_key.serialize_pem(), &ClientAuth::None).unwrap();
    let (_keep, tls) = watch::channel(tls);
    let guarded = harness.model().layer(from_fn(|request: Request, next: Next| async move {
        let allowed = {
            let has = |name: &str, value: &str| request.headers().get(name).is_some_and(|given| given == value);
            has("authorization", "Bearer sk-second") && has("x-team", "blue-secret")
        };
        if allowed { next.run(request).await } else { StatusCode::FORBIDDEN.into_response() }
    }));
    tokio::spawn(serve_tls(listener, tls, guarded, ServeLimits::default(), std::future::pending::<()>()));
    let fallback = json!({"provider": "OpenAI", "name": "second", "baseUrl": url, "keySecret": {"secret": "second", "key": "k"},
        "keyEnv": format!("{}_1", env::MODEL_API_KEY), "caEnv": format!("{}_1", env::MODEL_CA),
        "headers": [{"name": "X-Team", "valueEnv": format!("{}_1_0", env::MODEL_HEADER)}]});
    let variables = vec![
        ("YOI_MODEL_API_KEY_1", "sk-second".to_owned()),
        ("YOI_MODEL_CA_1", made.cert.pem()),
        ("YOI_MODEL_HEADER_1_0", "blue-secret".to_owned()),
    ];
    let harness = Harness { model_settings: json!({"fallbacks": [fallback]}), env: variables, ..harness };
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(outcomes(&entries), [RunOutcome::Finished], "{}", harness.stderr());
    assert_eq!(texts(&entries).last().map(String::as_str), Some("done"));
    let seen = &tool_ends(&entries)[0].output;
    assert!(seen.contains("PATH=") && !seen.contains("YOI_MODEL") && !seen.contains("sk-"), "{seen}");
    let everything = format!("{entries:?}{:?}{}", harness.gateway.reports(), harness.stderr());
    for secret in ["sk-first", "sk-second", "blue-secret"] {
        assert!(!everything.contains(secret), "{secret} is shown");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_tokens_that_is_raised_in_the_pod_takes_effect_without_a_restart() {
    let script = "rules:\n- when: {lastUserContains: go}\n  steps:\n  - toolCalls: [{tool: Shell, args: {command: 'true'}}]\n  - text: never\n\
                  - steps: [{text: again}]\n";
    let harness = Harness::new(script).await;
    let file = harness.dir.path().join(TOKENS_FILE);
    std::fs::write(&file, "1").unwrap();
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(outcomes(&entries), [RunOutcome::LimitReached]);
    std::fs::write(&file, "").unwrap();
    harness.wait_until("the limit is read again", |_| harness.stderr().contains("spec.limits.tokens changed")).await;
    harness.gateway.deliver("m", person(), "go on").await;
    let entries = harness.wait_for_runs(2).await;
    assert_eq!(outcomes(&entries), [RunOutcome::LimitReached, RunOutcome::Finished], "{entries:?}");
}

/// A model that takes this header only, at an address of its own.
async fn guarded(harness: &Harness, header: &'static str, value: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let model = harness.model().layer(from_fn(move |request: Request, next: Next| async move {
        let allowed = request.headers().get(header).is_some_and(|given| given == value);
        if allowed { next.run(request).await } else { StatusCode::UNAUTHORIZED.into_response() }
    }));
    tokio::spawn(async move { axum::serve(listener, model).await });
    url
}

pub fn restart_after(seconds: &str) -> (&'static str, String) {
    ("YOI_SECRET_RESTART_SECONDS", seconds.to_owned())
}

async fn ends(runtime: &mut Runtime, why: &str) {
    assert!(runtime.wait_for_exit().await.success(), "{why}");
}

const SAYS_DONE: &str = "rules: [{steps: [{text: done}]}]";

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_has_mended_the_secret_resumes_the_run_and_it_goes_on_with_the_new_key_at_once() {
    let harness = Harness { needs_key: true, key: Some("sk-old"), ..Harness::with_key(SAYS_DONE, Some("sk-new")).await };
    // By itself it would end after hours.
    let harness = Harness { env: vec![restart_after("600000")], ..harness };
    let mut runtime = harness.start(1, Some("go"));
    harness.gateway.wait_for_report(|report| report.reason == ReportReason::ModelRefused).await;
    // The report may come before the conversation waits for a person.
    harness.wait_until("the refusal in the log", |entries| entries.iter().any(|entry| entry.body.kind() == "Notice")).await;
    let answer = ask(&harness, "r", ControlAction::Resume {}).await;
    assert!(answer.done.is_some(), "{answer:?}");
    ends(&mut runtime, "the process goes on with the old key").await;
    // In a cluster, the kubelet starts it again with the Secret's new content.
    let harness = Harness { key: Some("sk-new"), ..harness };
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_until("the end", |entries| outcomes(entries).contains(&RunOutcome::Finished)).await;
    assert_eq!(texts(&entries), ["done"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_ends_a_pods_first_process_soon_and_the_next_one_only_when_the_kubelet_has_forgotten_that() {
    let seconds = if thorough() { 30 } else { 10 };
    let refused = async || {
        let harness = Harness { needs_key: true, key: Some("sk-old"), ..Harness::with_key(SAYS_DONE, Some("sk-new")).await };
        Harness { env: vec![restart_after(&seconds.to_string())], ..harness }
    };
    let harness = refused().await;
    let began = Instant::now();
    ends(&mut harness.start(1, Some("go")), "the first process of a Pod").await;
    assert_no_sooner(began, Duration::from_secs(seconds / 10), "the end of the first process");
    let began = Instant::now();
    let mut second = harness.start(1, Some("go"));
    // The first process of another Pod begins later, and ends sooner.
    ends(&mut refused().await.start(1, Some("go")), "the first process of another Pod").await;
    assert!(!second.has_ended(), "the kubelet would hold the next start back");
    ends(&mut second, "the second process").await;
    assert_no_sooner(began, Duration::from_secs(seconds), "the end of the second process");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_an_endpoint_whose_fallback_is_away_is_read_again_too() {
    let harness = Harness { needs_key: true, key: Some("sk-old"), ..Harness::with_key(SAYS_DONE, Some("sk-new")).await };
    // The port stays bound, and nobody listens.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let away = json!({"provider": "OpenAI", "name": "away", "baseUrl": format!("http://{}/v1", socket.local_addr().unwrap())});
    let harness = Harness { model_settings: json!({"fallbacks": [away]}), env: vec![restart_after("10")], ..harness };
    let mut runtime = harness.start(1, Some("go"));
    ends(&mut runtime, "the first endpoint's key is never read again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_header_of_a_secret_is_reported_like_a_key_and_read_again() {
    let harness = Harness::new(SAYS_DONE).await;
    let url = guarded(&harness, "x-pass", "new-pass").await;
    let settings = json!({"headers": [{"name": "X-Pass", "valueEnv": format!("{}_0_0", env::MODEL_HEADER)}]});
    let pass = |value: &str, seconds: &str| vec![("YOI_MODEL_HEADER_0_0", value.to_owned()), restart_after(seconds)];
    let harness = Harness { model_url: url, model_settings: settings, env: pass("old-pass", "600000"), ..harness };
    let mut runtime = harness.start(1, Some("go"));
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ModelRefused).await;
    assert!(report.message.contains("correct the Secret that spec.model names for it"), "{}", report.message);
    runtime.kill();
    // The first process of the next Pod.
    let harness = Harness { env: pass("old-pass", "10"), ..harness };
    let mut runtime = harness.start(2, Some("go"));
    ends(&mut runtime, "the header is never read again").await;
    let harness = Harness { env: pass("new-pass", "10"), ..harness };
    let _runtime = harness.start(3, Some("go"));
    harness.wait_until("the end", |entries| outcomes(entries).contains(&RunOutcome::Finished)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_that_a_fallback_hides_is_read_again_when_the_agent_has_nothing_to_do() {
    let harness = Harness { needs_key: true, key: Some("sk-old"), ..Harness::with_key(SAYS_DONE, Some("sk-new")).await };
    let url = guarded(&harness, "authorization", "Bearer sk-second").await;
    let fallback = json!({"provider": "OpenAI", "name": "second", "baseUrl": url, "keySecret": {"secret": "second", "key": "k"},
        "keyEnv": format!("{}_1", env::MODEL_API_KEY)});
    let variables = vec![("YOI_MODEL_API_KEY_1", "sk-second".to_owned()), restart_after("40")];
    let harness = Harness { model_settings: json!({"fallbacks": [fallback]}), env: variables, ..harness };
    let mut runtime = harness.start(1, Some("go"));
    harness.wait_for_runs(1).await;
    // Time that has to pass: 4 s after the refusal the key may be read again, and nothing that can be seen happens then.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!runtime.has_ended(), "it ends at the first refusal");
    let _ = harness.gateway.deliver("m", person(), "go on").await;
    ends(&mut runtime, "the first endpoint's key is never read again").await;
    assert_eq!(outcomes(&harness.entries()), [RunOutcome::Finished; 2], "the end waits for the run's end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_the_background_keeps_the_process_from_ending_early_for_a_refused_key() {
    let script = "rules:\n- steps:\n  - toolCalls: [{tool: Shell, args: {command: sleep 600, background: true}}]\n  - fault: {status: 401, times: 99}\n    text: never\n";
    let agent = async |script: &str, seconds: &str| Harness {
        needs_key: true,
        key: Some("sk"),
        env: vec![restart_after(seconds)],
        ..Harness::with_key(script, Some("sk")).await
    };
    let harness = agent(script, "60").await;
    let mut runtime = harness.start(1, Some("go"));
    harness.gateway.wait_for_report(|report| report.reason == ReportReason::ModelRefused).await;
    assert_eq!(tool_ends(&harness.entries()).len(), 1);
    // An agent without such a command is refused later, waits a little longer for another key, 6.5 s, and has ended by then.
    let refused = "rules: [{steps: [{fault: {status: 401, times: 99}, text: never}]}]";
    ends(&mut agent(refused, "65").await.start(1, Some("go")), "an agent without a command in the background").await;
    assert!(!runtime.has_ended(), "the command has ended with the process");
    assert!(ask(&harness, "r", ControlAction::Resume {}).await.done.is_some());
    ends(&mut runtime, "a person's word ends it all the same").await;
}
