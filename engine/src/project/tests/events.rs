//! Events of a project's conversations.

use serde_json::json;
use yoi_wire::signal::CloudEvent;

use super::*;
use crate::signals::{Cursor, EventsFrom};

async fn all(project: &Project, conversation: &str, from: EventsFrom) -> Vec<CloudEvent> {
    let mut stream = project.events(conversation, from).await.unwrap().unwrap();
    let mut events = Vec::new();
    while let Some(next) = in_time("the events", stream.next()).await {
        events.extend(next.unwrap());
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p45_p63_the_events_of_a_run_come_once_each_in_the_logs_order_also_to_who_reads_late_or_begins_anywhere() {
    let place = Folders::new();
    let write = calls("Write", &json!({"path": "note", "content": "x".repeat(5000)}));
    let (url, _) = serve(vec![write, says("done")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    let follow = EventsFrom { follow: true, ..EventsFrom::default() };
    // This one reads nothing while the run goes on, which ends all the same.
    let mut late = project.events("main", follow).await.unwrap().unwrap();
    run_with(&project, "write a note").await;
    let whole = all(&project, "main", EventsFrom::default()).await;
    let mut followed = Vec::new();
    while followed.len() < whole.len() {
        followed.extend(in_time("more events", late.next()).await.unwrap().unwrap());
    }
    assert_eq!(followed, whole);
    let kinds: Vec<&str> = whole.iter().map(|event| event.kind.as_str()).filter(|kind| kind.starts_with("conversation.")).collect();
    // The endpoint tells no tokens, so that they are estimated beside each answer.
    let run = [
        "conversation.started",
        "conversation.user.message",
        "conversation.run.opened",
        "conversation.llm.usage",
        "conversation.llm.completed",
        "conversation.tool.requested",
        "conversation.execution.started",
        "conversation.tool.completed",
        "conversation.llm.usage",
        "conversation.llm.completed",
        "conversation.assistant.message",
        "conversation.run.closed",
    ];
    assert_eq!(kinds, run);
    let text = json!(whole).to_string();
    assert!(text.contains("[cut: the text has 5000 bytes]") && !text.contains(&"x".repeat(5000)));
    // Whoever goes on after any of them gets the others, as they were.
    for (place, event) in whole.iter().enumerate() {
        let after: Cursor = event.cursor.parse().unwrap();
        assert_eq!(
            all(&project, "main", EventsFrom { after, ..EventsFrom::default() }).await,
            whole[place + 1..],
            "after {}",
            event.cursor
        );
    }
    let tail = all(&project, "main", EventsFrom { tail: Some(1), ..EventsFrom::default() }).await;
    assert_eq!(tail, whole[whole.len() - 1..]);
    project.stop().await;
    // Who follows learns that it is over, and what has stopped is read as before.
    while let Some(more) = in_time("the end", late.next()).await {
        more.unwrap();
    }
    let stopped = all(&project, "main", follow).await;
    assert_eq!(stopped[..whole.len()], whole);
    let ends: Vec<&str> = stopped[whole.len()..].iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(ends, ["project.stopped"], "it comes once, as the last one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p37_a_message_that_a_full_inbox_refuses_is_told_to_its_sender_and_is_an_event() {
    let place = Folders::new();
    // The model does not answer, so that messages wait.
    let project = Project::start(place.options("p", &silent_url().await)).await.unwrap();
    let mut events = project.events("main", EventsFrom { follow: true, ..EventsFrom::default() }).await.unwrap().unwrap();
    let refused = loop {
        match project.send("jane", Uuid::now_v7(), "x").await {
            Ok(()) => {}
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, ProjectError::InboxFull { .. }), "{refused}");
    let overflow = async {
        loop {
            let found = events.next().await.unwrap().unwrap();
            if let Some(event) = found.into_iter().find(|event| event.kind == "conversation.queue.overflow") {
                return event;
            }
        }
    };
    assert!(in_time("the event", overflow).await.data["waiting"].as_u64().unwrap() > 0);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_of_an_answer_come_before_its_event_to_who_asks_for_them_and_to_nobody_again() {
    let place = Folders::new();
    let pieces = ["One ", "two ", "three."].map(|text| json!({"content": text}));
    let (url, _) = serve(vec![streamed(&pieces, "stop")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    let from = EventsFrom { follow: true, deltas: true, ..EventsFrom::default() };
    let mut events = project.events("main", from).await.unwrap().unwrap();
    run_with(&project, "count").await;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|event: &CloudEvent| event.kind != "conversation.run.closed") {
        seen.extend(in_time("more events", events.next()).await.unwrap().unwrap());
    }
    let at = |kind: &str| seen.iter().position(|event| event.kind == kind).unwrap();
    let deltas: Vec<&CloudEvent> = seen.iter().filter(|event| event.kind == "conversation.assistant.delta").collect();
    let text: String = deltas.iter().filter_map(|event| event.data["text"].as_str()).collect();
    assert_eq!(text, "One two three.");
    assert!(
        at("conversation.assistant.delta") > at("conversation.run.opened")
            && at("conversation.assistant.delta") < at("conversation.assistant.message")
    );
    assert!(deltas.iter().all(|event| event.runid.is_some() && event.cursor.parse::<Cursor>().is_ok()));
    // Those of the log are what they are without them, and whoever goes on after a piece misses none.
    let logged: Vec<CloudEvent> = seen.iter().filter(|event| event.kind != "conversation.assistant.delta").cloned().collect();
    assert_eq!(all(&project, "main", EventsFrom::default()).await, logged);
    let after: Cursor = deltas[0].cursor.parse().unwrap();
    let later = all(&project, "main", EventsFrom { after, ..EventsFrom::default() }).await;
    assert_eq!(later, logged[logged.len() - later.len()..]);
    assert!(later.iter().any(|event| event.kind == "conversation.assistant.message"));
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_events_are_as_many_as_were_asked_for_whatever_entries_they_are_of() {
    let place = Folders::new();
    let (url, _) = serve(vec![calls("Write", &json!({"path": "note", "content": "x"})), says("done")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    run_with(&project, "write a note").await;
    let whole = all(&project, "main", EventsFrom::default()).await;
    for tail in 1..=whole.len() + 2 {
        let last = all(&project, "main", EventsFrom { tail: Some(tail), ..EventsFrom::default() }).await;
        assert_eq!(last, whole[whole.len().saturating_sub(tail)..], "the last {tail}");
    }
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p67_what_there_is_not_is_a_named_error_and_nothing_is_logged() {
    let place = Folders::new();
    let (url, _) = serve(vec![says("done")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    run_with(&project, "hello").await;
    let before = all(&project, "main", EventsFrom::default()).await;
    let unknown = project.events("other", EventsFrom::default()).await.unwrap_err();
    assert!(matches!(unknown, ProjectError::UnknownConversation { .. }), "{unknown}");
    let after = Cursor { token: Token::After { segment: Uuid::nil(), seq: 1 }, taken: 0 };
    let foreign = project.events("main", EventsFrom { after, ..EventsFrom::default() }).await.unwrap_err();
    assert!(matches!(foreign, ProjectError::Session(yoi_session::Error::UnknownToken { .. })), "{foreign}");
    assert_eq!(all(&project, "main", EventsFrom::default()).await, before);
    project.stop().await;
}
