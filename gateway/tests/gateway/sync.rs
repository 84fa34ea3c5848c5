//! Working trees that people send to a project: who may, what is taken, and what counts.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Replica, TestCluster};

const SYNC: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoiprojects/p/sync";

fn commit(number: u32) -> String {
    format!("{number:040x}")
}

/// A bundle of one machine, as far as its header goes.
fn bundle(machine: &str, commit: &str) -> Vec<u8> {
    format!("# v2 git bundle\n-{} the base\n{commit} refs/yoi/sync/{machine}\n\nPACK of {commit}", "ba".repeat(20)).into_bytes()
}

fn query(machine: &str, commit: &str, previous: Option<&str>, bundle: &[u8]) -> String {
    let previous = previous.map(|previous| format!("&previous={previous}")).unwrap_or_default();
    let sha256 = yoi_plan::names::sha256(bundle);
    format!("{SYNC}?machine={machine}&commit={commit}{previous}&capturedAt=2026-01-01T10:00:00Z&sha256={sha256}")
}

/// A project that takes working trees, and `alice`, who may send them.
async fn scene() -> (TestCluster, Replica) {
    let cluster = TestCluster::new();
    put_project(&cluster, json!({"url": "https://git.example/a", "sync": {}}));
    cluster.api.allow("alice", "create sync");
    let replica = cluster.replica().await;
    (cluster, replica)
}

fn put_project(cluster: &TestCluster, git: Value) {
    cluster.api.put(
        "yoiprojects",
        json!({"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": {"namespace": "ns", "name": "p", "uid": "u-p"},
            "spec": {"source": {"git": git}}, "status": {"conditions": []}}),
    );
}

async fn send(cluster: &TestCluster, replica: &Replica, machine: &str, number: u32, previous: Option<u32>) -> (StatusCode, Value) {
    let (commit, previous) = (commit(number), previous.map(commit));
    let bundle = bundle(machine, &commit);
    let path = query(machine, &commit, previous.as_deref(), &bundle);
    cluster.post_bytes(replica, "alice", &path, bundle).await
}

fn synced(cluster: &TestCluster) -> Value {
    cluster.api.get("yoiprojects", "ns", "p")["status"]["sync"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn w46_a_state_counts_once_its_parts_are_stored_and_an_older_one_never_takes_the_place_of_a_newer() {
    let (cluster, replica) = scene().await;
    let (status, answer) = send(&cluster, &replica, "laptop", 1, None).await;
    assert_eq!((status, &answer["commit"]), (StatusCode::OK, &json!(commit(1))), "{answer}");
    let sync = synced(&cluster);
    assert_eq!(
        (&sync["last"]["commit"], &sync["last"]["machine"], &sync["last"]["person"]),
        (&json!(commit(1)), &json!("laptop"), &json!("alice"))
    );
    let part = sync["bundles"][0]["parts"][0]["name"].as_str().unwrap();
    assert!(part.starts_with("p.sync-"), "{part}");
    let stored = cluster.api.get("configmaps", "ns", part);
    assert_eq!((&stored["immutable"], &stored["metadata"]["ownerReferences"][0]["uid"]), (&json!(true), &json!("u-p")));

    // The answer was lost, and the same is sent again.
    let writes = cluster.api.writes();
    assert_eq!(send(&cluster, &replica, "laptop", 1, None).await.0, StatusCode::OK);
    assert_eq!(cluster.api.writes(), writes, "nothing is stored twice");

    assert_eq!(send(&cluster, &replica, "laptop", 2, Some(1)).await.0, StatusCode::OK);
    // It was captured before the second one came, and arrives after it.
    let (status, late) = send(&cluster, &replica, "laptop", 3, Some(1)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{late}");
    let words = late["message"].as_str().unwrap();
    assert!(words.contains(&format!("a newer state of machine laptop is there, commit {}", commit(2))), "{words}");
    assert_eq!(synced(&cluster)["last"]["commit"], json!(commit(2)));
    let (status, unknown) = send(&cluster, &replica, "desk", 4, Some(9)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{unknown}");

    // Another machine has a state of its own, and neither can pass for the other's.
    assert_eq!(send(&cluster, &replica, "desk", 5, None).await.0, StatusCode::OK);
    let sync = synced(&cluster);
    assert_eq!(sync["machines"], json!([{"machine": "laptop", "commit": commit(2)}, {"machine": "desk", "commit": commit(5)}]));
    assert_eq!(send(&cluster, &replica, "laptop", 6, Some(5)).await.0, StatusCode::CONFLICT);
    assert_eq!(send(&cluster, &replica, "laptop", 6, Some(2)).await.0, StatusCode::OK);
    assert_eq!(synced(&cluster)["last"]["machine"], "laptop");

    // What the operator has deleted is not listed any more.
    let mut project = cluster.api.get("yoiprojects", "ns", "p");
    project["status"]["sync"]["deleted"] = json!([commit(1), commit(2)]);
    cluster.api.put("yoiprojects", project);
    assert_eq!(send(&cluster, &replica, "laptop", 7, Some(6)).await.0, StatusCode::OK);
    let sync = synced(&cluster);
    let kept: Vec<&Value> = sync["bundles"].as_array().unwrap().iter().map(|bundle| &bundle["commit"]).collect();
    assert_eq!(kept, [&json!(commit(5)), &json!(commit(6)), &json!(commit(7))]);
    assert_eq!(sync["deleted"], json!([commit(1), commit(2)]), "the operator's field stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_is_cut_huge_or_holds_other_names_is_refused_before_anything_is_stored() {
    let (cluster, replica) = scene().await;
    let good = bundle("laptop", &commit(1));
    let path = |bundle: &[u8]| query("laptop", &commit(1), None, bundle);
    let ask = async |user: &str, path: String, body: Vec<u8>| cluster.post_bytes(&replica, user, &path, body).await;
    let (status, forbidden) = ask("bob", path(&good), good.clone()).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{forbidden}");
    assert!(forbidden["message"].as_str().unwrap().contains("cannot create resource \"yoiprojects/sync\""), "{forbidden}");
    let mut cut = good.clone();
    cut.truncate(good.len() - 1);
    let other = bundle("desk", &commit(1));
    let later = bundle("laptop", &commit(2));
    let long = [good.clone(), vec![0; yoi_crds::sync::MAX_SYNC_BYTES]].concat();
    let cases = [
        (path(&good), cut, StatusCode::BAD_REQUEST, "their digest is not the one that was said"),
        (path(b"x"), b"x".to_vec(), StatusCode::BAD_REQUEST, "the body is no git bundle"),
        (path(&other), other, StatusCode::BAD_REQUEST, "the bundle holds `refs/yoi/sync/desk`"),
        (path(&later), later, StatusCode::BAD_REQUEST, "is taken"),
        (path(&long), long, StatusCode::PAYLOAD_TOO_LARGE, "a bundle is at most 8000000 bytes"),
        (query("../x", &commit(1), None, &good), good.clone(), StatusCode::BAD_REQUEST, "is no name of a machine"),
        (query("laptop", "main", None, &good), good.clone(), StatusCode::BAD_REQUEST, "`main` is no full commit"),
        (format!("{SYNC}?machine=laptop"), good.clone(), StatusCode::BAD_REQUEST, "missing field"),
    ];
    for (path, body, code, words) in cases {
        let (status, answer) = ask("alice", path.clone(), body).await;
        assert_eq!(status, code, "{path}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(words), "{path}: {answer}");
    }
    let missing = path(&good).replace("yoiprojects/p/", "yoiprojects/nobody/");
    assert_eq!(ask("alice", missing, good.clone()).await.0, StatusCode::NOT_FOUND);
    put_project(&cluster, json!({"url": "https://git.example/a"}));
    let (status, takes_none) = ask("alice", path(&good), good.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{takes_none}");
    assert!(takes_none["message"].as_str().unwrap().contains("set spec.source.git.sync to {}"), "{takes_none}");
    assert_eq!(cluster.api.request_count("POST api/v1"), 0, "nothing was stored");
    assert!(synced(&cluster).is_null());
}
