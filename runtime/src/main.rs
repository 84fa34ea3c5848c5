//! See the library.

use std::process::ExitCode;

use clap::Parser;
use rustix::process::{DumpableBehavior, set_child_subreaper, set_dumpable_behavior};
use tracing_subscriber::EnvFilter;
use yoi_runtime::agent;
use yoi_runtime::args::{Cli, Command, Key, Settings, take_key};
use yoi_runtime::status::chain;

fn main() -> ExitCode {
    // Before anything else: tools run under the same user, and must not read this process's memory or first environment.
    let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // SAFETY: no thread was started yet.
    let key = unsafe { take_key() };
    // Fixed, because other levels would tell too much: genai's own messages, and those of HTTP, hold pieces of the conversation.
    let filter = EnvFilter::new("warn,yoi_runtime=info,yoi_line=info,yoi_session=info,genai=off");
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr).init();
    if let Err(error) = hidden.and_then(|()| set_child_subreaper(Some(rustix::process::getpid()))) {
        tracing::error!(%error, "process not set up");
        return ExitCode::FAILURE;
    }
    match run(Cli::parse(), key) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = chain(&*error), "runtime ended");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli, key: Option<Key>) -> Result<(), Box<dyn std::error::Error>> {
    let Command::Agent(args) = cli.command;
    let settings = Settings::read(args, key)?;
    // Two are enough: one may wait for the disk while the other serves.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(agent::run(settings));
    // A tool's blocking read must not hold the exit.
    runtime.shutdown_background();
    Ok(done?)
}
