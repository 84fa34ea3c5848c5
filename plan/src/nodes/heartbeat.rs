//! Whether a node's shim is alive, judged by the Pod that it runs in, as the kubelet and Kubernetes' node controller report it. Nobody writes anything for
//! this while all is well.
//!
//! A WorkspaceNode that is Ready becomes Unknown after the Pod was not ready for [`PATIENCE`]. Its shim reports it Ready again, at the latest a minute
//! after it reaches the API server. A shim that did so after its Pod was no longer ready is alive, so that the two never write in turn.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::WorkspaceNode;
use yoi_crds::condition::{self, ConditionStatus, ConditionValue, find};
use yoi_crds::reason::{self, condition as type_};

use super::Nodes;
use crate::conditions::format_time;
use crate::duration::time_left;
use crate::step::{Plan, Step};
use crate::stored::Stored;

/// How long a shim's Pod may be gone or not ready. An update of the DaemonSet replaces it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What plans read of a shim's Pod.
#[derive(Clone, Debug)]
pub struct ShimPod {
    /// The Pod's name, namespace, UID and resource version.
    pub metadata: ObjectMeta,
    /// The node that it is on.
    pub node: Option<String>,
    /// Since when its condition Ready is not True; `None` when it is.
    not_ready_since: Option<jiff::Timestamp>,
}

impl From<Pod> for ShimPod {
    fn from(pod: Pod) -> Self {
        let Pod { metadata, spec, status } = pod;
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        let ready = status.and_then(|status| status.conditions).into_iter().flatten().find(|c| c.type_ == "Ready");
        let not_ready_since = match ready {
            Some(ready) if ready.status == "True" => None,
            Some(ready) => Some(ready.last_transition_time.map(|time| time.0).or(created).unwrap_or_default()),
            None => Some(created.unwrap_or_default()),
        };
        let ObjectMeta { name, namespace, uid, resource_version, .. } = metadata;
        let metadata = ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() };
        ShimPod { metadata, node: spec.and_then(|spec| spec.node_name), not_ready_since }
    }
}

/// Why nothing may be heard of a node's shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Since when.
    pub since: jiff::Timestamp,
    /// Name of the Pod that is not ready; `None` when there is no Pod.
    pub pod: Option<String>,
}

impl Silence {
    /// `pods` are the shims' Pods on one node, and `absent_since` is when the last of them went, where there is none. `None` when one of them is ready.
    #[must_use]
    pub fn observed<'a>(pods: impl IntoIterator<Item = &'a ShimPod>, absent_since: jiff::Timestamp) -> Option<Self> {
        let mut silence: Option<Silence> = None;
        for pod in pods {
            let since = pod.not_ready_since?;
            if silence.as_ref().is_none_or(|first| since < first.since) {
                silence = Some(Silence { since, pod: pod.metadata.name.clone() });
            }
        }
        Some(silence.unwrap_or(Silence { since: absent_since, pod: None }))
    }

    fn message(&self) -> String {
        let what = self
            .pod
            .as_ref()
            .map_or_else(|| "no yoi-agent-shim Pod is on the node".to_owned(), |pod| format!("Pod {pod} of its shim is not ready"));
        format!("{what}, since {}: nothing new goes there, and trees that are there stay", format_time(self.since))
    }
}

/// Deletes the WorkspaceNode of a node that no longer exists; when a node of that name comes later, its shim makes a new one. Sets the condition Ready to
/// Unknown when nothing is heard of the shim. `silence` is of the WorkspaceNode's node.
#[must_use]
pub fn plan(offer: &WorkspaceNode, nodes: &Nodes, silence: Option<&Silence>, now: jiff::Timestamp) -> Plan<Infallible> {
    let Some(stored) = Stored::new(offer) else { return Plan::nothing() };
    if !nodes.exists(stored.name()) {
        return Plan::only(stored.delete().into_iter().collect());
    }
    let conditions = offer.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let (Some(silence), Some(ready)) = (silence, find(conditions, type_::READY)) else { return Plan::nothing() };
    let heard_at = ready.last_transition_time.parse::<jiff::Timestamp>().unwrap_or_default();
    if ready.status != ConditionStatus::True || heard_at > silence.since {
        return Plan::nothing();
    }
    if let Some(left) = time_left(silence.since, PATIENCE, now) {
        return Plan { requeue_after: Some(left), ..Plan::nothing() };
    }
    let value = ConditionValue::unknown(reason::NODE_STATUS_UNKNOWN, silence.message());
    let generation = offer.metadata.generation.unwrap_or_default();
    let condition = condition::condition(conditions, type_::READY, value, generation, &format_time(now));
    let resource_version = offer.metadata.resource_version.clone().unwrap_or_default();
    Plan::only(vec![Step::SetNodeCondition { of: stored.target(), resource_version, condition: Box::new(condition) }])
}
