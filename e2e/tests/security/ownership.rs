//! What the operator takes as its own work: bases, and the Pods that fill them or run agents. A user who could forge one would give agents a tree of
//! files of their choice.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::test_namespace::{TestNamespace, client_as_operator, uid};

use crate::api::ask;

const SCRIPT: &str = "rules: [{ steps: [{ text: heard }] }]";

/// A request that must be refused with these words, and then be accepted from the operator.
async fn only_from_the_operator(admin: &Client, request: (&str, &str, &Value), words: &str) -> Result<()> {
    let (method, path, body) = request;
    let (code, answer) = ask(admin, method, path, Some(body)).await?;
    ensure!((400..500).contains(&code) && answer.contains(words), "an administrator may {method} {path}: {code} {answer}");
    let (code, answer) = ask(&client_as_operator().await?, method, path, Some(body)).await?;
    ensure!((200..300).contains(&code), "the control, the operator, may not {method} {path}: {code} {answer}");
    Ok(())
}

#[tokio::test]
async fn nobody_but_the_operator_creates_a_base_or_a_pod_that_counts_as_its_own() -> Result<()> {
    let ns = TestNamespace::create("ownership").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let namespace = &ns.name;
    let project: yoi_crds::YoiProject = ns.get("p").await?;
    let owner = json!([{ "apiVersion": "yoi.dev/v9", "kind": "YoiProject", "name": "p", "uid": uid(&project), "controller": true }]);
    let base = json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "forged", "ownerReferences": owner },
        "spec": { "source": { "empty": {} }, "path": "/src", "base": { "generation": "0123456789", "node": "n" } },
    });
    let bases = format!("/apis/yoi.dev/v1alpha1/namespaces/{namespace}/agentworkspaces?dryRun=All");
    only_from_the_operator(&ns.client, ("POST", &bases, &base), "only the Yoi operator creates bases").await?;

    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let forged = |labels: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "forged", "labels": labels, "annotations": { "yoi.dev/attempt": "1" } },
            "spec": { "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
                "containers": [{ "name": "populate", "image": "none",
                    "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } } }] },
        })
    };
    let dry = format!("{pods}?dryRun=All");
    let populator = forged(json!({ "yoi.dev/role": "populator", "yoi.dev/workspace": "w" }));
    only_from_the_operator(&ns.client, ("POST", &dry, &populator), "belong to the Yoi operator").await?;
    let (code, answer) = ask(&ns.client, "POST", &dry, Some(&forged(json!({ "app": "other" })))).await?;
    ensure!((200..300).contains(&code), "the control, a Pod without the label, is refused: {code} {answer}");

    // The agent's own Pod: what the operator reads of it stays as it is, and all else is free.
    let yoipod: YoiPod = ns.get("a").await?;
    let name = yoipod.status.and_then(|status| status.pod).context("the agent has a Pod")?.name;
    let pod: Pod = ns.get(&name).await?;
    ensure!(pod.metadata.labels.is_some_and(|labels| labels.contains_key("yoi.dev/role")), "an agent's Pod has its label");
    let own = format!("{pods}/{name}?dryRun=All");
    for change in [
        json!({ "metadata": { "labels": { "yoi.dev/role": null } } }),
        json!({ "metadata": { "labels": { "yoi.dev/yoipod": "another" } } }),
        json!({ "metadata": { "labels": { "yoi.dev/egress": "Agents" } } }),
        json!({ "metadata": { "annotations": { "yoi.dev/run-generation": "9" } } }),
        json!({ "metadata": { "annotations": { "yoi.dev/push": "another" } } }),
        json!({ "metadata": { "ownerReferences": owner } }),
    ] {
        only_from_the_operator(&ns.client, ("PATCH", &own, &change), "belong to the Yoi operator").await?;
    }
    let (code, answer) = ask(&ns.client, "PATCH", &own, Some(&json!({ "metadata": { "annotations": { "team": "web" } } }))).await?;
    ensure!((200..300).contains(&code), "the control, an annotation of a user's own, is refused: {code} {answer}");
    ns.remove().await
}

#[tokio::test]
async fn nobody_but_the_operator_lets_the_populator_of_a_base_tolerate_the_taints_of_its_node() -> Result<()> {
    let ns = TestNamespace::create("follows").await?;
    ns.create_empty_project("p").await?;
    let bases = ns.api::<AgentWorkspace>().list(&ListParams::default()).await?.items;
    let base = bases.iter().find(|w| w.spec.base.is_some()).context("the project has a base")?.name_any();
    let workspaces = format!("/apis/yoi.dev/v1alpha1/namespaces/{}/agentworkspaces", ns.name);
    let (of_base, words) = (format!("{workspaces}/{base}?dryRun=All"), "yoi.dev/follows-consumer");
    let annotated = |value: Value| json!({ "metadata": { "annotations": { (words): value } } });
    // An empty value counts, too.
    for value in ["true", ""] {
        only_from_the_operator(&ns.client, ("PATCH", &of_base, &annotated(json!(value))), words).await?;
    }
    let other = json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "other", "annotations": { (words): "true" } },
        "spec": { "source": { "project": { "name": "p" } } },
    });
    only_from_the_operator(&ns.client, ("POST", &format!("{workspaces}?dryRun=All"), &other), words).await?;

    // What the operator has set stays, and all else of such a base is free.
    let (code, answer) =
        ask(&client_as_operator().await?, "PATCH", &format!("{workspaces}/{base}"), Some(&annotated(json!("true")))).await?;
    ensure!((200..300).contains(&code), "the operator may not annotate its base: {code} {answer}");
    for value in [json!("false"), Value::Null] {
        only_from_the_operator(&ns.client, ("PATCH", &of_base, &annotated(value)), words).await?;
    }
    let free = json!({ "metadata": { "annotations": { "team": "web" } } });
    let (code, answer) = ask(&ns.client, "PATCH", &of_base, Some(&free)).await?;
    ensure!((200..300).contains(&code), "the control, an annotation of a user's own, is refused: {code} {answer}");
    ns.remove().await
}
