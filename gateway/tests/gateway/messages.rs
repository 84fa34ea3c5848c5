use serde_json::Value;
use yoi_test_support::eventually;
use yoi_wire::hub::{PodList, RefusalReason, SendRequest, SendResponse, gateway_api};

use crate::harness::{TestCluster, refusal, refusal_reason, wait_for};

fn message(to: &str, id: &str) -> SendRequest {
    SendRequest { to: to.into(), message_id: id.into(), text: "hello".into(), conversation: None }
}

fn pair() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.agent("b", "u-b", "p-b");
    cluster.peer(("a", "u-a"), ("b", "u-b"));
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn a24_a_message_is_sent_only_after_the_target_acknowledged_it() {
    let cluster = pair();
    cluster.agent("c", "u-c", "p-c");
    cluster.peer(("a", "u-a"), ("c", "u-c"));
    let replica = cluster.replica().await;
    let mut b = cluster.runtime(&[&replica], "token-p-b").await;
    let _c = cluster.runtime(&[&replica], "token-p-c").await;
    *b.state.hold.lock().unwrap() = true;
    let caller = cluster.caller(&replica, "token-p-a");
    let send = |to: &'static str, id: &'static str| {
        let caller = caller.clone();
        async move { caller.post_json::<_, SendResponse>(gateway_api::SEND, &message(to, id)).await }
    };
    let sending = tokio::spawn(send("b", "m1"));
    let got = wait_for("the message", b.messages.recv()).await.unwrap();
    let from = got.from.agent.unwrap();
    assert_eq!((from.namespace.as_str(), from.name.as_str(), from.uid.as_str(), got.from.person), ("ns", "a", "u-a", None));
    assert_eq!((got.message_id.as_str(), got.text.as_str()), ("m1", "hello"));
    // Messages of the same sender over the same connection, which another agent acknowledges, are answered meanwhile.
    for id in ["m2", "m3", "m4"] {
        wait_for("an answer", send("c", id)).await.unwrap();
    }
    assert!(!sending.is_finished(), "it was answered before it was acknowledged");
    b.state.release.notify_one();
    assert_eq!(wait_for("the answer", sending).await.unwrap().unwrap(), SendResponse { message_id: "m1".into(), duplicate: false });
    assert!(replica.metrics().await.contains(r#"yoi_gateway_deliveries_total{from="agent",outcome="Sent"} 4"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn a24_a_target_that_dies_before_its_acknowledgement_is_no_success() {
    let cluster = pair();
    let replica = cluster.replica().await;
    let mut b = cluster.runtime(&[&replica], "token-p-b").await;
    *b.state.hold.lock().unwrap() = true;
    let caller = cluster.caller(&replica, "token-p-a");
    let sending = tokio::spawn(async move { caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await });
    wait_for("the message", b.messages.recv()).await.unwrap();
    drop(b.lines);
    let (status, refusal) = refusal(wait_for("the answer", sending).await.unwrap());
    assert_eq!((status, refusal.reason), (504, RefusalReason::Unacknowledged));
    assert!(refusal.message.contains("same id"), "{}", refusal.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_each_reason_not_to_deliver_has_its_own_outcome() {
    let cluster = pair();
    cluster.agent("outsider", "u-s", "p-s");
    cluster.agent("silent", "u-q", "p-q");
    cluster.peer(("a", "u-a"), ("silent", "u-q"));
    let replica = cluster.replica().await;
    let _b = cluster.runtime(&[&replica], "token-p-b").await;
    let mut outsider = cluster.runtime(&[&replica], "token-p-s").await;
    let caller = cluster.caller(&replica, "token-p-a");
    let send = async |to: &str| refusal_reason(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message(to, "m1")).await);
    assert_eq!(send("x/y").await, (400, RefusalReason::Invalid));
    assert_eq!(send("a").await, (400, RefusalReason::Invalid));
    assert_eq!(send("nobody").await, (404, RefusalReason::NotVisible));
    assert_eq!(send("outsider").await, (404, RefusalReason::NotVisible));
    assert_eq!(send("silent").await, (503, RefusalReason::Unreachable));
    let longest = SendRequest { text: "\u{1}".repeat(64 * 1024), ..message("b", "m3") };
    caller.post_json::<_, SendResponse>(gateway_api::SEND, &longest).await.unwrap();
    for (bytes, named) in [(65 * 1024, "has 66560 bytes"), (1 << 20, "has more bytes than a request may carry")] {
        let long = SendRequest { text: "x".repeat(bytes), ..message("b", "m2") };
        let (status, refusal) = refusal(caller.post_json::<_, Value>(gateway_api::SEND, &long).await);
        assert_eq!((status, refusal.reason), (413, RefusalReason::Invalid));
        assert!(refusal.message.contains(named) && refusal.message.contains("65536 bytes are allowed"), "{}", refusal.message);
        assert!(refusal.message.contains("file of the tree"), "{}", refusal.message);
    }
    assert!(outsider.messages.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yoipeer_that_no_watch_has_shown_yet_is_read_before_a_refusal_and_an_agent_in_a_loop_does_not_ask_each_time() {
    let cluster = pair();
    cluster.agent("late", "u-l", "p-l");
    let replica = cluster.replica().await;
    let mut late = cluster.runtime(&[&replica], "token-p-l").await;
    cluster.unwatched_peer(("a", "u-a"), ("late", "u-l"));
    let caller = cluster.caller(&replica, "token-p-a");
    caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("late", "m1")).await.unwrap();
    wait_for("the message", late.messages.recv()).await.unwrap();

    let caller = cluster.caller(&replica, "token-p-b");
    for _ in 0..20 {
        assert_eq!(
            refusal_reason(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("nobody", "m1")).await),
            (404, RefusalReason::NotVisible)
        );
    }
    let read = cluster.api.request_count("GET apis/yoi.dev/v1alpha1/namespaces/ns/yoipeers/b.nobody");
    assert!((1..20).contains(&read), "{read} reads");
}

#[tokio::test(flavor = "multi_thread")]
async fn a21_a_peer_that_was_deleted_and_created_again_is_no_peer() {
    let cluster = pair();
    let replica = cluster.replica().await;
    cluster.api.delete("yoipods", "ns", "b");
    cluster.agent("b", "u-b-new", "p-b-new");
    let mut successor = cluster.runtime(&[&replica], "token-p-b-new").await;
    let caller = cluster.caller(&replica, "token-p-a");
    assert_eq!(
        refusal_reason(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await),
        (403, RefusalReason::NotAPeer)
    );
    // The successor cannot use the peer of its namesake either.
    let caller = cluster.caller(&replica, "token-p-b-new");
    assert_eq!(
        refusal_reason(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("a", "m1")).await),
        (404, RefusalReason::NotVisible)
    );
    assert!(successor.messages.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a22_a_deleted_yoipeer_delivers_nothing() {
    let cluster = pair();
    let replica = cluster.replica().await;
    let _b = cluster.runtime(&[&replica], "token-p-b").await;
    let caller = cluster.caller(&replica, "token-p-a");
    caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await.unwrap();
    cluster.api.delete("yoipeers", "ns", "a.b");
    wait_for("the refusal", async { while caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await.is_ok() {} })
        .await;
    assert_eq!(
        refusal_reason(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await),
        (404, RefusalReason::NotVisible)
    );
    for (token, itself) in [("token-p-a", "a"), ("token-p-b", "b")] {
        let list: PodList = cluster.caller(&replica, token).post_json(gateway_api::LIST_PODS, &Value::Null).await.unwrap();
        assert_eq!(list.pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), [itself]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_messages_in_flight_all_arrive() {
    let cluster = pair();
    let replica = cluster.replica().await;
    let mut b = cluster.runtime(&[&replica], "token-p-b").await;
    let caller = cluster.caller(&replica, "token-p-a");
    let sends = (0..1000).map(|n| {
        let caller = caller.clone();
        async move { caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", &format!("m{n}"))).await.unwrap() }
    });
    wait_for("all answers", futures::future::join_all(sends)).await;
    let mut got = 0;
    while b.messages.try_recv().is_ok() {
        got += 1;
    }
    assert_eq!(got, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a18_r6_a_message_to_an_unreachable_or_stopped_peer_is_refused_and_neither_queued_nor_does_it_start_the_peer() {
    let cluster = pair();
    cluster.put_agent("stopped", "u-t", "", "Stopped");
    cluster.peer(("a", "u-a"), ("stopped", "u-t"));
    let replica = cluster.replica().await;
    let caller = cluster.caller(&replica, "token-p-a");
    let writes = cluster.api.writes();
    for (to, why) in [("b", "b has no line to the gateway; nothing was sent"), ("stopped", "stopped is Stopped; nothing was sent")] {
        let (status, refusal) = refusal(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message(to, "m1")).await);
        assert_eq!((status, refusal.reason, refusal.message.as_str()), (503, RefusalReason::Unreachable, why));
    }
    assert_eq!(cluster.api.writes(), writes, "nobody is started by a message");
    assert_eq!(cluster.api.get("yoipods", "ns", "stopped")["spec"]["desiredState"], "Stopped");
    // When it is back, the next message is the first that it gets.
    let mut b = cluster.runtime(&[&replica], "token-p-b").await;
    caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m2")).await.unwrap();
    assert_eq!(wait_for("the message", b.messages.recv()).await.unwrap().message_id, "m2");
    assert!(b.messages.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a19_a_yoipeer_that_has_bound_the_sender_alone_delivers_nothing() {
    let cluster = pair();
    let mut one_sided = cluster.api.get("yoipeers", "ns", "a.b");
    one_sided["status"]["members"] = serde_json::json!([{"name": "a", "uid": "u-a"}]);
    cluster.api.put("yoipeers", one_sided);
    let replica = cluster.replica().await;
    let mut b = cluster.runtime(&[&replica], "token-p-b").await;
    for (token, to, refused) in [("token-p-a", "b", (403, RefusalReason::NotAPeer)), ("token-p-b", "a", (404, RefusalReason::NotVisible))] {
        let caller = cluster.caller(&replica, token);
        assert_eq!(refusal_reason(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message(to, "m1")).await), refused);
    }
    assert!(b.messages.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a20_a_peer_that_was_deleted_is_listed_as_missing_and_gets_no_message() {
    let cluster = pair();
    let replica = cluster.replica().await;
    cluster.api.delete("yoipods", "ns", "b");
    let caller = cluster.caller(&replica, "token-p-a");
    let list = eventually("b to be missing", async || {
        let list: PodList = caller.post_json(gateway_api::LIST_PODS, &Value::Null).await.unwrap();
        Some(list).filter(|list| list.pods.iter().any(|pod| pod.state == "Missing"))
    })
    .await;
    let seen: Vec<_> = list.pods.iter().map(|pod| (pod.name.as_str(), pod.live, pod.state.as_str())).collect();
    assert_eq!(seen, [("a", false, "Unreachable"), ("b", false, "Missing")]);
    assert_eq!(
        refusal_reason(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await),
        (403, RefusalReason::NotAPeer)
    );
    assert!(cluster.api.exists("yoipeers", "ns", "a.b"), "it stays until a person or its owner removes it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_goes_to_the_conversation_that_it_names_and_without_one_to_main() {
    let cluster = pair();
    let replica = cluster.replica().await;
    let mut b = cluster.runtime(&[&replica], "token-p-b").await;
    let caller = cluster.caller(&replica, "token-p-a");
    let send = async |id: &str, conversation: &str| {
        let message = SendRequest { conversation: Some(conversation.to_owned()), ..message("b", id) };
        caller.post_json::<_, SendResponse>(gateway_api::SEND, &message).await
    };
    // The other conversation's inbox acknowledges, and that of `main` has got nothing.
    assert_eq!(send("m1", "review").await.unwrap().message_id, "m1");
    assert_eq!(send("m2", "main").await.unwrap().message_id, "m2");
    assert_eq!(wait_for("the message", b.messages.recv()).await.unwrap().message_id, "m2");
    let (status, refusal) = refusal(send("m3", "../x").await);
    assert_eq!((status, refusal.reason), (400, RefusalReason::Invalid));
    assert!(refusal.message.contains("is no name of a conversation"), "{}", refusal.message);
}
