//! Every verb that is for an agent, a project or a tree, typed in a clone that remembers its project: nobody names namespace or context there.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::api_server::{ApiServer, status};
use crate::plugin::{Plugin, agent, project};
use crate::pull::git;

/// A line for each verb. Whatever it ends with, it has asked the cluster that the clone remembers.
const LINES: [&str; 58] = [
    "run new -t x",
    "ls",
    "ls agents",
    "log a",
    "send a hello",
    "attach a",
    "pause a",
    "resume a",
    "cancel a",
    "mode a planning",
    "compact a",
    "rewind a",
    "assets a",
    "approvals",
    "approve a 7",
    "deny a 7 --because no",
    "conversation start a review",
    "conversation ls a",
    "conversation stop a review",
    "top",
    "events a",
    "events a send conversation.cancel",
    "tools a",
    "tools a run Read --timeout 1s",
    "scope a",
    "projection a timeline",
    "export a",
    "peer a b --timeout 1s",
    "stop a",
    "restore a",
    "fork a c",
    "merge a --into b",
    "suspend a",
    "start a",
    "restart a --timeout 1s",
    "rm a",
    "diff a",
    "patch a",
    "pull a",
    "pull a --apply",
    "push a",
    "take p",
    "refresh p --timeout 1s",
    "sync --timeout 1s",
    "ssh a",
    "ssh-config a",
    "session ls",
    "session log a-session",
    "session export a-session -f x",
    "session rm a-session",
    "session prune --older-than 1d",
    "workspace ls",
    "workspace create w --empty",
    "workspace rm w",
    "trees",
    "doctor",
    "init --apply",
    "version",
];
/// Verbs that ask no cluster.
const ALONE: [&str; 6] = ["completion", "crds", "explain", "help", "host", "vm"];

#[tokio::test]
async fn every_verb_asks_the_cluster_and_the_namespace_that_the_clone_remembers() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let clone = plugin.folder.path().join("clone");
    std::fs::create_dir_all(clone.join("deep/er"))?;
    git(&clone, &["init", "-q", "-b", "main"])?;
    git(&clone, &["remote", "add", "origin", "https://git.example/team/p.git"])?;
    git(&clone, &["commit", "-q", "--allow-empty", "-m", "one"])?;
    git(&clone, &["worktree", "add", "-q", "--detach", "../beside"])?;
    std::fs::create_dir(clone.join(".git/yoi"))?;
    let remembered = json!({ "project": "p", "namespace": "ns", "context": "c" });
    std::fs::write(clone.join(".git/yoi/project.json"), remembered.to_string())?;
    // The kubeconfig means another namespace of a server that is not there.
    let config = plugin.folder.path().join("kubeconfig");
    let text = std::fs::read_to_string(&config)?.replace(r#""current-context":"c""#, r#""current-context":"nowhere""#);
    std::fs::write(&config, text.replace(r#""namespace":"ns""#, r#""namespace":"elsewhere""#))?;
    server.put(agent("a", &[])).put(project(&[]));
    let refused = status(403, "Forbidden", "no");
    for subresource in [
        "log",
        "message",
        "attach",
        "control",
        "usage",
        "export",
        "diff",
        "patch",
        "bundle",
        "push",
        "approval",
        "assets",
        "conversations",
        "conversations/review",
        "proxy/engine/events",
        "proxy/engine/tools",
        "proxy/engine/projection/timeline",
    ] {
        server.answer_for("a", subresource, 403, refused.clone());
    }
    server.put(agent("b", &[]));
    server.answer_for("b", "merge", 403, refused);
    let mut verbs = BTreeSet::new();
    for line in LINES {
        let words: Vec<&str> = line.split(' ').collect();
        verbs.insert(words[0]);
        let folder = if words[0] == "log" { plugin.folder.path().join("beside") } else { clone.join("deep/er") };
        let before = server.requests().len();
        let done = plugin.run_in(&folder, &words).await?;
        ensure!(done.code != 2, "`{line}` is no line: {done:?}");
        let requests = server.requests();
        let asked: Vec<&str> = requests[before..].iter().map(|request| request.path.as_str()).collect();
        ensure!(!asked.is_empty(), "`{line}` has asked another cluster: {done:?}");
        ensure!(!asked.iter().any(|path| path.contains("/namespaces/elsewhere/")), "`{line}` has asked for {asked:?}");
    }
    let help = plugin.run(&["--help"]).await?.expect_code(0)?;
    let listed = help.out.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for verb in listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()) {
        ensure!(verbs.contains(verb) || ALONE.contains(&verb), "no line has the verb {verb}");
    }
    // A line that names another cluster or namespace is about that one.
    let before = server.requests().len();
    plugin.run_in(&clone, &["log", "a", "--context", "nowhere"]).await?.expect_code(5)?;
    ensure!(server.requests().len() == before);
    plugin.run_in(&clone, &["log", "a", "-n", "other", "--context", "c"]).await?;
    ensure!(server.requests()[before..].iter().all(|request| request.path.contains("/namespaces/other/")));
    Ok(())
}
