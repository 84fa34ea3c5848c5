//! What is kept of a Node.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use yoi_operator::trim;
use yoi_plan::nodes;

fn node(spec: Value, ready: &str, since: &str, heartbeat: &str, version: &str) -> Node {
    let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "r", "message": "m", "lastHeartbeatTime": heartbeat, "lastTransitionTime": since});
    serde_json::from_value(json!({
        "metadata": {"name": "n", "uid": "u", "resourceVersion": version, "labels": {"zone": "z"}, "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
        "spec": spec,
        "status": {
            "conditions": [condition("MemoryPressure", "False"), condition("Ready", ready)],
            "images": [{"names": ["registry.example/some/image"], "sizeBytes": 1}], "volumesInUse": [version],
        },
    }))
    .expect("a Node")
}

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-01T00:05:00Z";

#[test]
fn a_trimmed_node_keeps_what_the_scheduler_judges_and_loses_the_heartbeat() {
    let spec = json!({"unschedulable": true, "taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    let trimmed = |heartbeat: &str| trim::node(node(spec.clone(), "Unknown", EARLY, heartbeat, "1"));
    assert_eq!(trimmed(EARLY), trimmed(LATE));
    let whole = nodes::Node::new(&node(spec.clone(), "Unknown", EARLY, LATE, "1"), None);
    let kept = nodes::Node::new(&trimmed(LATE), None);
    assert_eq!(format!("{kept:?}"), format!("{whole:?}"));
    assert!(kept.cordoned && kept.taints.len() == 1 && kept.not_ready_since.is_some());
    assert!(trimmed(LATE).status.is_some_and(|status| status.images.is_none() && status.volumes_in_use.is_none()));
}
