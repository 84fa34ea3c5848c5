//! A person comes into an agent by SSH, through the API server: a shell, a command, files, and a client of their own.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::json;
use yoi_e2e::fixtures::TREE_PATH;
use yoi_e2e::poll_until;
use yoi_e2e::program::{self, CommandOutput};
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::Body;
use yoi_wire::ssh::SshEntry;

const SCRIPT: &str = "
rules:
- steps:
  - text: I have read it.
";
const GATEWAY: &str = "deployment/yoi-gateway";

/// As the chart's value gateway.ssh does.
async fn allow(ns: &TestNamespace, allowed: bool) -> Result<()> {
    ns.kubectl(&["-n", "yoi-system", "set", "env", GATEWAY, &format!("YOI_SSH={allowed}")]).await?.exit_ok()?;
    let rolled = async || {
        let waited = ns.kubectl(&["-n", "yoi-system", "rollout", "status", GATEWAY, "--timeout=60s"]).await?;
        // The API server keeps its connections to a replica that goes.
        let going = r#"jsonpath={range .items[*]}{.metadata.deletionTimestamp}{end}"#;
        let pods = ["-n", "yoi-system", "get", "pods", "-l", "app.kubernetes.io/name=yoi-gateway", "-o", going];
        Ok((waited.code == 0 && ns.kubectl(&pods).await?.exit_ok()?.out.trim().is_empty()).then_some(()))
    };
    poll_until(TIMEOUT, "the gateway is replaced", rolled).await.map(drop)
}

/// Runs a line of shell in a person's folder; `$1` is the namespace, and `yoi` the plugin in it.
async fn shell(ns: &TestNamespace, person: &Path, line: &str) -> Result<CommandOutput> {
    let person = person.to_string_lossy().into_owned();
    let env = [("YOI_SSH_FOLDER", person.as_str())];
    let line = format!("cd \"$0\" && yoi() {{ \"$YOI_KUBECTL_YOI\" -n \"$ns\" \"$@\"; }} && ns=$1 && {line}");
    program::run("bash", &["-c", &line, &person, &ns.name], &env, None).await
}

#[tokio::test]
async fn a_person_with_the_right_comes_into_an_agent_by_ssh_and_nobody_unless_the_chart_allows_it() -> Result<()> {
    let ns = TestNamespace::create("ssh").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    // The agents' own image may have no server; this one has.
    ns.create_agent("a", "p", json!({ "pod": { "image": ns.image("git-server")? } })).await?;
    ns.wait_agent_ready("a").await?;
    let person = tempfile::tempdir()?;
    let off = shell(&ns, person.path(), "yoi ssh a -- true").await?;
    ensure!(off.code == 1 && off.err.contains("--set gateway.ssh=true"), "{off:?}");

    allow(&ns, true).await?;
    let tried = come_in(&ns, person.path()).await;
    allow(&ns, false).await?;
    tried?;
    ns.remove().await
}

async fn come_in(ns: &TestNamespace, person: &Path) -> Result<()> {
    let viewer = ns.kubeconfig_for("viewer", Some("view")).await?;
    let refused = ns.yoi_as(&viewer, &["ssh", "a", "--ssh-folder", &person.to_string_lossy(), "--", "true"]).await?;
    ensure!(refused.code == 4 && refused.err.contains("yoipods/ssh"), "{refused:?}");
    std::fs::remove_file(viewer)?;

    let made = shell(ns, person, "yoi ssh a -- sh -c 'pwd; id -un; echo \"$YOI_AGENT\"; echo made > made; exit 7'").await?;
    let lines: Vec<&str> = made.out.lines().collect();
    ensure!(made.code == 7 && lines.get(..3) == Some(&[TREE_PATH, "git", "a"][..]), "{made:?}");
    // A terminal, by the devpts that the container runtime has mounted.
    let terminal =
        shell(ns, person, "script -qec '\"$YOI_KUBECTL_YOI\" -n '$1' ssh a -- sh -c \"tty; cat made\"' /dev/null").await?.exit_ok()?;
    ensure!(terminal.out.contains("/dev/pts/") && terminal.out.contains("made"), "{terminal:?}");

    // A client of the person's own, as editors and rsync have it.
    let config = shell(ns, person, "yoi ssh-config > config && cat config").await?.exit_ok()?;
    ensure!(config.out.contains(&format!("Host a.{}.yoi", ns.name)) && config.out.contains(TREE_PATH), "{config:?}");
    let line = format!(
        "head -c 3000000 /dev/urandom > there && scp -q -F config there a.$1.yoi:{TREE_PATH}/there && scp -q -F config a.$1.yoi:{TREE_PATH}/there back \
         && cmp there back && ssh -F config a.$1.yoi 'cat {TREE_PATH}/made'"
    );
    let copied = shell(ns, person, &line).await?.exit_ok()?;
    ensure!(copied.out == "made\n", "{copied:?}");

    let ways = async || {
        let log = ns.log("a").await?;
        let of = |body: &Body| if let Body::Extension(extension) = body { SshEntry::of(extension) } else { None };
        let ways: Vec<SshEntry> = log.iter().filter_map(|line| of(&line.entry.body)).collect();
        let ended = ways.iter().filter(|way| way.ended.is_some()).count();
        Ok((ended > 0 && 2 * ended == ways.len()).then_some(ways))
    };
    let (ways, _) = poll_until(TIMEOUT, "the log says of each way in that it has ended", ways).await?;
    ensure!(ways.len() >= 10 && ways.iter().all(|way| !way.user.is_empty() && way.user == ways[0].user), "{ways:?}");

    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    let stopped = shell(ns, person, "yoi ssh a -- true").await?;
    ensure!(stopped.code == 5 && stopped.err.contains("kubectl yoi start a"), "{stopped:?}");
    Ok(())
}
