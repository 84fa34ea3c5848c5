//! The built-in tools, one type in one file.

mod child;
mod command;
mod diff_pod;
mod edit;
mod glob;
mod graph;
mod grep;
mod list;
mod list_pods;
mod merge_pod;
mod pod_log;
mod pod_state;
mod read;
mod read_pod_output;
mod restore_pod;
mod send_to_peer_pod;
mod send_to_pod;
mod shell;
mod shell_output;
mod shell_stop;
mod skill;
mod spawn_pod;
mod spawn_subagent;
mod stop_pod;
mod stop_subagent;
mod wait_pods;
mod wait_subagents;
mod write;

use super::tool::{Tool, TypedTool};
use crate::peers::PeersError;

/// The tool by which paths are lent, where they may be.
pub const SPAWN_POD: &str = spawn_pod::SpawnPod::NAME;
pub use spawn_pod::{SHARES, without_share};
/// The tools that look into folders outside of the tree that the policy excepts.
pub const READ_OUTSIDE: [&str; 2] = [read::Read::NAME, list::List::NAME];

/// The tools of an agent that may start others.
pub const FOR_CHILDREN: [&str; 9] = [
    spawn_pod::SpawnPod::NAME,
    send_to_pod::SendToPod::NAME,
    read_pod_output::ReadPodOutput::NAME,
    pod_log::PodLog::NAME,
    pod_state::PodState::NAME,
    diff_pod::DiffPod::NAME,
    merge_pod::MergePod::NAME,
    wait_pods::WaitPods::NAME,
    stop_pod::StopPod::NAME,
];

/// The tools of a conversation that has templates of sub-agents.
pub const FOR_SUBAGENTS: [&str; 3] = [SPAWN_SUBAGENT, wait_subagents::WaitSubagents::NAME, stop_subagent::StopSubagent::NAME];
/// The tool whose description lists the templates.
pub const SPAWN_SUBAGENT: &str = spawn_subagent::SpawnSubagent::NAME;
/// The tools by which an agent reaches others. Its sub-agents do not.
pub const FOR_PEERS: [&str; 3] = [list_pods::ListPods::NAME, send_to_peer_pod::SendToPeerPod::NAME, restore_pod::RestorePod::NAME];

/// All of them, in the order in which the model is offered them.
pub fn all() -> Vec<Box<dyn Tool>> {
    vec![
        Box::new(shell::Shell),
        Box::new(shell_output::ShellOutput),
        Box::new(shell_stop::ShellStop),
        Box::new(read::Read),
        Box::new(write::Write),
        Box::new(edit::Edit),
        Box::new(grep::Grep),
        Box::new(glob::Glob),
        Box::new(list::List),
        Box::new(skill::Skill),
        Box::new(graph::Graph),
        Box::new(command::Command),
        Box::new(spawn_subagent::SpawnSubagent),
        Box::new(wait_subagents::WaitSubagents),
        Box::new(stop_subagent::StopSubagent),
        Box::new(list_pods::ListPods),
        Box::new(send_to_peer_pod::SendToPeerPod),
        Box::new(restore_pod::RestorePod),
        Box::new(spawn_pod::SpawnPod),
        Box::new(send_to_pod::SendToPod),
        Box::new(read_pod_output::ReadPodOutput),
        Box::new(pod_log::PodLog),
        Box::new(pod_state::PodState),
        Box::new(diff_pod::DiffPod),
        Box::new(merge_pod::MergePod),
        Box::new(wait_pods::WaitPods),
        Box::new(stop_pod::StopPod),
    ]
}

fn peers_error_sentence(error: &PeersError) -> String {
    match error {
        PeersError::Refused(refusal) => refusal.message.clone(),
        PeersError::NotSent { message, .. } | PeersError::Unanswered { message, .. } => {
            format!("The gateway could not be asked: {message}")
        }
    }
}
