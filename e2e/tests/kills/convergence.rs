//! Measures the time until every object is as requested, and the part of it in which Kubernetes only waited for its next try.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use tokio::time::{sleep, timeout};
use yoi_crds::condition::is_true;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_test_support::limit;

use crate::churn::{Churn, pod_ready};
use crate::workload::{AGENTS, Workload};
use crate::{endpoints, node_status, resting};

#[derive(Clone, Debug, Default)]
pub struct Convergence {
    pub took: Duration,
    /// The part of `took` in which a container or a volume waited for the kubelet's next try, or a deletion for a controller of Kubernetes.
    pub backed_off: Duration,
    /// Time from then until nothing was left over.
    pub cleared: Duration,
    /// Everything that was pending, with the time at which it was last seen pending.
    pub pending: BTreeMap<String, Duration>,
}

impl Convergence {
    /// Returns what was pending longest, where convergence took more than 15 s.
    pub fn slowest(&self) -> Option<String> {
        const SLOW: Duration = Duration::from_secs(15);
        let (what, until) = self.pending.iter().max_by_key(|(_, until)| **until)?;
        (self.took.saturating_sub(self.backed_off) > SLOW).then(|| format!("{what}, until {:.1} s", until.as_secs_f32()))
    }
}

/// Limit for convergence without back-off: `YOI_KILL_WITHIN` seconds, or 60 on a quiet machine.
pub fn time_limit() -> Duration {
    let given = std::env::var("YOI_KILL_WITHIN").ok().and_then(|text| text.parse().ok()).map(Duration::from_secs);
    given.unwrap_or_else(|| limit(Duration::from_secs(60)))
}

/// How long Kubernetes' own controllers may be behind, as docs/reliability.md says.
const BEHIND_AT_MOST: Duration = Duration::from_secs(90);

/// Limit for convergence with back-off.
const AT_MOST: Duration = Duration::from_secs(240);
const STEP: Duration = Duration::from_millis(500);

#[derive(Default)]
struct ClusterView {
    pending: Vec<String>,
    /// A container or a volume waits for the kubelet's next try.
    backing_off: bool,
    /// Kubernetes' own controllers still have to act.
    controllers_behind: bool,
}

impl ClusterView {
    fn no_answer(what: String) -> Self {
        Self { pending: vec![what], ..Self::default() }
    }
}

/// Waits until nothing is pending. Times count from `since`, the last fault. When a limit has passed, returns a sentence for each thing that is
/// still pending.
pub async fn wait(workload: &Workload, churn: &Churn, since: Instant) -> Result<(Convergence, Vec<String>)> {
    let mut convergence = Convergence::default();
    let (mut last, mut behind) = (Instant::now(), Duration::ZERO);
    loop {
        let view = match timeout(Duration::from_secs(15), observe(workload, churn)).await {
            Ok(Ok(view)) => view,
            Ok(Err(error)) => ClusterView::no_answer(format!("the API server does not answer: {error:#}")),
            Err(_) => ClusterView::no_answer("the API server does not answer".to_owned()),
        };
        convergence.took = since.elapsed();
        if view.pending.is_empty() {
            return Ok((convergence, Vec::new()));
        }
        if view.backing_off {
            convergence.backed_off += last.elapsed();
        } else if view.controllers_behind {
            let more = last.elapsed().min(limit(BEHIND_AT_MOST).saturating_sub(behind));
            behind += more;
            convergence.backed_off += more;
        }
        last = Instant::now();
        if convergence.took.saturating_sub(convergence.backed_off) > time_limit() || convergence.took > limit(AT_MOST) {
            let pending =
                view.pending.into_iter().map(|what| format!("not converged {} s after the last fault: {what}", convergence.took.as_secs()));
            let pending = pending.collect();
            return Ok((convergence, pending));
        }
        convergence.pending.extend(view.pending.into_iter().map(|what| (what, convergence.took)));
        sleep(STEP).await;
    }
}

async fn observe(workload: &Workload, churn: &Churn) -> Result<ClusterView> {
    let (client, all) = (&workload.ns.client, ListParams::default());
    let pods = Api::<Pod>::all(client.clone()).list(&all).await?.items;
    let own: Vec<Pod> = pods.iter().filter(|p| p.namespace().as_deref() == Some(&workload.ns.name)).cloned().collect();
    let workspaces = workload.ns.api::<AgentWorkspace>().list(&all).await?.items;
    let yoipods = workload.ns.api::<YoiPod>().list(&all).await?.items;
    let mut pending = churn.pending(&workspaces, &yoipods, &own);
    for agent in AGENTS {
        let found = yoipods.iter().find(|y| y.name_any() == agent).and_then(|y| y.status.as_ref());
        if !found.is_some_and(|s| is_true(&s.conditions, "Ready")) {
            pending.push(format!("YoiPod {agent} is not Ready"));
        }
        let pod = found.and_then(|s| s.pod.as_ref()).and_then(|pod| own.iter().find(|p| p.name_any() == pod.name));
        if !pod.is_some_and(pod_ready) {
            pending.push(format!("the Pod of {agent} is not Ready"));
        }
    }
    pending.extend(workload.agent_clients.iter().filter_map(|agent_client| agent_client.pending()));
    pending.extend(workload.persons.iter().filter_map(|person| person.pending()));
    // What it was sent is done once it rests again.
    pending.extend(workload.resting.client.unacknowledged().or_else(|| resting::pending(&yoipods, &own)));
    for pod in pods.iter().filter(|p| ["yoi-system", "yoi-node"].contains(&p.namespace().unwrap_or_default().as_str())) {
        if !pod_ready(pod) {
            pending.push(format!("Pod {} is not Ready", pod.name_any()));
        }
    }
    let nodes = node_status::look(client).await?;
    pending.extend(nodes.not_ready.into_iter().map(|name| format!("node {name} is not Ready")));
    let backing_off = !pending.is_empty() && (pods.iter().any(crash_looping) || waits_for_mount(workload, &own).await?);
    let behind = !pending.is_empty() && controllers_are_behind(workload, &workspaces, &yoipods, &own).await?;
    let left_out = endpoints::missing_pods(client).await?;
    let controllers_behind = behind || nodes.unseen || !left_out.is_empty();
    pending.extend(left_out);
    Ok(ClusterView { pending, backing_off, controllers_behind })
}

/// Returns whether Kubernetes' own controllers still have to act: the garbage collector on an orphan, the controllers that take protection
/// finalizers off, or the scheduler on a Pod whose claim it has not seen yet. Their watches back off by up to a minute when the API server was killed twice in a
/// short time.
async fn controllers_are_behind(workload: &Workload, workspaces: &[AgentWorkspace], yoipods: &[YoiPod], pods: &[Pod]) -> Result<bool> {
    fn only(meta: &ObjectMeta, finalizer: &str) -> bool {
        meta.deletion_timestamp.is_some() && meta.finalizers.as_deref().unwrap_or_default() == [finalizer]
    }
    let orphan = |w: &AgentWorkspace| {
        let owner = w.owner_references().iter().find(|o| o.kind == "YoiPod");
        w.metadata.deletion_timestamp.is_none() && owner.is_some_and(|o| !yoipods.iter().any(|y| y.uid().as_ref() == Some(&o.uid)))
    };
    let used = |claim: &str| {
        let volumes = pods.iter().filter_map(|p| p.spec.as_ref()?.volumes.as_ref()).flatten();
        volumes.filter_map(|v| v.persistent_volume_claim.as_ref()).any(|c| c.claim_name == claim)
    };
    if workspaces.iter().any(orphan) {
        return Ok(true);
    }
    let claims = workload.ns.api::<PersistentVolumeClaim>().list(&ListParams::default()).await?.items;
    if claims.iter().any(|c| only(&c.metadata, "kubernetes.io/pvc-protection") && !used(&c.name_any())) {
        return Ok(true);
    }
    if pods.iter().any(|pod| scheduler_has_not_seen_a_claim(pod, &claims)) {
        return Ok(true);
    }
    let volumes = Api::<PersistentVolume>::all(workload.ns.client.clone()).list(&ListParams::default()).await?.items;
    Ok(volumes.iter().any(|v| only(&v.metadata, "kubernetes.io/pv-protection")))
}

/// Returns whether the scheduler refuses the Pod because of a claim that is said not to be there, and is.
fn scheduler_has_not_seen_a_claim(pod: &Pod, claims: &[PersistentVolumeClaim]) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref()).into_iter().flatten();
    let mut refusals = conditions.filter(|c| c.type_ == "PodScheduled" && c.status == "False").filter_map(|c| c.message.as_deref());
    refusals.any(|refusal| {
        let named = |c: &&PersistentVolumeClaim| {
            let name = c.name_any();
            // As its plugins put it: `persistentvolumeclaim "NAME" not found`, `could not find v1.PersistentVolumeClaim "NAMESPACE/NAME"`.
            let (short, full) = (
                format!("persistentvolumeclaim \"{name}\" not found"),
                format!("could not find v1.PersistentVolumeClaim \"{}/{name}\"", c.namespace().unwrap_or_default()),
            );
            refusal.contains(&short) || refusal.contains(&full)
        };
        claims.iter().find(named).is_some_and(|claim| claim.metadata.deletion_timestamp.is_none())
    })
}

fn crash_looping(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|s| s.container_statuses.as_ref()).into_iter().flatten();
    let mut waiting = containers.filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    waiting.any(|reason| reason == "CrashLoopBackOff")
}

/// Returns whether a Pod waits for its volumes or its sandbox after the kubelet reported a failed try.
async fn waits_for_mount(workload: &Workload, pods: &[Pod]) -> Result<bool> {
    let waiting: Vec<String> = pods.iter().filter(|p| !pod_ready(p)).map(ResourceExt::name_any).collect();
    if waiting.is_empty() {
        return Ok(false);
    }
    let events = workload.ns.api::<Event>().list(&ListParams::default().fields("type=Warning")).await?.items;
    Ok(events.iter().any(|event| {
        let about = event.involved_object.name.as_deref().unwrap_or_default();
        let failed = ["FailedMount", "FailedCreatePodSandBox", "FailedSync"].contains(&event.reason.as_deref().unwrap_or_default());
        failed && waiting.iter().any(|name| name == about)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheduler_is_behind_only_if_the_claim_that_it_misses_is_there() {
        let pod = |message: &str| -> Pod {
            let condition = serde_json::json!({ "type": "PodScheduled", "status": "False", "message": message });
            serde_json::from_value(serde_json::json!({ "status": { "conditions": [condition] } })).unwrap()
        };
        let claim: PersistentVolumeClaim =
            serde_json::from_value(serde_json::json!({ "metadata": { "name": "claim-7", "namespace": "ns" } })).unwrap();
        let claims = [claim];
        for refusal in [
            "0/1 nodes are available: persistentvolumeclaim \"claim-7\" not found. not found",
            "running PreFilter plugin \"VolumeBinding\": error getting PVC \"ns/claim-7\": could not find v1.PersistentVolumeClaim \"ns/claim-7\"",
        ] {
            assert!(scheduler_has_not_seen_a_claim(&pod(refusal), &claims), "{refusal}");
            assert!(!scheduler_has_not_seen_a_claim(&pod(refusal), &[]), "{refusal}");
        }
        assert!(!scheduler_has_not_seen_a_claim(&pod("0/1 nodes are available: 1 node(s) had untolerated taint"), &claims));
        assert!(!scheduler_has_not_seen_a_claim(&pod("persistentvolumeclaim \"claim-71\" not found"), &claims));
    }
}
