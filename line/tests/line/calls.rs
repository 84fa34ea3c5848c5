//! The dialler's own requests.

use crate::harness::*;
use axum::http::StatusCode;
use std::time::Duration;
use yoi_line::*;

async fn sum(caller: &RequestClient, numbers: &[i64]) -> Result<i64, CallError> {
    wait_for("a sum", caller.post_json("/sum", numbers)).await
}

#[tokio::test]
async fn a_call_is_answered_and_a_refusal_says_why() {
    let ca = Ca::new();
    let gateway = Gateway::start(&ca).await;
    let caller = RequestClient::new(dial(&ca, gateway.address));
    assert_eq!(sum(&caller, &[1, 2, 3]).await.unwrap(), 6);
    let error = sum(&caller, &[]).await.unwrap_err();
    assert_eq!((error.class(), error.status()), (FailureClass::Answered, Some(StatusCode::UNPROCESSABLE_ENTITY)));
    assert!(error.to_string().ends_with("nothing to add"), "{error}");
    let missing: Result<(), _> = caller.post_json("/nothing", &()).await;
    assert_eq!(missing.unwrap_err().status(), Some(StatusCode::NOT_FOUND));
    let unfit: Result<i64, _> = caller.post_json("/echo", "a word").await;
    assert!(matches!(unfit, Err(CallError::Decode(_))), "{unfit:?}");
    *gateway.state.refuse.lock().unwrap() = Some(StatusCode::FORBIDDEN);
    let refused: Result<(), _> = caller.post_json("/line", &()).await;
    assert_eq!(refused.unwrap_err().failure().class, FailureClass::Refused);
}

#[tokio::test]
async fn many_calls_share_one_connection_and_each_carries_the_current_token() {
    let ca = Ca::new();
    let gateway = Gateway::start(&ca).await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "first\n").unwrap();
    let caller = RequestClient::new(Dial { token: TextSource::file(&token), ..dial(&ca, gateway.address) });
    let calls = (0..100).map(|n| caller.post_json::<i64, i64>("/echo", Box::leak(Box::new(n))));
    let answers = wait_for("all answers", futures::future::try_join_all(calls)).await.unwrap();
    assert_eq!(answers, (0..100).collect::<Vec<_>>());
    std::fs::write(&token, "second\n").unwrap();
    caller.post_json::<_, i64>("/echo", &1).await.unwrap();
    assert_eq!(gateway.state.peers.lock().unwrap().len(), 1);
    assert_eq!(gateway.tokens().iter().filter(|token| *token == "second").count(), 1);
}

#[tokio::test]
async fn a_caller_connects_again_after_the_server_restarted() {
    let ca = Ca::new();
    let reserved = ReservedAddress::new();
    let gateway = Gateway::start_at(&ca, &reserved).await;
    let caller = RequestClient::new(dial(&ca, reserved.address()));
    assert_eq!(sum(&caller, &[1]).await.unwrap(), 1);
    gateway.stop().await;
    // A call fails either on the old connection, or because a new one is refused.
    let down = wait_for("the refusal of a new connection", async {
        loop {
            let error = sum(&caller, &[1]).await.unwrap_err();
            if matches!(error, CallError::Connect(_)) {
                return error;
            }
        }
    })
    .await;
    assert_eq!(down.class(), FailureClass::Unreachable);
    let _gateway = Gateway::start_at(&ca, &reserved).await;
    assert_eq!(sum(&caller, &[2]).await.unwrap(), 2);
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_and_leaves_the_connection_to_others() {
    let ca = Ca::new();
    let gateway = Gateway::start(&ca).await;
    let caller = RequestClient::new(dial(&ca, gateway.address));
    let impatient = caller.with_limits(RequestLimits { response_timeout: Duration::from_millis(100), max_body: 10 });
    let late: Result<(), _> = wait_for("the deadline", impatient.post_json("/hold", &())).await;
    assert!(matches!(late, Err(CallError::TimedOut(_))), "{late:?}");
    let long: Result<String, _> =
        caller.with_limits(RequestLimits { max_body: 10, ..Default::default() }).post_json("/echo", "eleven bytes").await;
    assert!(matches!(long, Err(CallError::ReadBody(_))), "{long:?}");
    let echo: String = caller.post_json("/echo", "eleven bytes").await.unwrap();
    assert_eq!(echo, "eleven bytes");
    assert_eq!(gateway.state.peers.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_of_another_ca_is_not_called() {
    let ca = Ca::new();
    let gateway = Gateway::start(&ca).await;
    let error = sum(&RequestClient::new(dial(&Ca::new(), gateway.address)), &[1]).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::Tls, "{error:?}");
    assert!(gateway.tokens().is_empty());
}
