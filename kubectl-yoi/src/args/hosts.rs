//! The verbs about machines that are reached by SSH.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::values::{duration, object_name};

#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Say what a machine that you reach by SSH has and what it lacks to run Yoi, with the command for each. Changes nothing there.
    #[command(after_help = super::examples::HOST_CHECK)]
    Check(HostCheckOptions),
    /// Look at a machine as `check` does, and remember it under a name.
    #[command(after_help = super::examples::HOST_ADD)]
    Add(HostAddOptions),
    /// Make a machine a node with Yoi: send it a bundle, start Kubernetes and Yoi there, and add a context that is reached over ssh. Again is the same as once.
    #[command(after_help = super::examples::HOST_UP)]
    Up(HostUpOptions),
    /// Take the node on a machine down with all its agents. Nothing of Yoi stays there.
    #[command(after_help = super::examples::HOST_DOWN)]
    Down(HostDownOptions),
    /// Make the connection to a machine's node, and print its credentials: what the context of `up` calls.
    #[command(hide = true, after_help = super::examples::HOST_CONNECT)]
    Connect(HostConnectOptions),
    /// List the machines that are remembered, and what they lacked when somebody looked last. Asks none of them.
    #[command(after_help = super::examples::HOST_LS)]
    Ls(HostsFile),
    /// Forget a machine, with the context that leads there. Nothing is changed there.
    #[command(after_help = super::examples::HOST_RM)]
    Rm(HostRmOptions),
}

#[derive(Debug, Args)]
pub struct HostCheckOptions {
    /// The machine as ssh names it, or the name that it is remembered under.
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub host: SshTarget,
    /// How long it may take, questions of ssh included.
    #[arg(long, default_value = "2m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub file: HostsFile,
}

#[derive(Debug, Args)]
pub struct HostAddOptions {
    #[command(flatten)]
    pub check: HostCheckOptions,
    /// Name to remember it under; the host's own without its domain when absent.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub name: Option<String>,
}

#[derive(Debug, Args)]
pub struct HostUpOptions {
    /// The machine as ssh names it, or the name that it is remembered under.
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub host: SshTarget,
    /// Name to remember it under, and of the context; the host's own without its domain when absent.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub name: Option<String>,
    /// The bundle, as `cargo xtask bundle` makes it; the one in your cache folder that is for that machine when absent.
    #[arg(long, env = "YOI_BUNDLE", value_name = "FILE")]
    pub bundle: Option<PathBuf>,
    /// GiB for the trees of agents, taken from the disk there at once; half of what is free, and at most 64, when absent. They stay as they were made.
    #[arg(long, value_name = "GIB", value_parser = clap::value_parser!(u64).range(1..=16_384))]
    pub trees: Option<u64>,
    /// How long each step may take, questions of ssh included.
    #[arg(long, default_value = "30m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub file: HostsFile,
}

#[derive(Debug, Args)]
pub struct HostDownOptions {
    /// The machine as ssh names it, or the name that it is remembered under.
    #[arg(value_name = "[USER@]HOST[:PORT]")]
    pub host: SshTarget,
    /// Do not ask whether all agents there, their trees and sessions may go.
    #[arg(long)]
    pub yes: bool,
    /// How long each step may take, questions of ssh included.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub file: HostsFile,
}

#[derive(Debug, Args)]
pub struct HostConnectOptions {
    /// The name that it is remembered under.
    #[arg(value_name = "NAME", value_parser = object_name)]
    pub name: String,
    /// How long it may take, questions of ssh included.
    #[arg(long, default_value = "2m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub file: HostsFile,
}

#[derive(Debug, Args)]
pub struct HostRmOptions {
    /// The name that it is remembered under.
    #[arg(value_name = "NAME", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub file: HostsFile,
}

/// Where machines are remembered.
#[derive(Debug, Args)]
pub struct HostsFile {
    /// The file that remembers machines; yoi/hosts.json in the folder of your settings when absent.
    #[arg(long = "hosts", env = "YOI_HOSTS", value_name = "FILE")]
    pub path: Option<PathBuf>,
}

impl HostsFile {
    /// The file; `None` where nobody says which folder is the person's.
    pub fn path(&self) -> Option<PathBuf> {
        self.path.clone().or_else(|| Some(folder_of_person("XDG_CONFIG_HOME", ".config")?.join("yoi/hosts.json")))
    }
}

/// The person's folder for what can be made anew; `None` where nobody says which folder is the person's.
pub fn cache_folder() -> Option<PathBuf> {
    folder_of_person("XDG_CACHE_HOME", ".cache")
}

/// The files of `KUBECONFIG`, or the one in the person's home.
pub fn kubeconfig_files() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|named| !named.is_empty()) {
        Some(named) => std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

pub(super) fn folder_of_person(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    named.or_else(|| Some(std::env::home_dir()?.join(below_home)))
}

/// A machine as ssh names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshTarget {
    pub user: Option<String>,
    /// A name of the person's ssh configuration, of DNS, or an address.
    pub host: String,
    pub port: Option<u16>,
}

impl FromStr for SshTarget {
    type Err = String;

    /// Nothing that ssh would take as an option, or a shell as more than a word.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "[USER@]HOST[:PORT], such as ann@build.example or build:2222; an address of IPv6 in brackets";
        let wrong = || FORM.to_owned();
        let (user, rest) = text.rsplit_once('@').map_or((None, text), |(user, rest)| (Some(user), rest));
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']').ok_or_else(wrong)?;
                let is_address = host.parse::<std::net::Ipv6Addr>().is_ok();
                let port = if behind.is_empty() { None } else { Some(behind.strip_prefix(':').ok_or_else(wrong)?) };
                (Some(host).filter(|_| is_address).ok_or_else(wrong)?, port)
            }
            None => {
                let (host, port) = rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
                (Some(host).filter(|host| is_word(host)).ok_or_else(wrong)?, port)
            }
        };
        let port = port.map(|port| port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)).transpose()?;
        if user.is_some_and(|user| !is_word(user)) {
            return Err(wrong());
        }
        Ok(SshTarget { user: user.map(str::to_owned), host: host.to_owned(), port })
    }
}

fn is_word(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-+".contains(&b);
    !text.is_empty() && text.len() <= 253 && !text.starts_with('-') && text.bytes().all(is_plain)
}

impl std::fmt::Display for SshTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        let brackets = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}{}{}", brackets.0, self.host, brackets.1)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_named_as_ssh_names_it_and_never_by_an_option() {
        for text in ["host", "ann@host", "host.example:2222", "ann@[::1]:22", "[fe80::1]", "10.0.0.1", "a_b+c@h-1"] {
            assert_eq!(text.parse::<SshTarget>().map(|target| target.to_string()), Ok(text.to_owned()));
        }
        for text in [
            "",
            "@host",
            "-oProxyCommand=x",
            "a@-h",
            "-a@h",
            "a b",
            "h;x",
            "h:0",
            "h:70000",
            "h:",
            "[::1",
            "[h]",
            "[::1]x",
            "::1",
            "a@b@-c",
            "$x",
            "h\n",
        ] {
            assert!(text.parse::<SshTarget>().is_err(), "{text}");
        }
    }
}
