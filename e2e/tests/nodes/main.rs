//! The local cluster itself: what its nodes, links and volumes do must be what nodes, links and volumes of other clusters do, or tests on it
//! prove nothing. What takes nodes away runs alone on its cluster.

mod drain;
mod life;
mod links;
mod loss;
mod placement;
mod volumes;
mod zones;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::Api;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

/// A Pod on this node: an HTTP server on port 8080, and a shell with curl and flock.
fn pod_on(node: &str, name: &str, more: Value) -> Value {
    let security = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let mut spec = json!({
        "nodeName": node, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [
            { "name": "shell", "image": "$image(agent)", "imagePullPolicy": "Never", "command": ["sleep", "100000"], "securityContext": security,
              "volumeMounts": [{ "name": "own", "mountPath": "/own" }] },
            { "name": "server", "image": "$image(busybox)", "imagePullPolicy": "Never", "securityContext": security,
              "command": ["httpd", "-f", "-p", "8080", "-h", "/bin"],
              "readinessProbe": { "httpGet": { "path": "/sh", "port": 8080 }, "periodSeconds": 1 } }],
        "volumes": [{ "name": "own", "emptyDir": {} }] });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "app": name } }, "spec": spec })
}

async fn create_pod(ns: &TestNamespace, node: &str, name: &str) -> Result<()> {
    ns.apply(&pod_on(node, name, json!({})).to_string()).await?;
    ns.wait_pod_ready(name).await
}

async fn pod_address(ns: &TestNamespace, name: &str) -> Result<String> {
    ns.get::<Pod>(name).await?.status.and_then(|status| status.pod_ip).context("a Pod without an address")
}

/// Runs a script in the Pod's shell; returns its output.
async fn sh(ns: &TestNamespace, pod: &str, script: &str) -> Result<String> {
    Ok(ns.kubectl(&["exec", pod, "-c", "shell", "--", "/bin/sh", "-uc", script]).await?.exit_ok()?.out)
}

/// Status of the node's condition Ready: `True`, `False` or `Unknown`.
async fn ready(client: &Client, node: &str) -> Result<String> {
    let node = Api::<Node>::all(client.clone()).get(node).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    Ok(conditions.into_iter().find(|c| c.type_ == "Ready").map(|c| c.status).unwrap_or_default())
}

async fn wait_ready(client: &Client, node: &str, wanted: &str) -> Result<()> {
    poll_until(TIMEOUT, &format!("{node} is Ready={wanted}"), async || Ok((ready(client, node).await? == wanted).then_some(())))
        .await
        .map(drop)
}

async fn node_names(client: &Client) -> Result<Vec<String>> {
    Ok(Api::<Node>::all(client.clone()).list(&Default::default()).await?.items.iter().map(ResourceExt::name_any).collect())
}
