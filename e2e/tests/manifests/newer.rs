//! Objects that a newer version of the CRDs accepted: with a field, an enum value and a union member that this version does not know.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_e2e::poll_seen;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_test_support::limit;

const CHANGED: [&str; 3] = ["yoiprojects.yoi.dev", "yoipods.yoi.dev", "agentworkspaces.yoi.dev"];

/// Stores objects under the schemas of a newer version, restores the schemas even if that failed, and checks that every watch goes on.
pub async fn run() -> Result<()> {
    let ns = TestNamespace::create("newer").await?;
    let crds: Api<CustomResourceDefinition> = Api::all(ns.client.clone());
    let mut before = Vec::new();
    for name in CHANGED {
        before.push(serde_json::to_value(crds.get(name).await?.spec)?);
    }
    let stored = async {
        for (name, spec) in CHANGED.iter().zip(&before) {
            replace_spec(&crds, name, newer_schema(spec.clone())?).await?;
        }
        store(&ns).await
    };
    let stored = tokio::time::timeout(limit(Duration::from_secs(60)), stored).await;
    for (name, spec) in CHANGED.iter().zip(&before) {
        replace_spec(&crds, name, spec.clone())
            .await
            .with_context(|| format!("{name} is not as it was: install the chart yoi-crds again"))?;
    }
    stored.context("the newer schemas were not served in time")??;

    for (name, reason) in [("odd-word", "InvalidSpec"), ("odd-source", "InvalidSpec")] {
        ns.wait_reason::<AgentWorkspace>(name, "Accepted", reason).await?;
    }
    ns.wait_reason::<YoiPod>("odd-state", "Accepted", "InvalidSpec").await?;
    ns.wait_reason::<YoiPod>("odd-agent", "Accepted", "InvalidSpec").await?;
    ns.wait_reason::<YoiProject>("odd-source", "Ready", "InvalidSpec").await?;
    // The watches go on: later objects are reconciled.
    ns.create_empty_project("after").await?;
    ns.create_agent("after", "after", json!({})).await?;
    ns.wait_agent_ready("after").await?;
    let listed = ns.yoi(&["ls"]).await?;
    ensure!(listed.code == 0, "kubectl yoi cannot list any more: {}", listed.err);
    ns.remove().await
}

/// Returns the schema of a newer version.
fn newer_schema(mut spec: Value) -> Result<Value> {
    let root = &mut spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let fields = root["properties"].as_object_mut().context("fields")?;
    fields.insert("tomorrow".into(), json!({ "type": "object", "properties": { "of": { "type": "string" } } }));
    for field in ["provider", "desiredState"] {
        if let Some(words) = fields.get_mut(field).and_then(|f| f["enum"].as_array_mut()) {
            words.push(json!("Tomorrow"));
        }
    }
    for union in ["source", "agent"] {
        let Some(union) = fields.get_mut(union) else { continue };
        union["properties"]["tomorrow"] = json!({ "type": "object" });
        union.as_object_mut().context("a union")?.remove("x-kubernetes-validations");
    }
    Ok(spec)
}

async fn replace_spec(crds: &Api<CustomResourceDefinition>, name: &str, spec: Value) -> Result<()> {
    for _ in 0..10 {
        let mut crd = crds.get(name).await?;
        crd.spec = serde_json::from_value(spec.clone())?;
        match crds.replace(name, &PostParams::default(), &crd).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(s)) if s.is_conflict() => {}
            Err(e) => return Err(e.into()),
        }
    }
    bail!("{name} changes all the time")
}

/// Stores the objects as soon as the newer schemas are served.
async fn store(ns: &TestNamespace) -> Result<()> {
    let agent = |more: Value| {
        let mut spec =
            json!({ "projectRef": { "name": "nowhere" }, "agent": { "builtin": {} }, "model": { "provider": "OpenAI", "name": "m" } });
        spec.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        spec
    };
    let objects = [
        ("AgentWorkspace", "odd-word", json!({ "source": { "empty": {} }, "provider": "Tomorrow", "tomorrow": { "of": "fields" } })),
        ("AgentWorkspace", "odd-source", json!({ "source": { "tomorrow": {} } })),
        ("YoiPod", "odd-state", agent(json!({ "desiredState": "Tomorrow" }))),
        ("YoiPod", "odd-agent", agent(json!({ "agent": { "tomorrow": {} } }))),
        ("YoiProject", "odd-source", json!({ "source": { "tomorrow": {} }, "provider": "Auto" })),
    ];
    for (kind, name, spec) in objects {
        let object = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec }).to_string();
        poll_seen(Duration::from_secs(30), &format!("{kind} {name} is taken by the newer schema"), async || {
            let output = ns.try_apply(&object).await?;
            Ok(if output.code == 0 { Ok(()) } else { Err(output.err) })
        })
        .await?;
    }
    Ok(())
}
