use serde_json::json;
use yoi_session::inbox::{InboxMessage, Sender, Wake};
use yoi_wire::control::ControlAction;
use yoi_wire::entry::{Assistant, Body, OfferedTool, RunOutcome, ToolCall};

use super::super::project;
use super::simulation::{Simulation, answer, calls, message};
use crate::assets::{AssetOffer, Expansion, GRAPH, SKILL, looks_like_command};

/// `/review X` is a command; `/wrong` is one with a parameter too few.
fn expand(text: &str) -> Expansion {
    match text.split_once(' ').unwrap_or((text, "")) {
        ("/review", what) => Expansion::Text { text: format!("Review {what} with care."), path: ".claude/commands/review.md".to_owned() },
        ("/wrong", _) => Expansion::Refused { message: "/wrong needs a value for target".to_owned() },
        _ => Expansion::NoCommand,
    }
}

fn offer(list: &str, tools: &[&str]) -> AssetOffer {
    let tool = |name: &&str| OfferedTool { name: (*name).to_owned(), description: String::new(), schema: json!({}) };
    AssetOffer { list: (!list.is_empty()).then(|| format!("Skills of this repository. {list}")), tools: tools.iter().map(tool).collect() }
}

fn simulation(script: Vec<Assistant>) -> Simulation {
    Simulation { expand: Some(expand), ..Simulation::idle(script) }
}

fn person(id: &str, text: &str) -> InboxMessage {
    InboxMessage { id: id.to_owned(), from: Sender::Person { user: "jane".to_owned() }, text: text.to_owned(), wake: Wake::Run }
}

#[test]
fn the_log_has_a_persons_words_and_what_they_stand_for_and_a_replay_needs_no_tree() {
    let mut simulation = simulation(vec![answer("done"), answer("again")]);
    simulation.inbox.push(person("m", "/review the parser"));
    simulation.run_process();
    assert_eq!(simulation.kinds_from(2), "RuntimeStarted Input RunStarted SystemItem Assistant RunEnded");
    let words = ["/review the parser", "Review the parser with care."];
    assert_eq!(simulation.last_request(), words);
    // The command is gone from the tree, and the process is another one.
    simulation.expand = Some(|_| Expansion::NoCommand);
    let before = project(&simulation.log);
    simulation.run_process();
    assert_eq!(**simulation.state.prompt().items(), before);
    simulation.inbox.push(person("n", "go on"));
    simulation.wake();
    assert_eq!(simulation.last_request()[..2], words);
}

#[test]
fn a_text_that_names_no_command_is_read_as_it_is() {
    let mut simulation = simulation(vec![answer("done")]);
    simulation.inbox.push(person("m", "/reviewx the parser"));
    simulation.run_process();
    assert_eq!(simulation.last_request(), ["/reviewx the parser"]);
    assert_eq!(simulation.kinds_from(2), "RuntimeStarted Input RunStarted Assistant RunEnded");
    for no_command in ["/usr/bin/env", "/ review", "review", "//x", "/", "look at /review"] {
        assert!(!looks_like_command(no_command), "{no_command}");
    }
    for command in ["/review", " /a:b c", "/x-y\nz"] {
        assert!(looks_like_command(command), "{command}");
    }
}

/// An answer that reads these files.
fn reads(paths: &[&str]) -> Assistant {
    let call = |path: &&str| ToolCall { call_id: (*path).to_owned(), tool: "Read".to_owned(), args: json!({"path": path}) };
    Assistant { tool_calls: paths.iter().map(call).collect(), ..answer("") }
}

#[test]
fn instructions_of_a_folder_are_told_once_after_a_call_has_worked_there() {
    let script = vec![reads(&["a/x", "top"]), reads(&["a/y", "b/c/z"]), answer("done"), reads(&["a/x"]), answer("done")];
    let mut simulation = simulation(script);
    simulation.inbox.push(person("m", "go"));
    simulation.run_process();
    let told = |simulation: &Simulation| {
        let of_folder = |text: &&String| text.starts_with("Rules of ");
        simulation.last_request().iter().filter(of_folder).cloned().collect::<Vec<_>>()
    };
    assert_eq!(told(&simulation), ["Rules of a.", "Rules of b/c."]);
    let kinds = "RuntimeStarted Input RunStarted Assistant ToolStarted ToolStarted ToolEnded ToolEnded SystemItem Assistant";
    assert!(simulation.kinds_from(2).starts_with(kinds), "{}", simulation.kinds());
    simulation.inbox.push(person("n", "again"));
    simulation.wake();
    assert_eq!(told(&simulation), ["Rules of a.", "Rules of b/c."], "what the model still reads is not told twice");
    // A replay reads no tree.
    let before = project(&simulation.log);
    simulation.run_process();
    assert_eq!(**simulation.state.prompt().items(), before);
}

#[test]
fn a_peers_message_is_no_command() {
    let mut simulation = simulation(vec![answer("done")]);
    simulation.inbox.push(InboxMessage { text: "/review it".to_owned(), ..message("m") });
    simulation.run_process();
    assert_eq!(simulation.last_request(), ["[message from agent b]\n/review it"]);
}

#[test]
fn a_command_with_a_missing_parameter_fails_its_run_without_a_call_of_the_model() {
    let mut simulation = simulation(vec![answer("done")]);
    simulation.inbox.push(person("m", "/wrong"));
    simulation.run_process();
    assert!(simulation.shown.is_empty());
    let Body::RunEnded(end) = &simulation.log.last().unwrap().body else { panic!("{}", simulation.kinds()) };
    assert_eq!((end.outcome, end.reason.as_deref()), (RunOutcome::Failed, Some("CommandInvalid")));
    assert_eq!(end.message.as_deref(), Some("/wrong needs a value for target"));
    // It is told once.
    simulation.inbox.push(person("n", "go on"));
    simulation.wake();
    assert_eq!(simulation.last_request(), ["/wrong", "[/wrong needs a value for target]", "go on"]);
    assert_eq!(simulation.outcomes().last(), Some(&RunOutcome::Finished));
}

#[test]
fn a_wrong_command_in_the_middle_of_work_does_not_end_the_work() {
    let mut simulation = simulation(vec![calls(&["one"]), answer("done")]);
    simulation.inbox.push(person("m", "begin"));
    simulation.arriving.push((0, person("n", "/wrong")));
    simulation.run_process();
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished]);
    assert!(simulation.last_request().ends_with(&["/wrong".to_owned(), "[/wrong needs a value for target]".to_owned()]));
}

#[test]
fn a_run_that_is_taken_back_takes_the_commands_text_with_it() {
    let mut simulation = simulation(vec![answer("done")]);
    simulation.hold = true;
    simulation.inbox.push(person("m", "/review it"));
    simulation.run_process();
    simulation.ask_as("c", ControlAction::Cancel {});
    while !simulation.effects.is_empty() {
        simulation.end(0);
        simulation.settle();
    }
    assert_eq!(simulation.outcomes(), [RunOutcome::RolledBack]);
    assert!(simulation.state.prompt().items().is_empty(), "{:?}", simulation.state.prompt().items());
    assert_eq!(project(&simulation.log), []);
}

#[test]
fn other_assets_are_another_configuration_from_the_next_run_on_and_the_same_ones_are_no_entry() {
    let mut simulation = simulation(vec![answer("one"), answer("two"), answer("three"), answer("four"), answer("five")]);
    let run = |simulation: &mut Simulation, id: &str, offer: AssetOffer| {
        simulation.offer = offer;
        simulation.inbox.push(person(id, "go on"));
        simulation.wake();
        let config = simulation.shown.last().unwrap().config.clone();
        let changes = simulation.kinds().matches("ConfigChanged").count();
        let tools: Vec<String> = config.tools.iter().map(|tool| tool.name.clone()).collect();
        (config.system.clone(), tools.join(" "), changes)
    };
    simulation.run_process();
    let system = |list: &str| std::iter::once("system".to_owned()).chain(offer(list, &[]).list).collect::<Vec<_>>();
    assert_eq!(run(&mut simulation, "1", offer("", &[])), (system(""), "Shell Read".to_owned(), 0));
    assert_eq!(run(&mut simulation, "2", offer("a", &[SKILL])), (system("a"), format!("Shell Read {SKILL}"), 1));
    assert_eq!(run(&mut simulation, "3", offer("a", &[SKILL])), (system("a"), format!("Shell Read {SKILL}"), 1));
    assert_eq!(run(&mut simulation, "4", offer("", &[GRAPH])), (system(""), format!("Shell Read {GRAPH}"), 2));
    assert_eq!(run(&mut simulation, "5", offer("", &[])), (system(""), "Shell Read".to_owned(), 3));
}
