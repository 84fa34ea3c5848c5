//! The flags of `ls` and of the verbs about workspaces and about trees without one.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use yoi_crds::source::TreeOwner;

use super::agents::{DryRunOption, ModelOptions, PlainDryRunOption};
use super::values::{branch_name, duration, git_url, image_name, machine_name, object_name, owner, quota, subdomain, ttl};

#[derive(Debug, Args)]
pub struct InitOptions {
    /// Make it on the cluster, and let this clone remember it. Without it, it is printed, and nothing is written.
    #[arg(long)]
    pub apply: bool,
    /// Name of the YoiProject; the repository's when absent.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub name: Option<String>,
    /// The remote that agents clone; when absent the branch's, `origin`, or the only one.
    #[arg(long, value_name = "REMOTE")]
    pub remote: Option<String>,
    /// The address that agents clone, when it is not the remote's.
    #[arg(long, value_name = "URL", value_parser = git_url)]
    pub url: Option<String>,
    /// The branch that agents work from; the one that is checked out when absent.
    #[arg(short, long, value_name = "BRANCH", value_parser = branch_name)]
    pub branch: Option<String>,
    /// Secret with the credentials of the repository: username and password, or ssh-privatekey and known_hosts.
    #[arg(long, value_name = "SECRET", value_parser = subdomain)]
    pub git_secret: Option<String>,
    /// Let agents have this working tree as it is: the project takes it, and `run` in this clone sends it first. A folder without git always does.
    #[arg(long)]
    pub sync: bool,
    /// Where agents see the tree; where it is on this machine when absent.
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// The user and group, in numbers, that own the tree and that agents run as; the user of devcontainer.json, else the owner of this folder when absent.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub owner: Option<TreeOwner>,
    /// The agents' image; that of devcontainer.json when absent. It needs git and a shell.
    #[arg(long, value_name = "IMAGE", value_parser = image_name)]
    pub image: Option<String>,
    /// The devcontainer.json that is read; .devcontainer/devcontainer.json or .devcontainer.json when absent.
    #[arg(long, value_name = "FILE")]
    pub devcontainer: Option<std::path::PathBuf>,
    /// Let `run` in this clone start this program, as --program of `run` does.
    #[arg(long, value_name = "PRESET", value_parser = object_name, requires = "apply")]
    pub program: Option<String>,
    #[command(flatten)]
    pub model: ModelOptions,
}

#[derive(Debug, Args)]
pub struct LsOptions {
    /// Only one kind.
    #[arg(value_enum)]
    pub what: Option<ListKind>,
    #[command(flatten)]
    pub filter: ListFilter,
}

/// Which objects a list holds, and whether it goes on.
#[derive(Clone, Debug, Default, Args)]
pub struct ListFilter {
    /// Every namespace.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only objects with these labels, as kubectl takes them.
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Go on, and show each object again when it changes. Of `ls` one kind only; agents when none is named.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListKind {
    Agents,
    Sessions,
    Workspaces,
    Peers,
}

#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Make an isolated tree.
    #[command(after_help = super::examples::WORKSPACE_CREATE)]
    Create(Box<WorkspaceCreateOptions>),
    /// List trees.
    #[command(after_help = super::examples::WORKSPACE_LS)]
    Ls(ListFilter),
    /// Delete trees that nobody uses, with what is in them. Only tells what it would do without --force.
    #[command(after_help = super::examples::WORKSPACE_RM)]
    Rm(WorkspaceRmOptions),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TreesOptions {
    /// Only of this node.
    #[arg(long, value_name = "NODE", value_parser = subdomain)]
    pub node: Option<String>,
    #[command(subcommand)]
    pub command: Option<TreesCommand>,
}

#[derive(Debug, Subcommand)]
pub enum TreesCommand {
    /// Say of a tree that no AgentWorkspace claims what it was made for, where it is, and the command that opens it on its node.
    #[command(after_help = super::examples::TREES_SHOW)]
    Show(TreesShowOptions),
    /// Give up trees that no AgentWorkspace claims, with what is in them. Only tells what it would do without --force.
    #[command(after_help = super::examples::TREES_DISCARD)]
    Discard(TreesDiscardOptions),
}

#[derive(Debug, Args)]
pub struct TreesShowOptions {
    /// The node whose disk holds it.
    #[arg(value_name = "NODE", value_parser = subdomain)]
    pub node: String,
    /// The UID, as `kubectl yoi trees` lists it.
    #[arg(value_name = "UID")]
    pub uid: String,
}

#[derive(Debug, Args)]
pub struct TreesDiscardOptions {
    /// The node whose disk holds them.
    #[arg(value_name = "NODE", value_parser = subdomain)]
    pub node: String,
    /// The UIDs, as `kubectl yoi trees` lists them.
    #[arg(value_name = "UID", required_unless_present = "bases")]
    pub uids: Vec<String>,
    /// All listed bases of that node: projects make theirs anew.
    #[arg(long, conflicts_with = "uids")]
    pub bases: bool,
    /// Really give them up. A tree that a workspace claims, or that something uses, stays all the same.
    #[arg(short, long)]
    pub force: bool,
    #[command(flatten)]
    pub dry_run: PlainDryRunOption,
}

#[derive(Debug, Args)]
pub struct TakeOptions {
    /// The YoiProject, whose source is a folder of a node.
    #[arg(value_name = "PROJECT", value_parser = object_name)]
    pub project: String,
    /// Wait until workspaces can be made from it. What only a person can fix ends the wait.
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "5m", value_parser = duration, requires = "wait", value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunOption,
}

#[derive(Debug, Args)]
pub struct RefreshOptions {
    /// The YoiProject, whose source is a git repository.
    #[arg(value_name = "PROJECT", value_parser = object_name)]
    pub project: String,
    /// How long to wait until trees are made from the commit that was found.
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: PlainDryRunOption,
}

#[derive(Debug, Args)]
pub struct SyncOptions {
    /// The YoiProject; that of the clone at hand when absent.
    #[arg(value_name = "PROJECT", value_parser = object_name)]
    pub project: Option<String>,
    /// Take these ignored files, too: a pattern of git from the top of the working tree, with `**`. May be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<String>,
    /// What this machine is called; its host name when absent. Each machine has a state of its own, and the one that came last counts.
    #[arg(long, value_name = "NAME", value_parser = machine_name)]
    pub machine: Option<String>,
    /// How long to wait until trees are made from it.
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    /// Go on, and send the tree each time that it has changed and rests. Says of each state of which moment it is, and when one is late or not sent.
    #[arg(short, long)]
    pub watch: bool,
    /// Send untracked files of more than 2 MiB without a question. What was agreed to once is not asked about again in this clone.
    #[arg(short, long)]
    pub yes: bool,
    /// Say what would be sent, and send nothing.
    #[arg(long, conflicts_with = "watch")]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct WorkspaceRmOptions {
    /// The AgentWorkspaces.
    #[arg(value_name = "WORKSPACE", value_parser = object_name, required_unless_present_any = ["all", "selector"])]
    pub names: Vec<String>,
    /// All AgentWorkspaces of the namespace that belong to no agent.
    #[arg(long, conflicts_with_all = ["names", "selector"])]
    pub all: bool,
    /// The AgentWorkspaces with these labels that belong to no agent.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "names")]
    pub selector: Option<String>,
    /// Really delete, also what is only there. A tree in use is refused all the same.
    #[arg(short, long)]
    pub force: bool,
    #[command(flatten)]
    pub dry_run: PlainDryRunOption,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("from").required(true).args(["project", "fork", "git", "host", "empty"])))]
pub struct WorkspaceCreateOptions {
    /// Name of the new AgentWorkspace.
    #[arg(value_parser = object_name)]
    pub name: String,
    /// From the sealed base of this YoiProject.
    #[arg(long, value_parser = object_name)]
    pub project: Option<String>,
    /// Of this commit of --project's repository: a full commit id, a branch, a tag, or a ref such as refs/pull/7/head.
    #[arg(long, requires = "project", value_name = "REVISION")]
    pub revision: Option<String>,
    /// As a fork of this AgentWorkspace.
    #[arg(long, value_name = "WORKSPACE", value_parser = object_name)]
    pub fork: Option<String>,
    /// From this git repository.
    #[arg(long, value_name = "URL", value_parser = git_url)]
    pub git: Option<String>,
    /// Secret with the credentials of --git: username and password, or ssh-privatekey and known_hosts.
    #[arg(long, value_name = "SECRET", requires = "git", value_parser = subdomain)]
    pub git_secret: Option<String>,
    /// Branch, tag or commit of --git.
    #[arg(long = "ref", requires = "git")]
    pub ref_: Option<String>,
    /// From this folder of a node, by its name in the chart's shim.hostSources.
    #[arg(long, value_name = "SOURCE", value_parser = object_name)]
    pub host: Option<String>,
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
    #[arg(long, requires = "claim", value_parser = ttl, value_name = "DURATION")]
    pub ttl: Option<String>,
    /// How much the tree may take on its node's disk, e.g. 500Mi or 10Gi. Without it, what the project says.
    #[arg(long, value_parser = quota, value_name = "SIZE")]
    pub quota: Option<String>,
    /// Where the containers of YoiPods see the tree; a Pod that mounts the claim says it in its own mountPath. Without it, where the project, the
    /// forked tree or the folder of the node has it, else /workspace.
    #[arg(long)]
    pub path: Option<String>,
    /// Wait until it is ready. Without --immediate its first Pod makes the tree: then until what it is made from is ready.
    #[arg(short, long)]
    pub wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "5m", value_parser = duration, requires = "wait", value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: DryRunOption,
}
