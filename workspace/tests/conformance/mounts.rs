//! Bind mounts at the kubelet's targets.

use std::fs;
use std::path::{Path, PathBuf};

use yoi_workspace::mount::{BindOutcome, MountError, TargetRoot, unbind};
use yoi_workspace::{CloneAccess, Error, PublishError, mountinfo};

use crate::fixture::{Fixture, needs_root};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_tree_is_mounted_once_and_unmounting_can_be_repeated", mounted),
    ("w30_a_sealed_or_read_only_tree_is_mounted_read_only", frozen),
    ("a_target_never_leaves_its_root", escapes),
    ("what_is_in_a_target_is_never_deleted", kept),
    ("w36_a_mounted_tree_is_busy_until_it_is_unmounted", busy),
];

fn targets(fixture: &Fixture) -> (TargetRoot, PathBuf) {
    let dir = fixture.dir.join("pods with space");
    fs::create_dir(&dir).unwrap();
    (TargetRoot::open(&dir).unwrap(), dir)
}

fn mounts_at(path: &Path) -> Vec<mountinfo::Mount> {
    mountinfo::read().unwrap().into_iter().filter(|m| m.mount_point == path).collect()
}

fn mounted(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    let (root, dir) = targets(fixture);
    let target = Path::new("mount");
    assert_eq!(fixture.root.publish(clone, &root, target, false).unwrap(), BindOutcome::Mounted);
    assert_eq!(fixture.root.publish(clone, &root, target, false).unwrap(), BindOutcome::AlreadyMounted);
    let mounts = mounts_at(&dir.join(target));
    assert_eq!(mounts.len(), 1);
    assert!(mounts[0].options.contains("nosuid") && mounts[0].options.contains("nodev") && !mounts[0].read_only);
    fs::write(dir.join("mount/written"), "x").unwrap();
    assert!(path.join("written").exists() && !dir.join("mount/marker").exists() && !dir.join("marker").exists());
    let other = fixture.root.publish(base, &root, target, false);
    assert!(matches!(other, Err(PublishError::Mount(MountError::Occupied { .. }))), "{other:?}");
    // A second mount on top, as a kubelet makes that has lost its state.
    rustix::mount::mount_bind(&path, dir.join(target)).unwrap();
    assert_eq!(mounts_at(&dir.join(target)).len(), 2);
    for _ in 0..2 {
        unbind(&root, target).unwrap();
        assert!(!dir.join(target).exists());
    }
    unbind(&root, Path::new("never/was")).unwrap();
    assert!(path.join("written").exists());
    Verdict::Ran
}

fn frozen(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (base, _) = fixture.base();
    let checkpoint = fixture.uid();
    fixture.provider().clone_tree(checkpoint, base, CloneAccess::ReadOnly).unwrap();
    let (root, dir) = targets(fixture);
    for (uid, name) in [(base, "base"), (checkpoint, "checkpoint")] {
        fixture.root.publish(uid, &root, Path::new(name), false).unwrap();
        let written = fs::write(dir.join(name).join("late"), "x");
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(fixture.root.publish(uid, &root, Path::new(name), true).unwrap(), BindOutcome::AlreadyMounted);
        unbind(&root, Path::new(name)).unwrap();
    }
    Verdict::Ran
}

fn escapes(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (base, _) = fixture.base();
    let (root, dir) = targets(fixture);
    let outside = fixture.dir.join("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("link")).unwrap();
    for bad in ["../outside", "/etc", "link", "link/x", "", "."] {
        assert!(fixture.root.publish(base, &root, Path::new(bad), true).is_err(), "{bad}");
        assert!(bad == "link" || unbind(&root, Path::new(bad)).is_err(), "{bad}");
    }
    assert!(mounts_at(&outside).is_empty() && fs::read_dir(&outside).unwrap().next().is_none());
    Verdict::Ran
}

fn kept(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (root, dir) = targets(fixture);
    fs::create_dir(dir.join("mount")).unwrap();
    fs::write(dir.join("mount/file"), "precious").unwrap();
    assert!(matches!(unbind(&root, Path::new("mount")), Err(MountError::NotEmpty { .. })));
    assert!(dir.join("mount/file").exists());
    Verdict::Ran
}

fn busy(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    // Outside of the data root, like the kubelet's directory.
    let pods = tempfile::tempdir().unwrap();
    let root = TargetRoot::open(pods.path()).unwrap();
    fixture.root.publish(clone, &root, Path::new("mount"), false).unwrap();
    match fixture.provider().destroy(clone) {
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
    assert!(matches!(fixture.provider().destroy(clone), Err(Error::Busy { .. })));
    unbind(&root, Path::new("part")).unwrap();
    fixture.provider().destroy(clone).unwrap();
    fixture.assert_only(&[base]);
    Verdict::Ran
}
