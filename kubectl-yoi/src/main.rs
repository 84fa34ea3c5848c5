//! `kubectl yoi`: the human rim. Every power it has is the user's own at the API server.

mod args;
mod cluster;
mod commands;
mod error;
mod show;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command, Workspace};
use cluster::Cluster;
use error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    match act(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

async fn act(cli: Cli) -> Result<(), Error> {
    if let Command::Completion { shell } = &cli.command {
        clap_complete::generate(*shell, &mut Cli::command(), "kubectl-yoi", &mut std::io::stdout());
        return Ok(());
    }
    let cluster = Cluster::connect(&cli.cluster).await?;
    let output = cli.output;
    match cli.command {
        Command::Run(args) => commands::run::run(&cluster, output, args).await,
        Command::Ls(args) => commands::ls::ls(&cluster, output, &args).await,
        Command::Log(args) => commands::log::log(&cluster, output, &args).await,
        Command::Send(args) => commands::send::send(&cluster, output, &args).await,
        Command::Peer(args) => commands::peer::peer(&cluster, output, &args).await,
        Command::Stop(args) => commands::agents::stop(&cluster, output, &args).await,
        Command::Start(args) => commands::agents::start(&cluster, output, &args).await,
        Command::Rm(args) => commands::agents::rm(&cluster, output, &args).await,
        Command::Diff(args) => commands::diff::diff(&cluster, output, &args).await,
        Command::Workspace(Workspace::Create(args)) => commands::workspace::create(&cluster, output, args).await,
        Command::Workspace(Workspace::Ls { all_namespaces }) => commands::workspace::ls(&cluster, output, all_namespaces).await,
        Command::Workspace(Workspace::Rm { names }) => commands::workspace::rm(&cluster, output, &names).await,
        Command::Completion { .. } => Ok(()),
    }
}
