//! Each check is given the fault that it has to find.

use serde_json::{Value, json};

use super::*;

fn line(seq: u64, kind: &str, body: &Value) -> String {
    let entry = json!({ "id": format!("id-{seq}"), "seq": seq, "run": 1, "at": "t", "kind": kind, "body": body });
    json!({ "token": format!("t:{seq}"), "entry": entry }).to_string()
}

fn input(seq: u64, id: &str) -> String {
    line(seq, "Input", &json!({ "from": "person", "messageId": id, "user": "u", "text": format!("number {id}") }))
}

fn assistant(seq: u64, call: &str, tool: &str, args: &Value) -> String {
    line(seq, "Assistant", &json!({ "text": "I do.", "toolCalls": [{ "callId": call, "tool": tool, "args": args }] }))
}

fn started(seq: u64, call: &str, tool: &str) -> String {
    line(seq, "ToolStarted", &json!({ "callId": call, "tool": tool }))
}

fn ended(seq: u64, call: &str, outcome: &str) -> String {
    line(seq, "ToolEnded", &json!({ "callId": call, "outcome": outcome, "output": "out" }))
}

fn runtime(seq: u64) -> String {
    line(seq, "RuntimeStarted", &json!({ "podUid": "p", "manifestDigest": "d" }))
}

/// A log of two messages with one call each. The second call was interrupted.
fn log() -> Vec<String> {
    vec![
        runtime(1),
        input(2, "m1"),
        assistant(3, "c1", "Shell", &json!({ "command": "x" })),
        started(4, "c1", "Shell"),
        ended(5, "c1", "succeeded"),
        input(6, "m2"),
        assistant(7, "c2", "Shell", &json!({ "command": "x" })),
        started(8, "c2", "Shell"),
        ended(9, "c2", "unknown"),
        runtime(10),
    ]
}

const TRACES: &str = "number 1 c1\nnumber 2 c2\n";

fn check_log(log: &[String], read: &[String], acknowledged: &[&str], traces: &str) -> Vec<String> {
    let acknowledged: Vec<String> = acknowledged.iter().map(|id| (*id).to_owned()).collect();
    violations(&AgentHistory { agent: "a", log, read, acknowledged: &acknowledged, traces })
}

fn only(found: &[String], word: &str) {
    assert!(found.len() == 1 && found[0].contains(word), "{found:?}");
}

#[test]
fn a_complete_log_breaks_no_promise() {
    assert_eq!(check_log(&log(), &log()[..7], &["m1", "m2"], TRACES), [""; 0]);
    // A call with an unknown outcome may have left no trace.
    assert_eq!(check_log(&log(), &log(), &["m1", "m2"], "number 1 c1\n"), [""; 0]);
}

#[test]
fn an_entry_that_is_gone_or_changed_is_seen() {
    let shorter = &log()[..9];
    only(&check_log(shorter, &log(), &["m1", "m2"], TRACES), "is gone from the log of a");
    let mut other = log();
    other[1] = other[1].replace("id-2", "id-3");
    only(&check_log(&other, &log(), &["m1", "m2"], TRACES), "line 2 was");
}

#[test]
fn a_gap_is_seen() {
    let mut gap = log();
    gap[9] = runtime(11);
    only(&check_log(&gap, &[], &["m1", "m2"], TRACES), "a gap in the log of a: 11");
}

#[test]
fn a_message_that_is_lost_doubled_or_reordered_is_seen() {
    only(&check_log(&log(), &[], &["m1", "m2", "m3"], TRACES), "not in the log of a: m3");
    let mut twice = log();
    twice.push(input(11, "m1"));
    only(&check_log(&twice, &[], &["m1", "m2"], TRACES), "appears 2 times in the log of a: m1");
    only(&check_log(&log(), &[], &["m2", "m1"], TRACES), "in another order");
}

#[test]
fn a_call_that_ran_twice_or_unannounced_or_left_nothing_is_seen() {
    only(&check_log(&log(), &[], &[], "number 1 c1\nnumber 2 c2\nnumber 2 c2\n"), "the call c2 of a ran 2 times");
    only(&check_log(&log(), &[], &[], "number 1 c1\nnumber 3 c3\n"), "the call c3 of a ran before the log said so");
    only(&check_log(&log(), &[], &[], "number 2 c2\n"), "the call c1 of a succeeded and left no trace");
}

#[test]
fn a_call_that_was_open_at_a_death_must_be_marked() {
    let mut unmarked = log();
    unmarked.remove(8);
    let found = check_log(&unmarked, &[], &[], TRACES);
    assert!(found.iter().any(|text| text.contains("without marking the call c2")), "{found:?}");
}

#[test]
fn acknowledged_peer_messages_must_arrive_once_and_in_order() {
    let sender = |outcome: &str| {
        let call = |seq: u64, id: &str, text: &str| {
            [
                assistant(seq, id, "SendToPeerPod", &json!({ "to": "b", "message": text })),
                started(seq + 1, id, "SendToPeerPod"),
                ended(seq + 2, id, outcome),
            ]
        };
        [call(1, "c1", "told 1"), call(4, "c2", "told 2")].concat()
    };
    let received = |texts: &[&str]| -> Vec<String> {
        let body = |text: &str| json!({ "messageId": text, "from": { "namespace": "n", "name": "a", "uid": "u" }, "text": text });
        texts.iter().zip(1..).map(|(text, seq)| line(seq, "PeerMessage", &body(text))).collect()
    };
    let check = |outcome: &str, texts: &[&str]| peer_message_violations("a", &sender(outcome), "b", &received(texts));
    assert_eq!(check("succeeded", &["told 1", "told 2"]), [""; 0]);
    assert_eq!(check("unknown", &["told 2"]), [""; 0]);
    only(&check("succeeded", &["told 1"]), "b never got it");
    only(&check("unknown", &["told 1", "told 1"]), "received `told 1` from a 2 times");
    only(&check("succeeded", &["told 2", "told 1"]), "in another order");
}

#[test]
fn what_the_model_was_shown_must_be_in_the_log() {
    let shown = |kind: &str, text: &str| json!({ "system": "You are the agent \"a\".", "kind": kind, "text": text }).to_string();
    assert_eq!(unlogged_model_input("a", &log(), &[shown("user", "number m1"), shown("result", "out")].join("\n")), [""; 0]);
    only(&unlogged_model_input("a", &log(), &shown("user", "number m9")), "\"number m9\"");
    assert_eq!(unlogged_model_input("b", &log(), &shown("user", "number m9")), [""; 0], "another agent's");
    let of_two_paragraphs = [log(), vec![line(99, "SystemItem", &json!({ "topic": "Summary", "text": "one\n\ntwo" }))]].concat();
    assert_eq!(unlogged_model_input("a", &of_two_paragraphs, &[shown("user", "one"), shown("user", "two")].join("\n")), [""; 0]);
}
