//! A tree at the place the kubelet named.

use std::fs;
use std::path::{Path, PathBuf};

use yoi_workspace::mount::{Bound, MountError, TargetRoot, unbind};
use yoi_workspace::{CloneAccess, Error, PublishError, mountinfo};

use crate::lab::{Lab, is_root};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_tree_is_shown_once_and_taken_away_twice", shown),
    ("w30_a_frozen_tree_is_shown_read_only", frozen),
    ("a_target_never_leaves_its_root", escapes),
    ("what_is_in_a_target_is_never_deleted", kept),
    ("w36_a_mounted_tree_is_busy_until_it_is_not", busy),
];

fn targets(lab: &Lab) -> (TargetRoot, PathBuf) {
    let dir = lab.dir.join("pods with space");
    fs::create_dir(&dir).unwrap();
    (TargetRoot::open(&dir).unwrap(), dir)
}

fn at(path: &Path) -> Vec<mountinfo::Mount> {
    mountinfo::read().unwrap().into_iter().filter(|m| m.mount_point == path).collect()
}

macro_rules! needs_root {
    () => {
        if !is_root() {
            return Verdict::Lacks("needs root to mount");
        }
    };
}

fn shown(lab: &Lab) -> Verdict {
    needs_root!();
    let (base, _) = lab.base();
    let (clone, path) = lab.clone_of(base);
    let (root, dir) = targets(lab);
    let target = Path::new("mount");
    assert_eq!(lab.root.publish(clone, &root, target, false).unwrap(), Bound::Mounted);
    assert_eq!(lab.root.publish(clone, &root, target, false).unwrap(), Bound::AlreadyMounted);
    let mounts = at(&dir.join(target));
    assert_eq!(mounts.len(), 1);
    assert!(mounts[0].options.contains("nosuid") && mounts[0].options.contains("nodev") && !mounts[0].read_only);
    fs::write(dir.join("mount/written"), "x").unwrap();
    assert!(path.join("written").exists() && !dir.join("mount/marker").exists() && !dir.join("marker").exists());
    let other = lab.root.publish(base, &root, target, false);
    assert!(matches!(other, Err(PublishError::Mount(MountError::Occupied { .. }))), "{other:?}");
    // A second one on top, as a kubelet that lost its memory makes.
    rustix::mount::mount_bind(&path, dir.join(target)).unwrap();
    assert_eq!(at(&dir.join(target)).len(), 2);
    for _ in 0..2 {
        unbind(&root, target).unwrap();
        assert!(!dir.join(target).exists());
    }
    unbind(&root, Path::new("never/was")).unwrap();
    assert!(path.join("written").exists());
    Verdict::Ran
}

fn frozen(lab: &Lab) -> Verdict {
    needs_root!();
    let (base, _) = lab.base();
    let checkpoint = lab.uid();
    lab.provider().clone_tree(checkpoint, base, CloneAccess::ReadOnly).unwrap();
    let (root, dir) = targets(lab);
    for (uid, name) in [(base, "base"), (checkpoint, "checkpoint")] {
        lab.root.publish(uid, &root, Path::new(name), false).unwrap();
        let written = fs::write(dir.join(name).join("late"), "x");
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(lab.root.publish(uid, &root, Path::new(name), true).unwrap(), Bound::AlreadyMounted);
        unbind(&root, Path::new(name)).unwrap();
    }
    Verdict::Ran
}

fn escapes(lab: &Lab) -> Verdict {
    needs_root!();
    let (base, _) = lab.base();
    let (root, dir) = targets(lab);
    let outside = lab.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("link")).unwrap();
    for bad in ["../outside", "/etc", "link", "link/x", "", "."] {
        assert!(lab.root.publish(base, &root, Path::new(bad), true).is_err(), "{bad}");
        assert!(bad == "link" || unbind(&root, Path::new(bad)).is_err(), "{bad}");
    }
    assert!(at(&outside).is_empty() && fs::read_dir(&outside).unwrap().next().is_none());
    Verdict::Ran
}

fn kept(lab: &Lab) -> Verdict {
    needs_root!();
    let (root, dir) = targets(lab);
    fs::create_dir(dir.join("mount")).unwrap();
    fs::write(dir.join("mount/file"), "precious").unwrap();
    assert!(matches!(unbind(&root, Path::new("mount")), Err(MountError::NotEmpty { .. })));
    assert!(dir.join("mount/file").exists());
    Verdict::Ran
}

fn busy(lab: &Lab) -> Verdict {
    needs_root!();
    let (base, _) = lab.base();
    let (clone, path) = lab.clone_of(base);
    // Outside of the data root, as a kubelet's folder is.
    let pods = tempfile::tempdir().unwrap();
    let root = TargetRoot::open(pods.path()).unwrap();
    lab.root.publish(clone, &root, Path::new("mount"), false).unwrap();
    match lab.provider().destroy(clone) {
        Err(Error::Busy { targets, .. }) => assert_eq!(targets, [pods.path().canonicalize().unwrap().join("mount")]),
        other => panic!("{other:?}"),
    }
    assert!(path.join("src").exists());
    let working = fs::File::open(pods.path().join("mount/src")).unwrap();
    assert!(matches!(unbind(&root, Path::new("mount")), Err(MountError::Busy { .. })));
    drop(working);
    // A container that sees only a part of the tree keeps it busy as well.
    let part = pods.path().join("part");
    fs::create_dir(&part).unwrap();
    rustix::mount::mount_bind(path.join("src"), &part).unwrap();
    unbind(&root, Path::new("mount")).unwrap();
    assert!(matches!(lab.provider().destroy(clone), Err(Error::Busy { .. })));
    unbind(&root, Path::new("part")).unwrap();
    lab.provider().destroy(clone).unwrap();
    lab.assert_only(&[base]);
    Verdict::Ran
}
