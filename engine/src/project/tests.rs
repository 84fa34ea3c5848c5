//! Projects in this process, over a model that answers from a list.

mod assets;
mod calls;
mod events;

use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use yoi_test_support::{eventually, in_time};
use yoi_wire::approval::ApprovalRefusal;
use yoi_wire::control::{AttachLine, DeltaKind};
use yoi_wire::entry::{Body, Entry, RunOutcome};
use yoi_wire::manifest::{ModelEndpoint, ModelProvider};
use yoi_wire::mode::Mode;

use super::*;
use crate::engine::Engine;
use crate::model::test_server::{serve, stream_head};

pub(super) type Answer = Vec<Option<String>>;

pub(super) fn streamed(deltas: &[serde_json::Value], finish: &str) -> Answer {
    let mut text = stream_head();
    for delta in deltas {
        text += &format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta}]}));
    }
    text += &format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}));
    vec![Some(text)]
}

pub(super) fn says(text: &str) -> Answer {
    streamed(&[json!({"content": text})], "stop")
}

pub(super) fn calls(tool: &str, args: &serde_json::Value) -> Answer {
    let call = json!({"index": 0, "id": "call-1", "type": "function", "function": {"name": tool, "arguments": args.to_string()}});
    streamed(&[json!({"tool_calls": [call]})], "tool_calls")
}

/// Folders of projects, which go with it.
pub(super) struct Folders(pub(super) TempDir);

impl Folders {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.0.path().canonicalize().unwrap().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// A project of this name over the endpoint: its root is `NAME-root`, its record `NAME-state`.
    pub(super) fn options(&self, id: &str, url: &str) -> ProjectOptions {
        let model = ModelEndpoint { base_url: Some(format!("{url}/")), ..ModelEndpoint::new(ModelProvider::OpenAI, "scripted") };
        let state = self.0.path().canonicalize().unwrap().join(format!("{id}-state"));
        let mut options = ProjectOptions::new(id, self.folder(&format!("{id}-root")), state, model);
        options.env = vec![("PATH".into(), std::env::var_os("PATH").unwrap())];
        options
    }
}

/// All entries up to the end of the next run.
pub(super) async fn run(follower: &mut Follower) -> Vec<Entry> {
    let mut entries = Vec::new();
    let ended = async {
        loop {
            for line in follower.next().await.expect("the project has not ended").unwrap() {
                let AttachLine::Entry { entry, .. } = line else { continue };
                let is_end = matches!(entry.body, Body::RunEnded(_));
                entries.push(*entry);
                if is_end {
                    return;
                }
            }
        }
    };
    in_time("the run ends", ended).await;
    entries
}

pub(super) async fn run_with(project: &Project, text: &str) -> Vec<Entry> {
    let mut follower = project.follow(Token::Start, Some(0)).await.unwrap();
    project.send("jane", Uuid::now_v7(), text).await.unwrap();
    run(&mut follower).await
}

pub(super) fn outcome(entries: &[Entry]) -> RunOutcome {
    match &entries.last().unwrap().body {
        Body::RunEnded(end) => end.outcome,
        body => panic!("the last entry is {body:?}"),
    }
}

pub(super) fn output(entries: &[Entry]) -> String {
    let ended = entries.iter().find_map(|entry| if let Body::ToolEnded(end) = &entry.body { Some(end.output.clone()) } else { None });
    ended.expect("a tool has ended")
}

pub(super) async fn silent_url() -> String {
    serve(vec![vec![None]]).await.0
}

/// Whether the body of a request to the model offers it a tool.
fn offers(request: &str, tool: &str) -> bool {
    let request: serde_json::Value = serde_json::from_str(&request[request.find('{').unwrap()..]).unwrap();
    request["tools"].as_array().unwrap().iter().any(|offered| offered["function"]["name"] == tool)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_policy_counts_from_the_next_turn_in_every_conversation_without_a_start_and_one_that_cannot_be_read_changes_nothing() {
    let place = Folders::new();
    let write = calls("Write", &json!({"path": "note", "content": "x"}));
    let (url, seen) = serve(vec![says("one"), write.clone(), says("two"), write.clone(), says("three"), write, says("four")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    project.start_conversation("c").await.unwrap();
    run_with(&project, "first").await;
    let policy = |rule: &str| ToolPolicy { deny: vec![rule.to_owned()], ..ToolPolicy::default() };
    assert!(matches!(project.set_policy(&policy("Wriet")), Err(ProjectError::Policy(_))));
    project.set_policy(&policy("Write")).unwrap();
    let other = project.conversation("c").unwrap();
    // One that starts later says so, too.
    let later = project.start_conversation("later").await.unwrap();
    for conversation in [project.conversation(MAIN).unwrap(), other, later] {
        let mut follower = conversation.follow(Token::Start, None).await.unwrap();
        let told = async {
            loop {
                for line in follower.next().await.unwrap().unwrap() {
                    if matches!(&line, AttachLine::Entry { entry, .. } if crate::conversation::policy_of(&entry.body) == Some(policy("Write")))
                    {
                        return;
                    }
                }
            }
        };
        in_time("the entry of the policy", told).await;
        let mut follower = conversation.follow(Token::Start, Some(0)).await.unwrap();
        conversation.send("jane", Uuid::now_v7(), "write").await.unwrap();
        assert!(output(&run(&mut follower).await).starts_with("tool_denied"), "{}", conversation.name());
    }
    let requests = seen.lock().unwrap().clone();
    assert!(offers(&requests[0], "Write") && requests[1..].iter().all(|request| !offers(request, "Write") && offers(request, "Read")));
    assert!(!place.folder("p-root").join("note").exists());
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mode_closes_tools_of_one_conversation_and_is_in_its_status_and_projection() {
    let place = Folders::new();
    let write = calls("Write", &json!({"path": "note", "content": "x"}));
    let (url, seen) = serve(vec![write, says("done")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    let other = project.start_conversation("c").await.unwrap();
    let set = ControlAction::SetMode { mode: Mode::Planning, force: false };
    assert!(project.control("jane", set).await.unwrap().done.is_some());
    assert_eq!(output(&run_with(&project, "write").await).split(':').next(), Some("tool_not_exposed"));
    assert!(seen.lock().unwrap().iter().all(|request| !offers(request, "Write") && offers(request, "Read")));
    assert!(!project.tools().iter().any(|tool| tool.name == "Write"));
    assert!(other.tools().unwrap().iter().any(|tool| tool.name == "Write"), "the mode of one is not that of another");
    let modes: Vec<_> = project.conversations().into_iter().map(|status| status.mode.and_then(|mode| mode.known())).collect();
    assert_eq!(modes, [Some(Mode::Planning), None]);
    let projection = project.conversation(MAIN).unwrap().projection(Projection::ModeRuntime).await.unwrap();
    assert_eq!((&projection["mode"], &projection["steps"], &projection["setBy"]["user"]), (&json!("planning"), &json!(24), &json!("jane")));
    let projection = other.projection(Projection::ModeRuntime).await.unwrap();
    assert_eq!((&projection["mode"], &projection["steps"]), (&json!("coding"), &json!(null)));
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_works_in_its_folder_and_a_later_start_goes_on_with_its_conversation() {
    let place = Folders::new();
    let write = calls("Write", &json!({"path": "note", "content": "by the agent"}));
    let (url, seen) = serve(vec![write, says("done"), says("again")]).await;
    let engine = Engine::default();
    let project = engine.start_project(place.options("p", &url)).await.unwrap();
    assert!(project.tools().iter().any(|tool| tool.name == "Shell"));
    assert_eq!(outcome(&run_with(&project, "write a note").await), RunOutcome::Finished);
    assert_eq!(std::fs::read_to_string(place.folder("p-root").join("note")).unwrap(), "by the agent");
    drop(project);
    engine.stop_project("p").await.unwrap();
    assert!(engine.projects().await.is_empty());

    let project = engine.start_project(place.options("p", &url)).await.unwrap();
    assert_eq!(outcome(&run_with(&project, "go on").await), RunOutcome::Finished);
    let last = seen.lock().unwrap().last().cloned().unwrap();
    assert!(last.contains("write a note") && last.contains("go on"), "the model reads the conversation so far: {last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_p4_what_cannot_be_started_is_refused_by_name_and_makes_nothing() {
    let place = Folders::new();
    let url = silent_url().await;
    let engine = Engine::default();
    let good = || place.options("p", &url);
    for id in ["", "-p", "P", "p q", "../p", &"p".repeat(64)] {
        let error = engine.start_project(ProjectOptions { id: id.to_owned(), ..good() }).await.unwrap_err();
        assert!(matches!(error, ProjectError::Id { .. }), "{id}: {error}");
    }
    std::fs::write(place.folder("files").join("file"), "").unwrap();
    for root in ["missing", "files/file"] {
        let root = place.0.path().join(root);
        let error = engine.start_project(ProjectOptions { root, ..good() }).await.unwrap_err();
        assert!(matches!(error, ProjectError::Root { .. }), "{error}");
    }
    let root = place.folder("p-root");
    std::os::unix::fs::symlink(&root, place.0.path().join("link")).unwrap();
    for state in
        [PathBuf::from("relative"), root.join("state"), root.join("../p-root/state"), place.0.path().join("link/state"), place.folder("")]
    {
        let error = engine.start_project(ProjectOptions { state: state.clone(), ..good() }).await.unwrap_err();
        assert!(matches!(error, ProjectError::State { .. }), "{}: {error}", state.display());
    }
    let policy = serde_json::from_value(json!({"deny": ["Nonsense(("]})).unwrap();
    let error = engine.start_project(ProjectOptions { policy, ..good() }).await.unwrap_err();
    assert!(matches!(error, ProjectError::Policy(_)), "{error}");
    assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0);
    assert!(!place.0.path().join("p-state").exists(), "something was made");

    let running = engine.start_project(good()).await.unwrap();
    let error = engine.start_project(good()).await.unwrap_err();
    assert!(matches!(error, ProjectError::AlreadyStarted { .. }), "{error}");
    assert!(running.control("jane", ControlAction::RewindTargets {}).await.unwrap().done.is_some(), "the first one goes on");
    assert!(matches!(engine.project("q").await, Err(ProjectError::Unknown { .. })));
    assert!(matches!(engine.stop_project("q").await, Err(ProjectError::Unknown { .. })));
    // The record is that of one process at a time, whatever the engine.
    let other = Engine::default().start_project(good()).await.unwrap_err();
    assert!(matches!(other, ProjectError::Session(SessionError::Locked { .. })), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_p60_two_projects_on_one_folder_have_their_own_policy_and_record_and_one_ends_without_the_other() {
    let place = Folders::new();
    let (first_url, _) = serve(vec![says("from the first"), says("still here")]).await;
    let (second_url, second_seen) = serve(vec![says("from the second")]).await;
    let engine = Engine::default();
    let first = engine.start_project(place.options("one", &first_url)).await.unwrap();
    let policy = serde_json::from_value(json!({"deny": ["Shell"]})).unwrap();
    let root = place.folder("one-root");
    let second = engine.start_project(ProjectOptions { root, policy, ..place.options("two", &second_url) }).await.unwrap();
    let has_shell = |project: &Project| project.tools().iter().any(|tool| tool.name == "Shell");
    assert!(has_shell(&first) && !has_shell(&second));
    run_with(&first, "a secret of the first").await;
    run_with(&second, "hello").await;
    assert!(!second_seen.lock().unwrap().iter().any(|request| request.contains("a secret of the first")));
    engine.stop_project("two").await.unwrap();
    assert!(matches!(second.send("jane", Uuid::now_v7(), "x").await, Err(ProjectError::Ended { .. })));
    assert_eq!(outcome(&run_with(&first, "are you there?").await), RunOutcome::Finished);
    assert_eq!(engine.projects().await, ["one"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p68_a_stop_ends_the_run_as_interrupted_and_no_process_is_left_and_the_id_can_be_started_again() {
    let place = Folders::new();
    let sleep = calls("Shell", &json!({"command": "echo $$ > pid; echo started; sleep 600"}));
    let (url, _) = serve(vec![sleep, says("never asked")]).await;
    let engine = Engine::default();
    let project = engine.start_project(place.options("p", &url)).await.unwrap();
    let mut follower = project.follow(Token::Start, Some(0)).await.unwrap();
    project.send("jane", Uuid::now_v7(), "sleep").await.unwrap();
    let started = async {
        loop {
            let lines = follower.next().await.unwrap().unwrap();
            if lines.iter().any(|line| matches!(line, AttachLine::Delta(delta) if delta.kind == DeltaKind::ToolOutput)) {
                return;
            }
        }
    };
    in_time("the command runs", started).await;
    let pid = std::fs::read_to_string(place.folder("p-root").join("pid")).unwrap();
    engine.stop_project("p").await.unwrap();
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "process {pid} is left");
    assert_eq!(project.ended().await, "it was stopped");
    let project = engine.start_project(place.options("p", &url)).await.unwrap();
    let mut follower = project.follow(Token::Start, None).await.unwrap();
    assert_eq!(outcome(&run(&mut follower).await), RunOutcome::Interrupted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_of_a_project_reach_neither_its_record_nor_what_is_closed_nor_folders_beside() {
    if !FrameSupport::of_this_kernel().governs_files() {
        println!("not run: this kernel has no Landlock");
        return;
    }
    let place = Folders::new();
    std::fs::write(place.folder("keys").join("id"), "a key").unwrap();
    let (keys, beside) = (place.folder("keys"), place.folder("beside"));
    let state = place.0.path().canonicalize().unwrap().join("p-state");
    let command = format!(
        "cat {keys}/id; ls {state}/sessions; touch {beside}/file; touch /tmp/yoi-$$ && echo wrote-tmp; \
         touch here \"$HOME/mine\" \"$TMPDIR/mine\" && echo wrote-own; echo \"[$SHOULD_NOT_BE_HERE]\"",
        keys = keys.display(),
        state = state.display(),
        beside = beside.display(),
    );
    let (url, _) = serve(vec![calls("Shell", &json!({ "command": command })), says("done")]).await;
    let options = ProjectOptions { closed: vec![keys], ..place.options("p", &url) };
    let project = Project::start(options).await.unwrap();
    let output = output(&run_with(&project, "look around").await);
    assert!(output.contains("wrote-own") && output.contains("[]"), "{output}");
    assert!(!output.contains("a key") && !output.contains("wrote-tmp"), "{output}");
    assert_eq!(output.matches("Permission denied").count(), 4, "{output}");
    assert_eq!(std::fs::read_dir(beside).unwrap().count(), 0);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_policy_wants_asked_waits_for_an_answer_in_process_too() {
    let place = Folders::new();
    let (url, _) = serve(vec![calls("Shell", &json!({"command": "touch made"})), says("done")]).await;
    let policy = serde_json::from_value(json!({"ask": ["Shell"]})).unwrap();
    let project = Project::start(ProjectOptions { policy, ..place.options("p", &url) }).await.unwrap();
    let mut follower = project.follow(Token::Start, Some(0)).await.unwrap();
    project.send("jane", Uuid::now_v7(), "make it").await.unwrap();
    let asked = async {
        loop {
            let lines = follower.next().await.unwrap().unwrap();
            let is_question =
                |line: &AttachLine| matches!(line, AttachLine::Entry { entry, .. } if matches!(entry.body, Body::ToolAsked(_)));
            if lines.iter().any(is_question) {
                return;
            }
        }
    };
    in_time("the question", asked).await;
    let waiting = project.waiting_calls().await.unwrap();
    assert_eq!((waiting.len(), waiting[0].tool.as_str()), (1, "Shell"));
    assert!(!place.folder("p-root").join("made").exists(), "it ran before the answer");
    let request = ApprovalRequest { call: waiting[0].call, approve: true, always: false, because: None };
    assert_eq!(project.approve("jane", request.clone()).await.unwrap().answer.by, "jane");
    assert_eq!(outcome(&run(&mut follower).await), RunOutcome::Finished);
    assert!(place.folder("p-root").join("made").exists());
    let unknown = project.approve("jane", ApprovalRequest { call: 9999, ..request }).await.unwrap_err();
    assert!(matches!(unknown, ProjectError::Approval(ApprovalRefusal::Unknown(_))), "{unknown}");
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p69_other_conversations_go_on_while_a_call_of_one_waits_for_a_person() {
    let place = Folders::new();
    let (url, _) = serve(vec![calls("Shell", &json!({"command": "touch made"})), says("still here"), says("done")]).await;
    let policy = serde_json::from_value(json!({"ask": ["Shell"]})).unwrap();
    let project = Project::start(ProjectOptions { policy, ..place.options("p", &url) }).await.unwrap();
    let other = project.start_conversation("c").await.unwrap();
    other.send("jane", Uuid::now_v7(), "make it").await.unwrap();
    let waiting = eventually("the question", async || other.waiting_calls().await.unwrap().first().cloned()).await;
    assert_eq!(outcome(&run_with(&project, "are you there?").await), RunOutcome::Finished);
    let mut follower = other.follow(Token::Start, Some(0)).await.unwrap();
    other.approve("jane", ApprovalRequest { call: waiting.call, approve: true, always: false, because: None }).await.unwrap();
    assert_eq!(outcome(&run(&mut follower).await), RunOutcome::Finished);
    project.stop().await;
}

#[tokio::test]
async fn a_runtime_of_one_thread_is_refused() {
    let place = Folders::new();
    let error = Project::start(place.options("p", "http://127.0.0.1:1/v1")).await.unwrap_err();
    assert!(matches!(error, ProjectError::OneThread), "{error}");
}
