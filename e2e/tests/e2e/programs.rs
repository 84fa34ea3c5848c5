//! Agents that are a program or a command instead of the runtime's own loop.

use anyhow::{Result, ensure};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::{Body, RunOutcome};

/// Reads its task, changes the tree, and tries what its frame must not let it do.
const COMMAND: &str = "cat > asked.txt; echo changed >> README.md; git add -A; git commit -qm 'By a command'; \
    cat /session/current.json /var/run/yoi/token /etc/yoi/manifest.json 2>/dev/null && echo open; kill -0 1 2>/dev/null && echo signalled; echo the end";

#[tokio::test]
async fn any_command_is_an_agent_in_a_frame_and_its_words_stand_in_the_log() -> Result<()> {
    let ns = TestNamespace::create("command").await?;
    ns.create_git_project("p").await?;
    let agent = json!({ "command": ["/bin/sh", "-c", COMMAND] });
    ns.create_agent("c", "p", json!({ "task": "count the files", "agent": agent })).await?;
    ns.wait_task_complete("c").await?;
    ns.wait_condition::<YoiPod>("c", "ScopeEnforced", ConditionStatus::True).await?;
    let log = ns.log("c").await?;
    let answers: Vec<&str> = log
        .iter()
        .filter_map(|line| match &line.entry.body {
            Body::Assistant(answer) => Some(answer.text.trim()),
            _ => None,
        })
        .collect();
    ensure!(answers == ["the end"], "{answers:?}");
    ensure!(log.iter().any(|line| matches!(&line.entry.body, Body::RunEnded(end) if end.outcome == RunOutcome::Finished)), "{log:?}");
    let diff = ns.yoi(&["diff", "c"]).await?.exit_ok()?.out;
    ensure!(diff.contains("+count the files") && diff.contains("+changed"), "{diff}");
    ns.remove().await
}

#[tokio::test]
async fn a_command_that_fails_ends_its_task_as_failed_with_its_last_words() -> Result<()> {
    let ns = TestNamespace::create("command-fails").await?;
    ns.create_empty_project("p").await?;
    let agent = json!({ "command": ["/bin/sh", "-c", "echo nothing here fits >&2; exit 3"] });
    ns.create_agent("c", "p", json!({ "task": "try", "agent": agent })).await?;
    let silent = json!({ "command": ["/bin/sh", "-c", "echo begun; exec sleep 3600"] });
    ns.create_agent("s", "p", json!({ "task": "try", "agent": silent, "limits": { "silenceSeconds": 10 } })).await?;
    let failed = ns.wait_condition::<YoiPod>("c", "TaskComplete", ConditionStatus::False);
    let ended = ns.wait_log("c", "the end of its run", |log| {
        log.iter().find_map(|line| match &line.entry.body {
            Body::RunEnded(end) => Some(end.clone()),
            _ => None,
        })
    });
    let ended = ended.await?;
    let message = ended.message.unwrap_or_default();
    ensure!(ended.outcome == RunOutcome::Failed && message.contains("nothing here fits") && message.contains('3'), "{message}");
    failed.await?;
    ns.wait_reason::<YoiPod>("s", "TaskComplete", "ProgramSilent").await?;
    ns.remove().await
}

#[tokio::test]
async fn a_preset_whose_program_is_not_in_the_image_says_so() -> Result<()> {
    let ns = TestNamespace::create("program-missing").await?;
    ns.create_empty_project("p").await?;
    let model = json!({ "provider": "Anthropic", "name": "scripted", "baseUrl": "http://model.invalid/v1/" });
    let agent = json!({ "cli": { "preset": "claude" } });
    ns.create_agent("c", "p", json!({ "task": "try", "agent": agent, "model": model })).await?;
    let ready = ns.wait_reason::<YoiPod>("c", "Ready", "ProgramMissing").await?;
    ensure!(ready.message.contains("claude"), "{}", ready.message);
    ns.remove().await
}

#[tokio::test]
async fn a_preset_that_nobody_has_or_that_does_not_speak_the_models_format_is_refused_with_those_that_would_do() -> Result<()> {
    let ns = TestNamespace::create("preset").await?;
    ns.create_empty_project("p").await?;
    let model = json!({ "provider": "Gemini", "name": "scripted", "baseUrl": "http://model.invalid/v1beta/" });
    ns.create_agent("unknown", "p", json!({ "agent": { "cli": { "preset": "emacs" } }, "model": model })).await?;
    ns.create_agent("other", "p", json!({ "agent": { "cli": { "preset": "claude" } }, "model": model })).await?;
    for (agent, words) in [("unknown", "claude"), ("other", "Anthropic")] {
        let accepted = ns.wait_condition::<YoiPod>(agent, "Accepted", ConditionStatus::False).await?;
        ensure!(accepted.message.contains(words), "{agent}: {}", accepted.message);
    }
    ns.remove().await
}
