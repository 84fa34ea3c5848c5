//! The command line, parsed once. No other place reads flags or the environment.

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  it failed; the message says what and what next
  2  the command line is wrong
  3  an object does not exist
  4  you may not do that
  5  the agent or the cluster could not be reached, or the wait was over
  6  the agent's task failed
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

#[derive(Debug, Args)]
pub struct ClusterOptions {
    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Kubeconfig file; $KUBECONFIG or ~/.kube/config when absent.
    #[arg(long, global = true)]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Namespace; the context's when absent.
    #[arg(short, long, global = true, value_parser = dns_label)]
    pub namespace: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    Json,
    Yaml,
    Name,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start an agent.
    Run(RunOptions),
    /// List agents, sessions, workspaces and who sees whom.
    Ls(LsOptions),
    /// Show an agent's session log.
    Log(LogOptions),
    /// Send an agent a message. An idle agent starts to work on it.
    Send(SendOptions),
    /// Let two agents see and message each other, or end that.
    Peer(PeerOptions),
    /// Stop agents; session and tree stay.
    Stop(DesiredStateOptions),
    /// Start stopped agents again.
    Start(DesiredStateOptions),
    /// Delete stopped agents. Only tells what it would do without --force.
    Rm(RmOptions),
    /// Show what an agent changed in its tree.
    Diff(DiffOptions),
    /// Make, list and delete isolated trees.
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// Look for what is wrong with Yoi on this cluster, and say the command that mends it.
    Doctor(DoctorOptions),
    /// Tell what a reason of a condition means and what to do about it.
    Explain {
        /// As conditions and Events bear it, e.g. SecretMissing.
        reason: String,
    },
    /// Print the CRDs of this version, for `kubectl apply --server-side -f -`.
    Crds,
    /// Print a completion script. `kubectl yoi <TAB>` needs none: link this program as kubectl_complete-yoi on PATH.
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
pub struct RunOptions {
    /// Name of the new agent.
    #[arg(value_parser = dns_label)]
    pub name: String,
    /// The YoiProject to work in.
    #[arg(short, long, value_parser = dns_label)]
    pub project: String,
    /// What to do; `-` reads it from standard input.
    #[arg(short, long)]
    pub task: Option<String>,
    /// Added to the system prompt.
    #[arg(short, long, default_value = "")]
    pub instruction: String,
    /// Stop the agent when its task is done.
    #[arg(long, requires = "task")]
    pub stop_when_done: bool,
    /// Work in a fork of this AgentWorkspace, taken now.
    #[arg(long, value_name = "WORKSPACE", value_parser = dns_label)]
    pub fork: Option<String>,
    #[command(flatten)]
    pub model: ModelOptions,
    /// Wait until the task is done, or, without a task, until the agent is ready.
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "10m", value_parser = duration, requires = "wait")]
    pub timeout: std::time::Duration,
}

#[derive(Debug, Args)]
pub struct ModelOptions {
    /// Wire format of the model; the project's default when absent.
    #[arg(long, value_enum, requires = "model")]
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
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ModelWireFormat {
    #[value(name = "openai")]
    OpenAI,
    #[value(name = "anthropic")]
    Anthropic,
}

#[derive(Debug, Args)]
pub struct LsOptions {
    /// Only one kind.
    #[arg(value_enum)]
    pub what: Option<ListKind>,
    /// Every namespace.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListKind {
    Agents,
    Sessions,
    Workspaces,
    Peers,
}

#[derive(Debug, Args)]
pub struct LogOptions {
    /// The agent.
    #[arg(value_parser = dns_label)]
    pub name: String,
    /// Go on showing what comes.
    #[arg(short, long)]
    pub follow: bool,
    /// Only the last so many entries.
    #[arg(long)]
    pub tail: Option<u64>,
    /// Only what comes after this token (from an earlier `-o json`).
    #[arg(long, conflicts_with = "tail")]
    pub after: Option<String>,
}

#[derive(Debug, Args)]
pub struct SendOptions {
    /// The agent.
    #[arg(value_parser = dns_label)]
    pub name: String,
    /// The message; `-` reads it from standard input.
    pub text: String,
}

#[derive(Debug, Args)]
pub struct PeerOptions {
    /// One agent.
    #[arg(value_parser = dns_label)]
    pub a: String,
    /// The other one.
    #[arg(value_parser = dns_label)]
    pub b: String,
    /// End the relation instead.
    #[arg(long)]
    pub rm: bool,
}

#[derive(Debug, Args)]
pub struct DesiredStateOptions {
    /// The agents.
    #[arg(required = true, value_parser = dns_label)]
    pub names: Vec<String>,
    /// Wait until it is so.
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "5m", value_parser = duration, requires = "wait")]
    pub timeout: std::time::Duration,
}

#[derive(Debug, Args)]
pub struct RmOptions {
    /// The agents.
    #[arg(required = true, value_parser = dns_label)]
    pub names: Vec<String>,
    /// Really delete. A running agent is refused all the same: stop it first.
    #[arg(short, long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct DiffOptions {
    /// The agent.
    #[arg(value_parser = dns_label)]
    pub name: String,
    /// Only the paths, with A, M or D.
    #[arg(long)]
    pub name_only: bool,
}

#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Make an isolated tree.
    Create(WorkspaceCreateOptions),
    /// List trees.
    Ls {
        /// Every namespace.
        #[arg(short = 'A', long)]
        all_namespaces: bool,
    },
    /// Delete trees. What is in them is gone.
    Rm {
        /// The AgentWorkspaces.
        #[arg(required = true, value_parser = dns_label)]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("from").required(true).args(["project", "fork", "git", "empty"])))]
pub struct WorkspaceCreateOptions {
    /// Name of the new AgentWorkspace.
    #[arg(value_parser = dns_label)]
    pub name: String,
    /// From the sealed base of this YoiProject.
    #[arg(long, value_parser = dns_label)]
    pub project: Option<String>,
    /// As a fork of this AgentWorkspace.
    #[arg(long, value_name = "WORKSPACE", value_parser = dns_label)]
    pub fork: Option<String>,
    /// From this git repository.
    #[arg(long, value_name = "URL")]
    pub git: Option<String>,
    /// Branch, tag or commit of --git.
    #[arg(long = "ref", requires = "git")]
    pub ref_: Option<String>,
    /// Empty.
    #[arg(long)]
    pub empty: bool,
    /// Make a claim of the same name, for Pods that are not YoiPods.
    #[arg(long)]
    pub claim: bool,
    /// Choose the node now, not with the first Pod.
    #[arg(long, requires = "claim")]
    pub immediate: bool,
    /// Delete it so long after its claim was released, e.g. 30s, 10m.
    #[arg(long, requires = "claim")]
    pub ttl: Option<String>,
    /// Where the containers of YoiPods see the tree; a Pod that mounts the claim says it in its own mountPath.
    #[arg(long, default_value = "/workspace")]
    pub path: String,
    /// Wait until it is ready.
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "5m", value_parser = duration, requires = "wait")]
    pub timeout: std::time::Duration,
}

/// The flags of [`ClusterOptions`].
const CLUSTER_FLAGS: [&str; 3] = ["--context", "--kubeconfig", "--namespace"];
/// The flags that every verb accepts.
const GLOBAL_FLAGS: [&str; 4] = ["--context", "--kubeconfig", "--namespace", "--output"];

impl Cli {
    /// The command line of this process, which ends here when it is wrong.
    pub fn from_process() -> Self {
        Self::from_words(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    /// The command line of these words, the first of which is the program's name.
    pub fn from_words<W: Into<std::ffi::OsString> + Clone>(words: impl IntoIterator<Item = W>) -> Result<Self, clap::Error> {
        Self::clap_command()
            .try_get_matches_from(words)
            .and_then(|matches| Self::from_arg_matches(&matches))
            .and_then(Self::reject_useless_flags)
    }

    /// As `command()`, without help for a flag of every verb that would do nothing with this one.
    pub fn clap_command() -> clap::Command {
        let global: Vec<clap::Arg> = Self::command().get_arguments().filter(|arg| arg.is_global_set()).cloned().collect();
        let hidden = |useless: &'static [&'static str]| {
            let named = |arg: &clap::Arg| arg.get_long().is_some_and(|long| useless.contains(&format!("--{long}").as_str()));
            global.clone().into_iter().filter(move |arg| named(arg)).map(|arg| arg.hide(true))
        };
        Self::command()
            .mut_subcommand("completion", |verb| verb.args(hidden(&GLOBAL_FLAGS)))
            .mut_subcommand("crds", |verb| verb.args(hidden(&GLOBAL_FLAGS)))
            .mut_subcommand("explain", |verb| verb.args(hidden(&CLUSTER_FLAGS)))
    }

    /// clap's own conflicts see no flag of every verb that stands before the verb.
    fn reject_useless_flags(self) -> Result<Self, clap::Error> {
        match self.useless_flag() {
            Some((flag, verb)) => Err(Cli::command().error(ErrorKind::ArgumentConflict, format!("{flag} would do nothing with `{verb}`"))),
            None => Ok(self),
        }
    }

    /// A flag that was given and would do nothing, and with what.
    fn useless_flag(&self) -> Option<(&'static str, &'static str)> {
        let Cli { cluster: ClusterOptions { context, kubeconfig, namespace }, output, command } = self;
        let given = [
            ("--context", context.is_some()),
            ("--kubeconfig", kubeconfig.is_some()),
            ("--namespace", namespace.is_some()),
            ("--output", output.is_some()),
        ];
        let (verb, useless): (_, &[&str]) = match command {
            Command::Completion { shell: _ } => ("completion", &GLOBAL_FLAGS),
            Command::Crds => match output {
                // `crds` prints YAML in any case.
                None | Some(OutputFormat::Yaml) => ("crds", &CLUSTER_FLAGS),
                Some(OutputFormat::Json | OutputFormat::Name) => ("crds", &GLOBAL_FLAGS),
            },
            Command::Explain { reason: _ } => ("explain", &CLUSTER_FLAGS),
            Command::Ls(ls) if ls.all_namespaces => ("ls --all-namespaces", &["--namespace"]),
            Command::Workspace(WorkspaceCommand::Ls { all_namespaces: true }) => ("workspace ls --all-namespaces", &["--namespace"]),
            Command::Doctor(doctor) if doctor.all_namespaces => ("doctor --all-namespaces", &["--namespace"]),
            Command::Diff(diff) if diff.name_only => ("diff --name-only", &["--output"]),
            Command::Run(_) | Command::Ls(_) | Command::Log(_) | Command::Send(_) | Command::Peer(_) => return None,
            Command::Stop(_) | Command::Start(_) | Command::Rm(_) | Command::Diff(_) | Command::Workspace(_) => return None,
            Command::Doctor(_) => return None,
        };
        given.into_iter().find(|(flag, given)| *given && useless.contains(flag)).map(|(flag, _)| (flag, verb))
    }
}

/// Returns the words to complete, when kubectl has called this program by the name of its completion.
pub fn completion_words() -> Option<Vec<String>> {
    let mut words = std::env::args_os();
    let name = std::path::PathBuf::from(words.next()?);
    (name.file_stem()? == crate::complete::PROGRAM).then(|| words.map(|w| w.to_string_lossy().into_owned()).collect())
}

/// Accepts a DNS label. Anything else is the name of no object, and would change the path of a request.
fn dns_label(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label = !text.is_empty() && text.len() <= 63 && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-');
    if label { Ok(text.to_owned()) } else { Err("a name is made of lower-case letters, digits and `-` inside, at most 63".to_owned()) }
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a duration like 30s, 10m or 2h"))?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("`{text}` is not a duration like 30s, 10m or 2h")),
    };
    Ok(std::time::Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests;
