//! The binary `yoi-runtime`. Everything that it does is in the library.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rustix::process::{DumpableBehavior, set_child_subreaper, set_dumpable_behavior};
use tracing_subscriber::EnvFilter;
use yoi_engine::error_text::error_text;
use yoi_runtime::args::{ReaderSettings, RuntimeCli, RuntimeCommand, RuntimeSettings};
use yoi_runtime::hook::{self, HookError};
use yoi_runtime::log_origin::{LogOrigin, WithOrigin};
use yoi_runtime::model_secrets::TakenVariables;
use yoi_runtime::program_tools::RuntimeTools;
use yoi_runtime::{agent, allocator, asset_copy, merge_process, reader};

/// More than any of the futures needs. The kernel gives memory only for what is used.
const STACK_BYTES: usize = 1 << 20;
/// One thread for each kind of disk access that may happen at once: an append to the log, a reader of it, a message, a tool.
const DISK_THREADS: usize = 4;
/// How long each disk thread is kept busy at the start, so that all of them are started.
const START_TOGETHER: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    allocator::limit_arenas();
    // Must come first: tools run under the same user, and must not read this process's memory or first environment.
    let not_dumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // SAFETY: no thread was started yet.
    let model_secrets = unsafe { TakenVariables::take() };
    // The levels are fixed: messages of the HTTP crates hold pieces of the conversation.
    let filter = EnvFilter::new("warn,yoi_runtime=info,yoi_engine=info,yoi_line=info,yoi_session=info");
    let origin = LogOrigin::default();
    let subscriber = tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(std::io::stderr);
    subscriber.map_event_format(|format| WithOrigin::new(format, origin.clone())).init();
    if let Err(error) = not_dumpable.and_then(|()| set_child_subreaper(Some(rustix::process::getpid()))) {
        tracing::error!(%error, "process not set up");
        return ExitCode::FAILURE;
    }
    match run(RuntimeCli::parse(), model_secrets, &origin) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = error_text(&*error), "runtime ended");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: RuntimeCli, model_secrets: TakenVariables, origin: &LogOrigin) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match cli.command {
        RuntimeCommand::Agent(args) => {
            let runtime = runtime()?;
            let settings = RuntimeSettings::read(args, model_secrets)?;
            origin.set_agent(&settings.manifest.agent, settings.run_generation);
            let done = runtime.block_on(async {
                start_disk_threads().await;
                agent::run(settings, origin).await
            });
            // A tool's blocking read must not delay the exit.
            runtime.shutdown_background();
            done?;
        }
        RuntimeCommand::Read(args) => {
            let settings = ReaderSettings::from(args);
            origin.set_agent(&settings.manifest.agent, 0);
            let runtime = runtime()?;
            let done = runtime.block_on(reader::run(settings));
            runtime.shutdown_background();
            done?;
        }
        RuntimeCommand::Hook(args) => {
            // Every failure has the code that keeps the program from running the call.
            let done = small_runtime().map_err(HookError::Start).and_then(|runtime| runtime.block_on(hook::run(&args, std::io::stdin())));
            if let Err(error) = done {
                eprintln!("{}", hook::sentence(args.moment, &error));
                return Ok(ExitCode::from(hook::BLOCKED));
            }
        }
        RuntimeCommand::CopyAssets(args) => return Ok(asset_copy::run(&args)),
        RuntimeCommand::Merge => {
            let answer = merge_process::run(std::io::stdin(), &std::env::current_dir()?);
            serde_json::to_writer(std::io::stdout(), &answer)?;
        }
        RuntimeCommand::Mcp(end) => {
            let runtime = small_runtime()?;
            let done = runtime.block_on(yoi_mcp::serve_stdio(RuntimeTools::new(end), "yoi", env!("CARGO_PKG_VERSION")));
            // Standard input may still be read where it is no pipe.
            runtime.shutdown_background();
            done?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// For a process that a program starts: it lives shortly, or waits.
fn small_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn start_disk_threads() {
    futures::future::join_all((0..DISK_THREADS).map(|_| tokio::task::spawn_blocking(|| std::thread::sleep(START_TOGETHER)))).await;
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        // One thread serves while the other waits for the disk.
        .worker_threads(2)
        .thread_stack_size(STACK_BYTES)
        // A tool may use up the Pod's limit of processes, so the threads for the disk are started first and kept.
        .thread_keep_alive(Duration::MAX)
        .enable_all()
        .build()
}
