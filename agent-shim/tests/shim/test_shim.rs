//! A shim in a directory of its own.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper_util::rt::TokioIo;
use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::net::UnixListener;
use tonic::transport::{Channel, Endpoint};
use yoi_agent_shim::args::driver_dir;
use yoi_agent_shim::mounter::client::Mounter;
use yoi_agent_shim::proto::csi::node_client::NodeClient;
use yoi_agent_shim::proto::csi::*;
use yoi_agent_shim::shim::serve_csi;
use yoi_agent_shim::shim::state::ShimState;
use yoi_agent_shim::shim::workspaces::WorkspaceWriter;
use yoi_agent_shim::volume::PodVolume;
use yoi_crds::AgentWorkspace;
use yoi_wire::identity::{VOLUME_COVERS, VOLUME_KIND, VOLUME_LENDS, VOLUME_RUNTIME_DIGEST, VOLUME_WORKSPACE};
use yoi_workspace::{Journal, ProviderKind, TreeOrigin};

use crate::fixtures::{FakeMounter, NODE, uid, workspace};

pub struct TestShim {
    dir: Option<tempfile::TempDir>,
    pub mounter: Arc<FakeMounter>,
    pub state: Arc<ShimState>,
    writer: WorkspaceWriter,
}

impl TestShim {
    pub fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap(), Arc::default())
    }

    fn on(dir: tempfile::TempDir, fake: Arc<FakeMounter>) -> Self {
        let shim = Self::with(dir.path().to_owned(), fake.clone());
        TestShim { dir: Some(dir), mounter: fake, ..shim }
    }

    /// A shim that starts on what another one left.
    pub fn restart(self) -> Self {
        Self::on(self.dir.unwrap(), self.mounter)
    }

    /// A shim in `kubelet_dir`, which the caller removes, with any mounter.
    pub fn with(kubelet_dir: PathBuf, mounter: Arc<dyn Mounter>) -> Self {
        let folder = driver_dir(&kubelet_dir);
        std::fs::create_dir_all(&folder).unwrap();
        let runtime = kubelet_dir.join("runtime");
        std::fs::write(&runtime, "#!/bin/true").unwrap();
        let journal = Arc::new(Journal::open(&folder.join("journal")).unwrap());
        let (state, inputs) = ShimState::open(NODE.into(), kubelet_dir, &runtime, mounter, journal).unwrap();
        state.serving.store(true, Ordering::Relaxed);
        TestShim { dir: None, mounter: Arc::default(), state: Arc::new(state), writer: inputs.writer }
    }

    /// The watch shows an event.
    pub fn apply_event(&self, event: Event<AgentWorkspace>) -> Event<Arc<AgentWorkspace>> {
        self.writer.apply(event, |change| self.state.workspaces.apply_change(change))
    }

    pub async fn channel(&self) -> Channel {
        let path = self.state.kubelet_dir.join("csi.sock");
        _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(serve_csi(self.state.clone(), listener));
        let dial = tower::service_fn(move |_| {
            let path = path.clone();
            async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://localhost").connect_with_connector(dial).await.unwrap()
    }

    pub async fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel().await)
    }

    pub async fn record_tree(&self, n: u8) {
        let (journal, making) = (&self.state.journal, TreeOrigin::Empty { owner: yoi_workspace::Owner { uid: 1000, gid: 1000 } });
        journal.begin_create(uid(n), ProviderKind::Btrfs, making).unwrap();
        journal.record_created(uid(n)).unwrap();
    }

    /// The operator named the Pod with UID `uid(pod)`.
    pub fn assign_pod(&self, n: u8, pod: u8) {
        self.apply_event(Event::Apply(workspace(n, json!({ "status": { "podUID": uid(pod) } }))));
    }

    pub fn target(&self, volume: &PodVolume) -> String {
        volume.target(&self.state.kubelet_dir).display().to_string()
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

    /// The same through covers, in JSON.
    pub fn scoped_tree(&self, pod: u8, n: u8, covers: &serde_json::Value) -> NodePublishVolumeRequest {
        let kind = (VOLUME_KIND, "scoped-tree".into());
        self.request(pod, "tree", &[kind, (VOLUME_WORKSPACE, uid(n).to_string()), (VOLUME_COVERS, covers.to_string())])
    }

    /// The tree of an agent that may lend all of it.
    pub fn lending_tree(&self, pod: u8, n: u8) -> NodePublishVolumeRequest {
        let scope = json!({ "allow": [{ "path": ".", "access": "Write" }] });
        self.request(
            pod,
            "tree",
            &[(VOLUME_KIND, "tree".into()), (VOLUME_WORKSPACE, uid(n).to_string()), (VOLUME_LENDS, scope.to_string())],
        )
    }

    pub fn runtime(&self, pod: u8) -> NodePublishVolumeRequest {
        let digest = self.state.runtimes.digests()[0].as_str().to_owned();
        self.request(pod, "runtime", &[(VOLUME_KIND, "runtime".into()), (VOLUME_RUNTIME_DIGEST, digest)])
    }

    pub fn unpublish(&self, pod: u8, name: &str) -> NodeUnpublishVolumeRequest {
        NodeUnpublishVolumeRequest { volume_id: "csi-0123".into(), target_path: self.target(&volume(pod, name)) }
    }
}

pub fn volume(pod: u8, name: &str) -> PodVolume {
    PodVolume { pod: uid(pod), name: name.parse().unwrap() }
}
