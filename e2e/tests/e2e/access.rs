//! What people may do, decided by the API server's RBAC for every verb.

use anyhow::{Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_e2e::stage::Stage;

const SCRIPT: &str = "
rules:
- steps:
  - text: I heard a person.
";

/// A kubeconfig of a service account of this namespace that is bound to `role`.
async fn person(stage: &Stage, name: &str, role: Option<&str>) -> Result<std::path::PathBuf> {
    stage.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } }).to_string()).await?;
    if let Some(role) = role {
        let account = format!("{}:{name}", stage.namespace);
        stage.kubectl(&["create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", &account]).await?.ok()?;
    }
    let accounts: Api<ServiceAccount> = stage.api();
    let request: TokenRequest = serde_json::from_value(json!({ "spec": { "audiences": [], "expirationSeconds": 3600 } }))?;
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await?.status.map(|s| s.token).unwrap_or_default();
    let admin: serde_json::Value = serde_yaml::from_str(&std::fs::read_to_string(std::env::var("KUBECONFIG")?)?)?;
    let config = json!({ "apiVersion": "v1", "kind": "Config", "clusters": admin["clusters"], "current-context": "c",
        "contexts": [{ "name": "c", "context": { "cluster": admin["clusters"][0]["name"], "user": name } }],
        "users": [{ "name": name, "user": { "token": token } }] });
    let path = std::env::temp_dir().join(format!("{}-{name}.kubeconfig", stage.namespace));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

#[tokio::test]
async fn yoi_view_reads_and_may_not_speak_and_yoi_edit_may() -> Result<()> {
    let stage = Stage::open("access").await?;
    stage.model(SCRIPT).await?;
    stage.empty_project("p").await?;
    stage.agent("a", "p", json!({})).await?;
    stage.agent_ready("a").await?;
    let (nobody, viewer, editor) = (
        person(&stage, "nobody", None).await?,
        person(&stage, "viewer", Some("view")).await?,
        person(&stage, "editor", Some("edit")).await?,
    );

    let none = stage.yoi_as(&nobody, &["log", "a"]).await?;
    ensure!(none.code == 4, "somebody without a role reads the log: {none:?}");
    stage.yoi_as(&viewer, &["log", "a"]).await?.ok()?;
    stage.yoi_as(&viewer, &["diff", "a"]).await?.ok()?;
    let refused = stage.yoi_as(&viewer, &["send", "a", "let me in"]).await?;
    ensure!(refused.code == 4 && refused.err.contains("yoi-edit"), "{refused:?}");
    ensure!(stage.yoi_as(&viewer, &["stop", "a"]).await?.code == 4, "a viewer stopped an agent");
    stage.yoi_as(&editor, &["send", "a", "hello there"]).await?.ok()?;

    let user = format!("system:serviceaccount:{}:editor", stage.namespace);
    let texts = stage
        .log_until("a", "the editor's words", |log| {
            let said: Vec<_> = log
                .iter()
                .filter_map(|l| match &l.entry.body {
                    yoi_wire::entry::Body::Input(i) => Some((i.user.clone(), i.text.clone())),
                    _ => None,
                })
                .collect();
            (!said.is_empty()).then_some(said)
        })
        .await?;
    ensure!(texts == [(Some(user), "hello there".to_owned())], "{texts:?}");
    for file in [nobody, viewer, editor] {
        std::fs::remove_file(file)?;
    }
    stage.close().await
}

/// No object of the namespace but the model's own script holds the word.
async fn nothing_said(stage: &Stage) -> Result<()> {
    let kinds = "yoipods,yoipeers,agentworkspaces,yoiprojects,configmaps,pods,events,persistentvolumeclaims";
    let objects = stage.kubectl(&["get", kinds, "-o", "yaml"]).await?.ok()?.out;
    let held = objects.replace("- text: the-secret-word-of-the-model", "");
    let line = held.lines().find(|line| line.contains("the-secret-word"));
    ensure!(line.is_none(), "an object holds what was said: {line:?}");
    Ok(())
}

#[tokio::test]
async fn what_an_agent_says_stands_in_no_object_and_no_event() -> Result<()> {
    let stage = Stage::open("silence").await?;
    stage.model("rules:\n- steps:\n  - text: the-secret-word-of-the-model\n").await?;
    stage.empty_project("p").await?;
    stage.agent("a", "p", json!({ "task": "say it" })).await?;
    // What the runtime reports after its run stands in the object by now.
    stage.task_complete("a").await?;
    nothing_said(&stage).await?;
    stage.yoi(&["send", "a", "the-secret-word-of-the-person"]).await?.ok()?;
    let ended = |l: &&yoi_wire::people::LogLine| matches!(&l.entry.body, yoi_wire::entry::Body::RunEnded(_));
    stage.log_until("a", "a second answer", |log| (log.iter().filter(ended).count() == 2).then_some(())).await?;
    nothing_said(&stage).await?;
    let pod: YoiPod = stage.get("a").await?;
    let name = pod.status.and_then(|s| s.pod).map(|p| p.name).unwrap_or_default();
    // An agent may have worked and answered before the kubelet has told that its container runs, and until then it gives no log.
    stage.pod_ready(&name).await?;
    let logs = stage.kubectl(&["logs", &name]).await?.ok()?.out;
    ensure!(!logs.contains("the-secret-word"), "the container's log holds what was said");
    for ours in ["yoi-system", "yoi-node"] {
        // The namespace that is named last counts.
        let pods = stage.kubectl(&["-n", ours, "get", "pods", "-o", "jsonpath={.items[*].metadata.name}"]).await?.ok()?.out;
        let mut read = 0;
        for pod in pods.split_whitespace() {
            let log = stage.kubectl(&["-n", ours, "logs", pod, "--all-containers", "--since=10m"]).await?;
            ensure!(!log.out.contains("the-secret-word"), "the log of {ours}/{pod} holds what was said");
            read += i32::from(log.code == 0);
        }
        ensure!(read > 0, "no log to read in {ours}: {pods}");
    }
    stage.close().await
}
