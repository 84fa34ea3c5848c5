//! Skills and commands of an agent's tree, as the model, the sender of a message and the plugin see them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{YoiPod, YoiProject};
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::Body;

use crate::tool_output;

const SCRIPT: &str = r#"
rules:
- when: { lastUserContains: "Set it up" }
  steps:
  - toolCalls:
    - { tool: Write, args: { path: .claude/skills/deploy/SKILL.md, content: "---\nname: deploy\ndescription: Deploy the service.\n---\nRun make deploy.\n" } }
    - { tool: Write, args: { path: .claude/commands/review.md, content: "---\ndescription: Review.\n---\nReview $ARGUMENTS with care.\n" } }
    - { tool: Write, args: { path: .agents/skills/bad/SKILL.md, content: "---\nname: [bad\n---\nx\n" } }
  - text: It is set up.
- when: { lastUserContains: "Review the parser with care." }
  steps:
  - toolCalls:
    - { tool: Skill, args: { name: deploy } }
  - text: Reviewed.
    expect: [Run make deploy.]
"#;

#[tokio::test]
async fn p59_a_skill_and_a_command_of_the_tree_count_from_the_next_run_and_are_listed_of_a_stopped_agent_too() -> Result<()> {
    let ns = TestNamespace::create("assets").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "Set it up." })).await?;
    ns.wait_task_complete("a").await?;

    let said = ns.yoi(&["send", "a", "/review the parser", "--wait"]).await?.exit_ok()?;
    ensure!(said.out.contains("Reviewed."), "{said:?}");
    let log = ns.log("a").await?;
    let kinds: Vec<&str> = log.iter().map(|line| line.entry.body.kind()).collect();
    ensure!(kinds.contains(&"ConfigChanged"), "{kinds:?}");
    ensure!(log.iter().any(|line| matches!(&line.entry.body, Body::Input(input) if input.text == "/review the parser")), "{kinds:?}");
    ensure!(tool_output::last(&ns, "a").await?.contains("Run make deploy."));

    let listed: Value = serde_json::from_str(&ns.yoi(&["assets", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    let state = |listed: &Value, name: &str| {
        let assets = listed["assets"].as_array().cloned().unwrap_or_default();
        assets.into_iter().find(|asset| asset["name"] == name).map(|asset| asset["state"].as_str().unwrap_or_default().to_owned())
    };
    ensure!(state(&listed, "deploy").as_deref() == Some("Valid") && state(&listed, "review").as_deref() == Some("Valid"), "{listed}");
    ensure!(listed["diagnostics"].to_string().contains(".agents/skills/bad/SKILL.md"), "{listed}");
    let shown = ns.yoi(&["assets", "a", "show", "review"]).await?.exit_ok()?;
    ensure!(shown.out.contains(".claude/commands/review.md"), "{shown:?}");

    let found = ns.yoi(&["assets", "a", "search", "make", "deploy"]).await?.exit_ok()?;
    ensure!(found.out.contains(".claude/skills/deploy/SKILL.md"), "{found:?}");
    let reloaded = ns.yoi(&["assets", "a", "reload"]).await?.exit_ok()?;
    ensure!(reloaded.out.contains("1 skills, 1 commands"), "{reloaded:?}");
    let refused = ns.yoi(&["assets", "a", "reload", "--strict"]).await?;
    ensure!(refused.code != 0 && refused.err.contains(".agents/skills/bad/SKILL.md"), "{refused:?}");

    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    let stopped: Value = serde_json::from_str(&ns.yoi(&["assets", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    ensure!(state(&stopped, "review").as_deref() == Some("Valid"), "{stopped}");
    ns.remove().await
}

const OF_TEAM: &str = r#"
rules:
- when: { lastUserContains: "Review it twice." }
  steps:
  - toolCalls:
    - { tool: Skill, args: { name: review } }
  - expect: [Of the team.]
    text: Reviewed.
- when: { lastUserContains: "Break it" }
  steps:
  - toolCalls:
    - { tool: Write, args: { path: .claude/commands/bad.md, content: "---\nname: [bad\n---\n" } }
  - text: It is broken.
- steps:
  - text: Nothing to do.
"#;

#[tokio::test]
async fn p6_a_config_map_of_the_team_is_read_below_the_tree_and_a_strict_project_says_which_file_it_refuses() -> Result<()> {
    let ns = TestNamespace::create("team-assets").await?;
    ns.create_model(OF_TEAM).await?;
    let data = json!({
        "skills.review.md": "---\nname: review\ndescription: Review a change.\n---\nOf the team.\n",
        "commands.twice.md": "Review it twice. $ARGUMENTS\n",
    });
    ns.apply(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "team" }, "data": data }).to_string()).await?;
    ns.create_empty_project("p").await?;
    let assets = json!({ "strict": true, "watch": true, "from": [{ "configMap": { "name": "team" } }] });
    ns.merge_patch::<YoiProject>("p", &json!({ "spec": { "assets": assets } })).await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let loaded = ns.wait_condition::<YoiPod>("a", "AssetsLoaded", ConditionStatus::True).await?;
    ensure!(loaded.reason == "AssetsRead" && loaded.message.starts_with("1 skills, 1 commands"), "{loaded:?}");
    let said = ns.yoi(&["send", "a", "/twice and again", "--wait"]).await?.exit_ok()?;
    ensure!(said.out.contains("Reviewed."), "{said:?}");
    let shown = ns.yoi(&["assets", "a", "show", "review"]).await?.exit_ok()?;
    ensure!(shown.out.contains("configmap/team/skills/review/SKILL.md"), "{shown:?}");

    ns.yoi(&["send", "a", "Break it", "--wait"]).await?.exit_ok()?;
    let refused = ns.wait_reason::<YoiPod>("a", "AssetsLoaded", "InvalidAssets").await?;
    ensure!(refused.message.contains(".claude/commands/bad.md:"), "{refused:?}");
    let report = ns.get::<YoiPod>("a").await?.status.and_then(|status| status.report?.assets).context("the report has no assets")?;
    ensure!(report.refused && report.skills == 1 && report.errors == 1, "{report:?}");
    let listed = ns.yoi(&["assets", "a"]).await?.exit_ok()?;
    ensure!(listed.out.contains("twice") && listed.out.contains(".claude/commands/bad.md:"), "{listed:?}");

    // What is changed in the ConfigMap reaches the agent that runs, and one that is stopped is shown it as well.
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    let stopped: Value = serde_json::from_str(&ns.yoi(&["assets", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    ensure!(stopped["refused"][0]["path"] == ".claude/commands/bad.md" && stopped["assets"] == json!([]), "{stopped}");
    ns.remove().await
}

const OF_REPOSITORY: &str = r#"
rules:
- when: { lastUserContains: "Review it twice." }
  steps:
  - toolCalls:
    - { tool: Skill, args: { name: review } }
  - expect: [Of the team, /etc/yoi-assets/0/files/skills/review]
    toolCalls:
    - { tool: Shell, args: { command: "cat /etc/yoi-assets/0/files/skills/review/references/list.md" } }
  - expect: [Of the list.]
    text: Reviewed.
- steps:
  - text: Nothing to do.
"#;

/// The default allows port 443 alone.
const TO_GIT: &str = r#"
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: { name: agents-to-git }
spec:
  podSelector: { matchLabels: { yoi.dev/role: agent } }
  policyTypes: [Egress]
  egress:
    - to: [{ podSelector: { matchLabels: { app: git } } }]
      ports: [{ protocol: TCP, port: 9418 }]
"#;

#[tokio::test]
async fn p6_sets_of_a_repository_and_an_image_come_with_the_start_and_one_that_is_missing_stops_only_a_strict_projects_agent() -> Result<()>
{
    let ns = TestNamespace::create("fetched-assets").await?;
    ns.create_model(OF_REPOSITORY).await?;
    ns.create_git_server().await?;
    ns.apply(TO_GIT).await?;
    ns.create_empty_project("p").await?;
    let from = |ref_: &str, reference: &str| {
        let url = format!("git://git.{}.svc:9418/team.git", ns.name);
        json!([{ "name": "team", "git": { "url": url, "ref": ref_, "path": ".claude" } },
            { "name": "house", "image": { "reference": reference, "path": "opt/agents" } }])
    };
    let good = ns.image("git-server")?.to_owned();
    let assets = async |strict: bool, from: Value| {
        ns.merge_patch::<YoiProject>("p", &json!({ "spec": { "assets": { "strict": strict, "from": from } } })).await
    };
    assets(true, from("main", &good)).await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let loaded = ns.wait_condition::<YoiPod>("a", "AssetsLoaded", ConditionStatus::True).await?;
    ensure!(loaded.message.starts_with("2 skills, 1 commands") && loaded.message.contains("; git/team is of commit "), "{loaded:?}");
    let said = ns.yoi(&["send", "a", "/twice and again", "--wait"]).await?.exit_ok()?;
    ensure!(said.out.contains("Reviewed."), "{said:?}");
    let listed: Value = serde_json::from_str(&ns.yoi(&["assets", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    let set = &listed["sets"][0];
    ensure!(set["name"] == "git/team" && set["revision"].as_str().is_some_and(|commit| commit.len() == 40), "{listed}");
    let shown = ns.yoi(&["assets", "a", "show", "hello-c"]).await?.exit_ok()?;
    ensure!(shown.out.contains("image/house/skills/hello-c/SKILL.md"), "{shown:?}");
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    let stopped = ns.yoi(&["assets", "a"]).await?.exit_ok()?;
    ensure!(stopped.out.contains("git/team is fetched when the agent starts"), "{stopped:?}");

    assets(true, from("gone", &good)).await?;
    ns.create_agent("strict", "p", json!({})).await?;
    for of in ["AssetsLoaded", "Ready"] {
        let failed = ns.wait_reason::<YoiPod>("strict", of, "AssetsNotFetched").await?;
        ensure!(failed.message.starts_with("git/team is not fetched: the source has no branch or tag gone now"), "{failed:?}");
    }
    assets(false, from("gone", "127.0.0.1:1/absent:1")).await?;
    ns.create_agent("lenient", "p", json!({})).await?;
    // The one that waited takes the project as it is now.
    for agent in ["lenient", "strict"] {
        ns.wait_agent_ready(agent).await?;
        let failed = ns.wait_reason::<YoiPod>(agent, "AssetsLoaded", "AssetsNotFetched").await?;
        let says = |words: &str| failed.message.contains(words);
        ensure!(says("the agent works without them: git/team is not fetched: ") && says("image/house is not fetched: "), "{failed:?}");
    }
    ns.remove().await
}
