//! What the mounter lays over a tree while its Pod runs, so that paths of it can be lent.

use std::fs;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use yoi_workspace::mount::{Cover, CoverError, LaidCover, Shown, cover_in_use, laid_covers, take_off_covers, unbind, uncover_in_use};

use crate::covers::{LENT, Published, create, write};
use crate::covers_pod::Pod;
use crate::fixture::{Fixture, needs_root};
use crate::views::{TARGET, all_mounts, cover, lay, published};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_path_of_a_tree_in_use_is_closed_and_opened_again_however_often_it_is_said", closed_and_opened),
    ("who_stood_above_a_lent_path_before_goes_down_past_its_cover_and_who_comes_there_now_does_not", from_above),
    ("the_end_of_one_loan_leaves_what_another_one_closes", two_loans),
    ("what_a_scope_closes_stays_closed_below_a_loan_and_after_it", over_a_scope),
    ("a_path_stays_closed_while_one_below_it_would_be_open_without_it", stays_closed),
    ("what_cannot_be_closed_while_its_pod_runs_is_refused_by_its_path", refused),
];

/// A folder that is covered in addition, beside [`LENT`].
const BESIDE: &str = "target";

/// Changes the view as a shim does.
fn show(tree: &Published, view: &[Cover]) -> Result<(), CoverError> {
    cover_in_use(&tree.root, Path::new(TARGET), false, view, true)?;
    uncover_in_use(&tree.root, Path::new(TARGET), false, view)
}

fn laid(tree: &Published) -> Vec<(String, Shown)> {
    let covers = laid_covers(&yoi_workspace::mountinfo::read().unwrap(), &tree.at);
    covers.into_iter().map(|LaidCover { path, shown }| (path.to_str().unwrap().to_owned(), shown)).collect()
}

fn of(covers: &[(&str, Shown)]) -> Vec<(String, Shown)> {
    covers.iter().map(|(path, shown)| ((*path).to_owned(), *shown)).collect()
}

/// What is laid for a loan of [`LENT`] by an agent without a scope: the folder above it stays where it is.
fn view_of_loan() -> [Cover; 2] {
    [cover("src", Shown::Writable), cover(LENT, Shown::ReadOnly)]
}

fn closed_and_opened(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = published(fixture, false, &[]);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    pod.run(|at| create(at.join(LENT).join("before")).unwrap());
    for _ in 0..2 {
        show(&tree, &view_of_loan()).unwrap();
        assert_eq!(all_mounts(&tree), 3);
    }
    assert_eq!(laid(&tree), of(&[("src", Shown::Writable), (LENT, Shown::ReadOnly)]));
    let reader = pod.run(|at| {
        for (from, to) in [("src", "sources"), (LENT, "src/other")] {
            assert_eq!(rustix::fs::rename(at.join(from), at.join(to)), Err(Errno::BUSY), "{from}");
        }
        assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS));
        assert_eq!(write(at.join(LENT).join("f")), Err(Errno::ROFS));
        create(at.join("src/beside")).unwrap();
        open(at.join(LENT).join("f"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    });
    // Whoever reads through the cover does not keep it.
    for _ in 0..2 {
        show(&tree, &[]).unwrap();
        assert_eq!((all_mounts(&tree), laid(&tree)), (1, Vec::new()));
    }
    pod.run(|at| {
        create(at.join(LENT).join("after")).unwrap();
        rustix::fs::rename(at.join("src"), at.join("sources")).unwrap();
    });
    drop((reader, pod));
    take_off_covers(&tree.root, Path::new(TARGET)).unwrap();
    unbind(&tree.root, Path::new(TARGET)).unwrap();
    Verdict::Ran
}

/// Why a fence asks of folders above a lent path, too: one that is covered so that it stays where it is has the inner cover on its own mount.
fn from_above(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = published(fixture, false, &[]);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    pod.run(|at| rustix::process::chdir(at.join("src")).unwrap());
    show(&tree, &view_of_loan()).unwrap();
    pod.run(|at| {
        create("deep/from-above").unwrap();
        assert_eq!(create(at.join(LENT).join("by-path")), Err(Errno::ROFS));
        rustix::process::chdir(at.join("src")).unwrap();
        assert_eq!(create("deep/from-above-again"), Err(Errno::ROFS));
        create("beside").unwrap();
        // The root of the tree is no such folder.
        rustix::process::chdir(at).unwrap();
        assert_eq!(create("src/deep/from-the-root"), Err(Errno::ROFS));
        rustix::process::chdir("/").unwrap();
    });
    show(&tree, &[]).unwrap();
    Verdict::Ran
}

fn two_loans(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = published(fixture, false, &[]);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    let [pin, lent] = view_of_loan();
    let beside = cover(BESIDE, Shown::ReadOnly);
    show(&tree, &[pin.clone(), lent.clone()]).unwrap();
    show(&tree, &[pin, lent, beside.clone()]).unwrap();
    assert_eq!(all_mounts(&tree), 4);
    show(&tree, &[beside]).unwrap();
    assert_eq!(laid(&tree), of(&[(BESIDE, Shown::ReadOnly)]));
    pod.run(|at| {
        create(at.join(LENT).join("new")).unwrap();
        assert_eq!(create(at.join(BESIDE).join("new")), Err(Errno::ROFS));
    });
    show(&tree, &[]).unwrap();
    pod.run(|at| create(at.join(BESIDE).join("new")).unwrap());
    Verdict::Ran
}

fn over_a_scope(fixture: &Fixture) -> Verdict {
    needs_root!();
    let scope = [cover(".", Shown::ReadOnly), cover("src", Shown::Writable), cover(LENT, Shown::ReadOnly)];
    let tree = published(fixture, false, &scope);
    lay(&tree, &scope).unwrap();
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    let closed = |at: &Path, open: bool| {
        assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS));
        assert_eq!(create(at.join("new")), Err(Errno::ROFS));
        let opened = write(at.join("src/file1.rs"));
        assert_eq!(opened, if open { Ok(()) } else { Err(Errno::ROFS) });
    };
    pod.run(move |at| closed(at, true));
    for _ in 0..2 {
        show(&tree, &[cover(".", Shown::ReadOnly), cover("src", Shown::ReadOnly)]).unwrap();
        pod.run(move |at| closed(at, false));
        show(&tree, &scope).unwrap();
        pod.run(move |at| closed(at, true));
        assert_eq!(all_mounts(&tree), scope.len());
    }
    take_off_covers(&tree.root, Path::new(TARGET)).unwrap();
    assert_eq!(all_mounts(&tree), 1);
    Verdict::Ran
}

fn stays_closed(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = published(fixture, false, &[]);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    show(&tree, &[cover("src", Shown::ReadOnly)]).unwrap();
    // Of `src` only this is to be closed from now on, and no cover lies there but the one of `src`.
    let inner = view_of_loan();
    uncover_in_use(&tree.root, Path::new(TARGET), false, &inner).unwrap();
    pod.run(|at| assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS)));
    show(&tree, &inner).unwrap();
    pod.run(|at| {
        assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS));
        assert_eq!(create(at.join("src/new")), Err(Errno::ROFS), "nothing on `src` itself keeps the lent path closed");
    });
    show(&tree, &[]).unwrap();
    pod.run(|at| create(at.join(LENT).join("new")).unwrap());
    assert_eq!(all_mounts(&tree), 1);
    Verdict::Ran
}

fn refused(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = published(fixture, false, &[]);
    let inside = tree.in_data_root.clone();
    std::os::unix::fs::symlink("/etc", inside.join("away")).unwrap();
    for (path, why) in [("nowhere", "not in the tree"), ("away", "symbolic link"), ("src/../target", "plain names"), (".", "whole tree")] {
        let refused = show(&tree, &[cover(path, Shown::ReadOnly)]).unwrap_err();
        assert!(refused.is_of_the_rules() && refused.to_string().contains(why), "{path}: {refused}");
        assert_eq!(all_mounts(&tree), 1, "{path}");
    }
    // A file with another name: it is found once nobody can make one more.
    fs::hard_link(inside.join(LENT).join("f"), inside.join("outside")).unwrap();
    let both = show(&tree, &view_of_loan()).unwrap_err();
    assert!(both.is_of_the_rules() && both.to_string().contains("src/deep/f") && both.to_string().contains("outside"), "{both}");
    show(&tree, &[]).unwrap();
    assert_eq!(all_mounts(&tree), 1, "what was laid before goes with the former view");
    fs::remove_file(inside.join("outside")).unwrap();

    // What is hidden would be seen for a moment.
    show(&tree, &[cover("src", Shown::Writable), cover(LENT, Shown::Hidden)]).unwrap();
    let below = show(&tree, &[cover("src", Shown::ReadOnly), cover(LENT, Shown::Hidden)]).unwrap_err();
    assert!(matches!(below, CoverError::Below { .. }) && below.to_string().contains(LENT), "{below}");
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    pod.run(|at| {
        assert_eq!(fs::read_dir(at.join(LENT)).unwrap().count(), 0);
        create(at.join("src/new")).unwrap();
    });
    drop(pod);
    // Something else that is mounted in a tree is never taken for a cover.
    show(&tree, &[]).unwrap();
    rustix::mount::mount_bind(tree.in_data_root.join("target"), tree.at.join(LENT)).unwrap();
    assert!(matches!(show(&tree, &view_of_loan()), Err(CoverError::Foreign { .. })));
    uncover_in_use(&tree.root, Path::new(TARGET), false, &[]).unwrap();
    assert_eq!(tree.mounts_of(LENT), 1);
    rustix::mount::unmount(tree.at.join(LENT), rustix::mount::UnmountFlags::empty()).unwrap();
    Verdict::Ran
}
