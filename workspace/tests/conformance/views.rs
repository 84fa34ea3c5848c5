//! What the mounter lays over a tree, so that its Pod sees it by the scope of its agent.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use yoi_workspace::mount::{Cover, CoverError, MAX_COVERS, Shown, lay_covers, root_is_read_only, take_off_covers, unbind};

use crate::covers::{LENT, Published, create, write};
use crate::covers_pod::Pod;
use crate::fixture::{Fixture, needs_root};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_view_is_what_its_covers_say_however_often_they_are_laid_and_goes_with_its_pod", whole),
    ("folders_in_a_folder_are_shown_otherwise_where_a_rule_holds_for_its_files_alone", folders),
    ("of_a_tree_that_cannot_be_written_no_cover_opens_a_path", read_only),
    ("what_cannot_be_covered_is_refused_by_its_path", refused),
];

pub const TARGET: &str = "mount";

pub fn cover(path: &str, shown: Shown) -> Cover {
    Cover { path: path.into(), shown, shown_file: None, folders: None }
}

/// The tree as a view with these covers is published. Its files have one name each.
pub fn published(fixture: &Fixture, read_only: bool, covers: &[Cover]) -> Published {
    let tree = Published::new(fixture);
    fs::remove_file(tree.in_data_root.join("outside")).unwrap();
    unbind(&tree.root, Path::new(TARGET)).unwrap();
    fixture.root.publish(tree.tree, &tree.root, Path::new(TARGET), read_only || root_is_read_only(covers)).unwrap();
    tree
}

pub fn lay(tree: &Published, covers: &[Cover]) -> Result<(), CoverError> {
    lay_covers(&tree.root, Path::new(TARGET), false, covers)
}

pub fn all_mounts(tree: &Published) -> usize {
    yoi_workspace::mountinfo::read().unwrap().iter().filter(|mount| mount.mount_point.starts_with(&tree.at)).count()
}

fn whole(fixture: &Fixture) -> Verdict {
    needs_root!();
    let covers = [
        cover(".", Shown::ReadOnly),
        cover(".gitignore", Shown::Hidden),
        cover("src", Shown::Writable),
        cover(LENT, Shown::ReadOnly),
        cover("src/file1.rs", Shown::ReadOnly),
        cover("target", Shown::Hidden),
    ];
    let tree = published(fixture, false, &covers);
    for _ in 0..2 {
        lay(&tree, &covers).unwrap();
        assert_eq!(all_mounts(&tree), covers.len());
    }
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    pod.run(|at| {
        for closed in ["new", ".git/new", "src/deep/new", "src/deep/er/new"] {
            assert_eq!(create(at.join(closed)), Err(Errno::ROFS), "{closed}");
        }
        for closed in ["untracked.txt", "src/file1.rs", "src/deep/f"] {
            assert_eq!(write(at.join(closed)), Err(Errno::ROFS), "{closed}");
        }
        create(at.join("src/new")).unwrap();
        write(at.join("src/file2.rs")).unwrap();
        // What is closed stays where it is.
        for (from, to) in [("src", "sources"), ("src/deep", "src/other"), ("src/file1.rs", "src/file9.rs")] {
            assert!(rustix::fs::rename(at.join(from), at.join(to)).is_err(), "{from}");
        }
        assert_eq!(rustix::fs::unlink(at.join("src/file1.rs")), Err(Errno::BUSY));
        assert_eq!(rustix::fs::link(at.join("src/deep/f"), at.join("src/f")), Err(Errno::XDEV));
        // What is hidden is empty, and stays so.
        assert_eq!(fs::read_dir(at.join("target")).unwrap().count(), 0);
        assert_eq!(create(at.join("target/new")), Err(Errno::ROFS));
        assert_eq!(fs::read(at.join(".gitignore")).unwrap(), b"");
        assert_eq!(write(at.join(".gitignore")), Err(Errno::ROFS));
        // All else is as it was.
        assert_eq!(fs::read_to_string(at.join("src/deep/er/still.rs")).unwrap(), "// still\n");
        assert_eq!(fs::read_to_string(at.join("untracked.txt")).unwrap(), "untracked\n");
    });
    // The tree itself has lost nothing.
    assert_eq!(fs::read(tree.in_data_root.join(".gitignore")).unwrap(), b"target/\n");
    create(tree.in_data_root.join("target/by-the-node")).unwrap();
    drop(pod);
    for _ in 0..2 {
        take_off_covers(&tree.root, Path::new(TARGET)).unwrap();
        assert_eq!(all_mounts(&tree), 1);
    }
    unbind(&tree.root, Path::new(TARGET)).unwrap();
    take_off_covers(&tree.root, Path::new(TARGET)).unwrap();
    Verdict::Ran
}

fn folders(fixture: &Fixture) -> Verdict {
    needs_root!();
    let covers = [cover(".", Shown::ReadOnly), Cover { folders: Some(Shown::ReadOnly), ..cover("src", Shown::Writable) }];
    let tree = published(fixture, false, &covers);
    lay(&tree, &covers).unwrap();
    assert_eq!((tree.mounts_of("src"), tree.mounts_of(LENT), all_mounts(&tree)), (1, 1, 3));
    Pod::start(&tree.at, &fixture.dir.join("container")).run(|at| {
        create(at.join("src/new")).unwrap();
        assert_eq!(create(at.join("src/deep/new")), Err(Errno::ROFS));
        assert_eq!(create(at.join("new")), Err(Errno::ROFS));
    });
    // A rule that names a file instead.
    take_off_covers(&tree.root, Path::new(TARGET)).unwrap();
    let file = Cover { shown_file: Some(Shown::Writable), ..cover("src/file1.rs", Shown::ReadOnly) };
    lay(&tree, &[cover(".", Shown::ReadOnly), file]).unwrap();
    Pod::start(&tree.at, &fixture.dir.join("another")).run(|at| {
        write(at.join("src/file1.rs")).unwrap();
        assert_eq!(write(at.join("src/file2.rs")), Err(Errno::ROFS));
    });
    take_off_covers(&tree.root, Path::new(TARGET)).unwrap();
    Verdict::Ran
}

fn read_only(fixture: &Fixture) -> Verdict {
    needs_root!();
    let covers = [cover(".", Shown::ReadOnly), cover("src", Shown::Writable), cover("target", Shown::Hidden)];
    let tree = published(fixture, true, &covers);
    lay_covers(&tree.root, Path::new(TARGET), true, &covers).unwrap();
    Pod::start(&tree.at, &fixture.dir.join("container")).run(|at| {
        assert_eq!(create(at.join("src/new")), Err(Errno::ROFS));
        assert_eq!(fs::read_dir(at.join("target")).unwrap().count(), 0);
    });
    take_off_covers(&tree.root, Path::new(TARGET)).unwrap();
    Verdict::Ran
}

fn refused(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = published(fixture, false, &[]);
    let inside = tree.in_data_root.clone();
    std::os::unix::fs::symlink("/etc", inside.join("away")).unwrap();
    let refusal = |path: &str, shown: Shown| {
        let refused = lay(&tree, &[cover(path, shown)]).unwrap_err();
        assert!(refused.is_of_the_rules(), "{refused}");
        assert_eq!(all_mounts(&tree), 1, "{refused}");
        refused.to_string()
    };
    for (path, why) in [
        ("nowhere", "it is not in the tree"),
        ("untracked.txt/below", "it is not in the tree"),
        ("src/link.rs", "it is a symbolic link"),
        ("away/passwd", "it is a symbolic link"),
        ("src/../target", "it is no path of plain names"),
        ("../mount", "it is no path of plain names"),
        ("/etc", "it is no path of plain names"),
    ] {
        let refused = refusal(path, Shown::ReadOnly);
        assert!(refused.contains(path) && refused.contains(why), "{path}: {refused}");
    }
    assert!(refusal(".", Shown::Hidden).contains("whole tree"));
    // By its other name the file would stay open.
    fs::hard_link(inside.join(LENT).join("f"), inside.join("outside")).unwrap();
    let both = refusal(LENT, Shown::ReadOnly);
    assert!(both.contains("src/deep/f") && both.contains("outside"), "{both}");
    // Where both are closed it is not.
    lay(
        &tree,
        &[cover(".", Shown::Writable), cover("src", Shown::Writable), cover("outside", Shown::ReadOnly), cover(LENT, Shown::ReadOnly)],
    )
    .unwrap();
    take_off_covers(&tree.root, Path::new(TARGET)).unwrap();
    fs::remove_file(inside.join("outside")).unwrap();
    fs::create_dir(inside.join("many")).unwrap();
    (0..=MAX_COVERS).for_each(|n| fs::create_dir(inside.join(format!("many/{n}"))).unwrap());
    let many = lay(&tree, &[Cover { folders: Some(Shown::ReadOnly), ..cover("many", Shown::Writable) }]).unwrap_err();
    assert!(matches!(many, CoverError::TooMany { .. }), "{many}");
    assert_eq!(all_mounts(&tree), 1);
    Verdict::Ran
}
