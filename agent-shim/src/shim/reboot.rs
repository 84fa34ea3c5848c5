//! The node starts again: no mount is left, and the data root may come late, or not at all.

use std::time::Duration;

use serde_json::json;
use yoi_workspace::loopback::{attach_loop_btrfs, release};
use yoi_workspace::{ErrorReason, ExpectedRoot, ProviderKind, Uid};

use super::making::{Next, work};
use super::real::{Ground, base, clone_of_base, mounter, prepare};
use super::tests::Stage;
use super::*;
use crate::args;
use crate::sample::{Fake, offers, uid, workspace};

/// Takes everything off that is mounted below `dir`, as a reboot does.
fn unmount_all(dir: &Path) {
    let dir = dir.canonicalize().unwrap();
    for mount in yoi_workspace::mountinfo::read().unwrap().iter().rev().filter(|m| m.mount_point.starts_with(&dir)) {
        rustix::mount::unmount(&mount.mount_point, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// A node with a base and two workspaces, each shown to a Pod, that was switched off. Of the Pods, 7 is still known to the kubelet.
async fn switched_off() -> Option<(Ground, Stage)> {
    let ground = Ground::new()?;
    let stage = prepare(&ground).await;
    // As a start does: the node remembers its data root.
    let folder = args::driver_dir(&stage.world.kubelet_dir);
    let expected = recover::expected(&folder, &stage.world.journal).unwrap();
    recover::meet(&*stage.world.mounter, expected, &folder, async |_: &str| {}).await.unwrap();
    base(&stage).await;
    let mut node = stage.node().await;
    for (n, pod) in [(2, 7), (3, 8)] {
        let mut over = clone_of_base();
        over["status"]["podUID"] = json!(uid(pod));
        assert_eq!(work(&stage.world, &workspace(n, over.clone()), uid(n)).await.unwrap().next, Next::Rest);
        stage.world.cache.heard(&kube::runtime::watcher::Event::Apply(workspace(n, over)));
        let request = stage.tree(pod, n);
        std::fs::create_dir_all(Path::new(&request.target_path).parent().unwrap()).unwrap();
        node.node_publish_volume(request.clone()).await.unwrap();
        std::fs::write(Path::new(&request.target_path).join("work"), format!("of {n}")).unwrap();
    }
    unmount_all(ground.dir.path());
    std::fs::remove_dir_all(stage.world.kubelet_dir.join("pods").join(uid(8).to_string())).unwrap();
    Some((ground, stage))
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_trees_are_found_and_shown_again_and_records_of_pods_that_are_gone_go() {
    let Some((ground, before)) = switched_off().await else { return };
    let (pool, kubelet_dir) = (ground.dir.path().join("pool"), before.world.kubelet_dir.clone());
    drop(before);
    attach_loop_btrfs(&ground.dir.path().join("pool.btrfs"), &pool).unwrap();
    let stage = Stage::with(kubelet_dir, mounter(ground.dir.path(), &pool, "again"));
    let world = &stage.world;
    let folder = args::driver_dir(&world.kubelet_dir);
    let expected = recover::expected(&folder, &world.journal).unwrap();
    assert!(matches!(expected, ExpectedRoot::Named(_)));
    recover::meet(&*world.mounter, expected, &folder, async |why: &str| panic!("{why}")).await.unwrap();
    let troubled = recover::recover(&world.journal, &*world.mounter).await.unwrap();
    assert!(troubled.lost.is_empty() && troubled.unreadable.is_empty() && troubled.damaged.is_empty(), "{troubled:?}");
    assert_eq!(world.mounter.inventory().await.unwrap().entries.len(), 3);
    world.adopt().await.unwrap();
    world.sweep().await.unwrap();
    assert_eq!((world.publications.of_pod(uid(7)).len(), world.publications.of_pod(uid(8)).len()), (1, 0));

    // The kubelet asks again, and the API server is not there to be asked.
    let request = stage.tree(7, 2);
    stage.node().await.node_publish_volume(request.clone()).await.unwrap();
    assert_eq!(std::fs::read_to_string(Path::new(&request.target_path).join("work")).unwrap(), "of 2");
    assert_eq!(work(world, &workspace(2, clone_of_base()), uid(2)).await.unwrap().next, Next::Rest);
}

/// What a mounter makes of a place where nothing is mounted.
async fn taken_for_new(line: &Arc<Line>, pool: &Path, expected: ExpectedRoot) -> Option<String> {
    let line: &dyn Mounter = &**line;
    let answer = line.open(expected).await;
    let made = std::fs::read_dir(pool).unwrap().count();
    (answer.is_ok() || made > 0).then(|| format!("an empty folder was taken for the data root: {made} things were made in it"))
}

#[tokio::test]
async fn an_empty_folder_is_not_taken_for_the_data_root_and_its_coming_is_waited_for() {
    let Some((ground, before)) = switched_off().await else { return };
    let (pool, kubelet_dir) = (ground.dir.path().join("pool"), before.world.kubelet_dir.clone());
    drop(before);
    let line = mounter(ground.dir.path(), &pool, "again");
    let stage = Stage::with(kubelet_dir, line.clone());
    let folder = args::driver_dir(&stage.world.kubelet_dir);
    let expected = recover::expected(&folder, &stage.world.journal).unwrap();
    assert_eq!(taken_for_new(&line, &pool, expected).await, None);
    assert_eq!(taken_for_new(&line, &pool, ExpectedRoot::Used).await, None, "nor by a node that forgot its name");
    let refused = stage.world.mounter.inventory().await.unwrap_err();
    assert!(matches!(refused, Failure::Refused(r) if r.reason == ErrorReason::WrongDataRoot), "nothing is served");

    let image = ground.dir.path().join("pool.btrfs");
    let mut told = Vec::new();
    let tell = async |why: &str| {
        told.push(why.to_owned());
        attach_loop_btrfs(&image, &pool).unwrap();
    };
    recover::meet(&*stage.world.mounter, expected, &folder, tell).await.unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(pool.to_str().unwrap()) && told[0].contains(folder.join("data-root").to_str().unwrap()), "{}", told[0]);
    assert_eq!(stage.world.mounter.inventory().await.unwrap().entries.len(), 3);
}

#[tokio::test]
async fn planted_a_shim_that_forgets_its_data_root_is_found() {
    let Some((ground, before)) = switched_off().await else { return };
    drop(before);
    let pool = ground.dir.path().join("pool");
    let line = mounter(ground.dir.path(), &pool, "again");
    let complaint = taken_for_new(&line, &pool, ExpectedRoot::Any).await.expect("the harness is blind");
    println!("found: {complaint}");
}

#[tokio::test]
async fn another_disk_in_the_place_of_the_data_root_is_refused_and_a_mounter_that_starts_anew_is_told_which() {
    let Some((ground, before)) = switched_off().await else { return };
    let (pool, other) = (ground.dir.path().join("pool"), ground.dir.path().join("other"));
    let folder = args::driver_dir(&before.world.kubelet_dir);
    let expected = recover::expected(&folder, &before.world.journal).unwrap();
    std::fs::create_dir(&other).unwrap();
    let line = mounter(ground.dir.path(), &other, "other");
    let theirs = (&*line as &dyn Mounter).open(ExpectedRoot::Any).await.unwrap();
    assert!(matches!((&*line as &dyn Mounter).open(expected).await, Err(Failure::Refused(r)) if r.reason == ErrorReason::WrongDataRoot));
    assert_ne!(expected, ExpectedRoot::Named(theirs));

    // The shim lives on while the mounter starts anew at the same socket.
    attach_loop_btrfs(&ground.dir.path().join("pool.btrfs"), &pool).unwrap();
    let line = mounter(ground.dir.path(), &pool, "again");
    (&*line as &dyn Mounter).open(expected).await.unwrap();
    mounter(ground.dir.path(), &pool, "again");
    assert_eq!((&*line as &dyn Mounter).inventory().await.unwrap().entries.len(), 3);
}

#[tokio::test]
async fn a_missing_pool_file_is_never_formatted_anew_where_trees_were() {
    if !rustix::process::geteuid().is_root() {
        crate::must::skipped("needs root for loop devices");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let ground = crate::mounter::Ground { data_root: dir.path().to_owned(), loop_size: Some(1 << 30) };
    for expected in [ExpectedRoot::Used, ExpectedRoot::Named(uid(1))] {
        let refused = ground.open(expected).err().unwrap();
        assert!(chain::whole(&refused).contains("pool.btrfs"), "{}", chain::whole(&refused));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    let root = ground.open(ExpectedRoot::Any).unwrap();
    let name = root.name();
    drop(root);
    assert_eq!(ground.open(ExpectedRoot::Named(name)).unwrap().name(), name);
    release(&dir.path().join("pool")).unwrap();
}

fn provisioned(n: u8, over: serde_json::Value) -> yoi_crds::AgentWorkspace {
    let said = json!({ "type": "Provisioned", "status": "True", "reason": "CloneCreated", "message": "", "lastTransitionTime": "" });
    let mut all = json!({ "status": { "conditions": [said] } });
    all["status"].as_object_mut().unwrap().extend(over.as_object().cloned().unwrap_or_default());
    workspace(n, all)
}

fn reason(outcome: &super::making::Outcome) -> &'static str {
    outcome.said.verdicts.iter().find(|(t, _)| *t == "Provisioned").map_or("", |(_, v)| v.reason.word())
}

/// The node was set up anew under its old name: neither journal nor data root know of the trees that the objects speak of.
#[tokio::test]
async fn on_a_node_that_was_set_up_anew_no_tree_is_made_empty_in_the_place_of_one_that_stood() {
    let stage = Stage::new();
    *stage.world.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    for _ in 0..2 {
        let outcome = work(&stage.world, &provisioned(1, json!({})), uid(1)).await.unwrap();
        assert_eq!((reason(&outcome), &outcome.next), ("TreeLost", &Next::Retry));
    }
    assert!(stage.fake.trees.lock().unwrap().is_empty());
    assert_eq!(stage.world.journal.read_and_clean().unwrap().records, []);
}

#[tokio::test]
async fn a_journal_that_was_lost_is_written_again_from_the_trees_that_stand() {
    let stage = Stage::new();
    let making = yoi_workspace::TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 5, gid: 6 } };
    stage.world.mounter.make(uid(1), ProviderKind::Copy, making).await.unwrap();
    let outcome = work(&stage.world, &provisioned(1, json!({})), uid(1)).await.unwrap();
    assert_eq!(outcome.next, Next::Rest);
    let record = stage.world.journal.get(uid(1)).unwrap().unwrap();
    assert_eq!((record.origin, record.state), (making, yoi_workspace::RecordState::Ready));
}

fn damage(stage: &Stage, n: u8) -> PathBuf {
    let path = args::driver_dir(&stage.world.kubelet_dir).join("journal").join(format!("{}.json", uid(n)));
    std::fs::write(&path, "{\"uid\":").unwrap();
    path
}

async fn two_trees(fake: &Arc<Fake>, dir: &Path) -> Stage {
    let stage = Stage::with(dir.to_owned(), fake.clone());
    *stage.world.offers.write().unwrap() = offers(&[ProviderKind::Copy]);
    for n in [1, 2] {
        work(&stage.world, &workspace(n, json!({})), uid(n)).await.unwrap();
    }
    stage
}

#[tokio::test]
async fn one_damaged_record_leaves_its_tree_alone_says_so_and_keeps_no_other_pod_from_its_own() {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Arc::new(Fake::default()));
    let path = damage(&two_trees(&fake, dir.path()).await, 1);
    let mut stage = Stage::with(dir.path().to_owned(), fake.clone());
    let troubled = recover::recover(&stage.world.journal, &*fake).await.unwrap();
    assert_eq!(troubled.damaged.iter().map(|d| d.uid).collect::<Vec<_>>(), [uid(1)]);
    Arc::get_mut(&mut stage.world).unwrap().troubled = troubled;
    let damaged = stage.world.damaged().await.unwrap();
    assert!(damaged.len() == 1 && damaged[0].contains(path.to_str().unwrap()), "{damaged:?}");

    let outcome = work(&stage.world, &provisioned(1, json!({})), uid(1)).await.unwrap();
    assert_eq!(reason(&outcome), "JournalDamaged");
    stage.told(1, 7);
    stage.told(2, 8);
    let mut node = stage.node().await;
    let refused = node.node_publish_volume(stage.tree(7, 1)).await.unwrap_err();
    assert!(refused.message().contains(path.to_str().unwrap()), "{refused}");
    node.node_publish_volume(stage.tree(8, 2)).await.unwrap();
    assert_eq!(fake.trees.lock().unwrap().len(), 2);

    // A person moves the file away: the tree is taken over as it stands.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(work(&stage.world, &provisioned(1, json!({})), uid(1)).await.unwrap().next, Next::Rest);
    node.node_publish_volume(stage.tree(7, 1)).await.unwrap();
    assert_eq!(stage.world.damaged().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_workspace_with_a_damaged_record_can_be_deleted() {
    let (dir, fake) = (tempfile::tempdir().unwrap(), Arc::new(Fake::default()));
    let stage = two_trees(&fake, dir.path()).await;
    let path = damage(&stage, 1);
    let deleted = workspace(1, json!({ "metadata": { "deletionTimestamp": "2026-11-21T00:00:00Z" } }));
    assert_eq!(work(&stage.world, &deleted, uid(1)).await.unwrap().next, Next::LetGo);
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
        let mut stream = loop {
            match tokio::net::TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await.unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        said
    };
    assert!(get("/healthz").await.contains("200"));
    assert!(get("/readyz").await.contains("503"));
    serving.abort();
}
