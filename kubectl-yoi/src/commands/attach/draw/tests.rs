use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::*;
use crate::commands::attach::state::Event;

fn apply(state: &mut AttachState, value: Value) {
    state.apply(Event::Line(Box::new(serde_json::from_value(value).unwrap())));
}

fn entry(seq: u64, kind: &str, body: Value) -> Value {
    let entry = json!({ "id": "i", "seq": seq, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
    json!({ "type": "entry", "token": format!("t{seq}"), "entry": entry })
}

fn delta(block: u64, kind: &str, call: Option<&str>, text: &str) -> Value {
    json!({ "type": "delta", "block": block, "kind": kind, "callId": call, "tool": call.map(|_| "Shell"), "offset": 0, "text": text })
}

/// The letters of the screen, without spaces at the ends of lines, and how far it is scrolled.
fn screen(state: &AttachState, width: u16, height: u16) -> (String, usize) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut scroll = 0;
    terminal.draw(|frame| scroll = draw(state, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    ((0..height).map(row).collect::<Vec<_>>().join("\n"), scroll)
}

fn greeted() -> AttachState {
    let mut state = AttachState::new("alice");
    let tokens = json!({ "inputTokens": 12_300, "outputTokens": 450, "cachedTokens": 8000 });
    apply(&mut state, json!({ "type": "greeting", "session": "s", "segment": "g", "activity": "Running", "tokens": tokens }));
    state
}

fn working() -> AttachState {
    let mut state = greeted();
    let calls = json!([{ "callId": "c1", "tool": "Edit", "args": { "path": "a.rs", "old": "x\nold", "new": "x\nnew" } },
        { "callId": "c2", "tool": "Shell", "args": { "command": "cargo test" } }]);
    apply(&mut state, entry(1, "Input", json!({ "from": "person", "messageId": "m", "user": "jane", "text": "make it \u{1b}[31mgreen" })));
    apply(&mut state, entry(2, "Assistant", json!({ "text": "I shall look at the tests first.", "toolCalls": calls })));
    apply(&mut state, entry(3, "ToolEnded", json!({ "callId": "c1", "outcome": "succeeded", "output": "1 replaced", "millis": 3 })));
    apply(&mut state, entry(4, "ToolStarted", json!({ "callId": "c2", "tool": "Shell" })));
    apply(&mut state, delta(1, "toolOutput", Some("c2"), "one\ntwo\nthree\nfour"));
    state
}

#[test]
fn a_working_agent_shows_text_edits_and_the_end_of_what_a_tool_prints() {
    let golden = [
        "  person jane: make it ^[[31mgreen",
        "   agent I shall look at the tests first.",
        "    tool ▸ Edit a.rs  succeeded in 3 ms",
        "          x",
        "         -old",
        "         +new",
        "    tool ▸ Shell cargo test  runs",
        "         two",
        "         three",
        "         four",
        "────────────────────────────────────────────────────────────",
        ">",
        " alice  Running  12.3k tokens in (8.0k cached), 450 … :help",
    ];
    assert_eq!(screen(&working(), 60, 13).0, golden.join("\n"));
}

#[test]
fn open_tools_show_arguments_and_output_and_folded_ones_do_not() {
    let mut state = working();
    assert!(!screen(&state, 60, 30).0.contains("1 replaced"));
    state.tools_open = true;
    let open = screen(&state, 60, 30).0;
    for part in ["▾ Edit a.rs", "1 replaced", "\"command\": \"cargo test\"", "\n         one\n"] {
        assert!(open.contains(part), "{part} is not in\n{open}");
    }
}

#[test]
fn what_is_being_written_stands_at_the_end_and_long_reasoning_is_folded() {
    let mut state = greeted();
    apply(&mut state, delta(1, "reasoning", None, "a\nb\nc\nd\ne"));
    apply(&mut state, delta(2, "text", None, "Now the"));
    let shown = screen(&state, 50, 10).0;
    assert!(shown.contains("c\n         d\n         e\n   agent Now the\n") && !shown.contains(" b\n"), "{shown}");
}

#[test]
fn the_screen_shows_the_end_and_scrolls_no_further_than_the_begin() {
    let mut state = greeted();
    for seq in 1..=30 {
        apply(&mut state, entry(seq, "Input", json!({ "from": "task", "messageId": "m", "text": format!("input {seq}.") })));
    }
    let (end, scroll) = screen(&state, 40, 8);
    assert!(scroll == 0 && end.contains("input 30.") && end.contains("input 26.") && !end.contains("input 25."), "{end}");
    state.scroll = 3;
    let (back, scroll) = screen(&state, 40, 8);
    assert!(scroll == 3 && back.contains("input 27.") && back.contains("input 23.") && !back.contains("input 28."), "{back}");
    state.scroll = 1000;
    let (begin, scroll) = screen(&state, 40, 8);
    assert!(scroll == 25 && begin.starts_with("    task input 1."), "{scroll}\n{begin}");
}

#[test]
fn the_input_grows_and_its_cursor_is_where_the_next_letter_goes() {
    let mut state = greeted();
    state.apply(Event::Paste("one two\nthree abcdefghijklmnopqr".to_owned()));
    let (lines, cursor) = input_lines(&state, 18);
    assert_eq!((lines, cursor), (vec!["one two".to_owned(), "three abcdefghijkl".to_owned(), "mnopqr".to_owned()], (2, 6)));
    state.input.home();
    assert_eq!(input_lines(&state, 18).1, (1, 0));
    let shown = screen(&state, 20, 8).0;
    assert!(shown.contains("\n> one two\n  three abcdefghijkl\n  mnopqr\n"), "{shown}");
    let mut full = greeted();
    full.apply(Event::Paste("abcd".to_owned()));
    assert_eq!(input_lines(&full, 4), (vec!["abcd".to_owned(), String::new()], (1, 0)));
}

#[test]
fn notices_lost_streams_and_panels_are_shown_in_any_size() {
    let mut state = working();
    state.apply(Event::Broken("failed to read the attach of YoiPod ns/alice: no line\n  next: look".to_owned()));
    state.apply(Event::Paste(":peer alice".to_owned()));
    let enter = ratatui::crossterm::event::KeyEvent::from(ratatui::crossterm::event::KeyCode::Enter);
    state.apply(Event::Key(enter));
    let shown = screen(&state, 100, 12).0;
    assert!(shown.contains("attaching again: failed to read") && shown.contains("alice cannot be its own peer"), "{shown}");
    state.panel = Some(Panel::Help);
    assert!(screen(&state, 80, 24).0.contains("Ctrl-C  pause the run"));
    let targets = json!({ "segment": "g", "head": 9, "inputs": [{ "seq": 3, "text": "one" }, { "seq": 6, "text": "two" }] });
    state.panel = Some(Panel::Rewind { targets: serde_json::from_value(targets).unwrap(), chosen: 1 });
    assert!(screen(&state, 80, 24).0.contains("       6  two"));
    for (width, height) in [(1, 1), (2, 3), (5, 4), (9, 2), (300, 90)] {
        screen(&state, width, height);
    }
}
