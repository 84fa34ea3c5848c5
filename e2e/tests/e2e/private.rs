//! Repositories that want credentials: fetched and pushed to from a cluster, and no credential is beside an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::LogParams;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{YoiPod, YoiProject};
use yoi_e2e::canary::{self, Found};
use yoi_e2e::fixtures::TREE_PATH;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::private_server::{KEY, PrivateServer, TOKEN, key_canaries, token_canaries};

/// The search needs a shell that runs for a while: of the agent itself, no process can be read. It runs until the file `searched` exists.
const SCRIPT: &str = r#"
rules:
- name: work
  when: { lastUserContains: work }
  steps:
  - toolCalls:
    - { tool: Shell, args: { command: "echo committed > kept.txt && git add kept.txt && git commit -qm 'a commit of the agent' && timeout 10 git push origin HEAD:refs/heads/by-hand; until [ -e searched ]; do sleep 0.1; done" } }
  - text: All done.
"#;

/// Agents, their projects, and the Secrets that these name.
const AGENTS: [(&str, &str, &str); 2] = [("a", "by-token", TOKEN), ("b", "by-key", KEY)];

async fn pod_of(ns: &TestNamespace, agent: &str) -> Result<String> {
    let agent: YoiPod = ns.get(agent).await?;
    Ok(agent.status.and_then(|status| status.pod).context("no Pod")?.name)
}

/// Creates the agents one after the other, and pushes what they have committed.
async fn work_and_push(ns: &TestNamespace, server: &PrivateServer<'_>) -> Result<()> {
    for (agent, project, _) in AGENTS {
        ns.wait_condition::<YoiProject>(project, "Ready", ConditionStatus::True).await?;
        // Its command ends when the looks were made, however long they take on a busy machine.
        ns.yoi(&["run", agent, "-p", project, "-t", "work", "--wait", "--timeout", "10m", "--tool-seconds", "600"]).await?.exit_ok()?;
        let pod = pod_of(ns, agent).await?;
        let head = ns.kubectl(&["exec", &pod, "--", "git", "-C", TREE_PATH, "rev-parse", "HEAD"]).await?.exit_ok()?;
        let commit = head.out.trim();
        let main = server.branch("main").await?;
        ensure!(commit.len() == 40 && commit != main, "{agent} has committed nothing: {commit}");
        let url = if agent == "a" { server.https_url() } else { server.ssh_url() };
        let pushed = ns.yoi(&["push", agent]).await?.exit_ok()?;
        ensure!(pushed.out.contains(&format!("branch yoi/{agent} of {url} is at {commit}")), "{pushed:?}");
        ensure!(server.branch(&format!("yoi/{agent}")).await? == commit, "the branch of {agent} is not on the server");
        // What an agent tries by itself has no credentials.
        ensure!(server.branch("by-hand").await?.is_empty(), "{agent} has pushed by itself");
    }
    Ok(())
}

/// Looks for the words beside the agents, again and again, until it is dropped. Counts the searches beside a process of an agent, and ends the
/// agent's command after three.
async fn look_beside_agents(ns: &TestNamespace, words: &[&str], looks: &mut BTreeMap<String, usize>) -> Result<()> {
    loop {
        for pod in ns.list::<Pod>("yoi.dev/role=agent").await?.iter().map(ResourceExt::name_any) {
            // A Pod may have no container yet.
            if let Ok(Found { places, processes }) = canary::search_pod(ns, &pod, words).await {
                ensure!(places.is_empty(), "a credential stands in {places:?} of {pod}");
                let beside = looks.entry(pod.clone()).or_default();
                *beside += usize::from(processes > 0);
                if *beside >= 3 {
                    // If that fails, the next look does it again.
                    let _ = ns.kubectl(&["exec", &pod, "--", "touch", &format!("{TREE_PATH}/searched")]).await;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Looks for the words in the logs of all Pods but the servers', again and again, until it is dropped: those that fetch and push are gone soon.
async fn look_in_logs(ns: &TestNamespace, words: &[&str]) -> Result<()> {
    loop {
        for pod in ns.list::<Pod>("!app").await?.iter().map(ResourceExt::name_any) {
            // There may be none yet, or not any more.
            let log = ns.api::<Pod>().logs(&pod, &LogParams::default()).await.unwrap_or_default();
            ensure!(!words.iter().any(|word| log.contains(word)), "a credential stands in the log of {pod}: {log}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn agents_of_private_repositories_work_and_push_and_no_credential_is_beside_them() -> Result<()> {
    let ns = TestNamespace::create("private").await?;
    ns.create_model(SCRIPT).await?;
    let server = PrivateServer::create(&ns).await?;
    ns.create_project("by-token", server.by_token(TOKEN)).await?;
    ns.create_project("by-key", server.by_key(KEY)).await?;
    let canaries = server.canaries();
    let words: Vec<&str> = canaries.iter().map(String::as_str).collect();
    ensure!(words.len() > 4, "a key has several lines: {}", words.len());
    let mut looks = BTreeMap::new();
    tokio::select! {
        found = look_beside_agents(&ns, &words, &mut looks) => found?,
        found = look_in_logs(&ns, &words) => found?,
        done = work_and_push(&ns, &server) => done?,
    }
    let each = looks.len() == AGENTS.len() && looks.values().all(|count| *count >= 3);
    ensure!(each, "the credentials were looked for only {looks:?} times beside a process of each agent");

    let mut pods = vec![];
    for (agent, _, secret) in AGENTS {
        let pod = pod_of(&ns, agent).await?;
        let Found { places, processes: _ } = canary::search_pod(&ns, &pod, &words).await?;
        ensure!(places.is_empty(), "a credential stands in {places:?} beside {agent}");
        // What the search finds when there is something.
        canary::expect_found(&ns, &pod, &["control-3f9a17"]).await?;
        let environment = ns.kubectl(&["exec", &pod, "--", "cat", "/proc/self/environ"]).await?.exit_ok()?.out;
        ensure!(environment.contains("PATH=") && !words.iter().any(|word| environment.contains(word)), "{environment}");
        let spec = ns.kubectl(&["get", "pod", &pod, "-o", "yaml"]).await?.exit_ok()?.out;
        ensure!(spec.contains("kind: Pod") && !spec.contains(secret), "the Pod of {agent} names Secret {secret}: {spec}");
        pods.push(pod);
    }
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    canary::expect_in_no_object(&ns, &pods, &words).await?;
    ns.remove().await
}

#[tokio::test]
async fn credentials_that_a_server_refuses_are_told_in_its_words_and_stand_in_none_of_them() -> Result<()> {
    let ns = TestNamespace::create("private-refused").await?;
    let server = PrivateServer::create(&ns).await?;
    let wrong = format!("canary-wrong-{}", ns.name);
    server.create_secret_with_token("wrong-token", &wrong).await?;
    let other = server.create_secret_with_another_key("wrong-key").await?;
    ns.create_project("wrong-token", server.by_token("wrong-token")).await?;
    ns.create_project("wrong-key", server.by_key("wrong-key")).await?;
    for (project, words, remedy) in [
        ("wrong-token", "Authentication failed", "refuses username and password of Secret wrong-token: has the token expired"),
        ("wrong-key", "Permission denied (publickey)", ""),
    ] {
        // The first attempt may come before the node has a route to the new Service.
        let told = |message: &str| message.contains(words) && message.contains(remedy);
        ns.wait_message::<YoiProject>(project, "Ready", "PopulateFailed", told).await?;
    }
    let canaries = [token_canaries(&wrong), key_canaries(&other), server.canaries()].concat();
    let words: Vec<&str> = canaries.iter().map(String::as_str).collect();
    // A Pod that failed is there until the next try, some seconds later: a log that is gone meanwhile is not read, and others are listed.
    let searched = poll_until(TIMEOUT, "a log of each project's fetch", async || {
        let ended = ns
            .list::<Pod>("!app")
            .await?
            .into_iter()
            .filter(|pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Failed")));
        let ended: Vec<String> = ended.map(|pod| pod.name_any()).collect();
        // base-GENERATION-NODE-ATTEMPT: each project has another generation.
        let generations: BTreeSet<_> = ended.iter().filter_map(|pod| pod.split('-').nth(1)).collect();
        if generations.len() < 2 {
            return Ok(None);
        }
        let ended: Vec<&str> = ended.iter().map(String::as_str).collect();
        match canary::expect_in_no_object(&ns, &ended, &words).await {
            Err(error) if error.to_string().contains("(NotFound)") => Ok(None),
            other => other.map(Some),
        }
    });
    searched.await?;
    let doctor = ns.yoi(&["doctor"]).await?.out;
    ensure!(doctor.contains("wrong-token") && !words.iter().any(|word| doctor.contains(word)), "{doctor}");
    ns.remove().await
}
