//! `--wait`, and what ends it early.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_test_support::{assert_no_sooner, thorough};

use crate::api_server::ApiServer;
use crate::log_and_send::assistant_line;
use crate::plugin::{Plugin, agent, project, status};
use crate::terminal::Terminal;

type Conditions = &'static [(&'static str, &'static str, &'static str, &'static str)];

/// Gives each new agent this status.
fn operator(conditions: Conditions) -> impl Fn(&str, &mut Value) + Send + 'static {
    move |collection, object| {
        if collection.ends_with("yoipods") {
            object["status"] = status(conditions);
        }
    }
}

/// The exit code tells whether a wait was over by itself, 5, or ended before that.
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
        let ended = plugin.run(&[&RUN[..], &["do it"]].concat()).await?.expect_code(1)?;
        for word in words {
            ensure!(ended.err.contains(word), "{word}: {ended:?}");
        }
    }
    Ok(())
}

/// A tenth of the real time, and all of it in a thorough run.
#[tokio::test]
async fn a_model_that_cannot_be_reached_ends_the_wait_when_that_lasts() -> Result<()> {
    let server = ApiServer::start().await?;
    let (patience_percent, least) = if thorough() { (100, Duration::from_secs(30)) } else { (10, Duration::from_secs(3)) };
    let plugin = Plugin { patience_percent, ..Plugin::new(&server)? };
    server.put(project(&[])).control(operator(&[
        ("TaskComplete", "False", "TaskRunning", "it was given"),
        ("Ready", "False", "ModelUnreachable", "nothing listens at http://wrong:1"),
    ]));
    let begun = Instant::now();
    let ended = plugin.run(&[&RUN[..], &["do it"]].concat()).await?.expect_code(1)?;
    assert_no_sooner(begun, least, "the end of the wait");
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
    assert_no_sooner(begun, Duration::from_secs(3), "the end of the wait");
    ensure!(ended.err.contains(NO_IMAGE) && ended.err.contains("imagePullSecrets"), "{ended:?}");

    // Patient for 0.3 s with what another try may help, and so long before its timeout that a slow machine is no excuse.
    let server = ApiServer::start().await?;
    let plugin = Plugin { patience_percent: 1, ..Plugin::new(&server)? };
    server.put(project(&[])).control(operator(&[("Ready", "False", "Unschedulable", NO_NODE)]));
    let late = plugin.run(&["run", "a", "-p", "p", "--wait", "--timeout", "5s"]).await?.expect_code(5)?;
    ensure!(late.err.contains(&format!("Unschedulable: {NO_NODE}")) && late.err.contains("after 5 s"), "{late:?}");
    Ok(())
}

#[tokio::test]
async fn a_reason_that_passes_does_not_end_the_wait() -> Result<()> {
    let server = ApiServer::start().await?;
    // Ten times as patient as with people: the reason passes before that, however slow the machine is.
    let plugin = Plugin { patience_percent: 1000, ..Plugin::new(&server)? };
    server.put(project(&[])).control(operator(&[("Ready", "False", "SecretMissing", "the Secret is missing")]));
    let mut running = plugin.start(&["run", "a", "-p", "p", "--wait"])?;
    running.error_line("SecretMissing: the Secret is missing").await?;
    server.put(agent("a", &[("Ready", "True", "AllMet", "fine")]));
    let (code, told) = running.end().await?;
    ensure!(code == Some(0) && told.contains("a is ready"), "{code:?} {told}");
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
async fn run_follow_shows_what_the_agent_says_when_it_comes_and_ends_with_its_task() -> Result<()> {
    let at = "2026-01-01T10:20:30.000Z";
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(project(&[])).control(operator(&[("Ready", "False", "PodPending", "no room")]));
    let stream = server.stream_for("a", "log");
    // What is read at the end: the last words, and what came after the last line of the stream.
    server.answer_for("a", "log", 200, assistant_line(2, at, "the answer"));
    let mut running = plugin.start(&["run", "a", "-p", "p", "-t", "do it", "--follow"])?;
    running.error_line("PodPending: no room").await?;
    let with = |complete: &str| {
        let mut agent = agent("a", &[("Ready", "True", "AllMet", "fine"), ("TaskComplete", complete, "TaskState", "as it is")]);
        agent["status"]["session"] =
            json!({ "id": "018f0000-0000-7000-8000-000000000001", "segment": "018f0000-0000-7000-8000-000000000002" });
        agent
    };
    server.put(with("False"));
    stream.send(assistant_line(1, at, "first words"))?;
    let line = running.line().await?;
    ensure!(line.ends_with("first words"), "{line}");
    // Nothing comes any more, so it is said what is waited for.
    running.error_line("YoiPod ns/a: the model works").await?;
    // The log tells what goes on now, and lines about what is waited for would stand between its lines. What a person has to do is told.
    let mut goes_on = with("False");
    goes_on["status"]["conditions"][0]["message"] = json!("goes on");
    server.put(goes_on);
    let mut paused = with("False");
    paused["status"]["pod"] = json!({ "name": "a-1", "uid": "p" });
    paused["status"]["live"] = json!({ "podUID": "p", "activity": "Paused", "observedAt": at });
    server.put(paused);
    let told = running.error_lines("Paused: a person has paused its run").await?;
    ensure!(!told.iter().any(|line| line.contains("goes on")), "{told:?}");
    server.put(with("True"));
    let (code, rest) = running.end().await?;
    ensure!(code == Some(0) && rest.matches("the answer").count() == 1 && rest.contains("task of a done"), "{code:?} {rest}");
    let both = plugin.run(&["run", "a", "-p", "p", "--follow", "-o", "json"]).await?.expect_code(1)?;
    ensure!(both.err.contains("log -f -o json"), "{both:?}");
    Ok(())
}

#[tokio::test]
async fn progress_without_a_terminal_is_lines_and_with_one_a_spinner() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let (waits, ready) = (agent("a", &[("Ready", "False", "PodPending", "no room")]), agent("a", &[("Ready", "True", "AllMet", "fine")]));
    let words = ["start", "a", "--wait"];
    server.put(waits.clone());
    let mut running = plugin.start(&words)?;
    let line = running.error_line("PodPending").await?;
    ensure!(line.trim_start().ends_with("s YoiPod ns/a: PodPending: no room") && !line.contains('\u{1b}'), "{line:?}");
    server.put(ready.clone());
    ensure!(running.end().await?.0 == Some(0));
    server.put(waits);
    let mut terminal = Terminal::start(&plugin, &words)?;
    terminal.wait_until("what it waits for", |screen| screen.contains("YoiPod ns/a: PodPending: no room")).await?;
    server.put(ready);
    let (code, shown) = terminal.end_with_all().await?;
    ensure!(code == 0 && shown.contains("\u{1b}[2K"), "{code} {shown:?}");
    Ok(())
}

#[tokio::test]
async fn an_earlier_generation_ends_no_wait() -> Result<()> {
    let server = ApiServer::start().await?;
    // It would end the wait after 0.05 s.
    let plugin = Plugin { patience_percent: 1, ..Plugin::new(&server)? };
    let mut a = agent("a", &[]);
    a["status"] = json!({ "observedGeneration": 1, "conditions": [{ "type": "Ready", "status": "False", "reason": "InvalidSpec",
        "message": "of before", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1 }] });
    a["metadata"]["generation"] = json!(2);
    server.put(a);
    plugin.run(&["start", "a", "--wait", "--timeout", "4s"]).await?.expect_code(5)?;
    Ok(())
}
