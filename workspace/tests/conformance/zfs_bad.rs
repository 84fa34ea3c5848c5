//! A `zfs` that is missing, hangs or says what nobody knows, and a pool that is not there: the offer says so, trees are left alone, and nothing
//! waits past the deadline.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags};
use yoi_workspace::plan::select;
use yoi_workspace::{CloneAccess, DataRoot, EntryLocation, ErrorReason, ProviderKind, ProviderRequest, RootOptions, ZfsOptions};

use crate::fixture::{Fixture, dataset_of, read_in, run, unmount_below};
use crate::zfs::{dataset, only_zfs};
use crate::zfs_pool::{POOL, end_pool, exists, zfs, zpool};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_zfs_that_is_missing_hangs_or_speaks_another_language_is_not_offered", bad_program),
    ("a_zfs_below_a_view_of_the_hosts_root_is_the_one_that_is_used", host_root),
    ("a_dataset_that_is_not_there_is_not_offered_and_nothing_is_forgotten", missing_parent),
    ("a_pool_that_is_not_imported_loses_no_tree", not_imported),
    ("a_tree_in_a_dataset_is_left_alone_where_no_dataset_is_named", not_named),
];

/// Where a `zfs` that counts its calls keeps them.
const COUNTING: &str = "/run/yoi-counting";
const SHORT: Duration = Duration::from_millis(500);
const PATIENT: Duration = Duration::from_secs(30);

/// A root directory of its own, with the programs of this machine and another `zfs`.
fn root_with(fixture: &Fixture, name: &str, script: &str) -> PathBuf {
    let root = fixture.dir.join(name);
    fs::create_dir_all(root.join("usr")).unwrap();
    for link in ["bin", "sbin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{link}"), root.join(link)).unwrap();
    }
    rustix::mount::mount_bind("/usr", root.join("usr")).unwrap();
    let file = fixture.dir.join(format!("{name}.sh"));
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    rustix::mount::mount_bind(&file, root.join("usr/sbin/zfs")).unwrap();
    root
}

fn open(fixture: &Fixture, dataset: &str, host_root: Option<&Path>, deadline: Duration) -> DataRoot {
    let mut zfs = ZfsOptions::new(dataset.parse().unwrap());
    zfs.host_root = host_root.map(Path::to_owned);
    zfs.deadline = deadline;
    DataRoot::open_with(&fixture.dir, RootOptions { zfs: Some(zfs), ..RootOptions::default() }).unwrap()
}

/// What the offer says. It is not available, and Auto says why it was passed over.
fn refused(root: &DataRoot) -> String {
    let probe = root.probe().unwrap();
    let offer = probe.offers.iter().find(|o| o.provider == ProviderKind::Zfs).unwrap().clone();
    assert!(!offer.available, "{offer:?}");
    assert_eq!(probe.failure, None, "the data root works");
    let chosen = select(ProviderRequest::Auto, &probe.offers).unwrap();
    assert!(chosen.provider != ProviderKind::Zfs && chosen.reason.contains(&format!("Zfs: {}", offer.reason)), "{chosen:?}");
    assert!(select(ProviderRequest::Zfs, &probe.offers).is_err(), "a provider that was named falls back");
    println!("    {}", offer.reason);
    offer.reason
}

fn bad_program(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let (clone, path) = fixture.clone_of(base);
    fs::write(path.join("mine"), "precious").unwrap();
    let parent = dataset_of(&fixture.dir);
    let empty = fixture.dir.join("empty");
    fs::create_dir(&empty).unwrap();
    let cases = [
        (empty, PATIENT, "zfs: No such file or directory"),
        (root_with(fixture, "hangs", "exec sleep infinity"), SHORT, "took longer than 500ms"),
        (root_with(fixture, "another", "echo 'NAME  USED'; test $1 = get"), PATIENT, "zfs says what is not understood: \"NAME  USED\""),
        (root_with(fixture, "endless", "exec yes"), SHORT, "took longer than 500ms"),
        (root_with(fixture, "no-module", "echo 'The ZFS modules are not loaded.' >&2; exit 1"), PATIENT, "The ZFS modules are not loaded."),
    ];
    for (root, deadline, said) in cases {
        let data_root = open(fixture, &parent, Some(&root), deadline);
        let reason = refused(&data_root);
        assert!(reason.contains(said), "{reason}");
        let provider = data_root.provider(ProviderKind::Zfs).unwrap();
        let errors = [
            provider.create_empty(fixture.uid(), crate::fixture::current_owner()).err(),
            provider.clone_tree(fixture.uid(), base, CloneAccess::ReadWrite).err(),
            provider.destroy(clone).err(),
        ];
        for error in errors {
            let error = error.unwrap();
            assert!(matches!(error.reason(), ErrorReason::BackendError), "{error:?}");
        }
        assert!(exists(&dataset(fixture, clone)) && exists(&dataset(fixture, base)), "{said}");
    }
    // The first of them moved it to the trash, and there it stays until the command works.
    let entries = fixture.root.inventory().unwrap().entries;
    assert!(entries.iter().any(|e| e.uid == clone && e.location == EntryLocation::Trash), "{entries:?}");
    fixture.provider().destroy(clone).unwrap();
    assert!(!exists(&dataset(fixture, clone)));
    unmount_below(&fixture.dir);
    Verdict::Ran
}

/// A folder of this suite's own, with a file system of its own. It goes with its content when dropped.
struct OwnFolder(PathBuf);

impl OwnFolder {
    fn new(folder: &str) -> Self {
        fs::create_dir_all(folder).unwrap();
        rustix::mount::mount("own-folder", folder, "tmpfs", MountFlags::empty(), None).unwrap();
        Self(folder.into())
    }
}

impl Drop for OwnFolder {
    fn drop(&mut self) {
        _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
        _ = fs::remove_dir(&self.0);
    }
}

fn host_root(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let root = fixture.dir.join("host");
    fs::create_dir(&root).unwrap();
    // Before the view is made, so that it is in it at the same path.
    let counting = format!("{COUNTING}-{}", std::process::id());
    let kept = OwnFolder::new(&counting);
    rustix::mount::mount_bind_recursive("/", &root).unwrap();
    // As the mounter does, and not on top only.
    let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
    rustix::mount::mount_change(&root, private).unwrap();
    yoi_workspace::mount::make_read_only(&root).unwrap();
    for below in ["", "dev/shm", &counting] {
        let refused = fs::write(root.join(below.trim_start_matches('/')).join("file"), "x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS), "{below}");
    }
    fs::write(Path::new(&counting).join("file"), "the host's own mount stays as it is").unwrap();
    // Where the test counts.
    rustix::mount::mount_bind(Path::new(&counting), root.join(counting.trim_start_matches('/'))).unwrap();
    let file = fixture.dir.join("counting.sh");
    fs::write(&file, format!("#!/bin/sh\necho x >>{counting}/counted\nexec {counting}/real \"$@\"\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    run("cp", &[Path::new("/usr/sbin/zfs"), &Path::new(&counting).join("real")]);
    rustix::mount::mount_bind(&file, root.join("usr/sbin/zfs")).unwrap();
    let data_root = open(fixture, &dataset_of(&fixture.dir), Some(&root), PATIENT);
    let uid = fixture.uid();
    let made = data_root.provider(ProviderKind::Zfs).unwrap().create_empty(uid, crate::fixture::current_owner());
    let counted = fs::read_to_string(Path::new(&counting).join("counted")).unwrap_or_default().len();
    unmount_below(&root);
    rustix::mount::unmount(&root, UnmountFlags::DETACH).unwrap();
    drop(kept);
    made.unwrap();
    assert!(counted > 0 && exists(&dataset(fixture, uid)), "{counted} bytes");
    fixture.provider().destroy(uid).unwrap();
    Verdict::Ran
}

fn missing_parent(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let reason = refused(&open(fixture, &format!("{POOL}/nothing"), None, PATIENT));
    assert!(reason.ends_with(&format!("there is no dataset {POOL}/nothing; its pool may not be imported")), "{reason}");
    assert!(refused(&open(fixture, "tank/nothing", None, PATIENT)).contains("there is no dataset tank/nothing"));
    // The dataset of the tree is not where the wrong name says. Its entry stays: it is the only trace of it.
    zfs(&["create", "-o", "mountpoint=none", &format!("{POOL}/another")]);
    for name in ["nothing", "another"] {
        let wrong = open(fixture, &format!("{POOL}/{name}"), None, PATIENT);
        let error = wrong.provider(ProviderKind::Zfs).unwrap().destroy(base).unwrap_err();
        assert_eq!(error.reason(), ErrorReason::ProviderUnavailable, "{error:?}");
        assert!(wrong.open_tree(base).is_err());
    }
    zfs(&["destroy", &format!("{POOL}/another")]);
    assert_eq!(fixture.root.inventory().unwrap().entries.len(), 1);
    fixture.provider().destroy(base).unwrap();
    assert!(!exists(&dataset(fixture, base)));
    Verdict::Ran
}

fn not_imported(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (dir, image) = (fixture.dir.join("folder"), fixture.dir.join("second"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&image).unwrap();
    fs::File::create(image.join("pool")).unwrap().set_len(128 << 20).unwrap();
    run("zpool", &["create".as_ref(), "-m".as_ref(), "none".as_ref(), "second".as_ref(), &image.join("pool")]);
    let options = || RootOptions { zfs: Some(ZfsOptions::new("second".parse().unwrap())), ..RootOptions::default() };
    let uid = fixture.uid();
    let root = DataRoot::open_with(&dir, options()).unwrap();
    // The root dataset of a pool will do.
    root.provider(ProviderKind::Zfs).unwrap().create_empty(uid, crate::fixture::current_owner()).unwrap();
    crate::fixture::write_in(&root, uid, "file", b"precious");
    drop(root);
    unmount_below(&dir);
    end_pool(&["export", "second"]);
    let root = DataRoot::open_with(&dir, options()).unwrap();
    assert!(refused(&root).contains("there is no dataset second; its pool may not be imported"));
    let provider = root.provider(ProviderKind::Zfs).unwrap();
    assert!(root.open_tree(uid).is_err() && provider.usage(uid).is_err());
    assert!(provider.destroy(uid).is_err() && provider.destroy(uid).is_err());
    assert_eq!(root.inventory().unwrap().entries.len(), 1, "the only trace of a tree is gone");
    let (imported, said) = zpool(&["import", "-d", image.to_str().unwrap(), "second"]);
    assert!(imported, "{said}");
    assert!(exists(&format!("second/{uid}")));
    // What was asked for is done now.
    provider.destroy(uid).unwrap();
    assert!(!exists(&format!("second/{uid}")));
    let uid = fixture.uid();
    provider.create_empty(uid, crate::fixture::current_owner()).unwrap();
    assert_eq!(read_in(&root, uid, "file"), None);
    provider.destroy(uid).unwrap();
    unmount_below(&dir);
    end_pool(&["destroy", "second"]);
    Verdict::Ran
}

fn not_named(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (base, _) = fixture.base();
    let root = DataRoot::open(&fixture.dir).unwrap();
    assert_eq!(refused(&root), "no dataset is named for trees; the chart value shim.zfs.dataset names one");
    assert_eq!(root.provider_of(base).err().unwrap().reason(), ErrorReason::ProviderUnavailable);
    let copy = root.provider(ProviderKind::Copy).unwrap();
    assert!(copy.destroy(base).is_err() && copy.create_empty(base, crate::fixture::current_owner()).is_err());
    // Nor by a recovery that finds it half made, or half gone.
    let (half, _) = fixture.clone_of(base);
    fixture.rest(half);
    fs::rename(fixture.entry(half), fixture.entry(half).with_extension("tmp")).unwrap();
    assert!(root.perform(&yoi_workspace::plan::DiskStep::Discard { uid: half }).is_err());
    assert!(copy.create_empty(half, crate::fixture::current_owner()).is_err());
    assert!(exists(&dataset(fixture, half)));
    fixture.root.perform(&yoi_workspace::plan::DiskStep::Discard { uid: half }).unwrap();
    assert!(!exists(&dataset(fixture, half)));
    zfs(&["get", "type", &dataset(fixture, base)]);
    Verdict::Ran
}
