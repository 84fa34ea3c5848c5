//! Trees as overlays, on a real disk with real mounts. Everything but ext4, XFS and Btrfs themselves, which the conformance suite has.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use yoi_agent_shim::mounter::client::{Mounter, MounterClient};
use yoi_agent_shim::mounter::protocol::MountedContent;
use yoi_agent_shim::proto::csi::NodePublishVolumeRequest;
use yoi_agent_shim::shim::provisioning::{Next, ProvisionOutcome, provision};
use yoi_crds::reason::condition as type_;
use yoi_workspace::{ExpectedRoot, Uid, mountinfo};

use crate::fixtures::{uid, workspace};
use crate::real_disk::{base, clone_of_base, in_memory, mounter, prepare_on, unmount_below};
use crate::test_shim::TestShim;

/// A data root that is a folder, on a file system that is no Btrfs.
struct Folder {
    dir: tempfile::TempDir,
    client: Arc<MounterClient>,
}

impl Folder {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            crate::skip::skip("needs root for mounts");
            return None;
        }
        let dir = in_memory();
        for name in ["pool", "kubelet"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let client = mounter(dir.path(), &dir.path().join("pool"), "mounter");
        Some(Folder { dir, client })
    }

    fn kubelet_dir(&self) -> PathBuf {
        self.dir.path().join("kubelet")
    }

    /// The devices of the overlays that show this tree: each super block has its own.
    fn super_blocks(&self, tree: Uid) -> BTreeSet<String> {
        let here = self.dir.path().canonicalize().unwrap();
        let of_tree = |m: &mountinfo::Mount| m.fs_type == "overlay" && m.source.to_string_lossy().ends_with(&format!(":{tree}"));
        mountinfo::read().unwrap().into_iter().filter(|m| m.mount_point.starts_with(&here) && of_tree(m)).map(|m| m.device).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        unmount_below(&self.dir.path().canonicalize().unwrap());
    }
}

fn claimed() -> Value {
    let mut over = clone_of_base();
    over["spec"]["claim"] = json!(true);
    over
}

fn fork_of(n: u8) -> Value {
    let origin = json!({ "kind": "Fork", "workspaceUID": uid(n) });
    json!({ "spec": { "source": { "empty": null, "workspace": { "name": "parent" } } }, "status": { "origin": origin } })
}

/// What the kubelet asks for to show the claim of a workspace to a Pod.
fn claim(shim: &TestShim, pod: u8, n: u8) -> NodePublishVolumeRequest {
    let mut request = shim.tree(pod, n);
    request.volume_id = uid(n).to_string();
    request.volume_context.retain(|key, _| key == "csi.storage.k8s.io/pod.uid");
    std::fs::create_dir_all(Path::new(&request.target_path).parent().unwrap()).unwrap();
    request
}

async fn publish(shim: &TestShim, pod: u8, n: u8) -> PathBuf {
    let request = claim(shim, pod, n);
    shim.node().await.node_publish_volume(request.clone()).await.unwrap();
    request.target_path.into()
}

fn condition<'a>(outcome: &'a ProvisionOutcome, type_: &str) -> (&'a str, &'a str) {
    let (_, value) = outcome.update.conditions.iter().find(|(t, _)| *t == type_).unwrap();
    (value.reason.as_str(), &value.message)
}

fn apply(shim: &TestShim, n: u8, over: &Value) {
    shim.apply_event(kube::runtime::watcher::Event::Apply(workspace(n, over.clone())));
}

#[tokio::test(flavor = "multi_thread")]
async fn w19_two_pods_a_new_shim_and_a_new_mounter_show_one_super_block() {
    let Some(disk) = Folder::new() else { return };
    let shim = prepare_on(disk.dir.path(), &disk.client).await;
    base(&shim).await;
    let made = provision(&shim.state, &workspace(2, claimed()), uid(2)).await.unwrap();
    assert_eq!(made.update.provider.unwrap().reason, "Overlay: as its base");
    assert!(disk.super_blocks(uid(2)).is_empty(), "a tree that no Pod uses is not mounted");
    apply(&shim, 2, &claimed());
    let first = publish(&shim, 7, 2).await;
    std::fs::write(first.join("of-7"), "x").unwrap();
    let second = publish(&shim, 8, 2).await;
    assert!(second.join("of-7").exists());
    let blocks = disk.super_blocks(uid(2));
    assert_eq!(blocks.len(), 1, "{blocks:?}");

    drop(shim);
    let shim = TestShim::with(disk.kubelet_dir(), disk.client.clone());
    apply(&shim, 2, &claimed());
    publish(&shim, 8, 2).await;
    assert!(publish(&shim, 9, 2).await.join("of-7").exists());
    assert_eq!(disk.super_blocks(uid(2)), blocks, "a new shim");

    drop(shim);
    let anew = mounter(disk.dir.path(), &disk.dir.path().join("pool"), "anew");
    let line: &dyn Mounter = &*anew;
    let named_by_themselves = line.mounts().await.unwrap();
    line.open(ExpectedRoot::Any).await.unwrap();
    let shim = TestShim::with(disk.kubelet_dir(), anew.clone());
    apply(&shim, 2, &claimed());
    assert!(publish(&shim, 10, 2).await.join("of-7").exists());
    assert_eq!(disk.super_blocks(uid(2)), blocks, "a new mounter");

    let shown = line.mounts().await.unwrap().shown;
    assert_eq!((named_by_themselves.shown.len(), shown.len()), (3, 4));
    assert!(shown.iter().chain(&named_by_themselves.shown).all(|mount| mount.what == MountedContent::Tree(uid(2))), "{shown:?}");
    let list = line.changes(uid(2), Some(uid(1)), 10).await.unwrap();
    assert_eq!(list.changes.iter().map(|c| c.path.display().to_string()).collect::<Vec<_>>(), ["of-7"]);
    assert!(line.destroy(uid(2)).await.unwrap_err().to_string().contains("still mounted"));
    for pod in [7, 8, 9, 10] {
        shim.node().await.node_unpublish_volume(shim.unpublish(pod, "tree")).await.unwrap();
    }
    assert!(disk.super_blocks(uid(2)).is_empty());
    line.destroy(uid(2)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_of_a_tree_in_use_names_the_way_out_and_is_made_once_no_pod_mounts_it() {
    let Some(disk) = Folder::new() else { return };
    let shim = prepare_on(disk.dir.path(), &disk.client).await;
    base(&shim).await;
    provision(&shim.state, &workspace(2, claimed()), uid(2)).await.unwrap();
    apply(&shim, 2, &claimed());
    let at = publish(&shim, 7, 2).await;
    std::fs::write(at.join("work"), "of the parent").unwrap();
    let refused = provision(&shim.state, &workspace(3, fork_of(2)), uid(3)).await.unwrap();
    let (reason, message) = condition(&refused, type_::PROVISIONED);
    assert_eq!((reason, &refused.next), ("SourceNotSealed", &Next::Retry));
    assert!(message.contains("kubectl yoi stop") && message.contains("shim.loopBtrfs.enabled=true"), "{message}");

    shim.node().await.node_unpublish_volume(shim.unpublish(7, "tree")).await.unwrap();
    let made = provision(&shim.state, &workspace(3, fork_of(2)), uid(3)).await.unwrap();
    assert_eq!(condition(&made, type_::PROVISIONED).0, "CloneCreated");
    let mut fork = fork_of(2);
    fork["spec"]["claim"] = json!(true);
    apply(&shim, 3, &fork);
    let at = publish(&shim, 8, 3).await;
    assert_eq!(std::fs::read_to_string(at.join("work")).unwrap(), "of the parent");
    shim.node().await.node_unpublish_volume(shim.unpublish(8, "tree")).await.unwrap();

    // A tree that began empty has no layers that could be copied.
    provision(&shim.state, &workspace(4, json!({})), uid(4)).await.unwrap();
    let refused = provision(&shim.state, &workspace(5, fork_of(4)), uid(5)).await.unwrap();
    let (reason, message) = condition(&refused, type_::PROVISIONED);
    assert!(reason == "SourceNotSealed" && message.contains("a YoiProject, whose source may be empty"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn w25_a_base_that_goes_first_waits_for_the_last_tree_that_is_made_of_it() {
    let Some(disk) = Folder::new() else { return };
    let shim = prepare_on(disk.dir.path(), &disk.client).await;
    base(&shim).await;
    for n in [2, 3] {
        provision(&shim.state, &workspace(n, claimed()), uid(n)).await.unwrap();
    }
    let deleted = |over: Value| {
        let mut over = over;
        over["metadata"] = json!({ "deletionTimestamp": "2026-11-21T00:00:00Z" });
        over
    };
    for n in [2, 3] {
        let waits = provision(&shim.state, &workspace(1, deleted(json!({}))), uid(1)).await.unwrap();
        assert_eq!((condition(&waits, type_::CLEANED_UP).0, &waits.next), ("Busy", &Next::Retry));
        assert_eq!(provision(&shim.state, &workspace(n, deleted(claimed())), uid(n)).await.unwrap().next, Next::RemoveFinalizer);
    }
    let gone = provision(&shim.state, &workspace(1, deleted(json!({}))), uid(1)).await.unwrap();
    assert_eq!(gone.next, Next::RemoveFinalizer);
    let line: &dyn Mounter = &*disk.client;
    assert!(line.inventory().await.unwrap().entries.is_empty());
}
