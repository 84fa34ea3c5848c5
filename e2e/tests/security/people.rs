//! People with a role of ours, and what it is not good for.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_crds::YoiPeer;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::stage::Stage;

use crate::api::{ask, bearer, token};

/// A client of an account of this namespace that is bound to one of our roles.
async fn person(stage: &Stage, name: &str, role: &str) -> Result<kube::Client> {
    stage.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } }).to_string()).await?;
    let account = format!("{}:{name}", stage.namespace);
    stage.kubectl(&["create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", &account]).await?.ok()?;
    bearer(&token(stage, &stage.namespace, name, &[], None).await?).await
}

#[tokio::test]
async fn yoi_view_only_reads_and_yoi_edit_stays_in_its_namespace() -> Result<()> {
    let (stage, other) = (Stage::open("people").await?, Stage::open("people-next").await?);
    for stage in [&stage, &other] {
        stage.model("rules: [{ steps: [{ text: hello }] }]").await?;
        stage.empty_project("p").await?;
        stage.agent("a", "p", json!({})).await?;
        stage.agent("b", "p", json!({})).await?;
    }
    for stage in [&stage, &other] {
        stage.agent_ready("a").await?;
        stage.agent_ready("b").await?;
    }
    let admin = stage.client.clone();
    let viewer = person(&stage, "viewer", "yoi-view").await?;
    let editor = person(&stage, "editor", "yoi-edit").await?;
    let (ns, next) = (stage.namespace.as_str(), other.namespace.as_str());
    let dry = "?dryRun=All";
    let yoi = |ns: &str, rest: &str| format!("/apis/yoi.dev/v1alpha1/namespaces/{ns}/{rest}");
    let said = |ns: &str, what: &str| format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/{ns}/yoipods/a/{what}");
    let stop = json!({ "spec": { "desiredState": "Stopped" } });
    let label = json!({ "metadata": { "labels": { "x": "y" } } });
    let status = json!({ "status": { "runGeneration": 7 } });
    let taken = json!({ "status": { "podUID": "00000000-0000-4000-8000-000000000000" } });
    let peer =
        json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer", "metadata": { "name": "a.b" }, "spec": { "members": ["a", "b"] } });
    let message = json!({ "messageId": "m1", "text": "hello" });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } });
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("{ns}-v") },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "csi": { "driver": "csi.yoi.dev", "volumeHandle": "x" } } });

    // What a viewer may do, and what only an editor may: the second is the control of the first.
    for path in [yoi(ns, "yoipods"), yoi(ns, "agentworkspaces"), said(ns, "log"), said(ns, "diff")] {
        for client in [&viewer, &admin] {
            let (code, words) = ask(client, "GET", &path, None).await?;
            ensure!(code == 200, "GET {path}: {code} {words}");
        }
    }
    let edits: Vec<(&str, String, Option<&Value>)> = vec![
        ("PATCH", yoi(ns, &format!("yoipods/a{dry}")), Some(&stop)),
        ("DELETE", yoi(ns, &format!("yoipods/b{dry}")), None),
        ("POST", yoi(ns, &format!("yoipeers{dry}")), Some(&peer)),
        ("PATCH", yoi(ns, &format!("yoiprojects/p{dry}")), Some(&label)),
        ("PATCH", yoi(ns, &format!("agentworkspaces/a{dry}")), Some(&label)),
        ("DELETE", yoi(ns, &format!("agentworkspaces/a{dry}")), None),
        ("POST", said(ns, "message"), Some(&message)),
    ];
    let mut tries = 0;
    for (method, path, body) in &edits {
        let (code, words) = ask(&viewer, method, path, *body).await?;
        ensure!(code == 403, "a viewer may {method} {path}: {code} {words}");
        let (code, words) = ask(&editor, method, path, *body).await?;
        ensure!((200..300).contains(&code), "the control, an editor, may not {method} {path}: {code} {words}");
        tries += 1;
    }
    // What neither may; the control is the cluster's admin, by a dry run.
    let neither: Vec<(&str, String, Option<&Value>)> = vec![
        ("GET", format!("/api/v1/namespaces/{ns}/secrets"), None),
        ("POST", format!("/api/v1/namespaces/{ns}/secrets{dry}"), Some(&secret)),
        ("GET", "/api/v1/namespaces/yoi-system/secrets/yoi-gateway-tls".to_owned(), None),
        ("GET", format!("/api/v1/namespaces/{ns}/pods"), None),
        ("PATCH", yoi(ns, &format!("yoipods/a/status{dry}")), Some(&status)),
        ("PATCH", yoi(ns, &format!("agentworkspaces/a/status{dry}")), Some(&taken)),
        ("GET", yoi(next, "yoipods"), None),
        ("PATCH", yoi(next, &format!("yoipods/a{dry}")), Some(&stop)),
        ("GET", said(next, "log"), None),
        ("GET", "/apis/yoi.dev/v1alpha1/yoipods".to_owned(), None),
        ("POST", format!("/api/v1/persistentvolumes{dry}"), Some(&volume)),
        ("GET", "/api/v1/nodes".to_owned(), None),
        ("PATCH", format!("/apis/storage.k8s.io/v1/storageclasses/yoi{dry}"), Some(&label)),
        ("PATCH", format!("/apis/storage.k8s.io/v1/csidrivers/csi.yoi.dev{dry}"), Some(&label)),
        ("PATCH", format!("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.runtime.yoi.dev{dry}"), Some(&label)),
        ("PATCH", format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/yoipods.yoi.dev{dry}"), Some(&label)),
        ("PATCH", format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/yoi-edit{dry}"), Some(&label)),
        ("PATCH", format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/yoi-agent-shim{dry}"), Some(&label)),
        ("PATCH", format!("/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies/yoi-agents{dry}"), Some(&label)),
    ];
    for (method, path, body) in &neither {
        for (who, client) in [("a viewer", &viewer), ("an editor", &editor)] {
            let (code, words) = ask(client, method, path, *body).await?;
            ensure!(code == 403, "{who} may {method} {path}: {code} {words}");
            tries += 1;
        }
        let (code, words) = ask(&admin, method, path, *body).await?;
        ensure!((200..300).contains(&code), "the control, an admin, may not {method} {path}: {code} {words}");
    }
    // WorkspaceNodes are the cluster's: to be read, by a role bound in the whole cluster, and never written.
    for client in [&viewer, &editor] {
        let (code, words) = ask(client, "DELETE", "/apis/yoi.dev/v1alpha1/workspacenodes/none", None).await?;
        ensure!(code == 403, "a WorkspaceNode may be deleted: {code} {words}");
        tries += 1;
    }
    println!("{tries} tries of people");
    ensure!(stage.list::<YoiPeer>("").await?.is_empty(), "a dry run made a YoiPeer");
    stage.condition::<yoi_crds::YoiPod>("a", "Ready", ConditionStatus::True).await?;
    other.close().await?;
    stage.close().await
}
