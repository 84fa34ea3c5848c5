//! `ssh` and `ssh-config`: a person comes into an agent's Pod by the system's own ssh, whose connection goes through the API server.
//!
//! The gateway says which key the agent's server has, so nobody is asked to compare one; and each connection brings the person's key along, so no agent has a
//! list of keys. Of the person's configuration `ssh` reads nothing: what it forwards to a host of theirs is nothing for an agent.

mod client;
mod folder;
mod stdio;

use std::io::IsTerminal;
use std::process::Command;

use yoi_crds::YoiPod;
use yoi_plan::yoipod::is_stopped;
use yoi_wire::ssh::SshHost;

use crate::args::{ClusterOptions, SshConfigOptions, SshOptions};
use crate::cluster::Cluster;
use crate::error::{Error, RefusalKind};
use crate::show;
use client::Client;
pub use client::this_program;
use folder::PersonFolder;
pub use folder::private_folder;

pub async fn ssh(cluster: &Cluster, options: &ClusterOptions, args: &SshOptions) -> Result<(), Error> {
    let folder = PersonFolder::open(&args.folder)?;
    let host = cluster.ssh_host(&args.name).await?;
    let client = Client::new(cluster, options, &folder, &args.name, &host)?;
    folder.know(&client.host_file, &client.alias, &host.host_key)?;
    if args.stdio {
        return stdio::carry(cluster, &args.name, &folder.public_key()?).await;
    }
    let in_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let mut command = Command::new("ssh");
    command.args(["-F", "none", if in_terminal { "-t" } else { "-T" }]);
    for (name, value) in client.options() {
        command.arg("-o").arg(format!("{name}={value}"));
    }
    command.args(["--", &client.alias, &line(&host, &args.command)]);
    Err(become_ssh(command))
}

pub async fn config(cluster: &Cluster, options: &ClusterOptions, args: &SshConfigOptions) -> Result<(), Error> {
    if options.token.is_some() {
        return Err(Error::Usage {
            message: "a token would stand in a file that others may read".to_owned(),
            next: "give a kubeconfig that has it: --kubeconfig FILE".to_owned(),
        });
    }
    let folder = PersonFolder::open(&args.folder)?;
    let names = if args.names.is_empty() {
        let agents: Vec<YoiPod> = cluster.list(false, None).await?;
        let running = agents.iter().filter(|agent| !is_stopped(agent));
        running.filter_map(|agent| agent.metadata.name.clone()).collect()
    } else {
        args.names.clone()
    };
    let mut text = String::new();
    for name in &names {
        match cluster.ssh_host(name).await {
            Ok(host) => text.push_str(&Client::new(cluster, options, &folder, name, &host)?.block(name, &host)),
            // Of all agents those that can be reached are listed.
            Err(error @ Error::Refused { kind: RefusalKind::Other | RefusalKind::Unreachable, .. }) if args.names.is_empty() => {
                eprintln!("{name} is left out: {}", show::visible(&error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    if text.is_empty() {
        eprintln!("no agent in namespace {} can be reached by SSH now", cluster.namespace);
    }
    show::print(&text)
}

/// What the shell there runs. Each word of a command is one word there.
fn line(host: &SshHost, command: &[String]) -> String {
    let words: Vec<String> = command.iter().map(|word| client::quoted(word)).collect();
    let path = client::quoted(&host.path);
    if words.is_empty() {
        // A tree that is gone is no reason to stay out.
        return format!("cd {path}; exec \"$SHELL\" -l");
    }
    format!("cd {path} && exec {}", words.join(" "))
}

/// Ends this process with what ssh ends with; returns only when it cannot be started.
fn become_ssh(mut command: Command) -> Error {
    #[cfg(unix)]
    let error = std::os::unix::process::CommandExt::exec(&mut command);
    #[cfg(not(unix))]
    let error = match command.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(255)),
        Err(error) => error,
    };
    folder::not_started("ssh", &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_in_the_tree_word_by_word_and_a_shell_without_one() {
        let host = SshHost { user: "agent".into(), host_key: String::new(), path: "/a b".into() };
        assert_eq!(line(&host, &[]), "cd '/a b'; exec \"$SHELL\" -l");
        let words = ["sh".to_owned(), "-c".to_owned(), "echo $HOME 'x'".to_owned()];
        assert_eq!(line(&host, &words), r#"cd '/a b' && exec sh -c 'echo $HOME '\''x'\'''"#);
    }
}
