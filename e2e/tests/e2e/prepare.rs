//! A project's command that runs in every base before it is sealed.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use yoi_crds::YoiProject;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::tool_output;

const STATUS: &str = "cat build/log; git status --porcelain --ignored; pwd; ls -A /home/agent";

const SCRIPT: &str = r#"
rules:
- name: status
  when: { lastUserContains: "tell the build" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "$STATUS" } }]
  - text: Told.
"#;

fn prepare(ns: &TestNamespace, script: &str) -> Result<serde_json::Value> {
    Ok(json!({ "image": ns.image("agent")?, "command": ["sh", "-ec", script] }))
}

/// What it runs as, that it finds the source and no secret, and that HOME is its own.
const BUILD: &str =
    "test -f Makefile; test ! -e /var/run/secrets; test ! -e /yoi; echo gone > $HOME/left-behind; echo /build/ >> .git/info/exclude
    mkdir build; { id -u; pwd; } > build/log";

#[tokio::test]
async fn what_prepare_made_is_in_every_tree_where_agents_see_it_and_a_changed_one_is_another_base() -> Result<()> {
    let ns = TestNamespace::create("prepare").await?;
    ns.create_model(&SCRIPT.replace("$STATUS", STATUS)).await?;
    ns.create_git_server().await?;
    let source = json!({ "git": { "url": format!("git://git.{}.svc:9418/project.git", ns.name) } });
    ns.create_project_with("p", json!({ "source": source, "prepare": prepare(&ns, BUILD)? })).await?;
    ns.wait_condition::<YoiProject>("p", "Ready", ConditionStatus::True).await?;
    ns.create_agent("first", "p", json!({ "task": "tell the build" })).await?;
    ns.wait_task_complete("first").await?;
    let path = ns.get::<YoiProject>("p").await?.status.and_then(|status| status.path).context("the project says no path")?;
    let seen = tool_output::last(&ns, "first").await?;
    let expected = format!("1000\n{path}\n!! build/\n{path}\n");
    ensure!(seen.starts_with(&expected) && !seen.contains("left-behind"), "{seen}");

    let before = generation(&ns, "p").await?;
    let again = json!({ "spec": { "prepare": { "command": ["sh", "-ec", format!("{BUILD}; echo again >> build/log")] } } });
    ns.merge_patch::<YoiProject>("p", &again).await?;
    ns.wait_for::<YoiProject, ()>("p", "of another generation", |project| {
        let status = project?.status.as_ref()?;
        (status.generation.as_ref()?.name != before).then_some(())
    })
    .await?;
    ns.wait_condition::<YoiProject>("p", "Ready", ConditionStatus::True).await?;
    ns.create_agent("second", "p", json!({ "task": "tell the build" })).await?;
    ns.wait_task_complete("second").await?;
    let seen = tool_output::last(&ns, "second").await?;
    ensure!(seen.starts_with(&format!("1000\n{path}\nagain\n")), "{seen}");
    let seen = tool_output::after(&ns, "first", "tell the build").await?;
    ensure!(seen.starts_with(&expected), "the change is in a tree that was made before it: {seen}");
    ns.remove().await
}

async fn generation(ns: &TestNamespace, project: &str) -> Result<String> {
    let status = ns.get::<YoiProject>(project).await?.status.unwrap_or_default();
    Ok(status.generation.context("the project has no generation")?.name)
}

#[tokio::test]
async fn a_prepare_that_fails_says_its_last_words_can_be_read_and_is_tried_again_in_a_fresh_base() -> Result<()> {
    let ns = TestNamespace::create("prepare-fails").await?;
    let failing = "ls -A | wc -l; echo half > half; echo compiling; echo no such header >&2; exit 3";
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "prepare": prepare(&ns, failing)? })).await?;
    // The second attempt: the first has left a file. Each is there until the next one, some seconds later, and may be gone before it is read.
    let attempt = |condition: &yoi_crds::Condition| Some(condition.message.split_once("-prepare-")?.1.split_once(':')?.0.to_owned());
    let read = poll_until(TIMEOUT, "an attempt that log and doctor show", async || {
        let failed = ns
            .wait_for::<YoiProject, _>("p", "failed twice", |project| {
                let conditions = &project?.status.as_ref()?.conditions;
                let ready = yoi_crds::condition::find(conditions, "Ready").filter(|ready| ready.reason == "PrepareFailed")?;
                (attempt(ready)? != "1").then(|| ready.clone())
            })
            .await?;
        // Each pipe of a container is read by itself: a line of one may stand before, between or after the lines of the other.
        let in_order = |text: &str| {
            let words = text.split_whitespace().map(|word| word.trim_end_matches(';'));
            let of_stdout: Vec<_> = words.filter(|word| ["0", "compiling"].contains(word)).collect();
            of_stdout == ["0", "compiling"] && text.contains("no such header")
        };
        let (_, last_words) = failed.message.split_once("exit code 3: ").with_context(|| failed.message.clone())?;
        ensure!(in_order(last_words), "{}", failed.message);
        let pod = failed.message.split_whitespace().find(|word| word.contains("-prepare-")).context("no Pod is named")?;
        let pod = pod.trim_end_matches(':');
        let log = ns.kubectl(&["logs", pod]).await?;
        let doctor = ns.yoi(&["doctor"]).await?.out;
        if log.code != 0 || !doctor.contains(&format!("kubectl logs {pod} ")) {
            return Ok(None);
        }
        ensure!(in_order(&log.out), "{log:?}");
        ensure!(doctor.contains("spec.prepare failed"), "{doctor}");
        Ok(Some(()))
    });
    read.await?;

    let mended = json!({ "spec": { "prepare": { "command": ["sh", "-ec", "test ! -e half; echo fine > fine"] } } });
    ns.merge_patch::<YoiProject>("p", &mended).await?;
    ns.wait_condition::<YoiProject>("p", "Ready", ConditionStatus::True).await?;
    ns.remove().await
}
