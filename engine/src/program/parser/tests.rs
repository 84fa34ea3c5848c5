//! The recorded runs are those of the versions that the presets name, against the scripted model, with made-up tasks.

use serde_json::Value;
use yoi_wire::preset::ParserName;

use super::{MAX_OTHER_BYTES, copilot, parser_of};
use crate::program::event::ProgramEvent;

mod mutated;
mod recorded;

/// A program's recorded runs, and the kinds of lines that may become no event.
struct Program {
    parser: ParserName,
    runs: &'static [(&'static str, &'static str)],
    silent: &'static [&'static str],
}

macro_rules! runs {
    ($($name:literal),*) => { &[$(($name, include_str!(concat!("../recorded/", $name, ".jsonl")))),*] };
}

const PROGRAMS: &[Program] = &[
    Program {
        parser: ParserName::Claude,
        runs: runs!("claude-first", "claude-resumed", "claude-pods"),
        silent: &["system", "stream_event", "assistant"],
    },
    Program {
        parser: ParserName::Codex,
        runs: runs!("codex-first", "codex-resumed", "codex-pods"),
        silent: &["turn.started", "item.started", "item.updated", "item.completed"],
    },
    Program { parser: ParserName::Gemini, runs: runs!("gemini-first", "gemini-pods"), silent: &["message"] },
    Program { parser: ParserName::Copilot, runs: runs!("copilot-first", "copilot-resumed", "copilot-pods"), silent: copilot::SILENT },
    Program {
        parser: ParserName::Opencode,
        runs: runs!("opencode-first", "opencode-resumed", "opencode-pods"),
        silent: &["step_start", "reasoning"],
    },
    Program { parser: ParserName::Goose, runs: runs!("goose-by-its-source"), silent: &["message", "notification", "model_change"] },
];

impl Program {
    fn run(&self, name: &str) -> &'static str {
        self.runs.iter().find(|(known, _)| *known == name).expect("the run is recorded").1
    }

    fn events_of(&self, output: &[u8]) -> Vec<ProgramEvent> {
        let mut parser = parser_of(self.parser).expect("a program with a parser");
        let mut events: Vec<_> = output.split(|byte| *byte == b'\n').flat_map(|line| parser.push_line(line)).collect();
        events.extend(parser.finish());
        events
    }
}

fn program(parser: ParserName) -> &'static Program {
    PROGRAMS.iter().find(|program| program.parser == parser).expect("every program is in the list")
}

/// An event in one short line, for comparisons. Deltas are left out: they repeat the answers.
fn event_lines(events: &[ProgramEvent]) -> Vec<String> {
    let short = |text: &str| text.lines().next().unwrap_or_default().chars().take(60).collect::<String>();
    let line = |event: &ProgramEvent| match event {
        ProgramEvent::Session { id } => Some(format!("session {id}")),
        ProgramEvent::Delta { .. } => None,
        ProgramEvent::Answer(answer) => {
            let calls = answer.tool_calls.iter().map(|call| format!(" {}={}{}", call.call_id, call.tool, call.args));
            Some(format!("answer {:?}{}", answer.text, calls.collect::<String>()))
        }
        ProgramEvent::CallStarted { call_id, tool } => Some(format!("started {call_id} {tool}")),
        ProgramEvent::CallEnded { call_id, outcome, output } => Some(format!("ended {call_id} {outcome:?} {:?}", short(output))),
        ProgramEvent::Usage(usage) => Some(format!(
            "usage {} read, {} of them cached, {} written to the cache; {} written",
            usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens
        )),
        ProgramEvent::Notice { reason, message } => Some(format!("notice {reason} {message}")),
        ProgramEvent::Output { stream, text } => Some(format!("output {stream:?} {}", short(text))),
        ProgramEvent::Other { line } => Some(format!("other {}", short(line))),
        ProgramEvent::Result { succeeded, message } => Some(format!("result {succeeded} {message:?}")),
    };
    events.iter().filter_map(line).collect()
}

/// Whether a line may become no event: it is blank, or of a kind that the log keeps nothing of.
fn may_be_silent(program: &Program, line: &[u8]) -> bool {
    let parsed: Option<Value> = crate::foreign_json::from_slice(line).ok();
    let kind = parsed.as_ref().and_then(|parsed| parsed["type"].as_str());
    line.trim_ascii().is_empty() || kind.is_some_and(|kind| program.silent.contains(&kind))
}

#[test]
fn a_call_whose_result_was_cut_in_the_middle_of_a_character_has_its_end() {
    let line = br#"{"type":"user","parent_tool_use_id":null,"message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"half \ud83d"}]}}"#;
    assert_eq!(event_lines(&program(ParserName::Claude).events_of(line)), ["ended c Succeeded \"half \u{fffd}\""]);
}

#[test]
fn a_background_task_that_claude_stops_with_its_turn_is_told() {
    let line = |status: &str| {
        format!(
            r#"{{"type":"system","subtype":"task_notification","task_id":"b1","status":"{status}","summary":"make all","session_id":"s"}}"#
        )
    };
    let events = |status: &str| event_lines(&program(ParserName::Claude).events_of(line(status).as_bytes()));
    let told = "notice ProgramTaskStopped claude ended its turn while its background task b1 ran, and has stopped the task: make all";
    assert_eq!(events("stopped"), [told]);
    assert!(events("completed")[0].starts_with("other "), "{:?}", events("completed"));
}
