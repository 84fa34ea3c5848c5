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
