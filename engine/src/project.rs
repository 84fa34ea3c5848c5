//! A project in this process: a folder, what works in it, and the record of that.
//!
//! The runtime of a Pod shares [`ProjectInstance`] with it. [`crate::engine::Engine`] keeps several.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use yoi_session::{Error as SessionError, Holder, Lock, Token};
use yoi_wire::approval::{ApprovalRequest, ApprovalResponse, WaitingCall};
use yoi_wire::control::{ControlAction, ControlResponse};
use yoi_wire::conversation::{ConversationStatus, MAIN};
use yoi_wire::engine_api::{RunTool, ToolRun};
use yoi_wire::entry::{AgentConfig, AgentRef, CallFrom, OfferedTool, RuntimeStarted};
use yoi_wire::hub::{Activity, SessionPointer, TaskReport};
use yoi_wire::manifest::RunLimits;
use yoi_wire::policy::ToolPolicy;

use crate::agent_config::{Prompt, agent_config};
use crate::assets::watch;
use crate::conversation::RunSettings;
use crate::driver::{Agent, ConversationObserver, FailedCall, ModelPatience, SecretRenewal};
use crate::follow::Follower;
use crate::frame::{Frame, FrameSupport};
use crate::log_reads::{LogReads, blocking};
use crate::model::FallbackModels;
use crate::open_session::disk;
use crate::peers::{NoPeers, Peers};
use crate::policy::Policy;
use crate::processes::ProcessSupervisor;
use crate::tools::shell::Shell;
use crate::tools::tree::Tree;
use crate::tools::{ToolGate, ToolRunner};
use crate::tree_context::tree_context;

mod assets;
mod budget;
mod conversation;
mod conversations;
mod error;
mod events;
mod options;
mod parts;
mod progress_observer;
mod projection;
mod subagents;
#[cfg(test)]
mod tests;

pub use budget::TokenBudget;
pub use conversation::{Conversation, running_status};
pub use conversations::Conversations;
pub use error::ProjectError;
pub use options::ProjectOptions;
pub use parts::{ConversationKind, ConversationParts, SubagentSource};
pub use projection::{Projection, read_projection};
pub use subagents::SubagentPool;

/// Bytes of a segment of the log.
pub const SEGMENT_BYTES: u64 = 64 << 20;
/// The namespace of agents that no cluster knows.
const LOCAL: &str = "local";
/// Folders of the record beside log and inbox.
const HOME: &str = "home";
const TEMP: &str = "tmp";

/// What the conversations of a project share: its processes, its tree, and the gate to its tools.
#[derive(Clone)]
pub struct ProjectInstance {
    /// Starts all programs.
    pub processes: Arc<ProcessSupervisor>,
    /// The root, which tools work beneath.
    pub tree: Arc<Tree>,
    /// The one gate to all tools.
    pub tools: ToolGate,
}

impl ProjectInstance {
    /// The tools work in the root of `processes`.
    ///
    /// # Errors
    /// The root cannot be opened, or the policy cannot be carried out.
    pub fn new(
        processes: Arc<ProcessSupervisor>,
        peers: Arc<dyn Peers>,
        limits: RunLimits,
        policy: &ToolPolicy,
    ) -> Result<Self, ProjectError> {
        let root = processes.root();
        let tree = Tree::open(root).map_err(|source| ProjectError::Root { path: root.to_owned(), source })?;
        let (tree, policy) = (Arc::new(tree), Arc::new(Policy::new(policy)?));
        let shell = Arc::new(Shell::new(processes.clone()));
        let tools = ToolGate::new(ToolRunner::new(tree.clone(), shell, peers, limits, policy));
        Ok(Self { processes, tree, tools })
    }

    /// What the model is told of the tree as it is now. Blocks, while git is asked, so it is called where that is allowed.
    pub fn context(&self, runtime: &Handle) -> String {
        let directory = Some(self.processes.directory()).filter(|directory| !directory.as_os_str().is_empty());
        let platform = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
        let sets = self.tools.runner().assets().roots_of_sets();
        runtime.block_on(tree_context(&self.processes, &self.tree, &sets, directory, SystemTime::now(), &platform))
    }
}

/// A project that runs.
pub struct Project {
    id: String,
    instance: ProjectInstance,
    main: Arc<Conversation>,
    others: Conversations,
    stop: CancellationToken,
    unframed: Option<String>,
    policy: tokio::sync::watch::Sender<Arc<Policy>>,
}

impl std::fmt::Debug for Project {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Project").field("id", &self.id).field("root", &self.instance.processes.root()).finish_non_exhaustive()
    }
}

impl Project {
    /// Checks the options, takes the record, and goes on with the conversation that it holds, or begins one.
    ///
    /// # Errors
    /// See [`ProjectError`]. Nothing runs then.
    pub async fn start(options: ProjectOptions) -> Result<Self, ProjectError> {
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Err(ProjectError::OneThread);
        }
        let options = options.checked()?;
        Policy::new(&options.policy)?;
        let pool = SubagentPool::new(options.subagents.clone(), &options.policy)?;
        let subagents = (!options.subagents.is_empty()).then(|| Arc::new(pool));
        let model = Arc::new(FallbackModels::new(&options.model, &options.secrets, options.timeouts)?);
        let (instance, unframed) = instance(&options)?;
        instance.tools.runner().set_templates(&options.subagents);
        let assets = instance.tools.runner().assets().clone();
        blocking(move || assets.look()).await;
        let (policy, policies) = tokio::sync::watch::channel(instance.tools.runner().policy());
        let (digest, pod_uid) = (digest(&options), Uuid::now_v7().to_string());
        let form_config = form_config(&instance, &options, &digest, Handle::current());
        let lock = {
            let (state, pod_uid) = (options.state.clone(), pod_uid.clone());
            blocking(move || take_lock(&state, pod_uid)).await?
        };
        let parts = ConversationParts {
            agent_ref: AgentRef { namespace: LOCAL.to_owned(), name: options.id.clone(), uid: options.id.clone() },
            agent: Agent::Builtin(model),
            tools: instance.tools.clone(),
            budget: Arc::new(TokenBudget::new(options.limits.tokens)),
            settings: RunSettings {
                turns_per_run: options.limits.turns_per_run,
                tokens: options.limits.tokens,
                compaction: options.compaction,
                window_tokens: options.model.window_tokens,
            },
            retries: options.retries,
            patience: ModelPatience { total: options.model.patience_seconds.map(Duration::from_secs), ..ModelPatience::default() },
            secrets: Arc::new(Unobserved),
            observe: Arc::new(|_: &str| -> Arc<dyn ConversationObserver> { Arc::new(Unobserved) }),
            random: random_fraction,
            policy: policies,
            named_policy: options.policy.clone(),
            segment_bytes: SEGMENT_BYTES,
            form_config,
            runtime: RuntimeStarted { pod_uid, manifest_digest: digest, cut_bytes: 0 },
            task: None,
            reads: LogReads::default(),
            subagents: subagents.clone().map(|pool| pool as Arc<dyn SubagentSource>),
            kind: ConversationKind::Own,
        };
        if let Some(subagents) = &subagents {
            // Before the first run, which may be one that goes on.
            subagents.open(&lock);
        }
        let stop = CancellationToken::new();
        if options.watch_assets {
            tokio::spawn(watch(instance.tools.runner().assets().clone(), stop.child_token()));
        }
        let main = Arc::new(Conversation::start(MAIN, lock.clone(), &parts, stop.child_token()).await?);
        let others = match Conversations::open(lock, parts, subagents, options.conversations, stop.clone()).await {
            Ok(others) => others,
            Err(error) => {
                main.stop().await;
                return Err(error.into());
            }
        };
        Ok(Self { id: options.id, instance, main, others, stop, unframed, policy })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What the kernel lacks to keep programs from what is not theirs, a sentence for people; `None`: nothing.
    #[must_use]
    pub fn unframed(&self) -> Option<&str> {
        self.unframed.as_deref()
    }

    /// The tools that its policy, and the mode of [`MAIN`], show to the model.
    #[must_use]
    pub fn tools(&self) -> Vec<OfferedTool> {
        self.instance.tools.offered_now(CallFrom::Engine)
    }

    /// Has another policy count in all conversations from the next turn of each on. It is an entry of their logs, and no start later knows of it: that takes
    /// the policy of its options.
    ///
    /// # Errors
    /// It cannot be carried out, and the one before stays in force.
    pub fn set_policy(&self, policy: &ToolPolicy) -> Result<(), ProjectError> {
        self.policy.send_replace(Arc::new(Policy::new(policy)?));
        Ok(())
    }

    /// Starts another conversation beside [`MAIN`], or one that was stopped or has failed again, which goes on with what it was interrupted in. It shares
    /// tree, processes, policy and the project's slots and tokens with the others, and reads none of their messages.
    ///
    /// # Errors
    /// The name is none, it runs already, too many run, or its record cannot be written. Nothing runs then.
    pub async fn start_conversation(&self, name: &str) -> Result<Arc<Conversation>, ProjectError> {
        self.others.start(name).await
    }

    /// Stops a conversation beside [`MAIN`]: its run ends as interrupted, and no process of it is left. It stays readable, and does not start with the
    /// project any more.
    ///
    /// # Errors
    /// There is none of this name, or its record cannot be written: then it goes on.
    pub async fn stop_conversation(&self, name: &str) -> Result<(), ProjectError> {
        self.others.stop(name).await
    }

    /// The conversation of this name, also one that does not run.
    ///
    /// # Errors
    /// [`ProjectError::UnknownConversation`].
    pub fn conversation(&self, name: &str) -> Result<Arc<Conversation>, ProjectError> {
        if name == MAIN { Ok(self.main.clone()) } else { self.others.get(name) }
    }

    /// All conversations: [`MAIN`], then the others by name.
    #[must_use]
    pub fn conversations(&self) -> Vec<ConversationStatus> {
        std::iter::once(self.main.status()).chain(self.others.list()).collect()
    }

    /// [`Conversation::send`] of [`MAIN`].
    ///
    /// # Errors
    /// It was not taken.
    pub async fn send(&self, user: &str, id: Uuid, text: &str) -> Result<(), ProjectError> {
        self.main.send(user, id, text).await
    }

    /// [`Conversation::control`] of [`MAIN`].
    ///
    /// # Errors
    /// It does not run.
    pub async fn control(&self, user: &str, action: ControlAction) -> Result<ControlResponse, ProjectError> {
        self.main.control(user, action).await
    }

    /// [`Conversation::waiting_calls`] of [`MAIN`].
    ///
    /// # Errors
    /// It does not run.
    pub async fn waiting_calls(&self) -> Result<Vec<WaitingCall>, ProjectError> {
        self.main.waiting_calls().await
    }

    /// [`Conversation::approve`] of [`MAIN`].
    ///
    /// # Errors
    /// No such call waits, or it is over.
    pub async fn approve(&self, user: &str, request: ApprovalRequest) -> Result<ApprovalResponse, ProjectError> {
        self.main.approve(user, request).await
    }

    /// [`Conversation::run_tool`] of [`MAIN`].
    ///
    /// # Errors
    /// It is no call, too many have not ended, or the conversation does not run.
    pub async fn run_tool(&self, user: &str, tool: &str, call: RunTool) -> Result<ToolRun, ProjectError> {
        self.main.run_tool(user, tool, call).await
    }

    /// [`Conversation::follow`] of [`MAIN`].
    ///
    /// # Errors
    /// It does not run, or the token is none of its record.
    pub async fn follow(&self, token: Token, tail: Option<usize>) -> Result<Follower, ProjectError> {
        self.main.follow(token, tail).await
    }

    /// Ends what runs in all conversations, as interrupted, and every process of it. On return its record is closed and may be taken by another.
    pub async fn stop(&self) {
        self.stop.cancel();
        self.main.stop().await;
        self.others.close().await;
    }

    /// Waits until [`MAIN`] has ended, by a stop or by itself, because its record cannot be written, and says why. Others go on in the second case.
    pub async fn ended(&self) -> String {
        self.main.ended().await
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Makes the folders of the record, and puts programs into a frame that leaves them the root, a HOME and a folder for temporary files.
fn instance(options: &ProjectOptions) -> Result<(ProjectInstance, Option<String>), ProjectError> {
    let (home, temp) = (options.state.join(HOME), options.state.join(TEMP));
    for path in [&home, &temp] {
        std::fs::create_dir_all(path).map_err(|source| ProjectError::Folder { path: path.clone(), source })?;
    }
    let mut env = options.env.clone();
    env.retain(|(name, _)| name != "HOME" && name != "TMPDIR");
    env.extend([("HOME".into(), home.clone().into()), ("TMPDIR".into(), temp.clone().into())]);
    let mut processes = ProcessSupervisor::new(options.root.clone(), &options.id, &env);
    let support = FrameSupport::of_this_kernel();
    if support.governs_files() {
        let closed = std::iter::once(options.state.clone()).chain(options.closed.iter().cloned()).collect();
        processes.enter_frame(Frame { write: vec![options.root.clone(), home, temp], closed, volumes: false })?;
    }
    let instance = ProjectInstance::new(Arc::new(processes), Arc::new(NoPeers), options.limits, &options.policy)?;
    Ok((instance, support.lacks()))
}

/// Names what the model is given by the options: another one is another entry in the log.
fn digest(options: &ProjectOptions) -> String {
    let ProjectOptions { id, root, model, instruction, policy, limits, subagents, .. } = options;
    let settings = serde_json::json!([id, root.to_string_lossy(), model, instruction, policy, limits, subagents]);
    hex::encode(Sha256::digest(settings.to_string()))
}

fn form_config(
    instance: &ProjectInstance,
    options: &ProjectOptions,
    digest: &str,
    handle: Handle,
) -> Arc<dyn Fn() -> AgentConfig + Send + Sync> {
    let (instance, options, digest) = (instance.clone(), options.clone(), digest.to_owned());
    Arc::new(move || {
        let path = options.root.to_string_lossy();
        let prompt = Prompt { agent: &options.id, path: &path, instruction: &options.instruction };
        agent_config(&prompt, Some(&options.model), &instance.tools, instance.context(&handle), &digest)
    })
}

/// Whoever takes the record is later than all who had it.
fn take_lock(state: &Path, pod_uid: String) -> Result<Arc<Lock>, SessionError> {
    let before = Lock::holders(&*disk(), state).unwrap_or_default();
    let run_generation = before.iter().map(|holder| holder.run_generation).max().unwrap_or_default() + 1;
    Lock::take(disk(), state, Holder { run_generation, pod_uid })
}

/// A number in `0.0..1.0`, to spread calls of the model.
fn random_fraction() -> f64 {
    let bits = (Uuid::new_v4().as_u128() >> 64) as u32;
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

/// Whoever embeds a project follows its conversation, and gives it other Secrets by a new start.
struct Unobserved;

impl ConversationObserver for Unobserved {
    fn on_entries_logged(&self) {}
    fn on_model_called(&self, _failure: Option<FailedCall>) {}
    fn on_progress(&self, _activity: Activity, _task: Option<TaskReport>) {}
    fn on_program_session(&self, _lost: Option<String>) {}
    fn on_rotated(&self, _session: SessionPointer) {}
    fn on_wait(&self) {}
}

impl SecretRenewal for Unobserved {
    fn due_in(&self, _refused_for: Duration) -> Duration {
        Duration::MAX
    }

    fn renew(&self) {}
}
