//! Nodes that are not ready, and who waits for them.

use k8s_openapi::api::core::v1::{Node, NodeCondition, PersistentVolume};
use kube::ResourceExt;
use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_plan::yoipod::{session_claim_name, workspace_name};

use super::super::super::finding::Finding;
use super::super::super::observed::{ObservedCluster, display_name, listed};
use super::super::charts::leader_pod;
use crate::show;

/// So many agents are named in one finding.
const MOST_NAMED: usize = 5;

/// A finding for each node of agents that is not ready.
pub fn findings(observed: &ObservedCluster) -> Vec<Finding> {
    let has_shim = |node: &&Node| listed(&observed.workspace_nodes).iter().any(|offer| offer.name_any() == node.name_any());
    listed(&observed.nodes).iter().filter(has_shim).filter_map(|node| finding(observed, node)).collect()
}

fn finding(observed: &ObservedCluster, node: &Node) -> Option<Finding> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|c| c.type_ == "Ready").filter(|c| c.status != "True")?;
    let name = node.name_any();
    let waiting: Vec<&YoiPod> = listed(&observed.yoipods).iter().filter(|agent| waits_for(observed, agent, node)).collect();
    let leads = leader_pod(observed).is_some_and(|pod| pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(&*name));
    let leads = if leads { "; the operator that leads is on it, and another one takes over" } else { "" };
    let command = format!("kubectl describe node {name}");
    let what = format!("{}{leads}", why(observed, ready));
    Some(match waiting.as_slice() {
        [] => Finding::warning(display_name(node), format!("{what}. No agent of those looked at has its tree or session there"), command),
        waiting => {
            let names: Vec<String> = waiting.iter().take(MOST_NAMED).map(|agent| agent_name(agent)).collect();
            let more = waiting.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let what = format!("{what}. Tree or session of {}{more} are on its disk: they wait until it is back", names.join(", "));
            Finding::error(display_name(node), what, command)
        }
    })
}

fn why(observed: &ObservedCluster, ready: &NodeCondition) -> String {
    let since = ready.last_transition_time.as_ref().map(|t| format!(" for {}", show::duration(observed.age(t.0)))).unwrap_or_default();
    let reason = ready.reason.as_deref().unwrap_or("no reason");
    let message = ready.message.as_deref().unwrap_or_default().trim_end_matches('.');
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    format!("it is not ready{since} ({reason}{message})")
}

fn agent_name(agent: &YoiPod) -> String {
    format!("{}/{}", agent.namespace().unwrap_or_default(), agent.name_any())
}

/// Whether an agent is to run, and its tree or its session is on the node.
fn waits_for(observed: &ObservedCluster, agent: &YoiPod, node: &Node) -> bool {
    if agent.spec.desired_state != DesiredState::Running {
        return false;
    }
    let name = node.name_any();
    let is_its = |namespace: Option<String>, object: &str, of: &str| namespace == agent.namespace() && object == of;
    let tree = listed(&observed.workspaces).iter().find(|w| is_its(w.namespace(), &w.name_any(), workspace_name(agent)));
    if tree.is_some_and(|w| w.status.as_ref().and_then(|s| s.node_name.as_deref()) == Some(&*name)) {
        return true;
    }
    let wanted = session_claim_name(agent);
    let claim = listed(&observed.claims).iter().find(|c| is_its(c.namespace(), &c.name_any(), &wanted));
    let volume_name = claim.and_then(|c| c.spec.as_ref()?.volume_name.as_deref());
    let volume = listed(&observed.volumes).iter().find(|v| v.metadata.name.as_deref() == volume_name && volume_name.is_some());
    volume.is_some_and(|volume| is_only_on(volume, node))
}

/// Whether the volume is bound to this node by its name, as those of a disk of the node are.
fn is_only_on(volume: &PersistentVolume, node: &Node) -> bool {
    let hostname = node.labels().get("kubernetes.io/hostname").cloned().unwrap_or_else(|| node.name_any());
    let required = volume.spec.as_ref().and_then(|s| s.node_affinity.as_ref()?.required.as_ref());
    let terms = required.map(|required| required.node_selector_terms.as_slice()).unwrap_or_default();
    let names_it = |values: &Option<Vec<String>>| values.as_deref().unwrap_or_default() == [hostname.as_str()];
    terms.iter().any(|term| {
        term.match_expressions.iter().flatten().any(|e| e.key == "kubernetes.io/hostname" && e.operator == "In" && names_it(&e.values))
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::sample::{expect_finding, healthy};
    use super::super::super::{Severity, check_named};
    use serde_json::json;

    fn with_node(status: &str) -> super::ObservedCluster {
        let mut observed = healthy();
        let ready = json!({ "conditions": [{ "type": "Ready", "status": status, "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-11-21T11:50:00Z" }] });
        observed.nodes.as_mut().unwrap()[0].status = serde_json::from_value(ready).unwrap();
        observed
    }

    #[test]
    fn a_node_that_is_not_ready_is_an_error_that_names_who_waits_for_it() {
        let observed = with_node("Unknown");
        let finding =
            expect_finding(&observed, "nodes", "it is not ready for 10m (NodeStatusUnknown: Kubelet stopped posting node status)");
        assert!(finding.message.contains("Tree or session of ns/a are on its disk"), "{finding:?}");
        assert_eq!((finding.severity, finding.command.unwrap()), (Severity::Error, "kubectl describe node n".to_owned()));
        assert!(check_named(&with_node("True"), "nodes").iter().all(|f| f.severity == Severity::Ok));
    }

    #[test]
    fn an_agent_whose_session_alone_is_there_waits_too_and_one_that_is_stopped_does_not() {
        let mut observed = with_node("False");
        observed.workspaces.as_mut().unwrap()[0].status.as_mut().unwrap().node_name = Some("m".to_owned());
        let nobody = expect_finding(&observed, "nodes", "No agent of those looked at");
        assert_eq!(nobody.severity, Severity::Warning);
        observed.claims.as_mut().unwrap()[0].spec.get_or_insert_default().volume_name = Some("pv".to_owned());
        let volume = json!({ "metadata": { "name": "pv" }, "spec": { "nodeAffinity": { "required": { "nodeSelectorTerms": [
            { "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["n"] }] }] } } } });
        observed.volumes.as_mut().unwrap().push(serde_json::from_value(volume).unwrap());
        expect_finding(&observed, "nodes", "Tree or session of ns/a");
        observed.yoipods.as_mut().unwrap()[0].spec.desired_state = yoi_crds::pod::DesiredState::Stopped;
        expect_finding(&observed, "nodes", "No agent of those looked at");
    }

    #[test]
    fn the_operator_that_leads_on_such_a_node_is_told() {
        let mut observed = with_node("Unknown");
        let leader = &mut observed.our_pods.as_mut().unwrap()[0];
        leader.spec.get_or_insert_default().node_name = Some("n".to_owned());
        expect_finding(&observed, "nodes", "the operator that leads is on it");
    }
}
