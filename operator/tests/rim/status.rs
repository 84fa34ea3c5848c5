//! A status is written with the identity and the version that the decision saw, or not at all.

use kube::runtime::events::{Recorder, Reporter};
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_operator::apply::Error;
use yoi_operator::report;
use yoi_operator::subject::Subject;

use crate::script::{Asked, conflict, made, not_found, server};

fn yoipod() -> YoiPod {
    made(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "the-uid", "resourceVersion": "41"},
        "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}},
        "status": {"runGeneration": 1, "task": {"id": "t", "state": "Running"}},
    }))
}

async fn written(run: i64, answer: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> (Result<bool, Error>, Vec<Asked>) {
    let (client, said) = server(answer);
    let recorder = Recorder::new(client.clone(), Reporter { controller: "yoi-operator".into(), instance: None });
    let object = yoipod();
    let mut after = object.status.clone().expect("a status");
    after.run_generation = Some(run);
    after.task = None;
    let outcome = report::status(&client, &recorder, &Subject::of(&object, Some(run)), &object, object.status.as_ref(), after).await;
    let said = said.lock().expect("the lock").clone();
    (outcome, said)
}

#[tokio::test]
async fn a_status_is_written_with_uid_and_version_and_without_what_others_say() {
    let (outcome, said) = written(2, |_| (200, serde_json::to_value(yoipod()).expect("JSON"))).await;
    assert!(outcome.expect("it is written"));
    let [asked] = &said[..] else { panic!("one request: {said:?}") };
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("PATCH", "/apis/yoi.dev/v1alpha1/namespaces/ns/yoipods/a/status"));
    assert!(asked.headers.starts_with("application/apply-patch+yaml"), "{}", asked.headers);
    assert_eq!((&asked.body["metadata"]["uid"], &asked.body["metadata"]["resourceVersion"]), (&json!("the-uid"), &json!("41")));
    assert_eq!(asked.body["status"]["runGeneration"], 2);
    assert!(asked.body["status"].get("task").is_none(), "the task is the gateway's: {}", asked.body);
}

#[tokio::test]
async fn a_status_that_says_nothing_new_is_not_written() {
    let (outcome, said) = written(1, |_| (500, json!({}))).await;
    assert!(!outcome.expect("silence"));
    assert!(said.is_empty(), "{said:?}");
}

#[tokio::test]
async fn a_status_of_an_old_view_is_dropped_and_one_of_a_gone_object_is_forgotten() {
    let (outcome, _) = written(2, |_| conflict()).await;
    assert!(matches!(&outcome, Err(e @ Error::Outdated { .. }) if e.is_quiet()), "{outcome:?}");
    assert!(!written(2, |_| not_found()).await.0.expect("gone is done"));
}
