//! Events of entries. `project/tests/events.rs` follows those of a project.

use std::collections::BTreeSet;

use serde_json::json;
use uuid::Uuid;
use yoi_wire::signal::TYPES;

use super::*;

const SESSION: &str = "0197c0de-0000-7000-8000-000000000001";

fn agent() -> AgentRef {
    AgentRef { namespace: "ns".to_owned(), name: "a".to_owned(), uid: "u".to_owned() }
}

fn stored(seq: u64, kind: &str, body: Value) -> StoredEntry {
    let entry = json!({"id": format!("e{seq}"), "seq": seq, "run": 1, "at": "2026-01-01T10:20:30.000Z", "kind": kind, "body": body});
    StoredEntry { entry: serde_json::from_value(entry).unwrap(), token: Token::After { segment: Uuid::nil(), seq } }
}

fn events(entries: &[StoredEntry]) -> Vec<CloudEvent> {
    let mut signals = Signals::new(&agent(), SESSION, "main", Token::Start);
    entries.iter().flat_map(|entry| signals.take(entry)).collect()
}

fn by() -> Value {
    json!({"user": "jane", "requestId": "r"})
}

/// A log with an entry of each kind that has an event.
fn every_kind() -> Vec<StoredEntry> {
    let agent_ref = json!({"namespace": "ns", "name": "b", "uid": "u-b"});
    let call = |id: &str| json!({"callId": id, "tool": "Read", "args": {"path": "x"}});
    let refused =
        |class: &str| json!({"callId": class, "outcome": "refused", "output": class, "decision": {"from": "model", "refused": class}});
    let bodies = [
        ("SessionStarted", json!({"session": SESSION, "agent": agent_ref, "format": 2})),
        ("RuntimeStarted", json!({"podUid": "p", "manifestDigest": "d"})),
        ("Input", json!({"from": "person", "messageId": "m", "user": "jane", "text": "t"})),
        ("PeerMessage", json!({"messageId": "n", "from": agent_ref, "text": "t"})),
        ("RunStarted", json!({"runId": "r", "cause": ["m"]})),
        ("Usage", json!({"usage": {"inputTokens": 1, "outputTokens": 0}, "reason": "failed"})),
        ("Notice", json!({"reason": "ModelUnreachable", "message": "m"})),
        ("Assistant", json!({"text": "I look.", "toolCalls": [call("c"), call("d"), call("e")]})),
        ("ToolAsked", json!({"callId": "c", "tool": "Read", "from": "model", "rules": ["Read"], "seconds": 60})),
        ("ToolAnswered", json!({"callId": "c", "asked": 9, "answer": {"approved": true, "by": "jane"}})),
        ("ToolStarted", json!({"callId": "c", "tool": "Read", "decision": {"from": "model"}})),
        ("ToolEnded", json!({"callId": "c", "outcome": "succeeded", "output": "o"})),
        ("ToolStarted", json!({"callId": "d", "tool": "Read"})),
        ("ToolEnded", json!({"callId": "d", "outcome": "timedOut", "output": "o", "millis": 5})),
        ("ToolEnded", refused("SandboxViolation")),
        ("ToolEnded", refused("SensitivePathDenied")),
        ("ToolEnded", refused("NetworkDenied")),
        ("Paused", json!({"runId": "r", "by": by()})),
        ("Resumed", json!({"runId": "r", "by": by()})),
        ("Abandoned", json!({"runId": "r", "by": by()})),
        ("RolledBack", json!({"runId": "r", "hidden": [], "by": by()})),
        ("RunEnded", json!({"runId": "r", "outcome": "cancelled", "by": by()})),
        ("Rewound", json!({"fromSeq": 3, "by": by()})),
        ("ConfigChanged", json!({"config": {"system": [], "tools": [], "model": {"api": "a", "name": "n"}}})),
        ("CompactionStarted", json!({"reason": "requested", "instruction": "i", "keepFromSeq": 1})),
        ("CompactionEnded", json!({"outcome": "used", "summary": "s"})),
        ("CompactionStarted", json!({"reason": "requested", "instruction": "i", "keepFromSeq": 1})),
        ("CompactionEnded", json!({"outcome": "failed", "summary": ""})),
        ("ModeSwitched", json!({"mode": "planning", "by": by()})),
        ("ToolRequested", json!({"callId": "engine-i", "tool": "Read", "args": {}, "by": by()})),
        ("ToolAsked", json!({"callId": "engine-i", "tool": "Read", "from": "engine", "rules": ["Read"], "seconds": 60})),
        (
            "ToolEnded",
            json!({"callId": "engine-i", "outcome": "refused", "output": "o", "decision": {"from": "engine", "refused": "ToolDenied"}}),
        ),
        ("ToolStarted", json!({"callId": "f", "tool": "Read"})),
        ("ToolEnded", json!({"callId": "f", "outcome": "timedOut", "output": "o", "millis": 5})),
        ("ToolStarted", json!({"callId": "g", "tool": "Read"})),
        ("ToolEnded", json!({"callId": "g", "outcome": "timedOut", "output": "o", "millis": 5})),
        ("RunStarted", json!({"runId": "s", "cause": []})),
        ("RunEnded", json!({"runId": "s", "outcome": "limitReached", "reason": "LimitReached"})),
        ("ToolEnded", refused("EnvDenied")),
        (
            "Extension",
            json!({"name": "yoi/sandbox-exception", "data": {"callId": "c", "tool": "Read", "path": "/usr/x", "reason": "Headers"}}),
        ),
        ("ToolEnded", refused("SubagentDenied")),
        ("ToolEnded", refused("SubagentQuota")),
        ("Extension", json!({"name": "yoi/queue-overflow", "data": {"limit": 256}})),
        ("Extension", json!({"name": "yoi/stopped", "data": {}})),
        ("Extension", json!({"name": "yoi/ssh", "data": {"id": "i", "user": "ann"}})),
        ("Extension", json!({"name": "yoi/ssh", "data": {"id": "i", "user": "ann", "ended": {"seconds": 1, "killed": 0}}})),
        ("Extension", json!({"name": "yoi/subagents", "data": {"change": {"name": "sub-1", "state": "running"}, "subagents": []}})),
        ("Extension", json!({"name": "yoi/subagents", "data": {"change": {"name": "sub-1", "state": "completed"}, "subagents": []}})),
        ("Extension", json!({"name": "yoi/subagents", "data": {"change": {"name": "sub-2", "state": "failed"}, "subagents": []}})),
        ("Extension", json!({"name": "yoi/subagents", "data": {"change": {"name": "sub-3", "state": "stopped"}, "subagents": []}})),
        ("Extension", json!({"name": "yoi/subagents", "data": {"change": null, "subagents": []}})),
        ("Extension", json!({"name": "x/y", "data": 1})),
        ("Extension", json!({"name": "yoi/assets", "data": {"outcome": "Loaded", "generation": 1}})),
        ("Extension", json!({"name": "yoi/assets", "data": {"outcome": "Reloaded", "generation": 2}})),
        ("Extension", json!({"name": "yoi/assets", "data": {"outcome": "Refused", "refused": true}})),
        ("Teleported", json!({"to": "mars"})),
    ];
    bodies.into_iter().zip(1..).map(|((kind, body), seq)| stored(seq, kind, body)).collect()
}

#[test]
fn every_type_of_the_list_comes_of_some_entry_and_no_other_does() {
    let entries = every_kind();
    // A body in a shape that is not the kind's would count as unknown, and have no event.
    let unknown: Vec<&str> =
        entries.iter().filter(|entry| matches!(entry.entry.body, Body::Unknown { .. })).map(|entry| entry.entry.body.kind()).collect();
    assert_eq!(unknown, ["Teleported"]);
    let events = events(&entries);
    let found: BTreeSet<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(found, TYPES.into_iter().collect());
    for event in &events {
        let event = serde_json::to_value(event).unwrap();
        // What CloudEvents 1.0 asks of every event, extensions included.
        let is_name = |name: &String| name.len() <= 20 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        assert!(event.as_object().unwrap().keys().all(is_name), "{event}");
        let has = |name: &str| event[name].as_str().is_some_and(|value| !value.is_empty());
        assert!(["id", "source", "type", "subject", "time"].into_iter().all(has) && event["specversion"] == "1.0", "{event}");
    }
    let ids: BTreeSet<&str> = events.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids.len(), events.len(), "an id stands for one event");
    let cursors: BTreeSet<&str> = events.iter().map(|event| event.cursor.as_str()).collect();
    assert_eq!(cursors.len(), events.len(), "a cursor is after one event");
}

#[test]
fn an_event_names_what_it_follows_from() {
    let events = events(&every_kind());
    let cause = |kind: &str| {
        let event = events.iter().find(|event| event.kind == kind).unwrap();
        event.causeid.clone().unwrap_or_default().replace(SESSION, "")
    };
    for (kind, from) in [
        ("conversation.user.message", ""),
        ("conversation.run.opened", "/3"),
        ("conversation.llm.completed", "/5"),
        ("conversation.assistant.message", "/8"),
        ("conversation.tool.requested", "/8"),
        ("policy.asked", "/8/3"),
        ("policy.answered", "/9"),
        ("policy.allowed", "/8/3"),
        ("conversation.execution.started", "/8/3"),
        ("conversation.tool.completed", "/11"),
        ("conversation.tool.timeout", "/13"),
        ("conversation.run.closed", "/5"),
        ("conversation.compaction.completed", "/25"),
    ] {
        assert_eq!(cause(kind), from, "{kind}");
    }
    let inside = events.iter().find(|event| event.kind == "conversation.tool.completed").unwrap();
    assert_eq!((inside.runid.as_deref(), inside.source.as_str(), inside.subject.as_str()), (Some("r"), "/namespaces/ns/yoipods/a", "main"));
}

#[test]
fn a_cursor_is_its_text_and_what_is_none_is_refused() {
    let token = Token::After { segment: Uuid::nil(), seq: 7 };
    for cursor in [Cursor::default(), Cursor { token, taken: 0 }, Cursor { token: Token::Start, taken: 2 }, Cursor { token, taken: 3 }] {
        assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
    }
    for text in ["", "~", "x", "start~", "start~-1", "7", "~1"] {
        assert!(text.parse::<Cursor>().is_err(), "{text}");
    }
}

#[test]
fn a_segment_carries_what_the_events_after_its_begin_follow_from() {
    let head =
        json!({"number": 2, "format": 2, "reason": "full", "config": {"system": [], "tools": [], "model": {"api": "a", "name": "n"}}});
    let call = json!({"callId": "c", "tool": "Read", "args": {}});
    let state = json!({"delivered": {"m": 2}, "unanswered": ["m"], "openRun": {"runId": "r", "cause": [], "seq": 1},
        "openCalls": [{"call": call, "started": 4}]});
    let entries = [
        stored(1, "RunStarted", json!({"runId": "r", "cause": []})),
        stored(2, "Input", json!({"from": "person", "messageId": "m", "text": "t"})),
        stored(3, "Assistant", json!({"text": "", "toolCalls": [call]})),
        stored(4, "ToolStarted", json!({"callId": "c", "tool": "Read"})),
        stored(5, "SegmentStarted", head),
        stored(6, "Carried", json!({"state": state})),
        stored(7, "ToolEnded", json!({"callId": "c", "outcome": "succeeded", "output": "o"})),
        stored(8, "RunEnded", json!({"runId": "r", "outcome": "finished"})),
        stored(9, "RunStarted", json!({"runId": "s", "cause": ["m"]})),
    ];
    let whole = events(&entries);
    let mut signals = Signals::new(&agent(), SESSION, "main", entries[3].token);
    let later: Vec<CloudEvent> = entries[4..].iter().flat_map(|entry| signals.take(entry)).collect();
    assert_eq!(later, whole[whole.len() - later.len()..]);
    let causes: Vec<String> = later.iter().map(|event| event.causeid.clone().unwrap_or_default().replace(SESSION, "")).collect();
    assert_eq!(causes, ["/4", "/1", "/2"]);
    assert_eq!(later[0].runid.as_deref(), Some("r"));
}

#[test]
fn p24_the_third_timeout_of_one_tool_is_told_of_as_such_and_those_of_another_count_for_themselves() {
    let timeout = |n: u64, tool: &str| {
        let id = format!("c{n}");
        [
            stored(2 * n, "ToolStarted", json!({"callId": id, "tool": tool})),
            stored(2 * n + 1, "ToolEnded", json!({"callId": id, "outcome": "timedOut", "output": "o", "millis": 5})),
        ]
    };
    let entries: Vec<StoredEntry> =
        ["Shell", "Grep", "Shell", "Grep", "Shell", "Shell"].iter().zip(1..).flat_map(|(tool, n)| timeout(n, tool)).collect();
    let told: Vec<(String, Value)> = events(&entries)
        .into_iter()
        .filter(|event| event.kind == "security.repeated_timeout_failures")
        .map(|event| (event.causeid.unwrap().replace(SESSION, ""), event.data))
        .collect();
    assert_eq!(told, [("/10".to_owned(), json!({"callId": "c5", "tool": "Shell", "timeouts": 3}))]);
}
