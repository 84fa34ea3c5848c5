//! Pushes of what agents have committed: who may ask for one, and what the Pod that pushes gets.

use axum::http::StatusCode;
use serde_json::{Value, json};
use yoi_test_support::eventually;
use yoi_wire::hub::{Activity, RefusalReason, gateway_api};

use crate::harness::{Replica, Runtime, TestCluster, refusal_reason, report};

const PUSH: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/push";

fn commit() -> String {
    "c0".repeat(20)
}

fn answer(name: &str, commit: &str, commits: u64) -> Vec<u8> {
    let head =
        json!({"name": name, "commit": commit, "base": "ba".repeat(20), "commits": commits, "uncommitted": {"count": 1, "paths": ["x"]}});
    format!("{head}\n# v2 git bundle\nthe\nbytes").into_bytes()
}

/// A running agent `a` with one commit, and `alice`, who may push it.
async fn scene() -> (TestCluster, Replica, Runtime) {
    let cluster = TestCluster::new();
    cluster.agent("a", "u-a", "p-a");
    cluster.api.token("token-p-p", "ns", "p-p", "gateway.yoi.dev");
    cluster.api.allow("alice", "create push");
    let replica = cluster.replica().await;
    let runtime = cluster.runtime(&[&replica], "token-p-a").await;
    *runtime.state.commits.lock().unwrap() = Some(answer("HEAD", &commit(), 1));
    (cluster, replica, runtime)
}

fn requested(cluster: &TestCluster) -> Value {
    cluster.api.get("yoipods", "ns", "a")["status"]["push"]["request"].clone()
}

fn change_push(cluster: &TestCluster, field: &str, value: Value) {
    let mut a = cluster.api.get("yoipods", "ns", "a");
    a["status"]["push"][field] = value;
    cluster.api.put("yoipods", a);
}

async fn ask(cluster: &TestCluster, replica: &Replica, body: Value) -> (StatusCode, Value) {
    cluster.request(replica, "alice", "POST", PUSH, Some(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_is_written_into_the_status_once_and_another_one_waits_for_its_end() {
    let (cluster, replica, _runtime) = scene().await;
    let (status, body) = ask(&cluster, &replica, json!({})).await;
    assert_eq!((status, &body["branch"], &body["commit"]), (StatusCode::OK, &json!("yoi/a"), &json!(commit())), "{body}");
    assert_eq!((&body["commits"], &body["uncommitted"]["count"]), (&json!(1), &json!(1)));
    let first = requested(&cluster);
    assert_eq!((&first["id"], &first["branch"], &first["commit"]), (&body["id"], &json!("yoi/a"), &json!(commit())), "{first}");
    assert!(first["requestedAt"].as_str().unwrap().ends_with('Z') && first.get("expected").is_none(), "{first}");

    let (status, again) = ask(&cluster, &replica, json!({"branch": "yoi/a"})).await;
    assert_eq!((status, &again["id"]), (StatusCode::OK, &body["id"]), "the same push: {again}");
    let (status, other) = ask(&cluster, &replica, json!({"branch": "other"})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{other}");
    let words = other["message"].as_str().unwrap();
    assert!(words.contains(&format!("a push of commit {} to branch yoi/a is under way since ", commit())), "{words}");
    assert_eq!(requested(&cluster), first);

    let outcome = json!({"id": body["id"], "result": "Pushed", "branch": "yoi/a", "commit": commit(), "message": "m", "finishedAt": "t"});
    change_push(&cluster, "outcome", outcome);
    let expected = "e0".repeat(20);
    // The index sees the outcome a little later.
    let second = eventually("a second push", async || {
        let (status, second) = ask(&cluster, &replica, json!({"branch": "other", "expected": expected})).await;
        assert!(status == StatusCode::OK || status == StatusCode::CONFLICT, "{status} {second}");
        (status == StatusCode::OK).then_some(second)
    })
    .await;
    assert_ne!(second["id"], body["id"]);
    assert_eq!((&requested(&cluster)["branch"], &requested(&cluster)["expected"]), (&json!("other"), &json!(expected)));
    assert!(cluster.api.get("yoipods", "ns", "a")["status"]["push"]["outcome"].is_object(), "the operator's fields stay");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_ended_though_the_outcome_is_that_of_a_task_since() {
    let (cluster, replica, _runtime) = scene().await;
    let (status, body) = ask(&cluster, &replica, json!({})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    change_push(&cluster, "endedRequest", body["id"].clone());
    change_push(&cluster, "outcome", json!({"id": "task", "result": "Pushed", "branch": "yoi/a", "message": "m", "finishedAt": "t"}));
    // The index sees it a little later.
    let is_taken = async || (ask(&cluster, &replica, json!({"branch": "other"})).await.0 == StatusCode::OK).then_some(());
    eventually("a push after the one that ended", is_taken).await;
    assert_eq!(requested(&cluster)["branch"], "other");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_push_and_what_names_no_branch_is_refused_before_anything_is_written() {
    let (cluster, replica, runtime) = scene().await;
    let (status, body) = cluster.request(&replica, "bob", "POST", PUSH, Some(json!({}))).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
    assert!(body["message"].as_str().unwrap().contains("cannot create resource \"yoipods/push\""), "{body}");
    let refused = [
        (json!({"branch": "../x"}), "`../x` is no name of a branch"),
        (json!({"branch": "refs/heads/main"}), "give the name alone, as `main`"),
        (json!({"branch": "--mirror"}), "it begins with `-`"),
        (json!({"branch": "HEAD"}), "give the name alone"),
        (json!({"branch": ""}), "it is empty"),
        (json!({"expected": "main"}), "`main` is no full commit"),
        (json!({"expected": "c0ffee"}), "is no full commit"),
        (json!({"force": true}), "unknown field `force`"),
        (json!("x"), "the body must be"),
    ];
    for (body, words) in refused {
        let (status, answer) = ask(&cluster, &replica, body.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(words), "{body}: {answer}");
    }
    // What a runtime says of its commits is not believed.
    for (name, hash) in [("refs/heads/main", commit()), ("HEAD", "main; rm -rf".to_owned()), ("HEAD", "A0".repeat(20))] {
        *runtime.state.commits.lock().unwrap() = Some(answer(name, &hash, 1));
        let (status, answer) = ask(&cluster, &replica, json!({})).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{name} {hash}: {answer}");
    }
    *runtime.state.commits.lock().unwrap() = Some(vec![b'x'; 100_000]);
    assert_eq!(ask(&cluster, &replica, json!({})).await.0, StatusCode::SERVICE_UNAVAILABLE);
    *runtime.state.commits.lock().unwrap() = Some(answer("HEAD", &commit(), 0));
    let (status, nothing) = ask(&cluster, &replica, json!({})).await;
    assert_eq!((status, nothing.get("id")), (StatusCode::OK, None), "{nothing}");
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["status"].get("push"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_need_a_commit_of_a_submodule_that_only_the_agent_has_are_not_pushed() {
    let (cluster, replica, runtime) = scene().await;
    let inner = |state: Value| {
        let mut head = json!({"name": "HEAD", "commit": commit(), "base": "ba".repeat(20), "commits": 1, "uncommitted": {"count": 0}});
        head["innerRepositories"] = json!([state]);
        Some(format!("{head}\n# v2 git bundle\n").into_bytes())
    };
    *runtime.state.commits.lock().unwrap() = inner(json!({"path": "lib", "state": "unpublished", "commit": "5b".repeat(20)}));
    let (status, body) = ask(&cluster, &replica, json!({})).await;
    let words = body["message"].as_str().unwrap_or_default();
    assert!(
        status == StatusCode::CONFLICT && words.contains("nothing was pushed: submodule lib is to be at commit 5b5b"),
        "{status} {body}"
    );
    assert_eq!(cluster.api.get("yoipods", "ns", "a")["status"].get("push"), None);
    // That of `spec.push` comes to the Pod at once, and its words into the status.
    change_push(&cluster, "pod", json!({"name": "a-push", "uid": "p-p"}));
    let (status, body) = cluster.get_of_runtimes(&replica, "token-p-p", gateway_api::PUSH).await;
    assert!(
        status == StatusCode::CONFLICT && body.contains("none of the submodules' remotes has") && !body.contains("lib"),
        "{status} {body}"
    );
    *runtime.state.commits.lock().unwrap() = inner(json!({"path": "lib", "state": "uncommitted"}));
    let (status, body) = ask(&cluster, &replica, json!({})).await;
    assert_eq!((status, &body["innerRepositories"][0]["path"]), (StatusCode::OK, &json!("lib")), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_that_pushes_gets_the_commits_and_nothing_else_and_no_other_gets_them() {
    let (cluster, replica, runtime) = scene().await;
    change_push(&cluster, "pod", json!({"name": "a-push", "uid": "p-p"}));
    let pusher = cluster.caller(&replica, "token-p-p");
    for path in [gateway_api::REPORT, gateway_api::LIST_PODS, gateway_api::SEND, "/v1/unknown"] {
        let answer: Result<Value, _> = pusher.post_json(path, &report(Activity::Idle)).await;
        assert_eq!(refusal_reason(answer), (403, RefusalReason::NotAnAgent), "{path}");
    }
    let get = async |token: &str| cluster.get_of_runtimes(&replica, token, gateway_api::PUSH).await;
    let (status, body) = get("token-p-p").await;
    assert_eq!((status, body), (StatusCode::OK, format!("{} {} 1 1\n# v2 git bundle\nthe\nbytes and the base", commit(), "ba".repeat(20))));
    // The branch is at another commit, or at this one, of which then no byte is sent.
    let at = async |commit: &str| cluster.get_of_runtimes(&replica, "token-p-p", &format!("{}?at={commit}", gateway_api::PUSH)).await.1;
    assert!(at(&"e0".repeat(20)).await.ends_with("the\nbytes and the base"));
    assert_eq!(at(&commit()).await, format!("{} {} 1 1\n", commit(), "ba".repeat(20)));
    let (status, body) = get("token-p-a").await;
    assert!(status == StatusCode::FORBIDDEN && body.contains("runs it, and pushes nothing"), "{body}");
    *runtime.state.commits.lock().unwrap() = Some(answer("refs/heads/x", &commit(), 1));
    let (status, body) = get("token-p-p").await;
    assert_eq!((status, body.as_str()), (StatusCode::CONFLICT, "what the agent's runtime says of its commits is not sound"));
}
