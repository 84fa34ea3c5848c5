//! The caches: an object that nobody can read holds up no other.

use std::sync::Arc;

use futures::FutureExt;
use kube::Api;
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_test_support::{eventually, in_time};
use yoi_watch_cache::WatchCache;

use crate::server::{ApiRequest, server};

fn yoipod(name: &str, agent: serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
        "spec": {"projectRef": {"name": "p"}, "agent": agent},
    })
}

#[tokio::test]
async fn a_damaged_object_holds_up_no_other_and_stays_what_it_was() {
    // Good at first; of another version when it is listed again.
    let listings = std::sync::atomic::AtomicUsize::new(0);
    let (client, _) = server(move |request: &ApiRequest| {
        if request.query.contains("watch=true") {
            // The watch ends so that all is listed anew.
            return (200, json!({"type": "ERROR", "object": crate::server::refusal(410, "Expired", "too old").1}));
        }
        let nth = listings.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let turned = if nth == 0 { json!({"builtin": {"instruction": "as it was"}}) } else { json!("not an object") };
        let items =
            [yoipod("a", json!({"builtin": {}})), yoipod("turned", turned), yoipod("never", json!(7)), yoipod("z", json!({"builtin": {}}))];
        (
            200,
            json!({"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPodList", "metadata": {"resourceVersion": nth.to_string()}, "items": items}),
        )
    });
    let (seen, writer) = WatchCache::new(|yoipod: YoiPod| yoipod, |y: &YoiPod| vec![y.metadata.name.clone().unwrap_or_default()]);
    let rounds = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&rounds);
    let config = kube::runtime::watcher::Config::default();
    let run = writer.run(Api::all(client), config, move |_| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    let watched = tokio::spawn(run);
    in_time("the cache is listed in spite of it", seen.wait_until_ready()).await;
    let names = || {
        let mut names: Vec<String> = seen.all().iter().filter_map(|y| y.metadata.name.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["a", "turned", "z"]);
    eventually("it is listed again", async || (rounds.load(std::sync::atomic::Ordering::SeqCst) >= 2).then_some(())).await;
    assert_eq!(names(), ["a", "turned", "z"], "what cannot be read any more is what it was");
    let kept = seen.get("ns", "turned").expect("it is known");
    assert_eq!(kept.spec.agent.builtin.as_ref().map(|b| b.instruction.as_str()), Some("as it was"));
    assert!(watched.now_or_never().is_none(), "the watch goes on");
}
