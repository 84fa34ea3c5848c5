//! An agent that ends by itself: a lifetime stops it, and a ttl deletes it.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_e2e::test_namespace::TestNamespace;

const SCRIPT: &str = r#"
rules:
- name: work
  when: { lastUserContains: "work" }
  steps:
  - text: Done.
"#;

#[tokio::test]
async fn r7_a_lifetime_stops_an_agent_a_longer_one_lets_it_go_on_and_a_ttl_deletes_one_that_has_ended() -> Result<()> {
    let ns = TestNamespace::create("ending").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    let done = json!({"task": "work", "completion": "Stop", "ttlAfterFinished": "0s"});
    ns.create_agent("b", "p", done).await?;
    ns.wait_agent_ready("a").await?;

    ns.merge_patch::<YoiPod>("a", &json!({"spec": {"limits": {"lifetime": "10s"}}})).await?;
    ns.wait_reason::<YoiPod>("a", "Ready", "LifetimeOver").await?;
    ensure!(ns.list::<Pod>("yoi.dev/yoipod=a").await?.is_empty(), "it has a Pod");
    let refused = ns.yoi(&["start", "a"]).await?;
    ensure!(refused.code != 0 && refused.err.contains("its lifetime is over"), "{refused:?}");
    ns.merge_patch::<YoiPod>("a", &json!({"spec": {"limits": {"lifetime": null}}})).await?;
    ns.wait_agent_ready("a").await?;

    ns.wait_gone::<YoiPod>("b").await?;
    ensure!(ns.event_count("YoiPod", "b", "DeletedWhenFinished").await? > 0, "nothing told it before");
    ns.get::<PersistentVolumeClaim>("b-session").await?;
    ns.remove().await
}
