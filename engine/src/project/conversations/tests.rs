//! Several conversations in one project.

use serde_json::json;
use uuid::Uuid;
use yoi_session::Token;
use yoi_test_support::in_time;
use yoi_wire::control::AttachLine;
use yoi_wire::conversation::ConversationState;
use yoi_wire::entry::{Body, Entry, RunOutcome};
use yoi_wire::hub::Activity;

use super::*;
use crate::driver::{ConversationObserver, FailedCall};
use crate::engine::Engine;
use crate::model::test_server::{serve, serve_by};
use crate::project::tests::{Answer, Folders, calls, outcome, output, run, says, silent_url, streamed};
use crate::project::{Project, ProjectOptions};

async fn run_with(conversation: &Conversation, text: &str) -> Vec<Entry> {
    let mut follower = conversation.follow(Token::Start, Some(0)).await.unwrap();
    conversation.send("jane", Uuid::now_v7(), text).await.unwrap();
    run(&mut follower).await
}

fn shell(command: &str) -> Answer {
    calls("Shell", &json!({ "command": command }))
}

/// Answers by the last text of a person in the request: the first of `answers` whose name it contains, until a tool has ended, and then `done`.
fn by_text(answers: Vec<(&'static str, Answer)>) -> impl Fn(&str) -> Answer + Send + Sync + 'static {
    move |request: &str| {
        if request.contains("\"role\":\"tool\"") {
            return says("done");
        }
        answers.iter().find(|(text, _)| request.contains(text)).map_or_else(|| says("done"), |(_, answer)| answer.clone())
    }
}

fn state(project: &Project, name: &str) -> ConversationState {
    let status = project.conversations().into_iter().find(|status| status.name == name).unwrap();
    status.state.known().unwrap()
}

/// The outcomes of its first runs, once so many have ended.
async fn outcomes(conversation: &Conversation, count: usize) -> Vec<RunOutcome> {
    let mut follower = conversation.follow(Token::Start, None).await.unwrap();
    let mut outcomes = Vec::new();
    while outcomes.len() < count {
        for line in follower.next().await.unwrap().unwrap() {
            if let AttachLine::Entry { entry, .. } = line
                && let Body::RunEnded(end) = &entry.body
            {
                outcomes.push(end.outcome);
            }
        }
    }
    outcomes
}

async fn texts(conversation: &Conversation) -> String {
    let (entries, _) = conversation.read_log(Token::Start, None).await.unwrap();
    serde_json::to_string(&entries.into_iter().map(|stored| stored.entry).collect::<Vec<_>>()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_conversations_work_side_by_side_in_one_tree_and_neither_reads_the_others_messages() {
    let place = Folders::new();
    let answers = vec![
        ("wait for the other", shell("mkfifo gate; echo ready > ready; read line < gate; echo heard $line")),
        ("let the first go on", shell("until test -e ready; do :; done; echo a-word > gate")),
    ];
    let (url, seen) = serve_by(by_text(answers)).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    let other = project.start_conversation("other").await.unwrap();
    let main = project.conversation(MAIN).unwrap();
    let (first, second) = tokio::join!(run_with(&main, "wait for the other"), run_with(&other, "let the first go on"));
    assert_eq!((outcome(&first), outcome(&second)), (RunOutcome::Finished, RunOutcome::Finished));
    assert!(output(&first).contains("heard a-word"), "{}", output(&first));
    for request in seen.lock().unwrap().iter() {
        assert!(!(request.contains("wait for the other") && request.contains("let the first go on")), "{request}");
        let is_other = request.contains("let the first go on");
        assert_eq!(request.contains("This is your conversation"), is_other, "{request}");
    }
    assert!(!texts(&main).await.contains("let the first go on") && !texts(&other).await.contains("wait for the other"));
    let list = project.conversations();
    assert_eq!(list.iter().map(|status| status.name.as_str()).collect::<Vec<_>>(), ["main", "other"]);
    assert!(list.iter().all(|status| status.state == ConversationState::Running && status.session.is_some()));
    assert!(list.iter().all(|status| status.activity.is_some()), "{list:?}");
    assert_ne!(list[0].session, list[1].session);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_conversation_stays_readable_and_only_what_was_not_stopped_starts_with_its_project() {
    let place = Folders::new();
    let (url, seen) = serve_by(by_text(vec![("sleep", shell("echo $$ > pid; echo started; sleep 600"))])).await;
    let engine = Engine::default();
    let project = engine.start_project(place.options("p", &url)).await.unwrap();
    let (first, second) = (project.start_conversation("first").await.unwrap(), project.start_conversation("second").await.unwrap());
    run_with(&first, "a word to the first").await;
    run_with(&second, "a word to the second").await;
    // One that is in the middle of a run.
    let mut follower = first.follow(Token::Start, Some(0)).await.unwrap();
    first.send("jane", Uuid::now_v7(), "sleep").await.unwrap();
    let pid = place.folder("p-root").join("pid");
    in_time("the command runs", async {
        while !std::fs::read_to_string(&pid).is_ok_and(|pid| pid.ends_with('\n')) {
            follower.next().await.unwrap().unwrap();
        }
    })
    .await;
    project.stop_conversation("first").await.unwrap();
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists(), "process {pid} is left");
    // Of the stop, and again of what was stopped before.
    for _ in 0..2 {
        assert_eq!(state(&project, "first"), ConversationState::Stopped);
        assert!(texts(&project.conversation("first").unwrap()).await.contains("a word to the first"));
        project.stop_conversation("first").await.unwrap();
    }
    let refused = project.conversation("first").unwrap().send("jane", Uuid::now_v7(), "x").await.unwrap_err();
    assert_eq!(refused.to_string(), "conversation first does not run: it was stopped");

    drop((project, first, second));
    engine.stop_project("p").await.unwrap();
    let project = engine.start_project(place.options("p", &url)).await.unwrap();
    assert_eq!((state(&project, "first"), state(&project, "second")), (ConversationState::Stopped, ConversationState::Running));
    assert!(texts(&project.conversation("first").unwrap()).await.contains("a word to the first"));
    run_with(&project.conversation("second").unwrap(), "and another").await;
    let last = seen.lock().unwrap().last().cloned().unwrap();
    assert!(last.contains("a word to the second") && last.contains("and another") && !last.contains("to the first"), "{last}");
    // It goes on with what it was interrupted in, and what was said.
    let first = project.start_conversation("first").await.unwrap();
    let outcomes = in_time("its three runs", outcomes(&first, 3)).await;
    assert_eq!(outcomes, [RunOutcome::Finished, RunOutcome::Interrupted, RunOutcome::Finished]);
    engine.stop_project("p").await.unwrap();
}

/// Breaks the conversation that it observes.
struct Fault;

impl ConversationObserver for Fault {
    fn on_entries_logged(&self) {
        panic!("a fault for the test");
    }
    fn on_model_called(&self, _failure: Option<FailedCall>) {}
    fn on_progress(&self, _activity: Activity, _task: Option<yoi_wire::hub::TaskReport>) {}
    fn on_program_session(&self, _lost: Option<String>) {}
    fn on_rotated(&self, _session: yoi_wire::hub::SessionPointer) {}
    fn on_wait(&self) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p60_a_conversation_that_breaks_or_whose_record_is_gone_harms_no_other_and_the_list_says_why() {
    let place = Folders::new();
    let (url, _) = serve_by(|_| says("done")).await;
    let mut project = Project::start(place.options("p", &url)).await.unwrap();
    let observe = project.others.parts.observe.clone();
    project.others.parts.observe = Arc::new(move |name: &str| -> Arc<dyn ConversationObserver> {
        if name == "faulty" { Arc::new(Fault) } else { observe(name) }
    });
    let faulty = project.start_conversation("faulty").await.unwrap();
    let lost = project.start_conversation("lost").await.unwrap();
    let well = project.start_conversation("well").await.unwrap();
    assert!(in_time("the fault", faulty.ended()).await.contains("a fault of this program"));
    // Neither its segment nor another one can be written any more.
    let sessions = stored::folder(&place.0.path().canonicalize().unwrap().join("p-state"), "lost").join("sessions");
    let session = std::fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
    let segment = std::fs::read_dir(&session).unwrap().map(|file| file.unwrap().path()).find(|path| path.extension().is_some()).unwrap();
    let end = lost.open_session().unwrap().segment_bytes();
    std::os::unix::fs::FileExt::write_all_at(&std::fs::OpenOptions::new().write(true).open(&segment).unwrap(), b"foreign\n", end).unwrap();
    std::fs::remove_dir_all(&session).unwrap();
    let _ = lost.send("jane", Uuid::now_v7(), "x").await;
    let _ = lost.control("jane", yoi_wire::control::ControlAction::Run { text: "x".to_owned() }).await;
    in_time("the end of the lost one", lost.ended()).await;

    let main = project.conversation(MAIN).unwrap();
    for conversation in [&main, &well] {
        assert_eq!(outcome(&run_with(conversation, "are you there?").await), RunOutcome::Finished);
    }
    let list = project.conversations();
    let why = |name: &str| list.iter().find(|status| status.name == name).unwrap().message.clone();
    assert_eq!((state(&project, "faulty"), state(&project, "lost")), (ConversationState::Failed, ConversationState::Failed));
    assert!(why("faulty").unwrap().contains("a fault of this program") && why("lost").is_some() && why("well").is_none(), "{list:?}");
    // What was broken can be started again, and stopped.
    project.others.parts.observe = Arc::new(|_: &str| -> Arc<dyn ConversationObserver> { Arc::new(crate::project::Unobserved) });
    let again = project.start_conversation("faulty").await.unwrap();
    assert_eq!(outcome(&run_with(&again, "are you there?").await), RunOutcome::Finished);
    project.stop_conversation("lost").await.unwrap();
    assert_eq!(state(&project, "lost"), ConversationState::Stopped);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p40_conversations_of_one_name_in_two_projects_share_no_event() {
    let place = Folders::new();
    let (url, _) = serve_by(|_| says("done")).await;
    let engine = Engine::default();
    let mut logs = Vec::new();
    for (id, text) in [("one", "to the first project"), ("two", "to the second project")] {
        let project = engine.start_project(place.options(id, &url)).await.unwrap();
        let conversation = project.start_conversation("same").await.unwrap();
        run_with(&conversation, text).await;
        logs.push((text, conversation));
    }
    for (text, conversation) in &logs {
        let log = texts(conversation).await;
        assert!(logs.iter().all(|(other, _)| log.contains(other) == (other == text)), "{log}");
    }
    let (first, second) =
        (logs[0].1.read_log(Token::Start, None).await.unwrap().0, logs[1].1.read_log(Token::Start, None).await.unwrap().0);
    assert!(first.iter().all(|stored| second.iter().all(|other| other.entry.id != stored.entry.id)));
    engine.stop_project("one").await.unwrap();
    assert_eq!(outcome(&run_with(&logs[1].1, "are you there?").await), RunOutcome::Finished);
    engine.stop_project("two").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_started_or_stopped_is_refused_by_name() {
    let place = Folders::new();
    let options = ProjectOptions { conversations: 2, ..place.options("p", &silent_url().await) };
    let project = Project::start(options).await.unwrap();
    for name in ["", "main", "-a", "A", "../a", &"x".repeat(64)] {
        let error = project.start_conversation(name).await.unwrap_err();
        assert!(matches!(error, ProjectError::ConversationName { .. }), "{name}: {error}");
    }
    project.start_conversation("a").await.unwrap();
    project.start_conversation("b").await.unwrap();
    let error = project.start_conversation("a").await.unwrap_err();
    assert!(matches!(error, ProjectError::ConversationRuns { .. }), "{error}");
    let error = project.start_conversation("c").await.unwrap_err();
    assert!(matches!(error, ProjectError::TooManyConversations { limit: 2, .. }), "{error}");
    project.stop_conversation("a").await.unwrap();
    project.start_conversation("c").await.unwrap();
    for error in [project.stop_conversation("d").await.unwrap_err(), project.conversation("d").unwrap_err()] {
        assert_eq!(error.to_string(), "there is no conversation d; there are main, a, b, c");
    }
    assert!(matches!(project.stop_conversation(MAIN).await, Err(ProjectError::MainIsNotStopped)));
    project.stop().await;
    assert!(matches!(project.start_conversation("a").await, Err(ProjectError::Ended { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tokens_of_a_project_are_those_of_all_its_conversations_also_of_the_stopped_ones() {
    let place = Folders::new();
    let costs = |text: &str| {
        let mut answer = streamed(&[json!({"content": text})], "stop");
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 60, "completion_tokens": 40, "total_tokens": 100}});
        let body = answer[0].take().unwrap().replace("data: [DONE]", &format!("data: {usage}\n\ndata: [DONE]"));
        answer[0] = Some(body);
        answer
    };
    let (url, _) = serve(vec![costs("one"), costs("two")]).await;
    let mut options = place.options("p", &url);
    options.limits.tokens = Some(200);
    let project = Project::start(options.clone()).await.unwrap();
    let other = project.start_conversation("other").await.unwrap();
    assert_eq!(outcome(&run_with(&other, "hello").await), RunOutcome::Finished);
    project.stop_conversation("other").await.unwrap();
    project.stop().await;
    let project = Project::start(options).await.unwrap();
    let main = project.conversation(MAIN).unwrap();
    assert_eq!(outcome(&run_with(&main, "hello").await), RunOutcome::Finished);
    let ended = run_with(&main, "and more").await;
    let Body::RunEnded(end) = &ended.last().unwrap().body else { panic!("{ended:?}") };
    assert_eq!(end.outcome, RunOutcome::LimitReached);
    assert_eq!(end.message.as_deref(), Some("this conversation has used 100 tokens, and spec.limits.tokens leaves it 100"));
    project.stop().await;
}
