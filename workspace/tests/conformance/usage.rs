//! What a tree takes, found out from what differs from its base, against a visit of every file.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use yoi_workspace::{ChangeLimits, FaultPoint, Faults, PlantedFault, Provider, ProviderKind, Uid};

use crate::changes::{Random, edit};
use crate::fixture::{Fixture, fill_repository};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("the_usage_of_a_tree_follows_every_kind_of_edit", every),
    ("the_usage_of_a_tree_after_any_run_of_edits_is_that_of_a_visit", any),
    ("the_usage_of_a_fork_and_of_a_tree_without_a_base_is_that_of_a_visit", others),
];

/// A sealed base with so many files in `many`, large enough that the edits of a case are a small part of it.
fn base(fixture: &Fixture, files: usize) -> Uid {
    let (uid, path) = fixture.empty();
    fill_repository(&path);
    for n in 0..files {
        let dir = path.join(format!("many/d{}", n / 100));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{n}")), vec![1; 100 + n * 7]).unwrap();
    }
    for n in 0..10 {
        let (first, second) = (path.join(format!("many/d0/f{n}")), path.join(format!("many/d1/second{n}")));
        fs::hard_link(first, second).unwrap();
    }
    fixture.provider().seal(uid).unwrap();
    uid
}

/// The reason why a lane need not be tried with many edits: what is compared is the same visit.
fn visits(fixture: &Fixture) -> Option<Verdict> {
    match fixture.kind() {
        ProviderKind::Btrfs | ProviderKind::Overlay => None,
        ProviderKind::Zfs | ProviderKind::Reflink | ProviderKind::Copy => Some(Verdict::NotRun("its usage is that of a visit")),
    }
}

fn assert_as_visited(fixture: &Fixture, uid: Uid, after: &str) {
    fixture.sync();
    let (usage, visited) = (fixture.provider().usage(uid).unwrap(), fixture.provider().measure(uid).unwrap());
    assert_eq!((usage.logical_bytes, usage.entries), (visited.logical_bytes, visited.entries), "after {after}");
}

type Edit = (&'static str, fn(&Path));

const EDITS: &[Edit] = &[
    ("nothing", |_| {}),
    ("a new file", |tree| fs::write(tree.join("new"), vec![2; 70_000]).unwrap()),
    ("an append", |tree| fs::write(tree.join("many/d3/f300"), vec![2; 99_999]).unwrap()),
    ("a truncation of a file of the base", |tree| set_len(&tree.join("many/d3/f399"), 5)),
    ("a truncation of a new file", |tree| set_len(&tree.join("new"), 5)),
    ("a sparse file", |tree| File::create(tree.join("sparse")).unwrap().set_len(1 << 30).unwrap()),
    ("a hole in a file of the base", |tree| set_len(&tree.join("many/d4/f400"), 1 << 20)),
    ("another mode", |tree| fs::set_permissions(tree.join("many/d4/f401"), fs::Permissions::from_mode(0o600)).unwrap()),
    ("a deletion", |tree| fs::remove_file(tree.join("many/d4/f402")).unwrap()),
    ("a deletion of a new file", |tree| fs::remove_file(tree.join("new")).unwrap()),
    ("a deleted folder", |tree| fs::remove_dir_all(tree.join("many/d5")).unwrap()),
    ("a folder in the place of a deleted one", |tree| {
        fs::create_dir(tree.join("many/d5")).unwrap();
        fs::write(tree.join("many/d5/f500"), "other").unwrap();
    }),
    ("a renamed file", |tree| fs::rename(tree.join("many/d4/f403"), tree.join("many/d6/renamed")).unwrap()),
    ("a file renamed over another", |tree| fs::rename(tree.join("many/d4/f404"), tree.join("many/d4/f405")).unwrap()),
    ("a renamed folder", |tree| fs::rename(tree.join("many/d6"), tree.join("moved")).unwrap()),
    ("a deletion in a renamed folder", |tree| fs::remove_file(tree.join("moved/f600")).unwrap()),
    ("a new file in a renamed folder", |tree| fs::write(tree.join("moved/new"), "new").unwrap()),
    ("a folder moved into another", |tree| fs::rename(tree.join("moved"), tree.join("many/d7/moved")).unwrap()),
    ("a folder that lost a file and then went", |tree| {
        fs::remove_file(tree.join("many/d8/f800")).unwrap();
        fs::remove_dir_all(tree.join("many/d8")).unwrap();
    }),
    ("a file in the place of a folder", |tree| fs::write(tree.join("many/d8"), "a file").unwrap()),
    ("a link to a file of the base", |tree| fs::hard_link(tree.join("many/d9/f900"), tree.join("one more")).unwrap()),
    ("a write to it", |tree| fs::write(tree.join("one more"), vec![3; 12_345]).unwrap()),
    ("its first name gone", |tree| fs::remove_file(tree.join("many/d9/f900")).unwrap()),
    ("a write to a file of two names", |tree| fs::write(tree.join("many/d0/f0"), vec![4; 54_321]).unwrap()),
    ("one of two names gone", |tree| fs::remove_file(tree.join("many/d0/f1")).unwrap()),
    ("both names gone", |tree| fs::remove_file(tree.join("many/d1/second1")).unwrap()),
    ("the written one of two names gone", |tree| fs::remove_file(tree.join("many/d0/f0")).unwrap()),
    ("one of two names renamed", |tree| fs::rename(tree.join("many/d0/f2"), tree.join("many/d2/f2")).unwrap()),
    ("the folder of second names renamed", |tree| fs::rename(tree.join("many/d1"), tree.join("second names")).unwrap()),
    ("a write to a second name there", |tree| fs::write(tree.join("second names/second3"), vec![5; 33_333]).unwrap()),
    ("the folder of first names gone", |tree| fs::remove_dir_all(tree.join("many/d0")).unwrap()),
    ("a symbolic link", |tree| symlink("nowhere", tree.join("link")).unwrap()),
];

fn set_len(path: &Path, len: u64) {
    File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

fn every(fixture: &Fixture) -> Verdict {
    if let Some(not_run) = visits(fixture) {
        return not_run;
    }
    let base = base(fixture, 1_000);
    let (clone, path) = fixture.clone_of(base);
    for (name, edit) in EDITS {
        edit(&path);
        assert_as_visited(fixture, clone, name);
    }
    // A file that is deleted and open belongs to no name.
    let open = File::open(path.join("sparse")).unwrap();
    fs::remove_file(path.join("sparse")).unwrap();
    assert_as_visited(fixture, clone, "a deletion of an open file");
    drop(open);
    assert_as_visited(fixture, clone, "its end");
    assert_alike_with_few_links(fixture, clone, base);
    assert_as_visited(fixture, base, "all edits, of the base");
    Verdict::Ran
}

struct FewLinks;

impl Faults for FewLinks {
    fn on_point(&self, _: FaultPoint) {}

    fn has(&self, fault: PlantedFault) -> bool {
        fault == PlantedFault::FewLinksRemembered
    }
}

/// With more files of several names than are remembered, an overlay is visited as a whole.
fn assert_alike_with_few_links(fixture: &Fixture, tree: Uid, base: Uid) {
    let few = fixture.reopened(Arc::new(FewLinks));
    let few = few.provider(fixture.kind()).unwrap();
    let (one, other) = (fixture.provider().usage(tree).unwrap(), few.usage(tree).unwrap());
    assert_eq!((one.logical_bytes, one.entries), (other.logical_bytes, other.entries));
    let list = |provider: &dyn Provider| provider.changes(tree, base, &ChangeLimits::NONE).unwrap().changes;
    assert_eq!(list(fixture.provider()), list(few));
}

fn any(fixture: &Fixture) -> Verdict {
    if let Some(not_run) = visits(fixture) {
        return not_run;
    }
    let base = base(fixture, 200);
    for seed in 0..25 {
        let (clone, path) = fixture.clone_of(base);
        edit(&mut Random(seed), &path, 0);
        assert_as_visited(fixture, clone, &format!("the edits of seed {seed}"));
        fixture.provider().destroy(clone).unwrap();
    }
    Verdict::Ran
}

fn others(fixture: &Fixture) -> Verdict {
    if let Some(not_run) = visits(fixture) {
        return not_run;
    }
    let (empty, path) = fixture.empty();
    fs::write(path.join("file"), "of a tree that began empty").unwrap();
    assert_as_visited(fixture, empty, "a write to a tree that began empty");
    let base = base(fixture, 1_000);
    let (parent, path) = fixture.clone_of(base);
    EDITS.iter().for_each(|(_, edit)| edit(&path));
    fixture.rest(parent);
    if !fixture.forks_at_rest() {
        fixture.provider().seal(parent).unwrap();
    }
    let (fork, path) = fixture.clone_of(parent);
    assert_as_visited(fixture, fork, "a fork");
    fs::remove_dir_all(path.join("second names")).unwrap();
    assert_as_visited(fixture, fork, "a deletion in a fork");
    fixture.provider().destroy(parent).unwrap();
    fs::write(path.join("more"), "more").unwrap();
    assert_as_visited(fixture, fork, "a write to a fork without its parent");
    Verdict::Ran
}
