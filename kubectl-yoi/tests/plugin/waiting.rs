//! `--wait`, and what ends it early.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent, project, status};

type Conditions = &'static [(&'static str, &'static str, &'static str, &'static str)];

/// Gives each new agent this status.
fn operator(conditions: Conditions) -> impl Fn(&str, &mut Value) + Send + 'static {
    move |collection, object| {
        if collection.ends_with("yoipods") {
            object["status"] = status(conditions);
        }
    }
}

const RUN: [&str; 8] = ["run", "a", "-p", "p", "--wait", "--timeout", "90s", "-t"];

#[tokio::test]
async fn a_wait_for_what_only_a_person_can_fix_ends_and_names_the_command_that_fixes_it() -> Result<()> {
    for (conditions, words) in [
        (
            &[("Ready", "False", "SecretMissing", "Secret keys with the model's key does not exist in namespace ns")][..],
            ["YoiPod ns/a is not ready", "Secret keys with the model's key", "kubectl create secret generic keys -n ns --from-literal=k="],
        ),
        (
            &[("Ready", "False", "InvalidSpec", "no model")],
            ["InvalidSpec: no model", "The message says which field.", "kubectl describe yoipod a -n ns"],
        ),
        (
            &[("Ready", "False", "InvalidImageName", "the container of Pod a-1 waits: InvalidImageName: agent:1:2")],
            ["agent:1:2", "REGISTRY/NAME:TAG", "kubectl edit yoipod a -n ns"],
        ),
    ] {
        let server = ApiServer::start().await?;
        let plugin = Plugin::new(&server)?;
        server.put(project(&[("Ready", "True", "AllMet", "fine")])).control(operator(conditions));
        let begun = Instant::now();
        let ended = plugin.run(&[&RUN[..], &["do it"]].concat()).await?.expect_code(1)?;
        ensure!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
        for word in words {
            ensure!(ended.err.contains(word), "{word}: {ended:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_model_that_cannot_be_reached_ends_the_wait_when_that_lasts() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[])).control(operator(&[
        ("TaskComplete", "False", "TaskRunning", "it was given"),
        ("Ready", "False", "ModelUnreachable", "nothing listens at http://wrong:1"),
    ]));
    let begun = Instant::now();
    let ended = plugin.run(&[&RUN[..], &["do it"]].concat()).await?.expect_code(1)?;
    ensure!(begun.elapsed() > Duration::from_secs(25) && begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    ensure!(
        ended.err.contains("ModelUnreachable: nothing listens at http://wrong:1") && ended.err.contains("next: kubectl yoi send a"),
        "{ended:?}"
    );
    Ok(())
}

const NO_IMAGE: &str = "the container of Pod a-1 waits: ImagePullBackOff: no such tag";
const NO_NODE: &str = "Pod a-1: 0/3 nodes are available: 3 Insufficient memory.";

#[tokio::test]
async fn a_wait_ends_when_an_image_stays_out_of_reach_and_lasts_while_an_autoscaler_may_still_help() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[])).control(operator(&[("Ready", "False", "ImagePullFailed", NO_IMAGE)]));
    let begun = Instant::now();
    let ended = plugin.run(&[&RUN[..], &["do it"]].concat()).await?.expect_code(1)?;
    ensure!(begun.elapsed() > Duration::from_secs(25) && begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    ensure!(ended.err.contains(NO_IMAGE) && ended.err.contains("imagePullSecrets"), "{ended:?}");

    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[])).control(operator(&[("Ready", "False", "Unschedulable", NO_NODE)]));
    let late = plugin.run(&["run", "a", "-p", "p", "--wait", "--timeout", "36s"]).await?.expect_code(5)?;
    ensure!(late.err.contains(&format!("Unschedulable: {NO_NODE}")) && late.err.contains("after 36 s"), "{late:?}");
    Ok(())
}

#[tokio::test]
async fn a_reason_that_passes_does_not_end_the_wait() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[])).control(operator(&[("Ready", "False", "SecretMissing", "the Secret is missing")]));
    let later = server.clone();
    tokio::spawn(async move {
        while later.object("YoiPod", "a").is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Longer than it takes to see the reason that passes, and less than a person is waited for.
        tokio::time::sleep(Duration::from_secs(2)).await;
        later.put(agent("a", &[("Ready", "True", "AllMet", "fine")]));
    });
    let done = plugin.run(&["run", "a", "-p", "p", "--wait"]).await?.expect_code(0)?;
    ensure!(done.out.contains("a is ready"), "{done:?}");
    Ok(())
}

#[tokio::test]
async fn a_project_that_cannot_be_fetched_ends_the_wait_for_its_agent() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[("Ready", "False", "PopulateFailed", "git: no such ref")]));
    server.control(operator(&[("Ready", "False", "ProjectNotReady", "no base")]));
    let ended = plugin.run(&[&RUN[..], &["do it"]].concat()).await?.expect_code(1)?;
    ensure!(ended.err.contains("YoiProject ns/p is not ready") && ended.err.contains("git: no such ref"), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn progress_without_a_terminal_is_lines_and_with_one_a_spinner() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[("Ready", "False", "PodPending", "no room")]));
    let words = ["start", "a", "--wait", "--timeout", "10s"];
    let late = plugin.run(&words).await?.expect_code(5)?;
    let line = late.err.lines().find(|line| line.contains("PodPending"));
    ensure!(line.is_some_and(|line| line.trim_start().ends_with("s YoiPod ns/a: PodPending: no room")), "{late:?}");
    ensure!(!late.err.contains('\u{1b}'), "{late:?}");
    let (_, seen) = plugin.run_in_terminal(&words).await?;
    ensure!(seen.contains("\u{1b}[2K") && seen.contains("YoiPod ns/a: PodPending: no room"), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn an_earlier_generation_ends_no_wait() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut a = agent("a", &[]);
    a["status"] = json!({ "observedGeneration": 1, "conditions": [{ "type": "Ready", "status": "False", "reason": "InvalidSpec",
        "message": "of before", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 }] });
    a["metadata"]["generation"] = json!(2);
    server.put(a);
    plugin.run(&["start", "a", "--wait", "--timeout", "8s"]).await?.expect_code(5)?;
    Ok(())
}
