use yoi_assets::{AssetFile, AssetState, FOLDERS, Folder, Kind, Level, Source, Strictness, TEAM_FOLDERS, is_asset, load};

use crate::{assert_message, file, lenient, of_set, skill};

#[test]
fn the_first_folder_wins_by_name_and_each_shadowed_asset_names_the_winner() {
    let folders: Vec<&Folder> = FOLDERS.iter().filter(|folder| folder.kind == Kind::Skills).collect();
    let mut files: Vec<_> = folders.iter().map(|folder| file(&format!("{}/x/SKILL.md", folder.path), skill("x", folder.path))).collect();
    files.reverse();
    for (at, folder) in folders.iter().enumerate() {
        let snapshot = lenient(&files);
        let winner = snapshot.skill("x").expect("the skill");
        assert_eq!((winner.source, winner.description.as_str()), (folder.source, folder.path));
        let shadowed: Vec<_> =
            snapshot.skills.iter().filter(|skill| skill.state == AssetState::Shadowed { by: winner.path.clone() }).collect();
        assert_eq!(shadowed.len(), folders.len() - at - 1);
        for skill in shadowed {
            assert_message(&snapshot, Level::Warning, &format!("{}: is not in effect: the skill \"x\" is {}", skill.path, winner.path));
        }
        files.pop();
    }
    let sources: Vec<_> = folders.iter().map(|folder| folder.source.as_str()).collect();
    assert_eq!(sources, [".jido", ".agents", ".claude", ".github", ".gemini", ".jido_code"]);
}

#[test]
fn a_teams_sets_come_after_the_tree_in_their_order_and_are_named_where_one_of_them_wins() {
    let skills: Vec<&Folder> = TEAM_FOLDERS.iter().filter(|folder| folder.kind == Kind::Skills).collect();
    assert_eq!(skills.iter().map(|folder| folder.path).collect::<Vec<_>>(), ["skills"]);
    let files = [
        of_set(1, "configmap/all/skills/x/SKILL.md", skill("x", "of all")),
        of_set(1, "configmap/all/commands/say.md", "Say it."),
        of_set(0, "configmap/team/skills/x/SKILL.md", skill("x", "of the team")),
        of_set(0, "configmap/team/skills/y/SKILL.md", skill("y", "of the team")),
        // No set has the other folders, and a path of a set is none of the tree's.
        of_set(0, "configmap/team/.claude/commands/no.md", "no"),
        file("configmap/team/skills/z/SKILL.md", skill("z", "of nobody")),
        file(".jido_code/skills/x/SKILL.md", skill("x", "of the tree")),
    ];
    let snapshot = lenient(&files);
    let paths: Vec<_> = snapshot.skills.iter().map(|skill| (skill.path.as_str(), skill.state.as_str())).collect();
    assert_eq!(
        paths,
        [
            (".jido_code/skills/x/SKILL.md", "Valid"),
            ("configmap/team/skills/x/SKILL.md", "Shadowed"),
            ("configmap/team/skills/y/SKILL.md", "Valid"),
            ("configmap/all/skills/x/SKILL.md", "Shadowed"),
        ]
    );
    assert_message(
        &snapshot,
        Level::Warning,
        "configmap/all/skills/x/SKILL.md: is not in effect: the skill \"x\" is .jido_code/skills/x/SKILL.md",
    );
    let y = snapshot.skill("y").unwrap();
    assert_eq!((y.source, y.source.name_of(&y.path)), (Source::Team, "configmap/team"));
    assert_eq!(snapshot.command("say").unwrap().path, "configmap/all/commands/say.md");
    assert_eq!(lenient(&files[..6]).skill("x").unwrap().path, "configmap/team/skills/x/SKILL.md");
    assert_eq!(Source::Claude.name_of(".claude/skills/x/SKILL.md"), ".claude");
    assert!(load(&files, 1, Strictness::Strict).is_ok(), "two sets may have one name");
}

#[test]
fn commands_and_skills_of_one_name_are_told_and_the_skill_is_called() {
    let snapshot = lenient(&[
        file(".claude/commands/a/do.md", "first"),
        file(".claude/commands/b/do.md", "second"),
        file(".gemini/commands/do.toml", "prompt = 'third'"),
        file(".jido/commands/do.md", "---\nname: other\ndescription: y\n---\n"),
        file(".claude/commands/x.md", "a command"),
        file(".claude/skills/x/SKILL.md", skill("x", "a skill")),
    ]);
    assert_eq!(snapshot.command("do").unwrap().path, ".claude/commands/a/do.md");
    assert_eq!(snapshot.commands.iter().filter(|command| command.state.as_str() == "Shadowed").count(), 3);
    assert_message(&snapshot, Level::Warning, "x.md: is not called: /x is the skill .claude/skills/x/SKILL.md");
}

#[test]
fn an_invalid_asset_takes_no_name() {
    let snapshot = lenient(&[
        file(".jido/skills/x/SKILL.md", "---\nname: x\n---\n"),
        file(".claude/skills/x/SKILL.md", skill("x", "This one works.")),
    ]);
    assert_eq!(snapshot.skill("x").unwrap().source, Source::Claude);
    assert!(matches!(snapshot.skills[0].state, AssetState::Invalid { .. }));
}

#[test]
fn p6_a_file_turned_invalid_is_listed_in_lenient_reading_and_refuses_strict_reading() {
    let good = [file(".jido/skills/a/SKILL.md", skill("a", "x")), file(".jido/skills/b/SKILL.md", skill("b", "y"))];
    let first = load(&good, 1, Strictness::Strict).expect("both are good");
    let bad = [good[0].clone(), file(".jido/skills/b/SKILL.md", "---\nname: [\n---\n")];
    let error = load(&bad, 2, Strictness::Strict).expect_err("one is not");
    assert_eq!((error.diagnostics.len(), error.diagnostics[0].line), (1, error.diagnostics[0].line));
    assert!(error.to_string().contains(".jido/skills/b/SKILL.md"), "{error}");
    let second = lenient(&bad);
    assert!(second.skill("a").unwrap().state.is_valid() && !second.skill("b").unwrap().state.is_valid());
    assert_ne!(first.digest, second.digest);
    let doubled = [file(".jido/skills/a/SKILL.md", skill("a", "x")), file(".jido/skills/b/a/SKILL.md", skill("a", "x"))];
    assert!(load(&doubled, 2, Strictness::Strict).is_err(), "two of one name in one folder are a mistake");
    let other = [file(".jido/skills/a/SKILL.md", skill("a", "x")), file(".claude/skills/a/SKILL.md", skill("a", "x"))];
    assert!(load(&other, 2, Strictness::Strict).is_ok(), "in two folders the first stands before the second");
}

#[test]
fn what_was_not_read_is_listed_with_the_readers_reason() {
    let unread = |path: &str, why: &str| AssetFile { path: path.to_owned(), set: None, content: Err(why.to_owned()) };
    let snapshot = lenient(&[
        unread(".claude/skills/out/SKILL.md", "leads out of the tree"),
        unread(".claude/commands/pipe.md", "is no file"),
        unread(".jido/skill_graph/n.md", "leads out of the tree"),
        unread(".claude/skills/a/b/c/d/e/f", "is deeper than 6 folders"),
        file(".claude/skills/x/script.sh", "echo"),
        file("elsewhere/SKILL.md", skill("elsewhere", "x")),
    ]);
    assert_eq!((snapshot.skills.len(), snapshot.commands.len(), snapshot.diagnostics.len()), (1, 1, 4));
    assert!(matches!(&snapshot.skill("out").unwrap().state, AssetState::Invalid { reason, .. } if reason == "leads out of the tree"));
    assert_message(&snapshot, Level::Error, ".claude/skills/a/b/c/d/e/f: is deeper than 6 folders");
}

#[test]
fn the_same_files_are_the_same_snapshot_in_any_order() {
    let mut files = vec![
        file(".jido/skills/a/SKILL.md", skill("a", "x")),
        file(".claude/skills/a/SKILL.md", skill("a", "y")),
        file(".claude/commands/c.md", "$1"),
        file(".jido/skill_graph/n.md", "[[a]]"),
        file(".jido/skill_graph/graph.yml", "graph_id: g"),
    ];
    let first = lenient(&files);
    for _ in 0..files.len() {
        files.rotate_left(1);
        assert_eq!(lenient(&files), first);
    }
    files[0].path.push('x');
    assert_ne!(lenient(&files).digest, first.digest);
    assert_eq!(
        serde_json::to_value(&first).expect("JSON")["skills"][1]["state"],
        serde_json::json!({"state": "Shadowed", "by": first.skills[0].path})
    );
}

#[test]
fn only_files_of_the_formats_are_assets() {
    let is = |path: &str, below: &str| is_asset(FOLDERS.iter().find(|folder| folder.path == path).expect("a folder"), below);
    assert!(is(".claude/skills", "x/SKILL.md") && is(".claude/skills", "x/skill.md") && !is(".claude/skills", "x/README.md"));
    assert!(is(".claude/commands", "a/b.md") && !is(".claude/commands", ".md") && !is(".claude/commands", "a.toml"));
    assert!(is(".gemini/commands", "a/b.toml") && !is(".gemini/commands", "a.md"));
    assert!(is(".jido/skill_graph", "graph.yml") && is(".jido/skill_graph", "a/b.md") && !is(".jido/skill_graph", "a/graph.yml"));
}

#[test]
fn search_finds_by_name_text_and_path_in_any_case_and_only_what_is_in_effect() {
    let snapshot = lenient(&[
        file(".jido/skills/a/SKILL.md", "---\nname: a\ndescription: x\n---\nfirst\nThe ZEBRA line\n"),
        file(".claude/skills/a/SKILL.md", skill("a", "zebra")),
        file(".claude/commands/zebra/c.md", "nothing"),
    ]);
    let found: Vec<_> = snapshot.search(" zebra ").into_iter().map(|found| (found.path, found.excerpt)).collect();
    let expected = [(".jido/skills/a/SKILL.md", "The ZEBRA line"), (".claude/commands/zebra/c.md", ".claude/commands/zebra/c.md")];
    assert_eq!(found, expected.map(|(path, excerpt)| (path.to_owned(), excerpt.to_owned())));
    assert!(snapshot.search("").is_empty());
}
