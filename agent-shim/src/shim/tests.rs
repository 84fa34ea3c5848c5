//! The kubelet's view: CSI over a real socket, with a mounter that remembers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};
use yoi_wire::identity::{SHIM_SOCKET, VOLUME_KIND, VOLUME_RUNTIME_DIGEST, VOLUME_WORKSPACE};
use yoi_workspace::{CloneAccess, ProviderKind, TreeOrigin, Uid};

use super::*;
use crate::mounter::verb::Verb;
use crate::proto::csi::identity_client::IdentityClient;
use crate::proto::csi::node_client::NodeClient;
use crate::proto::csi::*;
use crate::sample::{Fake, NODE, uid, workspace};
use crate::volume::PodVolume;

pub struct Stage {
    dir: Option<tempfile::TempDir>,
    pub fake: Arc<Fake>,
    pub world: Arc<World>,
}

impl Stage {
    pub fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap(), Arc::default())
    }

    fn on(dir: tempfile::TempDir, fake: Arc<Fake>) -> Self {
        let stage = Self::with(dir.path().to_owned(), fake.clone());
        Stage { dir: Some(dir), fake, ..stage }
    }

    /// A shim that starts on what another one left.
    pub fn again(self) -> Self {
        Self::on(self.dir.unwrap(), self.fake)
    }

    /// With any mounter, in a folder that somebody else removes.
    pub fn with(kubelet_dir: PathBuf, mounter: Arc<dyn Mounter>) -> Self {
        let folder = crate::args::driver_dir(&kubelet_dir);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(kubelet_dir.join("runtime"), "#!/bin/true").unwrap();
        let publications = Arc::new(Publications::open(folder.join("publish")).unwrap());
        let world = World {
            node: NODE.into(),
            mounter,
            journal: Arc::new(Journal::open(&folder.join("journal")).unwrap()),
            runtimes: Runtimes::install(&folder, &kubelet_dir.join("runtime"), &wanted(&publications)).unwrap(),
            publications,
            kubelet_dir,
            cache: Default::default(),
            offers: RwLock::default(),
            troubled: Default::default(),
            trees: Default::default(),
            volumes: Default::default(),
            nudge: unbounded_channel().0,
            counts: Default::default(),
            stop: CancellationToken::new(),
            sockets: Default::default(),
            open: true.into(),
        };
        Stage { dir: None, fake: Arc::default(), world: Arc::new(world) }
    }

    async fn channel(&self) -> Channel {
        let path = self.world.kubelet_dir.join("csi.sock");
        let listener = listen(&path).unwrap();
        tokio::spawn(serve_csi(self.world.clone(), listener));
        let dial = tower::service_fn(move |_| {
            let path = path.clone();
            async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://localhost").connect_with_connector(dial).await.unwrap()
    }

    pub async fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel().await)
    }

    async fn tree_stands(&self, n: u8) {
        let (journal, making) = (&self.world.journal, TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } });
        journal.begin_create(uid(n), ProviderKind::Btrfs, making).unwrap();
        journal.record_created(uid(n)).unwrap();
    }

    /// The operator named the Pod with UID `uid(pod)`.
    pub fn told(&self, n: u8, pod: u8) {
        self.world.cache.heard(&Event::Apply(workspace(n, json!({ "status": { "podUID": uid(pod) } }))));
    }

    fn target(&self, volume: &PodVolume) -> String {
        volume.target(&self.world.kubelet_dir).display().to_string()
    }

    fn request(&self, pod: u8, name: &str, attributes: &[(&str, String)]) -> NodePublishVolumeRequest {
        let mut context = HashMap::from([
            ("csi.storage.k8s.io/pod.uid".to_owned(), uid(pod).to_string()),
            ("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned()),
        ]);
        context.extend(attributes.iter().map(|(k, v)| ((*k).to_owned(), v.clone())));
        NodePublishVolumeRequest {
            volume_id: "csi-0123".into(),
            target_path: self.target(&volume(pod, name)),
            volume_capability: Some(VolumeCapability::default()),
            volume_context: context,
            ..Default::default()
        }
    }

    pub fn tree(&self, pod: u8, n: u8) -> NodePublishVolumeRequest {
        self.request(pod, "tree", &[(VOLUME_KIND, "tree".into()), (VOLUME_WORKSPACE, uid(n).to_string())])
    }

    pub fn runtime(&self, pod: u8) -> NodePublishVolumeRequest {
        let digest = self.world.runtimes.digests()[0].as_str().to_owned();
        self.request(pod, "runtime", &[(VOLUME_KIND, "runtime".into()), (VOLUME_RUNTIME_DIGEST, digest)])
    }

    pub fn unpublish(&self, pod: u8, name: &str) -> NodeUnpublishVolumeRequest {
        NodeUnpublishVolumeRequest { volume_id: "csi-0123".into(), target_path: self.target(&volume(pod, name)) }
    }
}

fn volume(pod: u8, name: &str) -> PodVolume {
    PodVolume { pod: uid(pod), name: name.parse().unwrap() }
}

fn published(tree: Uid, pod: u8) -> Verb {
    Verb::Publish { tree, volume: volume(pod, "tree"), access: CloneAccess::ReadWrite }
}

#[tokio::test]
async fn the_driver_says_who_it_is_and_where() {
    let stage = Stage::new();
    let info = IdentityClient::new(stage.channel().await).get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "csi.yoi.dev");
    let node = stage.node().await.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!((&*node.node_id, &node.accessible_topology.unwrap().segments["topology.yoi.dev/node"][..]), (NODE, NODE));
}

#[tokio::test]
async fn a_mount_waits_for_the_pod_to_be_named_and_the_tree_to_be_made() {
    let stage = Stage::new();
    let mut node = stage.node().await;
    let request = stage.tree(7, 1);
    let waiting = tokio::spawn(async move { node.node_publish_volume(request).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    stage.told(1, 7);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished() && stage.fake.heard().is_empty());
    stage.tree_stands(1).await;
    stage.world.cache.ring(uid(1));
    waiting.await.unwrap().unwrap();
    assert_eq!(stage.fake.heard(), [published(uid(1), 7)]);
    assert_eq!(stage.world.publications.of_tree(uid(1)), 1);
}

#[tokio::test(start_paused = true)]
async fn a_workspace_that_nobody_puts_on_this_node_holds_the_kubelet_for_seconds_and_not_minutes() {
    let stage = Stage::new();
    // As long as the API server was not heard, nobody knows who is put where.
    for (listed, seconds) in [(false, 60..120), (true, 5..20)] {
        if listed {
            stage.world.cache.heard(&Event::Init);
            stage.world.cache.heard(&Event::InitDone);
        }
        let begun = tokio::time::Instant::now();
        let refused = stage.node().await.node_publish_volume(stage.tree(7, 1)).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted);
        assert!(refused.message().contains("is scheduled to node"), "{refused}");
        assert!(seconds.contains(&begun.elapsed().as_secs()), "{listed}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stranger_is_let_wait_and_told_to_try_again() {
    let stage = Stage::new();
    stage.told(1, 7);
    stage.tree_stands(1).await;
    let begun = tokio::time::Instant::now();
    let refused = stage.node().await.node_publish_volume(stage.tree(8, 1)).await.unwrap_err();
    assert!(begun.elapsed().as_secs() > 60, "{:?}", begun.elapsed());
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.message().contains("is for the Pod with UID"), "{refused}");
    assert!(stage.fake.heard().is_empty());
}

#[tokio::test]
async fn after_a_restart_without_the_api_server_the_same_pod_is_let_in_and_no_other() {
    let stage = Stage::new();
    stage.told(1, 7);
    stage.tree_stands(1).await;
    stage.node().await.node_publish_volume(stage.tree(7, 1)).await.unwrap();
    let stage = stage.again();
    stage.fake.heard();
    stage.node().await.node_publish_volume(stage.tree(7, 1)).await.unwrap();
    assert_eq!(stage.fake.heard(), [published(uid(1), 7)]);
}

#[tokio::test]
async fn unpublishing_is_done_twice_and_of_the_unknown() {
    let stage = Stage::new();
    stage.told(1, 7);
    stage.tree_stands(1).await;
    let mut node = stage.node().await;
    node.node_publish_volume(stage.tree(7, 1)).await.unwrap();
    for _ in 0..2 {
        node.node_unpublish_volume(stage.unpublish(7, "tree")).await.unwrap();
        assert!(stage.world.publications.all().is_empty());
    }
    assert!(stage.fake.shown.lock().unwrap().is_empty());
    let foreign = NodeUnpublishVolumeRequest { volume_id: "x".into(), target_path: "/etc".into() };
    assert_eq!(node.node_unpublish_volume(foreign).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_final_code_only_after_the_clean_up() {
    let stage = Stage::new();
    stage.told(1, 7);
    stage.tree_stands(1).await;
    let mut node = stage.node().await;
    *stage.fake.refuse.lock().unwrap() = Some(yoi_workspace::ErrorReason::BackendError);
    assert_eq!(node.node_publish_volume(stage.tree(7, 1)).await.unwrap_err().code(), Code::Internal);
    assert_eq!(stage.fake.heard(), [published(uid(1), 7), Verb::Unpublish { volume: volume(7, "tree") }]);
    assert!(stage.world.publications.all().is_empty());

    // An answer that was lost may hide a mount: the record stays, and the kubelet is not told that all is done.
    *stage.fake.refuse.lock().unwrap() = None;
    stage.fake.deaf.lock().unwrap().insert("publish");
    assert_eq!(node.node_publish_volume(stage.tree(7, 1)).await.unwrap_err().code(), Code::Aborted);
    assert_eq!(stage.world.publications.of_tree(uid(1)), 1);
    stage.world.journal.begin_destroy(uid(1)).unwrap();
    assert_eq!(node.node_publish_volume(stage.tree(7, 1)).await.unwrap_err().code(), Code::Aborted);
    node.node_unpublish_volume(stage.unpublish(7, "tree")).await.unwrap();
    assert_eq!(node.node_publish_volume(stage.tree(7, 1)).await.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn each_pod_gets_the_runtime_and_a_socket_of_its_own() {
    let stage = Stage::new();
    let mut node = stage.node().await;
    node.node_publish_volume(stage.runtime(7)).await.unwrap();
    let folder = stage.world.runtimes.pod_dir(uid(7));
    assert_eq!(std::fs::read_to_string(folder.join("bin/yoi-runtime")).unwrap(), "#!/bin/true");
    assert_eq!(get(folder.join(SHIM_SOCKET)).await, 404, "it mounts no tree yet");

    stage.told(1, 7);
    stage.world.journal.begin_create(uid(2), ProviderKind::Btrfs, empty()).unwrap();
    stage.world.journal.record_created(uid(2)).unwrap();
    stage.world.journal.begin_seal(uid(2)).unwrap();
    stage.world.journal.record_sealed(uid(2)).unwrap();
    let making = TreeOrigin::Clone { from: uid(2), access: CloneAccess::ReadWrite };
    stage.world.journal.begin_create(uid(1), ProviderKind::Btrfs, making).unwrap();
    stage.world.journal.record_created(uid(1)).unwrap();
    node.node_publish_volume(stage.tree(7, 1)).await.unwrap();
    stage.fake.heard();
    assert_eq!(get(folder.join(SHIM_SOCKET)).await, 200);
    assert_eq!(stage.fake.heard(), [Verb::Changes { uid: uid(1), since: Some(uid(2)), limit: 10_000 }]);

    let stage = stage.again();
    mounting::reopen(&stage.world).await.unwrap();
    assert_eq!(get(folder.join(SHIM_SOCKET)).await, 200, "the path is the same after a restart");
    stage.node().await.node_unpublish_volume(stage.unpublish(7, "runtime")).await.unwrap();
    assert!(!folder.exists());
}

fn empty() -> TreeOrigin {
    TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } }
}

/// The status of the change list.
async fn get(socket: PathBuf) -> u16 {
    let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = hyper::Request::get("/v1/changes").header("host", "shim").body(http_body_util::Empty::<&[u8]>::new()).unwrap();
    sender.send_request(request).await.unwrap().status().as_u16()
}
