use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use yoi_plan::ObservedPod;

use super::*;

fn object<K: DeserializeOwned>(value: &Value) -> K {
    serde_json::from_value(value.clone()).unwrap()
}

/// What plans read of any metadata.
fn read_metadata() -> Value {
    json!({
        "name": "a-session", "namespace": "team", "uid": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0001", "resourceVersion": "123456",
        "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection", "yoi.dev/operator"],
        "labels": {"yoi.dev/yoipod": "a", "yoi.dev/warm": "web"}, "annotations": {"volume.kubernetes.io/selected-node": "n", "yoi.dev/yoipod-uid": "0d5c6d1e"},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "n"},
            {"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0002", "controller": true, "blockOwnerDeletion": true},
        ],
    })
}

/// The same as the API server gives it.
fn full_metadata() -> Value {
    let mut whole = read_metadata();
    whole["labels"]["app.kubernetes.io/name"] = json!("x");
    whole["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
    whole["generation"] = json!(7);
    whole
}

#[test]
fn a_claim_keeps_what_plans_read_and_one_that_is_warm_its_class_and_size_too() {
    let mut claim = json!({"metadata": full_metadata(), "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeName": "pv", "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    let spec = json!({"volumeName": "pv", "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}});
    let observed = |claim: &Value| CachedClaim::from(object::<PersistentVolumeClaim>(claim)).observed();
    let mut kept = json!({"metadata": read_metadata(), "spec": spec, "status": {"phase": "Bound"}});
    assert_eq!(observed(&claim), object(&kept));
    for object in [&mut claim, &mut kept] {
        object["metadata"]["labels"].as_object_mut().unwrap().remove("yoi.dev/warm");
    }
    kept["spec"] = json!({"volumeName": "pv"});
    assert_eq!(observed(&claim), object(&kept));
    let empty = PersistentVolumeClaim { spec: Some(Default::default()), status: Some(Default::default()), ..Default::default() };
    assert_eq!(CachedClaim::from(PersistentVolumeClaim::default()).observed(), empty);
}

#[test]
fn a_volume_keeps_its_claim_its_tree_its_nodes_and_its_policy() {
    let nodes = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}});
    let claim = json!({"namespace": "team", "name": "a-session", "uid": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0001"});
    let kept = json!({"metadata": read_metadata(), "spec": {"claimRef": claim, "csi": {"driver": "yoi.dev", "volumeHandle": "not a UID"}, "nodeAffinity": nodes,
        "persistentVolumeReclaimPolicy": "Retain"}});
    let mut whole = kept.clone();
    whole["metadata"] = full_metadata();
    whole["spec"]["capacity"] = json!({"storage": "1Gi"});
    whole["spec"]["claimRef"]["resourceVersion"] = json!("7");
    whole["spec"]["csi"]["volumeAttributes"] = json!({"a": "b"});
    whole["status"] = json!({"phase": "Bound"});
    let cached = CachedVolume::from(object::<PersistentVolume>(&whole));
    assert_eq!((cached.observed(), cached.claim()), (object(&kept), Some(("team", "a-session"))));
    assert_eq!(CachedVolume::from(PersistentVolume::default()).claim(), None);
}

#[test]
fn a_manifest_keeps_its_text_byte_by_byte() {
    let text = "{\"agent\":{\"uid\":\"u\"},\"gateway\":{\"ca\":\"---\\n,\"},\"task\":\"\u{e9}, \\\"\"}\n";
    let kept = json!({"metadata": read_metadata(), "data": {"manifest.json": text, "other": ""}});
    let mut whole = kept.clone();
    whole["metadata"] = full_metadata();
    whole["immutable"] = json!(true);
    assert_eq!(CachedManifest::from(object::<ConfigMap>(&whole)).observed(), object(&kept));
}

#[test]
fn a_pod_is_what_it_is_to_plans() {
    let pod = |metadata: Value| -> Pod {
        let volumes = json!([{"name": "manifest", "configMap": {"name": "m"}}]);
        object(
            &json!({"metadata": metadata, "spec": {"nodeName": "n", "containers": [], "volumes": volumes}, "status": {"phase": "Running"}}),
        )
    };
    // It has no equality.
    let text = |pod: ObservedPod| format!("{pod:?}");
    assert_eq!(text(CachedPod::from(pod(full_metadata())).observed()), text(ObservedPod::from(pod(read_metadata()))));
}
