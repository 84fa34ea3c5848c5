//! `kubectl yoi`, the plugin for people. It acts at the API server with the user's own rights, and has no others.

#![cfg_attr(not(test), deny(clippy::use_debug))]

mod args;
mod bundle_file;
mod clone_project;
mod cluster;
mod commands;
mod complete;
mod error;
mod folder_tree;
mod git;
mod local_clone;
mod progress;
mod remedy;
mod session_log;
mod show;

use std::process::ExitCode;

use args::{Cli, ClusterOptions, Command, ConversationCommand, WorkspaceCommand};
use clone_project::CloneProject;
use cluster::Cluster;
use error::Error;
use yoi_wire::control::ControlAction;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    if let Some((words, options)) = args::completion_words() {
        return exit_code(show::print(&complete(&words, &options).await));
    }
    exit_code(run_command(Cli::from_process()).await)
}

fn exit_code(done: Result<(), Error>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // An agent may have written a part of it.
            eprintln!("error: {}", show::visible(&error.to_string()));
            ExitCode::from(error.exit_code())
        }
    }
}

/// Returns the answer to kubectl for the words of a line.
async fn complete(words: &[String], options: &ClusterOptions) -> String {
    let command = Cli::clap_command();
    let mut completion = complete::Completion::new(&command, words);
    if let Some(value_name) = completion.value_name().map(str::to_owned) {
        let mut options = options.clone();
        // Whatever is wrong with the file, completion says nothing of it.
        let _ = CloneProject::add_to(&mut options).await;
        let agent = completion.first_positional().map(str::to_owned);
        for (name, description) in complete::names_of(&value_name, agent.as_deref(), &options).await {
            completion.offer(&name, description);
        }
    }
    completion.answer()
}

/// Returns the completion script for `kubectl-yoi`.
fn completion(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::clap_command(), "kubectl-yoi", &mut script);
    // clap_complete spells the hyphen of the program's name in two ways in the script for bash, which then completes no verb.
    String::from_utf8_lossy(&script).replace("kubectl__subcmd__yoi", "kubectl__yoi")
}

/// Adds what the clone at hand remembers of its project, and says so where it is not what the kubeconfig says.
async fn add_clone(cli: &mut Cli) -> Result<(), Error> {
    let before = cluster::place(&cli.cluster);
    let project = match (CloneProject::add_to(&mut cli.cluster).await, &cli.command) {
        // It is what writes such a file anew.
        (Err(_), Command::Init(_)) => None,
        (project, _) => project?,
    };
    let after = cluster::place(&cli.cluster);
    if before != after {
        eprintln!("{}", CloneProject::sentence(after.0.as_deref(), after.1.as_deref().unwrap_or("default")));
    }
    match (&mut cli.command, project) {
        (Command::Run(run), Some(project)) => project.fill(run),
        (Command::Sync(sync), Some(project)) => drop(sync.project.get_or_insert(project.project)),
        _ => {}
    }
    Ok(())
}

async fn run_command(mut cli: Cli) -> Result<(), Error> {
    let output = cli.output;
    match &cli.command {
        Command::Completion { shell } => return show::print(&completion(*shell)),
        Command::Explain { reason } => return commands::explain::explain(output, reason),
        Command::Crds => return commands::explain::crds(),
        Command::Host(command) => return commands::host::host(output, command).await,
        Command::Vm(command) => return commands::vm::vm(output, command).await,
        Command::Init(args) if !args.apply => return commands::init::init(&cli.cluster, output, args).await,
        Command::Version(args) if args.client => return commands::version::version(&cli.cluster, output, args).await,
        _ => {}
    }
    add_clone(&mut cli).await?;
    match &cli.command {
        Command::Init(args) => return commands::init::init(&cli.cluster, output, args).await,
        Command::Version(args) => return commands::version::version(&cli.cluster, output, args).await,
        _ => {}
    }
    let mut cluster = Cluster::connect(&cli.cluster).await?;
    cluster.dry_run = cli.command.dry_run();
    cluster.conversation = cli.command.conversation().map(str::to_owned);
    match cli.command {
        Command::Run(args) => commands::run::run(&cluster, output, *args).await,
        Command::Ls(args) => commands::ls::ls(&cluster, output, &args).await,
        Command::Log(args) => commands::log::log(&cluster, output, &args).await,
        Command::Send(args) => commands::send::send(&cluster, output, &args).await,
        Command::Attach(args) => commands::attach::attach(&cluster, output, &args).await,
        Command::Approvals(args) => commands::approvals::approvals(&cluster, output, &args).await,
        Command::Approve(args) => commands::approvals::approve(&cluster, output, &args).await,
        Command::Deny(args) => commands::approvals::deny(&cluster, output, &args).await,
        Command::Pause(args) => commands::steer::steer(&cluster, output, &args.name, ControlAction::Pause {}).await,
        Command::Resume(args) => commands::steer::steer(&cluster, output, &args.name, ControlAction::Resume {}).await,
        Command::Cancel(args) => commands::steer::steer(&cluster, output, &args.name, ControlAction::Cancel {}).await,
        Command::Mode(args) => {
            let action = ControlAction::SetMode { mode: args.mode, force: args.force };
            commands::steer::steer(&cluster, output, &args.name, action).await
        }
        Command::Compact(args) => commands::steer::steer(&cluster, output, &args.name, ControlAction::Compact {}).await,
        Command::Rewind(args) => commands::steer::rewind(&cluster, output, &args).await,
        Command::Conversation(ConversationCommand::Start(args)) => commands::conversation::start(&cluster, output, &args).await,
        Command::Conversation(ConversationCommand::Ls(args)) => commands::conversation::ls(&cluster, output, &args).await,
        Command::Conversation(ConversationCommand::Stop(args)) => commands::conversation::stop(&cluster, output, &args).await,
        Command::Top(args) => commands::top::top(&cluster, output, &args).await,
        Command::Assets(args) => commands::assets::assets(&cluster, output, &args).await,
        Command::Events(args) => commands::events::events(&cluster, output, &args).await,
        Command::Tools(args) => commands::tools::tools(&cluster, output, &args).await,
        Command::Scope(args) => commands::scope::scope(&cluster, output, &args).await,
        Command::Projection(args) => commands::projection::projection(&cluster, output, &args).await,
        Command::Ssh(args) => commands::ssh::ssh(&cluster, &cli.cluster, &args).await,
        Command::SshConfig(args) => commands::ssh::config(&cluster, &cli.cluster, &args).await,
        Command::Export(args) => commands::export::export(&cluster, &args).await,
        Command::Peer(args) => commands::peer::peer(&cluster, output, &args).await,
        Command::Suspend(args) => commands::stop_start::suspend(&cluster, output, &args).await,
        Command::Stop(args) => commands::stop_start::stop(&cluster, output, &args).await,
        Command::Start(args) => commands::stop_start::start(&cluster, output, &args).await,
        Command::Restore(args) => commands::restore::restore(&cluster, output, &args).await,
        Command::Fork(args) => commands::fork::fork(&cluster, output, &args).await,
        Command::Merge(args) => commands::merge::merge(&cluster, output, &args).await,
        Command::Restart(args) => commands::restart::restart(&cluster, output, &args).await,
        Command::Rm(args) => commands::rm::rm(&cluster, output, &args).await,
        Command::Diff(args) => commands::diff::diff(&cluster, output, &args).await,
        Command::Take(args) => commands::take::take(&cluster, output, &args).await,
        Command::Refresh(args) => commands::refresh::refresh(&cluster, output, &args).await,
        Command::Sync(args) => commands::sync::sync(cluster, &cli.cluster, output, &args).await,
        Command::Patch(args) => commands::patch::patch(&cluster, &args).await,
        Command::Pull(args) => commands::pull::pull(&cluster, output, &args).await,
        Command::Push(args) => commands::push::push(&cluster, output, &args).await,
        Command::Workspace(WorkspaceCommand::Create(args)) => commands::workspace::create(&cluster, output, *args).await,
        Command::Workspace(WorkspaceCommand::Ls(filter)) => commands::workspace::ls(&cluster, output, &filter).await,
        Command::Workspace(WorkspaceCommand::Rm(args)) => commands::rm::rm_trees(&cluster, output, &args).await,
        Command::Session(command) => commands::session::session(&cluster, output, &command).await,
        Command::Trees(args) => commands::trees::trees(&cluster, output, &args).await,
        Command::Doctor(args) => commands::doctor::doctor(&cluster, output, &args).await,
        Command::Completion { .. } | Command::Explain { .. } | Command::Crds => Ok(()),
        Command::Version(_) | Command::Init(_) | Command::Host(_) | Command::Vm(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_knows_the_words_of_every_verb() {
        let script = completion(clap_complete::Shell::Bash);
        let states: Vec<_> = script.lines().filter_map(|line| line.trim().strip_prefix("cmd=\"")?.strip_suffix('"')).collect();
        assert!(states.iter().filter(|state| !state.is_empty()).count() > 10);
        for state in states.into_iter().filter(|state| !state.is_empty()) {
            assert!(script.lines().any(|line| line.trim() == format!("{state})")), "nothing is known in the state {state}");
        }
    }
}
