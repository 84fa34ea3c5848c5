//! What stands against deleting an agent or a tree: somebody uses it, nobody knows whether somebody does, or something is only there.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use yoi_crds::condition::{Condition, ConditionStatus, find, is_true};
use yoi_crds::pod::DesiredState;
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_plan::yoipod::workspace_name;
use yoi_wire::people::{DiffResponse, DiffSince};

use crate::cluster::Cluster;
use crate::show;

/// How long an agent may take to say what it changed.
const DIFF_TIMEOUT: Duration = Duration::from_secs(90);

/// Why something is not deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// Whether `--force` changes it.
    pub is_final: bool,
    pub why: String,
    /// A command.
    pub next: String,
}

impl Objection {
    fn live(why: impl Into<String>, next: String) -> Self {
        Objection { is_final: true, why: why.into(), next }
    }

    fn open(why: impl Into<String>, next: String) -> Self {
        Objection { is_final: false, why: why.into(), next }
    }
}

fn conditions(object: Option<&Vec<Condition>>) -> &[Condition] {
    object.map(Vec::as_slice).unwrap_or_default()
}

/// Whether an agent lives, or may live.
pub fn agent_in_use(cluster: &Cluster, agent: &YoiPod) -> Option<Objection> {
    let stop = || cluster.plugin_command(&format!("stop --wait {}", agent.name_any()));
    let status = agent.status.as_ref();
    // A Pod that the status names may still write.
    if status.is_some_and(|status| status.pod.is_some()) {
        return Some(Objection::live("its Pod is still there", stop()));
    }
    let seen = status.and_then(|status| status.observed_generation);
    if seen.is_none() || agent.metadata.generation.is_some_and(|generation| seen < Some(generation)) {
        return Some(Objection::open("the operator has not seen it as it is now, so that it may have a Pod", stop()));
    }
    let ready = find(conditions(status.map(|status| &status.conditions)), condition::READY);
    let rests = agent.spec.desired_state == DesiredState::Stopped
        || ready.is_some_and(|c| c.reason == reason::STOPPED || c.reason == reason::LIFETIME_OVER);
    (!rests).then(|| Objection::open("it is to run, and may get a Pod at any time", stop()))
}

/// Whether somebody uses a tree, or may use it. `users` are the agents that work in it.
pub async fn tree_in_use(cluster: &Cluster, tree: &AgentWorkspace, users: &[YoiPod]) -> Option<Objection> {
    let of_agent = |objection: Objection, user: &YoiPod| Objection {
        why: format!("YoiPod {} uses it: {}", user.name_any(), objection.why),
        ..objection
    };
    let agents: Vec<Objection> = users.iter().filter_map(|user| Some(of_agent(agent_in_use(cluster, user)?, user))).collect();
    if let Some(live) = agents.iter().find(|objection| objection.is_final) {
        return Some(live.clone());
    }
    let get_pods = || format!("kubectl get pods -n {}", cluster.namespace);
    if let Some(pod) = tree_claim_user(cluster, tree).await {
        return Some(Objection::live(format!("Pod {pod} uses its claim"), format!("kubectl delete pod {pod} -n {}", cluster.namespace)));
    }
    let all = conditions(tree.status.as_ref().map(|status| &status.conditions));
    let in_use = find(all, condition::IN_USE);
    let is_read = has_reader(tree, users);
    if in_use.is_some_and(|c| c.status == ConditionStatus::True) && !is_read {
        return Some(Objection::live("a Pod has it mounted", get_pods()));
    }
    if let Some(open) = agents.into_iter().next() {
        return Some(open);
    }
    let ready = find(all, condition::READY);
    if let Some(silent) = ready.filter(|c| c.reason == reason::NODE_NOT_READY) {
        return Some(Objection::open(format!("whether a Pod uses it is not known: {}", silent.message), "kubectl get nodes".to_owned()));
    }
    let is_made = is_true(all, condition::PROVISIONED);
    (is_made && in_use.is_none_or(|c| c.status == ConditionStatus::Unknown))
        .then(|| Objection::open("its node has not said whether a Pod uses it", get_pods()))
}

/// Whether an agent's reader may mount the tree. It changes nothing, and goes by itself when its tree is deleted. While it may, no other Pod does.
fn has_reader(tree: &AgentWorkspace, users: &[YoiPod]) -> bool {
    let Some(allowed) = tree.status.as_ref().and_then(|status| status.reader_pod_uid.as_ref()) else { return false };
    let reader = |user: &YoiPod| Some(user.status.as_ref()?.reader.as_ref()?.pod.as_ref()?.uid.clone());
    users.iter().filter_map(reader).any(|uid| uid == *allowed)
}

/// A Pod that uses the claim of a tree. Who may not read Pods learns it from the tree's conditions.
async fn tree_claim_user(cluster: &Cluster, tree: &AgentWorkspace) -> Option<String> {
    let claim = tree.status.as_ref()?.claim_name.as_ref()?;
    let pods: Vec<Pod> = cluster.list(false, None).await.ok()?;
    claim_user(claim, &pods)
}

/// A Pod that uses the claim and has not ended.
pub fn claim_user(claim: &str, pods: &[Pod]) -> Option<String> {
    let names = |pod: &Pod| {
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        volumes.iter().any(|v| v.persistent_volume_claim.as_ref().is_some_and(|c| c.claim_name == claim))
    };
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    pods.iter().find(|pod| names(pod) && !has_ended(pod)).map(ResourceExt::name_any)
}

/// The agents that work in a tree.
pub fn users_of<'a>(tree: &str, agents: &'a [YoiPod]) -> impl Iterator<Item = &'a YoiPod> {
    agents.iter().filter(move |agent| workspace_name(agent) == tree)
}

/// Whether something is only in this tree. An agent is asked, also a stopped one; a tree that cannot be looked into counts as one with work in it.
pub async fn unsaved(cluster: &Cluster, tree: &AgentWorkspace, agent: Option<&YoiPod>) -> Option<Objection> {
    let status = tree.status.as_ref();
    let provisioned = find(conditions(status.map(|status| &status.conditions)), condition::PROVISIONED);
    let is_made = status.is_some_and(|status| status.origin.is_some()) && provisioned.is_some_and(|c| c.status == ConditionStatus::True);
    // A base holds what its source holds.
    if !is_made || tree.spec.base.is_some() {
        return None;
    }
    let Some(agent) = agent.map(ResourceExt::name_any) else {
        let next = cluster.plugin_command(&format!("workspace rm {} --force", tree.name_any()));
        return Some(Objection::open("what is only in it cannot be looked at, because no agent works in it", next));
    };
    let query = format!("since={}", DiffSince::Base.as_str());
    let asked = cluster.fetch::<DiffResponse>(&agent, "diff", &query);
    let why = match tokio::time::timeout(DIFF_TIMEOUT, asked).await {
        Ok(Ok(diff)) => changes(&diff)?,
        Ok(Err(error)) => format!("what is only in its tree cannot be looked at: {}", show::one_line(&error.to_string())),
        Err(_) => format!("what is only in its tree cannot be looked at: no answer in {} s", DIFF_TIMEOUT.as_secs()),
    };
    Some(Objection::open(why, cluster.plugin_command(&format!("diff {agent}"))))
}

/// What differs from the base, committed or not; `None` for nothing.
fn changes(diff: &DiffResponse) -> Option<String> {
    if let Some(why) = &diff.no_base {
        return Some(format!("what is only in its tree is not known: {}", show::one_line(why)));
    }
    let more = if diff.paths_cut.unwrap_or(diff.cut) { "more than " } else { "" };
    match diff.paths.len() {
        0 if diff.text.as_ref().is_none_or(String::is_empty) => None,
        0 => Some("its tree differs from its base, and that is nowhere else".to_owned()),
        1 => Some(format!("{more}1 path of its tree differs from its base")),
        n => Some(format!("{more}{n} paths of its tree differ from its base")),
    }
}
