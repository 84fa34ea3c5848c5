use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;
use yoi_watch_cache::WatchCache;

/// What the caller reads of a Pod.
struct PodRecord {
    node: Option<String>,
}

#[test]
fn a_pod_is_found_by_its_node() {
    let project = |pod: Pod| PodRecord { node: pod.spec.and_then(|spec| spec.node_name) };
    let (pods, writer) = WatchCache::new(project, |pod: &PodRecord| pod.node.clone().into_iter().collect());
    // A program calls `writer.watch(..)` or `writer.run(..)`; this is one event of it.
    let mut pod = Pod::default();
    pod.metadata.name = Some("a".to_owned());
    pod.spec.get_or_insert_default().node_name = Some("node-1".to_owned());
    writer.apply(Event::Apply(pod), |change| assert_eq!(change.keys, ["node-1"]));
    assert_eq!(pods.by_key(&"node-1".to_owned()).len(), 1);
}
