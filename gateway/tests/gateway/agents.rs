use serde_json::{Value, json};
use yoi_line::CallError;
use yoi_wire::hub::{Activity, PodList, RefusalReason, ReportAccepted, gateway_api};

use crate::house::{House, Replica, refused, report, soon};

/// By a connection of its own: that of a token that nobody knows ends with the answer. hyper drops an answer when the connection's end is read
/// before the request's sender is scheduled again, so a call that broke is made once more.
async fn asked_anew(house: &House, replica: &Replica, token: &str, path: &str) -> Result<Value, CallError> {
    let mut answer = house.caller(replica, token).post_json(path, &json!({})).await;
    for _ in 0..5 {
        let Err(CallError::Broken(_)) = &answer else { break };
        answer = house.caller(replica, token).post_json(path, &json!({})).await;
    }
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_prove_to_be_a_current_agents_pod_is_nobody() {
    let house = House::new();
    house.agent("a", "u-a", "p-a");
    house.api.token("for-another", "ns", "p-a", "other.example");
    house.api.token("of-another-namespace", "elsewhere", "p-a", "gateway.yoi.dev");
    house.api.token("of-a-former-pod", "ns", "p-a0", "gateway.yoi.dev");
    let replica = house.replica().await;
    let cases = [("unknown", 401), ("for-another", 401), ("of-another-namespace", 403), ("of-a-former-pod", 403)];
    for (token, status) in cases {
        for path in [gateway_api::LIST_PODS, gateway_api::REPORT, gateway_api::SEND, "/v1/unknown"] {
            assert_eq!(refused(asked_anew(&house, &replica, token, path).await), (status, RefusalReason::NotAnAgent), "{token} {path}");
        }
        assert!(house.dial(&replica, token).open().await.is_err(), "{token}");
    }
    let response = house.ask_with(replica.runtimes, None, "a", "POST", gateway_api::LIST_PODS, None).await;
    assert_eq!(response.status(), 401, "no token");
    let list: PodList = house.caller(&replica, "token-p-a").post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
    assert_eq!(list.pods[0].name, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_reviewed_once_in_a_while() {
    let house = House::new();
    house.agent("a", "u-a", "p-a");
    let replica = house.replica().await;
    let caller = house.caller(&replica, "token-p-a");
    for _ in 0..5 {
        caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &json!({})).await.unwrap();
    }
    assert_eq!(house.api.asked("POST apis/authentication"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_is_faster_than_the_operator_is_waited_for() {
    let house = House::new();
    house.put_agent("a", "u-a", "", "Running");
    house.api.token("token-p-a", "ns", "p-a", "gateway.yoi.dev");
    let replica = house.replica().await;
    let caller = house.caller(&replica, "token-p-a");
    let nothing = json!({});
    let asking = caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &nothing);
    let operator = async {
        while house.api.asked("POST apis/authentication") == 0 {
            tokio::task::yield_now().await;
        }
        house.put_agent("a", "u-a", "p-a", "Running");
    };
    let (list, ()) = futures::join!(asking, operator);
    assert_eq!(list.unwrap().pods[0].name, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_written_on_change_and_never_touches_conditions() {
    let house = House::new();
    house.agent("a", "u-a", "p-a");
    let replica = house.replica().await;
    let caller = house.caller(&replica, "token-p-a");
    for _ in 0..3 {
        let taken: ReportAccepted = caller.post_json(gateway_api::REPORT, &report(Activity::Idle)).await.unwrap();
        assert_eq!((taken.agent.name.as_str(), taken.agent.uid.as_str()), ("a", "u-a"));
    }
    assert_eq!(house.api.asked("PATCH"), 1);
    let status = house.api.get("yoipods", "ns", "a")["status"].clone();
    assert_eq!(
        status["report"],
        json!({"podUID": "p-a", "runGeneration": 1, "ready": true, "reason": "Replayed", "message": "replayed 3 entries"})
    );
    assert_eq!(status["session"], json!({"id": "s1", "segment": "g1"}));
    assert_eq!((&status["live"]["podUID"], &status["live"]["activity"]), (&json!("p-a"), &json!("Idle")));
    assert_eq!((&status["conditions"], &status["runGeneration"]), (&json!([]), &json!(1)));
    caller.post_json::<_, ReportAccepted>(gateway_api::REPORT, &report(Activity::Running)).await.unwrap();
    assert_eq!(house.api.asked("PATCH"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_an_object_cannot_hold_is_refused() {
    let house = House::new();
    house.agent("a", "u-a", "p-a");
    let replica = house.replica().await;
    let caller = house.caller(&replica, "token-p-a");
    let wordy = yoi_wire::hub::RuntimeReport { reason: "two words".into(), ..report(Activity::Idle) };
    assert_eq!(refused(caller.post_json::<_, Value>(gateway_api::REPORT, &wordy).await), (400, RefusalReason::Invalid));
    assert_eq!(house.api.asked("PATCH"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_puts_the_hint_up_and_its_end_takes_it_down() {
    let house = House::new();
    house.agent("a", "u-a", "p-a");
    let replica = house.replica().await;
    let runtime = house.runtime(&[&replica], "token-p-a").await;
    house.api.until("yoipods", "ns", "a", |pod| pod["status"]["live"]["podUID"] == "p-a").await;
    assert!(replica.health("/metrics").await.1.contains("yoi_gateway_lines 1"));
    runtime.lines.stop().await;
    house.api.until("yoipods", "ns", "a", |pod| pod["status"]["live"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_line_of_a_pod_that_was_replaced_is_ended() {
    let house = House::new();
    house.agent("a", "u-a", "p-a");
    let replica = house.replica().await;
    let runtime = house.runtime(&[&replica], "token-p-a").await;
    let mut state = runtime.lines.state();
    house.put_agent("a", "u-a", "p-a2", "Running");
    soon("the line's end", state.wait_for(|state| state.up() == 0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_an_agent_sees_itself_and_its_peers_and_nobody_else() {
    let house = House::new();
    for (name, uid, pod) in [("a", "u-a", "p-a"), ("b", "u-b", "p-b"), ("c", "u-c", "p-c"), ("stranger", "u-s", "p-s")] {
        house.agent(name, uid, pod);
    }
    house.put_agent("c", "u-c", "", "Stopped");
    house.put_agent("d", "u-d-new", "", "Running");
    house.peer(("a", "u-a"), ("b", "u-b"));
    house.peer(("a", "u-a"), ("c", "u-c"));
    house.peer(("a", "u-a"), ("d", "u-d-former"));
    let replica = house.replica().await;
    let _b = house.runtime(&[&replica], "token-p-b").await;
    let caller = house.caller(&replica, "token-p-a");
    let list = soon("b's line to be taken in", async {
        loop {
            let list: PodList = caller.post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
            if list.pods.iter().any(|pod| pod.live) {
                return list;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let seen: Vec<_> = list.pods.iter().map(|pod| (pod.name.as_str(), pod.live, pod.state.as_str())).collect();
    assert_eq!(seen, [("a", false, "Unreachable"), ("b", true, "Idle"), ("c", false, "Stopped"), ("d", false, "Missing")]);
}
