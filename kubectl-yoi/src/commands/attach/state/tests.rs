use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use serde_json::{Value, json};
use yoi_wire::control::{ControlRefusal, Delta, DeltaKind};

use super::*;

fn line(value: Value) -> Event {
    Event::Line(Box::new(serde_json::from_value(value).unwrap()))
}

fn greeting(activity: &str) -> Event {
    line(
        json!({ "type": "greeting", "session": "s", "segment": "g", "activity": activity, "tokens": { "inputTokens": 1, "outputTokens": 2 } }),
    )
}

fn entry(seq: u64, kind: &str, body: Value) -> Event {
    let entry = json!({ "id": "i", "seq": seq, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
    line(json!({ "type": "entry", "token": format!("t{seq}"), "entry": entry }))
}

fn delta(offset: u64, text: &str) -> Event {
    let delta = Delta { block: 1, kind: DeltaKind::Text, call_id: None, tool: None, offset, text: text.to_owned() };
    Event::Line(Box::new(AttachLine::Delta(delta)))
}

fn attached(activity: &str) -> AttachState {
    let mut state = AttachState::new("alice");
    assert!(state.apply(greeting(activity)).is_empty());
    state
}

fn press(state: &mut AttachState, code: KeyCode) -> Vec<Effect> {
    state.apply(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn control_key(state: &mut AttachState, c: char) -> Vec<Effect> {
    state.apply(Event::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)))
}

/// Types a text and Enter.
fn enter(state: &mut AttachState, text: &str) -> Vec<Effect> {
    state.apply(Event::Paste(text.to_owned()));
    press(state, KeyCode::Enter)
}

fn refused(reason: ControlReason, message: &str) -> Result<ControlResponse, String> {
    Ok(ControlResponse { refused: Some(ControlRefusal { reason, message: message.to_owned() }), ..ControlResponse::default() })
}

fn done(done: ControlDone) -> Result<ControlResponse, String> {
    Ok(ControlResponse { done: Some(done), ..ControlResponse::default() })
}

fn notice(state: &AttachState) -> &str {
    state.notice.as_ref().map_or("", |notice| &notice.text)
}

fn run(text: &str) -> ControlAction {
    ControlAction::Run { text: text.to_owned() }
}

#[test]
fn enter_starts_a_run_and_sends_to_one_under_way() {
    assert_eq!(enter(&mut attached("Idle"), "go"), [Effect::Control(run("go"))]);
    assert_eq!(enter(&mut attached("Paused"), "go"), [Effect::Control(run("go"))]);
    assert_eq!(enter(&mut attached("Running"), "go"), [Effect::Send("go".to_owned())]);
    assert_eq!(enter(&mut attached("Idle"), "::colon"), [Effect::Control(run(":colon"))]);
    assert!(enter(&mut attached("Idle"), " \n ").is_empty());
    let mut state = AttachState::new("alice");
    assert!(enter(&mut state, "go").is_empty() && state.input.text() == "go", "nothing is sent to an agent that has not answered");
}

#[test]
fn a_run_that_came_too_late_becomes_a_message() {
    let mut state = attached("Idle");
    let effects = state.apply(Event::Answered { action: run("go"), answer: refused(ControlReason::AlreadyRunning, "a run is under way") });
    assert_eq!(effects, [Effect::Send("go".to_owned())]);
}

#[test]
fn a_text_that_was_not_taken_comes_back() {
    let mut state = attached("Idle");
    enter(&mut state, "go");
    assert!(state.input.text().is_empty());
    state.apply(Event::Paste("more".to_owned()));
    state.apply(Event::Answered { action: run("go"), answer: refused(ControlReason::NotReady, "the model is not usable") });
    assert_eq!((state.input.text(), notice(&state)), ("go\nmore", "the model is not usable"));
    let mut state = attached("Running");
    state.apply(Event::Sent { text: "go".to_owned(), answer: Err("no line".to_owned()) });
    assert_eq!((state.input.text(), notice(&state)), ("go", "no line"));
    let long = "x".repeat(64 * 1024 + 1);
    let mut state = attached("Idle");
    assert!(enter(&mut state, &long).is_empty() && state.input.text() == long && notice(&state).contains("65536 bytes are allowed"));
}

#[test]
fn the_keys_pause_cancel_and_leave_and_say_when_there_is_no_run() {
    let mut state = attached("Running");
    assert_eq!(control_key(&mut state, 'c'), [Effect::Control(ControlAction::Pause {})]);
    assert_eq!(control_key(&mut state, 'x'), [Effect::Control(ControlAction::Cancel {})]);
    assert_eq!(control_key(&mut state, 'd'), [Effect::Leave]);
    let mut state = attached("Paused");
    assert!(control_key(&mut state, 'c').is_empty() && notice(&state).contains(":resume"));
    assert_eq!(control_key(&mut state, 'x'), [Effect::Control(ControlAction::Cancel {})]);
    assert_eq!(enter(&mut state, ":resume"), [Effect::Control(ControlAction::Resume {})]);
    let mut state = attached("Idle");
    for key in ['c', 'x'] {
        assert!(control_key(&mut state, key).is_empty() && notice(&state).contains("no run is under way"));
    }
    assert_eq!(enter(&mut state, ":quit"), [Effect::Leave]);
    assert_eq!(state.apply(Event::Terminated), [Effect::Leave]);
}

#[test]
fn a11_while_a_run_is_under_way_a_peer_is_refused_before_sending() {
    let peer = || [Effect::Control(ControlAction::RegisterPeer { peer: "bob".to_owned() })];
    let mut state = attached("Running");
    assert!(enter(&mut state, ":peer bob").is_empty() && notice(&state).contains("a run is under way"));
    assert_eq!(enter(&mut attached("Idle"), ":peer bob"), peer());
    assert_eq!(enter(&mut attached("Paused"), ":peer bob"), peer());
}

#[test]
fn a27_a_peer_is_answered_with_both_names_or_the_reason_and_a_wrong_name_locally() {
    let mut state = attached("Idle");
    for wrong in [":peer", ":peer x/y", ":peer alice"] {
        assert!(enter(&mut state, wrong).is_empty() && state.notice.as_ref().is_some_and(|notice| notice.is_warning), "{wrong}");
        state.input.take();
    }
    let action = || ControlAction::RegisterPeer { peer: "bob".to_owned() };
    let message = "alice and bob see each other and may send messages".to_owned();
    state.apply(Event::Answered { action: action(), answer: done(ControlDone { message, ..ControlDone::default() }) });
    assert_eq!(notice(&state), "alice and bob see each other and may send messages");
    state.apply(Event::Answered { action: action(), answer: refused(ControlReason::Failed, "YoiPod ns/bob does not exist") });
    assert_eq!(notice(&state), "YoiPod ns/bob does not exist");
}

#[test]
fn f8_a_stream_that_goes_on_doubles_and_loses_nothing() {
    let mut state = attached("Running");
    let input = |seq| entry(seq, "Input", json!({ "from": "task", "messageId": "m", "text": format!("input {seq}") }));
    for event in [input(1), input(2), delta(0, "hel"), Event::Broken("gone".to_owned()), greeting("Running"), input(2), input(3)] {
        state.apply(event);
    }
    for event in [delta(0, "hello"), delta(5, " you")] {
        state.apply(event);
    }
    assert_eq!(state.transcript.newest_first().map(|item| item.seq).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(state.blocks.iter().map(|block| block.text.as_str()).collect::<Vec<_>>(), ["hello you"]);
    state.apply(entry(4, "Assistant", json!({ "text": "hello you" })));
    assert_eq!(state.blocks.iter().count(), 0);
    state.apply(input(7));
    let texts: Vec<String> = state.transcript.newest_first().map(|item| format!("{:?}", item.content)).collect();
    assert!(texts[1].contains("2 entries before entry 7 did not come"), "{texts:?}");
}

#[test]
fn unfinished_blocks_end_with_their_run() {
    for end in [
        entry(1, "RunEnded", json!({ "runId": "r", "outcome": "failed" })),
        entry(1, "Paused", json!({ "runId": "r", "by": { "user": "j", "requestId": "q" } })),
        line(json!({ "type": "activity", "activity": "Idle", "tokens": { "inputTokens": 9, "outputTokens": 9 } })),
    ] {
        let mut state = attached("Running");
        state.apply(delta(0, "hel"));
        state.apply(end);
        assert_eq!(state.blocks.iter().count(), 0);
    }
}

#[test]
fn a_lost_stream_is_said_until_the_next_greeting() {
    let mut state = attached("Running");
    state.apply(line(json!({ "type": "ended" })));
    assert_eq!(state.connection, Connection::Broken("the agent stops or restarts".to_owned()));
    state.apply(Event::Broken("no line".to_owned()));
    assert_eq!(state.connection, Connection::Broken("no line".to_owned()));
    state.apply(greeting("Idle"));
    assert_eq!((state.connection, state.activity), (Connection::Attached, Some(Activity::Idle)));
}

fn targets() -> Result<ControlResponse, String> {
    let list = json!({ "segment": "g", "head": 9, "inputs": [{ "seq": 3, "text": "one" }, { "seq": 6, "text": "two" }] });
    done(ControlDone { rewind: Some(serde_json::from_value(list).unwrap()), ..ControlDone::default() })
}

#[test]
fn rewind_offers_the_inputs_and_goes_to_the_chosen_one() {
    let to = |seq| [Effect::Control(ControlAction::RewindTo { segment: "g".to_owned(), seq, head: 9 })];
    let ask = || Event::Answered { action: ControlAction::RewindTargets {}, answer: targets() };
    let mut state = attached("Idle");
    assert_eq!(enter(&mut state, ":rewind"), [Effect::Control(ControlAction::RewindTargets {})]);
    assert!(state.apply(ask()).is_empty());
    press(&mut state, KeyCode::Up);
    press(&mut state, KeyCode::Up);
    assert_eq!(press(&mut state, KeyCode::Enter), to(3));
    assert_eq!(state.panel, None);
    enter(&mut state, ":rewind 6");
    assert_eq!(state.apply(ask()), to(6));
    enter(&mut state, ":rewind 7");
    assert!(state.apply(ask()).is_empty() && notice(&state).contains("entry 7 is no input"));
    // The answer hands the input back and names what remains.
    let answer = ControlDone {
        message: "turned back".to_owned(),
        input: Some("two".to_owned()),
        remaining_effects: vec!["Write a.txt".to_owned()],
        rewind: None,
    };
    state.apply(Event::Answered { action: ControlAction::RewindTargets {}, answer: done(answer) });
    assert_eq!((state.input.text(), notice(&state)), ("two", "turned back"));
    assert!(format!("{:?}", state.transcript.newest_first().next()).contains("its effect remains: Write a.txt"));
}

#[test]
fn p69_a_call_that_waits_is_shown_first_and_takes_yes_always_and_no_with_a_reason() {
    let asked = |seq, unreadable: bool| {
        let call = format!("c{seq}");
        entry(
            seq,
            "ToolAsked",
            json!({ "callId": call, "tool": "Shell", "from": "model", "rules": ["Shell"], "unreadable": unreadable, "seconds": 60 }),
        )
    };
    let request = |call, approve, always, because: Option<&str>| {
        [Effect::Answer(ApprovalRequest { call, approve, always, because: because.map(str::to_owned) })]
    };
    let mut state = attached("NeedsInput");
    state.apply(asked(7, false));
    state.apply(asked(8, true));
    assert!(
        notice(&state).starts_with("call 7 of Shell waits for you: y lets it run, a it and all like it, n REASON"),
        "{}",
        notice(&state)
    );
    assert_eq!(enter(&mut state, "y"), request(7, true, false, None));
    assert_eq!(enter(&mut state, "a"), request(7, true, true, None));
    assert_eq!(enter(&mut state, "n not on a Friday"), request(7, false, false, Some("not on a Friday")));
    // Another text is a message, which waits.
    assert_eq!(enter(&mut state, "yes, but why?"), [Effect::Send("yes, but why?".to_owned())]);
    let answer = json!({ "approved": true, "by": "bob" });
    state.apply(entry(9, "ToolAnswered", json!({ "callId": "c7", "asked": 7, "answer": answer })));
    assert_eq!(notice(&state), "call 8 of Shell waits for you: y lets it run, n REASON refuses it");
    let response = serde_json::from_value(json!({ "call": 7, "answer": answer, "repeated": true })).unwrap();
    state.apply(Event::CallAnswered { answer: Ok(response) });
    assert_eq!(notice(&state), "bob approved call 7 before, and the first answer counts");
    state.apply(entry(10, "ToolEnded", json!({ "callId": "c8", "outcome": "refused", "output": "" })));
    assert_eq!(enter(&mut state, "y"), [Effect::Send("y".to_owned())], "nothing waits");
}
