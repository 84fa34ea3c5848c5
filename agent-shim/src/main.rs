//! `yoi-agent-shim`: the node's two processes in one binary.

mod args;
mod chain;
mod decide;
#[cfg(test)]
mod fixtures;
mod mounter;
mod proto;
mod shim;
#[cfg(test)]
mod skip;
mod volume;

use std::process::ExitCode;

use args::{Cli, Command, LogFormat};
use clap::Parser;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_new(&cli.log).unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match cli.log_format {
        LogFormat::Json => logs.json().init(),
        LogFormat::Text => logs.init(),
    }
    let ended = match cli.command {
        // Still one thread here: the mounter must leave the network before it makes others.
        Command::Mounter(args) => mounter::run(&args).map_err(|e| chain::whole(&e)),
        Command::Shim(args) => match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(shim::serve(args)).map_err(|e| chain::whole(&e)),
            Err(e) => Err(format!("failed to start: {e}")),
        },
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "ended");
            ExitCode::FAILURE
        }
    }
}
