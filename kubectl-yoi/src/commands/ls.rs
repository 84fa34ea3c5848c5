//! `ls`: lists agents, sessions, workspaces, and who sees whom.

use kube::ResourceExt;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod};
use yoi_plan::visibility::{self, PeerLink};
use yoi_wire::hub::VisibilityReason;

use crate::args::{ListKind, LsOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn ls(cluster: &Cluster, output: Option<OutputFormat>, args: &LsOptions) -> Result<(), Error> {
    let all = args.all_namespaces;
    let namespace = (!all).then_some(cluster.namespace.as_str());
    let wanted = |what| args.what.is_none_or(|w| w == what);
    let pods: Vec<YoiPod> = if wanted(ListKind::Agents) || wanted(ListKind::Sessions) { cluster.list(all).await? } else { Vec::new() };
    let peers: Vec<YoiPeer> = if wanted(ListKind::Agents) || wanted(ListKind::Peers) { cluster.list(all).await? } else { Vec::new() };
    let workspaces: Vec<AgentWorkspace> = if wanted(ListKind::Workspaces) { cluster.list(all).await? } else { Vec::new() };
    let workspaces: Vec<AgentWorkspace> = workspaces.into_iter().filter(|w| w.spec.base.is_none()).collect();
    match (output, args.what) {
        (None, _) => {
            let parts: [(ListKind, &dyn Fn() -> String); 4] = [
                (ListKind::Agents, &|| agents_table(&pods, &peers, namespace)),
                (ListKind::Sessions, &|| sessions_table(&pods, namespace)),
                (ListKind::Workspaces, &|| super::workspace::table(&workspaces, namespace)),
                (ListKind::Peers, &|| peers_table(&peers, namespace)),
            ];
            let tables: Vec<String> = parts.iter().filter(|(part, _)| wanted(*part)).map(|(_, table)| table()).collect();
            show::print(&tables.join("\n"))
        }
        (Some(_), Some(ListKind::Workspaces)) => show::objects(output, &workspaces, workspace_name, String::new),
        (Some(_), Some(ListKind::Peers)) => show::objects(output, &peers, peer_name, String::new),
        (Some(OutputFormat::Name), Some(ListKind::Sessions)) => {
            show::print(&pods.iter().filter_map(session_name).map(|name| name + "\n").collect::<String>())
        }
        (Some(_), Some(ListKind::Agents | ListKind::Sessions)) => show::objects(output, &pods, pod_name, String::new),
        (Some(OutputFormat::Name), None) => {
            let names = pods.iter().map(pod_name).chain(workspaces.iter().map(workspace_name)).chain(peers.iter().map(peer_name));
            show::print(&names.map(|name| name + "\n").collect::<String>())
        }
        (Some(format), None) => show::print_as(format, &serde_json::json!({ "agents": pods, "workspaces": workspaces, "peers": peers })),
    }
}

fn pod_name(pod: &YoiPod) -> String {
    format!("yoipod.yoi.dev/{}", pod.name_any())
}

/// Returns the name of the claim that holds the agent's session, or `None` when the agent has no session.
fn session_name(pod: &YoiPod) -> Option<String> {
    let status = pod.status.as_ref().filter(|s| s.session.is_some())?;
    Some(format!("persistentvolumeclaim/{}", status.session_claim_name.as_deref()?))
}

fn workspace_name(workspace: &AgentWorkspace) -> String {
    format!("agentworkspace.yoi.dev/{}", workspace.name_any())
}

fn peer_name(peer: &YoiPeer) -> String {
    format!("yoipeer.yoi.dev/{}", peer.name_any())
}

fn agents_table(pods: &[YoiPod], peers: &[YoiPeer], namespace: Option<&str>) -> String {
    if pods.is_empty() {
        return show::empty_list("agents", namespace);
    }
    let all = namespace.is_none();
    let header = ["namespace", "agent", "ready", "reason", "desired", "activity", "task", "project", "sees", "age"];
    let links: Vec<PeerLink> = peers.iter().cloned().map(PeerLink::from).collect();
    let mut table = show::table(&header[usize::from(!all)..]);
    for pod in pods {
        let status = pod.status.clone().unwrap_or_default();
        let [ready, reason] = show::ready(&status.conditions);
        let mut row: Vec<comfy_table::Cell> = Vec::new();
        if all {
            row.push(pod.namespace().unwrap_or_default().into());
        }
        // The hint is of one Pod, and means nothing for another.
        let activity = status.live.filter(|l| status.pod.as_ref().is_some_and(|p| p.uid == l.pod_uid)).map(|l| l.activity);
        row.extend([
            pod.name_any().into(),
            ready,
            reason,
            show::desired_state_name(pod.spec.desired_state).into(),
            show::or_dash(activity.as_ref().map(|a| a.as_str())).into(),
            show::or_dash(status.task.as_ref().map(|t| t.state.as_str())).into(),
            pod.spec.project_ref.name.clone().into(),
            show::or_dash(Some(&visible_names(pod, pods, &links).join(","))).into(),
            show::age(pod.creation_timestamp().map(|t| t.0)).into(),
        ]);
        table.add_row(row);
    }
    show::lines(&table)
}

/// Returns the names of the agents that this one sees, as its own ListPods does. A missing one is marked.
fn visible_names(pod: &YoiPod, pods: &[YoiPod], links: &[PeerLink]) -> Vec<String> {
    let me = visibility::agent_ref(pod);
    let seen = visibility::visible_agents(&me, links).into_iter().filter(|seen| seen.reason != VisibilityReason::Itself);
    seen.map(|seen| {
        // The UID is compared too, so an agent of another namespace is not taken for this one.
        let there = pods.iter().any(|pod| seen.is(&visibility::agent_ref(pod)));
        if there { seen.name.to_owned() } else { format!("{} (Missing)", seen.name) }
    })
    .collect()
}

fn sessions_table(pods: &[YoiPod], namespace: Option<&str>) -> String {
    let with: Vec<_> = pods.iter().filter(|p| p.status.as_ref().is_some_and(|s| s.session.is_some())).collect();
    if with.is_empty() {
        return show::empty_list("sessions", namespace);
    }
    let all = namespace.is_none();
    let mut table = show::table(&["namespace", "session", "agent", "segment", "claim", "runs"][usize::from(!all)..]);
    for pod in with {
        let status = pod.status.clone().unwrap_or_default();
        let Some(session) = status.session else { continue };
        let mut row = if all { vec![pod.namespace().unwrap_or_default()] } else { Vec::new() };
        row.extend([
            session.id,
            pod.name_any(),
            session.segment,
            show::or_dash(status.session_claim_name.as_deref()),
            status.run_generation.unwrap_or_default().to_string(),
        ]);
        table.add_row(row);
    }
    show::lines(&table)
}

fn peers_table(peers: &[YoiPeer], namespace: Option<&str>) -> String {
    if peers.is_empty() {
        return show::empty_list("peers", namespace);
    }
    let all = namespace.is_none();
    let mut table = show::table(&["namespace", "a", "b", "ready", "reason", "age"][usize::from(!all)..]);
    for peer in peers {
        let [ready, reason] = show::ready(&peer.status.clone().unwrap_or_default().conditions);
        let mut row: Vec<comfy_table::Cell> = Vec::new();
        if all {
            row.push(peer.namespace().unwrap_or_default().into());
        }
        let member = |n: usize| peer.spec.members.get(n).cloned().unwrap_or_default();
        row.extend([member(0).into(), member(1).into(), ready, reason, show::age(peer.creation_timestamp().map(|t| t.0)).into()]);
        table.add_row(row);
    }
    show::lines(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_session_is_named_by_its_claim_and_an_agent_without_one_by_nothing() {
        let pod = |status| {
            let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} } });
            let pod: YoiPod = serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": spec, "status": status })).unwrap();
            session_name(&pod)
        };
        let session = json!({ "id": "i", "segment": "s" });
        assert_eq!(pod(json!({ "session": session, "sessionClaimName": "kept" })).as_deref(), Some("persistentvolumeclaim/kept"));
        assert_eq!(pod(json!({ "sessionClaimName": "a-session" })), None, "nothing was said in it yet");
        assert_eq!(pod(json!(null)), None);
    }
}
