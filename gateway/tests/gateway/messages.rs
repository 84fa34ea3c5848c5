use std::time::Duration;

use serde_json::{Value, json};
use yoi_wire::hub::{RefusalReason, SendRequest, SendResponse, gateway_api};

use crate::house::{House, refusal, refused, soon};

fn message(to: &str, id: &str) -> SendRequest {
    SendRequest { to: to.into(), message_id: id.into(), text: "hello".into() }
}

fn pair() -> House {
    let house = House::new();
    house.agent("a", "u-a", "p-a");
    house.agent("b", "u-b", "p-b");
    house.peer(("a", "u-a"), ("b", "u-b"));
    house
}

#[tokio::test(flavor = "multi_thread")]
async fn a24_sent_is_said_only_after_the_target_acknowledged() {
    let house = pair();
    let replica = house.replica().await;
    let mut b = house.runtime(&[&replica], "token-p-b").await;
    *b.desk.hold.lock().unwrap() = true;
    let caller = house.caller(&replica, "token-p-a");
    let sending = tokio::spawn(async move { caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await });
    let got = soon("the message", b.messages.recv()).await.unwrap();
    let from = got.from.agent.unwrap();
    assert_eq!((from.namespace.as_str(), from.name.as_str(), from.uid.as_str(), got.from.person), ("ns", "a", "u-a", None));
    assert_eq!((got.message_id.as_str(), got.text.as_str()), ("m1", "hello"));
    assert!(
        tokio::time::timeout(Duration::from_millis(200), async {
            while !sending.is_finished() {
                tokio::task::yield_now().await
            }
        })
        .await
        .is_err()
    );
    b.desk.release.notify_one();
    assert_eq!(soon("the answer", sending).await.unwrap().unwrap(), SendResponse { message_id: "m1".into(), duplicate: false });
    assert!(replica.health("/metrics").await.1.contains(r#"yoi_gateway_deliveries_total{from="agent",outcome="Sent"} 1"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_dies_before_its_acknowledgement_is_no_success() {
    let house = pair();
    let replica = house.replica().await;
    let mut b = house.runtime(&[&replica], "token-p-b").await;
    *b.desk.hold.lock().unwrap() = true;
    let caller = house.caller(&replica, "token-p-a");
    let sending = tokio::spawn(async move { caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await });
    soon("the message", b.messages.recv()).await.unwrap();
    drop(b.lines);
    let (status, refusal) = refusal(soon("the answer", sending).await.unwrap());
    assert_eq!((status, refusal.reason), (504, RefusalReason::Unacknowledged));
    assert!(refusal.message.contains("same id"), "{}", refusal.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a25_each_reason_not_to_deliver_has_its_own_outcome() {
    let house = pair();
    house.agent("stranger", "u-s", "p-s");
    house.agent("silent", "u-q", "p-q");
    house.peer(("a", "u-a"), ("silent", "u-q"));
    let replica = house.replica().await;
    let _b = house.runtime(&[&replica], "token-p-b").await;
    let mut stranger = house.runtime(&[&replica], "token-p-s").await;
    let caller = house.caller(&replica, "token-p-a");
    let send = async |to: &str| refused(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message(to, "m1")).await);
    assert_eq!(send("x/y").await, (400, RefusalReason::Invalid));
    assert_eq!(send("a").await, (400, RefusalReason::Invalid));
    assert_eq!(send("nobody").await, (404, RefusalReason::NotVisible));
    assert_eq!(send("stranger").await, (404, RefusalReason::NotVisible));
    assert_eq!(send("silent").await, (503, RefusalReason::Unreachable));
    let long = SendRequest { text: "x".repeat(65 * 1024), ..message("b", "m2") };
    assert_eq!(refused(caller.post_json::<_, SendResponse>(gateway_api::SEND, &long).await), (400, RefusalReason::Invalid));
    let longest = SendRequest { text: "\u{1}".repeat(64 * 1024), ..message("b", "m3") };
    caller.post_json::<_, SendResponse>(gateway_api::SEND, &longest).await.unwrap();
    let huge = json!({"to": "b", "messageId": "m4", "text": "x".repeat(1 << 20)});
    assert_eq!(refused(caller.post_json::<_, Value>(gateway_api::SEND, &huge).await), (413, RefusalReason::Invalid));
    assert!(stranger.messages.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a21_a_peer_that_was_deleted_and_made_anew_is_a_stranger() {
    let house = pair();
    let replica = house.replica().await;
    house.api.delete("yoipods", "ns", "b");
    house.agent("b", "u-b-new", "p-b-new");
    let mut successor = house.runtime(&[&replica], "token-p-b-new").await;
    let caller = house.caller(&replica, "token-p-a");
    assert_eq!(refused(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await), (403, RefusalReason::NotAPeer));
    // And the successor cannot use its namesake's relation either.
    let caller = house.caller(&replica, "token-p-b-new");
    assert_eq!(
        refused(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("a", "m1")).await),
        (404, RefusalReason::NotVisible)
    );
    assert!(successor.messages.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a22_a_relation_that_was_deleted_delivers_nothing() {
    let house = pair();
    let replica = house.replica().await;
    let _b = house.runtime(&[&replica], "token-p-b").await;
    let caller = house.caller(&replica, "token-p-a");
    caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await.unwrap();
    house.api.delete("yoipeers", "ns", "a.b");
    soon("the refusal", async { while caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await.is_ok() {} }).await;
    assert_eq!(
        refused(caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", "m1")).await),
        (404, RefusalReason::NotVisible)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_messages_in_flight_all_arrive() {
    let house = pair();
    let replica = house.replica().await;
    let mut b = house.runtime(&[&replica], "token-p-b").await;
    let caller = house.caller(&replica, "token-p-a");
    let sends = (0..1000).map(|n| {
        let caller = caller.clone();
        async move { caller.post_json::<_, SendResponse>(gateway_api::SEND, &message("b", &format!("m{n}"))).await.unwrap() }
    });
    soon("all answers", futures::future::join_all(sends)).await;
    let mut got = 0;
    while b.messages.try_recv().is_ok() {
        got += 1;
    }
    assert_eq!(got, 1000);
}
