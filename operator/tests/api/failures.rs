//! What failed is counted while it exists, and not for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::{reflector, watcher};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use yoi_crds::YoiPeer;
use yoi_operator::controller::{self, Context};
use yoi_operator::health::Metrics;
use yoi_operator::watch_caches::WatchCaches;
use yoi_plan::settings::Settings;

use crate::server::{made, refusal, server};

fn settings() -> Settings {
    let gateway = yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() };
    Settings::new("agent", gateway)
}

/// All of a cluster's lists, empty, and watches that say nothing.
fn quiet(request: &crate::server::ApiRequest) -> (u16, serde_json::Value) {
    if request.method != "GET" {
        return refusal(422, "Invalid", "it does not fit the schema");
    }
    if request.query.contains("watch=true") {
        return (200, json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}}));
    }
    (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": []}))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} never came");
}

#[tokio::test]
async fn an_object_that_failed_and_is_gone_is_forgotten() {
    let (client, _) = server(quiet);
    let (caches, sources, _woken) = WatchCaches::new();
    tokio::spawn(crate::watch::all(sources, Arc::clone(&caches), client.clone()));
    let recorder = Recorder::new(client.clone(), Reporter { controller: "yoi-operator".into(), instance: None });
    let context =
        Arc::new(Context::new(client, caches, settings(), recorder, Metrics::default(), CancellationToken::new(), TaskTracker::new()));
    let (store, mut writer) = reflector::store::<YoiPeer>();
    writer.apply_watcher_event(&watcher::Event::Init);
    writer.apply_watcher_event(&watcher::Event::InitDone);
    let (trigger, triggered) = mpsc::unbounded();
    tokio::spawn(controller::run(triggered, store, futures::stream::pending(), Arc::clone(&context), 1));
    let peers: BTreeMap<u32, YoiPeer> = (0..20)
        .map(|i| {
            let name = format!("a{i}.b");
            let members = [format!("a{i}"), "b".to_owned()];
            (i, made(json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}, "spec": {"members": members}})))
        })
        .collect();
    for peer in peers.values() {
        writer.apply_watcher_event(&watcher::Event::Apply(peer.clone()));
        trigger.unbounded_send(Ok(peer.clone())).expect("the controller listens");
    }
    until("twenty failures", || context.failures.count() == 20).await;
    for peer in peers.values() {
        writer.apply_watcher_event(&watcher::Event::Delete(peer.clone()));
        trigger.unbounded_send(Ok(peer.clone())).expect("the controller listens");
    }
    until("an end of the failures", || context.failures.count() == 0).await;
}

#[test]
fn pauses_grow_to_five_minutes_and_begin_anew_after_a_success() {
    let failures = yoi_operator::failures::Failures::default();
    let pauses: Vec<u64> = (0..11).map(|_| failures.failed("YoiPod", "ns", "a").as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    assert_eq!(failures.failed("YoiPod", "ns", "b").as_secs(), 1, "each object has its own");
    failures.forget("YoiPod", "ns", "a");
    assert_eq!(failures.failed("YoiPod", "ns", "a").as_secs(), 1);
}
