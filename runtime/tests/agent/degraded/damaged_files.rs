//! Damaged files on the session volume.

use http::StatusCode;
use yoi_wire::hub::ReportReason;

use super::invariants::{assert_invariants, assert_user_sentence};
use crate::gateway::person;
use crate::harness::{Harness, outcomes, texts};

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_message_is_reported_with_its_file_and_the_agent_goes_on_once_the_file_is_moved_out() {
    let script = "rules:\n- when: {lastUserContains: say hello}\n  steps: [{text: Hello.}]\n- steps: [{text: busy, delayMs: 60000}]\n";
    let harness = Harness::new(script).await;
    let mut runtime = harness.start(1, Some("go"));
    // A run takes what is in the inbox before it asks the model.
    harness.wait_until("the request", |_| !harness.requests.lock().unwrap().is_empty()).await;
    for id in ["m1", "m2"] {
        assert_eq!(harness.gateway.deliver(id, person(), "say hello").await.0, StatusCode::OK);
    }
    runtime.kill();
    let folder = std::fs::read_dir(harness.session().join("sessions")).unwrap().next().unwrap().unwrap().path().join("inbox");
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let text = std::fs::read_to_string(&files[0]).unwrap();
    std::fs::write(&files[0], text.replacen("hello", "hallo", 1)).unwrap();
    harness.gateway.forget_line();
    let mut runtime = harness.start(1, None);
    let report = harness.gateway.wait_for_report(|report| report.reason == ReportReason::ReplayFailed).await;
    assert!(report.message.contains(&format!("{} line 1: its checksum is wrong", files[0].display())), "{}", report.message);
    assert!(
        report.message.contains("move it out of its folder") && report.message.contains("stop and start the agent"),
        "{}",
        report.message
    );
    assert_user_sentence(&report.message);
    assert!(!harness.gateway.log("").await.is_empty());
    assert!(runtime.terminate().await.success());

    // Does what the report says.
    std::fs::rename(&files[0], harness.dir.path().join("taken-out")).unwrap();
    harness.gateway.forget_line();
    let _runtime = harness.start(1, None);
    let entries = harness.wait_until("the other message", |entries| texts(entries).last().is_some_and(|text| text == "Hello.")).await;
    assert_eq!(outcomes(&entries).len(), 2);
    assert_invariants(&harness);
}
