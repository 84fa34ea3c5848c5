//! A status is written with the UID and the version that it was planned on, or not at all.

use kube::runtime::events::{Recorder, Reporter};
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_operator::apply::Error;
use yoi_operator::log_subject::LogSubject;
use yoi_operator::report;

use crate::server::{ApiRequest, conflict, made, not_found, server};

fn yoipod() -> YoiPod {
    made(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "the-uid", "resourceVersion": "41"},
        "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}},
        "status": {"runGeneration": 1, "task": {"id": "t", "state": "Running"}},
    }))
}

async fn written(run: i64, answer: impl Fn(&ApiRequest) -> (u16, Value) + Send + Sync + 'static) -> (Result<bool, Error>, Vec<ApiRequest>) {
    let (client, requests) = server(answer);
    let recorder = Recorder::new(client.clone(), Reporter { controller: "yoi-operator".into(), instance: None });
    let object = yoipod();
    let mut after = object.status.clone().expect("a status");
    after.run_generation = Some(run);
    after.task = None;
    let outcome =
        report::write_status(&client, &recorder, &LogSubject::of(&object, Some(run)), &object, object.status.as_ref(), after).await;
    let requests = requests.lock().expect("the lock").clone();
    (outcome, requests)
}

#[tokio::test]
async fn a_status_is_written_with_uid_and_version_and_without_what_others_say() {
    let (outcome, requests) = written(2, |_| (200, serde_json::to_value(yoipod()).expect("JSON"))).await;
    assert!(outcome.expect("it is written"));
    let [request] = &requests[..] else { panic!("one request: {requests:?}") };
    assert_eq!((request.method.as_str(), request.path.as_str()), ("PATCH", "/apis/yoi.dev/v1alpha1/namespaces/ns/yoipods/a/status"));
    assert!(request.headers.starts_with("application/apply-patch+yaml"), "{}", request.headers);
    assert_eq!((&request.body["metadata"]["uid"], &request.body["metadata"]["resourceVersion"]), (&json!("the-uid"), &json!("41")));
    assert_eq!(request.body["status"]["runGeneration"], 2);
    assert!(request.body["status"].get("task").is_none(), "the task is the gateway's: {}", request.body);
}

#[tokio::test]
async fn a_status_that_says_nothing_new_is_not_written() {
    let (outcome, requests) = written(1, |_| (500, json!({}))).await;
    assert!(!outcome.expect("silence"));
    assert!(requests.is_empty(), "{requests:?}");
}

#[tokio::test]
async fn a_status_of_an_old_view_is_dropped_and_one_of_a_gone_object_is_forgotten() {
    let (outcome, _) = written(2, |_| conflict()).await;
    assert!(matches!(&outcome, Err(e @ Error::Outdated { .. }) if e.is_quiet()), "{outcome:?}");
    assert!(!written(2, |_| not_found()).await.0.expect("gone is done"));
}
