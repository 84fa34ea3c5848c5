//! Folders of the host that are in datasets: which dataset they are in, and where, and what is made of them.

use std::fs;
use std::path::{Path, PathBuf};

use yoi_workspace::{CaptureMethod, DatasetFolder, ProviderKind};

use crate::fixture::{Fixture, dataset_of, read_in, run, unmount_below};
use crate::host;
use crate::zfs::only_zfs;
use crate::zfs_fuse::{POOL, end_pool, zfs};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w6_a_folder_in_a_dataset_is_found_with_its_path_there", w6),
    ("w7_of_two_mount_points_with_one_beginning_the_right_dataset_is_found", w7),
    ("w8_a_folder_of_a_pools_root_dataset_is_found", w8),
    ("w10_a_folder_of_a_dataset_is_copied_and_the_marker_says_why", w10),
];

fn found(path: &Path) -> Option<DatasetFolder> {
    DatasetFolder::of(fs::File::open(path).unwrap()).unwrap()
}

fn folder(dataset: &str, below: &str) -> Option<DatasetFolder> {
    Some(DatasetFolder { dataset: dataset.to_owned(), below: below.into() })
}

/// Makes a dataset that is mounted at a path, as a person has one.
fn mounted(fixture: &Fixture, name: &str, at: &Path) -> String {
    let dataset = format!("{}/{name}", dataset_of(&fixture.dir));
    zfs(&["create", "-p", "-o", &format!("mountpoint={}", at.display()), &dataset]);
    dataset
}

fn w6(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let at = fixture.dir.join("home of a person");
    let dataset = mounted(fixture, "home", &at);
    fs::create_dir_all(at.join("src/repo/inner")).unwrap();
    assert_eq!(found(&at), folder(&dataset, ""));
    assert_eq!(found(&at.join("src/repo")), folder(&dataset, "src/repo"));
    // Through another mount, of a part of it.
    let part = fixture.dir.join("part");
    fs::create_dir(&part).unwrap();
    rustix::mount::mount_bind(at.join("src"), &part).unwrap();
    assert_eq!(found(&part.join("repo/inner")), folder(&dataset, "src/repo/inner"));
    // What is mounted on it is not in it, and what has its path is not it.
    rustix::mount::mount("home", at.join("src/repo"), "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    assert_eq!(found(&at.join("src/repo")), None);
    assert_eq!(found(&part.join("repo")), folder(&dataset, "src/repo"));
    assert_eq!(found(&fixture.dir), None);
    assert_eq!(found(&at).unwrap().pool(), POOL);
    unmount_below(&fixture.dir);
    Verdict::Ran
}

fn w7(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let paths: [PathBuf; 3] = ["a/x", "a/xy", "a/x/y"].map(|path| fixture.dir.join(path));
    let [x, xy, inner] = [("x", &paths[0]), ("xy", &paths[1]), ("inner", &paths[2])].map(|(name, at)| mounted(fixture, name, at));
    paths.iter().for_each(|path| fs::create_dir(path.join("z")).unwrap());
    assert_eq!(found(&paths[1].join("z")), folder(&xy, "z"));
    assert_eq!(found(&paths[0].join("z")), folder(&x, "z"));
    assert_eq!(found(&paths[2].join("z")), folder(&inner, "z"));
    // By prefixes, the path of `xy` would be one of `x`.
    assert!(paths[1].to_str().unwrap().starts_with(paths[0].to_str().unwrap()));
    unmount_below(&fixture.dir);
    Verdict::Ran
}

fn w8(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let (image, at) = (fixture.dir.join("root-pool"), fixture.dir.join("root-of-a-pool"));
    fs::File::create(&image).unwrap().set_len(128 << 20).unwrap();
    run("zpool", &["create".as_ref(), "-m".as_ref(), &at, "rootpool".as_ref(), &image]);
    fs::create_dir_all(at.join("repo")).unwrap();
    assert_eq!(found(&at), folder("rootpool", ""));
    assert_eq!(found(&at.join("repo")), folder("rootpool", "repo"));
    assert_eq!(found(&at).unwrap().pool(), "rootpool");
    unmount_below(&fixture.dir);
    end_pool(&["destroy", "rootpool"]);
    assert!(fixture.root.provider(ProviderKind::Zfs).is_ok());
    Verdict::Ran
}

fn w10(fixture: &Fixture) -> Verdict {
    only_zfs!(fixture);
    let at = fixture.dir.join("home");
    mounted(fixture, "home", &at);
    let source = at.join("repo");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "not committed").unwrap();
    host::give_away(&source);
    let uid = fixture.uid();
    let captured = host::capture_with(fixture.provider(), uid, &source).unwrap().captured.unwrap();
    assert_eq!(captured.how, CaptureMethod::Copied);
    assert!(captured.why.starts_with("trees of Zfs are not yet made as clones of other datasets"), "{}", captured.why);
    assert_eq!(read_in(&fixture.root, uid, "file").as_deref(), Some("not committed"));
    unmount_below(&fixture.dir);
    Verdict::Ran
}
