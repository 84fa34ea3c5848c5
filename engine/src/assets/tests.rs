use std::path::Path;

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
                assert_eq!(snapshot.skills.len() as u64, 1 + snapshot.generation, "{:?}", snapshot.skills);
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
