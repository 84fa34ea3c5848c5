//! A stolen token of a shim: what it can do to objects of other nodes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::time::timeout;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, WorkspaceNode};
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::test_namespace::TestNamespace;

use crate::api::{ask, bearer, token};

const SHIM: &str = "yoi-agent-shim";
const NODES: &str = "yoi-node";

fn workspace(name: &str) -> String {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name },
        "spec": { "path": "/workspace/tree", "claim": true, "source": { "empty": {} } } })
    .to_string()
}

/// Creates a Pod with the shim's account and another node's name, so that its token is that node's. The Pod never runs: there is no such node.
async fn create_pod_on_node(pods: &Api<Pod>, node: &str) -> Result<Pod> {
    let pod = serde_json::from_value(json!({ "metadata": { "name": node }, "spec": {
        "serviceAccountName": SHIM, "nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "containers": [{ "name": "none", "image": "none" }] } }))?;
    Ok(pods.create(&PostParams::default(), &pod).await?)
}

#[tokio::test]
async fn a_stolen_shim_token_touches_nothing_of_another_node() -> Result<()> {
    // It makes a node that is none, with a shim's Pod that never runs.
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let ns = TestNamespace::create("shim-token").await?;
    // A tree, and the shim of its node.
    ns.yoi(&["workspace", "create", "near", "--empty", "--claim", "--immediate", "--path", "/workspace/tree", "--wait"])
        .await?
        .exit_ok()?;
    ns.wait_condition::<AgentWorkspace>("near", "Ready", ConditionStatus::True).await?;
    let this_node = ns.get::<AgentWorkspace>("near").await?.status.and_then(|status| status.node_name).context("the tree has no node")?;
    let shims: Api<Pod> = Api::namespaced(ns.client.clone(), NODES);
    let shims = shims.list(&ListParams::default().labels("app.kubernetes.io/name=yoi-agent-shim")).await?;
    let on_node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_ref() == Some(&this_node));
    let here = shims.items.into_iter().find(on_node).context("the tree's node has no shim")?;
    let other_node = format!("{}-node", ns.name);
    // Without a Node the operator would delete the WorkspaceNode. No Pod is scheduled there: it is cordoned and has no label.
    let nodes: Api<Node> = Api::all(ns.client.clone());
    let node = json!({ "metadata": { "name": other_node }, "spec": { "unschedulable": true } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    let pods: Api<Pod> = Api::namespaced(ns.client.clone(), NODES);
    let tried = async {
        let there = create_pod_on_node(&pods, &other_node).await?;
        let tried = attempts(&ns, (&here, &this_node), (&there, &other_node)).await;
        pods.delete(&other_node, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
        tried
    }
    .await;
    nodes.delete(&other_node, &DeleteParams::default()).await?;
    tried?;
    let offers: Api<WorkspaceNode> = Api::all(ns.client.clone());
    let swept = await_condition(offers, &other_node, |offer: Option<&WorkspaceNode>| offer.is_none());
    timeout(Duration::from_secs(60), swept).await.context("the WorkspaceNode of a node that is gone stays")??;
    ns.remove().await
}

async fn attempts(ns: &TestNamespace, here: (&Pod, &str), there: (&Pod, &str)) -> Result<()> {
    let namespace = &ns.name;
    let ours = bearer(&token(ns, NODES, SHIM, &[], Some(here.0)).await?).await?;
    let theirs = bearer(&token(ns, NODES, SHIM, &[], Some(there.0)).await?).await?;
    let unbound = bearer(&token(ns, NODES, SHIM, &[], None).await?).await?;
    let nodes: Api<WorkspaceNode> = Api::all(ns.client.clone());
    nodes.create(&PostParams::default(), &serde_json::from_value(json!({ "metadata": { "name": there.1 }, "spec": {} }))?).await?;

    // One tree is on this node, and now one on the other.
    ns.apply(&workspace("far")).await?;
    ns.wait_condition::<AgentWorkspace>("far", "Accepted", ConditionStatus::True).await?;
    let far: Api<AgentWorkspace> = ns.api();
    far.patch_status("far", &PatchParams::default(), &Patch::Merge(json!({ "status": { "nodeName": there.1 } }))).await?;

    let object = |name: &str| format!("/apis/yoi.dev/v1alpha1/namespaces/{namespace}/agentworkspaces/{name}");
    let status = |name: &str| format!("{}/status", object(name));
    let node = |name: &str| format!("/apis/yoi.dev/v1alpha1/workspacenodes/{name}");
    let nothing = json!({});
    let hint = json!({ "status": { "volume": { "logicalBytes": 1 } } });

    // Controls: each request with the token of the node that the object belongs to.
    for (client, name, at) in [(&ours, "near", here.1), (&theirs, "far", there.1)] {
        for (path, body) in [(status(name), &nothing), (object(name), &nothing), (format!("{}/status", node(at)), &nothing)] {
            let (code, words) = ask(client, "PATCH", &path, Some(body)).await?;
            ensure!(code == 200, "the node's own shim may not PATCH {path}: {code} {words}");
        }
    }
    let (code, words) = ask(&theirs, "PATCH", &status("far"), Some(&hint)).await?;
    ensure!(code == 200, "the node's own shim may not say what its tree holds: {code} {words}");

    let finalizers = json!({ "metadata": { "finalizers": [] } });
    let label = json!({ "metadata": { "labels": { "stolen": "yes" } } });
    let owned = json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-4000-8000-000000000000" }] } });
    let made = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "WorkspaceNode", "metadata": { "name": format!("{}-third", there.1) }, "spec": {} });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "stolen" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let discard = json!({ "spec": { "discard": ["00000000-0000-4000-8000-000000000000"] } });
    let asks_token = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": [] } });
    let attempts: Vec<(&str, String, Option<&Value>)> = vec![
        ("PATCH", status("far"), Some(&hint)),
        ("PATCH", status("far"), Some(&nothing)),
        ("PATCH", object("far"), Some(&finalizers)),
        ("PATCH", object("far"), Some(&label)),
        ("PATCH", format!("{}/status", node(there.1)), Some(&nothing)),
        ("PATCH", node(there.1), Some(&label)),
        ("POST", "/apis/yoi.dev/v1alpha1/workspacenodes".to_owned(), Some(&made)),
        ("DELETE", object("far"), None),
        ("DELETE", node(there.1), None),
        // Objects of its own node, but fields that only the operator may write.
        ("DELETE", object("near"), None),
        ("PATCH", object("near"), Some(&label)),
        ("PATCH", object("near"), Some(&owned)),
        ("PATCH", object("near"), Some(&finalizers)),
        ("PATCH", node(here.1), Some(&discard)),
    ];
    let status_with = |field: &str, value: Value| json!({ "status": { field: value } });
    let uid = "00000000-0000-4000-8000-000000000000";
    let statuses = [
        status_with("nodeName", json!(there.1)),
        status_with("podUID", json!(uid)),
        status_with("claimName", json!("another")),
        status_with("origin", json!({ "kind": "Fork", "workspaceUID": uid })),
        status_with("owner", json!({ "uid": 1, "gid": 1 })),
    ];
    let spec = [json!({ "spec": { "ttlAfterRelease": "1s" } })];
    let own = statuses.iter().map(|body| ("PATCH", status("near"), Some(body)));
    let specs = spec.iter().map(|body| ("PATCH", object("near"), Some(body)));
    let foreign = ["yoi-system", "kube-system", "yoi-node", namespace].into_iter().flat_map(|namespace| {
        let core = format!("/api/v1/namespaces/{namespace}");
        let yoi = format!("/apis/yoi.dev/v1alpha1/namespaces/{namespace}");
        vec![
            ("GET", format!("{core}/secrets"), None),
            ("GET", format!("{core}/pods"), None),
            ("POST", format!("{core}/pods"), Some(&pod)),
            ("GET", format!("{core}/configmaps"), None),
            ("GET", format!("{core}/persistentvolumeclaims"), None),
            ("POST", format!("{core}/serviceaccounts/default/token"), Some(&asks_token)),
            ("GET", format!("{yoi}/yoipods"), None),
            ("GET", format!("{yoi}/yoiprojects"), None),
            ("GET", format!("{yoi}/yoipeers"), None),
            ("GET", format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"), None),
            ("GET", format!("/apis/apps/v1/namespaces/{namespace}/deployments"), None),
        ]
    });
    let cluster = [
        "/api/v1/nodes",
        "/api/v1/persistentvolumes",
        "/api/v1/secrets",
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ];
    let cluster = cluster.into_iter().map(|path| ("GET", path.to_owned(), None));
    let mut count = 0;
    for (method, path, body) in attempts.into_iter().chain(own).chain(specs).chain(foreign).chain(cluster) {
        let (code, words) = ask(&ours, method, &path, body).await?;
        // The policy answers 422 with the rule that was broken.
        let policy = words.contains("a shim") && (code == 403 || code == 422);
        let rbac = code == 403 && words.contains("forbidden");
        ensure!(policy || rbac, "a stolen shim token may {method} {path} {body:?}: {code} {words}");
        count += 1;
    }
    // A token that is bound to no Pod belongs to no node.
    for path in [status("near"), format!("{}/status", node(here.1))] {
        let (code, words) = ask(&unbound, "PATCH", &path, Some(&nothing)).await?;
        ensure!(code != 200 && words.contains("must be bound to its node"), "an unbound token may PATCH {path}: {code} {words}");
        count += 1;
    }
    println!("{count} attempts with a stolen shim token");
    far.patch_status("far", &PatchParams::default(), &Patch::Merge(json!({ "status": { "nodeName": null } }))).await?;
    ns.delete::<AgentWorkspace>("far").await?;
    ns.wait_gone::<AgentWorkspace>("far").await
}
