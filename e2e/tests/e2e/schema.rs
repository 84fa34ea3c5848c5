//! Fields that nobody changes. Which objects are refused at all, and with which words, is in the target `manifests`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_e2e::test_namespace::TestNamespace;

fn object(kind: &str, name: &str, spec: Value) -> String {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec }).to_string()
}

#[tokio::test]
async fn immutable_fields_stay_even_when_removed_and_added() -> Result<()> {
    let ns = TestNamespace::create("immutable").await?;
    let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "workspace": { "ref": { "name": "w" } } });
    ns.apply(&object("YoiPod", "a", spec)).await?;
    for patch in [
        json!({ "spec": { "projectRef": { "name": "q" } } }),
        json!({ "spec": { "workspace": { "ref": { "name": "v" } } } }),
        json!({ "spec": { "workspace": null } }),
        json!({ "spec": { "task": "more work" } }),
    ] {
        ensure!(ns.merge_patch::<YoiPod>("a", &patch).await.is_err(), "{patch} was taken");
    }
    ns.merge_patch::<YoiPod>("a", &json!({ "spec": { "desiredState": "Stopped" } })).await?;
    ns.remove().await
}
