//! A data root whose file system the kernel makes read-only: a sparse Btrfs file on a disk that fills up.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use kube::runtime::watcher::Event;
use serde_json::json;
use yoi_agent_shim::mounter::DataRootConfig;
use yoi_agent_shim::mounter::client::{Mounter, MounterFailure};
use yoi_agent_shim::shim::data_root::check;
use yoi_agent_shim::shim::provisioning::{ProvisionOutcome, provision};
use yoi_crds::condition::ConditionStatus;
use yoi_test_support::eventually;
use yoi_workspace::{CloneAccess, ErrorReason, ExpectedRoot};

use crate::fixtures::{uid, workspace};
use crate::real_disk::{IMAGE_BYTES, in_memory, mounter_on, unmount_below};
use crate::test_shim::{TestShim, volume};

/// A disk in memory that is smaller than the sparse file on it.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let disk = SmallDisk(in_memory());
        for folder in ["data", "kubelet"] {
            std::fs::create_dir(disk.0.path().join(folder)).unwrap();
        }
        run("mount", &["-t", "tmpfs", "-o", "size=48M", "tmpfs", disk.data().to_str().unwrap()]);
        let image = disk.data().join("pool.btrfs");
        File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
        run("mkfs.btrfs", &["-q", "-m", "single", "-d", "single", image.to_str().unwrap()]);
        disk
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    /// Somebody else fills the disk.
    fn fill(&self) {
        let block = vec![7; 1 << 20];
        let mut ballast = File::create(self.data().join("ballast")).unwrap();
        while ballast.write_all(&block).is_ok() {}
    }

    fn give_room(&self) {
        std::fs::remove_file(self.data().join("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount_below(&self.0.path().canonicalize().unwrap());
    }
}

fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output().unwrap();
    assert!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Writes small files until the kernel gives the file system up. Btrfs keeps them in its metadata, without which it cannot go on. Then it is
/// read-only, and since Linux 6.18 answers EIO to everything.
fn write_until_given_up(tree: &Path) {
    let root = File::open(tree).unwrap();
    for n in 0..100_000 {
        if std::fs::write(tree.join(format!("small{n}")), [7; 2000]).is_err_and(|e| e.kind() != std::io::ErrorKind::StorageFull) {
            return;
        }
        if n % 1_000 == 0 {
            _ = rustix::fs::syncfs(&root);
        }
    }
    panic!("the disk is full, and the file system goes on");
}

fn health(outcome: &ProvisionOutcome) -> Option<(ConditionStatus, String)> {
    let (_, value) = outcome.update.conditions.iter().find(|(type_, _)| *type_ == "Healthy")?;
    Some((value.status, format!("{}: {}", value.reason.as_str(), value.message)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_that_became_read_only_is_reported_while_pods_use_it_and_mounted_anew_when_none_does() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("needs root for loop devices and mounts");
    }
    let disk = SmallDisk::new();
    let config = DataRootConfig { data_root: disk.data(), loop_size: Some(IMAGE_BYTES), simple_quota: false, zfs: None };
    let client = mounter_on(disk.0.path(), config, "mounter");
    let line: &dyn Mounter = &*client;
    line.open(ExpectedRoot::Any).await.unwrap();
    let shim = TestShim::with(disk.0.path().join("kubelet"), client.clone());
    let state = &shim.state;
    assert_eq!(check(state).await.unwrap().failure, None);
    let agents = json!({ "status": { "podUID": uid(7) } });
    let made = provision(state, &workspace(2, agents.clone()), uid(2)).await.unwrap();
    assert_eq!(health(&made), None);
    shim.apply_event(Event::Apply(workspace(2, agents.clone())));
    let (mut node, request) = (shim.node().await, shim.tree(7, 2));
    std::fs::create_dir_all(Path::new(&request.target_path).parent().unwrap()).unwrap();
    node.node_publish_volume(request.clone()).await.unwrap();

    disk.fill();
    write_until_given_up(Path::new(&request.target_path));
    disk.give_room();
    for _ in 0..2 {
        assert!(check(state).await.unwrap().failure.is_some(), "there is room again, and that changes nothing");
        let failure = state.data_root_failure().unwrap();
        assert_eq!(failure.reason.as_str(), "ReadOnlyFilesystem", "{failure:?}");
        let command = "Pods use team/ws-2. It is mounted anew when none does. End the Pods that use claims, and let the agents' Pods be made \
                       again: kubectl delete pods -A --field-selector spec.nodeName=node-1 -l yoi.dev/yoipod";
        assert!(failure.message.ends_with(command), "{}", failure.message);
        let told = provision(state, &workspace(2, agents.clone()), uid(2)).await.unwrap();
        assert_eq!(health(&told), Some((ConditionStatus::False, format!("ReadOnlyFilesystem: {}", failure.message))));
    }
    let new = provision(state, &workspace(3, json!({})), uid(3)).await.unwrap();
    let provisioned = new.update.conditions.iter().find(|(type_, _)| *type_ == "Provisioned").unwrap();
    assert_eq!(provisioned.1.reason.as_str(), "ReadOnlyFilesystem");
    // What is mounted stays so, and nothing is added that would keep the file system from being released.
    node.node_publish_volume(request.clone()).await.unwrap();
    std::fs::create_dir_all(Path::new(&shim.target(&volume(8, "tree"))).parent().unwrap()).unwrap();
    let refused = line.publish(uid(2), volume(8, "tree"), CloneAccess::ReadWrite, Vec::new()).await.unwrap_err();
    assert!(matches!(&refused, MounterFailure::Refused(r) if r.reason == ErrorReason::ReadOnlyFilesystem), "{refused:?}");

    node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
    state.report_node.notified().await;
    // A mount namespace that somebody makes at this moment has a copy of every mount for a while.
    eventually("nothing uses it any more, so it is mounted anew", async || check(state).await.unwrap().failure.is_none().then_some(()))
        .await;
    assert_eq!(state.data_root_failure(), None);
    let unhealthy =
        json!({ "type": "Healthy", "status": "False", "reason": "ReadOnlyFilesystem", "message": "", "lastTransitionTime": "" });
    let mut before = agents;
    before["status"]["conditions"] = json!([unhealthy]);
    let told = provision(state, &workspace(2, before), uid(2)).await.unwrap();
    assert_eq!(health(&told).unwrap().0, ConditionStatus::True);
    node.node_publish_volume(request.clone()).await.unwrap();
    std::fs::write(Path::new(&request.target_path).join("after"), "written").unwrap();
    provision(state, &workspace(3, json!({})), uid(3)).await.unwrap();
    assert_eq!(line.inventory().await.unwrap().entries.len(), 2);
    node.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
}
