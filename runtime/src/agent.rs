//! What the process does from start to stop: lock, replay, serve, drive, stop.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use yoi_engine::assets::watch as watch_assets;
use yoi_engine::driver::{Agent, SecretRenewal};
use yoi_engine::error_text::error_text;
use yoi_engine::log_reads::LogReads;
use yoi_engine::model::{FallbackModels, ModelError};
use yoi_engine::open_session::{OpenSession, disk};
use yoi_engine::policy::Policy;
use yoi_engine::processes::ProcessSupervisor;
use yoi_engine::project::{Conversations, ProjectError, ProjectInstance, SubagentPool, TokenBudget};
use yoi_line::{Backoff, BackoffPolicy, KeepPolicy, LineSet, RequestClient, Resolver};
use yoi_session::{Error as SessionError, ErrorReason, Holder, Lock};
use yoi_wire::conversation::MAIN;
use yoi_wire::entry::{AgentConfig, RuntimeStarted};
use yoi_wire::manifest::SecretKeyName;

mod conversations;

use conversations::follow_limit;

use crate::agent_config::agent_config;
use crate::args::RuntimeSettings;
use crate::disk_space::{self, DiskSpaceProbe};
use crate::frame;
use crate::gateway_dial::dial;
use crate::gateway_peers::{Delegation, GatewayPeers};
use crate::git_defaults;
use crate::log_origin::LogOrigin;
use crate::merge::Merger;
use crate::new_session::not_empty;
use crate::policy_watch::watch_policy;
use crate::program::{program_setup, report_program};
use crate::request_gate::RequestGate;
use crate::rest::{Idleness, rest_when_idle, watch_rest};
use crate::rng::random_fraction;
use crate::secret_restart::SecretRestart;
use crate::serve::{AgentKind, AgentState, OtherConversations, ReadState, router};
use crate::ssh::SshServers;
use crate::status::{NotReady, RuntimeStatus, SessionState, report_assets, report_background, send_reports};
use crate::stop_signal::{STOP_TIMEOUT, stop_on_signal};
use crate::token_limit::watch_token_limit;

const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The agent cannot run at all.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("failed to watch signals")]
    Signals(#[source] std::io::Error),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Project(#[from] ProjectError),
    #[error("failed to find a model in the manifest")]
    NoModel,
}

/// Runs the agent until SIGTERM.
///
/// # Errors
/// Signals, tree or model cannot be set up; a restart alone does not help.
pub async fn run(settings: RuntimeSettings, origin: &LogOrigin) -> Result<(), AgentError> {
    let stop = stop_on_signal().map_err(AgentError::Signals)?;
    // Ends the conversations, and not the process.
    let rest = stop.child_token();
    let gate = RequestGate::default();
    let manifest = &settings.manifest;
    let root = PathBuf::from(&manifest.path);
    // Before a program's HOME is made there.
    let refused_volume = settings.new_session.then(|| not_empty(&settings.session, &settings.pod_uid)).flatten();
    let setup = refused_volume.map_or_else(|| program_setup(&settings), Err);
    let program_home = setup.as_ref().ok().and_then(|setup| setup.as_ref()?.home.clone());
    let mut processes = ProcessSupervisor::new(root.clone(), &manifest.agent.name, &settings.user_env)
        .with_directory(manifest.working_dir.as_deref().map(PathBuf::from).unwrap_or_default());
    let scope = frame::enter(&mut processes, frame::of_agent(&settings, program_home.as_deref()), settings.frame);
    let processes = Arc::new(processes);
    let (home, of) = (processes.home().to_owned(), manifest.clone());
    if let Err(error) = processes.run_in_frame(move || git_defaults::write_default(&home, &of)).await.flatten() {
        tracing::warn!(%error, home = %processes.home().display(), "git's defaults are not written; commits need variables or a configuration");
    }
    let orphans = processes.reap_orphans();
    tokio::spawn(async move {
        if let Err(error) = orphans.await {
            tracing::error!(%error, "orphans are not reaped");
        }
    });

    let endpoint = manifest.model.as_ref();
    let missing_secret = endpoint.and_then(|endpoint| endpoint.key_secret.as_ref()).filter(|_| settings.model_secrets.key().is_none());
    let secret_missing = missing_secret.is_some();
    let status = RuntimeStatus::new(settings.run_generation, missing_secret.map(|name| secret_message(name, &manifest.agent.namespace)));

    status.set_scope(scope.unwrap_or_default(), processes.has_frame());
    status.set_has_git(processes.has_program("git"));

    let caller = RequestClient::new(dial(&manifest.gateway, &settings.token, &manifest.gateway.service));
    let merger = Arc::new(Merger::new(processes.clone()));
    let delegation = Delegation { merger: manifest.delegation.then(|| merger.clone()), lends: manifest.lends };
    let peers = Arc::new(GatewayPeers::new(caller.clone(), delegation));
    let token_folder = settings.token.parent().unwrap_or(Path::new("/"));
    let policy = watch_policy(token_folder, &manifest.policy, stop.clone()).map_err(ProjectError::from)?;
    let instance = ProjectInstance::new(processes.clone(), peers, manifest.limits, policy.borrow().source())?;
    let subagents = SubagentPool::new(manifest.subagents.clone(), &manifest.policy)?;
    let tools = instance.tools.clone();
    let assets = tools.runner().assets();
    assets.set_settings(manifest.assets.clone());
    tokio::spawn(report_assets(assets.clone(), status.clone(), stop.clone()));
    if manifest.assets.watch {
        tokio::spawn(watch_assets(assets.clone(), stop.clone()));
    }
    tokio::spawn(report_background(tools.runner().background_count(), status.clone()));
    let is_program = manifest.program.is_some();
    // Before its conversation is driven, which sets it, too.
    tools.set_of_program(is_program);
    if !is_program {
        tools.runner().set_templates(&manifest.subagents);
    }
    let (program, unusable) = match setup {
        Ok(setup) => (setup.map(|setup| Arc::new(setup.agent(&settings, &processes))), None),
        Err(failure) => (None, Some(failure)),
    };
    let agent = match (&program, endpoint) {
        // A program that is not in the image comes with another Pod: its task waits for that.
        (Some(program), _) if secret_missing || !program.is_in_image() => Agent::Blocked(Some(program.role())),
        (Some(program), _) => Agent::Program(program.clone()),
        (None, None) if !is_program => return Err(AgentError::NoModel),
        (None, Some(endpoint)) if !is_program && !secret_missing => {
            Agent::Builtin(Arc::new(FallbackModels::new(endpoint, &settings.model_secrets.of(endpoint), settings.timeouts)?))
        }
        (None, _) => Agent::Blocked(None),
    };

    let secrets = Arc::new(SecretRestart::new(&settings.session, &settings.pod_uid, settings.secret_restart, tools.clone(), stop.clone()));
    let token_limit = watch_token_limit(token_folder, manifest.limits.tokens, stop.clone());
    let (opened, open_session) = watch::channel(None);
    let (conversations_opened, conversations) = watch::channel(None);
    let conversations = OtherConversations { open: conversations, of: if is_program { AgentKind::Program } else { AgentKind::Builtin } };
    let idleness = Idleness {
        after: watch_rest(token_folder, stop.clone()),
        awake: settings.awake,
        status: status.clone(),
        gate: gate.clone(),
        main: open_session.clone(),
        others: conversations.open.clone(),
        has_task: manifest.task.is_some(),
    };
    let disk_space = Arc::new(DiskSpaceProbe::new(settings.session.clone(), status.clone(), stop.clone()));
    let agent_session = open_session.clone();
    let read = ReadState {
        agent: manifest.agent.clone(),
        open_session,
        conversations: conversations.clone(),
        session_root: settings.session.clone(),
        tree: Some(root),
        assets: manifest.assets.clone(),
        shim_socket: settings.shim_socket.clone(),
        processes: processes.clone(),
        log_reads: LogReads::default(),
        // What git runs here is the agent's own, as all that runs here.
        no_git: None,
        stop: rest.clone(),
    };
    let lines = LineSet::keep(
        Resolver::dns(manifest.gateway.lines.clone()),
        dial(&manifest.gateway, &settings.token, &manifest.gateway.lines),
        router(
            read,
            AgentState {
                open_session: agent_session,
                conversations,
                disk_space,
                token_limit: token_limit.clone(),
                background: tools.runner().background_count(),
                gate: gate.clone(),
                assets: tools.runner().assets().clone(),
                tools: tools.clone(),
                merger,
                ssh: SshServers::new(processes.clone()),
            },
        ),
        KeepPolicy::default(),
        Arc::new(random_fraction),
    );
    let final_report = CancellationToken::new();
    let reporter = tokio::spawn(send_reports(caller.clone(), status.clone(), lines.state(), final_report.clone()));
    if secret_missing {
        renew_after(secrets.clone(), secrets.due_in(Duration::ZERO));
    }

    if let Some(program) = &program {
        let (program, status) = (program.clone(), status.clone());
        tokio::spawn(async move { report_program(&program, &status).await });
    }
    let budget = Arc::new(TokenBudget::new(*token_limit.borrow()));
    tokio::spawn(follow_limit(budget.clone(), token_limit));
    let process = AgentProcess {
        settings: &settings,
        origin,
        status: &status,
        stop: &rest,
        opened: &opened,
        conversations: &conversations_opened,
        instance,
        agent,
        policy,
        budget,
        secrets,
        subagents: (!is_program && !manifest.subagents.is_empty()).then(|| Arc::new(subagents)),
    };
    match unusable {
        None => {
            tokio::spawn(rest_when_idle(idleness, rest.clone(), STOP_TIMEOUT));
            process.run_sessions().await;
        }
        Some(failure) => {
            tracing::error!(reason = failure.reason.as_str(), message = failure.message, "program or session volume not usable");
            status.set_session_state(SessionState::Broken(failure));
            // The process stays up, so that people can read the log and the reason.
            stop.cancelled().await;
        }
    }
    let others = conversations_opened.borrow().clone();
    if let Some(others) = others {
        others.close().await;
    }
    tools.runner().stop_all().await;

    let rests = gate.is_closed();
    if rests {
        status.set_resting();
    } else if !secret_missing {
        status.set_stopping();
    }
    final_report.cancel();
    let mut reporter = std::pin::pin!(reporter);
    if rests {
        // The Pod goes once this report is taken, so it is sent until then.
        let _ = stop.run_until_cancelled(&mut reporter).await;
    }
    // A task that has ended must not be awaited again.
    if !reporter.is_finished() && timeout(FINAL_REPORT_TIMEOUT, &mut reporter).await.is_err() {
        tracing::info!("last report not taken");
    }
    lines.stop().await;
    if rests {
        // A container that starts again would take messages in a Pod that goes.
        stop.cancelled().await;
    }
    tracing::info!("stopped");
    Ok(())
}

/// The kubelet starts no container while the Secret or its key is missing, so the value is empty. The container starts again after a while: variables are
/// read at a start only.
fn secret_message(SecretKeyName { secret, key }: &SecretKeyName, namespace: &str) -> String {
    format!(
        "key {key} of Secret {secret} in namespace {namespace}, the model's key, is empty; write it, and the agent takes it up after a minute, later within \
         ten, or at once when it is restarted"
    )
}

fn renew_after(secrets: Arc<SecretRestart>, after: Duration) {
    tokio::spawn(async move {
        sleep(after).await;
        secrets.renew();
    });
}

struct AgentProcess<'a> {
    origin: &'a LogOrigin,
    settings: &'a RuntimeSettings,
    status: &'a RuntimeStatus,
    stop: &'a CancellationToken,
    opened: &'a watch::Sender<Option<Arc<OpenSession>>>,
    conversations: &'a watch::Sender<Option<Arc<Conversations>>>,
    instance: ProjectInstance,
    agent: Agent,
    policy: watch::Receiver<Arc<Policy>>,
    budget: Arc<TokenBudget>,
    secrets: Arc<SecretRestart>,
    subagents: Option<Arc<SubagentPool>>,
}

impl AgentProcess<'_> {
    /// Takes the lock and drives the conversation until the stop. Opens the session again when it failed.
    async fn run_sessions(&self) {
        let policy = BackoffPolicy { first: Duration::from_secs(1), cap: Duration::from_secs(10), settled: Duration::from_secs(60) };
        let mut backoff = Backoff::new(policy);
        // Whoever starts on a full volume says so before it is ready, and not with the first message.
        let (mut lock, mut perhaps_full) = (None, true);
        while !self.stop.is_cancelled() {
            let started = tokio::time::Instant::now();
            let result = match &lock {
                // The little space that is left would take short entries of the next attempt, but not the long one that failed.
                Some(_) if perhaps_full => {
                    tokio::task::block_in_place(|| disk_space::check_for_log(&self.settings.session)).map(|()| perhaps_full = false)
                }
                None => self.take_lock().map(|new| lock = Some(new)),
                // Before `main`: what becomes of that one is nothing to them.
                Some(lock) if self.has_no_others() => self.open_others(lock).await,
                Some(lock) => self.session(lock).await,
            };
            let Err(error) = result else { continue };
            perhaps_full = error.reason() == ErrorReason::DiskFull;
            self.status.set_session_state(SessionState::Broken(NotReady::from_session_error(&error)));
            tracing::error!(reason = error.reason().as_str(), error = error_text(&error), "session not usable");
            if is_permanent(&error) {
                // The process stays up without running anything, so that people can read the log and the reason.
                self.stop.cancelled().await;
                return;
            }
            let wait = backoff.after_failure(Some(started.elapsed()), random_fraction());
            let _ = timeout(wait, self.stop.cancelled()).await;
        }
    }

    /// System prompt, tools and model options by the present manifest and tree. What it returns blocks, while it asks git.
    fn form_config(&self) -> Arc<dyn Fn() -> AgentConfig + Send + Sync> {
        let (manifest, digest, instance) = (self.settings.manifest.clone(), self.settings.manifest_digest.clone(), self.instance.clone());
        let runtime = Handle::current();
        Arc::new(move || agent_config(&manifest, &digest, &instance.tools, instance.context(&runtime)))
    }

    fn take_lock(&self) -> Result<Arc<Lock>, SessionError> {
        let holder = Holder { run_generation: self.settings.run_generation, pod_uid: self.settings.pod_uid.clone() };
        tokio::task::block_in_place(|| Lock::take(disk(), &self.settings.session, holder))
    }

    async fn session(&self, lock: &Arc<Lock>) -> Result<(), SessionError> {
        let parts = self.parts();
        let (open, replay) = tokio::task::block_in_place(|| OpenSession::open(lock, &parts.agent_ref, &*parts.form_config))?;
        if let Some(pointer) = open.pointer() {
            self.origin.set_session(&pointer.id);
            self.status.set_session(pointer);
        }
        if let Some(cut) = &replay.cut {
            tracing::warn!(file = %cut.file.display(), line = cut.line, bytes = cut.bytes, "torn end of the log cut");
        }
        let runtime = RuntimeStarted { cut_bytes: replay.cut_bytes(), ..parts.runtime.clone() };
        self.opened.send_replace(Some(open.clone()));
        let driver = parts.driver(MAIN, &open, &replay, self.stop.clone());
        let result = driver.drive(replay, runtime).await;
        self.opened.send_replace(None);
        open.close();
        result
    }
}

/// Whether trying again cannot help: only another volume, version or object does.
fn is_permanent(error: &SessionError) -> bool {
    match error {
        SessionError::Damaged { .. }
        | SessionError::ChainDamaged { .. }
        | SessionError::LogNewer { .. }
        | SessionError::UnknownKind { .. }
        // The next try would carry the same.
        | SessionError::SegmentTooLarge { .. }
        | SessionError::NoSession { .. }
        | SessionError::SessionExists { .. } => true,
        // LowerGeneration is tried again, because this Pod is about to be deleted. Until then it reports why it does not run.
        SessionError::Disk { .. }
        | SessionError::Locked { .. }
        | SessionError::LowerGeneration { .. }
        | SessionError::Poisoned { .. }
        | SessionError::ForeignAppend { .. }
        | SessionError::StateNotCarried { .. }
        | SessionError::EmptySegment { .. }
        | SessionError::NotCurrent { .. }
        | SessionError::AlreadyOpen { .. }
        | SessionError::TooLarge { .. }
        | SessionError::Encode { .. }
        | SessionError::UnknownToken { .. }
        | SessionError::BadToken { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_segment_that_is_too_large_is_not_tried_again() {
        let (kind, bytes, limit) = ("Carried".to_owned(), 2, 1);
        assert!(is_permanent(&SessionError::SegmentTooLarge { kind, bytes, limit }));
    }
}
