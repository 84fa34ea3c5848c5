//! Calls of tools that no model asked for, and events from outside.

use serde_json::{Value, json};
use yoi_wire::engine_api::{EventRefusal, EventTaken, RunToolRefusal, ToolRunEnd};
use yoi_wire::entry::{RefusalClass, ToolOutcome};

use super::*;
use crate::outside_events::SendEventError;

fn call(args: Value) -> RunTool {
    RunTool { id: Uuid::now_v7().to_string(), args, wait_seconds: None }
}

async fn end(project: &Project, tool: &str, args: Value) -> ToolRunEnd {
    in_time("the end of the call", project.run_tool("jane", tool, call(args))).await.unwrap().end.unwrap()
}

async fn kinds(conversation: &Conversation) -> Vec<String> {
    let (entries, _) = conversation.read_log(Token::Start, None).await.unwrap();
    entries.iter().map(|stored| stored.entry.body.kind().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p67_a_call_of_the_library_passes_the_gate_of_the_models_calls_and_starts_in_the_root_whatever_the_model_did() {
    let place = Folders::new();
    let (url, seen) = serve(vec![calls("Shell", &json!({"command": "mkdir deep; cd deep; sleep 600 & echo moved"})), says("done")]).await;
    let policy = serde_json::from_value(json!({"deny": ["Shell(rm *)"]})).unwrap();
    let project = Project::start(ProjectOptions { policy, ..place.options("p", &url) }).await.unwrap();
    run_with(&project, "move").await;
    let root = place.folder("p-root");
    let there = end(&project, "Shell", json!({"command": "pwd; echo by hand > made"})).await;
    assert_eq!((there.outcome, there.refused), (ToolOutcome::Succeeded, None));
    assert!(there.output.as_deref().unwrap().starts_with(&format!("{}\n", root.display())), "{there:?}");
    assert_eq!(end(&project, "Read", json!({"path": "made"})).await.outcome, ToolOutcome::Succeeded);
    std::fs::write(root.join("key"), format!("token: ghp_{}\n", "a1B2c3D4e5F6".repeat(3))).unwrap();
    let secret = end(&project, "Read", json!({"path": "key"})).await.output.unwrap();
    assert!(!secret.contains("a1B2c3D4e5F6"), "{secret}");
    for (tool, args, class) in [
        ("Shell", json!({"command": "rm made"}), RefusalClass::ToolDenied),
        ("Read", json!({"path": ".env"}), RefusalClass::SensitivePathDenied),
        ("Read", json!({"path": "../x"}), RefusalClass::SandboxViolation),
        ("Read", json!({"path": 7}), RefusalClass::InvalidArgs),
        ("Shell", json!("ls"), RefusalClass::InvalidArgs),
        ("Dance", json!({}), RefusalClass::UnknownTool),
        ("SpawnPod", json!({}), RefusalClass::InvalidArgs),
    ] {
        let refused = end(&project, tool, args).await;
        assert_eq!((refused.outcome, refused.refused), (ToolOutcome::Refused, Some(class)), "{tool}");
    }
    let set = ControlAction::SetMode { mode: Mode::Planning, force: false };
    project.control("jane", set).await.unwrap();
    assert_eq!(end(&project, "Write", json!({"path": "x", "content": "x"})).await.refused, Some(RefusalClass::ToolNotExposed));
    assert_eq!(end(&project, "Read", json!({"path": "made"})).await.outcome, ToolOutcome::Succeeded);
    let ran = project.tools().into_iter().map(|tool| tool.name).collect::<Vec<_>>();
    assert!(!ran.contains(&"Write".to_owned()) && ran.contains(&"Read".to_owned()), "what is listed is what runs: {ran:?}");
    // Each has its decision in the log, by who asked, and the model has read none of them.
    let decisions = project.conversation(MAIN).unwrap().projection(Projection::Diagnostics).await.unwrap();
    assert_eq!((&decisions["refused"]["ToolNotExposed"], &decisions["refused"]["InvalidArgs"]), (&json!(1), &json!(3)), "{decisions}");
    assert!(seen.lock().unwrap().iter().all(|request| !request.contains("by hand")));
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p67_a_call_that_the_policy_wants_asked_waits_for_a_person_and_its_id_gets_its_end_later() {
    let place = Folders::new();
    let policy = serde_json::from_value(json!({"ask": ["Shell"]})).unwrap();
    let project = Project::start(ProjectOptions { policy, ..place.options("p", &silent_url().await) }).await.unwrap();
    let other = project.start_conversation("c").await.unwrap();
    let touch = call(json!({"command": "touch made"}));
    let asked = in_time("the question", other.run_tool("jane", "Shell", touch.clone())).await.unwrap();
    let number = asked.asked.unwrap();
    assert!(asked.end.is_none() && !place.folder("p-root").join("made").exists());
    assert!(project.waiting_calls().await.unwrap().is_empty(), "it is the other conversation's");
    let pending = other.projection(Projection::PendingToolCalls).await.unwrap();
    assert_eq!((&pending[0]["phase"], &pending[0]["callId"]), (&json!("asked"), &json!(asked.call_id)));
    other.approve("bob", ApprovalRequest { call: number, approve: true, always: false, because: None }).await.unwrap();
    let ended = in_time("the end", other.run_tool("jane", "Shell", touch.clone())).await.unwrap();
    assert_eq!(ended.end.as_ref().unwrap().outcome, ToolOutcome::Succeeded);
    assert!(place.folder("p-root").join("made").exists());
    // After a stop and a start, too, and nothing runs twice.
    std::fs::remove_file(place.folder("p-root").join("made")).unwrap();
    project.stop_conversation("c").await.unwrap();
    let stopped = project.conversation("c").unwrap().run_tool("jane", "Shell", touch.clone()).await.unwrap_err();
    assert!(matches!(stopped, ProjectError::Ended { .. }), "{stopped}");
    let other = project.start_conversation("c").await.unwrap();
    assert_eq!(in_time("the end", other.run_tool("jane", "Shell", touch.clone())).await.unwrap(), ended);
    assert!(!place.folder("p-root").join("made").exists());
    // What is none leaves nothing in the log.
    let before = kinds(&other).await;
    let foreign = other.run_tool("bob", "Shell", touch).await.unwrap_err();
    assert!(matches!(foreign, ProjectError::RunTool(RunToolRefusal::Invalid(_))), "{foreign}");
    let none = other.run_tool("bob", "../x", call(json!({}))).await.unwrap_err();
    assert!(matches!(none, ProjectError::RunTool(RunToolRefusal::Invalid(_))), "{none}");
    assert_eq!(kinds(&other).await, before);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p30_p67_events_from_outside_do_what_they_say_once_and_what_is_none_is_refused_by_name() {
    let place = Folders::new();
    let (url, _) = serve(vec![says("hello")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    let main = project.conversation(MAIN).unwrap();
    let mut follower = project.follow(Token::Start, Some(0)).await.unwrap();
    let event = |kind: &str, data: Value| json!({"id": Uuid::now_v7().to_string(), "type": kind, "data": data});
    let message = event("conversation.user.message", json!({"text": "go"}));
    let taken = main.send_event("jane", message.clone()).await.unwrap();
    assert!(!taken.duplicate, "{taken:?}");
    let entries = run(&mut follower).await;
    // Before it may stand the start of the process.
    let is_message =
        |entry: &Entry| matches!(&entry.body, Body::Input(input) if input.user.as_deref() == Some("jane") && input.text == "go");
    assert!(entries.iter().any(is_message), "{entries:?}");
    let EventTaken { duplicate, id, .. } = main.send_event("jane", message).await.unwrap();
    assert!(duplicate && !id.is_empty());
    let planning = event("conversation.mode.switch.requested", json!({"mode": "planning"}));
    main.send_event("jane", planning.clone()).await.unwrap();
    main.send_event("jane", planning).await.unwrap();
    let before = kinds(&main).await;
    assert_eq!(
        (before.iter().filter(|kind| *kind == "ModeSwitched").count(), before.iter().filter(|kind| *kind == "Input").count()),
        (1, 1)
    );
    for (event, words) in [
        (event("conversation.llm.completed", json!({})), "is internal"),
        (event("conversation.dance", json!({})), "there is no event"),
        (json!({"id": "x", "type": "conversation.cancel", "data": {}}), "UUID"),
        (json!({"id": Uuid::now_v7().to_string(), "type": "conversation.user.message", "text": "flat"}), "stands in its data"),
    ] {
        let refused = main.send_event("jane", event).await.unwrap_err();
        assert!(matches!(&refused, ProjectError::SendEvent(SendEventError::Refused(EventRefusal::Invalid(_)))), "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let idle = main.send_event("jane", event("conversation.resume", json!({}))).await.unwrap_err();
    assert!(matches!(&idle, ProjectError::SendEvent(SendEventError::Refused(EventRefusal::Conflict(_)))), "{idle}");
    assert_eq!(kinds(&main).await, before, "nothing is logged of what was refused");
    project.stop().await;
}
