//! Serves log, diff, patch, bundle, usage and assets of an agent that has stopped.
//!
//! # Guarantees
//! Session and tree are only read: no lock is taken, no run generation is raised, and nothing is recovered. What an unfinished append left at the end
//! of the log is not shown. git runs in the frame or not at all: what the agent has left in the tree's repository reaches neither session nor token.

use std::sync::Arc;

use tokio::sync::watch;
use yoi_engine::log_reads::LogReads;
use yoi_engine::processes::ProcessSupervisor;
use yoi_line::{KeepPolicy, LineSet, Resolver};

use crate::args::ReaderSettings;
use crate::frame;
use crate::gateway_dial::dial;
use crate::rng::random_fraction;
use crate::serve::{OtherConversations, ReadState, stopped_router};
use crate::stop_signal::stop_on_signal;

/// The process cannot serve at all.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    #[error("failed to watch signals")]
    Signals(#[source] std::io::Error),
}

/// Serves on lines to every gateway until SIGTERM.
///
/// # Errors
/// Signals cannot be watched.
pub async fn run(settings: ReaderSettings) -> Result<(), ReaderError> {
    let stop = stop_on_signal().map_err(ReaderError::Signals)?;
    let ReaderSettings { manifest, frame, session, token, shim_socket } = settings;
    let tree = manifest.path.as_ref().map(std::path::PathBuf::from);
    // Without a tree nothing is started that would work there.
    let temp = std::env::temp_dir();
    let work_dir = tree.clone().unwrap_or_else(|| temp.clone());
    let mut processes = ProcessSupervisor::new(work_dir, &manifest.agent.name, &[("TMPDIR".into(), temp.into())]);
    let lacks = frame::enter(&mut processes, frame::of_reader(&session, &token), frame);
    let no_git = (!processes.has_frame()).then(|| no_git(lacks.as_deref().unwrap_or("it was not entered")));
    if let Some(why) = &no_git {
        tracing::error!(why, "git is not run");
    }
    let processes = Arc::new(processes);
    let orphans = processes.reap_orphans();
    tokio::spawn(async move {
        if let Err(error) = orphans.await {
            tracing::error!(%error, "orphans are not reaped");
        }
    });
    // The session is never opened by this process.
    let (_never, open_session) = watch::channel(None);
    let read = ReadState {
        agent: manifest.agent.clone(),
        open_session,
        conversations: OtherConversations::of_stopped(),
        session_root: session,
        tree,
        assets: manifest.assets.clone(),
        shim_socket,
        processes,
        log_reads: LogReads::default(),
        no_git,
        stop: stop.clone(),
    };
    let lines = LineSet::keep(
        Resolver::dns(manifest.gateway.lines.clone()),
        dial(&manifest.gateway, &token, &manifest.gateway.lines),
        stopped_router(read),
        KeepPolicy::default(),
        Arc::new(random_fraction),
    );
    tracing::info!("serving a stopped agent");
    stop.cancelled().await;
    lines.stop().await;
    Ok(())
}

/// Why there is neither diff nor commits. An agent has written the tree's repository. Whatever git would start for it, it starts beside the session and the
/// token.
fn no_git(lacks: &str) -> String {
    format!(
        "git is not run for a stopped agent here, because the kernel does not keep it in a frame ({lacks}): its log can be read, and its diff and commits \
         when it runs again, or on a node whose kernel has Landlock"
    )
}
