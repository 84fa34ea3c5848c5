//! The command line, parsed once. No other place reads flags or the environment.

mod agents;
mod connection;
mod engine;
mod examples;
mod hosts;
mod sessions;
mod ssh;
mod steering;
mod trees;
mod useless;
mod values;
mod vm;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use agents::{
    AgentSelection, DesiredStateOptions, DiffOptions, ForkOptions, LogOptions, MergeOptions, MergeSide, ModelApiName, ModelOptions,
    ModelWireFormat, PatchOptions, PeerOptions, ProgramOptions, PullOptions, PushOptions, RestartOptions, RmOptions, RunOptions,
    SendOptions, StartOptions, StopOptions,
};
pub use connection::ClusterOptions;
pub use engine::{EventsCommand, EventsOptions, ProjectionOptions, ScopeOptions, ToolRunOptions, ToolsCommand, ToolsOptions};
pub use hosts::{
    HostAddOptions, HostCheckOptions, HostCommand, HostConnectOptions, HostDownOptions, HostUpOptions, HostsFile, SshTarget, cache_folder,
    kubeconfig_files,
};
pub use sessions::{SessionCommand, SessionDeletionOptions};
pub use ssh::{SshConfigOptions, SshFolder, SshOptions};
pub use steering::{
    ApprovalsOptions, ApproveOptions, AssetsCommand, AssetsOptions, AttachOptions, ConversationCommand, ConversationListOptions,
    ConversationOptions, DenyOptions, ExportOptions, ModeOptions, RewindOptions, SteerOptions, TopOptions,
};
pub use trees::{
    InitOptions, ListFilter, ListKind, LsOptions, RefreshOptions, SyncOptions, TakeOptions, TreesCommand, TreesDiscardOptions,
    TreesOptions, TreesShowOptions, WorkspaceCommand, WorkspaceCreateOptions, WorkspaceRmOptions,
};
pub use values::{env_pair, git_url, image_name, namespace_name, object_name};
pub use vm::{VmCommand, VmDownOptions, VmDriver, VmMachine, VmUpOptions};

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  it failed; the message says what and what next
  2  the command line is wrong
  3  an object does not exist
  4  you may not do that
  5  the agent or the cluster could not be reached, or the wait was over
  6  the agent's task or run failed
  7  the answer is not whole: it was cut at its limit
  8  what was to be laid on the working tree was laid but for the paths that are listed
doctor: 1 a warning or an error was found, 4 none, but not everything could be looked at";

/// Run, watch, message and compare agents on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "kubectl-yoi", bin_name = "kubectl yoi", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    pub cluster: ClusterOptions,
    /// Form of the answer; tables and sentences for people when absent.
    #[arg(short, long, global = true, value_enum)]
    pub output: Option<OutputFormat>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    Json,
    Yaml,
    Name,
    /// Tables with more columns.
    Wide,
}

/// How far a verb that writes goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// The API server checks each request and stores nothing.
    Server,
    /// No request that writes is sent.
    Client,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start an agent.
    #[command(after_help = examples::RUN)]
    Run(Box<RunOptions>),
    /// Make a YoiProject of the git clone at hand: its remote, branch and path, and what its devcontainer.json says. Prints it without --apply.
    #[command(after_help = examples::INIT)]
    Init(Box<InitOptions>),
    /// List agents, sessions, workspaces and who sees whom.
    #[command(after_help = examples::LS)]
    Ls(LsOptions),
    /// Show an agent's session log.
    #[command(after_help = examples::LOG)]
    Log(LogOptions),
    /// Send an agent a message. An idle agent starts to work on it.
    #[command(after_help = examples::SEND)]
    Send(SendOptions),
    /// Watch an agent work, steer it and talk with it.
    #[command(after_help = examples::ATTACH)]
    Attach(AttachOptions),
    /// List the calls of agents that wait for a person, because the policy wants them asked.
    #[command(after_help = examples::APPROVALS)]
    Approvals(ApprovalsOptions),
    /// Let a call run that waits for a person.
    #[command(after_help = examples::APPROVE)]
    Approve(ApproveOptions),
    /// Refuse a call that waits for a person. The agent reads why, and goes on.
    #[command(after_help = examples::DENY)]
    Deny(DenyOptions),
    /// Pause the run under way: model call and tools end, and the run waits.
    #[command(after_help = examples::PAUSE)]
    Pause(SteerOptions),
    /// Let a paused run go on.
    #[command(after_help = examples::RESUME)]
    Resume(SteerOptions),
    /// Cancel the run under way or paused.
    #[command(after_help = examples::CANCEL)]
    Cancel(SteerOptions),
    /// Set the mode of a conversation of a built-in agent: what its tools may do, and how many steps a run has.
    #[command(after_help = examples::MODE)]
    Mode(ModeOptions),
    /// Replace the older part of an idle agent's conversation by a summary.
    #[command(after_help = examples::COMPACT)]
    Compact(SteerOptions),
    /// Turn an idle agent's conversation back to before one of its inputs. The log keeps everything.
    #[command(after_help = examples::REWIND)]
    Rewind(RewindOptions),
    /// Start, list and stop conversations of an agent beside its first one: they share its tree, and read none of each other's messages.
    #[command(subcommand, after_help = examples::CONVERSATION)]
    Conversation(ConversationCommand),
    /// Show what agents do and how many tokens they have used.
    #[command(after_help = examples::TOP)]
    Top(TopOptions),
    /// List the skills, commands and workflows of an agent's tree: which count, and why the others do not.
    #[command(after_help = examples::ASSETS)]
    Assets(AssetsOptions),
    /// Show what happens to an agent as CloudEvents: messages, runs, model and tool calls, decisions of the policy. Or send it one.
    #[command(after_help = examples::EVENTS)]
    Events(EventsOptions),
    /// List the tools that a running agent is offered, or run one.
    #[command(after_help = examples::TOOLS)]
    Tools(ToolsOptions),
    /// Show which paths of its tree an agent may write, and by which covers its node holds that.
    #[command(after_help = examples::SCOPE)]
    Scope(ScopeOptions),
    /// Show what an agent's log says in a form for programs.
    #[command(after_help = examples::PROJECTION)]
    Projection(ProjectionOptions),
    /// Copy an agent's session as it stands: its segments as a tar archive.
    #[command(after_help = examples::EXPORT)]
    Export(ExportOptions),
    /// Let two agents see and message each other, or end that.
    #[command(after_help = examples::PEER)]
    Peer(PeerOptions),
    /// Stop agents; session and tree stay.
    #[command(after_help = examples::STOP)]
    Stop(StopOptions),
    /// Let agents rest whenever they have nothing to do: without a Pod, until a message wakes them.
    #[command(after_help = examples::SUSPEND)]
    Suspend(DesiredStateOptions),
    /// Start stopped agents again.
    #[command(after_help = examples::START)]
    Start(StartOptions),
    /// Start stopped agents again that have a session to go on with; one that is live or has none is refused.
    #[command(after_help = examples::RESTORE)]
    Restore(DesiredStateOptions),
    /// Make another agent as one that is there, in a fork of its tree as it is now, with a session of its own.
    #[command(after_help = examples::FORK)]
    Fork(ForkOptions),
    /// Merge what an agent has done into the tree of the one that has started it, or of another: by git, all of it or nothing.
    #[command(after_help = examples::MERGE)]
    Merge(MergeOptions),
    /// Stop agents and start them again; session and tree stay.
    #[command(after_help = examples::RESTART)]
    Restart(RestartOptions),
    /// Delete stopped agents. Only tells what it would do without --force.
    #[command(after_help = examples::RM)]
    Rm(RmOptions),
    /// Show what an agent changed in its tree.
    #[command(after_help = examples::DIFF)]
    Diff(DiffOptions),
    /// Print the commits that an agent made since the base of its tree, for `git am` or `git fetch`.
    #[command(after_help = examples::PATCH)]
    Patch(PatchOptions),
    /// Fetch the commits that an agent made into the git clone at hand, on a branch of the agent's name, or onto its working tree with --apply.
    /// Without --apply, what is checked out is not touched.
    #[command(after_help = examples::PULL)]
    Pull(PullOptions),
    /// Push the commits that agents made to a branch of their project's repository. It works for agents that have stopped, too.
    #[command(after_help = examples::PUSH)]
    Push(PushOptions),
    /// Take the folder that a project is made from as it is now. Agents that have a tree keep it.
    #[command(after_help = examples::TAKE)]
    Take(TakeOptions),
    /// Look now whether the branch that a project is made from has moved. Agents that have a tree keep it.
    #[command(after_help = examples::REFRESH)]
    Refresh(RefreshOptions),
    /// Send the working tree at hand as it is, what is not committed and not tracked among it, and wait until new trees are made from it. Index, branches,
    /// stash and files stay as they are.
    #[command(after_help = examples::SYNC)]
    Sync(SyncOptions),
    /// Come into an agent by SSH: a shell, or a command, as the agent's user, where the agent's own commands run.
    #[command(after_help = examples::SSH)]
    Ssh(SshOptions),
    /// Print what a client of SSH has to know of agents, for ~/.ssh/config: so editors, rsync and others reach their trees.
    #[command(after_help = examples::SSH_CONFIG)]
    SshConfig(SshConfigOptions),
    /// Look at machines that you reach by SSH, and remember them.
    #[command(subcommand, after_help = examples::HOST)]
    Host(HostCommand),
    /// Make, start and stop a Linux machine for Yoi on macOS or Windows.
    #[command(subcommand, after_help = examples::VM)]
    Vm(VmCommand),
    /// Make, list and delete isolated trees.
    #[command(subcommand, after_help = examples::WORKSPACE)]
    Workspace(WorkspaceCommand),
    /// List, read and delete the claims that hold agents' sessions, also those of agents that are gone.
    #[command(subcommand, after_help = examples::SESSION)]
    Session(SessionCommand),
    /// List the trees on nodes' disks that no AgentWorkspace claims, as after a node was lost and came back, and discard them.
    #[command(after_help = examples::TREES)]
    Trees(TreesOptions),
    /// Look for what is wrong with Yoi on this cluster, and say the command that fixes it.
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorOptions),
    /// Tell what a reason of a condition means and what to do about it.
    #[command(after_help = examples::EXPLAIN)]
    Explain {
        /// As conditions and Events bear it, e.g. SecretMissing.
        #[arg(value_name = "REASON")]
        reason: String,
    },
    /// Print the CRDs of this version, for `kubectl apply --server-side -f -`.
    #[command(after_help = examples::CRDS)]
    Crds,
    /// Print the versions of this program, of Kubernetes and of Yoi on the cluster.
    #[command(after_help = examples::VERSION)]
    Version(VersionOptions),
    /// Print a completion script for kubectl-yoi.
    #[command(after_help = examples::COMPLETION)]
    Completion {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

#[derive(Debug, Args)]
pub struct DoctorOptions {
    /// Objects of every namespace, not only of one.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

#[derive(Debug, Args)]
pub struct VersionOptions {
    /// Only of this program; no cluster is asked.
    #[arg(long)]
    pub client: bool,
}

impl Cli {
    /// The command line of this process, which ends here when it is wrong.
    pub fn from_process() -> Self {
        Self::from_words(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    /// The command line of these words, the first of which is the program's name.
    pub fn from_words<W: Into<std::ffi::OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Result<Self, clap::Error> {
        let matches = Self::clap_command().try_get_matches_from(words)?;
        let cli = Self::from_arg_matches(&matches)?;
        useless::reject(cli, &matches)
    }

    /// As `command()`, without help for a flag of every verb that would do nothing with this one.
    pub fn clap_command() -> clap::Command {
        useless::without_help(Self::command())
    }
}

impl Command {
    /// What `--dry-run` says.
    pub fn dry_run(&self) -> Option<DryRun> {
        match self {
            Command::Run(args) => args.dry_run.dry_run,
            Command::Peer(args) => args.dry_run.dry_run,
            Command::Stop(args) => args.state.dry_run.dry_run,
            Command::Suspend(args) | Command::Restore(args) => args.dry_run.dry_run,
            Command::Fork(args) => args.dry_run.dry_run,
            Command::Start(args) => args.state.dry_run.dry_run,
            Command::Restart(args) => args.dry_run.dry_run,
            Command::Rm(args) => args.dry_run.dry_run,
            Command::Take(args) => args.dry_run.dry_run,
            Command::Refresh(args) => args.dry_run.dry_run,
            Command::Trees(TreesOptions { command: Some(TreesCommand::Discard(args)), .. }) => args.dry_run.dry_run,
            Command::Trees(TreesOptions { command: Some(TreesCommand::Show(_)) | None, .. }) => None,
            Command::Workspace(WorkspaceCommand::Create(args)) => args.dry_run.dry_run,
            Command::Workspace(WorkspaceCommand::Rm(args)) => args.dry_run.dry_run,
            Command::Session(SessionCommand::Rm(args)) => args.deletion.dry_run.dry_run,
            Command::Session(SessionCommand::Prune(args)) => args.deletion.dry_run.dry_run,
            Command::Session(SessionCommand::Ls(_) | SessionCommand::Log(_) | SessionCommand::Export(_)) => None,
            // Without --apply it only prints.
            Command::Init(_) => None,
            Command::Workspace(WorkspaceCommand::Ls(_)) | Command::Ls(_) | Command::Log(_) | Command::Send(_) => None,
            Command::Diff(_)
            | Command::Patch(_)
            | Command::Pull(_)
            | Command::Push(_)
            // Its --dry-run is another.
            | Command::Merge(_)
            | Command::Sync(_)
            | Command::Host(_)
            | Command::Ssh(_)
            | Command::Vm(_)
            | Command::SshConfig(_)
            | Command::Doctor(_)
            | Command::Explain { .. }
            | Command::Crds
            | Command::Version(_) => None,
            Command::Attach(_) | Command::Pause(_) | Command::Resume(_) | Command::Cancel(_) | Command::Compact(_) => None,
            Command::Approvals(_) | Command::Approve(_) | Command::Deny(_) | Command::Conversation(_) => None,
            Command::Mode(_)
            | Command::Rewind(_)
            | Command::Top(_)
            | Command::Assets(_)
            | Command::Export(_)
            | Command::Completion { .. } => None,
            Command::Events(_) | Command::Tools(_) | Command::Projection(_) | Command::Scope(_) => None,
        }
    }
}

impl Command {
    /// The conversation that `--conversation` names.
    pub fn conversation(&self) -> Option<&str> {
        let of = match self {
            Command::Log(args) => &args.of,
            Command::Send(args) => &args.of,
            Command::Attach(args) => &args.of,
            Command::Approve(args) => &args.of,
            Command::Deny(args) => &args.of,
            Command::Pause(args) | Command::Resume(args) | Command::Cancel(args) | Command::Compact(args) => &args.of,
            Command::Mode(args) => &args.of,
            Command::Rewind(args) => &args.of,
            Command::Export(args) => &args.of,
            Command::Events(EventsOptions { command: Some(EventsCommand::Send { of, .. }), .. }) if of.conversation.is_some() => of,
            Command::Events(args) => &args.of,
            Command::Tools(ToolsOptions { command: Some(ToolsCommand::Run(run)), .. }) if run.of.conversation.is_some() => &run.of,
            Command::Tools(args) => &args.of,
            Command::Projection(args) => &args.of,
            Command::Scope(_) => return None,
            Command::Run(_) | Command::Init(_) | Command::Ls(_) | Command::Approvals(_) | Command::Conversation(_) | Command::Top(_) => {
                return None;
            }
            Command::Peer(_) | Command::Stop(_) | Command::Suspend(_) | Command::Start(_) | Command::Restart(_) => return None,
            Command::Rm(_) | Command::Diff(_) | Command::Restore(_) | Command::Fork(_) | Command::Merge(_) => {
                return None;
            }
            Command::Patch(_) | Command::Pull(_) | Command::Push(_) | Command::Take(_) | Command::Refresh(_) | Command::Assets(_) => {
                return None;
            }
            Command::Workspace(_) | Command::Trees(_) | Command::Doctor(_) | Command::Explain { .. } | Command::Crds => return None,
            Command::Session(SessionCommand::Log(args)) => &args.of,
            Command::Session(SessionCommand::Export(args)) => &args.of,
            Command::Session(SessionCommand::Ls(_) | SessionCommand::Rm(_) | SessionCommand::Prune(_)) => return None,
            Command::Sync(_) | Command::Host(_) | Command::Vm(_) | Command::Ssh(_) | Command::SshConfig(_) => {
                return None;
            }
            Command::Version(_) | Command::Completion { .. } => return None,
        };
        of.conversation.as_deref()
    }
}

/// The words to complete and the cluster that they name, when kubectl has called this program by the name of its completion.
pub fn completion_words() -> Option<(Vec<String>, ClusterOptions)> {
    let mut words = std::env::args_os();
    let name = std::path::PathBuf::from(words.next()?);
    let words: Vec<String> =
        (name.file_stem()? == crate::complete::PROGRAM).then(|| words.map(|w| w.to_string_lossy().into_owned()).collect())?;
    let options = cluster_options(&words);
    Some((words, options))
}

/// The flags of [`ClusterOptions`] among words that are no whole command line.
fn cluster_options(words: &[String]) -> ClusterOptions {
    let command = ClusterOptions::augment_args(clap::Command::new("words")).no_binary_name(true).disable_help_flag(true);
    let known: Vec<clap::Arg> = command.get_arguments().cloned().collect();
    let mut own = Vec::new();
    let mut rest = words.split_last().map_or([].as_slice(), |(_, before)| before).iter();
    while let Some(word) = rest.next() {
        let Some(flag) = word.strip_prefix('-') else { continue };
        let (flag, attached) = flag.split_once('=').map_or((flag, false), |(flag, _)| (flag, true));
        let Some(arg) = known.iter().find(|arg| crate::complete::has_name(arg, flag)) else { continue };
        own.push(word.clone());
        if arg.get_action().takes_values() && !attached {
            own.extend(rest.next().cloned());
        }
    }
    let matches = command.try_get_matches_from(own);
    matches.ok().and_then(|matches| ClusterOptions::from_arg_matches(&matches).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
