//! Working trees that people send to a project: who may, what is taken, and what counts.

use axum::http::StatusCode;
use serde_json::{Value, json};
use yoi_crds::sync::PART_BYTES;

use crate::harness::{Replica, TestCluster};

const SYNC: &str = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoiprojects/p/sync";

fn commit(number: u32) -> String {
    format!("{number:040x}")
}

/// A bundle of one machine, as far as its header goes.
fn bundle(machine: &str, commit: &str) -> Vec<u8> {
    format!("# v2 git bundle\n-{} the base\n{commit} refs/yoi/sync/{machine}\n\nPACK of {commit}", "ba".repeat(20)).into_bytes()
}

/// Of the part of this number.
fn part_query(machine: &str, commit: &str, previous: Option<&str>, bundle: &[u8], part: usize) -> String {
    let previous = previous.map(|previous| format!("&previous={previous}")).unwrap_or_default();
    let (sha256, bytes) = (yoi_plan::names::sha256(bundle), bundle.len());
    let part_sha256 = yoi_plan::names::sha256(part_of(bundle, part));
    let said = format!("machine={machine}&commit={commit}{previous}&capturedAt=2026-01-01T10:00:00Z&sha256={sha256}&bytes={bytes}");
    format!("{SYNC}?{said}&part={part}&partSha256={part_sha256}")
}

fn part_of(bundle: &[u8], part: usize) -> &[u8] {
    bundle.chunks(PART_BYTES).nth(part).unwrap_or_default()
}

/// Of a bundle that is one part.
fn query(machine: &str, commit: &str, previous: Option<&str>, bundle: &[u8]) -> String {
    part_query(machine, commit, previous, bundle, 0)
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
    let two = [good.clone(), vec![1; PART_BYTES]].concat();
    let no_header = [vec![1; PART_BYTES], good.clone()].concat();
    let part = |bundle: &[u8], number| (part_query("laptop", &commit(1), None, bundle, number), part_of(bundle, number).to_vec());
    let (of_two, of_no_header) = (part(&two, 0), part(&no_header, 0));
    let cases = [
        (path(&good), cut, StatusCode::BAD_REQUEST, "their digest is not the one that was said"),
        (path(b"x"), b"x".to_vec(), StatusCode::BAD_REQUEST, "the body is no git bundle"),
        (path(&other), other, StatusCode::BAD_REQUEST, "the bundle holds `refs/yoi/sync/desk`"),
        (path(&later), later, StatusCode::BAD_REQUEST, "is taken"),
        (path(&long), part_of(&long, 0).to_vec(), StatusCode::PAYLOAD_TOO_LARGE, "a bundle is at most 8000000 bytes"),
        (path(&good), vec![0; PART_BYTES + 1], StatusCode::PAYLOAD_TOO_LARGE, "a part of a bundle is at most 1000000 bytes"),
        (of_two.0.clone(), good.clone(), StatusCode::BAD_REQUEST, "of 1000000 have come"),
        (of_two.0.replace("&part=0", "&part=2"), of_two.1.clone(), StatusCode::BAD_REQUEST, "has 2 parts, and none of number 2"),
        (part(&two, 1).0, part(&two, 1).1, StatusCode::CONFLICT, "0 parts are there, and the next one is missing"),
        (of_no_header.0, of_no_header.1, StatusCode::BAD_REQUEST, "the body is no git bundle"),
        (path(&good).replace("&sha256=", "&sha256=0"), good.clone(), StatusCode::BAD_REQUEST, "is no SHA-256 in hex"),
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
    assert!(takes_none["message"].as_str().unwrap().contains("set spec.source.git.sync, or "), "{takes_none}");
    assert_eq!(cluster.api.request_count("POST api/v1"), 0, "nothing was stored");
    assert!(synced(&cluster).is_null());
}

/// A bundle of three parts.
fn long_bundle(machine: &str, number: u32) -> Vec<u8> {
    [bundle(machine, &commit(number)), vec![u8::try_from(number).unwrap(); 2 * PART_BYTES]].concat()
}

/// Sends one part of such a bundle.
async fn send_part(
    cluster: &TestCluster,
    replica: &Replica,
    (machine, number, previous): (&str, u32, Option<u32>),
    part: usize,
) -> (StatusCode, Value) {
    let (bundle, previous) = (long_bundle(machine, number), previous.map(commit));
    let path = part_query(machine, &commit(number), previous.as_deref(), &bundle, part);
    cluster.post_bytes(replica, "alice", &path, part_of(&bundle, part).to_vec()).await
}

fn part_names(bundle: &Value) -> Vec<String> {
    bundle["parts"].as_array().into_iter().flatten().map(|part| part["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn w46_an_upload_that_was_cut_goes_on_with_the_part_that_is_missing_and_counts_with_the_last_one() {
    let (cluster, replica) = scene().await;
    assert_eq!(send(&cluster, &replica, "desk", 9, None).await.0, StatusCode::OK);
    let stored = || cluster.api.request_count("POST api/v1");
    let before = stored();
    let laptop = ("laptop", 1, None);
    let (status, answer) = send_part(&cluster, &replica, laptop, 0).await;
    assert_eq!((status, &answer["parts"], &answer["receivedAt"]), (StatusCode::OK, &json!(1), &Value::Null), "{answer}");
    let sync = synced(&cluster);
    assert_eq!(
        (&sync["last"]["commit"], &sync["machines"].as_array().unwrap().len()),
        (&json!(commit(9)), &1),
        "it counts before it is whole"
    );
    assert_eq!((&sync["uploads"][0]["machine"], &sync["uploads"][0]["bundle"]["commit"]), (&json!("laptop"), &json!(commit(1))));

    // The answer was lost, and the part is sent again; another replica goes on.
    let (status, again) = send_part(&cluster, &replica, laptop, 0).await;
    assert_eq!((status, &again["parts"], stored()), (StatusCode::OK, &json!(1), before + 1), "{again}");
    let (status, gap) = send_part(&cluster, &replica, laptop, 2).await;
    assert_eq!(status, StatusCode::CONFLICT, "{gap}");
    let other = cluster.replica().await;
    assert_eq!(send_part(&cluster, &other, laptop, 1).await.1["parts"], json!(2));
    let kept = part_names(&synced(&cluster)["uploads"][0]["bundle"]);
    let (status, whole) = send_part(&cluster, &other, laptop, 2).await;
    assert_eq!((status, &whole["parts"], stored()), (StatusCode::OK, &json!(3), before + 3), "{whole}");
    assert!(whole["receivedAt"].is_string(), "{whole}");
    let sync = synced(&cluster);
    assert_eq!((&sync["last"]["commit"], &sync["uploads"]), (&json!(commit(1)), &Value::Null));
    let parts = part_names(&sync["bundles"][1]);
    assert_eq!((parts.len(), &parts[..2]), (3, &kept[..]), "a part was stored twice");
    let bundle = long_bundle("laptop", 1);
    for (number, name) in parts.iter().enumerate() {
        let part = cluster.api.get("configmaps", "ns", name)["binaryData"]["part"].clone();
        let bytes: k8s_openapi::ByteString = serde_json::from_value(part).unwrap();
        assert!(bytes.0 == part_of(&bundle, number), "part {number} is not as it was sent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn w46_an_upload_in_whose_middle_another_state_comes_counts_no_more_and_its_parts_are_left_to_the_operator() {
    let (cluster, replica) = scene().await;
    assert_eq!(send_part(&cluster, &replica, ("laptop", 1, None), 0).await.0, StatusCode::OK);
    // The tree has changed meanwhile, and what is there by now is sent: the older state does not go on.
    assert_eq!(send_part(&cluster, &replica, ("laptop", 2, None), 0).await.0, StatusCode::OK);
    let sync = synced(&cluster);
    assert_eq!((sync["uploads"].as_array().unwrap().len(), &sync["uploads"][0]["bundle"]["commit"]), (1, &json!(commit(2))));
    assert_eq!(sync["bundles"][0]["commit"], json!(commit(1)), "nobody deletes its part");
    assert_eq!(sync["last"], Value::Null);
    let (status, cut) = send_part(&cluster, &replica, ("laptop", 1, None), 1).await;
    assert_eq!(status, StatusCode::CONFLICT, "{cut}");
    // A newer one of the same machine that is whole at once: neither goes on.
    assert_eq!(send(&cluster, &replica, "laptop", 3, None).await.0, StatusCode::OK);
    let (status, late) = send_part(&cluster, &replica, ("laptop", 2, None), 1).await;
    assert_eq!(status, StatusCode::CONFLICT, "{late}");
    assert!(late["message"].as_str().unwrap().contains("a newer state of machine laptop is there"), "{late}");
    assert_eq!(synced(&cluster)["last"]["commit"], json!(commit(3)));

    // Each machine has one of its own, and of too many the one that rests longest is given up.
    for number in 0..5 {
        assert_eq!(send_part(&cluster, &replica, (&format!("m{number}"), 10 + number, None), 0).await.0, StatusCode::OK);
    }
    let machines: Vec<Value> = synced(&cluster)["uploads"].as_array().unwrap().iter().map(|upload| upload["machine"].clone()).collect();
    assert_eq!(machines, ["m1", "m2", "m3", "m4"]);
}
