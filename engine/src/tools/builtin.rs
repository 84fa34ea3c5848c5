//! The built-in tools, one type in one file.

mod command;
mod edit;
mod glob;
mod graph;
mod grep;
mod list;
mod list_pods;
mod read;
mod send_to_peer_pod;
mod shell;
mod shell_output;
mod shell_stop;
mod skill;
mod write;

use super::tool::Tool;
use crate::peers::PeersError;

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
        Box::new(list_pods::ListPods),
        Box::new(send_to_peer_pod::SendToPeerPod),
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
