//! When an agent goes to rest, and what becomes of messages then.

use http::StatusCode;
use yoi_wire::hub::ReportReason;
use yoi_wire::identity::REST_FILE;

use crate::gateway::person;
use crate::harness::{EXAMPLE, Harness, outcomes, texts};

/// An agent that may rest as soon as somebody says so.
async fn harness() -> Harness {
    let harness = Harness { env: vec![("YOI_AWAKE_SECONDS", "0".to_owned())], ..Harness::new(EXAMPLE).await };
    set_rest(&harness, "");
    harness
}

fn set_rest(harness: &Harness, seconds: &str) {
    std::fs::write(harness.dir.path().join(REST_FILE), seconds).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_an_agent_with_nothing_to_do_says_last_that_it_rests_and_takes_nothing_until_its_pod_ends() {
    let harness = harness().await;
    let mut runtime = harness.start(1, Some("say hello"));
    harness.wait_for_runs(1).await;
    set_rest(&harness, "0");
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::Resting).await;
    assert!(!report.ready && report.session.is_some(), "{report:?}");
    assert!(!runtime.has_ended(), "a container that starts again would take messages in a Pod that goes");
    harness.stop(&mut runtime).await;
    assert_eq!(harness.gateway.reports().last().unwrap().reason, ReportReason::Resting, "{:?}", harness.gateway.reports());
    assert_eq!(outcomes(&harness.entries()).len(), 1);
    // The next Pod goes on in the same session.
    set_rest(&harness, "");
    harness.gateway.forget_line();
    let _next = harness.start(2, Some("say hello"));
    harness.gateway.wait_for_report(|report| report.run_generation == 2 && report.ready).await;
    assert_eq!(harness.gateway.deliver("m1", person(), "say hello").await.0, StatusCode::OK);
    let entries = harness.wait_for_runs(2).await;
    assert_eq!(texts(&entries), ["Hello.", "Hello."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_somebody_who_is_attached_keeps_it_awake() {
    let harness = harness().await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let attached = harness.gateway.attach("").await;
    set_rest(&harness, "0");
    harness.wait_until("the rest is read", |_| harness.stderr().contains("rest changed")).await;
    assert_eq!(harness.gateway.deliver("m1", person(), "say hello").await.0, StatusCode::OK);
    harness.wait_for_runs(1).await;
    assert!(harness.gateway.reports().iter().all(|report| report.reason != ReportReason::Resting), "{:?}", harness.gateway.reports());
    drop(attached);
    harness.gateway.wait_for_report(|report| report.reason == ReportReason::Resting).await;
}
