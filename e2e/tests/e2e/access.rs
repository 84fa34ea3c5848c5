//! What people may do: the API server's RBAC decides for every verb.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

const SCRIPT: &str = "
rules:
- steps:
  - text: I heard a person.
";

/// A binding is known everywhere a moment after it was made, and until then its account is refused.
async fn once_bound(ns: &TestNamespace, kubeconfig: &Path, words: &[&str]) -> Result<()> {
    let allowed = async || {
        let answer = ns.yoi_as(kubeconfig, words).await?;
        if answer.code == 4 { Ok(None) } else { answer.exit_ok().map(Some) }
    };
    poll_until(TIMEOUT, &format!("{words:?} is allowed"), allowed).await.map(drop)
}

#[tokio::test]
async fn yoi_view_may_read_and_not_send_and_yoi_edit_may_send() -> Result<()> {
    let ns = TestNamespace::create("access").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let (nobody, viewer, editor) = (
        ns.kubeconfig_for("nobody", None).await?,
        ns.kubeconfig_for("viewer", Some("view")).await?,
        ns.kubeconfig_for("editor", Some("edit")).await?,
    );

    let none = ns.yoi_as(&nobody, &["log", "a"]).await?;
    ensure!(none.code == 4, "somebody without a role reads the log: {none:?}");
    once_bound(&ns, &viewer, &["log", "a"]).await?;
    ns.yoi_as(&viewer, &["diff", "a"]).await?.exit_ok()?;
    let refused = ns.yoi_as(&viewer, &["send", "a", "let me in"]).await?;
    ensure!(refused.code == 4 && refused.err.contains("yoi-edit"), "{refused:?}");
    ensure!(ns.yoi_as(&viewer, &["stop", "a"]).await?.code == 4, "a viewer stopped an agent");
    once_bound(&ns, &editor, &["send", "a", "hello there"]).await?;

    let user = format!("system:serviceaccount:{}:editor", ns.name);
    let texts = ns
        .wait_log("a", "the editor's words", |log| {
            let inputs: Vec<_> = log
                .iter()
                .filter_map(|l| match &l.entry.body {
                    yoi_wire::entry::Body::Input(i) => Some((i.user.clone(), i.text.clone())),
                    _ => None,
                })
                .collect();
            (!inputs.is_empty()).then_some(inputs)
        })
        .await?;
    ensure!(texts == [(Some(user), "hello there".to_owned())], "{texts:?}");
    for file in [nobody, viewer, editor] {
        std::fs::remove_file(file)?;
    }
    ns.remove().await
}
