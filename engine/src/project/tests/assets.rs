//! Skills and commands of a tree, over a model that answers from a list.

use std::os::unix::fs::symlink;

use yoi_assets::{AssetState, Level, Strictness};
use yoi_test_support::eventually;

use super::*;

const SKILL: &str = "---\nname: deploy\ndescription: Deploy the service. Use it when asked to deploy.\nallowed-tools: Bash(make *)\n---\nRun make deploy.\n";

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn requests(seen: &std::sync::Arc<std::sync::Mutex<Vec<String>>>) -> Vec<String> {
    seen.lock().unwrap().clone()
}

/// Without what the log is told of the assets, whenever they are read.
fn kinds(entries: &[Entry]) -> String {
    let kinds = entries.iter().map(|entry| entry.body.kind()).filter(|kind| *kind != "Extension");
    kinds.collect::<Vec<_>>().join(" ")
}

/// What the command of the run stands for.
fn expanded(entries: &[Entry]) -> &str {
    let text = entries.iter().find_map(|entry| match &entry.body {
        Body::SystemItem(item) if item.topic == "Command" => Some(item.text.as_str()),
        _ => None,
    });
    text.expect("a command was expanded")
}

fn end(entries: &[Entry]) -> (RunOutcome, Option<&str>, &str) {
    match &entries.last().unwrap().body {
        Body::RunEnded(end) => (end.outcome, end.reason.as_deref(), end.message.as_deref().unwrap_or_default()),
        body => panic!("the last entry is {body:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_is_told_of_skills_and_loads_one_through_the_door_and_a_new_one_counts_from_the_next_run() {
    let place = Folders::new();
    let root = place.folder("p-root");
    write(&root, ".claude/skills/deploy/SKILL.md", SKILL);
    let (url, seen) = serve(vec![calls("Skill", &json!({"name": "deploy"})), says("done"), says("two"), says("three")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    assert_eq!(project.assets().generation, 1);
    let entries = run_with(&project, "deploy it").await;
    let first = requests(&seen).remove(0);
    assert!(first.contains("- deploy: Deploy the service.") && first.contains("\"Skill\""), "{first}");
    let output = output(&entries);
    assert!(output.contains("Run make deploy.") && output.contains("in .claude/skills/deploy:"), "{output}");
    assert!(kinds(&entries).contains("ToolStarted ToolEnded"), "{}", kinds(&entries));

    assert!(!kinds(&run_with(&project, "again").await).contains("ConfigChanged"));
    assert_eq!(project.assets().generation, 1, "nothing has changed");
    write(&root, ".agents/skills/test/SKILL.md", "---\nname: test\ndescription: Run the tests.\n---\nRun make test.\n");
    assert!(kinds(&run_with(&project, "and now").await).contains("Input RunStarted ConfigChanged"));
    assert!(requests(&seen).last().unwrap().contains("- test: Run the tests."));
    assert_eq!(project.assets().generation, 2);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_without_skills_offers_no_tool_for_them() {
    let place = Folders::new();
    let hidden = "---\nname: own\ndescription: For people.\ndisable-model-invocation: true\n---\nDo it.\n";
    write(&place.folder("p-root"), ".claude/skills/own/SKILL.md", hidden);
    let (url, seen) = serve(vec![calls("Skill", &json!({"name": "own"})), says("done")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    let entries = run_with(&project, "go").await;
    assert!(!requests(&seen)[0].contains("\"Skill\"") && !requests(&seen)[0].contains("For people."));
    assert!(output(&entries).contains("there is no skill \"own\" for you"), "{}", output(&entries));
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p59_p62_the_model_asks_the_graph_through_the_door_from_the_run_on_in_which_the_tree_has_one() {
    let place = Folders::new();
    let root = place.folder("p-root");
    let (url, seen) =
        serve(vec![says("none"), calls("Graph", &json!({"query": "node", "node": "build"})), says("done"), says("gone")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    run_with(&project, "go").await;
    assert!(!requests(&seen)[0].contains("\"Graph\""));
    write(&root, ".jido/skill_graph/build.md", "# Building\nRun make.\n");
    let entries = run_with(&project, "build it").await;
    assert!(requests(&seen)[1].contains("\"Graph\""));
    assert!(output(&entries).contains("Run make."), "{}", output(&entries));
    assert!(kinds(&entries).contains("ToolStarted ToolEnded"), "{}", kinds(&entries));
    std::fs::remove_dir_all(root.join(".jido")).unwrap();
    run_with(&project, "and now").await;
    assert!(!requests(&seen).last().unwrap().contains("\"Ask the repository's graph"));
    project.stop().await;
}

/// Paths of the instructions that the run was told.
fn paths_of_instructions(entries: &[Entry]) -> Vec<String> {
    let path = |entry: &Entry| match &entry.body {
        Body::SystemItem(item) if item.topic == "Instructions" => Some(item.data["path"].as_str().unwrap().to_owned()),
        _ => None,
    };
    entries.iter().filter_map(path).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instructions_of_a_folder_are_told_once_after_a_call_there_the_outermost_first_and_as_the_policy_lets() {
    let place = Folders::new();
    let (root, outside) = (place.folder("p-root"), place.folder("outside"));
    write(&root, "crates/AGENTS.md", "Use tabs.\n");
    write(&root, "crates/a/CLAUDE.md", "Run make in here.\n");
    // A copy is told once.
    write(&root, "crates/a/GEMINI.md", "Run make in here.\n");
    write(&root, "crates/a/x.rs", "x\n");
    write(&outside, "AGENTS.md", "Of elsewhere.\n");
    write(&root, "out/x.rs", "x\n");
    symlink(outside.join("AGENTS.md"), root.join("out/AGENTS.md")).unwrap();
    let read = |path: &str| calls("Read", &json!({"path": path}));
    let script = || vec![read("crates/a/x.rs"), says("done"), read("out/x.rs"), says("done"), read("crates/a/../a/x.rs"), says("done")];
    let (url, seen) = serve(script()).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    assert_eq!(paths_of_instructions(&run_with(&project, "go").await), ["crates/AGENTS.md", "crates/a/CLAUDE.md"]);
    let request = requests(&seen).remove(1);
    assert!(request.contains("Instructions of crates/AGENTS.md:\\nUse tabs.") && request.contains("Run make in here."), "{request}");
    assert_eq!(paths_of_instructions(&run_with(&project, "go out").await), [""; 0]);
    assert_eq!(paths_of_instructions(&run_with(&project, "again").await), [""; 0]);
    project.stop().await;

    let (url, _) = serve(script()).await;
    let policy = serde_json::from_value(json!({"deny": ["Read(crates/AGENTS.md)"]})).unwrap();
    let project = Project::start(ProjectOptions { policy, root, ..place.options("q", &url) }).await.unwrap();
    assert_eq!(paths_of_instructions(&run_with(&project, "go").await), ["crates/a/CLAUDE.md"]);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p46_p59_a_command_is_expanded_once_and_literally_and_its_calls_pass_the_door() {
    let place = Folders::new();
    let root = place.folder("p-root");
    write(&root, ".claude/commands/review.md", "---\ndescription: Review.\n---\nReview $ARGUMENTS by hand. See !`git status` first.\n");
    write(&root, ".gemini/commands/ask.toml", "prompt = \"Answer {{args}} from @{facts.txt} and @{.env}.\"\n");
    write(&root, "facts.txt", "Water is wet.");
    write(&root, ".env", "KEY=hidden");
    let (url, seen) = serve(vec![says("done"), says("done"), says("after")]).await;
    let options = place.options("p", &url);
    let project = Project::start(options.clone()).await.unwrap();
    let said = "/review {{other}} $1 `touch made` $(touch made)";
    let entries = run_with(&project, said).await;
    assert!(kinds(&entries).contains("Input RunStarted SystemItem"), "{}", kinds(&entries));
    assert!(entries.iter().any(|entry| matches!(&entry.body, Body::Input(input) if input.text == said)));
    let text = expanded(&entries);
    assert!(text.contains("Review {{other}} $1 `touch made` $(touch made) by hand."), "{text}");
    assert!(text.contains("[Run this with the tool Shell; its output belongs here: git status]"), "{text}");
    assert!(!root.join("made").exists());

    let entries = run_with(&project, "/ask me").await;
    let text = expanded(&entries);
    assert!(text.contains("Answer me from [The file facts.txt:]\nWater is wet."), "{text}");
    assert!(text.contains("[Not read: .env:") && !text.contains("hidden"), "{text}");
    project.stop().await;

    // A later start reads the log, not the tree.
    std::fs::remove_dir_all(root.join(".claude")).unwrap();
    let project = Project::start(options).await.unwrap();
    run_with(&project, "go on").await;
    assert!(requests(&seen).last().unwrap().contains("Review {{other}} $1"));
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p56_allowed_tools_of_a_command_narrow_its_own_calls_and_never_widen_the_policy() {
    let place = Folders::new();
    let root = place.folder("p-root");
    write(&root, ".claude/commands/wide.md", "---\nallowed-tools: Bash(*)\n---\nFirst !`rm -r x` then work.\n");
    write(&root, ".claude/commands/narrow.md", "---\nallowed-tools: Bash(git status)\n---\nFirst !`git status` and !`ls` then work.\n");
    let (url, _) = serve(vec![says("done"), says("done")]).await;
    let policy = serde_json::from_value(json!({"deny": ["Shell(rm *)"]})).unwrap();
    let project = Project::start(ProjectOptions { policy, ..place.options("p", &url) }).await.unwrap();
    let entries = run_with(&project, "/wide").await;
    let wide = expanded(&entries);
    assert!(wide.contains("[Not run: rm -r x: tool_denied"), "{wide}");
    let entries = run_with(&project, "/narrow").await;
    let narrow = expanded(&entries);
    assert!(narrow.contains("belongs here: git status]") && narrow.contains("[Not run: ls: the allowed-tools"), "{narrow}");
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p12_an_invalid_command_and_one_without_its_parameter_fail_the_run_by_name_without_the_model() {
    let place = Folders::new();
    let root = place.folder("p-root");
    let typed = "---\nname: ship\ndescription: Ship.\njido:\n  schema:\n    target:\n      type: string\n      required: true\n---\nShip {{target}}.\n";
    write(&root, ".jido/commands/ship.md", typed);
    write(&root, ".jido/commands/broken.md", "---\nname: broken\ndescription: [unclosed\n---\nDo it.\n");
    let (url, seen) = serve(vec![says("never")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    let entries = run_with(&project, "/ship").await;
    let (outcome, reason, message) = end(&entries);
    assert_eq!((outcome, reason), (RunOutcome::Failed, Some("CommandInvalid")));
    assert!(message.contains("target") && message.contains("ship"), "{message}");
    let entries = run_with(&project, "/broken").await;
    let (outcome, reason, message) = end(&entries);
    assert_eq!((outcome, reason), (RunOutcome::Failed, Some("CommandInvalid")));
    assert!(message.contains(".jido/commands/broken.md"), "{message}");
    assert!(requests(&seen).is_empty());
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p57_whoever_calls_a_workflow_or_the_command_that_starts_it_is_told_that_none_is_run() {
    let place = Folders::new();
    let root = place.folder("p-root");
    let workflow = "---\nname: review\nversion: 1.0.0\n---\n## Steps\n### one\n- **type**: agent\n- **agent**: builder\n";
    write(&root, ".jido/workflows/review.md", workflow);
    write(&root, ".jido/workflows/off.md", &workflow.replace("name: review\n", "name: off\nenabled: false\n"));
    write(&root, ".jido/workflows/bad.md", &workflow.replace("name: review\n", "name: bad\n").replace("agent**: b", "agents**: b"));
    let triggers = json!({"triggers": [{"id": "t", "workflow_id": "review", "type": "manual", "config": {"command": "/workflow:review"}}]});
    write(&root, ".jido/workflows/triggers.json", &triggers.to_string());
    let (url, seen) = serve(vec![says("never")]).await;
    let project = Project::start(place.options("p", &url)).await.unwrap();
    for (text, words) in [
        ("/review it", "/review did nothing: .jido/workflows/review.md is the workflow review, and workflows are not run yet"),
        ("/workflow:review", "/workflow:review did nothing: .jido/workflows/review.md is the workflow review"),
        ("/off", "its file says that it is disabled"),
        ("/bad", "is not as it should be"),
    ] {
        let entries = run_with(&project, text).await;
        let (outcome, reason, message) = end(&entries);
        assert_eq!((outcome, reason), (RunOutcome::Failed, Some("CommandInvalid")), "{text}");
        assert!(message.contains(words), "{text}: {message}");
    }
    assert!(requests(&seen).is_empty());
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_strict_reload_keeps_the_generation_of_before_and_a_lenient_one_lists_the_bad_file() {
    let place = Folders::new();
    let root = place.folder("p-root");
    write(&root, ".claude/skills/deploy/SKILL.md", SKILL);
    let project = Project::start(place.options("p", &silent_url().await)).await.unwrap();
    write(&root, ".claude/skills/bad/SKILL.md", "---\nname: [bad\n---\nx\n");
    let error = project.reload_assets(Strictness::Strict).await.unwrap_err();
    assert!(error.to_string().contains(".claude/skills/bad/SKILL.md"), "{error}");
    assert_eq!((project.assets().generation, project.assets().skills.len()), (1, 1));
    let assets = project.reload_assets(Strictness::Lenient).await.unwrap();
    assert_eq!(assets.generation, 2);
    assert!(assets.skill("deploy").unwrap().state.is_valid());
    let told = |one: &yoi_assets::Diagnostic| one.level == Level::Error && one.path == ".claude/skills/bad/SKILL.md";
    assert!(assets.diagnostics.iter().any(told), "{:?}", assets.diagnostics);
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p7_what_changes_in_a_watched_tree_counts_without_a_run_also_in_folders_that_are_new() {
    let place = Folders::new();
    let root = place.folder("p-root");
    let options = ProjectOptions { watch_assets: true, ..place.options("p", &silent_url().await) };
    let project = Project::start(options).await.unwrap();
    let skills = async |names: &[&str]| {
        let has = async || {
            let assets = project.assets();
            let valid: Vec<&str> = assets.skills.iter().filter(|skill| skill.state.is_valid()).map(|skill| skill.name.as_str()).collect();
            (valid == names).then_some(())
        };
        eventually(&format!("the skills {names:?}"), has).await;
    };
    skills(&[]).await;
    write(&root, ".claude/skills/deploy/SKILL.md", SKILL);
    skills(&["deploy"]).await;
    write(&root, ".claude/skills/deploy/SKILL.md", &SKILL.replace("deploy\n", "rollout\n"));
    skills(&["rollout"]).await;
    write(&root, ".agents/skills/test/SKILL.md", "---\nname: test\ndescription: Run the tests.\n---\nRun make test.\n");
    skills(&["test", "rollout"]).await;
    std::fs::remove_dir_all(root.join(".claude/skills/deploy")).unwrap();
    skills(&["test"]).await;
    project.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p61_what_leads_out_of_the_tree_loops_or_is_no_file_is_refused_by_name_and_the_rest_loads() {
    let place = Folders::new();
    let (root, outside) = (place.folder("p-root"), place.folder("outside"));
    write(&outside, "SKILL.md", SKILL);
    write(&root, ".agents/skills/deploy/SKILL.md", SKILL);
    let skills = root.join(".agents/skills");
    symlink(&outside, skills.join("out")).unwrap();
    symlink(".", skills.join("loop")).unwrap();
    symlink("self", skills.join("self")).unwrap();
    std::fs::create_dir(skills.join("pipe")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, skills.join("pipe/SKILL.md"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    write(&root, ".agents/skills/large/SKILL.md", &"x".repeat(yoi_assets::MAX_FILE_BYTES as usize + 1));
    // What another program is given by a link to the same folder is read once.
    std::fs::create_dir(root.join(".claude")).unwrap();
    symlink(std::path::Path::new("..").join(".agents/skills"), root.join(".claude/skills")).unwrap();
    // The root is a link itself.
    let link = place.0.path().join("link");
    symlink(&root, &link).unwrap();
    let options = ProjectOptions { root: link, ..place.options("p", &silent_url().await) };
    let project = Project::start(options).await.unwrap();
    let assets = project.assets();
    assert!(matches!(assets.skill("deploy").unwrap().state, AssetState::Valid));
    assert_eq!(assets.skills.iter().filter(|skill| skill.state.is_valid()).count(), 1, "{:?}", assets.skills);
    let why = |path: &str| {
        let of_path: Vec<_> = assets.diagnostics.iter().filter(|one| one.path == path).map(|one| one.message.as_str()).collect();
        of_path.join("; ")
    };
    assert!(why(".agents/skills/out").contains("leads out of the tree"), "{:?}", assets.diagnostics);
    assert!(why(".agents/skills/loop").contains("loop"), "{:?}", assets.diagnostics);
    assert!(why(".agents/skills/self").contains("loop of links"), "{:?}", assets.diagnostics);
    assert!(why(".agents/skills/pipe/SKILL.md").contains("no regular file"), "{:?}", assets.diagnostics);
    assert!(why(".agents/skills/large/SKILL.md").contains("1048577 bytes"), "{:?}", assets.diagnostics);
    project.stop().await;
}
