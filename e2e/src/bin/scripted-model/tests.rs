//! Tests of the endpoint, over HTTP.

use std::collections::BTreeSet;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use crate::endpoint::conversation::{Conversation, Item};
use crate::{script, server};

mod chat;
mod faults;
mod gemini;
mod messages;
mod responses;
mod streams;
mod usage;

/// A script whose conversation calls two tools and ends, with models of all kinds.
const SCRIPT: &str = "
models:
- {}
- {name: small, windowTokens: 50}
- {name: small-deepseek, windowTokens: 50, profile: deepseek}
- {name: limited, maxOutputTokens: 100, maxBodyBytes: 20000}
- {name: prefilled, prefill: true}
- {name: deepseek-reasoner, profile: deepseek}
- {name: gemini-compatible, profile: gemini}
- {name: strict-server, profile: plain}
- {name: cheap, minCacheTokens: 0}
- {name: ordered, orderStatus: 500}
- {name: blind, textOnly: true}
rules:
- when: {lastUserContains: work}
  steps:
  - reasoning: Hm, a Größe of 3 €.
    text: 'I look into two: ä, 漢字.'
    toolCalls: [{tool: Read, args: {path: größe}}, {tool: Read, args: {path: b}}]
  - {reasoning: So., text: Done.}
- when: {lastUserContains: length}
  steps: [{text: half an ans, stop: length}]
- when: {lastUserContains: refusal}
  steps: [{text: I will not., stop: refusal}]
- when: {lastUserContains: filter}
  steps: [{text: half, stop: contentFilter}]
- when: {lastUserContains: pause}
  steps: [{text: I search., stop: pause}, {text: Found.}]
- when: {lastUserContains: all at once}
  steps: [{toolCalls: [{tool: Read, args: {path: a}}, {tool: Read, args: {path: b}}], callsInOneDelta: true}]
- when: {lastUserContains: slow}
  steps: [{text: At last., delayMs: 50, pingMs: 10}]
- when: {lastUserContains: rate}
  steps: [{text: x, fault: {error: rateLimit, retryAfterSeconds: 7, times: 1}}]
- when: {lastUserContains: quota}
  steps: [{text: x, fault: {error: quota, times: 1}}]
- when: {lastUserContains: overload}
  steps: [{text: x, fault: {error: overloaded, times: 1}}]
- when: {lastUserContains: as it is}
  steps: [{text: x, fault: {status: 418, body: '{\"error\":\"teapot\"}', times: 1}}]
- when: {lastUserContains: these events}
  steps: [{text: x, fault: {events: ['{\"choices\":null}', '[DONE]'], times: 1}}]
- when: {lastUserContains: fail within}
  steps: [{text: a longer text that is cut off, fault: {show: errorEvent, times: 1}}]
";

/// A running endpoint.
struct Endpoint {
    address: std::net::SocketAddr,
    _dir: Dir,
}

/// A directory that is removed in the end.
struct Dir(std::path::PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What came back.
struct Reply {
    status: u16,
    headers: hyper::HeaderMap,
    chunks: Vec<Bytes>,
}

impl Reply {
    fn text(&self) -> String {
        String::from_utf8(self.chunks.concat()).expect("the whole is UTF-8")
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The data of the events.
    fn events(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Endpoint {
    async fn start() -> Self {
        Self::with(SCRIPT, None).await
    }

    async fn with(script: &str, key: Option<&str>) -> Self {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = Dir(std::env::temp_dir().join(format!("scripted-model-{}-{number}", std::process::id())));
        std::fs::create_dir_all(&dir.0).unwrap();
        let path = dir.0.join("script.yaml");
        std::fs::write(&path, script).unwrap();
        let router = server::router(Arc::new(script::ScriptFile::new(path)), key.map(str::to_owned));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, _dir: dir }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: String) -> Reply {
        let stream = tokio::net::TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = hyper::Request::builder().method(method).uri(path).header("host", "model");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
        let (head, mut body) = response.into_parts();
        let mut chunks = Vec::new();
        while let Some(frame) = body.frame().await {
            chunks.extend(frame.unwrap().into_data().ok());
        }
        Reply { status: head.status.as_u16(), headers: head.headers, chunks }
    }

    /// Sends a request as the clients of this format do. Gemini's model goes into the path.
    async fn ask(&self, format: Format, body: &Value) -> Reply {
        let mut body = body.clone();
        let path = match format {
            Format::Chat => "/v1/chat/completions".to_owned(),
            Format::Responses => "/v1/responses".to_owned(),
            Format::Messages => "/v1/messages".to_owned(),
            Format::Gemini => {
                let name = body["model"].as_str().unwrap_or("scripted").to_owned();
                let streamed = body["stream"] == true;
                for field in ["model", "stream"] {
                    body.as_object_mut().unwrap().remove(field);
                }
                let method = if streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
                format!("/v1beta/models/{name}:{method}")
            }
        };
        let version = ("anthropic-version", "2023-06-01");
        let headers: &[_] = if body["noVersion"] == true { &[] } else { &[version] };
        if let Some(fields) = body.as_object_mut() {
            fields.remove("noVersion");
        }
        self.send("POST", &path, headers, body.to_string()).await
    }

    async fn lines(&self, path: &str) -> Vec<Value> {
        let reply = self.send("GET", path, &[], String::new()).await;
        reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Chat,
    Responses,
    Messages,
    Gemini,
}

/// A change that makes a good request break one rule, and what the endpoint says then.
struct Case {
    rule: &'static str,
    change: fn(&mut Value),
    status: u16,
    says: &'static str,
}

fn case(rule: &'static str, says: &'static str, change: fn(&mut Value)) -> Case {
    Case { rule, change, status: 400, says }
}

fn case_of(status: u16, rule: &'static str, says: &'static str, change: fn(&mut Value)) -> Case {
    Case { rule, change, status, says }
}

/// Checks that `good` is answered, and that each case is refused by its rule with its words. Returns the rules that were broken.
async fn check_refusals(endpoint: &Endpoint, format: Format, good: &Value, message_at: &str, cases: &[Case]) -> BTreeSet<String> {
    let reply = endpoint.ask(format, good).await;
    assert_eq!(reply.status, 200, "the good request is refused: {}", reply.text());
    for Case { rule, change, status, says } in cases {
        let mut bad = good.clone();
        change(&mut bad);
        assert_ne!(bad, *good, "{rule}: nothing is changed");
        let reply = endpoint.ask(format, &bad).await;
        let body = reply.json();
        let message = body.pointer(message_at).and_then(Value::as_str).unwrap_or_else(|| panic!("{rule}: no message in {body}"));
        let broken = endpoint.lines("/requests").await.pop().unwrap()["rule"].clone();
        assert_eq!(broken, *rule, "another rule is broken: {message}");
        assert_eq!(reply.status, *status, "{rule}: {message}");
        assert!(message.contains(says), "{rule}: {message}");
    }
    cases.iter().map(|case| case.rule.to_owned()).collect()
}

/// Checks that a format's rules are these, so that none is without its case.
async fn check_all_rules(endpoint: &Endpoint, format: &str, profile: &str, broken: &BTreeSet<String>) {
    let rules = endpoint.lines("/rules").await;
    let own = rules.iter().filter(|rule| rule["format"] == format && rule["profile"] == profile);
    let names: BTreeSet<String> = own.map(|rule| rule["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names.symmetric_difference(broken).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test]
async fn every_rule_names_its_source() {
    let rules = Endpoint::start().await.lines("/rules").await;
    assert!(rules.len() > 60, "{}", rules.len());
    for rule in rules {
        assert!(rule["source"].as_str().unwrap().starts_with("https://"), "{rule}");
    }
}

#[tokio::test]
async fn requests_can_be_read_as_they_were_received_without_their_keys() {
    let endpoint = Endpoint::with(SCRIPT, Some("the-key")).await;
    let body = json!({"model": "scripted", "messages": [{"role": "user", "content": "work"}]}).to_string();
    let headers = [("authorization", "Bearer the-key"), ("x-team", "blue")];
    assert_eq!(endpoint.send("POST", "/v1/chat/completions", &headers, body.clone()).await.status, 200);
    let wrong = endpoint.send("POST", "/v1/chat/completions", &[("authorization", "Bearer no")], body).await;
    assert_eq!((wrong.status, &wrong.json()["error"]["code"]), (401, &json!("invalid_api_key")));
    let lines = endpoint.lines("/requests?from=0").await;
    assert_eq!((lines[0]["headers"]["x-team"].as_str(), lines[0]["headers"]["authorization"].as_str()), (Some("blue"), Some("(set)")));
    assert_eq!((&lines[0]["body"]["messages"][0]["content"], &lines[0]["status"]), (&json!("work"), &json!(200)));
    assert_eq!(lines[1]["status"], 401);
    assert!(!lines.iter().any(|line| line.to_string().contains("the-key")));
    assert_eq!(endpoint.lines("/requests?from=1").await.len(), 1);
}

#[test]
fn what_an_agent_put_into_one_message_is_parted_at_blank_lines_and_nothing_else_is() {
    let item = |kind: fn(String) -> Item| kind("pass 1\n\nnumber 2\nmore".to_owned());
    let mut conversation = Conversation { items: vec![item(Item::User), item(Item::Result)], ..Conversation::default() };
    conversation.part_user_texts();
    let items: Vec<String> = conversation.items.iter().map(|item| format!("{item:?}")).collect();
    assert_eq!(items, [r#"User("pass 1")"#, r#"User("number 2\nmore")"#, r#"Result("pass 1\n\nnumber 2\nmore")"#]);
}

#[test]
fn a_message_that_a_rule_without_steps_matches_is_skipped() {
    let text = "rules: [{when: {lastUserContains: aside}, steps: []}, {when: {lastUserContains: work}, steps: [{text: One.}, {text: Two.}]}, {steps: [{text: What?}]}]";
    let script: script::Script = serde_yaml::from_str(text).unwrap();
    let items = vec![Item::User("work".to_owned()), Item::Assistant("One.".to_owned()), Item::User("an aside".to_owned())];
    let conversation = Conversation { items, ..Conversation::default() };
    assert_eq!(script.next(&conversation).unwrap().step.text, "Two.");
}
