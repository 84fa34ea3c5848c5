//! Agents that others start again.

use std::time::Duration;

use serde_json::{Value, json};
use yoi_gateway::GatewaySettings;
use yoi_line::{CallError, RequestClient};
use yoi_test_support::eventually;
use yoi_wire::hub::{PodList, RefusalReason, RestoreRequest, RestoreResponse, gateway_api};

use crate::harness::{Replica, TestCluster, quick_settings, refusal, refusal_reason, wait_for};

/// An agent `a` with a stopped child and a stopped peer, and an agent that sees neither.
fn cluster() -> TestCluster {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.agent("other", "u-o", "p-o");
    for (name, uid) in [("child", "u-c"), ("peer", "u-p")] {
        cluster.put_agent(name, uid, "", "Stopped");
        change(&cluster, name, |agent| agent["status"]["session"] = json!({ "id": "s", "segment": "g" }));
    }
    change(&cluster, "child", |child| child["spec"]["spawnedBy"] = json!({ "name": "a", "uid": "u-a", "requestId": "r" }));
    cluster.peer(("a", "u-a"), ("peer", "u-p"));
    cluster
}

fn change(cluster: &TestCluster, name: &str, change: impl FnOnce(&mut Value)) {
    let mut object = cluster.api.get("yoipods", "ns", name);
    change(&mut object);
    cluster.api.put("yoipods", object);
}

async fn restore(caller: &RequestClient, name: &str) -> Result<RestoreResponse, CallError> {
    caller.post_json(gateway_api::RESTORE, &RestoreRequest { name: name.to_owned() }).await
}

fn desired(cluster: &TestCluster, name: &str) -> Value {
    cluster.api.get("yoipods", "ns", name)["spec"]["desiredState"].clone()
}

/// A replica that waits for no agent.
async fn hasty(cluster: &TestCluster) -> Replica {
    cluster.ready_replica(GatewaySettings { restore_wait: Duration::ZERO, ..quick_settings() }).await
}

/// What the operator does when an agent is to run: a Pod with a line.
async fn start(cluster: &TestCluster, name: &str, pod_uid: &str) {
    eventually("the agent to be started", async || (desired(cluster, name) == "Running").then_some(())).await;
    cluster.api.token(&format!("token-{pod_uid}"), "ns", pod_uid, "gateway.yoi.dev");
    change(cluster, name, |agent| {
        agent["status"]["pod"] = json!({ "name": format!("{name}-2"), "uid": pod_uid });
        agent["status"]["runGeneration"] = json!(2);
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a23_b16_a_stopped_child_and_a_stopped_peer_are_listed_as_restorable_and_restored() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.caller(&replica, "token-p-a");
    let list: PodList = a.post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
    let listed: Vec<_> =
        list.pods.iter().map(|pod| (pod.name.as_str(), pod.state.as_str(), pod.session.as_deref(), &pod.not_restorable)).collect();
    assert_eq!(listed[1..], [("child", "Stopped", Some("s"), &None), ("peer", "Stopped", Some("s"), &None)]);
    for (name, pod_uid) in [("child", "p-c2"), ("peer", "p-p2")] {
        let up = async {
            start(&cluster, name, pod_uid).await;
            cluster.runtime(&[&replica], &format!("token-{pod_uid}")).await
        };
        let (restored, _runtime) = wait_for("the agent to be up", async { tokio::join!(restore(&a, name), up) }).await;
        let restored = restored.unwrap();
        assert_eq!((restored.agent.name.as_str(), restored.state.as_str()), (name, "Idle"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_b9_what_is_live_and_what_has_no_session_is_refused_and_nothing_is_written() {
    let cluster = cluster();
    cluster.agent("live", "u-l", "p-l");
    change(&cluster, "live", |live| {
        live["spec"]["spawnedBy"] = json!({ "name": "a", "uid": "u-a", "requestId": "r" });
        live["status"]["session"] = json!({ "id": "s", "segment": "g" });
    });
    change(&cluster, "child", |child| child["status"]["session"] = Value::Null);
    let replica = cluster.replica().await;
    let _live = cluster.runtime(&[&replica], "token-p-l").await;
    let a = cluster.caller(&replica, "token-p-a");
    let is_live = async || {
        let list: PodList = a.post_json(gateway_api::LIST_PODS, &json!({})).await.unwrap();
        list.pods.iter().any(|pod| pod.name == "live" && pod.live).then_some(())
    };
    eventually("the live agent to be listed", is_live).await;
    // What the gateway itself says of lines comes in between.
    let object = cluster.api.get("yoipods", "ns", "live")["spec"].clone();
    let (code, refused) = refusal(restore(&a, "live").await);
    assert!((code, refused.reason) == (409, RefusalReason::AlreadyLive) && refused.message.contains("Idle"), "{}", refused.message);
    let (code, refused) = refusal(restore(&a, "child").await);
    assert!((code, refused.reason) == (409, RefusalReason::NotRestorable) && refused.message.contains("no session"), "{}", refused.message);
    assert_eq!((desired(&cluster, "child"), cluster.api.get("yoipods", "ns", "live")["spec"].clone()), (json!("Stopped"), object));
}

#[tokio::test(flavor = "multi_thread")]
async fn b8_an_unknown_and_a_hidden_name_get_one_answer_and_nothing_starts() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let other = cluster.caller(&replica, "token-p-o");
    let mut answers = Vec::new();
    for name in ["child", "peer", "nobody", "other"] {
        let (code, refused) = refusal(restore(&other, name).await);
        answers.push((code, refused.reason, refused.message.replace(name, "NAME")));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0] && answer.1 == RefusalReason::NotVisible), "{answers:?}");
    assert_eq!((desired(&cluster, "child"), desired(&cluster, "peer")), (json!("Stopped"), json!("Stopped")));
}

#[tokio::test(flavor = "multi_thread")]
async fn b11_one_whose_container_dies_is_told_with_its_exit_status_and_one_without_a_line_is_stopped_again() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.caller(&replica, "token-p-a");
    let dies = async {
        start(&cluster, "child", "p-c2").await;
        let ready = json!({ "type": "Ready", "status": "False", "reason": "PodNotRunning", "message": "the container of Pod child-2 ended with exit code 7",
            "lastTransitionTime": "2026-01-01T00:00:00Z" });
        change(&cluster, "child", |child| child["status"]["conditions"] = json!([ready]));
    };
    let (refused, ()) = wait_for("the refusal", async { tokio::join!(restore(&a, "child"), dies) }).await;
    let (_, refused) = refusal(refused);
    assert!(refused.reason == RefusalReason::NotUp && refused.message.contains("exit code 7"), "{}", refused.message);

    let hasty = hasty(&cluster).await;
    let a = cluster.caller(&hasty, "token-p-a");
    assert_eq!(refusal_reason(restore(&a, "peer").await).1, RefusalReason::NotUp);
    assert_eq!(desired(&cluster, "peer"), "Stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_of_two_who_restore_one_agent_exactly_one_starts_it() {
    let cluster = cluster();
    let replica = cluster.replica().await;
    let a = cluster.caller(&replica, "token-p-a");
    let up = async {
        start(&cluster, "child", "p-c2").await;
        cluster.runtime(&[&replica], "token-p-c2").await
    };
    let (one, other, _runtime) = wait_for("both answers", async { tokio::join!(restore(&a, "child"), restore(&a, "child"), up) }).await;
    let (won, lost): (Vec<_>, Vec<_>) = [one, other].into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 1));
    assert_eq!(refusal_reason(lost.into_iter().next().unwrap()), (409, RefusalReason::AlreadyLive));
}
