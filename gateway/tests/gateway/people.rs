use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use yoi_test_support::eventually;

use crate::harness::{TestCluster, json_of, wait_for, writable_log};

const A: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a";

#[tokio::test(flavor = "multi_thread")]
async fn only_the_front_proxy_is_served() {
    let cluster = TestCluster::new();
    let replica = cluster.replica().await;
    for path in ["/apis", "/apis/runtime.yoi.dev/v1alpha1", "/readyz", "/openapi/v2", &format!("{A}/log")] {
        let (status, body) = json_of(cluster.request_with(replica.api, None, "admin", "GET", path, None).await).await;
        assert_eq!(
            (status, &body["kind"], &body["reason"]),
            (StatusCode::UNAUTHORIZED, &json!("Status"), &json!("Unauthorized")),
            "{path}"
        );
        let kubelet = cluster.front.client(&["kubelet"]);
        let response = cluster.request_with(replica.api, Some(&kubelet), "admin", "GET", path, None).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(cluster.request_with(replica.api, None, "", "GET", "/healthz", None).await.status(), StatusCode::OK);
    assert_eq!(cluster.api.request_count("POST apis/authorization"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_checked_for_each_verb_before_the_agent_is_looked_up() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get log");
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    for (user, method, subresource, wanted) in [
        ("alice", "GET", "log", StatusCode::OK),
        ("alice", "GET", "diff", StatusCode::FORBIDDEN),
        ("alice", "GET", "attach", StatusCode::FORBIDDEN),
        ("alice", "GET", "usage", StatusCode::FORBIDDEN),
        ("alice", "GET", "assets", StatusCode::FORBIDDEN),
        ("alice", "GET", "assets?search=x", StatusCode::FORBIDDEN),
        ("alice", "POST", "assets", StatusCode::FORBIDDEN),
        ("alice", "GET", "approval", StatusCode::FORBIDDEN),
        ("alice", "POST", "approval", StatusCode::FORBIDDEN),
        ("alice", "GET", "export", StatusCode::FORBIDDEN),
        ("alice", "GET", "log?export=true", StatusCode::FORBIDDEN),
        ("alice", "GET", "bundle", StatusCode::FORBIDDEN),
        ("alice", "GET", "log?bundle=true", StatusCode::FORBIDDEN),
        ("alice", "POST", "bundle", StatusCode::FORBIDDEN),
        ("alice", "POST", "control", StatusCode::FORBIDDEN),
        ("alice", "POST", "control/review", StatusCode::FORBIDDEN),
        ("alice", "GET", "conversations", StatusCode::FORBIDDEN),
        ("alice", "POST", "conversations/review", StatusCode::FORBIDDEN),
        ("alice", "DELETE", "conversations/review", StatusCode::FORBIDDEN),
        ("alice", "POST", "message", StatusCode::FORBIDDEN),
        ("alice", "POST", "merge", StatusCode::FORBIDDEN),
        ("alice", "GET", "proxy/engine/events", StatusCode::FORBIDDEN),
        ("alice", "GET", "proxy/engine/projection/timeline", StatusCode::FORBIDDEN),
        ("alice", "GET", "proxy/engine/projection/No", StatusCode::FORBIDDEN),
        ("alice", "GET", "proxy/engine/tools", StatusCode::FORBIDDEN),
        ("alice", "POST", "proxy/engine/tools/Shell", StatusCode::FORBIDDEN),
        ("alice", "POST", "proxy/engine/events", StatusCode::FORBIDDEN),
        ("alice", "GET", "proxy/ssh", StatusCode::FORBIDDEN),
        ("bob", "GET", "log", StatusCode::FORBIDDEN),
    ] {
        let (status, body) =
            cluster.request(&replica, user, method, &format!("{A}/{subresource}"), Some(json!({"messageId": "m", "text": "t"}))).await;
        assert_eq!(status, wanted, "{user} {subresource}: {body}");
        if status == StatusCode::FORBIDDEN {
            assert_eq!((&body["reason"], &body["details"]["name"]), (&json!("Forbidden"), &json!("a")));
            assert!(body["message"].as_str().unwrap().contains(&format!("User {user:?} cannot")), "{body}");
        }
    }
    // A user without the right does not learn whether the agent exists.
    let missing = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/nobody/log";
    assert_eq!(cluster.request(&replica, "bob", "GET", missing, None).await.0, StatusCode::FORBIDDEN);
    let (status, body) = cluster.request(&replica, "alice", "GET", missing, None).await;
    assert_eq!((status, &body["reason"]), (StatusCode::NOT_FOUND, &json!("NotFound")));
    assert!(body["message"].as_str().unwrap().contains("YoiPod ns/nobody not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_not_live_says_why_and_what_to_do() {
    let cluster = TestCluster::new();
    cluster.put_agent("a", "u-a", "", "Stopped");
    cluster.put_agent("b", "u-b", "", "Running");
    cluster.api.allow("alice", "get log");
    cluster.api.allow("alice", "create message");
    let replica = cluster.replica().await;
    let message = Some(json!({"messageId": "m0", "text": "t"}));
    let (status, body) = cluster.request(&replica, "alice", "POST", &format!("{A}/message"), message).await;
    assert_eq!((status, &body["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
    assert_eq!(body["message"], "YoiPod ns/a is Stopped: start it with kubectl yoi start a -n ns");
    let path = A.replace("/a", "/b").replace("/bpis", "/apis");
    let (status, _) =
        cluster.request(&replica, "alice", "POST", &format!("{path}/message"), Some(json!({"messageId": "m1", "text": "t"}))).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_carries_the_user_name_that_the_api_server_gave() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "create message");
    let replica = cluster.replica().await;
    let mut a = cluster.runtime(&[&replica], "token-p-a").await;
    let body = json!({"messageId": "m1", "text": "do it", "from": {"person": "root"}});
    let (status, sent) = cluster.request(&replica, "alice", "POST", &format!("{A}/message"), Some(body)).await;
    assert_eq!((status, &sent["messageId"]), (StatusCode::CREATED, &json!("m1")));
    let got = wait_for("the message", a.messages.recv()).await.unwrap();
    assert_eq!((got.from.person.as_deref(), got.from.agent, got.text.as_str()), (Some("alice"), None, "do it"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_long_is_refused_with_its_agent_the_limit_and_the_way() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "create message");
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    for (bytes, named) in [(65 * 1024, "has 66560 bytes"), (1 << 20, "has more bytes than a request may carry")] {
        let body = json!({"messageId": "m1", "text": "x".repeat(bytes)});
        let (status, body) = cluster.request(&replica, "alice", "POST", &format!("{A}/message"), Some(body)).await;
        assert_eq!((status, &body["reason"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("RequestEntityTooLarge")));
        let message = body["message"].as_str().unwrap();
        for part in ["YoiPod ns/a", named, "65536 bytes are allowed", "file of the tree"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_whose_name_is_not_ascii_is_the_user_that_is_asked_for_and_the_sender() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("jürgen@例え.jp", "create message");
    let replica = cluster.replica().await;
    let mut a = cluster.runtime(&[&replica], "token-p-a").await;
    let body = json!({"messageId": "m1", "text": "guten Tag"});
    let (status, sent) = cluster.request(&replica, "jürgen@例え.jp", "POST", &format!("{A}/message"), Some(body)).await;
    assert_eq!(status, StatusCode::CREATED, "{sent}");
    assert_eq!(wait_for("the message", a.messages.recv()).await.unwrap().from.person.as_deref(), Some("jürgen@例え.jp"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_log_comes_line_by_line_and_ends_upstream_when_its_reader_leaves() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get log");
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let (log, body) = writable_log();
    *a.state.log.lock().unwrap() = Some(body);
    let pair = cluster.front.client(&["front-proxy-client"]);
    let mut response =
        cluster.request_with(replica.api, Some(&pair), "alice", "GET", &format!("{A}/log?follow=true&tail=2&after=s.1"), None).await;
    assert_eq!((response.status(), response.headers()["content-type"].to_str().unwrap()), (StatusCode::OK, "application/x-ndjson"));
    for n in 0..3 {
        let line = Bytes::from(format!("{{\"n\":{n}}}\n"));
        log.send(Ok(line.clone())).await.unwrap();
        // The next line is written only after this one has arrived, so no hop may buffer it.
        let frame = wait_for("the line", response.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), line);
    }
    drop(response);
    wait_for("the end upstream", log.closed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_connection_breaks_before_the_answer_is_asked_again_on_the_next_one() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get log");
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    *a.state.hold.lock().unwrap() = true;
    let mut held = a.state.log_held.subscribe();
    let path = format!("{A}/log");
    let reading = cluster.request(&replica, "alice", "GET", &path, None);
    let restart = async {
        wait_for("the first question", held.wait_for(|held| *held == 1)).await.unwrap();
        cluster.runtime(&[&replica], "token-p-a").await
    };
    let ((status, body), restarted) = wait_for("the log", async { tokio::join!(reading, restart) }).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(restarted.state.log_queries.lock().unwrap().len(), 1, "asked of the restarted runtime");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_reads_nothing_makes_the_writer_wait() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get log");
    cluster.api.allow("alice", "get usage");
    let replica = cluster.replica().await;
    let a = cluster.runtime(&[&replica], "token-p-a").await;
    let (log, body) = writable_log();
    *a.state.log.lock().unwrap() = Some(body);
    let pair = cluster.front.client(&["front-proxy-client"]);
    let response = cluster.request_with(replica.api, Some(&pair), "alice", "GET", &format!("{A}/log?follow=true"), None).await;
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let taken = Arc::new(AtomicUsize::new(0));
    let (writer, count) = (log.clone(), taken.clone());
    tokio::spawn(async move {
        while writer.send(Ok(chunk.clone())).await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    // The windows and socket buffers fill, and then the writer waits: nothing more is taken while others are answered.
    eventually("a writer that waits", async || {
        let before = taken.load(Ordering::Relaxed);
        for _ in 0..20 {
            assert_eq!(cluster.request(&replica, "alice", "GET", &format!("{A}/usage"), None).await.0, StatusCode::OK);
        }
        let now = taken.load(Ordering::Relaxed);
        assert!(now < 64, "64 MiB were taken for a reader that reads nothing");
        (now > 0 && now == before).then_some(())
    })
    .await;
    drop(response);
    wait_for("the end upstream", log.closed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_lists_the_subresources_and_the_schema_of_what_programs_call() {
    let cluster = TestCluster::new();
    let replica = cluster.replica().await;
    let (_, groups) = cluster.request(&replica, "system:aggregator", "GET", "/apis", None).await;
    assert_eq!(groups["groups"][0]["preferredVersion"]["groupVersion"], "runtime.yoi.dev/v1alpha1");
    let (_, list) = cluster.request(&replica, "system:aggregator", "GET", "/apis/runtime.yoi.dev/v1alpha1", None).await;
    let names: Vec<&Value> = list["resources"].as_array().unwrap().iter().map(|resource| &resource["name"]).collect();
    let wanted = [
        "approval",
        "assets",
        "attach",
        "bundle",
        "control",
        "conversations",
        "diff",
        "events",
        "export",
        "log",
        "merge",
        "message",
        "patch",
        "proxy",
        "push",
        "ssh",
        "tools",
        "usage",
    ];
    let wanted: Vec<Value> = wanted.iter().map(|name| json!(format!("yoipods/{name}"))).chain([json!("yoiprojects/sync")]).collect();
    assert_eq!(names, wanted.iter().collect::<Vec<_>>());
    let verbs = list["resources"].as_array().unwrap().iter().map(|resource| resource["verbs"][0].as_str().unwrap());
    assert_eq!(
        verbs.collect::<Vec<_>>(),
        [
            "create", "create", "get", "create", "create", "create", "get", "create", "get", "get", "create", "create", "get", "create",
            "create", "create", "create", "get", "create"
        ]
    );
    let (_, schema) = cluster.request(&replica, "system:aggregator", "GET", "/openapi/v2", None).await;
    let paths: Vec<&String> = schema["paths"].as_object().unwrap().keys().collect();
    let agent = "/apis/runtime.yoi.dev/v1alpha1/namespaces/{namespace}/yoipods/{name}/proxy/engine";
    assert_eq!(
        paths,
        ["events", "projection/{key}", "tools", "tools/{tool}"].map(|words| format!("{agent}/{words}")).iter().collect::<Vec<_>>()
    );
    let methods = |path: &str| schema["paths"][&format!("{agent}/{path}")].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!((methods("events"), methods("tools/{tool}")), (vec!["get".to_owned(), "post".to_owned()], vec!["post".to_owned()]));
    assert_eq!(cluster.request(&replica, "system:aggregator", "GET", "/openapi/v3", None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(cluster.request(&replica, "alice", "POST", &format!("{A}/log"), None).await.0, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_read_by_those_who_may_get_it_and_a_commit_is_made_by_those_who_may_create_it() {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.allow("alice", "get bundle");
    cluster.api.allow("bob", "create bundle");
    let replica = cluster.replica().await;
    let _a = cluster.runtime(&[&replica], "token-p-a").await;
    for path in ["bundle?", "log?bundle=true&"] {
        let (status, body) = cluster.request(&replica, "alice", "GET", &format!("{A}/{path}branch=x%26y%3Dz"), None).await;
        assert_eq!((status, &body), (StatusCode::OK, &json!({"query": "branch=x%26y%3Dz"})), "{path}");
        let (status, body) = cluster.request(&replica, "alice", "GET", &format!("{A}/{path}branch=..%2Fx"), None).await;
        assert!(status == StatusCode::BAD_REQUEST && body["message"].as_str().unwrap().contains("`../x` is no name of a branch"), "{body}");
    }
    let commit = json!({"message": "left"});
    let path = format!("{A}/bundle");
    assert_eq!(cluster.request(&replica, "alice", "POST", &path, Some(commit.clone())).await.0, StatusCode::FORBIDDEN);
    let (status, body) = cluster.request(&replica, "bob", "POST", &path, Some(commit.clone())).await;
    assert_eq!((status, body["commit"].as_str().unwrap()), (StatusCode::OK, &*commit.to_string()));
    for (wrong, words) in [
        (json!({"message": " "}), "a commit has a message"),
        (json!({"text": "t"}), "the body must be"),
        (json!({"message": "while it runs"}), "a run is under way"),
    ] {
        let (status, body) = cluster.request(&replica, "bob", "POST", &path, Some(wrong)).await;
        assert!(status == StatusCode::BAD_REQUEST && body["message"].as_str().unwrap().contains(words), "{status} {body}");
    }
}
