//! Sub-agents of a project in this process, over a model that answers by what it is asked.

use serde_json::{Value, json};
use uuid::Uuid;
use yoi_session::Token;
use yoi_test_support::{eventually, in_time};
use yoi_wire::control::ControlAction;
use yoi_wire::conversation::{ConversationState, MAIN};
use yoi_wire::engine_api::{RunTool, ToolRunEnd};
use yoi_wire::entry::{Body, Entry, RefusalClass, RunOutcome, ToolOutcome};
use yoi_wire::mode::Mode;

use super::*;
use crate::model::test_server::{Seen, serve_by};
use crate::project::tests::{Answer, Folders, calls, outcome, run, says};
use crate::project::{Project, ProjectOptions, Projection};
use crate::signals::EventsFrom;

/// By this a request of a sub-agent is known.
const OF_SUBAGENT: &str = "You are the sub-agent";

fn template(name: &str, tools: &[&str]) -> SubagentTemplate {
    SubagentTemplate {
        name: name.to_owned(),
        description: "Looks for something.".to_owned(),
        tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
        ..SubagentTemplate::default()
    }
}

/// How many results of tools a request has.
fn results(request: &str) -> usize {
    request.matches("\"role\":\"tool\"").count()
}

/// A model that starts a sub-agent, waits for it and is done; the sub-agent's is `of_subagent`, by the number of results.
fn lead(of_subagent: impl Fn(usize) -> Answer + Send + Sync + 'static) -> impl Fn(&str) -> Answer + Send + Sync + 'static {
    move |request| match (request.contains(OF_SUBAGENT), results(request)) {
        (true, results) => of_subagent(results),
        (false, 0) => calls("SpawnSubagent", &json!({"template": "look", "task": "find the word"})),
        (false, 1) => calls("WaitSubagents", &json!({})),
        (false, _) => says("done"),
    }
}

async fn project(
    place: &Folders,
    templates: Vec<SubagentTemplate>,
    model: impl Fn(&str) -> Answer + Send + Sync + 'static,
) -> (Project, Seen) {
    let (url, seen) = serve_by(model).await;
    let project = Project::start(ProjectOptions { subagents: templates, ..place.options("p", &url) }).await.unwrap();
    (project, seen)
}

async fn run_with(project: &Project, text: &str) -> Vec<Entry> {
    let mut follower = project.follow(Token::Start, Some(0)).await.unwrap();
    project.send("jane", Uuid::now_v7(), text).await.unwrap();
    in_time("the run", run(&mut follower)).await
}

fn outputs(entries: &[Entry]) -> Vec<String> {
    let ends = entries.iter().filter_map(|entry| if let Body::ToolEnded(end) = &entry.body { Some(end.output.clone()) } else { None });
    ends.collect()
}

async fn status(project: &Project) -> Value {
    project.conversation(MAIN).unwrap().projection(Projection::SubagentStatus).await.unwrap()
}

/// What the log says of the state of the first one, once it is this.
async fn until_state(project: &Project, state: &str) -> Value {
    eventually(state, async || {
        let status = status(project).await;
        (status[0]["state"] == state).then(|| status[0].clone())
    })
    .await
}

async fn by_api(project: &Project, tool: &str, args: Value) -> ToolRunEnd {
    let call = RunTool { id: Uuid::now_v7().to_string(), args, wait_seconds: None };
    in_time("the end of the call", project.run_tool("jane", tool, call)).await.unwrap().end.unwrap()
}

async fn spawn(project: &Project, more: Value) -> ToolRunEnd {
    let mut args = json!({"template": "look", "task": "wait"});
    args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    by_api(project, "SpawnSubagent", args).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p38_a_sub_agent_does_its_task_with_the_tools_of_its_template_and_its_answer_comes_back() {
    let place = Folders::new();
    std::fs::write(place.folder("p-root").join("note"), "the word is swordfish").unwrap();
    let of_subagent = |results| if results == 0 { calls("Read", &json!({"path": "note"})) } else { says("It is swordfish.") };
    let (project, seen) = project(&place, vec![template("look", &["Read", "Grep"])], lead(of_subagent)).await;
    let entries = run_with(&project, "which word?").await;
    assert_eq!(outcome(&entries), RunOutcome::Finished);
    assert_eq!(outputs(&entries)[1], "sub-1 has done its task. Its last words:\nIt is swordfish.");
    let requests = seen.lock().unwrap().clone();
    let (of_sub, of_main): (Vec<&String>, Vec<&String>) = requests.iter().partition(|request| request.contains(OF_SUBAGENT));
    assert!(of_sub.iter().all(|request| request.contains("find the word") && !request.contains("which word?")), "{of_sub:?}");
    assert!(of_sub.iter().all(|request| !request.contains("\"name\":\"Shell\"") && request.contains("\"name\":\"Grep\"")));
    assert!(of_main.iter().all(|request| request.contains("- look: Looks for something. It has Read, Grep and 300 s.")));
    let status = status(&project).await;
    assert_eq!(
        (&status[0]["state"], &status[0]["template"], &status[0]["task"]),
        (&json!("completed"), &json!("look"), &json!("find the word"))
    );
    // Its conversation is read as others are, and is not one that anybody starts.
    let own = project.conversation("sub-1").unwrap().projection(Projection::Timeline).await.unwrap();
    assert!(own.to_string().contains("swordfish"), "{own}");
    assert!(matches!(project.start_conversation("sub-1").await, Err(ProjectError::IsSubagent { .. })));
    let mut events = project.events(MAIN, EventsFrom::default()).await.unwrap().unwrap();
    let mut kinds = Vec::new();
    while let Some(more) = in_time("the events", events.next()).await {
        kinds.extend(more.unwrap().into_iter().map(|event| event.kind));
    }
    let of_subagents: Vec<&str> = kinds.iter().map(String::as_str).filter(|kind| kind.contains("subagent")).collect();
    assert_eq!(of_subagents, ["conversation.subagent.started", "conversation.subagent.completed"]);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p38_an_unlisted_template_a_fourth_one_and_a_tool_outside_are_refused_and_a_longer_time_is_shortened() {
    let place = Folders::new();
    // The model of the sub-agents never answers.
    let silent = |_: &str| vec![None];
    let templates = vec![SubagentTemplate { seconds: Some(600), ..template("look", &["Read", "Grep"]) }];
    let (running, _) = project(&place, templates.clone(), silent).await;
    let unlisted = by_api(&running, "SpawnSubagent", json!({"template": "do", "task": "x"})).await;
    assert_eq!(unlisted.refused, Some(RefusalClass::SubagentDenied));
    assert_eq!(unlisted.output.unwrap(), "subagent_spawn_denied: there is no template \"do\" of sub-agents; there are look");
    let outside = spawn(&running, json!({"tools": ["Read", "Shell"]})).await;
    assert_eq!(outside.refused, Some(RefusalClass::SubagentDenied));
    assert!(outside.output.unwrap().contains("does not have the tool \"Shell\"; it has Read, Grep"));
    assert_eq!(spawn(&running, json!({"seconds": 0})).await.refused, Some(RefusalClass::InvalidArgs));
    let long = spawn(&running, json!({"seconds": 9_999, "tools": ["Read"]})).await.output.unwrap();
    assert_eq!(long, "sub-1 has begun, with Read and for at most 600 s. WaitSubagents gives you its answer.");
    for _ in 0..2 {
        assert_eq!(spawn(&running, json!({})).await.outcome, ToolOutcome::Succeeded);
    }
    let fourth = spawn(&running, json!({})).await;
    assert_eq!(fourth.refused, Some(RefusalClass::SubagentQuota));
    assert!(fourth.output.unwrap().contains("sub-1, sub-2, sub-3 work for this conversation, and 3 are the most"));
    // Those of another conversation are others.
    let other = running.start_conversation("other").await.unwrap();
    let call = RunTool { id: Uuid::now_v7().to_string(), args: json!({"template": "look", "task": "wait"}), wait_seconds: None };
    let of_other = in_time("the call", other.run_tool("jane", "SpawnSubagent", call)).await.unwrap().end.unwrap().output.unwrap();
    assert!(of_other.starts_with("sub-4 has begun"), "{of_other}");
    let unknown = by_api(&running, "StopSubagent", json!({"name": "sub-4"})).await;
    assert!(unknown.output.unwrap().contains("has started no sub-agent \"sub-4\"; there are sub-1, sub-2, sub-3"));
    let stopped = by_api(&running, "StopSubagent", json!({"name": "sub-2"})).await.output.unwrap();
    assert_eq!(stopped, "sub-2 was ended: its conversation has ended it. It said nothing.");
    let again = spawn(&running, json!({})).await.output.unwrap();
    assert!(again.starts_with("sub-2 has begun"), "its name is taken by the next one: {again}");
    assert_eq!(running.conversations().len(), 6, "{:?}", running.conversations());
    running.stop().await;
    drop((running, other));
    // They end with their process, and the next one says so.
    let (later, _) = project(&place, templates, silent).await;
    let status = until_state(&later, "stopped").await;
    assert_eq!(status["why"], "the process that it ran in has ended");
    assert!(later.conversations().iter().skip(2).all(|one| one.state == ConversationState::Stopped), "{:?}", later.conversations());
    later.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p38_a_sub_agent_is_narrower_than_its_agent_in_mode_and_policy() {
    let place = Folders::new();
    let of_subagent = |results| match results {
        0 => calls("Write", &json!({"path": "made", "content": "x"})),
        1 => calls("Read", &json!({"path": "docs/secret"})),
        2 => calls("SpawnSubagent", &json!({"template": "look", "task": "x"})),
        3 => calls("Read", &json!({"path": "kept"})),
        _ => says("nothing worked"),
    };
    let look = SubagentTemplate {
        mode: Some(Mode::Planning),
        deny: vec!["Read(docs/**)".to_owned()],
        ..template("look", &["Read", "Write", "Glob"])
    };
    let policy = serde_json::from_value(json!({"deny": ["Read(kept)"]})).unwrap();
    let (url, seen) = serve_by(lead(of_subagent)).await;
    let project = Project::start(ProjectOptions { subagents: vec![look], policy, ..place.options("p", &url) }).await.unwrap();
    assert_eq!(outcome(&run_with(&project, "go").await), RunOutcome::Finished);
    let own = project.conversation("sub-1").unwrap();
    let (entries, _) = own.read_log(Token::Start, None).await.unwrap();
    let entries: Vec<Entry> = entries.into_iter().map(|stored| stored.entry).collect();
    let refused: Vec<String> = outputs(&entries).into_iter().map(|output| output.chars().take(60).collect()).collect();
    assert!(refused[0].starts_with("tool_not_exposed: this sub-agent has only Glob, Read"), "a closed tool ran: {refused:?}");
    assert!(refused[1].starts_with("tool_denied: ") && refused[3].starts_with("tool_denied: "), "{refused:?}");
    assert!(refused[2].starts_with("tool_not_exposed: this sub-agent has only"), "{refused:?}");
    assert!(!place.folder("p-root").join("made").exists());
    assert!(
        seen.lock()
            .unwrap()
            .iter()
            .filter(|request| request.contains(OF_SUBAGENT))
            .all(|request| !request.contains("\"name\":\"Write\",\"desc"))
    );
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p33_a_cancel_ends_the_sub_agents_of_the_run_with_their_processes_and_its_time_ends_one_too() {
    let place = Folders::new();
    let shell = || calls("Shell", &json!({"command": "echo $$ > pid; sleep 600"}));
    let look = SubagentTemplate { seconds: Some(600), ..template("look", &["Shell"]) };
    let (project, _) = project(&place, vec![look], lead(move |_| shell())).await;
    let mut follower = project.follow(Token::Start, Some(0)).await.unwrap();
    project.send("jane", Uuid::now_v7(), "go").await.unwrap();
    let file = place.folder("p-root").join("pid");
    let pid =
        eventually("the process of the sub-agent", async || std::fs::read_to_string(&file).ok().filter(|pid| pid.ends_with('\n'))).await;
    project.control("jane", ControlAction::Cancel {}).await.unwrap();
    assert_eq!(outcome(&in_time("the end", run(&mut follower)).await), RunOutcome::Cancelled);
    let status = until_state(&project, "stopped").await;
    assert!(status["why"].as_str().unwrap().contains("ended"), "{status}");
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "process {pid} is left");
    let short = spawn(&project, json!({"seconds": 1})).await;
    assert_eq!(short.outcome, ToolOutcome::Succeeded);
    let ended = by_api(&project, "WaitSubagents", json!({"all": true})).await.output.unwrap();
    assert!(ended.contains("sub-1 was ended: its 1 s are over."), "{ended}");
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_a_template_that_is_none_starts_nothing_and_an_agent_without_templates_is_offered_no_tool_for_them() {
    let place = Folders::new();
    let (url, _) = serve_by(|_: &str| says("done")).await;
    for (bad, words) in [
        (template("look", &["Raed"]), "a sub-agent cannot have the tool \"Raed\""),
        (template("look", &["SpawnPod"]), "a sub-agent cannot have the tool \"SpawnPod\""),
        (template("look", &["SpawnSubagent"]), "a sub-agent cannot have"),
        (template("Look", &["Read"]), "is no name"),
    ] {
        let error = Project::start(ProjectOptions { subagents: vec![bad], ..place.options("p", &url) }).await.unwrap_err();
        assert!(matches!(&error, ProjectError::Subagent(_)) && error.to_string().contains(words), "{error}");
    }
    assert!(!place.0.path().join("p-state").exists(), "something was made");
    let project = Project::start(place.options("p", &url)).await.unwrap();
    assert!(project.tools().iter().all(|tool| !tool.name.contains("Subagent")));
    let refused = spawn(&project, json!({})).await;
    assert_eq!(refused.refused, Some(RefusalClass::ToolNotExposed));
    project.stop().await;
}
