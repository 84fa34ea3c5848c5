//! Events are sent in the background.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Reporter};
use serde_json::json;
use tokio_util::task::TaskTracker;
use yoi_operator::event_recorder::EventRecorder;
use yoi_operator::log_subject::LogSubject;
use yoi_test_support::in_time;

use crate::server::{ApiRequest, made, not_found, server};

#[tokio::test]
async fn what_is_under_way_waits_for_events_and_one_that_comes_again_is_counted_on_the_first() {
    let (client, requests) = server(|request: &ApiRequest| match request.body["series"]["count"].as_i64() {
        // Its time at the API server is over.
        Some(3) => not_found(),
        _ => (200, request.body.clone()),
    });
    let under_way = TaskTracker::new();
    let recorder = EventRecorder::new(&client, Reporter { controller: "yoi-operator".into(), instance: None }, under_way.clone());
    let object: yoi_crds::YoiPod = made(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "the-uid"}, "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}},
    }));
    let about = ObjectReference { namespace: Some("ns".into()), name: Some("a".into()), uid: Some("the-uid".into()), ..Default::default() };
    for reason in ["Ready", "Ready", "Ready", "Ready", "Stopped"] {
        let (reason, note) = (reason.to_owned(), Some("a sentence".to_owned()));
        let event = Event { type_: EventType::Normal, reason, note, action: "Reconcile".into(), secondary: None };
        recorder.publish(&LogSubject::of(&object, None), event, about.clone());
    }
    under_way.close();
    in_time("all Events are sent", under_way.wait()).await;
    let requests = requests.lock().expect("the lock").clone();
    let sent: Vec<_> =
        requests.iter().map(|r| (r.method.as_str(), r.body["reason"].as_str(), r.body["series"]["count"].as_i64())).collect();
    let (ready, stopped) = (Some("Ready"), Some("Stopped"));
    let expected = [
        ("POST", ready, None),
        ("PATCH", None, Some(2)),
        ("PATCH", None, Some(3)),
        ("POST", ready, None),
        ("PATCH", None, Some(2)),
        ("POST", stopped, None),
    ];
    assert_eq!(sent, expected);
    for (made, counted) in [(0, 1), (3, 4)] {
        let name = requests[made].body["metadata"]["name"].as_str().expect("a name");
        assert_eq!(requests[counted].path, format!("/apis/events.k8s.io/v1/namespaces/ns/events/{name}"));
    }
    assert_eq!(requests[0].body["regarding"]["uid"], "the-uid");
}
