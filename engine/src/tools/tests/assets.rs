//! The tools that ask the assets of a tree.

use yoi_wire::assets::{AssetSet, AssetSettings};
use yoi_wire::mode::Mode;

use super::*;
use crate::assets::{Expansion, expand};

const PLAIN: &str = "---\ndescription: Ship it.\n---\nShip $ARGUMENTS after !`git status` as usual.\n";
const TYPED: &str = "---\nname: release\ndescription: Release.\njido:\n  schema:\n    version:\n      type: string\n      required: true\n---\nRelease {{version}}.\n";

fn with_graph() -> Fixture {
    let fixture = Fixture::new();
    let build = "---\ntitle: Building\ntags: [make]\n---\nRun make. See [[prereq:tools|first]] and [[nowhere]].\n";
    fixture.write(".jido/skill_graph/build.md", build);
    fixture.write(".jido/skill_graph/tools.md", "# Tools\nInstall them by hand, as [[a/setup]] says.\n");
    fixture.write(".jido/skill_graph/a/setup.md", "# Setup\nOf a.\n");
    fixture.write(".jido/skill_graph/b/setup.md", "# Setup\nOf b.\n");
    fixture
}

fn names(fixture: &Fixture, to: CallFrom) -> Vec<String> {
    fixture.gate.offered(to).into_iter().map(|tool| tool.name).collect()
}

#[tokio::test]
async fn p62_each_query_of_the_graph_has_its_answer() {
    let fixture = with_graph();
    let ask = async |args: Value| fixture.succeed("Graph", args).await;
    let node = ask(json!({"query": "node", "node": "Build"})).await;
    assert_eq!(
        node,
        "build: Building (.jido/skill_graph/build.md)\nTags: make\nLinks:\n-> prereq tools (first)\n-> related nowhere: no such node\n\nRun make. See [[prereq:tools|first]] and [[nowhere]]."
    );
    let links = ask(json!({"query": "links", "node": "tools", "direction": "in"})).await;
    assert_eq!(links, "Links of tools:\n<- prereq build (first)");
    let near = ask(json!({"query": "neighbours", "node": "build", "hops": 2})).await;
    let lines = ["1 tools: Tools (.jido/skill_graph/tools.md)", "2 a/setup: Setup (.jido/skill_graph/a/setup.md)"];
    assert_eq!(near, format!("Neighbours of build, each with the number of links between:\n{}", lines.join("\n")));
    let found = ask(json!({"query": "search", "text": "BY HAND"})).await;
    assert_eq!(found, "Nodes with \"BY HAND\":\ntools: Tools (.jido/skill_graph/tools.md)");
    assert_eq!(ask(json!({"query": "search", "text": "zzz"})).await, "Nodes with \"zzz\": There are none.");
    let form = ask(json!({"query": "topology"})).await;
    assert!(form.starts_with("4 nodes, 0 of them without a file; 2 links, and 1 that lead to no node or to several; 2 parts"), "{form}");
    assert!(form.contains("Nodes that nothing leads to:\nbuild") && form.ends_with("Nodes without links:\nb/setup"), "{form}");
}

#[test]
fn p22_a_query_of_the_graph_that_names_no_node_or_several_is_refused_with_what_to_do() {
    let fixture = with_graph();
    for (args, sentence) in [
        (json!({}), "missing field `query`"),
        (json!({"query": "nodes"}), "/query: unknown variant `nodes`"),
        (json!({"query": "node"}), "/node: this query needs the id of a node"),
        (json!({"query": "links", "node": "none"}), "/node: there is no node \"none\"; find one by the query `search`"),
        (json!({"query": "node", "node": "setup"}), "/node: \"setup\" could be a/setup, b/setup; write the whole id"),
        (json!({"query": "search", "text": " "}), "/text: this query needs the text to look for"),
        (json!({"query": "neighbours", "node": "tools", "hops": 17}), "/hops: must be from 1 to 16"),
    ] {
        let message = fixture.refuse("Graph", args).message;
        assert!(message.starts_with(&format!("invalid_args: {sentence}")), "{message}");
    }
}

#[tokio::test]
async fn answers_of_the_graph_are_bounded() {
    let fixture = Fixture::new();
    let links: String = (0..500).map(|number| format!("[[prereq:n{number}]] ")).collect();
    fixture.write(".jido/skill_graph/hub.md", format!("{links}{}", "x".repeat(900_000)));
    for number in 0..500 {
        fixture.write(&format!(".jido/skill_graph/n{number}.md"), format!("# {}\n", "long ".repeat(200)));
    }
    let limit = RunLimits::default().tool_output_bytes as usize;
    for args in [
        json!({"query": "node", "node": "hub"}),
        json!({"query": "links", "node": "hub"}),
        json!({"query": "neighbours", "node": "hub"}),
        json!({"query": "search", "text": "long"}),
        json!({"query": "topology"}),
    ] {
        let answer = fixture.succeed("Graph", args.clone()).await;
        assert!(answer.len() <= limit, "{args}: {}", answer.len());
        assert!(answer.lines().count() < 450, "{args}");
    }
    let links = fixture.succeed("Graph", json!({"query": "links", "node": "hub"})).await;
    assert!(links.ends_with("[300 more are not shown]"), "{links}");
}

#[test]
fn the_tools_of_assets_are_offered_where_the_tree_has_any_for_whoever_asks() {
    let bare = Fixture::new();
    assert!(names(&bare, CallFrom::Model).iter().all(|name| !matches!(name.as_str(), "Skill" | "Graph" | "Command")));
    assert_eq!(names(&with_graph(), CallFrom::Mcp), ["Graph", "ListPods", "SendToPeerPod", "RestorePod"]);
    // A program reads commands of its own format itself.
    let foreign = Fixture::new();
    foreign.write(".claude/commands/ship.md", PLAIN);
    assert_eq!(names(&foreign, CallFrom::Mcp), ["ListPods", "SendToPeerPod", "RestorePod"]);
    assert!(names(&foreign, CallFrom::Model).contains(&"Command".to_owned()));
    foreign.write(".jido/commands/release.md", TYPED);
    foreign.gate.runner().assets().look();
    let description = |to| foreign.gate.offered(to).into_iter().find(|tool| tool.name == "Command").unwrap().description;
    assert!(description(CallFrom::Mcp).ends_with("Commands:\n- /release version=...: Release."), "{}", description(CallFrom::Mcp));
    assert!(description(CallFrom::Model).contains("\n- /ship [TEXT]: Ship it."), "{}", description(CallFrom::Model));
    // The policy closes them as any tool.
    let denied = Fixture::with_policy(&ToolPolicy { deny: vec!["Graph".to_owned(), "Command".to_owned()], ..ToolPolicy::default() });
    denied.write(".jido/skill_graph/a.md", "# A\n");
    denied.write(".jido/commands/release.md", TYPED);
    assert_eq!(names(&denied, CallFrom::Mcp), ["ListPods", "SendToPeerPod", "RestorePod"]);
    assert_eq!(denied.refuse("Graph", json!({"query": "topology"})).class, RefusalClass::ToolDenied);
}

#[tokio::test]
async fn a_program_gets_the_skills_and_commands_of_its_teams_sets_by_tools_and_reads_those_of_its_tree_itself() {
    let (fixture, team) = (Fixture::new(), tempfile::tempdir().unwrap());
    fixture.write(".claude/skills/own/SKILL.md", "---\nname: own\ndescription: Of the tree.\n---\nx\n");
    fs::write(team.path().join("skills.review.md"), "---\nname: review\ndescription: Review a change.\n---\nRead it twice.\n").unwrap();
    fs::write(team.path().join("commands.ship.md"), PLAIN).unwrap();
    let set =
        AssetSet { name: "configmap/team".to_owned(), folder: team.path().to_str().unwrap().to_owned(), fetched: false, optional: false };
    fixture.gate.runner().assets().set_settings(AssetSettings { sets: vec![set], ..AssetSettings::default() });
    assert_eq!(names(&fixture, CallFrom::Mcp), ["Skill", "Command", "ListPods", "SendToPeerPod", "RestorePod"]);
    let description = |to| fixture.gate.offered(to).into_iter().find(|tool| tool.name == "Skill").unwrap().description;
    assert!(description(CallFrom::Mcp).ends_with(" Skills:\n- review: Review a change."), "{}", description(CallFrom::Mcp));
    assert!(!description(CallFrom::Model).contains("Review a change"), "the model has the list in its prompt");
    let text = fixture.succeed("Skill", json!({"name": "review"})).await;
    assert_eq!(text, "Skill review, of configmap/team/skills/review/SKILL.md. It has no other files.\n\nRead it twice.");
}

#[tokio::test]
async fn the_files_of_a_fetched_sets_skill_are_named_by_the_path_at_which_a_command_reads_them() {
    let (fixture, team) = (Fixture::new(), tempfile::tempdir().unwrap());
    let folder = team.path().join("files/skills/review");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("SKILL.md"), "---\nname: review\ndescription: Review a change.\n---\nRead list.md.\n").unwrap();
    let set = AssetSet { name: "git/team".to_owned(), folder: team.path().to_str().unwrap().to_owned(), fetched: true, optional: false };
    fixture.gate.runner().assets().set_settings(AssetSettings { sets: vec![set], ..AssetSettings::default() });
    let text = fixture.succeed("Skill", json!({"name": "review"})).await;
    let begins = format!("Skill review, of git/team/skills/review/SKILL.md. Its files are in {}, outside of the tree", folder.display());
    assert!(text.starts_with(&begins), "{text}");
}

#[test]
fn p29_in_planning_the_graph_is_open_and_a_command_is_not_exposed() {
    let fixture = with_graph();
    fixture.write(".claude/commands/ship.md", PLAIN);
    fixture.gate.runner().assets().look();
    fixture.gate.set_mode(Some(Mode::Planning));
    let now: Vec<String> = fixture.gate.offered_now(CallFrom::Model).into_iter().map(|tool| tool.name).collect();
    assert!(now.contains(&"Graph".to_owned()) && !now.contains(&"Command".to_owned()), "{now:?}");
    let refusal = fixture.refuse("Command", json!({"name": "ship"}));
    assert_eq!(refusal.class, RefusalClass::ToolNotExposed);
    assert!(refusal.message.contains("Graph") && !refusal.message.contains("Command"), "{}", refusal.message);
    fixture.gate.set_mode(Some(Mode::Coding));
    assert!(fixture.gate.offered_now(CallFrom::Model).iter().any(|tool| tool.name == "Command"));
}

#[tokio::test]
async fn p46_p56_a_command_as_a_tool_gives_text_and_its_calls_are_left_to_the_model_as_far_as_its_list_has_them() {
    let fixture = Fixture::new();
    fixture.write(".claude/commands/ship.md", PLAIN);
    fixture.write(".claude/commands/narrow.md", PLAIN.replacen("---\n", "---\nallowed-tools: Bash(ls)\n", 1));
    fixture.write(".jido/commands/release.md", TYPED);
    let text = fixture.succeed("Command", json!({"name": "ship", "arguments": "{{x}} $(touch made)"})).await;
    assert_eq!(
        text.trim_end(),
        "[The command /ship of .claude/commands/ship.md]\nShip {{x}} $(touch made) after [Run this in a shell; its output belongs here: git status] as usual."
    );
    assert!(!fixture.path("made").exists());
    let text = fixture.succeed("Command", json!({"name": "narrow"})).await;
    assert!(text.contains("[Left out, the allowed-tools of the command do not name it: {\"command\":\"git status\"}]"), "{text}");
    let text = fixture.succeed("Command", json!({"name": "release", "arguments": "{\"version\": \"1.2\"}"})).await;
    assert!(text.ends_with("Release 1.2.\n") || text.ends_with("Release 1.2."), "{text}");
    let missing = fixture.refuse("Command", json!({"name": "release"})).message;
    assert!(missing.contains("/arguments: the command \"release\" needs a value for version"), "{missing}");
}

#[tokio::test]
async fn p55_a_command_whose_text_is_over_the_cap_is_cut_and_says_so_and_the_call_succeeds() {
    let fixture = Fixture::new();
    fixture.write(".claude/commands/long.md", format!("---\ndescription: Long.\n---\nBegin. {}End.\n", "x ".repeat(300_000)));
    let text = fixture.succeed("Command", json!({"name": "long"})).await;
    assert!(text.len() <= RunLimits::default().tool_output_bytes as usize, "{}", text.len());
    assert!(text.contains("Begin.") && text.trim_end().ends_with("End.") && text.contains("bytes left out"), "{}", &text[..200]);
    // In a person's message, too.
    let Expansion::Text { text, .. } = expand(&fixture.gate, "/long") else { panic!("no text") };
    assert!(text.len() <= 256 << 10 && text.contains("bytes left out"), "{}", text.len());
}

#[test]
fn p12_an_invalid_command_is_no_tool_and_does_nothing() {
    let fixture = Fixture::new();
    fixture.write(".jido/commands/broken.md", "---\nname: broken\ndescription: [unclosed\n---\nDo it.\n");
    fixture.write(".claude/commands/own.md", PLAIN.replacen("---\n", "---\ndisable-model-invocation: true\n", 1));
    assert!(!names(&fixture, CallFrom::Model).contains(&"Command".to_owned()));
    let refused = fixture.refuse("Command", json!({"name": "broken"})).message;
    assert!(refused.contains(".jido/commands/broken.md is not as it should be, so nothing was done"), "{refused}");
    assert!(fixture.refuse("Command", json!({"name": "own"})).message.contains("no command \"own\" for you: there is none at all"));
}
