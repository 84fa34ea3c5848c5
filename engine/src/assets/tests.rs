use std::os::unix::fs::symlink;
use std::path::Path;

use tokio_util::sync::CancellationToken;
use yoi_wire::assets::{AssetSet, FetchedSet};
use yoi_wire::entry::Body;

use super::*;

fn skill(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Of {name}.\n---\n{body}\n")
}

fn write(root: &Path, name: &str, body: &str) {
    let folder = root.join(".agents/skills").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("SKILL.md"), skill(name, body)).unwrap();
}

fn assets(root: &Path) -> ProjectAssets {
    ProjectAssets::new(Arc::new(Tree::open(root).unwrap()))
}

#[test]
fn p62_whoever_asks_during_reloads_has_one_whole_generation() {
    let root = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        write(root.path(), name, "0");
    }
    let assets = assets(root.path());
    let before = assets.look();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 0;
            while last < 20 {
                let snapshot = assets.current();
                assert!(snapshot.generation >= last, "an older generation came back");
                last = snapshot.generation;
                // Each generation has as many skills as it was read with.
                let all = snapshot.skills.len() as u64 == 1 + snapshot.generation;
                assert!(all, "generation {} shows other skills than it was read with: {:?}", snapshot.generation, snapshot.skills);
            }
        });
        for round in 2..=20 {
            write(root.path(), &format!("more-{round}"), "x");
            assert_eq!(assets.look().generation, round);
        }
        reader.join().unwrap();
    });
    assert_eq!((before.generation, before.skills.len()), (1, 2), "a snapshot that somebody holds changes");
    assert_eq!(assets.look().generation, 20, "nothing has changed");
}

#[test]
fn a_skills_own_files_and_folders_hold_no_further_skills_and_depth_and_size_are_bounded_by_name() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a", "x");
    write(root.path(), "a/references/inner", "x");
    write(root.path(), "node_modules/foreign", "x");
    write(root.path(), "1/2/3/4/5/6/7", "x");
    let snapshot = assets(root.path()).look();
    assert_eq!(snapshot.skills.iter().filter(|skill| skill.state.is_valid()).count(), 1, "{:?}", snapshot.skills);
    let too_deep = snapshot.diagnostics.iter().find(|one| one.path.ends_with("1/2/3/4/5/6/7")).unwrap();
    assert!(too_deep.message.contains("deeper than 6 folders"), "{too_deep}");
}

fn break_skill(root: &Path, name: &str) {
    std::fs::write(root.join(".agents/skills").join(name).join("SKILL.md"), "---\nname: [\n---\n").unwrap();
}

#[test]
fn p6_in_a_strict_project_an_invalid_file_stops_the_swap_is_told_and_counts_once_it_is_mended() {
    let root = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        write(root.path(), name, "0");
    }
    let assets = assets(root.path());
    assets.set_settings(AssetSettings { strict: true, ..AssetSettings::default() });
    assert_eq!((assets.look().generation, assets.loaded().refused), (1, None));
    break_skill(root.path(), "b");
    write(root.path(), "c", "0");
    let after = assets.look();
    assert_eq!((after.generation, after.skills.len()), (1, 2), "what was loaded before counts on, whole");
    let refused = assets.loaded().refused.expect("it is told");
    assert!(refused.to_string().contains(".agents/skills/b/SKILL.md:3"), "{refused}");
    let listed = listing(&assets.loaded());
    assert_eq!((listed.assets.len(), listed.refused[0].path.as_str(), listed.refused[0].line), (2, ".agents/skills/b/SKILL.md", Some(3)));
    let reported = report(&assets.loaded()).expect("a strict project is reported");
    assert_eq!((reported.refused, reported.counts.skills, reported.counts.errors), (true, 2, 1));
    assert!(reported.first_errors[0].starts_with(".agents/skills/b/SKILL.md:3: "), "{reported:?}");
    assert!(assets.reload(Strictness::Lenient).is_err(), "an asker cannot make it lenient");
    write(root.path(), "b", "1");
    assert_eq!((assets.look().skills.len(), assets.loaded().refused), (3, None));
}

#[test]
fn a_strict_project_whose_first_files_are_invalid_has_none_and_a_strict_asker_leaves_a_lenient_one_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a", "0");
    break_skill(root.path(), "a");
    let strict = assets(root.path());
    strict.set_settings(AssetSettings { strict: true, ..AssetSettings::default() });
    assert_eq!((strict.current().generation, strict.current().skills.len()), (0, 0));
    assert!(strict.loaded().refused.is_some());
    let lenient = assets(root.path());
    assert_eq!(lenient.look().generation, 1);
    assert!(lenient.reload(Strictness::Strict).is_err());
    let loaded = lenient.loaded();
    assert!(loaded.refused.is_none() && loaded.last_refused.is_some());
    assert_eq!(lenient.reload(Strictness::Lenient).unwrap().generation, 2);
}

#[test]
fn only_the_folders_that_the_project_names_are_read() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a", "0");
    for folder in [".claude/commands", ".jido/commands"] {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    std::fs::write(root.path().join(".claude/commands/c.md"), "Do it.").unwrap();
    let assets = assets(root.path());
    let counts = |dirs: Option<&[&str]>| {
        let dirs = dirs.map(|dirs| dirs.iter().map(|dir| (*dir).to_owned()).collect());
        assets.set_settings(AssetSettings { dirs, ..AssetSettings::default() });
        let snapshot = assets.current();
        (snapshot.skills.len(), snapshot.commands.len())
    };
    assert_eq!(counts(None), (1, 1));
    assert_eq!(counts(Some(&[".claude", ".jido"])), (0, 1));
    assert_eq!(counts(Some(&[".agents"])), (1, 0));
    assert_eq!(counts(Some(&[])), (0, 0));
}

/// Writes a ConfigMap as the kubelet does: links to links, of which one is exchanged.
fn mount_config_map(folder: &Path, version: &str, keys: &[(&str, &str)]) {
    let data = folder.join(format!("..{version}"));
    std::fs::create_dir_all(&data).unwrap();
    for (key, text) in keys {
        std::fs::write(data.join(key), text).unwrap();
        if folder.join(key).symlink_metadata().is_err() {
            symlink(Path::new("..data").join(key), folder.join(key)).unwrap();
        }
    }
    let next = folder.join("..data_tmp");
    symlink(format!("..{version}"), &next).unwrap();
    std::fs::rename(next, folder.join("..data")).unwrap();
}

fn with_set(root: &Path, folder: &Path, optional: bool) -> ProjectAssets {
    let assets = assets(root);
    let set = AssetSet { name: "configmap/team".to_owned(), folder: folder.to_str().unwrap().to_owned(), fetched: false, optional };
    assets.set_settings(AssetSettings { sets: vec![set], ..AssetSettings::default() });
    assets
}

#[test]
fn a_teams_config_map_comes_after_the_tree_and_is_named_and_what_of_it_is_none_or_leads_out_is_told() {
    let (root, team) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(root.path(), "deploy", "of the tree");
    std::fs::write(root.path().join("secret"), "x").unwrap();
    std::fs::create_dir_all(root.path().join(".jido/skill_graph")).unwrap();
    std::fs::write(root.path().join(".jido/skill_graph/rules.md"), "# Rules of the tree\n").unwrap();
    let keys = [
        ("skills.deploy.md", skill("deploy", "of the team")),
        ("skills.review.md", skill("review", "of the team")),
        ("commands.say.md", "Say $ARGUMENTS.".to_owned()),
        ("workflows.ship.md", "---\nname: ship\nversion: 1.0.0\n---\n## Steps\n\n### one\n- **type**: agent\n- **agent**: a\n".to_owned()),
        ("skill_graph.house.md", "# House\nSee [[rules]].\n".to_owned()),
        ("skill_graph.rules.md", "# Rules of the team\n".to_owned()),
        ("AGENTS.md", "Be brief.".to_owned()),
        ("README.md", "x".to_owned()),
    ];
    mount_config_map(team.path(), "1", &keys.each_ref().map(|(key, text)| (*key, text.as_str())));
    symlink(root.path().join("secret"), team.path().join("skills.out.md")).unwrap();
    let assets = with_set(root.path(), team.path(), false);
    let snapshot = assets.look();
    assert_eq!(snapshot.skill("deploy").unwrap().body.trim(), "of the tree");
    let listed = listing(&assets.loaded()).assets;
    let of = |name: &str, state: &str| {
        listed.iter().find(|one| one.name == name && one.state == state).map(|one| (one.path.as_str(), one.source.as_str()))
    };
    assert_eq!(of("deploy", "Shadowed"), Some(("configmap/team/skills/deploy/SKILL.md", "configmap/team")));
    assert_eq!(of("review", "Valid"), Some(("configmap/team/skills/review/SKILL.md", "configmap/team")));
    assert_eq!(of("say", "Valid"), Some(("configmap/team/commands/say.md", "configmap/team")));
    assert_eq!(of("out", "Invalid").map(|(path, _)| path), Some("configmap/team/skills/out/SKILL.md"));
    assert_eq!(of("ship", "Valid"), Some(("configmap/team/workflows/ship.md", "configmap/team")));
    let node = |id: &str| snapshot.graph.nodes.get(id).map(|node| (node.path.as_str(), node.title.as_str()));
    assert_eq!(node("rules"), Some((".jido/skill_graph/rules.md", "Rules of the tree")), "the tree's own comes first");
    assert_eq!(node("house"), Some(("configmap/team/skill_graph/house.md", "House")));
    assert_eq!(snapshot.graph.edges.len(), 1);
    let instructions = assets.roots_of_sets().into_iter().map(|(set, root)| (set, root.read("AGENTS.md").is_ok()));
    assert_eq!(instructions.collect::<Vec<_>>(), [("configmap/team".to_owned(), true)]);
    let told = |path: &str, words: &str| snapshot.diagnostics.iter().any(|one| one.path == path && one.message.contains(words));
    assert!(told("configmap/team/README.md", "none of skills.NAME.md, commands.NAME.md"), "{:?}", snapshot.diagnostics);
    assert!(told("configmap/team/skills/out/SKILL.md", "leads out"), "{:?}", snapshot.diagnostics);
    assert_eq!(assets.look().generation, 1, "nothing has changed");
    mount_config_map(team.path(), "2", &[("skills.review.md", &skill("review", "changed")), ("commands.say.md", "Say it.")]);
    assert_eq!(assets.look().skill("review").unwrap().body.trim(), "changed");
}

#[test]
fn a_config_map_that_is_missing_is_told_where_the_project_names_it_and_not_where_the_chart_does() {
    let (root, team) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [team.path().to_owned(), team.path().join("none")] {
        let missing = with_set(root.path(), &folder, false).look();
        assert_eq!(missing.diagnostics.len(), 1, "{:?}", missing.diagnostics);
        assert!(
            missing.diagnostics[0].to_string().starts_with("configmap/team: it is not in the agent's namespace"),
            "{:?}",
            missing.diagnostics
        );
        let of_chart = with_set(root.path(), &folder, true);
        assert!(of_chart.look().diagnostics.is_empty());
        assert_eq!(report(&of_chart.loaded()), None, "an agent without any assets says nothing of them");
    }
}

/// A set as the container that has fetched it leaves it, and its project; `strict` is the project's.
fn with_fetched(root: &Path, folder: &Path, strict: bool, optional: bool) -> ProjectAssets {
    let assets = assets(root);
    let set = AssetSet { name: "git/team".to_owned(), folder: folder.to_str().unwrap().to_owned(), fetched: true, optional };
    assets.set_settings(AssetSettings { strict, sets: vec![set], ..AssetSettings::default() });
    assets
}

#[test]
fn a_fetched_set_comes_after_the_tree_has_files_beside_its_skills_and_says_of_which_commit_it_is() {
    let (root, team) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(root.path(), "deploy", "of the tree");
    let files = team.path().join("files");
    for (path, text) in [
        ("skills/deploy/SKILL.md", skill("deploy", "of the team")),
        ("skills/review/SKILL.md", skill("review", "of the team")),
        ("skills/review/references/inner/SKILL.md", skill("inner", "of no one")),
        ("commands/web/say.md", "Say $ARGUMENTS.".to_owned()),
        ("README.md", "x".to_owned()),
    ] {
        let path = files.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    symlink("/etc/passwd", files.join("commands/out.md")).unwrap();
    std::fs::write(team.path().join("revision"), "0123\n").unwrap();
    let assets = with_fetched(root.path(), team.path(), false, false);
    let snapshot = assets.look();
    assert_eq!(snapshot.skill("deploy").unwrap().body.trim(), "of the tree");
    let listed = listing(&assets.loaded());
    let of = |name: &str, state: &str| {
        let found = listed.assets.iter().find(|one| one.name == name && one.state == state);
        found.map(|one| (one.path.as_str(), one.source.as_str()))
    };
    assert_eq!(of("deploy", "Shadowed"), Some(("git/team/skills/deploy/SKILL.md", "git/team")));
    assert_eq!(of("review", "Valid"), Some(("git/team/skills/review/SKILL.md", "git/team")));
    assert_eq!(of("say", "Valid"), Some(("git/team/commands/web/say.md", "git/team")));
    assert_eq!(of("out", "Invalid").map(|(path, _)| path), Some("git/team/commands/out.md"), "{:?}", snapshot.diagnostics);
    assert!(snapshot.skill("inner").is_none(), "a skill's own files are no skills");
    assert_eq!(listed.sets, [FetchedSet { name: "git/team".to_owned(), revision: Some("0123".to_owned()), missing: None }]);
    assert_eq!(assets.folder_in_set("git/team/skills/review/SKILL.md"), Some(files.join("skills/review")));
    assert_eq!(assets.folder_in_set(".agents/skills/deploy/SKILL.md"), None);
    assert_eq!(assets.look().generation, 1, "nothing has changed");
}

#[test]
fn a_set_that_was_not_fetched_is_told_with_the_reason_and_the_charts_own_refuses_nothing() {
    let (root, team) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(root.path(), "a", "0");
    std::fs::write(team.path().join("failure"), "the source has no branch gone\n").unwrap();
    let assets = with_fetched(root.path(), team.path(), false, false);
    let why = "git/team: is not fetched: the source has no branch gone";
    assert_eq!(assets.look().diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>(), [why]);
    assert_eq!(report(&assets.loaded()).unwrap().first_errors, [why]);
    assert_eq!(listing(&assets.loaded()).sets[0].missing.as_deref(), Some("is not fetched: the source has no branch gone"));
    let of_chart = with_fetched(root.path(), team.path(), true, true);
    assert_eq!((of_chart.look().skills.len(), of_chart.loaded().refused), (1, None), "a strict project's own files count");
    // A stopped agent is read without its sets, and nothing is refused for that.
    let stopped = with_fetched(root.path(), Path::new(""), true, false);
    assert_eq!((stopped.look().skills.len(), stopped.loaded().refused), (1, None));
    assert!(listing(&stopped.loaded()).sets[0].missing.as_ref().unwrap().starts_with("is fetched when the agent starts"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p7_a_change_of_a_config_map_is_seen_while_it_is_watched() {
    let (root, team) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    mount_config_map(team.path(), "1", &[("commands.say.md", "First.")]);
    let (assets, stop) = (Arc::new(with_set(root.path(), team.path(), false)), CancellationToken::new());
    let mut loaded = assets.subscribe();
    let watching = tokio::spawn(watch(assets.clone(), stop.clone()));
    let says = |loaded: &LoadedAssets, text: &str| loaded.snapshot.command("say").is_some_and(|say| say.body.contains(text));
    loaded.wait_for(|loaded| says(loaded, "First.")).await.unwrap();
    mount_config_map(team.path(), "2", &[("commands.say.md", "Second.")]);
    loaded.wait_for(|loaded| says(loaded, "Second.")).await.unwrap();
    stop.cancel();
    watching.await.unwrap();
}

#[test]
fn what_is_loaded_and_refused_is_a_signal_and_a_project_without_assets_has_none() {
    let root = tempfile::tempdir().unwrap();
    let assets = assets(root.path());
    assets.look();
    assert_eq!(AssetNews::new(&assets.loaded(), false), None);
    let signal = |was_told: bool| {
        let Body::Extension(entry) = AssetNews::new(&assets.loaded(), was_told).expect("news").body() else { panic!("another entry") };
        (signal_of(&entry).expect("a signal"), entry.data)
    };
    write(root.path(), "a", "0");
    assets.look();
    let (kind, data) = signal(false);
    assert_eq!((kind, &data["skills"], &data["generation"]), ("project.assets_reloaded", &1.into(), &2.into()));
    break_skill(root.path(), "a");
    assert!(assets.reload(Strictness::Strict).is_err());
    let (kind, data) = signal(true);
    assert_eq!((kind, &data["refused"]), ("project.assets_reload_failed", &true.into()));
    assert!(data["firstErrors"][0].as_str().unwrap().starts_with(".agents/skills/a/SKILL.md:3"), "{data}");
    let first = super::tests::assets(root.path());
    first.look();
    let Body::Extension(entry) = AssetNews::new(&first.loaded(), false).unwrap().body() else { panic!("another entry") };
    assert_eq!(signal_of(&entry), Some("project.assets_loaded"));
}

#[test]
fn what_was_changed_last_is_read_also_within_one_step_of_the_kernels_clock_and_with_the_time_of_before() {
    let root = tempfile::tempdir().unwrap();
    let assets = assets(root.path());
    let body = || assets.reload(Strictness::Lenient).unwrap().skill("a").unwrap().body.trim().to_owned();
    for round in 0..300 {
        let text = format!("{round:04}");
        write(root.path(), "a", &text);
        assert_eq!(body(), text);
    }
    let is_rested = || !assets.looked.lock().unwrap().files.rested.is_empty();
    while !is_rested() {
        assert_eq!(body(), "0299");
    }
    let path = root.path().join(".agents/skills/a/SKILL.md");
    let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
    write(root.path(), "a", "0300");
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(body(), "0300");
    break_skill(root.path(), "a");
    assert!(assets.reload(Strictness::Strict).is_err());
    write(root.path(), "b", "x");
    let snapshot = assets.reload(Strictness::Lenient).unwrap();
    let states: Vec<_> = snapshot.skills.iter().map(|skill| (skill.name.as_str(), skill.state.as_str())).collect();
    assert_eq!(states, [("a", "Invalid"), ("b", "Valid")], "another strictness reads all");
}
