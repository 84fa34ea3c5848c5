//! `kubectl yoi <TAB>`: kubectl runs the program under its second name.

use std::os::unix::fs::symlink;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent, output, project};

/// The candidates for the last word.
async fn complete(plugin: &Plugin, words: &[&str]) -> Result<Vec<String>> {
    let link = plugin.folder.path().join("kubectl_complete-yoi");
    if !link.exists() {
        symlink(&plugin.program, &link)?;
    }
    let mut command = plugin.command(&link, words);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let output = output(command).await?.expect_code(0)?;
    ensure!(output.out.ends_with(":4\n") && output.err.is_empty(), "{output:?}");
    Ok(output.out.lines().filter(|l| !l.starts_with(':')).filter_map(|l| l.split('\t').next()).map(str::to_owned).collect())
}

#[tokio::test]
async fn names_of_objects_are_completed_from_the_cluster_that_the_line_names() -> Result<()> {
    let server = ApiServer::start().await?;
    // With people it gives up after 3 s and offers nothing; a busy machine may be that slow.
    let plugin = Plugin { patience_percent: 1000, ..Plugin::new(&server)? };
    let base = json!({ "generation": "g", "node": "n" });
    let tree = |name: &str, base: serde_json::Value| json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name }, "spec": { "source": { "empty": {} }, "base": base } });
    server.put(agent("alice", &[])).put(agent("albert", &[])).put(agent("bob", &[])).put(project(&[]));
    server.put(tree("w", json!(null))).put(tree("base-1", base));
    server.put(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "alice-session" } }));
    server.put(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team-a" } }));
    let call = json!({ "call": 7, "tool": "Shell", "args": { "command": "ls" }, "from": "model", "rules": ["Shell"], "canBeRemembered": true,
        "since": "2026-01-01T00:00:00Z", "seconds": 60 });
    server.answer_for("bob", "approval", 200, json!({ "calls": [call] }).to_string());
    for (words, names) in [
        (&["log", ""][..], &["albert", "alice", "bob"][..]),
        (&["log", "al"], &["albert", "alice"]),
        (&["stop", "bob", "al"], &["albert", "alice"]),
        (&["run", "x", "--peer", "b"], &["bob"]),
        (&["run", "x", "-p", ""], &["p"]),
        (&["run", "x", "--claim", ""], &["alice-session"]),
        (&["workspace", "rm", ""], &["w"]),
        (&["ls", "-n", ""], &["team-a"]),
        (&["explain", "Secret"], &["SecretMissing"]),
        (&["--context", "nowhere", "log", ""], &[]),
        (&["--context", "nowhere", "--cluster=k", "log", "b"], &["bob"]),
        (&["-n", "other", "log", ""], &[]),
        (&["run", ""], &[]),
        (&["approve", "bob", ""], &["7"]),
    ] {
        let completed = complete(&plugin, words).await?;
        ensure!(completed == names, "{words:?}: {completed:?}");
    }
    Ok(())
}
