//! The flags of the verbs about agents.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::DryRun;
use super::steering::ConversationChoice;
use super::values::{branch_name, commit_id, config_map_key, duration, env_pair, message_id, object_name, quantity, subdomain, ttl};

#[derive(Debug, Args)]
pub struct RunOptions {
    /// Name of the new agent.
    #[arg(value_parser = object_name)]
    pub name: String,
    /// The YoiProject to work in; in a clone that `init --apply` was run in, that one when absent.
    #[arg(short, long, value_parser = object_name)]
    pub project: Option<String>,
    /// What to do; `-` reads it from standard input.
    #[arg(short, long)]
    pub task: Option<String>,
    /// Added to the system prompt.
    #[arg(short, long, default_value = "", conflicts_with_all = ["cli", "command"])]
    pub instruction: String,
    #[command(flatten)]
    pub program: ProgramOptions,
    /// Stop the agent when its task is done.
    #[arg(long, requires = "task")]
    pub stop_when_done: bool,
    /// Stop the agent so long after it was made, whatever it does, as 8h. It is told before.
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    pub lifetime: Option<String>,
    /// Delete the agent so long after its task is done or its lifetime is over, as 1h; with it goes its tree. What --push names is pushed before.
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    pub ttl_after_finished: Option<String>,
    /// Work in a tree of this commit of the project's repository: a full commit id, a branch, a tag, or a ref such as refs/pull/7/head.
    #[arg(long, value_name = "REVISION", conflicts_with = "fork")]
    pub revision: Option<String>,
    /// Push its commits to a branch of the project's repository when its task has succeeded; without a name to `yoi/` and the agent's.
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, require_equals = true, value_parser = branch_name, requires = "stop_when_done")]
    pub push: Option<Option<String>>,
    /// In a clone whose project takes working trees (`kubectl yoi sync`): do not send the one at hand before. The agent works on what was sent last.
    #[arg(long)]
    pub no_sync: bool,
    /// The project is that of the clone at hand.
    #[arg(skip)]
    pub of_clone: bool,
    /// Work in a fork of this AgentWorkspace, taken now.
    #[arg(long, value_name = "WORKSPACE", value_parser = object_name)]
    pub fork: Option<String>,
    /// Go on with the session on this claim, which an earlier agent has left.
    #[arg(long, value_name = "CLAIM", value_parser = subdomain)]
    pub claim: Option<String>,
    /// Let it and this agent see and message each other; may be given again.
    #[arg(long, value_name = "AGENT", value_parser = object_name)]
    pub peer: Vec<String>,
    /// Image of the agent's Pod; the project's default when absent.
    #[arg(long)]
    pub image: Option<String>,
    /// Environment variable of the agent's tools; may be given again.
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = env_pair)]
    pub env: Vec<(String, String)>,
    /// Processors that its Pod asks for, such as 500m or 2.
    #[arg(long, value_name = "QUANTITY", value_parser = quantity)]
    pub cpu: Option<String>,
    /// Memory that its Pod asks for and may use at most, such as 4Gi.
    #[arg(long, value_name = "QUANTITY", value_parser = quantity)]
    pub memory: Option<String>,
    /// Seconds that one tool call may take.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(i32).range(1..=86_400))]
    pub tool_seconds: Option<i32>,
    #[command(flatten)]
    pub model: ModelOptions,
    /// Wait until the task is done, or, without a task, until the agent is ready. What only a person can fix ends the wait.
    #[arg(short, long, group = "waits")]
    pub wait: bool,
    /// As --wait, and show what the agent says and does when it comes.
    #[arg(short, long, group = "waits", conflicts_with = "dry_run")]
    pub follow: bool,
    /// How long to wait.
    #[arg(long, default_value = "10m", value_parser = duration, requires = "waits", value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunOption,
}

/// What the agent is, when it is not the runtime's own loop.
#[derive(Debug, Default, Args)]
pub struct ProgramOptions {
    /// Let this program be the agent, as a preset of the chart drives it, e.g. claude. The agent's image must hold it.
    #[arg(long, value_name = "PRESET", value_parser = object_name, conflicts_with = "command", group = "cli")]
    pub program: Option<String>,
    /// As --program, by a preset of your own: a key of a ConfigMap in the namespace.
    #[arg(long, value_name = "CONFIGMAP[/KEY]", value_parser = config_map_key, conflicts_with = "command", group = "cli")]
    pub preset_from: Option<(String, String)>,
    /// Added to the program's arguments; may be given again.
    #[arg(long, value_name = "ARG", requires = "cli", conflicts_with = "command", allow_hyphen_values = true)]
    pub program_arg: Vec<String>,
    /// Secret with a login of the program's own. Without it, the program uses the agent's model, and no key is beside it.
    #[arg(long, value_name = "SECRET", requires = "cli", conflicts_with = "command", value_parser = subdomain)]
    pub credentials: Option<String>,
    /// Let the command behind `--` be the agent: once for each message, with the message as its input.
    #[arg(long, requires = "words")]
    pub command: bool,
    /// The command and its arguments.
    #[arg(last = true, value_name = "WORD", requires = "command")]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ModelOptions {
    /// Wire format of the model; the project's default when absent.
    #[arg(long, value_enum, ignore_case = true, requires = "model")]
    pub model_provider: Option<ModelWireFormat>,
    /// Name of the model.
    #[arg(long, requires = "model_provider")]
    pub model: Option<String>,
    /// Base URL of the endpoint, with its version segment.
    #[arg(long, requires = "model")]
    pub model_url: Option<String>,
    /// Secret that holds the endpoint's key, as NAME or NAME/KEY.
    #[arg(long, requires = "model")]
    pub model_secret: Option<String>,
    /// Which of OpenAI's wire formats. Absent: what the program speaks, else Responses without --model-url and chat completions with it.
    #[arg(long, value_enum, requires = "model")]
    pub api: Option<ModelApiName>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModelApiName {
    Responses,
    ChatCompletions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModelWireFormat {
    #[value(name = "openai")]
    OpenAI,
    #[value(name = "anthropic")]
    Anthropic,
    #[value(name = "gemini")]
    Gemini,
}

/// `--dry-run` of the verbs that write.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct DryRunOption {
    /// Change nothing. `server` asks the API server what it would do; `client` sends nothing that writes.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "server", conflicts_with = "wait")]
    pub dry_run: Option<DryRun>,
}

/// `--dry-run` of the verbs that write and have no `--wait`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct PlainDryRunOption {
    /// Change nothing. `server` asks the API server what it would do; `client` sends nothing that writes.
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "server")]
    pub dry_run: Option<DryRun>,
}

/// The agents that a verb is for: by name, by label, or all.
#[derive(Debug, Args)]
pub struct AgentSelection {
    /// The agents.
    #[arg(value_name = "AGENT", value_parser = object_name, required_unless_present_any = ["all", "selector"])]
    pub names: Vec<String>,
    /// All agents of the namespace.
    #[arg(long, conflicts_with_all = ["names", "selector"])]
    pub all: bool,
    /// The agents with these labels, as kubectl takes them.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "names")]
    pub selector: Option<String>,
}

#[derive(Debug, Args)]
pub struct LogOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// Go on showing what comes.
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last so many entries.
    #[arg(long)]
    pub tail: Option<u64>,
    /// Only what comes after this token (from an earlier `-o json`).
    #[arg(long, conflicts_with = "tail")]
    pub after: Option<String>,
    /// Only what is not older than this, e.g. 10m.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub since: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct SendOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// The message; `-` reads it from standard input.
    pub text: String,
    /// Id of the message, a UUID. Sent again under the same id it is delivered once.
    #[arg(long, value_name = "UUID", value_parser = message_id)]
    pub id: Option<String>,
    /// Wait until the run that reads it has ended, and print the agent's answer.
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "10m", value_parser = duration, requires = "wait", value_name = "DURATION")]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct PeerOptions {
    /// One agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub a: String,
    /// The other one.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub b: String,
    /// End the relation instead.
    #[arg(long)]
    pub rm: bool,
    /// How long to wait until it holds.
    #[arg(long, default_value = "30s", value_parser = duration, conflicts_with = "rm", value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: PlainDryRunOption,
}

#[derive(Debug, Args)]
pub struct DesiredStateOptions {
    #[command(flatten)]
    pub agents: AgentSelection,
    /// Wait until it is so. What only a person can fix ends the wait.
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "5m", value_parser = duration, requires = "wait", value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunOption,
}

#[derive(Debug, Args)]
pub struct StopOptions {
    #[command(flatten)]
    pub state: DesiredStateOptions,
    /// Stop those that they have started, too.
    #[arg(long)]
    pub tree: bool,
}

#[derive(Debug, Args)]
pub struct ForkOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    /// Name of the new agent.
    #[arg(value_name = "NEW", value_parser = object_name)]
    pub new: String,
    /// What the new one is to do. Without it, it waits for messages.
    #[arg(short, long)]
    pub task: Option<String>,
    /// Wait until it is ready. What only a person can fix ends the wait.
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "5m", value_parser = duration, requires = "wait", value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunOption,
}

#[derive(Debug, Args)]
pub struct MergeOptions {
    /// The agent whose work is merged: its commits, and what it has not committed.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    /// The agent into whose tree it is merged, which must run and be idle; the one that has started it when absent. Or the branch that is checked out in
    /// the clone at hand: then it is merged into the working tree.
    #[arg(long, value_name = "AGENT|BRANCH", value_parser = branch_name)]
    pub into: Option<String>,
    /// Only say what would be merged.
    #[arg(long)]
    pub dry_run: bool,
    /// Whose lines count where both have changed them: `ours` is the agent that it is merged into. Without it, nothing is merged then.
    #[arg(long, value_enum)]
    pub strategy: Option<MergeSide>,
}

/// Whose lines count in a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MergeSide {
    Ours,
    Theirs,
}

#[derive(Debug, Args)]
pub struct StartOptions {
    #[command(flatten)]
    pub state: DesiredStateOptions,
    /// Take the project as it is now. Else an agent whose spec is unchanged goes on with the project's defaults of its last run.
    #[arg(long)]
    pub refresh: bool,
}

#[derive(Debug, Args)]
pub struct RestartOptions {
    #[command(flatten)]
    pub agents: AgentSelection,
    /// Wait until they are ready again. What only a person can fix ends the wait.
    #[arg(short, long)]
    pub wait: bool,
    /// How long their Pods may take to end and, with --wait, how long to wait.
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunOption,
}

#[derive(Debug, Args)]
pub struct RmOptions {
    #[command(flatten)]
    pub agents: AgentSelection,
    /// Really delete, also what is only in their trees. A running agent is refused all the same, without --stop.
    #[arg(short, long)]
    pub force: bool,
    /// Stop those that run first, and wait for it.
    #[arg(long, requires = "force")]
    pub stop: bool,
    /// Delete the session too: its claim, and the data on the claim's volume.
    #[arg(long)]
    pub purge: bool,
    /// How long to wait until it is gone.
    #[arg(long, default_value = "3m", value_parser = duration, requires = "force", value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: PlainDryRunOption,
}

#[derive(Debug, Args)]
pub struct DiffOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    /// Only the paths, with A, M or D. Names with unusual characters are quoted as git does.
    #[arg(long)]
    pub name_only: bool,
    /// For programs: each path behind its letter, ended by a zero byte, and nothing quoted.
    #[arg(short = 'z', requires = "name_only")]
    pub zero: bool,
    /// Only what is not committed. Without it, all that differs from the base that the tree was made from, committed or not.
    #[arg(long, conflicts_with = "name_only")]
    pub since_commit: bool,
}

#[derive(Debug, Args)]
pub struct PullOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    /// The branch of the clone at hand; the agent's name when absent. It may go on, and is never turned back.
    #[arg(short, long, value_name = "BRANCH", value_parser = branch_name, conflicts_with = "apply")]
    pub branch: Option<String>,
    /// Lay what the agent has changed since the base of its tree on the working tree, and write no branch. What both sides have changed is left alone and
    /// listed, with the agent's version beside, in .git/yoi/conflicts.
    #[arg(long)]
    pub apply: bool,
    /// Only say what --apply would do.
    #[arg(long, requires = "apply", conflicts_with = "commit")]
    pub dry_run: bool,
    /// The branch of the agent's repository; what is checked out there when absent.
    #[arg(long, value_name = "BRANCH", value_parser = branch_name)]
    pub from: Option<String>,
    /// Commit as the agent what it has not committed, before. Only while no run is under way.
    #[arg(long, requires = "message", conflicts_with = "from")]
    pub commit: bool,
    /// The message of that commit.
    #[arg(short, long, requires = "commit", value_name = "MESSAGE")]
    pub message: Option<String>,
}

#[derive(Debug, Args)]
pub struct PushOptions {
    #[command(flatten)]
    pub agents: AgentSelection,
    /// The branch of the project's repository; `yoi/` and the agent's name when absent. It may go on, and is never turned back.
    #[arg(short, long, value_name = "BRANCH", value_parser = branch_name, conflicts_with_all = ["all", "selector"])]
    pub branch: Option<String>,
    /// Commit as the agent what it has not committed, before. Only while no run is under way.
    #[arg(long, requires = "message")]
    pub commit: bool,
    /// The message of that commit.
    #[arg(short, long, requires = "commit", value_name = "MESSAGE")]
    pub message: Option<String>,
    /// Turn the branch to the agent's commit whatever it loses by that, if it is at this commit; when none is named, where the agent's last push left it.
    #[arg(long, value_name = "COMMIT", num_args = 0..=1, require_equals = true, value_parser = commit_id, conflicts_with_all = ["all", "selector"])]
    pub force_with_lease: Option<Option<String>>,
    /// How long to wait until it is done.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
}

#[derive(Debug, Args)]
pub struct PatchOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    /// As a git bundle, which holds merges too and keeps the names of commits. Without it, as mail.
    #[arg(long)]
    pub bundle: bool,
}
