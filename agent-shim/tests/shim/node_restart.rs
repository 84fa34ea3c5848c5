//! The node starts again: no mount is left, and the data root may come late, or not at all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use yoi_workspace::loopback::{attach_loop_btrfs, release};
use yoi_workspace::{ErrorReason, ExpectedRoot, ProviderKind, Uid};

use crate::fixtures::{FakeMounter, offers, uid, workspace};
use crate::real_disk::{IMAGE_BYTES, RealDisk, base, clone_of_base, in_memory, mounter, mounter_on, prepare};
use crate::test_shim::TestShim;
use yoi_agent_shim::args;
use yoi_agent_shim::decide::node_status::DataRootFailure;
use yoi_agent_shim::mounter::DataRootConfig;
use yoi_agent_shim::mounter::client::{Mounter, MounterClient, MounterFailure};
use yoi_agent_shim::mounter::protocol::MounterRefusal;
use yoi_agent_shim::shim::provisioning::{Next, provision};
use yoi_agent_shim::shim::{health, record_sweep, recovery};
use yoi_wire::error_chain;

/// Takes everything off that is mounted below `dir`, as a reboot does.
fn unmount_all(dir: &Path) {
    let dir = dir.canonicalize().unwrap();
    for mount in yoi_workspace::mountinfo::read().unwrap().iter().rev().filter(|m| m.mount_point.starts_with(&dir)) {
        rustix::mount::unmount(&mount.mount_point, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// A node that was switched off, with a base and two workspaces, each mounted by a Pod. The kubelet still knows Pod 7 and not Pod 8.
async fn switched_off() -> Option<(RealDisk, TestShim)> {
    let disk = RealDisk::new()?;
    let shim = prepare(&disk).await;
    // As at a start: the name of the data root is recorded.
    let folder = args::driver_dir(&shim.state.kubelet_dir);
    let expected = recovery::expected_data_root(&folder, &shim.state.journal).unwrap();
    recovery::open_data_root(&*shim.state.mounter, expected, &folder, async |_| {}).await.unwrap();
    base(&shim).await;
    let mut node = shim.node().await;
    for (n, pod) in [(2, 7), (3, 8)] {
        let mut over = clone_of_base();
        over["status"]["podUID"] = json!(uid(pod));
        assert_eq!(provision(&shim.state, &workspace(n, over.clone()), uid(n)).await.unwrap().next, Next::AwaitChange);
        shim.apply_event(kube::runtime::watcher::Event::Apply(workspace(n, over)));
        let request = shim.tree(pod, n);
        std::fs::create_dir_all(Path::new(&request.target_path).parent().unwrap()).unwrap();
        node.node_publish_volume(request.clone()).await.unwrap();
        std::fs::write(Path::new(&request.target_path).join("work"), format!("of {n}")).unwrap();
    }
    unmount_all(disk.dir.path());
    std::fs::remove_dir_all(shim.state.kubelet_dir.join("pods").join(uid(8).to_string())).unwrap();
    Some((disk, shim))
}

#[tokio::test(flavor = "multi_thread")]
async fn w38_after_a_reboot_trees_are_found_and_mounted_again_and_records_of_deleted_pods_are_removed() {
    let Some((disk, before)) = switched_off().await else { return };
    let (pool, kubelet_dir) = (disk.dir.path().join("pool"), before.state.kubelet_dir.clone());
    drop(before);
    attach_loop_btrfs(&disk.dir.path().join("pool.btrfs"), &pool).unwrap();
    let shim = TestShim::with(kubelet_dir, mounter(disk.dir.path(), &pool, "again"));
    let state = &shim.state;
    let folder = args::driver_dir(&state.kubelet_dir);
    let expected = recovery::expected_data_root(&folder, &state.journal).unwrap();
    assert!(matches!(expected, ExpectedRoot::Named(_)));
    recovery::open_data_root(&*state.mounter, expected, &folder, async |failure| panic!("{failure:?}")).await.unwrap();
    let damage = recovery::recover(&state.journal, &*state.mounter).await.unwrap();
    assert!(damage.lost.is_empty() && damage.unreadable.is_empty() && damage.damaged.is_empty(), "{damage:?}");
    assert_eq!(state.mounter.inventory().await.unwrap().entries.len(), 3);
    record_sweep::add_missing_records(state).await.unwrap();
    record_sweep::remove_stale_records(state).await.unwrap();
    assert_eq!((state.publish_records.of_pod(uid(7)).len(), state.publish_records.of_pod(uid(8)).len()), (1, 0));

    // The kubelet asks again, and the API server is not there to be asked.
    let request = shim.tree(7, 2);
    shim.node().await.node_publish_volume(request.clone()).await.unwrap();
    assert_eq!(std::fs::read_to_string(Path::new(&request.target_path).join("work")).unwrap(), "of 2");
    assert_eq!(provision(state, &workspace(2, clone_of_base()), uid(2)).await.unwrap().next, Next::AwaitChange);
}

/// What a mounter makes of a place where nothing is mounted.
async fn taken_for_new(line: &Arc<MounterClient>, pool: &Path, expected: ExpectedRoot) -> Option<String> {
    let line: &dyn Mounter = &**line;
    let answer = line.open(expected).await;
    let made = std::fs::read_dir(pool).unwrap().count();
    (answer.is_ok() || made > 0).then(|| format!("an empty folder was taken for the data root: {made} things were made in it"))
}

#[tokio::test]
async fn w38_an_empty_directory_is_not_taken_for_the_data_root_and_the_shim_waits_for_it() {
    let Some((disk, before)) = switched_off().await else { return };
    let (pool, kubelet_dir) = (disk.dir.path().join("pool"), before.state.kubelet_dir.clone());
    drop(before);
    let line = mounter(disk.dir.path(), &pool, "again");
    let shim = TestShim::with(kubelet_dir, line.clone());
    let folder = args::driver_dir(&shim.state.kubelet_dir);
    let expected = recovery::expected_data_root(&folder, &shim.state.journal).unwrap();
    assert_eq!(taken_for_new(&line, &pool, expected).await, None);
    assert_eq!(taken_for_new(&line, &pool, ExpectedRoot::Used).await, None, "nor by a node that forgot its name");
    let refused = shim.state.mounter.inventory().await.unwrap_err();
    assert!(matches!(refused, MounterFailure::Refused(r) if r.reason == ErrorReason::WrongDataRoot), "nothing is served");

    let image = disk.dir.path().join("pool.btrfs");
    let mut reports = Vec::new();
    let report = async |failure: DataRootFailure| {
        reports.push(failure.message);
        attach_loop_btrfs(&image, &pool).unwrap();
    };
    recovery::open_data_root(&*shim.state.mounter, expected, &folder, report).await.unwrap();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(
        reports[0].contains(pool.to_str().unwrap()) && reports[0].contains(folder.join("data-root").to_str().unwrap()),
        "{}",
        reports[0]
    );
    assert_eq!(shim.state.mounter.inventory().await.unwrap().entries.len(), 3);
}

#[tokio::test]
async fn planted_a_shim_that_forgets_its_data_root_is_found() {
    let Some((disk, before)) = switched_off().await else { return };
    drop(before);
    let pool = disk.dir.path().join("pool");
    let line = mounter(disk.dir.path(), &pool, "again");
    let complaint = taken_for_new(&line, &pool, ExpectedRoot::Any).await.expect("the harness detects nothing");
    println!("found: {complaint}");
}

#[tokio::test]
async fn another_disk_in_place_of_the_data_root_is_refused_and_a_restarted_mounter_opens_the_same_one() {
    let Some((disk, before)) = switched_off().await else { return };
    let (pool, other) = (disk.dir.path().join("pool"), disk.dir.path().join("other"));
    let folder = args::driver_dir(&before.state.kubelet_dir);
    let expected = recovery::expected_data_root(&folder, &before.state.journal).unwrap();
    std::fs::create_dir(&other).unwrap();
    let line = mounter(disk.dir.path(), &other, "other");
    let theirs = (&*line as &dyn Mounter).open(ExpectedRoot::Any).await.unwrap();
    assert!(
        matches!((&*line as &dyn Mounter).open(expected).await, Err(MounterFailure::Refused(r)) if r.reason == ErrorReason::WrongDataRoot)
    );
    assert_ne!(expected, ExpectedRoot::Named(theirs));

    // The shim lives on while the mounter starts anew at the same socket.
    attach_loop_btrfs(&disk.dir.path().join("pool.btrfs"), &pool).unwrap();
    let line = mounter(disk.dir.path(), &pool, "again");
    (&*line as &dyn Mounter).open(expected).await.unwrap();
    mounter(disk.dir.path(), &pool, "again");
    assert_eq!((&*line as &dyn Mounter).inventory().await.unwrap().entries.len(), 3);
}

#[tokio::test]
async fn a_missing_pool_file_is_never_formatted_anew_where_trees_were() {
    if !rustix::process::geteuid().is_root() {
        crate::skip::skip("needs root for loop devices");
        return;
    }
    let dir = in_memory();
    let disk = DataRootConfig { data_root: dir.path().to_owned(), loop_size: Some(IMAGE_BYTES), simple_quota: false, zfs: None };
    for expected in [ExpectedRoot::Used, ExpectedRoot::Named(uid(1))] {
        let refused = disk.open(expected).err().unwrap();
        assert!(error_chain(&refused).contains("pool.btrfs"), "{}", error_chain(&refused));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    let root = disk.open(ExpectedRoot::Any).unwrap();
    let name = root.name();
    drop(root);
    assert_eq!(disk.open(ExpectedRoot::Named(name)).unwrap().name(), name);
    release(&dir.path().join("pool")).unwrap();
}

#[tokio::test]
async fn a_disk_without_room_for_the_pool_is_reported_with_figures_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("driver");
    for made in [&folder, &dir.path().join("kubelet")] {
        std::fs::create_dir(made).unwrap();
    }
    let line = mounter_on(
        dir.path(),
        DataRootConfig { data_root: dir.path().to_owned(), loop_size: Some(1 << 50), simple_quota: false, zfs: None },
        "mounter",
    );
    let (reported, mut reports) = tokio::sync::mpsc::channel(1);
    let opening = recovery::open_data_root(&*line, ExpectedRoot::Any, &folder, async |failure: DataRootFailure| {
        reported.send(failure.message).await.unwrap();
    });
    tokio::select! {
        opened = opening => panic!("it did not wait: {opened:?}"),
        why = reports.recv() => {
            let why = why.unwrap();
            assert!(why.contains("it takes 1073741824 MiB, and its disk has ") && why.contains("shim.loopBtrfs.size"), "{why}");
        }
    }
}

/// A mounter on a kernel that is too old at first, as if the node were started again with another one.
#[tokio::test(start_paused = true)]
async fn a_node_whose_kernel_is_too_old_says_so_and_opens_nothing() {
    let shim = TestShim::new();
    let folder = args::driver_dir(&shim.state.kubelet_dir);
    let why = "failed to open the data root: the node's kernel 5.10.0 lacks mount_setattr: Linux 5.12 or later is needed";
    *shim.mounter.refuse_open.lock().unwrap() = Some(MounterRefusal { reason: ErrorReason::KernelTooOld, message: why.to_owned() });
    let mut reports = Vec::new();
    let report = async |failure: DataRootFailure| {
        reports.push((failure.reason.as_str(), failure.message));
        if reports.len() == 2 {
            *shim.mounter.refuse_open.lock().unwrap() = None;
        }
    };
    recovery::open_data_root(&*shim.state.mounter, ExpectedRoot::Any, &folder, report).await.unwrap();
    assert_eq!(reports, [("KernelTooOld", why.to_owned()), ("KernelTooOld", why.to_owned())]);
}

fn provisioned(n: u8, over: serde_json::Value) -> yoi_crds::AgentWorkspace {
    let condition = json!({ "type": "Provisioned", "status": "True", "reason": "CloneCreated", "message": "", "lastTransitionTime": "" });
    let mut all = json!({ "status": { "conditions": [condition] } });
    all["status"].as_object_mut().unwrap().extend(over.as_object().cloned().unwrap_or_default());
    workspace(n, all)
}

fn reason(outcome: &yoi_agent_shim::shim::provisioning::ProvisionOutcome) -> &'static str {
    outcome.update.conditions.iter().find(|(t, _)| *t == "Provisioned").map_or("", |(_, v)| v.reason.as_str())
}

/// The node was set up anew under its old name: neither journal nor data root know of the trees that the objects speak of.
#[tokio::test]
async fn on_a_node_that_was_reinstalled_no_empty_tree_is_made_in_place_of_a_provisioned_one() {
    let shim = TestShim::new();
    *shim.state.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    for _ in 0..2 {
        let outcome = provision(&shim.state, &provisioned(1, json!({})), uid(1)).await.unwrap();
        assert_eq!((reason(&outcome), &outcome.next), ("TreeLost", &Next::Retry));
    }
    assert!(shim.mounter.trees.lock().unwrap().is_empty());
    assert_eq!(shim.state.journal.read_and_clean().unwrap().records, []);
}

#[tokio::test]
async fn a_journal_that_was_lost_is_written_again_from_the_trees_on_disk() {
    let shim = TestShim::new();
    let making = yoi_workspace::TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 5, gid: 6 } };
    shim.state.mounter.make(uid(1), ProviderKind::Copy, making).await.unwrap();
    let outcome = provision(&shim.state, &provisioned(1, json!({})), uid(1)).await.unwrap();
    assert_eq!(outcome.next, Next::AwaitChange);
    let record = shim.state.journal.get(uid(1)).unwrap().unwrap();
    assert_eq!((record.origin, record.state), (making, yoi_workspace::RecordState::Ready));
}

fn damage(shim: &TestShim, n: u8) -> PathBuf {
    let path = args::driver_dir(&shim.state.kubelet_dir).join("journal").join(format!("{}.json", uid(n)));
    std::fs::write(&path, "{\"uid\":").unwrap();
    path
}

async fn two_trees(fake: &Arc<FakeMounter>, dir: &Path) -> TestShim {
    let shim = TestShim::with(dir.to_owned(), fake.clone());
    *shim.state.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    for n in [1, 2] {
        provision(&shim.state, &workspace(n, json!({})), uid(n)).await.unwrap();
    }
    shim
}

#[tokio::test]
async fn a_damaged_record_is_reported_and_affects_only_its_own_tree() {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Arc::new(FakeMounter::default()));
    let path = damage(&two_trees(&fake, dir.path()).await, 1);
    let mut shim = TestShim::with(dir.path().to_owned(), fake.clone());
    let damage = recovery::recover(&shim.state.journal, &*fake).await.unwrap();
    assert_eq!(damage.damaged.iter().map(|d| d.uid).collect::<Vec<_>>(), [uid(1)]);
    Arc::get_mut(&mut shim.state).unwrap().damage = damage;
    let damaged = shim.state.damage_messages().await.unwrap();
    assert!(damaged.len() == 1 && damaged[0].contains(path.to_str().unwrap()), "{damaged:?}");

    let outcome = provision(&shim.state, &provisioned(1, json!({})), uid(1)).await.unwrap();
    assert_eq!(reason(&outcome), "JournalDamaged");
    shim.assign_pod(1, 7);
    shim.assign_pod(2, 8);
    let mut node = shim.node().await;
    let refused = node.node_publish_volume(shim.tree(7, 1)).await.unwrap_err();
    assert!(refused.message().contains(path.to_str().unwrap()), "{refused}");
    node.node_publish_volume(shim.tree(8, 2)).await.unwrap();
    assert_eq!(fake.trees.lock().unwrap().len(), 2);

    // A person moves the file away: the tree is adopted as it is.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(provision(&shim.state, &provisioned(1, json!({})), uid(1)).await.unwrap().next, Next::AwaitChange);
    node.node_publish_volume(shim.tree(7, 1)).await.unwrap();
    assert_eq!(shim.state.damage_messages().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_workspace_with_a_damaged_record_can_be_deleted() {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Arc::new(FakeMounter::default()));
    let shim = two_trees(&fake, dir.path()).await;
    let path = damage(&shim, 1);
    let deleted = workspace(1, json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" } }));
    assert_eq!(provision(&shim.state, &deleted, uid(1)).await.unwrap().next, Next::RemoveFinalizer);
    assert!(!path.exists());
    assert_eq!(fake.trees.lock().unwrap().keys().copied().collect::<Vec<Uid>>(), [uid(2)]);
}

#[tokio::test]
async fn a_shim_that_waits_for_its_data_root_is_alive_and_not_ready() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(health::serve_waiting(listener));
    let get = async |path: &str| -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    };
    assert!(get("/healthz").await.contains("200"));
    assert!(get("/readyz").await.contains("503"));
    serving.abort();
}
