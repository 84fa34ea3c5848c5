//! What each kind's controller plans.

use std::convert::Infallible;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use yoi_crds::condition::find;
use yoi_crds::reason::{self, condition};
use yoi_crds::{
    AgentWorkspace, AgentWorkspaceStatus, WorkspaceNode, YoiPeer, YoiPeerStatus, YoiPod, YoiPodStatus, YoiProject, YoiProjectStatus,
};
use yoi_plan::conditions::Event;
use yoi_plan::nodes::heartbeat;
use yoi_plan::step::Plan;
use yoi_plan::{nudge_deleting_claims, peer, project, workspace, yoipod};

use super::{Context, Maintained, Reconciled};
use crate::log_subject::LogSubject;
use crate::watch_caches::WatchCaches;
use crate::{observe, report};

impl Reconciled for YoiProject {
    type Status = YoiProjectStatus;

    fn current_status(&self) -> Option<&YoiProjectStatus> {
        self.status.as_ref()
    }

    fn all(caches: &WatchCaches) -> Vec<Arc<Self>> {
        caches.projects.all()
    }

    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
        project::plan(&observe::project(&context.caches, self), &context.settings, now)
    }
}

impl Reconciled for AgentWorkspace {
    type Status = AgentWorkspaceStatus;

    fn current_status(&self) -> Option<&AgentWorkspaceStatus> {
        self.status.as_ref()
    }

    /// A Pod that cannot be made before the path is known waits for nothing else.
    fn status_may_wait(&self, status: &AgentWorkspaceStatus) -> bool {
        let is_path_news = status.path.is_some() && self.tree_path().is_none();
        !is_path_news && report::may_wait(self.status.as_ref(), status)
    }

    fn all(caches: &WatchCaches) -> Vec<Arc<Self>> {
        caches.workspaces.all()
    }

    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
        workspace::plan(&observe::workspace(&context.caches, self), &context.settings, now)
    }
}

impl Reconciled for YoiPod {
    type Status = YoiPodStatus;

    fn current_status(&self) -> Option<&YoiPodStatus> {
        self.status.as_ref()
    }

    /// Whoever has made an agent hears at once why it gets no Pod.
    fn status_may_wait(&self, status: &YoiPodStatus) -> bool {
        let is_first = self.status.as_ref().is_none_or(|before| find(&before.conditions, condition::READY).is_none());
        let pod_follows = find(&status.conditions, condition::READY).is_some_and(|ready| ready.reason == reason::STARTING);
        (!is_first || pod_follows) && report::may_wait(self.status.as_ref(), status)
    }

    fn log_subject(&self) -> LogSubject {
        LogSubject::of(self, self.status.as_ref().and_then(|s| s.run_generation))
    }

    fn all(caches: &WatchCaches) -> Vec<Arc<Self>> {
        caches.yoipods.all()
    }

    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiPodStatus> {
        yoipod::plan(&observe::yoipod(&context.caches, self), &context.settings, now)
    }

    fn news(&self, context: &Context) -> Vec<Event> {
        context.conversations.changes(self)
    }
}

impl Reconciled for YoiPeer {
    type Status = YoiPeerStatus;

    fn current_status(&self) -> Option<&YoiPeerStatus> {
        self.status.as_ref()
    }

    fn all(caches: &WatchCaches) -> Vec<Arc<Self>> {
        caches.peers.all()
    }

    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiPeerStatus> {
        peer::plan(&observe::peer(&context.caches, self), now)
    }
}

/// Deletes the WorkspaceNodes of nodes that no longer exist, and says which are not heard from.
impl Maintained for WorkspaceNode {
    fn plan(&self, context: &Context, now: jiff::Timestamp) -> Plan<Infallible> {
        let silence = context.caches.shim_silence(&self.name_any());
        heartbeat::plan(self, &context.caches.observed_nodes(), silence.as_ref(), now)
    }
}

/// Makes Kubernetes look again at claims that are being deleted.
impl Maintained for PersistentVolumeClaim {
    fn plan(&self, _: &Context, now: jiff::Timestamp) -> Plan<Infallible> {
        nudge_deleting_claims::plan(self, now)
    }
}
