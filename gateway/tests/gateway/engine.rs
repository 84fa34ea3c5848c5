//! The engine's calls through the gateway.

use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::harness::{TestCluster, json_of, wait_for, writable_log};

const ENGINE: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/proxy/engine";

fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get proxy");
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn p67_each_call_of_the_engine_reaches_the_conversation_that_its_query_names_and_what_is_not_there_is_said() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    for (call, asked) in [
        ("events", "/v1/engine/events?follow=false"),
        ("events?after=s.7~2&conversation=main&x=y", "/v1/engine/events?follow=false&after=s.7~2"),
        ("events?tail=5000&conversation=review", "/v1/conversations/review/engine/events?follow=false&tail=1000"),
        ("projection/timeline", "/v1/engine/projection/timeline"),
        ("projection/of_a_newer_one?conversation=review", "/v1/conversations/review/engine/projection/of_a_newer_one"),
        ("tools", "/v1/engine/tools"),
        ("tools?conversation=review", "/v1/conversations/review/engine/tools"),
    ] {
        let (status, answer) = cluster.request(&replica, "alice", "GET", &format!("{ENGINE}/{call}"), None).await;
        // Events are no JSON: they come as their own type.
        let answer: Value = answer.as_str().map_or(answer.clone(), |text| serde_json::from_str(text).unwrap());
        assert_eq!((status, &answer["asked"]), (StatusCode::OK, &json!(asked)), "{call}: {answer}");
    }
    let again = json_of(cluster.connect_again(&replica, "alice", &format!("{ENGINE}/events"), "s.9").await).await;
    assert_eq!(again.1["asked"], "/v1/engine/events?follow=false&after=s.9");
    let asked = a.state.steering.lock().unwrap().attached.len();
    for (call, status, words) in [
        ("projection/nothing", StatusCode::BAD_REQUEST, "there is no projection \"nothing\""),
        ("projection/No", StatusCode::BAD_REQUEST, "there are timeline, llm_context"),
        ("projection/..%2Flog", StatusCode::BAD_REQUEST, "is no key of a projection"),
        ("events?after=a%26follow%3Dtrue", StatusCode::BAD_REQUEST, "after is not a token"),
        ("events?conversation=No", StatusCode::BAD_REQUEST, "is no name of a conversation"),
        ("state", StatusCode::NOT_FOUND, "serves nothing at"),
    ] {
        let (code, refused) = cluster.request(&replica, "alice", "GET", &format!("{ENGINE}/{call}"), None).await;
        assert!(code == status && refused["message"].as_str().unwrap().contains(words), "{call}: {code} {refused}");
    }
    assert_eq!(a.state.steering.lock().unwrap().attached.len(), asked + 1, "only the first of them is for the agent to say");
    let (status, _) = cluster.request(&replica, "alice", "POST", &format!("{ENGINE}/tools"), Some(json!({}))).await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_events_through_a_gateway_that_stops_goes_on_at_another_one_after_the_cursor() {
    let cluster = cluster();
    let (first, second) = (cluster.replica().await, cluster.replica().await);
    let a = cluster.runtime(&[&first, &second], "token-p-a").await;
    let pair = cluster.front.client(&["front-proxy-client"]);
    let (events, body) = writable_log();
    *a.state.attach.lock().unwrap() = Some(body);
    let path = format!("{ENGINE}/events?follow=true");
    let mut followed = cluster.request_with(first.api, Some(&pair), "alice", "GET", &path, None).await;
    assert_eq!(followed.headers()["content-type"], "text/event-stream");
    let frame = Bytes::from("id: g.7\ndata: {}\n\n");
    events.send(Ok(frame.clone())).await.unwrap();
    assert_eq!(wait_for("the event", followed.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap(), frame);
    first.stop.cancel();
    assert!(wait_for("the error", followed.body_mut().frame()).await.unwrap().is_err(), "no end, which would be the log's");
    wait_for("the end upstream", events.closed()).await;
    let again = json_of(cluster.connect_again(&second, "alice", &path, "g.7").await).await;
    assert_eq!(again, (StatusCode::OK, json!({"asked": "/v1/engine/events?follow=true&after=g.7"})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_acts_needs_the_right_of_its_kind_and_reaches_the_runtime_with_the_name_of_its_user() {
    let cluster = cluster();
    for (user, rights) in [
        ("runs", &["create proxy", "create tools"][..]),
        ("sends", &["create proxy", "create events"]),
        ("reads", &["get proxy", "create tools", "create events"]),
        ("opens", &["create proxy", "create control", "create message", "get log"]),
    ] {
        rights.iter().for_each(|right| cluster.api.allow(user, right));
    }
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    cluster.api.wait_until("yoipods", "ns", "a", |a| a["status"]["live"].is_object()).await;
    let id = "0197c0de-0000-7000-8000-000000000001";
    let run = json!({"id": id, "args": {"command": "ls"}});
    let event = json!({"id": id, "type": "conversation.user.message", "data": {"text": "go"}});
    let ask = async |user: &str, call: &str, body: &Value| {
        cluster.request(&replica, user, "POST", &format!("{ENGINE}/{call}"), Some(body.clone())).await
    };
    for (user, call, body, right) in [
        ("sends", "tools/Shell", &run, "yoipods/tools"),
        ("runs", "events", &event, "yoipods/events"),
        ("reads", "tools/Shell", &run, "yoipods/proxy"),
        ("reads", "events", &event, "yoipods/proxy"),
        ("opens", "tools/Shell", &run, "yoipods/tools"),
        ("opens", "events", &event, "yoipods/events"),
    ] {
        let (status, refused) = ask(user, call, body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{user} {call}");
        assert!(refused["message"].as_str().unwrap().contains(&format!("cannot create resource \"{right}\"")), "{user} {call}: {refused}");
    }
    assert!(a.state.steering.lock().unwrap().requests.is_empty());
    let long = json!({"callId": "c", "end": {"seq": 7, "outcome": "succeeded", "output": "x".repeat(300 << 10)}});
    a.state.steering.lock().unwrap().answer = Some((200, long.to_string()));
    assert_eq!(ask("runs", "tools/Shell?conversation=review", &run).await, (StatusCode::OK, long));
    a.state.steering.lock().unwrap().answer = None;
    assert_eq!(ask("sends", "events", &event).await.0, StatusCode::OK);
    {
        let steering = a.state.steering.lock().unwrap();
        assert_eq!(steering.requests, [("runs".to_owned(), run.clone()), ("sends".to_owned(), event.clone())]);
        assert_eq!(steering.attached, ["/v1/conversations/review/engine/tools/Shell", "/v1/engine/events"]);
    }
    for (call, body, status) in [
        ("tools/..%2Flog", run.clone(), StatusCode::BAD_REQUEST),
        ("tools/Shell", json!({"args": {}}), StatusCode::BAD_REQUEST),
        ("tools/Shell", json!({"id": id, "args": {}, "as": "root"}), StatusCode::BAD_REQUEST),
        ("tools/Shell?conversation=No", run.clone(), StatusCode::BAD_REQUEST),
        ("tools/Shell", json!({"id": id, "args": {"x": "x".repeat(70 << 10)}}), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(ask("runs", call, &body).await.0, status, "{call}");
    }
    assert_eq!(ask("sends", "events", &json!({"id": "x"})).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(a.state.steering.lock().unwrap().requests.len(), 2, "what is no call reaches no runtime");
    let refusal = json!({"reason": "InboxFull", "message": "the event was not taken: 1000 messages wait to be read"});
    a.state.steering.lock().unwrap().answer = Some((429, refusal.to_string()));
    let (status, full) = ask("sends", "events", &event).await;
    assert_eq!(
        (status, &full["message"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("YoiPod ns/a: the event was not taken: 1000 messages wait to be read"))
    );
    let metrics = replica.metrics().await;
    assert!(metrics.contains(r#"yoi_gateway_control_requests_total{action="runTool",answer="Done"} 1"#), "{metrics}");
}
