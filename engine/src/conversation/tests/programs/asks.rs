//! Calls of a program that wait for a person.

use yoi_wire::approval::{ApprovalRefusal, ApprovalRequest};

use super::*;

fn yes(call: u64) -> ApprovalRequest {
    ApprovalRequest { call, approve: true, always: false, because: None }
}

fn no(call: u64, because: &str) -> ApprovalRequest {
    ApprovalRequest { approve: false, because: Some(because.to_owned()), ..yes(call) }
}

impl Simulation {
    /// A hook that can wait, and the answer that it has so far.
    fn waiting_hook(&mut self, ask: AskId, call: ToolCall) -> Option<Result<String, String>> {
        self.asked_by(ask, call, CallFrom::Hook, 45)
    }

    fn asked_by(&mut self, ask: AskId, call: ToolCall, from: CallFrom, seconds: u64) -> Option<Result<String, String>> {
        let effect = self.effect();
        self.send(ConversationEvent::ProgramCall { effect, ask, call: decided_within(call, from, seconds) });
        self.hook_answer(ask)
    }

    fn hook_answer(&self, ask: AskId) -> Option<Result<String, String>> {
        self.acknowledged.iter().find(|(other, _)| *other == ask).map(|(_, result)| result.clone())
    }
}

/// A program at the question about its call; and its number.
fn at_question() -> (Simulation, u64) {
    let mut simulation = running();
    assert_eq!(simulation.waiting_hook(1, call("ask-a")), None, "answered before a person is");
    let question = simulation.waiting()[0];
    (simulation, question)
}

fn last_output(simulation: &Simulation) -> String {
    let mut ends = simulation.log.iter().filter_map(|entry| match &entry.body {
        Body::ToolEnded(end) => Some(end.output.clone()),
        _ => None,
    });
    ends.next_back().unwrap_or_default()
}

#[test]
fn p69_a_call_of_a_program_waits_as_long_as_its_hook_and_begins_when_a_person_says_yes() {
    let (mut simulation, question) = at_question();
    assert!(simulation.kinds().ends_with("Assistant ToolAsked"), "{}", simulation.kinds());
    let waiting = simulation.state.waiting_calls().remove(0);
    assert_eq!(
        (waiting.seconds, waiting.from, waiting.tool.as_str()),
        (45, CallFrom::Hook, "Bash"),
        "the hook waits 45 s of the policy's 60"
    );
    assert_eq!(simulation.state.activity(), Activity::NeedsInput);
    // Other calls go on meanwhile.
    assert_eq!(simulation.waiting_hook(2, call("two")), Some(Ok("two".to_owned())));
    assert_eq!(simulation.approve("jane", yes(question)).unwrap().answer.by, "jane");
    assert_eq!(simulation.hook_answer(1), Some(Ok("ask-a".to_owned())));
    assert!(simulation.kinds().ends_with("ToolAnswered ToolStarted"), "{}", simulation.kinds());
    let decision = simulation.log.iter().rev().find_map(|entry| match &entry.body {
        Body::ToolStarted(start) => start.decision.clone(),
        _ => None,
    });
    assert_eq!(decision, Some(CallDecision { rule: Some("Shell(a)".to_owned()), ..CallDecision::allowed(CallFrom::Hook) }));
    simulation.say(vec![ended("ask-a"), ended("two"), says("done"), succeeded()]);
    simulation.exit(exit(ProgramExit::Code(0)));
    assert_eq!((simulation.outcomes(), simulation.kinds().matches("ToolStarted").count()), (vec![RunOutcome::Finished], 2));
    // Who answers it now is told what counts.
    assert!(simulation.approve("bob", no(question, "late")).unwrap().repeated);
}

#[test]
fn p72_a_denial_the_end_of_its_time_and_a_withdrawn_tool_block_the_call_with_the_reason() {
    let (mut denied, question) = at_question();
    denied.approve("jane", no(question, "not on a Friday")).unwrap();
    let told = denied.hook_answer(1).unwrap().unwrap_err();
    assert_eq!(told, "not_approved: the call did not run: jane denied it: not on a Friday");
    assert_eq!((last_output(&denied), denied.tool_outcomes()), (told, vec![("ask-a".to_owned(), ToolOutcome::Refused)]));
    // The program tells of it once more, as a call that failed.
    let entries = denied.log.len();
    denied.say(vec![asks(&["ask-a"]), started("ask-a"), ended("ask-a")]);
    assert_eq!(denied.log.len(), entries, "{}", denied.kinds());

    let (mut late, question) = at_question();
    late.send(ConversationEvent::ApprovalExpired { question });
    assert!(late.hook_answer(1).unwrap().unwrap_err().contains("nobody answered within 45 s"));
    assert!(matches!(late.approve("jane", yes(question)), Err(ApprovalRefusal::Over(_))));

    let (mut withdrawn, question) = at_question();
    withdrawn.withdrawn.push("ask-a".to_owned());
    withdrawn.approve("jane", yes(question)).unwrap();
    assert_eq!(withdrawn.hook_answer(1), Some(Err("withdrawn".to_owned())));
    assert!(!withdrawn.kinds().contains("ToolStarted"), "{}", withdrawn.kinds());
}

#[test]
fn a_hook_that_goes_away_takes_its_question_with_it() {
    let (mut simulation, question) = at_question();
    simulation.send(ConversationEvent::ProgramCallWithdrawn { ask: 1 });
    assert!(last_output(&simulation).ends_with("the program did not wait for the answer"));
    assert!(simulation.waiting().is_empty() && matches!(simulation.approve("jane", yes(question)), Err(ApprovalRefusal::Over(_))));
    // One of two that ask about the same call.
    assert_eq!(simulation.waiting_hook(2, call("ask-b")), None);
    assert_eq!(simulation.waiting_hook(3, call("ask-b")), None);
    assert_eq!(simulation.kinds().matches("ToolAsked").count(), 2);
    simulation.send(ConversationEvent::ProgramCallWithdrawn { ask: 2 });
    let question = simulation.waiting()[0];
    simulation.approve("jane", yes(question)).unwrap();
    assert_eq!(simulation.hook_answer(3), Some(Ok("ask-b".to_owned())));
    // After its answer it changes nothing.
    let entries = simulation.log.len();
    simulation.send(ConversationEvent::ProgramCallWithdrawn { ask: 3 });
    assert_eq!(simulation.log.len(), entries);
}

#[test]
fn p71_a_call_of_a_program_ends_with_its_process_and_nobody_can_answer_it_any_more() {
    type End = fn(&mut Simulation);
    let ends: [(End, &str); 3] = [
        (|simulation| simulation.run_process(), "The runtime stopped before this tool began"),
        (|simulation| simulation.exit(exit(ProgramExit::Code(1))), "The program ended before this tool began"),
        (
            |simulation| {
                simulation.ask("c", ControlAction::Cancel {});
                simulation.settle();
            },
            "did not run",
        ),
    ];
    for (end, words) in ends {
        let (mut simulation, question) = at_question();
        end(&mut simulation);
        assert!(last_output(&simulation).contains(words), "{}", last_output(&simulation));
        assert_eq!(simulation.tool_outcomes(), [("ask-a".to_owned(), ToolOutcome::Refused)]);
        assert!(matches!(simulation.approve("jane", yes(question)), Err(ApprovalRefusal::Over(_))), "{words}");
        assert!(simulation.waiting().is_empty());
    }
}

#[test]
fn what_a_program_tells_of_a_call_before_its_hook_asks_is_no_begin_and_what_it_tells_meanwhile_neither() {
    let mut simulation = running();
    simulation.say(vec![asks(&["ask-a"]), started("ask-a")]);
    let hooked = ToolCall { call_id: "hook-1".to_owned(), ..call("ask-a") };
    // As the gate sees it, it has the id of the hook.
    let decision = super::super::simulation::decision(&call("ask-a"));
    let effect = simulation.effect();
    let decided = DecidedCall { call: hooked, from: CallFrom::Hook, decision, wait_seconds: 45 };
    simulation.send(ConversationEvent::ProgramCall { effect, ask: 1, call: Box::new(decided) });
    let question = simulation.waiting()[0];
    simulation.say(vec![started("ask-a")]);
    assert_eq!((simulation.hook_answer(1), simulation.waiting()), (None, vec![question]));
    simulation.approve("jane", yes(question)).unwrap();
    assert_eq!(simulation.hook_answer(1), Some(Ok("ask-a".to_owned())));
    simulation.say(vec![ended("ask-a")]);
    assert!(simulation.kinds().ends_with("Assistant ToolStarted ToolAsked ToolAnswered ToolStarted ToolEnded"), "{}", simulation.kinds());
}

#[test]
fn an_answer_for_all_calls_and_one_for_the_programs_own_name_of_a_tool_are_not_asked_for_again() {
    let (mut simulation, question) = at_question();
    simulation.approve("jane", ApprovalRequest { always: true, ..yes(question) }).unwrap();
    assert_eq!(simulation.waiting_hook(2, call("ask-more-a")), Some(Ok("ask-more-a".to_owned())));
    // A tool of Yoi's by the program's hook, then by its client of MCP, which cannot wait.
    let own = ToolCall { tool: "mcp__yoi__Command".to_owned(), ..call("ask-b") };
    assert_eq!(simulation.waiting_hook(3, own), None);
    let question = simulation.waiting()[0];
    simulation.approve("jane", yes(question)).unwrap();
    let by_mcp = ToolCall { call_id: "mcp-ask-b".to_owned(), tool: "Command".to_owned(), ..call("ask-b") };
    assert_eq!(simulation.asked_by(4, by_mcp, CallFrom::Mcp, 0), Some(Ok("ask-b".to_owned())));
    let alone = ToolCall { tool: "Command".to_owned(), ..call("mcp-ask-c") };
    assert!(simulation.asked_by(5, alone, CallFrom::Mcp, 0).unwrap().unwrap_err().contains("cannot wait"));
}
