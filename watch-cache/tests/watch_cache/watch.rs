//! The watch, against a scripted API server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use yoi_test_support::in_time;
use yoi_watch_cache::{CacheChange, Queued, WatchCache, queue};

/// The second list is another than the first; a watch ends at once, so that the kind is listed again.
fn server(lists: [Value; 2]) -> Client {
    let listed = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = if request.uri().query().unwrap_or_default().contains("watch=true") {
            json!({"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410}})
        } else {
            let nth = listed.fetch_add(1, Ordering::SeqCst);
            json!({"metadata": {"resourceVersion": nth.to_string()}, "items": lists[nth.min(1)]})
        };
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes()))))
    });
    Client::new(service, "default")
}

fn config_map(name: &str, data: Value) -> Value {
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}", "kept": "yes"});
    json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1", "annotations": annotations}, "data": data})
}

fn name_key(map: &ConfigMap) -> Vec<String> {
    vec![map.name_any()]
}

async fn next_listing(changes: &mut mpsc::UnboundedReceiver<CacheChange<String>>) -> Vec<String> {
    let change = in_time("it is listed", changes.recv()).await.expect("the watch goes on");
    assert!(change.listed);
    let mut keys = change.keys;
    keys.sort();
    keys
}

#[tokio::test]
async fn b5_an_object_that_cannot_be_read_holds_up_no_other_and_stays_what_it_was() {
    let good = |name| config_map(name, json!({"key": "value"}));
    let client = server([
        json!([good("a"), good("turned"), config_map("never", json!(7)), good("z")]),
        json!([good("a"), config_map("turned", json!(7)), config_map("never", json!(7))]),
    ]);
    let (cache, writer) = WatchCache::new(|map: ConfigMap| map, name_key);
    let (send, mut changes) = mpsc::unbounded_channel();
    let ready_in_time = cache.clone();
    let run = writer.run(Api::all(client), watcher::Config::default(), move |change| {
        assert!(ready_in_time.is_ready() || change.keys.len() == 3, "the cache is not ready before `on_change` has returned");
        let _ = send.send(change.clone());
    });
    let running = tokio::spawn(run);
    assert_eq!(next_listing(&mut changes).await, ["a", "turned", "z"]);
    cache.wait_until_ready().await;
    assert_eq!(next_listing(&mut changes).await, ["a", "a", "turned", "turned", "z"]);
    assert_eq!(cache.len(), 2);
    let kept = cache.get("ns", "turned").expect("it is known");
    assert_eq!(kept.data.as_ref().and_then(|data| data.get("key")).map(String::as_str), Some("value"));
    assert_eq!(kept.annotations().keys().collect::<Vec<_>>(), ["kept"]);
    assert!(!running.is_finished());
    running.abort();
}

#[tokio::test]
async fn a_queue_holds_names_and_forgets_what_is_gone() {
    let client = server([json!([config_map("a", json!({})), config_map("b", json!({}))]), json!([config_map("b", json!({}))])]);
    let (cache, writer) = WatchCache::new(|map: ConfigMap| map, name_key);
    let (triggers, store) = queue(writer.watch(Api::all(client), watcher::Config::default(), |_| {}));
    let mut triggers = Box::pin(triggers.filter_map(|name| std::future::ready(name.ok())));
    let mut names = Vec::new();
    for _ in 0..2 {
        let queued: Queued<ConfigMap> = triggers.next().await.expect("the watch goes on");
        assert_eq!(queued.metadata.uid, None);
        names.push(queued.name_any());
    }
    names.sort();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(triggers.next().await.expect("the watch goes on").name_any(), "b");
    // Whatever the second listing brings first, it counts once it is complete.
    while cache.len() > 1 {
        triggers.next().await.expect("the watch goes on");
    }
    assert_eq!(store.state().iter().map(|queued| queued.name_any()).collect::<Vec<_>>(), ["b"]);
}
