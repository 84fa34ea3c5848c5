//! `yoi-agent-shim`: the command line of the node's two processes.

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use yoi_agent_shim::args::{LogFormat, ShimCli, ShimCommand};
use yoi_agent_shim::{mounter, shim};
use yoi_wire::error_chain;

fn main() -> ExitCode {
    let cli = ShimCli::parse();
    let filter = EnvFilter::try_new(&cli.log).unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match cli.log_format {
        LogFormat::Json => logs.json().init(),
        LogFormat::Text => logs.init(),
    }
    let result = match cli.command {
        // The process has one thread here. The mounter must leave the network before it starts others.
        ShimCommand::Mounter(args) => mounter::run(&args).map_err(|e| error_chain(&e)),
        ShimCommand::CheckMounter(args) => mounter::check::run(&args.mounter_socket).map_err(|e| error_chain(&e)),
        ShimCommand::Shim(args) => match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(shim::serve(args)).map_err(|e| error_chain(&e)),
            Err(e) => Err(format!("failed to start: {e}")),
        },
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error, "ended");
            ExitCode::FAILURE
        }
    }
}
