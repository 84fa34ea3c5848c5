//! A base that is taken from a folder of the host: by its name, through both halves, on a real disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use yoi_agent_shim::host_sources::{self, HostSources};
use yoi_agent_shim::mounter::DataRootConfig;
use yoi_agent_shim::mounter::client::{Mounter, MounterClient};
use yoi_agent_shim::mounter::service::MounterService;
use yoi_agent_shim::shim::provisioning::{ProvisionOutcome, provision};
use yoi_workspace::ExpectedRoot;

use crate::fixtures::{NODE, uid, workspace};
use crate::real_disk::RealDisk;
use crate::test_shim::TestShim;

/// The folder `clone` for the namespace `team`.
fn listed() -> HostSources {
    host_sources::parse(r#"[{"name":"clone","path":"/home/me/clone","namespaces":["team"]}]"#).unwrap()
}

async fn shim(disk: &RealDisk) -> TestShim {
    shim_on(disk, disk.dir.path().join("pool")).await
}

async fn shim_on(disk: &RealDisk, data_root: PathBuf) -> TestShim {
    let dir = disk.dir.path();
    let config = DataRootConfig { data_root, loop_size: None, simple_quota: false, zfs: None };
    let service = MounterService::new(NODE.to_owned(), config, &dir.join("kubelet")).unwrap();
    let (service, socket) = (service.with_host_sources(listed(), dir.join("sources")), dir.join("sources.sock"));
    let served = socket.clone();
    std::thread::spawn(move || yoi_agent_shim::mounter::listener::run(&served, service));
    let client: Arc<dyn Mounter> = Arc::new(MounterClient::new(socket));
    client.open(ExpectedRoot::Any).await.unwrap();
    let mut shim = TestShim::with(dir.join("kubelet"), client.clone());
    let state = Arc::get_mut(&mut shim.state).unwrap();
    state.host_sources = listed();
    *state.offers.write().unwrap() = client.probe().await.unwrap().offers;
    shim
}

fn base(n: u8, source: &str, namespace: &str, populated: bool) -> yoi_crds::AgentWorkspace {
    let filled = json!({ "type": "Populated", "status": "True", "reason": "Filled", "message": "", "lastTransitionTime": "" });
    let conditions: Vec<Value> = if populated { vec![filled] } else { vec![] };
    let over = json!({
        "metadata": { "namespace": namespace },
        "spec": { "source": { "empty": null, "host": { "name": source } }, "base": { "generation": "g", "node": NODE } },
        "status": { "origin": { "kind": "Host" }, "conditions": conditions },
    });
    workspace(n, over)
}

fn provisioned(outcome: &ProvisionOutcome) -> (String, String) {
    let c = outcome.update.conditions.iter().find(|(type_, _)| *type_ == "Provisioned").unwrap();
    (c.1.reason.to_string(), c.1.message.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_taken_by_its_name_with_what_is_not_committed() {
    let Some(disk) = RealDisk::new() else { return };
    let shim = shim(&disk).await;
    let folder = disk.dir.path().join("sources/clone/clone");
    let attempt = async |n, source, namespace| provision(&shim.state, &base(n, source, namespace, false), uid(n)).await.unwrap();

    let (gone, _) = provisioned(&attempt(1, "clone", "team").await);
    assert_eq!(gone, "SourceNotFound");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("not-committed"), "mine").unwrap();
    let (of_root, why) = provisioned(&attempt(1, "clone", "team").await);
    assert_eq!(of_root, "SourceForbidden");
    assert!(why.contains("chown -R 1000:1000 /home/me/clone"), "{why}");
    own(&folder);
    own(&folder.join("not-committed"));

    let words = |(reason, message): (String, String)| (reason, message.replace("missing", "clone").replace("other", "team"));
    let unlisted = words(provisioned(&attempt(2, "missing", "team").await));
    assert_eq!(unlisted, words(provisioned(&attempt(2, "clone", "other").await)));
    assert_eq!(unlisted.0, "SourceForbidden");

    let taken = attempt(1, "clone", "team").await;
    assert_eq!(provisioned(&taken).0, "TreeCreated");
    let because = taken.update.provider.unwrap().reason;
    assert!(
        because.starts_with("Btrfs: ") && because.contains("copied from the source file by file: the source is not on Btrfs"),
        "{because}"
    );
    let sealed = provision(&shim.state, &base(1, "clone", "team", true), uid(1)).await.unwrap();
    assert_eq!(sealed.update.volume.unwrap().entries, Some(1));
    let tree = disk.dir.path().join("pool/trees").join(uid(1).shard()).join(uid(1).to_string()).join("tree/not-committed");
    assert_eq!(std::fs::read_to_string(tree).unwrap(), "mine");
    assert_eq!(shim.state.mounter.host_sources().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_prepared_is_sealed_with_what_was_written_to_it_and_not_before() {
    let Some(disk) = RealDisk::new() else { return };
    let shim = shim(&disk).await;
    let folder = disk.dir.path().join("sources/clone/clone");
    std::fs::create_dir_all(&folder).unwrap();
    own(&folder);
    let prepared = |populated| {
        let mut base = base(1, "clone", "team", populated);
        let prepare = json!({ "image": "i", "command": ["make"] });
        base.spec.base.as_mut().unwrap().prepare = Some(Box::new(serde_json::from_value(prepare).unwrap()));
        base
    };
    let taken = provision(&shim.state, &prepared(false), uid(1)).await.unwrap();
    assert_eq!(provisioned(&taken).0, "TreeCreated");
    let tree = disk.dir.path().join("pool/trees").join(uid(1).shard()).join(uid(1).to_string()).join("tree");
    std::fs::write(tree.join("built"), "by prepare").unwrap();
    let waits = provision(&shim.state, &prepared(false), uid(1)).await.unwrap();
    assert!(waits.update.volume.is_none(), "it is sealed before it is prepared: {waits:?}");
    let sealed = provision(&shim.state, &prepared(true), uid(1)).await.unwrap();
    assert_eq!(sealed.update.volume.unwrap().entries, Some(1));
    assert!(std::fs::write(tree.join("built"), "later").is_err(), "a sealed base can be written to");
    assert!(!folder.join("built").exists(), "the folder of the host was written to");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_subvolume_beside_the_data_root_a_snapshot_is_taken_and_the_reason_says_so() {
    let Some(disk) = RealDisk::new() else { return };
    let pool = disk.dir.path().join("pool");
    for folder in ["data", "host"] {
        std::fs::create_dir(pool.join(folder)).unwrap();
    }
    let volume = pool.join("host/clone");
    assert!(Command::new("btrfs").args(["subvolume", "create"]).arg(&volume).output().unwrap().status.success());
    std::fs::create_dir(disk.dir.path().join("sources")).unwrap();
    std::os::unix::fs::symlink(pool.join("host"), disk.dir.path().join("sources/clone")).unwrap();
    std::fs::write(volume.join("not-committed"), "mine").unwrap();
    [&volume, &volume.join("not-committed")].into_iter().for_each(|path| own(path));
    let shim = shim_on(&disk, pool.join("data")).await;

    let taken = provision(&shim.state, &base(1, "clone", "team", false), uid(1)).await.unwrap();
    assert_eq!(provisioned(&taken).0, "TreeCreated", "{taken:?}");
    let because = taken.update.provider.unwrap().reason;
    assert!(because.ends_with("; a snapshot of the source: the source is a subvolume of the data root's file system"), "{because}");
    let tree = pool.join("data/trees").join(uid(1).shard()).join(uid(1).to_string()).join("tree");
    std::fs::write(volume.join("not-committed"), "changed").unwrap();
    assert_eq!(std::fs::read_to_string(tree.join("not-committed")).unwrap(), "mine");

    // In it is a volume of its own, which no snapshot would hold.
    assert!(Command::new("btrfs").args(["subvolume", "create"]).arg(volume.join("inner")).output().unwrap().status.success());
    let (reason, why) = provisioned(&provision(&shim.state, &base(2, "clone", "team", false), uid(2)).await.unwrap());
    assert_eq!(reason, "NestedVolume");
    assert!(why.contains("inner"), "{why}");

    // A folder in the subvolume is taken in the same way.
    std::fs::remove_file(disk.dir.path().join("sources/clone")).unwrap();
    std::fs::create_dir_all(volume.join("below/clone")).unwrap();
    own(&volume.join("below/clone"));
    assert!(Command::new("btrfs").args(["subvolume", "delete"]).arg(volume.join("inner")).output().unwrap().status.success());
    std::os::unix::fs::symlink(volume.join("below"), disk.dir.path().join("sources/clone")).unwrap();
    let part = provision(&shim.state, &base(3, "clone", "team", false), uid(3)).await.unwrap();
    let because = part.update.provider.unwrap().reason;
    assert!(because.ends_with("; a snapshot of the source: the source lies in a subvolume of the data root's file system"), "{because}");
}

fn own(path: &Path) {
    std::os::unix::fs::chown(path, Some(1000), Some(1000)).unwrap();
}
