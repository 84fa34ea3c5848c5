//! Calls that wait for a person, from the policy of a manifest to the answer of a person.

use http::StatusCode;
use serde_json::{Value, json};
use yoi_test_support::eventually;
use yoi_wire::approval::{ApprovalResponse, WaitingCalls};
use yoi_wire::entry::{Body, RefusalClass, ToolOutcome};
use yoi_wire::hub::{Activity, MessageSender, runtime_api};

use crate::harness::{Harness, kinds, lines, tool_ends};

const SCRIPT: &str = r#"
rules:
- when: {lastUserContains: go}
  steps:
  - toolCalls:
    - {tool: Shell, args: {command: echo one >> made}}
    - {tool: Shell, args: {command: echo two}}
  - text: done
- when: {lastUserContains: meanwhile}
  steps:
  - text: read
"#;

async fn asking(seconds: u64) -> Harness {
    let policy = json!({"ask": ["Shell(echo one*)"], "approvalSeconds": seconds});
    Harness { manifest_settings: json!({"policy": policy}), ..Harness::new(SCRIPT).await }
}

async fn waiting(harness: &Harness) -> WaitingCalls {
    let look = async || {
        let (status, body) = harness.gateway.request("GET", runtime_api::APPROVAL, "").await;
        // The line may be up before the session is replayed.
        (status != StatusCode::SERVICE_UNAVAILABLE).then_some((status, body))
    };
    let (status, body) = eventually("an open session", look).await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    serde_json::from_slice(&body).unwrap()
}

async fn answer(harness: &Harness, user: &str, body: &Value) -> (StatusCode, Value) {
    let (status, body) = harness.gateway.request_as(user, "POST", runtime_api::APPROVAL, body.to_string()).await;
    (status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn p71_a_call_waits_over_a_kill_and_a_stop_and_runs_once_when_a_person_says_yes() {
    let harness = asking(3600).await;
    let mut runtime = harness.start(1, Some("go"));
    harness.wait_until("a question", |entries| kinds(entries).ends_with("ToolAsked")).await;
    harness.gateway.wait_for_report(|report| report.activity == Activity::NeedsInput).await;
    let asked = waiting(&harness).await.calls;
    assert_eq!((asked.len(), asked[0].tool.as_str(), &asked[0].args["command"]), (1, "Shell", &json!("echo one >> made")));
    runtime.kill();
    harness.gateway.forget_line();
    let mut runtime = harness.start(2, Some("go"));
    assert_eq!(waiting(&harness).await.calls, asked);
    let sender = MessageSender { person: Some("jane".to_owned()), ..MessageSender::default() };
    assert_eq!(harness.gateway.deliver("m", sender, "meanwhile").await.0, StatusCode::OK);
    harness.stop(&mut runtime).await;
    harness.gateway.forget_line();
    let _runtime = harness.start(3, Some("go"));
    assert_eq!(waiting(&harness).await.calls, asked);
    harness.gateway.wait_for_report(|report| report.activity == Activity::NeedsInput).await;
    assert!(tool_ends(&harness.entries()).is_empty() && !harness.tree().join("made").exists());

    let number = asked[0].call;
    assert_eq!(answer(&harness, "jane", &json!({"call": number + 1, "approve": true})).await.0, StatusCode::NOT_FOUND);
    let (status, told) = answer(&harness, "jane", &json!({"call": number, "approve": true})).await;
    let told: ApprovalResponse = serde_json::from_value(told).unwrap();
    assert_eq!((status, told.answer.by.as_str(), told.repeated), (StatusCode::OK, "jane", false));
    let (_, again) = answer(&harness, "bob", &json!({"call": number, "approve": false})).await;
    assert_eq!((&again["answer"]["by"], &again["answer"]["approved"], &again["repeated"]), (&json!("jane"), &json!(true), &json!(true)));
    let entries = harness.wait_for_runs(1).await;
    let outcomes: Vec<ToolOutcome> = tool_ends(&entries).iter().map(|end| end.outcome).collect();
    assert_eq!((outcomes, lines(&harness.tree().join("made"))), (vec![ToolOutcome::Succeeded; 2], 1));
    let count = |kind: &str| entries.iter().filter(|entry| entry.body.kind() == kind).count();
    assert_eq!([count("ToolAsked"), count("ToolAnswered"), count("RunStarted")], [1, 1, 1], "{}", kinds(&entries));
    let last = harness.requests.lock().unwrap().last().unwrap().to_string();
    assert!(last.contains("meanwhile"), "the message that waited is read before the next step: {last}");
}

#[tokio::test(flavor = "multi_thread")]
async fn p72_a_call_that_nobody_answers_is_refused_to_the_model_and_a_late_answer_is_gone() {
    let harness = asking(1).await;
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let ends = tool_ends(&entries);
    assert_eq!(ends[0].output, "not_approved: the call did not run: nobody answered within 1 s whether it may");
    assert_eq!(ends[0].decision.as_ref().unwrap().refused, Some(RefusalClass::NotApproved));
    assert_eq!(ends[1].outcome, ToolOutcome::Succeeded, "what came after it goes on");
    let asked = entries.iter().find(|entry| matches!(entry.body, Body::ToolAsked(_))).unwrap().seq;
    let (status, refusal) = answer(&harness, "jane", &json!({"call": asked, "approve": true})).await;
    assert_eq!(status, StatusCode::GONE, "{refusal}");
    assert!(!harness.tree().join("made").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn p70_a_denial_reaches_the_model_with_its_reason_and_its_person() {
    let harness = asking(3600).await;
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_until("a question", |entries| kinds(entries).ends_with("ToolAsked")).await;
    let call = entries.last().unwrap().seq;
    for body in
        [json!({"call": call}), json!({"call": call, "approve": true, "more": 1}), json!({"call": call, "approve": false, "always": true})]
    {
        assert!(answer(&harness, "jane", &body).await.0.is_client_error(), "{body}");
    }
    let (status, _) = answer(&harness, "jane", &json!({"call": call, "approve": false, "because": "not on a Friday"})).await;
    assert_eq!(status, StatusCode::OK);
    let ends = tool_ends(&harness.wait_for_runs(1).await);
    assert_eq!(ends[0].output, "not_approved: the call did not run: jane denied it: not on a Friday");
    let last = harness.requests.lock().unwrap().last().unwrap().to_string();
    assert!(last.contains("not on a Friday"), "{last}");
}

/// What a program's hook is told of a command, and how it waits.
const HOOKS: &str = r#"cat > /dev/null
call() { echo "{\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"echo one $1\"},\"tool_use_id\":\"$1\"}"; }
call t1 | $RUNTIME hook before --wait 600 && touch begun
call t2 | $RUNTIME hook before --wait 600 2> denied || echo blocked with $? >> denied
call t3 > input
$RUNTIME hook before --wait 600 < input &
while [ ! -e go-on ]; do sleep 0.02; done
kill $!; wait $!
while [ ! -e go-further ]; do sleep 0.02; done
call t4 | $RUNTIME hook before 2> refused
echo done"#;

#[tokio::test(flavor = "multi_thread")]
async fn p69_p72_a_call_of_a_program_waits_as_long_as_its_hook_and_the_answer_reaches_the_hook() {
    let mut harness = crate::programs::program(HOOKS, json!({"hooks": true})).await;
    harness.manifest_settings["policy"] = json!({"ask": ["Shell(echo one*)"]});
    let _runtime = harness.start(1, Some("go"));
    let asked = |times: usize| {
        move |entries: &[yoi_wire::entry::Entry]| {
            kinds(entries).matches("ToolAsked").count() == times && kinds(entries).ends_with("ToolAsked")
        }
    };
    harness.wait_until("a question", asked(1)).await;
    harness.gateway.wait_for_report(|report| report.activity == Activity::NeedsInput).await;
    let waits = waiting(&harness).await.calls.remove(0);
    assert_eq!((waits.seconds, waits.tool.as_str(), &waits.args["command"]), (600, "Bash", &json!("echo one t1")));
    assert!(!harness.tree().join("begun").exists(), "the hook has returned before the answer");
    assert_eq!(answer(&harness, "jane", &json!({"call": waits.call, "approve": true})).await.0, StatusCode::OK);
    harness.wait_until("the next question", asked(2)).await;
    assert!(harness.tree().join("begun").exists());
    let second = waiting(&harness).await.calls.remove(0).call;
    assert_eq!(answer(&harness, "jane", &json!({"call": second, "approve": false, "because": "not on a Friday"})).await.0, StatusCode::OK);
    harness.wait_until("the third question", asked(3)).await;
    let denied = std::fs::read_to_string(harness.tree().join("denied")).unwrap();
    assert_eq!(denied, "The call was not run: not_approved: the call did not run: jane denied it: not on a Friday.\nblocked with 2\n");
    let third = waiting(&harness).await.calls.remove(0).call;
    std::fs::write(harness.tree().join("go-on"), "").unwrap();
    harness.wait_until("the end of the call whose hook is gone", |entries| tool_ends(entries).len() == 2).await;
    std::fs::write(harness.tree().join("go-further"), "").unwrap();
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(answer(&harness, "jane", &json!({"call": third, "approve": true})).await.0, StatusCode::GONE);
    let outcomes: Vec<String> = tool_ends(&entries).into_iter().map(|end| format!("{} {:?}", end.call_id, end.outcome)).collect();
    assert_eq!(outcomes, ["t2 Refused", "t3 Refused", "t4 Refused", "t1 Unknown"], "{}", kinds(&entries));
    assert!(std::fs::read_to_string(harness.tree().join("refused")).unwrap().contains("cannot wait"));
}
