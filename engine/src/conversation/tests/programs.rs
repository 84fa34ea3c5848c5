use serde_json::json;
use yoi_wire::control::{ControlAction, ControlReason};
use yoi_wire::entry::{
    Assistant, Body, CallDecision, CallFrom, Entry, Extension, RefusalClass, RunOutcome, SegmentReason, TokenUsage, ToolCall, ToolEnded,
    ToolOutcome,
};
use yoi_wire::hub::{Activity, TaskState};

use super::super::program::{ProgramEnd, ProgramExit, ProgramRole};
use super::super::*;
use super::simulation::{Held, Simulation, answer, message};
use crate::program::event::ProgramEvent;

mod asks;

fn claude() -> Option<ProgramRole> {
    Some(ProgramRole { name: "claude".to_owned(), resumes: true, login_prompts: Vec::new() })
}

/// A process with a program as its agent, which runs with the task.
fn running() -> Simulation {
    let mut simulation = Simulation { program: claude(), hold: true, ..Simulation::new(Vec::new()) };
    simulation.run_process();
    simulation
}

fn call(id: &str) -> ToolCall {
    ToolCall { call_id: id.to_owned(), tool: "Bash".to_owned(), args: json!({ "command": id }) }
}

fn asks(ids: &[&str]) -> ProgramEvent {
    ProgramEvent::Answer(Assistant { tool_calls: ids.iter().map(|id| call(id)).collect(), ..answer("") })
}

fn ended(id: &str) -> ProgramEvent {
    ProgramEvent::CallEnded { call_id: id.to_owned(), outcome: ToolOutcome::Succeeded, output: "out".to_owned() }
}

fn started(id: &str) -> ProgramEvent {
    ProgramEvent::CallStarted { call_id: id.to_owned(), tool: "Bash".to_owned() }
}

fn says(text: &str) -> ProgramEvent {
    ProgramEvent::Answer(answer(text))
}

fn session(id: &str) -> ProgramEvent {
    ProgramEvent::Session { id: id.to_owned() }
}

fn succeeded() -> ProgramEvent {
    ProgramEvent::Result { succeeded: true, message: None }
}

fn decided(call: ToolCall) -> Box<DecidedCall> {
    decided_within(call, CallFrom::Hook, 0)
}

fn decided_within(call: ToolCall, from: CallFrom, wait_seconds: u64) -> Box<DecidedCall> {
    Box::new(DecidedCall { decision: super::simulation::decision(&call), from, call, wait_seconds })
}

fn exit(exit: ProgramExit) -> ProgramEnd {
    ProgramEnd { exit, last_words: "oh no".to_owned(), expects_result: true, turns_used_up: None }
}

impl Simulation {
    fn effect(&self) -> EffectId {
        self.effects.iter().find(|(_, held)| matches!(held, Held::Program)).expect("the program runs").0
    }

    fn say(&mut self, said: Vec<ProgramEvent>) {
        let effect = self.effect();
        self.send(ConversationEvent::ProgramSaid { effect, ask: 0, said });
    }

    fn hook(&mut self, ask: AskId, call: ToolCall) -> Option<Result<String, String>> {
        let effect = self.effect();
        self.send(ConversationEvent::ProgramCall { effect, ask, call: decided(call) });
        self.acknowledged.iter().find(|(other, _)| *other == ask).map(|(_, result)| result.clone())
    }

    fn exit(&mut self, end: ProgramEnd) {
        let effect = self.effect();
        self.effects.retain(|(id, _)| *id != effect);
        self.send(ConversationEvent::ProgramEnded { effect, end });
    }

    fn last_end(&self) -> (RunOutcome, Option<String>, Option<String>) {
        let end = self.log.iter().rev().find_map(|entry| match &entry.body {
            Body::RunEnded(end) => Some(end.clone()),
            _ => None,
        });
        let end = end.unwrap();
        (end.outcome, end.reason, end.message)
    }

    fn tool_outcomes(&self) -> Vec<(String, ToolOutcome)> {
        let ends = self.log.iter().filter_map(|entry| match &entry.body {
            Body::ToolEnded(ToolEnded { call_id, outcome, .. }) => Some((call_id.clone(), *outcome)),
            _ => None,
        });
        ends.collect()
    }
}

#[test]
fn a_program_is_given_its_task_and_what_it_does_stands_in_the_log_as_told_by_it() {
    let mut simulation = running();
    assert_eq!(simulation.programs, [("do it".to_owned(), None)]);
    simulation.say(vec![session("s1"), asks(&["one"])]);
    simulation.say(vec![started("one")]);
    simulation.say(vec![ended("one"), ProgramEvent::Other { line: "{\"new\":1}".to_owned() }, says("done"), succeeded()]);
    simulation.exit(exit(ProgramExit::Code(0)));
    assert_eq!(
        simulation.kinds(),
        "SessionStarted SegmentStarted RuntimeStarted Input RunStarted Extension Assistant ToolStarted ToolEnded Extension Assistant RunEnded"
    );
    let apis = simulation.log.iter().filter_map(|entry| match &entry.body {
        Body::Assistant(answer) => Some(answer.api.as_str()),
        _ => None,
    });
    assert!(apis.into_iter().all(|api| api == "program/claude"));
    assert!(matches!(&simulation.log[9].body, Body::Extension(Extension { name, .. }) if name == "program/line"));
    assert_eq!((simulation.task_state().0, simulation.state.activity()), (Some(TaskState::Succeeded), Activity::Idle));
}

#[test]
fn the_next_run_goes_on_in_the_programs_session_with_the_new_words_alone() {
    let mut simulation = running();
    simulation.say(vec![session("s1"), says("done"), succeeded()]);
    // What comes in the meantime waits.
    simulation.inbox.push(message("m"));
    simulation.wake();
    assert!(!simulation.kinds().contains("PeerMessage"));
    simulation.exit(exit(ProgramExit::Code(0)));
    assert_eq!(simulation.programs[1..], [("[message from agent b]\ntext of m".to_owned(), Some("s1".to_owned()))]);
    assert_eq!(simulation.causes(), [["t"], ["m"]]);
}

#[test]
fn a_program_without_sessions_of_its_own_begins_anew_each_time() {
    let role = ProgramRole { name: "command".to_owned(), resumes: false, login_prompts: Vec::new() };
    let mut simulation = Simulation { program: Some(role), hold: true, ..Simulation::new(Vec::new()) };
    simulation.run_process();
    simulation.say(vec![session("s1"), says("out")]);
    simulation.inbox.push(message("m"));
    simulation.exit(ProgramEnd { expects_result: false, ..exit(ProgramExit::Code(0)) });
    assert_eq!(simulation.programs[1..], [("[message from agent b]\ntext of m".to_owned(), None)]);
}

#[test]
fn a_call_that_the_policy_has_a_person_asked_about_is_refused_where_nobody_can_wait() {
    let mut simulation = running();
    let refused = simulation.hook(1, call("ask-a")).unwrap().unwrap_err();
    assert!(refused.starts_with("not_approved: ") && refused.contains("Shell(a)") && refused.contains("cannot wait"), "{refused}");
    assert!(simulation.kinds().ends_with("Assistant ToolEnded"), "{}", simulation.kinds());
    assert!(simulation.waiting().is_empty());
}

#[test]
fn a_call_is_durable_before_the_hook_gets_its_answer() {
    let mut simulation = running();
    let effect = simulation.effect();
    simulation.queue.push_back(ConversationEvent::ProgramCall { effect, ask: 7, call: decided(call("one")) });
    assert!(simulation.step());
    assert!(simulation.kinds().ends_with("Assistant ToolStarted"), "{}", simulation.kinds());
    assert!(simulation.acknowledged.is_empty(), "answered before both entries are durable");
    assert!(simulation.step() && simulation.acknowledged.is_empty());
    assert!(simulation.step());
    assert_eq!(simulation.acknowledged, [(7, Ok("one".to_owned()))]);
}

#[test]
fn a_call_that_hook_and_output_tell_is_in_the_log_once_in_whatever_order_they_come() {
    let order = [vec![0, 1, 2, 3], vec![1, 0, 2, 3], vec![1, 0, 3, 2], vec![0, 1, 3, 2], vec![1, 3, 0, 2]];
    for (hook_id, order) in ["one", "hook-1"].into_iter().flat_map(|id| order.iter().map(move |order| (id, order))) {
        let mut simulation = running();
        for step in order {
            match step {
                0 => simulation.say(vec![asks(&["one"])]),
                1 => assert!(simulation.hook(1, ToolCall { call_id: hook_id.to_owned(), ..call("one") }).unwrap().is_ok()),
                2 => simulation.say(vec![started("one"), ended("one")]),
                _ => simulation.say(vec![ended(hook_id)]),
            }
        }
        simulation.say(vec![says("done"), succeeded()]);
        simulation.exit(exit(ProgramExit::Code(0)));
        let end = "RunStarted Assistant ToolStarted ToolEnded Assistant RunEnded";
        assert!(simulation.kinds().ends_with(end), "{hook_id} {order:?}: {}", simulation.kinds());
    }
}

#[test]
fn however_many_and_long_calls_a_program_tells_of_its_log_and_its_next_segment_stay_bounded() {
    let mut simulation = running();
    let long = |n: usize| json!({ "command": "x".repeat(900 << 10), "n": n });
    let total = 200;
    for n in 0..total {
        let call = ToolCall { call_id: format!("h{n}"), tool: "Bash".to_owned(), args: long(n) };
        assert!(simulation.hook(n as AskId + 1, call).unwrap().is_ok());
    }
    assert_eq!(simulation.state.log.open_calls.len(), 64);
    let lost = simulation.tool_outcomes();
    assert_eq!((lost.len(), &lost[0]), (total - 64, &("h0".to_owned(), ToolOutcome::Unknown)));
    let entries = serde_json::to_string(&simulation.log).unwrap();
    assert!(entries.len() < total * (70 << 10), "{}", entries.len());
    assert!(entries.contains(&format!("cut: the arguments have {} bytes", long(0).to_string().len())));
    let carried: usize = simulation.state.carried().iter().map(|line| serde_json::to_string(line).unwrap().len()).sum();
    assert!(carried < 64 * (70 << 10), "{carried}");
    // The end of a lost call is not told twice, and that of an open one is found, also by the output that names it otherwise.
    let named = ToolCall { call_id: "o199".to_owned(), tool: "Bash".to_owned(), args: long(199) };
    simulation.say(vec![ProgramEvent::Answer(Assistant { tool_calls: vec![named], ..answer("") }), ended("o199"), ended("h0")]);
    assert_eq!(simulation.tool_outcomes()[total - 64..], [("h199".to_owned(), ToolOutcome::Succeeded)]);
    assert!(!simulation.kinds().contains("Extension"), "{}", simulation.kinds());
}

#[test]
fn a_tool_of_yois_that_the_program_calls_by_its_own_name_is_the_same_call() {
    let mut simulation = running();
    let own = ToolCall { tool: "mcp__yoi__ListPods".to_owned(), ..call("one") };
    simulation.say(vec![ProgramEvent::Answer(Assistant { tool_calls: vec![own], ..answer("") })]);
    let asked = ToolCall { call_id: "mcp-1".to_owned(), tool: "ListPods".to_owned(), ..call("one") };
    assert_eq!(simulation.hook(1, asked), Some(Ok("one".to_owned())));
    simulation.say(vec![ended("one")]);
    simulation.say(vec![ended("one")]);
    assert!(simulation.kinds().ends_with("RunStarted Assistant ToolStarted ToolEnded"), "{}", simulation.kinds());
    // As it is when the program's hook tells of the call first, by the program's id.
    let own = |id: &str| ToolCall { call_id: id.to_owned(), tool: "mcp__yoi__ListPods".to_owned(), ..call("two") };
    assert_eq!(simulation.hook(2, own("two")), Some(Ok("two".to_owned())));
    let asked = ToolCall { call_id: "mcp-2".to_owned(), tool: "ListPods".to_owned(), ..call("two") };
    assert_eq!(simulation.hook(3, asked), Some(Ok("two".to_owned())));
    simulation.say(vec![ended("mcp-2")]);
    simulation.say(vec![ProgramEvent::Answer(Assistant { tool_calls: vec![own("two")], ..answer("") }), ended("two")]);
    assert!(simulation.kinds().ends_with("ToolEnded Assistant ToolStarted ToolEnded"), "{}", simulation.kinds());
}

#[test]
fn a_paused_program_ends_and_goes_on_in_its_session_and_what_comes_late_changes_nothing() {
    let mut simulation = running();
    simulation.say(vec![session("s1"), asks(&["one", "two"]), started("one")]);
    let late = simulation.effect();
    assert!(simulation.ask("p", ControlAction::Pause {}).unwrap().done.is_some());
    assert_eq!(simulation.tool_outcomes(), [("one".to_owned(), ToolOutcome::Failed), ("two".to_owned(), ToolOutcome::Refused)]);
    assert_eq!((simulation.state.activity(), simulation.effects.len()), (Activity::Paused, 0));
    let entries = simulation.log.len();
    simulation.send(ConversationEvent::ProgramSaid { effect: late, ask: 8, said: vec![says("late")] });
    simulation.send(ConversationEvent::ProgramCall { effect: late, ask: 9, call: decided(call("late")) });
    simulation.send(ConversationEvent::ProgramEnded { effect: late, end: exit(ProgramExit::Code(0)) });
    assert_eq!(simulation.log.len(), entries);
    assert!(simulation.acknowledged.iter().filter(|(ask, _)| *ask >= 8).all(|(_, result)| result.is_err()));
    assert!(simulation.ask("r", ControlAction::Resume {}).unwrap().done.is_some());
    let (input, resumed) = simulation.programs.last().unwrap();
    assert!(input.starts_with("[Your work was interrupted") && resumed.as_deref() == Some("s1"), "{input}");
    simulation.say(vec![says("done"), succeeded()]);
    simulation.exit(exit(ProgramExit::Code(0)));
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished]);
}

#[test]
fn a_cancelled_program_ends_and_its_words_are_not_given_again() {
    let mut simulation = running();
    assert!(simulation.ask("c", ControlAction::Cancel {}).is_none(), "answered before its processes have ended");
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.outcomes(), [RunOutcome::Cancelled]);
    assert!(simulation.ask("x", ControlAction::Run { text: "other".to_owned() }).unwrap().done.is_some());
    assert_eq!(simulation.programs.last().unwrap().0, "other");
}

#[test]
fn compact_and_rewind_are_refused_because_the_program_keeps_its_own_conversation() {
    let mut simulation = running();
    simulation.say(vec![says("done"), succeeded()]);
    simulation.exit(exit(ProgramExit::Code(0)));
    for (id, action) in [
        ("c", ControlAction::Compact {}),
        ("t", ControlAction::RewindTargets {}),
        ("w", ControlAction::RewindTo { segment: String::new(), seq: 4, head: 9 }),
    ] {
        let refused = simulation.ask(id, action).unwrap().refused.unwrap();
        assert_eq!(refused.reason, ControlReason::NotSupported);
        assert!(refused.message.contains("keeps its own conversation"));
    }
}

#[test]
fn a_program_that_was_killed_with_its_runtime_goes_on_and_its_open_call_is_unknown() {
    let mut simulation = running();
    simulation.say(vec![session("s1"), asks(&["one"]), started("one")]);
    simulation.run_process();
    assert_eq!(simulation.tool_outcomes(), [("one".to_owned(), ToolOutcome::Unknown)]);
    assert_eq!(simulation.outcomes(), [RunOutcome::Interrupted]);
    let (input, resumed) = simulation.programs.last().unwrap();
    assert!(input.starts_with("[Your work was interrupted") && resumed.as_deref() == Some("s1"));
}

#[test]
fn a_program_that_had_not_said_anything_is_given_its_words_again_after_a_restart() {
    let mut simulation = running();
    simulation.say(vec![session("s1")]);
    simulation.run_process();
    assert_eq!(simulation.programs, [("do it".to_owned(), None), ("do it".to_owned(), None)]);
}

#[test]
fn a_program_that_tells_of_a_call_only_when_it_has_ended_is_told_after_a_restart_to_look_first() {
    let mut simulation = running();
    simulation.say(vec![session("s1")]);
    let usage = TokenUsage { input_tokens: 9, output_tokens: 2, ..TokenUsage::default() };
    simulation.send(ConversationEvent::Used { usage, reason: "Program".to_owned() });
    simulation.run_process();
    let (input, _) = simulation.programs.last().unwrap();
    assert!(input.starts_with("do it\n\n[Your work was interrupted"), "{input}");
    assert_eq!(simulation.programs.len(), 2);
}

#[test]
fn every_way_to_end_has_an_outcome_and_last_words() {
    let ends = [
        (vec![], exit(ProgramExit::Code(0)), RunOutcome::Failed, Some("ProgramFailed"), "ended without a result; its last words: oh no"),
        (vec![], exit(ProgramExit::Code(3)), RunOutcome::Failed, Some("ProgramFailed"), "exit code 3; its last words: oh no"),
        (vec![], exit(ProgramExit::Signal(9)), RunOutcome::Failed, Some("ProgramFailed"), "signal 9"),
        (vec![], exit(ProgramExit::Missing), RunOutcome::Failed, Some("ProgramMissing"), "oh no"),
        (vec![], exit(ProgramExit::Silent), RunOutcome::Failed, Some("ProgramSilent"), "oh no"),
        (vec![succeeded()], exit(ProgramExit::Code(1)), RunOutcome::Finished, None, ""),
        (vec![succeeded()], exit(ProgramExit::Silent), RunOutcome::Finished, None, ""),
        (
            vec![ProgramEvent::Result { succeeded: false, message: Some("no credit".to_owned()) }],
            exit(ProgramExit::Code(0)),
            RunOutcome::Failed,
            Some("ProgramFailed"),
            "no credit",
        ),
        (vec![], ProgramEnd { expects_result: false, ..exit(ProgramExit::Code(0)) }, RunOutcome::Finished, None, ""),
    ];
    for (said, end, outcome, reason, words) in ends {
        let mut simulation = running();
        simulation.say(said);
        simulation.exit(end.clone());
        let last = simulation.last_end();
        assert_eq!((last.0, last.1.as_deref()), (outcome, reason), "{end:?}");
        assert!(last.2.unwrap_or_default().contains(words), "{end:?}");
    }
}

#[test]
fn a_program_that_asks_for_its_login_or_wants_more_turns_says_so_by_its_reason() {
    let refused = || ProgramEvent::Result { succeeded: false, message: Some("Not logged in · Please run /login".to_owned()) };
    let with_login = ProgramRole { login_prompts: vec!["Please run /login".to_owned()], ..claude().unwrap() };
    for (role, reason) in [(claude().unwrap(), "ProgramFailed"), (with_login, "ProgramLoginNeeded")] {
        let mut simulation = Simulation { program: Some(role), hold: true, ..Simulation::new(Vec::new()) };
        simulation.run_process();
        simulation.say(vec![refused()]);
        simulation.exit(exit(ProgramExit::Code(1)));
        assert_eq!(simulation.ends(), [(RunOutcome::Failed, Some(reason.to_owned()))]);
    }
    let mut simulation = running();
    simulation.exit(ProgramEnd { turns_used_up: Some(9), ..exit(ProgramExit::Limit) });
    let last = simulation.last_end();
    assert_eq!((last.0, last.2.as_deref()), (RunOutcome::LimitReached, Some("the limit of 9 model calls in one run was reached")));
}

#[test]
fn a_program_whose_home_was_full_begins_anew_also_after_a_restart() {
    let mut simulation = running();
    simulation.say(vec![session("s1"), says("I begin"), says("more")]);
    simulation.exit(exit(ProgramExit::HomeFull));
    assert_eq!(simulation.ends(), [(RunOutcome::Failed, Some("ProgramHomeFull".to_owned()))]);
    simulation.inbox.push(message("m"));
    simulation.run_process();
    assert_eq!(simulation.programs[1..], [("[message from agent b]\ntext of m".to_owned(), None)]);
    simulation.say(vec![session("s2"), says("again"), succeeded()]);
    simulation.inbox.push(message("n"));
    simulation.exit(exit(ProgramExit::Code(0)));
    assert_eq!(simulation.programs[2..], [("[message from agent b]\ntext of n".to_owned(), Some("s2".to_owned()))]);
}

/// A program that has done its task and cannot go on in its session with the next message.
fn with_lost_session() -> Simulation {
    let mut simulation = running();
    simulation.say(vec![session("s1"), asks(&["one"]), started("one"), ended("one"), says("done"), succeeded()]);
    simulation.exit(exit(ProgramExit::Code(0)));
    simulation.inbox.push(message("m"));
    simulation.wake();
    assert_eq!(simulation.programs[1].1.as_deref(), Some("s1"));
    simulation.say(vec![ProgramEvent::Result { succeeded: false, message: Some("no conversation found".to_owned()) }]);
    simulation.exit(exit(ProgramExit::Code(1)));
    simulation
}

#[test]
fn a_program_whose_session_is_lost_begins_anew_with_what_the_log_knows() {
    let mut simulation = with_lost_session();
    assert_eq!((simulation.outcomes(), simulation.programs.len()), (vec![RunOutcome::Finished], 3));
    let (input, resumed) = simulation.programs.last().unwrap();
    assert_eq!(*resumed, None);
    let words =
        ["[message from agent b]\ntext of m\n\n[Your own record", "[task] do it\n[you called] Bash {\"command\":\"one\"}\n[you] done"];
    assert!(input.starts_with(words[0]) && input.ends_with(words[1]), "{input}");
    let notice = simulation.log.iter().find_map(|entry| match &entry.body {
        Body::Notice(notice) if notice.reason == "ProgramSessionLost" => Some(notice.message.clone()),
        _ => None,
    });
    let notice = notice.unwrap();
    assert!(notice.contains("session s1") && notice.contains("no conversation found"), "{notice}");
    // What a condition says of it has none of the program's words.
    let lost = simulation.state.lost_program_session().unwrap();
    assert!(lost.starts_with("program claude could not go on") && !lost.contains("no conversation found"), "{lost}");
    // A process that is started in the middle gives it the same again.
    simulation.run_process();
    let (again, resumed) = simulation.programs.last().unwrap();
    assert!(again.contains(words[1]) && resumed.is_none(), "{again}");
    assert_eq!(simulation.state.lost_program_session(), Some(lost));
    simulation.say(vec![session("s2"), says("I go on"), succeeded()]);
    simulation.exit(exit(ProgramExit::Code(0)));
    simulation.inbox.push(message("n"));
    simulation.wake();
    assert_eq!(*simulation.programs.last().unwrap(), ("[message from agent b]\ntext of n".to_owned(), Some("s2".to_owned())));
}

#[test]
fn a_program_that_cannot_begin_without_its_session_either_keeps_it() {
    let mut simulation = with_lost_session();
    simulation.exit(exit(ProgramExit::Code(1)));
    assert_eq!(simulation.ends().last().unwrap(), &(RunOutcome::Failed, Some("ProgramFailed".to_owned())));
    assert_eq!(simulation.state.lost_program_session(), None, "it has it still");
    simulation.inbox.push(message("n"));
    simulation.run_process();
    let (input, resumed) = simulation.programs.last().unwrap();
    assert!(resumed.as_deref() == Some("s1") && !input.contains("Your own record"), "{resumed:?} {input}");
    // It names its session, so it has begun, and its failure is of another kind.
    let runs = simulation.programs.len();
    simulation.say(vec![session("s1")]);
    simulation.exit(exit(ProgramExit::Code(1)));
    assert_eq!((simulation.programs.len(), simulation.ends().len()), (runs, 3));
}

#[test]
fn the_token_limit_holds_over_restarts() {
    let settings = RunSettings { tokens: Some(100), ..RunSettings::default() };
    let mut simulation = Simulation { program: claude(), hold: true, settings, ..Simulation::new(Vec::new()) };
    simulation.run_process();
    let usage = TokenUsage { input_tokens: 90, output_tokens: 20, ..TokenUsage::default() };
    simulation.send(ConversationEvent::Used { usage, reason: "Program".to_owned() });
    simulation.say(vec![says("more")]);
    simulation.exit(exit(ProgramExit::Code(1)));
    assert_eq!(simulation.outcomes(), [RunOutcome::LimitReached]);
    simulation.inbox.push(message("m"));
    simulation.run_process();
    assert_eq!((simulation.outcomes(), simulation.programs.len()), (vec![RunOutcome::LimitReached; 2], 1));
}

#[test]
fn a_new_segment_carries_the_session_and_only_what_the_program_was_not_given() {
    let mut simulation = running();
    simulation.say(vec![session("s1"), says("done"), succeeded()]);
    simulation.exit(exit(ProgramExit::Code(0)));
    simulation.send(ConversationEvent::SegmentFull);
    let head = simulation.log.iter().rposition(|entry| matches!(entry.body, Body::SegmentStarted(_))).unwrap();
    assert!(matches!(&simulation.log[head].body, Body::SegmentStarted(start) if start.reason == SegmentReason::Full));
    assert_eq!(simulation.kinds_from(head), "SegmentStarted Carried");
    // A process that reads no more than this segment.
    let carried: Vec<Entry> = simulation.log.split_off(head);
    simulation.log = carried;
    simulation.first_seq = simulation.log[0].seq;
    simulation.inbox.push(message("m"));
    simulation.run_process();
    let (input, resumed) = simulation.programs.last().unwrap();
    assert_eq!((input.as_str(), resumed.as_deref()), ("[message from agent b]\ntext of m", Some("s1")));
}

#[test]
fn a_refused_call_of_a_program_is_in_the_log_before_its_hook_hears_of_it() {
    let mut simulation = running();
    let refused = simulation.hook(1, call("bad"));
    assert_eq!(refused, Some(Err("no".to_owned())));
    assert!(simulation.kinds().ends_with("Assistant ToolEnded"), "{}", simulation.kinds());
    let decision = CallDecision { from: CallFrom::Hook, refused: Some(RefusalClass::InvalidArgs), rule: None };
    let is_recorded = matches!(&simulation.log.last().unwrap().body, Body::ToolEnded(end) if end.decision.as_ref() == Some(&decision));
    assert!(is_recorded, "the log does not have the decision");
    // The program tells of it once more, as a call that failed.
    let entries = simulation.log.len();
    simulation.say(vec![started("bad"), ended("bad")]);
    assert_eq!(simulation.log.len(), entries, "{}", simulation.kinds());
    // One that its output told first ends as refused, too.
    let mut simulation = running();
    simulation.say(vec![asks(&["bad"])]);
    assert_eq!(simulation.hook(2, call("bad")), Some(Err("no".to_owned())));
    assert!(simulation.kinds().ends_with("RunStarted Assistant ToolEnded"), "{}", simulation.kinds());
}
