//! Messages are delivered once.

use http::StatusCode;
use yoi_wire::entry::{Body, Entry};
use yoi_wire::hub::{Activity, DeliverRequest, MessageSender, Refusal, RefusalReason, SendResponse, runtime_api};

use crate::gateway::agent;
use crate::gateway::person;
use crate::harness::{EXAMPLE, Harness, outcomes, texts};

fn peer() -> MessageSender {
    MessageSender { agent: Some(agent("b")), person: None }
}

fn delivered(entries: &[Entry], id: &str) -> usize {
    let is = |entry: &&Entry| match &entry.body {
        Body::PeerMessage(message) => message.message_id == id,
        Body::Input(input) => input.message_id == id,
        _ => false,
    };
    entries.iter().filter(is).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_a_message_wakes_an_idle_agent_and_is_delivered_once() {
    let harness = Harness::new(EXAMPLE).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    for duplicate in [false, true] {
        let (status, body) = harness.gateway.deliver("m1", peer(), "are you there?").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(serde_json::from_slice::<SendResponse>(&body).unwrap(), SendResponse { message_id: "m1".to_owned(), duplicate });
    }
    let entries = harness.wait_for_runs(1).await;
    assert_eq!((delivered(&entries, "m1"), texts(&entries)), (1, vec!["I have read it.".to_owned()]));
    harness.gateway.deliver("p1", person(), "say hello").await;
    let entries = harness.wait_for_runs(2).await;
    assert_eq!(texts(&entries).last().unwrap(), "Hello.");
    let input = entries.iter().find_map(|entry| if let Body::Input(input) = &entry.body { Some(input.clone()) } else { None });
    assert_eq!(input.unwrap().user.as_deref(), Some("jane"));
    // A duplicate is recognised even after the message is in the log.
    let (_, body) = harness.gateway.deliver("m1", peer(), "are you there?").await;
    assert!(serde_json::from_slice::<SendResponse>(&body).unwrap().duplicate);
    for (from, text) in
        [(MessageSender::default(), "x"), (MessageSender { agent: Some(agent("b")), person: Some("jane".to_owned()) }, "x"), (peer(), "")]
    {
        assert_eq!(harness.gateway.deliver("bad", from, text).await.0, StatusCode::BAD_REQUEST);
    }
    // A refusal, and no text that the gateway could not read.
    for (bytes, named) in [(65 * 1024, "has 66560 bytes"), (1 << 20, "has more bytes than a request may carry")] {
        let (status, body) = harness.gateway.deliver("long", peer(), &"x".repeat(bytes)).await;
        let refusal: Refusal = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, refusal.reason), (StatusCode::PAYLOAD_TOO_LARGE, RefusalReason::Invalid));
        assert!(refusal.message.contains(named) && refusal.message.contains("65536 bytes are allowed"), "{}", refusal.message);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g2_a_weak_message_starts_no_run_and_is_read_by_the_next_one() {
    let harness = Harness::new(EXAMPLE).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready && report.activity == Activity::Idle).await;
    let deliver = async |id: &str, from: MessageSender, weak: bool| {
        // Of an agent with a weak message in its inbox, nothing is under way.
        let (message_id, text) = (id.to_owned(), "say hello".to_owned());
        let message = DeliverRequest { message_id, from, text, only_when_idle: !weak, weak };
        harness.gateway.request("POST", runtime_api::INBOX, serde_json::to_vec(&message).unwrap()).await.0
    };
    assert_eq!(deliver("notice-u-1", peer(), true).await, StatusCode::OK);
    assert_eq!(deliver("p1", person(), false).await, StatusCode::OK);
    let entries = harness.wait_for_runs(1).await;
    let causes = |entry: &Entry| if let Body::RunStarted(run) = &entry.body { Some(run.cause.clone()) } else { None };
    assert_eq!(entries.iter().filter_map(causes).collect::<Vec<_>>(), [["notice-u-1", "p1"]]);
    assert_eq!((delivered(&entries, "notice-u-1"), delivered(&entries, "p1")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn g6_an_accepted_message_survives_a_kill_and_is_delivered_once() {
    let harness = Harness::new(EXAMPLE).await;
    let mut runtime = harness.start(1, Some("run the slow command"));
    harness.wait_until("the start of the command", |_| harness.tree().join("begun.txt").exists()).await;
    let (status, _) = harness.gateway.deliver("m1", peer(), "while you are busy").await;
    assert_eq!(status, StatusCode::OK);
    runtime.kill();
    assert_eq!(delivered(&harness.entries(), "m1"), 0);
    let _runtime = harness.start(1, Some("run the slow command"));
    let entries = harness.wait_until("the message", |entries| delivered(entries, "m1") > 0 && outcomes(entries).len() > 1).await;
    assert_eq!(delivered(&entries, "m1"), 1);
    assert_eq!(texts(&entries).last().unwrap(), "I have read it.");
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_a_full_inbox_refuses_the_sender() {
    // The inbox is not read while a model call runs.
    let harness = Harness::new("rules: [{steps: [{text: done, delayMs: 600000}]}]").await;
    let _runtime = harness.start(1, Some("go"));
    // A run takes what is in the inbox before it asks the model.
    harness.wait_until("the request", |_| !harness.requests.lock().unwrap().is_empty()).await;
    let mut statuses = Vec::new();
    for n in 0..257 {
        statuses.push(harness.gateway.deliver(&format!("m{n}"), peer(), "x").await.0);
    }
    assert!(statuses[..256].iter().all(|status| *status == StatusCode::OK));
    assert_eq!(statuses[256], StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_new_entries_and_a_new_line_gets_the_report_again() {
    let harness = Harness::new(EXAMPLE).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let mut follower = harness.gateway.follow("follow=true&tail=0").await;
    harness.gateway.deliver("m1", peer(), "are you there?").await;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line: &yoi_wire::people::LogLine| line.entry.body.kind() != "RunEnded") {
        seen.extend(follower.next().await);
    }
    assert_eq!(seen[0].entry.body.kind(), "PeerMessage");
    harness.wait_for_usage(|usage| usage.activity == Activity::Idle).await;
    harness.gateway.wait_for_report(|report| report.activity == Activity::Idle && report.ready).await;
    let again = || harness.gateway.reports().windows(2).filter(|pair| pair[0] == pair[1]).count();
    let before = again();
    harness.gateway.cut_line();
    // A report is sent when it changes, so one that comes twice was sent again.
    harness.wait_until("the report again after the line came back", |_| again() > before).await;
    assert_eq!(harness.gateway.log("").await.last().unwrap(), seen.last().unwrap());
}
