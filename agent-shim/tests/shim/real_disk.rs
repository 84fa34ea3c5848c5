//! Both halves together, on a real disk with real mounts: needs root, and says so where it cannot run.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use yoi_workspace::ExpectedRoot;
use yoi_workspace::loopback::{ensure_loop_btrfs, release};

use yoi_agent_shim::mounter::DataRootConfig;
use yoi_agent_shim::mounter::client::{Mounter, MounterClient};
use yoi_agent_shim::shim::provisioning::{Next, provision};

use crate::fixtures::{NODE, uid, workspace};
use crate::test_shim::TestShim;
use yoi_agent_shim::mounter::service::MounterService;

/// All of an image is allocated when it is made.
pub const IMAGE_BYTES: u64 = 256 << 20;

/// A directory in memory if possible: there no flush waits for what other processes write to the disk.
pub fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A mounter of its own on a Btrfs of its own.
pub struct RealDisk {
    pub dir: tempfile::TempDir,
    client: Arc<MounterClient>,
}

impl RealDisk {
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            crate::skip::skip("needs root for loop devices and mounts");
            return None;
        }
        let dir = in_memory();
        let pool = dir.path().join("pool");
        ensure_loop_btrfs(&dir.path().join("pool.btrfs"), IMAGE_BYTES, &pool).unwrap();
        std::fs::create_dir(dir.path().join("kubelet")).unwrap();
        let client = mounter(dir.path(), &pool, "mounter");
        Some(RealDisk { dir, client })
    }
}

/// A mounter on what is at `pool` now, with a socket of its own.
pub fn mounter(dir: &Path, pool: &Path, name: &str) -> Arc<MounterClient> {
    mounter_on(dir, DataRootConfig { data_root: pool.to_owned(), loop_size: None, simple_quota: false, zfs: None }, name)
}

pub fn mounter_on(dir: &Path, disk: DataRootConfig, name: &str) -> Arc<MounterClient> {
    serve(dir, MounterService::new(NODE.to_owned(), disk, &dir.join("kubelet")).unwrap(), name)
}

/// A client of this mounter, which serves until the process ends.
fn serve(dir: &Path, service: MounterService, name: &str) -> Arc<MounterClient> {
    let socket = dir.join(name).with_extension("sock");
    let inode = || socket.metadata().ok().map(|m| std::os::unix::fs::MetadataExt::ino(&m));
    let (served, before) = (socket.clone(), inode());
    std::thread::spawn(move || yoi_agent_shim::mounter::listener::run(&served, service));
    while inode().is_none() || inode() == before {
        std::thread::yield_now();
    }
    Arc::new(MounterClient::new(socket))
}

impl Drop for RealDisk {
    fn drop(&mut self) {
        let here = self.dir.path().canonicalize().unwrap();
        unmount_below(&here);
        _ = release(&here.join("pool"));
    }
}

/// Also after a failure: what a test mounted must not outlive it. Lazily, because the mounter's threads hold the pool.
pub fn unmount_below(dir: &Path) {
    for mount in yoi_workspace::mountinfo::read().unwrap().iter().rev().filter(|m| m.mount_point.starts_with(dir)) {
        _ = rustix::mount::unmount(&mount.mount_point, rustix::mount::UnmountFlags::DETACH);
    }
}

fn shows(path: &Path) -> usize {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    yoi_workspace::mountinfo::read().unwrap().iter().filter(|m| m.mount_point == path).count()
}

pub async fn prepare(disk: &RealDisk) -> TestShim {
    prepare_on(disk.dir.path(), &disk.client).await
}

/// A shim that knows what its mounter offers.
pub async fn prepare_on(dir: &Path, client: &Arc<MounterClient>) -> TestShim {
    let shim = TestShim::with(dir.join("kubelet"), client.clone());
    *shim.state.offers.write().unwrap() = probe_offers(client).await;
    shim
}

async fn probe_offers(line: &Arc<MounterClient>) -> Vec<yoi_workspace::ProviderOffer> {
    let line: &dyn Mounter = &**line;
    line.open(ExpectedRoot::Any).await.unwrap();
    line.probe().await.unwrap().offers
}

pub async fn base(shim: &TestShim) {
    let populated = json!({ "type": "Populated", "status": "True", "reason": "Filled", "message": "", "lastTransitionTime": "" });
    let over = json!({ "spec": { "base": { "generation": "g", "node": NODE } }, "status": { "conditions": [populated] } });
    for _ in 0..2 {
        provision(&shim.state, &workspace(1, over.clone()), uid(1)).await.unwrap();
    }
}

pub fn clone_of_base() -> serde_json::Value {
    let origin = json!({ "kind": "Base", "workspaceUID": uid(1) });
    json!({ "spec": { "source": { "empty": null, "project": { "name": "p" } } }, "status": { "origin": origin, "podUID": uid(7) } })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_made_mounted_once_unmounted_and_destroyed() {
    let Some(disk) = RealDisk::new() else { return };
    let shim = prepare(&disk).await;
    base(&shim).await;
    let made = provision(&shim.state, &workspace(2, clone_of_base()), uid(2)).await.unwrap();
    assert_eq!((made.next, made.update.provider.unwrap().reason), (Next::AwaitChange, "Btrfs: as its base".to_owned()));

    shim.apply_event(kube::runtime::watcher::Event::Apply(workspace(2, clone_of_base())));
    let mut node = shim.node().await;
    let (tree, runtime) = (shim.tree(7, 2), shim.runtime(7));
    for request in [&tree, &runtime] {
        std::fs::create_dir_all(Path::new(&request.target_path).parent().unwrap()).unwrap();
        for _ in 0..3 {
            node.node_publish_volume(request.clone()).await.unwrap();
        }
        assert_eq!(shows(Path::new(&request.target_path)), 1, "the kubelet asks again after a restart");
    }
    std::fs::write(Path::new(&tree.target_path).join("new"), "x").unwrap();
    let line: &dyn Mounter = &*disk.client;
    let list = line.changes(uid(2), Some(uid(1)), 10).await.unwrap();
    assert_eq!(list.changes.len(), 1);
    let readonly = std::fs::write(Path::new(&runtime.target_path).join("new"), "x").unwrap_err();
    assert_eq!(readonly.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(line.mounts().await.unwrap().shown.len(), 2);

    assert!(line.destroy(uid(2)).await.unwrap_err().to_string().contains("still mounted"));
    for (name, request) in [("tree", &tree), ("runtime", &runtime)] {
        for _ in 0..2 {
            node.node_unpublish_volume(shim.unpublish(7, name)).await.unwrap();
        }
        assert!(!Path::new(&request.target_path).exists());
    }
    let mut deleted = clone_of_base();
    deleted["metadata"] = json!({ "deletionTimestamp": "2026-11-21T00:00:00Z" });
    assert_eq!(provision(&shim.state, &workspace(2, deleted), uid(2)).await.unwrap().next, Next::RemoveFinalizer);
    assert_eq!(line.inventory().await.unwrap().entries.len(), 1, "the base");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_that_is_being_read_ahead_is_unmounted_at_once() {
    let Some(disk) = RealDisk::new() else { return };
    let config = DataRootConfig { data_root: disk.dir.path().join("pool"), loop_size: None, simple_quota: false, zfs: None };
    let service = MounterService::new(NODE.to_owned(), config, &disk.dir.path().join("kubelet")).unwrap().with_read_ahead(usize::MAX);
    let shim = prepare_on(disk.dir.path(), &serve(disk.dir.path(), service, "reading")).await;
    base(&shim).await;
    provision(&shim.state, &workspace(2, clone_of_base()), uid(2)).await.unwrap();
    shim.apply_event(kube::runtime::watcher::Event::Apply(workspace(2, clone_of_base())));
    let mut node = shim.node().await;
    let tree = shim.tree(7, 2);
    let at = Path::new(&tree.target_path).to_owned();
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    node.node_publish_volume(tree.clone()).await.unwrap();
    for folder in 0..20 {
        std::fs::create_dir(at.join(folder.to_string())).unwrap();
        for file in 0..100 {
            std::fs::write(at.join(format!("{folder}/{file}")), "").unwrap();
        }
    }
    for _ in 0..20 {
        node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
        assert!(!at.exists());
        node.node_publish_volume(tree.clone()).await.unwrap();
    }
    node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_sees_its_tree_by_the_scope_of_its_agent_or_not_at_all() {
    let Some(disk) = RealDisk::new() else { return };
    let shim = prepare(&disk).await;
    base(&shim).await;
    provision(&shim.state, &workspace(2, clone_of_base()), uid(2)).await.unwrap();
    shim.apply_event(kube::runtime::watcher::Event::Apply(workspace(2, clone_of_base())));
    let mut node = shim.node().await;
    let plain = shim.tree(7, 2);
    let at = Path::new(&plain.target_path).to_owned();
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    node.node_publish_volume(plain).await.unwrap();
    for folder in ["open/inner", "closed"] {
        std::fs::create_dir_all(at.join(folder)).unwrap();
    }
    node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();

    let missing = shim.scoped_tree(7, 2, &json!([{ "path": "closed", "shown": "ReadOnly" }, { "path": "nowhere", "shown": "Hidden" }]));
    let refused = node.node_publish_volume(missing).await.unwrap_err();
    assert!(refused.message().contains("nowhere: it is not in the tree"), "{refused}");
    assert!(!at.exists(), "nothing of it is left, so no container finds a tree without its scope");

    let covers = json!([{ "path": ".", "shown": "ReadOnly" }, { "path": "open", "shown": "Writable" }, { "path": "open/inner", "shown": "ReadOnly" }]);
    let scoped = shim.scoped_tree(7, 2, &covers);
    for _ in 0..3 {
        node.node_publish_volume(scoped.clone()).await.unwrap();
        assert_eq!(
            (shows(&at), shows(&at.join("open")), shows(&at.join("open/inner"))),
            (1, 1, 1),
            "the kubelet asks again after a restart"
        );
    }
    let write = |path: &str| std::fs::write(at.join(path), "x").map_err(|error| error.kind());
    let read_only = Err(std::io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!([write("new"), write("closed/new"), write("open/inner/new")], [read_only; 3]);
    assert_eq!(write("open/new"), Ok(()));
    // Another mounter finds them, and ends them with the Pod.
    let again = mounter(disk.dir.path(), &disk.dir.path().join("pool"), "again");
    (&*again as &dyn Mounter).open(ExpectedRoot::Any).await.unwrap();
    let shown = (&*again as &dyn Mounter).mounts().await.unwrap().shown;
    assert_eq!(shown.len(), 1, "covers are no volumes: {shown:?}");
    node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
    assert!(!at.exists());
}
