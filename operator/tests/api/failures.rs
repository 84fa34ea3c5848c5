//! Failures are counted while their object exists.

use std::sync::{Arc, Mutex};

use kube::runtime::events::Reporter;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use yoi_operator::controller::Context;
use yoi_operator::conversation_events::LiveConversations;
use yoi_operator::event_recorder::EventRecorder;
use yoi_operator::failures::Failures;
use yoi_operator::health::Metrics;
use yoi_operator::progress_delay::ProgressDelay;
use yoi_operator::start::{Namespaces, start_all};
use yoi_operator::watch_caches::WatchCaches;
use yoi_plan::settings::Settings;
use yoi_test_support::eventually;

use crate::server::{ApiRequest, refusal, server};

fn settings() -> Settings {
    let gateway = yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() };
    Settings::new("agent", gateway)
}

/// A cluster that holds these YoiPeers and nothing else, refuses every write, and deletes those in `deleted`, one for each watch request.
fn cluster_of(peers: Vec<Value>, deleted: Arc<Mutex<Vec<Value>>>) -> impl Fn(&ApiRequest) -> (u16, Value) {
    move |request| {
        if request.method != "GET" {
            return refusal(422, "Invalid", "it does not fit the schema");
        }
        let is_of_peers = request.path.ends_with("yoipeers");
        if request.query.contains("watch=true") {
            let gone = if is_of_peers { deleted.lock().expect("the lock").pop() } else { None };
            let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}});
            return (200, gone.map_or(bookmark, |peer| json!({"type": "DELETED", "object": peer})));
        }
        let items = if is_of_peers { peers.clone() } else { Vec::new() };
        (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))
    }
}

#[tokio::test]
async fn an_object_that_failed_and_is_gone_is_forgotten() {
    let peer = |i: u32| {
        let metadata = json!({"name": format!("a{i}.b"), "namespace": "ns", "uid": format!("a{i}.b"), "resourceVersion": "1"});
        json!({"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer", "metadata": metadata, "spec": {"members": [format!("a{i}"), "b"]}})
    };
    let peers: Vec<Value> = (0..20).map(peer).collect();
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let (client, _) = server(cluster_of(peers.clone(), Arc::clone(&deleted)));
    let (caches, writers, triggers) = WatchCaches::new();
    let context = Arc::new(Context {
        recorder: EventRecorder::new(&client, Reporter { controller: "yoi-operator".into(), instance: None }, TaskTracker::new()),
        client,
        caches,
        settings: settings(),
        metrics: Metrics::default(),
        concurrency: 1,
        stop: CancellationToken::new(),
        under_way: TaskTracker::new(),
        conversations: LiveConversations::default(),
        failures: Failures::default(),
        progress: ProgressDelay::default(),
    });
    let mut parts = JoinSet::new();
    start_all(&mut parts, writers, triggers, &context, Namespaces { watched: None, shims: "yoi-node" });
    eventually("twenty failures", async || (context.failures.count() == 20).then_some(())).await;
    deleted.lock().expect("the lock").extend(peers);
    eventually("an end of the failures", async || (context.failures.count() == 0).then_some(())).await;
}

#[test]
fn pauses_grow_to_five_minutes_and_begin_anew_after_a_success() {
    let failures = Failures::default();
    let pauses: Vec<u64> = (0..11).map(|_| failures.record_failure("YoiPod", "ns", "a").as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert_eq!(failures.record_failure("YoiPod", "ns", "b").as_secs(), 1, "each object has its own");
    failures.forget("YoiPod", "ns", "a");
    assert_eq!(failures.record_failure("YoiPod", "ns", "a").as_secs(), 1);
}
