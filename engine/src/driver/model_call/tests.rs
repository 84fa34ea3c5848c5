//! One call against servers that cost tokens and bring no answer.

use std::sync::Mutex;

use serde_json::json;
use yoi_session::{Holder, Lock};
use yoi_wire::entry::{AgentConfig, AgentRef, PromptItem};
use yoi_wire::hub::{Activity, SessionPointer, TaskReport};
use yoi_wire::manifest::ModelEndpoint;

use super::*;
use crate::live_feed::FeedEvent;
use crate::model::ModelTimeouts;
use crate::model::test_server::{Seen, serve, status, stream_head};

#[derive(Debug, Default)]
struct Observed(Mutex<Vec<Option<FailedCall>>>);

impl ConversationObserver for Observed {
    fn on_entries_logged(&self) {}
    fn on_model_called(&self, failure: Option<FailedCall>) {
        self.0.lock().unwrap().push(failure);
    }
    fn on_progress(&self, _: Activity, _: Option<TaskReport>) {}
    fn on_program_session(&self, _: Option<String>) {}
    fn on_rotated(&self, _: SessionPointer) {}
    fn on_wait(&self) {}
}

struct NoRenewal;

impl SecretRenewal for NoRenewal {
    fn due_in(&self, _: Duration) -> Duration {
        Duration::from_secs(3600)
    }
    fn renew(&self) {}
}

/// What came of a call.
struct Outcome {
    end: ConversationEvent,
    used: Vec<(u64, String)>,
    troubles: Vec<(String, String)>,
    noticed: Vec<String>,
    shown: Vec<String>,
    asked: usize,
}

impl Outcome {
    fn failed(&self) -> (ModelFailureKind, &str) {
        match &self.end {
            ConversationEvent::ModelFailed { failure, .. } => (failure.kind, &failure.message),
            other => panic!("{other:?}"),
        }
    }

    fn text(&self) -> &str {
        match &self.end {
            ConversationEvent::Answered { answer, .. } => &answer.text,
            other => panic!("{other:?}"),
        }
    }
}

/// A piece of a stream, and the connection's end.
fn stream(text: &str) -> Vec<Option<String>> {
    vec![Some(stream_head() + text)]
}

fn answered(text: &str, tokens: u64) -> Vec<Option<String>> {
    stream(&format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":{tokens}}}}}\n\ndata: [DONE]\n\n"
    ))
}

/// Calls the model of these endpoints; each has the answers of its server. Waits are over when they begin.
async fn call(provider: &str, servers: Vec<Vec<Vec<Option<String>>>>, limit: Option<u64>) -> Outcome {
    let mut endpoints: Vec<ModelEndpoint> = Vec::new();
    let mut seen: Vec<Seen> = Vec::new();
    for answers in servers {
        let (url, requests) = serve(answers).await;
        seen.push(requests);
        endpoints.push(serde_json::from_value(json!({"provider": provider, "name": "m", "baseUrl": url})).unwrap());
    }
    let mut first = endpoints.remove(0);
    first.fallbacks = endpoints;
    let model = Arc::new(FallbackModels::new(&first, &[], ModelTimeouts::default()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let holder = Holder { run_generation: 1, pod_uid: "p".to_owned() };
    let lock = Lock::take(crate::open_session::disk(), folder.path(), holder).unwrap();
    let agent = AgentRef { namespace: "n".to_owned(), name: "a".to_owned(), uid: "u".to_owned() };
    let config = AgentConfig { model: model.config(), ..AgentConfig::default() };
    let (session, _) = crate::open_session::OpenSession::open(&lock, &agent, &|| config.clone()).unwrap();
    let mut shown = session.feed.subscribe().unwrap();
    let (events, mut received) = mpsc::unbounded_channel();
    let (_limit, limit) = watch::channel(limit);
    let task = ModelCallTask {
        effect: 1,
        summary: false,
        model,
        retries: RetryPolicy { first: Duration::ZERO, cap: Duration::ZERO },
        patience: ModelPatience { total: None, first_person: Duration::ZERO, next_person: Duration::ZERO },
        random: || 0.0,
        observer: Arc::new(Observed::default()),
        events,
        retry: Arc::default(),
        session,
        secrets: Arc::new(NoRenewal),
        account: TokenAccount { used: 0, limit },
    };
    let request = PromptRequest { config: Arc::new(config), items: Arc::new(vec![PromptItem::User("hi".to_owned())]), offer_tools: true };
    let end = task.run(request).await;
    let (mut used, mut troubles, mut noticed) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(event) = received.recv().await {
        match event {
            ConversationEvent::Used { usage, reason } => used.push((usage.input_tokens, reason)),
            ConversationEvent::ModelTrouble { reason, message, .. } => troubles.push((reason, message)),
            ConversationEvent::Noticed { message, .. } => noticed.push(message),
            _ => {}
        }
    }
    let mut events = Vec::new();
    while let Ok(event) = shown.events.try_recv() {
        if let FeedEvent::Delta(delta) = event {
            events.push(delta.text.clone());
        }
    }
    let asked = seen.iter().map(|seen| seen.lock().unwrap().len()).sum();
    Outcome { end, used, troubles, noticed, shown: events, asked }
}

/// An answer of Anthropic's that costs so many tokens and breaks off.
fn cut_off(tokens: u64) -> Vec<Option<String>> {
    stream(&format!(
        "data: {{\"type\":\"message_start\",\"message\":{{\"usage\":{{\"input_tokens\":{tokens}}}}}}}\n\n\
         data: {{\"type\":\"content_block_start\",\"content_block\":{{\"type\":\"text\",\"text\":\"half\"}}}}\n\n"
    ))
}

#[tokio::test]
async fn the_tries_of_one_turn_end_at_the_limit_of_tokens() {
    let outcome = call("Anthropic", vec![vec![cut_off(100_000); 9]], Some(250_000)).await;
    assert_eq!((outcome.failed().0, outcome.asked), (ModelFailureKind::LimitReached, 3));
    assert_eq!(outcome.used, vec![(100_000, "Failed".to_owned()); 3]);
}

#[tokio::test]
async fn a_call_of_an_endpoint_before_a_fallback_is_counted_and_its_half_answer_is_taken_back() {
    let outcome = call("Anthropic", vec![vec![cut_off(10); 3], vec![cut_off(20), cut_off(20), cut_off(20)]], Some(65)).await;
    assert_eq!((outcome.failed().0, outcome.asked), (ModelFailureKind::LimitReached, 5));
    let used: Vec<u64> = outcome.used.iter().map(|(tokens, _)| *tokens).collect();
    assert_eq!(used, [10, 10, 10, 20, 20]);
    assert_eq!(outcome.shown.iter().filter(|text| *text == "half").count(), 5);
    let pairs = outcome.shown.windows(2).filter(|pair| pair[0] == "half" && pair[1] == "half").count();
    assert_eq!(pairs, 0, "two answers are shown as one: {:?}", outcome.shown);
}

#[tokio::test]
async fn failures_that_were_paid_for_are_not_tried_without_end() {
    let outcome = call("Anthropic", vec![vec![cut_off(7); 20]], None).await;
    let (kind, message) = outcome.failed();
    assert_eq!((kind, outcome.asked), (ModelFailureKind::Unreachable, 10));
    assert!(message.contains("broke its answer off") && message.contains("10 tries in a row"), "{message}");
}

#[tokio::test]
async fn an_answer_whose_tokens_are_not_told_is_reckoned() {
    let half = stream("data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n");
    let whole = stream("data: {\"choices\":[{\"delta\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    let outcome = call("OpenAI", vec![vec![half, whole]], None).await;
    assert_eq!(outcome.text(), "whole");
    let reasons: Vec<&str> = outcome.used.iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(reasons, ["Failed", "Reckoned"]);
    assert!(outcome.noticed.is_empty(), "{:?}", outcome.noticed);
    let told = call("OpenAI", vec![vec![answered("whole", 7)]], None).await;
    assert_eq!((told.text(), told.used.len()), ("whole", 0));
}

#[tokio::test]
async fn what_is_never_an_answer_waits_for_a_person_after_some_tries_with_the_servers_words() {
    let broken = "{\"error\":{\"code\":500,\"message\":\"Template error: no filter named x\",\"type\":\"server_error\"}}";
    for answer in [status("200 OK", "", "<html>Log in first</html>"), status("500 Internal Server Error", "", broken)] {
        let mut answers = vec![answer; 12];
        answers.push(answered("at last", 7));
        let outcome = call("OpenAI", vec![answers], None).await;
        assert_eq!((outcome.text(), outcome.asked), ("at last", 13));
        let reasons: Vec<&str> = outcome.troubles.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!((&reasons[..11], reasons[11], reasons.len()), (&["ModelUnreachable"; 11][..], "ModelRefused", 12));
        assert!(outcome.troubles[11].1.contains("Log in first") || outcome.troubles[11].1.contains("no filter named x"));
    }
    // Many servers write another id into each message.
    let numbered = |n| format!("{{\"error\":{{\"message\":\"Template error (request id: 5f{n}a-{n})\",\"type\":\"server_error\"}}}}");
    let mut answers: Vec<_> = (0..12).map(|n| status("500 Internal Server Error", "", &numbered(n))).collect();
    answers.push(answered("at last", 7));
    let outcome = call("OpenAI", vec![answers], None).await;
    let last = outcome.troubles.last().map(|(reason, _)| reason.as_str());
    assert_eq!((outcome.text(), last, outcome.troubles.len()), ("at last", Some("ModelRefused"), 12), "{:?}", outcome.troubles);
    // A server that is overloaded has the same words for hours.
    let busy = status("503 Service Unavailable", "", "{\"error\":{\"message\":\"overloaded\"}}");
    let outcome = call("OpenAI", vec![[vec![busy; 20], vec![answered("at last", 7)]].concat()], None).await;
    assert!(outcome.troubles.iter().all(|(reason, _)| reason == "ModelUnreachable"), "{:?}", outcome.troubles);
}
