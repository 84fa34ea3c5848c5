//! `ls`: agents, sessions, workspaces, and who sees whom.

use kube::ResourceExt;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod};
use yoi_plan::sight::{self, Bond};
use yoi_wire::hub::SightReason;

use crate::args::{Ls, Output, What};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn ls(cluster: &Cluster, output: Option<Output>, args: &Ls) -> Result<(), Error> {
    let all = args.all_namespaces;
    let wanted = |what| args.what.is_none_or(|w| w == what);
    let pods: Vec<YoiPod> = if wanted(What::Agents) || wanted(What::Sessions) { cluster.list(all).await? } else { Vec::new() };
    let peers: Vec<YoiPeer> = if wanted(What::Agents) || wanted(What::Peers) { cluster.list(all).await? } else { Vec::new() };
    let workspaces: Vec<AgentWorkspace> = if wanted(What::Workspaces) { cluster.list(all).await? } else { Vec::new() };
    let workspaces: Vec<AgentWorkspace> = workspaces.into_iter().filter(|w| w.spec.base.is_none()).collect();
    match (output, args.what) {
        (None, what) => {
            let parts: [(What, &dyn Fn()); 4] = [
                (What::Agents, &|| agents(&pods, &peers, all)),
                (What::Sessions, &|| sessions(&pods, all)),
                (What::Workspaces, &|| super::workspace::print(&workspaces, all)),
                (What::Peers, &|| relations(&peers, all)),
            ];
            let shown = parts.iter().filter(|(part, _)| what.is_none_or(|w| w == *part));
            for (n, (_, print)) in shown.enumerate() {
                if n > 0 {
                    println!();
                }
                print();
            }
            Ok(())
        }
        (Some(_), Some(What::Workspaces)) => {
            show::objects(output, &workspaces, |w| format!("agentworkspace.yoi.dev/{}", w.name_any()), || ())
        }
        (Some(_), Some(What::Peers)) => show::objects(output, &peers, |p| format!("yoipeer.yoi.dev/{}", p.name_any()), || ()),
        (Some(_), Some(What::Agents | What::Sessions)) => {
            show::objects(output, &pods, |p| format!("yoipod.yoi.dev/{}", p.name_any()), || ())
        }
        (Some(Output::Name), None) => {
            pods.iter().for_each(|p| println!("yoipod.yoi.dev/{}", p.name_any()));
            workspaces.iter().for_each(|w| println!("agentworkspace.yoi.dev/{}", w.name_any()));
            peers.iter().for_each(|p| println!("yoipeer.yoi.dev/{}", p.name_any()));
            Ok(())
        }
        (Some(form), None) => show::value(form, &serde_json::json!({ "agents": pods, "workspaces": workspaces, "peers": peers })),
    }
}

fn agents(pods: &[YoiPod], peers: &[YoiPeer], all: bool) {
    if pods.is_empty() {
        println!("no agents");
        return;
    }
    let header = ["namespace", "agent", "ready", "reason", "desired", "activity", "task", "project", "sees", "age"];
    let bonds: Vec<Bond> = peers.iter().cloned().map(Bond::from).collect();
    let mut table = show::table(&header[usize::from(!all)..]);
    for pod in pods {
        let status = pod.status.clone().unwrap_or_default();
        let [ready, reason] = show::ready(&status.conditions);
        let mut row: Vec<comfy_table::Cell> = Vec::new();
        if all {
            row.push(pod.namespace().unwrap_or_default().into());
        }
        // The hint speaks of one Pod; of another one it says nothing.
        let activity = status.live.filter(|l| status.pod.as_ref().is_some_and(|p| p.uid == l.pod_uid)).map(|l| l.activity);
        row.extend([
            pod.name_any().into(),
            ready,
            reason,
            format!("{:?}", pod.spec.desired_state).into(),
            show::or_dash(activity.as_deref()).into(),
            show::or_dash(status.task.as_ref().map(|t| t.state.as_str())).into(),
            pod.spec.project_ref.name.clone().into(),
            show::or_dash(Some(&sees(pod, pods, &bonds).join(","))).into(),
            show::age(pod.creation_timestamp().map(|t| t.0)).into(),
        ]);
        table.add_row(row);
    }
    println!("{table}");
}

/// Whom this agent sees beside itself, and who of them is missing: as its own ListPods says.
fn sees(pod: &YoiPod, pods: &[YoiPod], bonds: &[Bond]) -> Vec<String> {
    let me = sight::agent_name(pod);
    let seen = sight::visible(&me, bonds).into_iter().filter(|seen| seen.reason != SightReason::Itself);
    seen.map(|seen| {
        // Of one namespace, because a UID is of one object.
        let there = pods.iter().any(|pod| seen.is(&sight::agent_name(pod)));
        if there { seen.name.to_owned() } else { format!("{} (Missing)", seen.name) }
    })
    .collect()
}

fn sessions(pods: &[YoiPod], all: bool) {
    let with: Vec<_> = pods.iter().filter(|p| p.status.as_ref().is_some_and(|s| s.session.is_some())).collect();
    if with.is_empty() {
        println!("no sessions");
        return;
    }
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
    println!("{table}");
}

fn relations(peers: &[YoiPeer], all: bool) {
    if peers.is_empty() {
        println!("no peers");
        return;
    }
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
    println!("{table}");
}
