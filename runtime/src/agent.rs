//! The life of the process: lock, replay, serve, drive, stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use yoi_line::{Backoff, BackoffPolicy, Dial, KeepPolicy, LineSet, RequestClient, Resolver, TextSource, Timings};
use yoi_session::{Error as SessionError, Holder, Lock};
use yoi_wire::entry::RuntimeStarted;
use yoi_wire::hub::gateway_api;

use crate::args::Settings;
use crate::chance::chance;
use crate::drive::Driver;
use crate::memory::{Memory, disk};
use crate::model::{Model, ModelError, system_prompt};
use crate::room::{self, Room};
use crate::serve::{Door, router};
use crate::signed::Origin;
use crate::status::{Session, Status, Trouble, keep_told};
use crate::tools::processes::Children;
use crate::tools::shell::Shell;
use crate::tools::tree::Tree;
use crate::tools::{ToolRunner, offers};

/// From the wish to stop to the end of the process, whatever hangs.
const STOP_WITHIN: Duration = Duration::from_secs(9);
const LAST_REPORT_WITHIN: Duration = Duration::from_secs(2);
const DRAIN: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("failed to watch signals")]
    Signals(#[source] std::io::Error),
    #[error("failed to open the tree {}", path.display())]
    Tree { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Runs the agent until SIGTERM.
///
/// # Errors
/// What no waiting mends: the Pod is not as it should be.
pub async fn run(settings: Settings, origin: &Origin) -> Result<(), AgentError> {
    let stop = stop_on_signal()?;
    let children = Arc::new(Children::default());
    let orphans = children.clone().reap_orphans();
    tokio::spawn(async move {
        if let Err(error) = orphans.await {
            tracing::error!(%error, "orphans are not reaped");
        }
    });

    let manifest = &settings.manifest;
    let secret_missing = manifest.model.needs_key && settings.key.is_none();
    let status = Status::new(settings.run_generation, secret_missing);

    let root = PathBuf::from(&manifest.path);
    let tree = Tree::open(&root).map_err(|source| AgentError::Tree { path: root.clone(), source })?;
    let shell = Arc::new(Shell::new(children, root.clone(), &manifest.agent.name, &settings.user_env));
    let caller = RequestClient::new(dial(&settings, &manifest.gateway.service));
    let tools = ToolRunner::new(Arc::new(tree), shell.clone(), caller.clone(), manifest.limits);
    let model = if secret_missing {
        None
    } else {
        let offers = offers(manifest.limits.tool_seconds);
        Some(Arc::new(Model::new(&manifest.model, settings.key.as_ref(), system_prompt(manifest), &offers, settings.patience)?))
    };

    let (opened, memory) = watch::channel(None);
    let door = Door {
        room: Arc::new(Room::new(settings.session.clone(), status.clone(), stop.clone())),
        memory,
        session_root: settings.session.clone(),
        tree: root,
        shim_socket: settings.shim_socket.clone(),
        shell,
        stop: stop.clone(),
    };
    let lines = LineSet::keep(
        Resolver::dns(manifest.gateway.lines.clone()),
        dial(&settings, &manifest.gateway.lines),
        router(door),
        KeepPolicy::default(),
        Arc::new(chance),
    );
    let last_word = CancellationToken::new();
    let reporter = tokio::spawn(keep_told(caller.clone(), status.clone(), lines.state(), last_word.clone()));
    if secret_missing {
        tracing::error!("the model's key is missing; the process ends after a while, so that it starts again with the Secret's content");
        end_later(&stop, settings.secret_retry);
    }

    let life = Life { settings: &settings, origin, status: &status, stop: &stop, opened: &opened, tools, model };
    life.live().await;

    if !secret_missing {
        status.stopping();
    }
    last_word.cancel();
    if timeout(LAST_REPORT_WITHIN, reporter).await.is_err() {
        tracing::info!("last report not taken");
    }
    lines.stop().await;
    tracing::info!("stopped");
    Ok(())
}

fn dial(settings: &Settings, address: &str) -> Dial {
    let gateway = &settings.manifest.gateway;
    Dial {
        address: address.to_owned(),
        server_name: gateway.server_name.clone(),
        ca_pem: TextSource::fixed(gateway.ca.clone()),
        path: gateway_api::LINE.to_owned(),
        token: TextSource::file(settings.token.clone()),
        timings: Timings { drain: DRAIN, ..Timings::default() },
    }
}

fn stop_on_signal() -> Result<CancellationToken, AgentError> {
    let stop = CancellationToken::new();
    let (mut term, mut int) =
        (signal(SignalKind::terminate()).map_err(AgentError::Signals)?, signal(SignalKind::interrupt()).map_err(AgentError::Signals)?);
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tracing::info!("asked to stop");
        stopped.cancel();
    });
    let asked = stop.clone();
    tokio::spawn(async move {
        asked.cancelled().await;
        sleep(STOP_WITHIN).await;
        tracing::error!("stopping took too long; what is in the log is whole");
        std::process::exit(0);
    });
    Ok(stop)
}

fn end_later(stop: &CancellationToken, after: Duration) {
    let stop = stop.clone();
    tokio::spawn(async move {
        sleep(after).await;
        stop.cancel();
    });
}

struct Life<'a> {
    origin: &'a Origin,
    settings: &'a Settings,
    status: &'a Status,
    stop: &'a CancellationToken,
    opened: &'a watch::Sender<Option<Arc<Memory>>>,
    tools: ToolRunner,
    model: Option<Arc<Model>>,
}

impl Life<'_> {
    /// Holds the lock and drives the conversation until the stop; opens the session again when it broke.
    async fn live(&self) {
        let policy = BackoffPolicy { first: Duration::from_secs(1), cap: Duration::from_secs(10), settled: Duration::from_secs(60) };
        let mut backoff = Backoff::new(policy);
        let (mut lock, mut full) = (None, false);
        while !self.stop.is_cancelled() {
            let begun = tokio::time::Instant::now();
            let done = match &lock {
                // What is left would take the short entries of another attempt, and not the long one that failed.
                Some(_) if full => tokio::task::block_in_place(|| room::for_a_log(&self.settings.session)).map(|()| full = false),
                None => self.take_lock().map(|taken| lock = Some(taken)),
                Some(lock) => self.session(lock).await,
            };
            let Err(error) = done else { continue };
            full = error.reason() == "DiskFull";
            self.status.session_is(Session::Broken(Trouble::of(&error)));
            tracing::error!(reason = error.reason(), error = crate::status::chain(&error), "session not usable");
            if mended_by_nobody(&error) {
                // Stays up, so that people can read the log and see why; nothing runs.
                self.stop.cancelled().await;
                return;
            }
            let wait = backoff.after_failure(Some(begun.elapsed()), chance());
            let _ = timeout(wait, self.stop.cancelled()).await;
        }
    }

    fn take_lock(&self) -> Result<Arc<Lock>, SessionError> {
        let holder = Holder { run_generation: self.settings.run_generation, pod_uid: self.settings.pod_uid.clone() };
        tokio::task::block_in_place(|| Lock::take(disk(), &self.settings.session, holder))
    }

    async fn session(&self, lock: &Arc<Lock>) -> Result<(), SessionError> {
        let manifest = &self.settings.manifest;
        let (memory, replay) = tokio::task::block_in_place(|| Memory::open(lock, &manifest.agent))?;
        if let Some(pointer) = memory.pointer() {
            self.origin.session(&pointer.id);
            self.status.session(pointer);
        }
        if let Some(cut) = &replay.cut {
            tracing::warn!(file = %cut.file.display(), line = cut.line, bytes = cut.bytes, "torn end of the log cut");
        }
        let runtime = RuntimeStarted {
            pod_uid: self.settings.pod_uid.clone(),
            manifest_digest: self.settings.manifest_digest.clone(),
            cut_bytes: replay.cut_bytes(),
        };
        self.opened.send_replace(Some(memory.clone()));
        let driver = Driver {
            memory: memory.clone(),
            model: self.model.clone(),
            tools: self.tools.clone(),
            retries: self.settings.retries,
            key_retry: self.settings.key_retry,
            status: self.status.clone(),
            stop: self.stop.clone(),
            task: manifest.task.clone(),
            turns_per_run: manifest.limits.turns_per_run,
        };
        let done = driver.drive(replay, runtime).await;
        self.opened.send_replace(None);
        memory.close();
        done
    }
}

/// Whether waiting is in vain: only another volume, version or object helps.
fn mended_by_nobody(error: &SessionError) -> bool {
    match error {
        SessionError::Damaged { .. }
        | SessionError::LogNewer { .. }
        | SessionError::UnknownKind { .. }
        | SessionError::NoSession { .. }
        | SessionError::SessionExists { .. } => true,
        // A lower generation too: its Pod is on its way out, and says why until then.
        SessionError::Disk { .. }
        | SessionError::Locked { .. }
        | SessionError::LowerGeneration { .. }
        | SessionError::Poisoned { .. }
        | SessionError::AlreadyOpen { .. }
        | SessionError::TooLarge { .. }
        | SessionError::Encode { .. }
        | SessionError::UnknownToken { .. }
        | SessionError::BadToken { .. } => false,
    }
}
