//! What people with our roles may not do.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_crds::YoiPeer;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::TestNamespace;

use crate::api::{ask, bearer, token};

/// Creates a service account with one of our roles and returns a client for it.
async fn client_with_role(ns: &TestNamespace, name: &str, role: &str) -> Result<kube::Client> {
    ns.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } }).to_string()).await?;
    let account = format!("{}:{name}", ns.name);
    ns.kubectl(&["create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", &account]).await?.exit_ok()?;
    bearer(&token(ns, &ns.name, name, &[], None).await?).await
}

#[tokio::test]
async fn yoi_view_only_reads_and_yoi_edit_stays_in_its_namespace() -> Result<()> {
    let (ns, other) = (TestNamespace::create("people").await?, TestNamespace::create("people-next").await?);
    for ns in [&ns, &other] {
        ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
        ns.create_empty_project("p").await?;
        ns.create_agent("a", "p", json!({})).await?;
        ns.create_agent("b", "p", json!({})).await?;
    }
    for ns in [&ns, &other] {
        ns.wait_agent_ready("a").await?;
        ns.wait_agent_ready("b").await?;
    }
    let admin = ns.client.clone();
    let viewer = client_with_role(&ns, "viewer", "yoi-view").await?;
    let editor = client_with_role(&ns, "editor", "yoi-edit").await?;
    let (namespace, next) = (ns.name.as_str(), other.name.as_str());
    let dry = "?dryRun=All";
    let yoi = |namespace: &str, rest: &str| format!("/apis/yoi.dev/v1alpha1/namespaces/{namespace}/{rest}");
    let runtime = |namespace: &str, what: &str| format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/{namespace}/yoipods/a/{what}");
    let stop = json!({ "spec": { "desiredState": "Stopped" } });
    let label = json!({ "metadata": { "labels": { "x": "y" } } });
    let status = json!({ "status": { "runGeneration": 7 } });
    let taken = json!({ "status": { "podUID": "00000000-0000-4000-8000-000000000000" } });
    let peer =
        json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer", "metadata": { "name": "a.b" }, "spec": { "members": ["a", "b"] } });
    let message = json!({ "messageId": "m1", "text": "hello" });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" } });
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("{namespace}-v") },
        "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "csi": { "driver": "csi.yoi.dev", "volumeHandle": "x" } } });

    // What a viewer may do, and what only an editor may do. The editor is the viewer's control.
    let engine = ["proxy/engine/events", "proxy/engine/projection/timeline", "proxy/engine/tools"].map(|call| runtime(namespace, call));
    let read = [yoi(namespace, "yoipods"), yoi(namespace, "agentworkspaces"), runtime(namespace, "log"), runtime(namespace, "diff")];
    for path in read.into_iter().chain(engine) {
        for client in [&viewer, &admin] {
            // A binding is known everywhere a moment after it was made.
            let allowed = async || {
                let (code, words) = ask(client, "GET", &path, None).await?;
                ensure!([200, 403].contains(&code), "GET {path}: {code} {words}");
                Ok((code == 200).then_some(()))
            };
            poll_until(Duration::from_secs(60), &format!("GET {path} is allowed"), allowed).await?;
        }
    }
    let edits: Vec<(&str, String, Option<&Value>)> = vec![
        ("PATCH", yoi(namespace, &format!("yoipods/a{dry}")), Some(&stop)),
        ("DELETE", yoi(namespace, &format!("yoipods/b{dry}")), None),
        ("POST", yoi(namespace, &format!("yoipeers{dry}")), Some(&peer)),
        ("PATCH", yoi(namespace, &format!("yoiprojects/p{dry}")), Some(&label)),
        ("PATCH", yoi(namespace, &format!("agentworkspaces/a{dry}")), Some(&label)),
        ("DELETE", yoi(namespace, &format!("agentworkspaces/a{dry}")), None),
        ("POST", runtime(namespace, "message"), Some(&message)),
    ];
    let mut attempts = 0;
    for (method, path, body) in &edits {
        let (code, words) = ask(&viewer, method, path, *body).await?;
        ensure!(code == 403, "a viewer may {method} {path}: {code} {words}");
        let allowed = async || Ok(Some(ask(&editor, method, path, *body).await?).filter(|(code, _)| *code != 403));
        let ((code, words), _) =
            poll_until(Duration::from_secs(60), &format!("the control, an editor, may {method} {path}"), allowed).await?;
        ensure!((200..300).contains(&code), "the control, an editor, may not {method} {path}: {code} {words}");
        attempts += 1;
    }
    // What neither may do. The control is a dry run by the cluster's administrator.
    let neither: Vec<(&str, String, Option<&Value>)> = vec![
        ("GET", format!("/api/v1/namespaces/{namespace}/secrets"), None),
        ("POST", format!("/api/v1/namespaces/{namespace}/secrets{dry}"), Some(&secret)),
        ("GET", "/api/v1/namespaces/yoi-system/secrets/yoi-gateway-tls".to_owned(), None),
        ("GET", format!("/api/v1/namespaces/{namespace}/pods"), None),
        ("PATCH", yoi(namespace, &format!("yoipods/a/status{dry}")), Some(&status)),
        ("PATCH", yoi(namespace, &format!("agentworkspaces/a/status{dry}")), Some(&taken)),
        ("GET", yoi(next, "yoipods"), None),
        ("PATCH", yoi(next, &format!("yoipods/a{dry}")), Some(&stop)),
        ("GET", runtime(next, "log"), None),
        ("GET", runtime(next, "proxy/engine/events"), None),
        ("GET", "/apis/yoi.dev/v1alpha1/yoipods".to_owned(), None),
        ("POST", format!("/api/v1/persistentvolumes{dry}"), Some(&volume)),
        ("GET", "/api/v1/nodes".to_owned(), None),
        ("PATCH", format!("/apis/storage.k8s.io/v1/storageclasses/yoi{dry}"), Some(&label)),
        ("PATCH", format!("/apis/storage.k8s.io/v1/csidrivers/csi.yoi.dev{dry}"), Some(&label)),
        ("PATCH", format!("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.runtime.yoi.dev{dry}"), Some(&label)),
        ("PATCH", format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/yoipods.yoi.dev{dry}"), Some(&label)),
        ("PATCH", format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/yoi-edit{dry}"), Some(&label)),
        ("PATCH", format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/yoi-agent-shim{dry}"), Some(&label)),
        ("PATCH", format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies/yoi-agents{dry}"), Some(&label)),
    ];
    for (method, path, body) in &neither {
        for (who, client) in [("a viewer", &viewer), ("an editor", &editor)] {
            let (code, words) = ask(client, method, path, *body).await?;
            ensure!(code == 403, "{who} may {method} {path}: {code} {words}");
            attempts += 1;
        }
        let (code, words) = ask(&admin, method, path, *body).await?;
        ensure!((200..300).contains(&code), "the control, an admin, may not {method} {path}: {code} {words}");
    }
    // WorkspaceNodes are cluster-scoped. People may read them by a ClusterRoleBinding and never write them.
    for client in [&viewer, &editor] {
        let (code, words) = ask(client, "DELETE", "/apis/yoi.dev/v1alpha1/workspacenodes/none", None).await?;
        ensure!(code == 403, "a WorkspaceNode may be deleted: {code} {words}");
        attempts += 1;
    }
    println!("{attempts} attempts of people");
    ensure!(ns.list::<YoiPeer>("").await?.is_empty(), "a dry run made a YoiPeer");
    ns.wait_condition::<yoi_crds::YoiPod>("a", "Ready", ConditionStatus::True).await?;
    other.remove().await?;
    ns.remove().await
}

#[tokio::test]
async fn a_person_whose_name_is_not_ascii_is_who_the_api_server_says() -> Result<()> {
    let ns = TestNamespace::create("names").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let (user, group) = ("jürgen@例え.jp", "Entwickler Köln");
    for role in ["yoi-view", "yoi-edit"] {
        let (name, role, user) = (format!("by-name-{role}"), format!("--clusterrole={role}"), format!("--user={user}"));
        ns.kubectl(&["create", "rolebinding", &name, &role, &user]).await?.exit_ok()?;
    }
    ns.kubectl(&["create", "rolebinding", "by-group", "--clusterrole=yoi-view", &format!("--group={group}")]).await?.exit_ok()?;
    let log = format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/{}/yoipods/a/log", ns.name);
    let message = format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/{}/yoipods/a/message", ns.name);
    for who in [&["--as", user][..], &["--as", "zoë", "--as-group", group]] {
        let words = [who, &["get", "--raw", &log]].concat();
        let allowed = async || {
            let read = ns.kubectl(&words).await?;
            ensure!(read.code == 0 || read.err.contains("cannot get"), "{who:?}: {read:?}");
            Ok((read.code == 0).then_some(()))
        };
        poll_until(Duration::from_secs(60), &format!("{who:?} may read"), allowed).await?;
    }
    // The control: another name that is not ASCII has no rights, and is named in the refusal.
    let refused = ns.kubectl(&["--as", "zoë", "get", "--raw", &log]).await?;
    ensure!(refused.code != 0 && refused.err.contains("User \"zoë\" cannot get"), "{refused:?}");
    let body = json!({ "messageId": "m1", "text": "guten Tag" }).to_string();
    let file = std::env::temp_dir().join(format!("{}-message.json", ns.name));
    std::fs::write(&file, body)?;
    let sent = ns.kubectl(&["--as", user, "create", "--raw", &message, "-f", &file.to_string_lossy()]).await;
    std::fs::remove_file(&file)?;
    sent?.exit_ok()?;
    ns.wait_log("a", "the person's words", |log| {
        log.iter().any(|l| matches!(&l.entry.body, yoi_wire::entry::Body::Input(i) if i.user.as_deref() == Some(user))).then_some(())
    })
    .await?;
    ns.remove().await
}
