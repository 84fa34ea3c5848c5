//! A status is written with the UID and the version that it was planned on, or not at all.

use kube::runtime::events::Reporter;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;
use yoi_crds::YoiPod;
use yoi_operator::apply::Error;
use yoi_operator::event_recorder::EventRecorder;
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
    let recorder = EventRecorder::new(&client, Reporter { controller: "yoi-operator".into(), instance: None }, TaskTracker::new());
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

fn status(of: Value) -> yoi_crds::YoiPodStatus {
    serde_json::from_value(of).expect("a status")
}

#[test]
fn progress_waits_and_what_others_act_on_does_not() {
    let pending =
        |reason: &str| json!({"type": "Ready", "status": "False", "reason": reason, "message": reason, "lastTransitionTime": "t"});
    let before = status(json!({"runGeneration": 1, "conditions": [pending("Creating")]}));
    let may_wait = |after: Value| report::may_wait(Some(&before), &status(after));
    assert!(!may_wait(json!({"runGeneration": 1, "conditions": [pending("Creating")]})), "it says nothing new");
    let progress = json!({"runGeneration": 1, "workspace": {"name": "a", "nodeName": "n"}, "conditions": [pending("PodPending")]});
    assert!(may_wait(progress.clone()));
    assert!(!may_wait(json!({"runGeneration": 2, "conditions": [pending("PodPending")]})));
    assert!(!may_wait(json!({"runGeneration": 1, "pod": {"name": "a-1", "uid": "u"}, "conditions": [pending("PodPending")]})));
    assert!(!may_wait(json!({"runGeneration": 1, "conditions": [pending("ApplyFailed")]})), "a person has to hear of it");
    assert!(!report::may_wait(None, &status(progress)), "the number of a run is no progress");
}

#[test]
fn an_agents_first_status_waits_for_its_pod_unless_it_names_a_warm_claim() {
    let ready = json!({"type": "Ready", "status": "False", "reason": "Starting", "message": "it starts", "lastTransitionTime": "t"});
    let first = |more: Value| {
        let mut of = json!({"observedGeneration": 1, "workspace": {"name": "a"}, "conditions": [ready]});
        of.as_object_mut().expect("a map").extend(more.as_object().cloned().expect("a map"));
        report::may_wait(None, &status(of))
    };
    assert!(first(json!({"sessionClaimName": "a-session"})));
    assert!(!first(json!({"sessionClaimName": "warm.x-session"})));
    assert!(!first(json!({"sessionClaimName": "a-session", "runGeneration": 1, "pod": {"name": "a-1", "uid": "u"}})));
    let warm = status(json!({"sessionClaimName": "warm.x-session", "conditions": [ready]}));
    let given_up = status(json!({"sessionClaimName": "a-session", "conditions": [ready]}));
    assert!(!report::may_wait(Some(&warm), &given_up), "the claim is made once the status does not name the warm one");
}

#[test]
fn a_trees_first_status_waits_for_its_node() {
    let ready =
        json!({"type": "Ready", "status": "False", "reason": "WaitingForConsumer", "message": "it waits", "lastTransitionTime": "t"});
    let first = |more: Value| {
        let mut of = json!({"observedGeneration": 1, "path": "/w", "owner": {"uid": 1, "gid": 1}, "quotaBytes": 5, "conditions": [ready]});
        of.as_object_mut().expect("a map").extend(more.as_object().cloned().expect("a map"));
        report::may_wait(None, &made::<yoi_crds::AgentWorkspaceStatus>(of))
    };
    assert!(first(json!({})));
    assert!(!first(json!({"nodeName": "n", "podUID": "u"})));
    assert!(!first(json!({"claimName": "a"})), "Pods of others mount the claim");
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
