//! What the manifest says of the model's endpoints: their secrets by variables, and limits that change while the process runs.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use yoi_line::{ClientAuth, ServeLimits, serve_tls, tls_server_config};
use yoi_wire::entry::RunOutcome;
use yoi_wire::identity::{TOKENS_FILE, env};

use crate::harness::{Harness, outcomes, texts, tool_ends};
use crate::restarts::person;

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
