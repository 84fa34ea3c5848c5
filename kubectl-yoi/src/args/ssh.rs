//! The flags of the verbs by which a person comes into an agent.

use clap::Args;

use super::connection::ClusterOptions;
use super::hosts::folder_of_person;
use super::values::object_name;

#[derive(Debug, Args)]
pub struct SshOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    /// Carry one connection of SSH between standard input and output: the ProxyCommand of a client.
    #[arg(long, conflicts_with = "command")]
    pub stdio: bool,
    /// A command with its arguments, in the agent's tree; a shell when absent.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    #[command(flatten)]
    pub folder: SshFolder,
}

#[derive(Debug, Args)]
pub struct SshConfigOptions {
    /// The agents; all that run when absent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub folder: SshFolder,
}

/// Where the person's key for agents is, and the keys of agents.
#[derive(Clone, Debug, Args)]
pub struct SshFolder {
    /// Folder with your key for agents and with what is known of their keys; yoi/ssh in the folder of your settings when absent.
    #[arg(long = "ssh-folder", env = "YOI_SSH_FOLDER", value_name = "FOLDER")]
    pub path: Option<std::path::PathBuf>,
}

impl SshFolder {
    /// The folder; `None` where nobody says which folder is the person's.
    pub fn path(&self) -> Option<std::path::PathBuf> {
        self.path.clone().or_else(|| Some(folder_of_person("XDG_CONFIG_HOME", ".config")?.join("yoi/ssh")))
    }
}

impl ClusterOptions {
    /// The same for a program that is started later and elsewhere: with this context and namespace, and with the kubeconfig that counts here.
    #[must_use]
    pub fn pinned(&self, context: Option<String>, namespace: &str) -> Self {
        let of_environment = || {
            let named = std::env::var_os("KUBECONFIG").filter(|_| self.server.is_none())?;
            let mut files = std::env::split_paths(&named);
            // Several of them have no flag.
            files.next().filter(|_| files.next().is_none())
        };
        let absolute = |path: &std::path::PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let kubeconfig = self.kubeconfig.clone().or_else(of_environment).filter(|path| !path.as_os_str().is_empty());
        ClusterOptions {
            kubeconfig: kubeconfig.as_ref().map(absolute),
            context: context.or_else(|| self.context.clone()),
            namespace: Some(namespace.to_owned()),
            certificate_authority: self.certificate_authority.as_ref().map(absolute),
            client_certificate: self.client_certificate.as_ref().map(absolute),
            client_key: self.client_key.as_ref().map(absolute),
            ..self.clone()
        }
    }

    /// As words of a command line.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let Self {
            context,
            kubeconfig,
            namespace,
            cluster,
            user,
            server,
            token,
            as_user,
            as_group,
            as_uid,
            certificate_authority,
            client_certificate,
            client_key,
            tls_server_name,
            insecure_skip_tls_verify,
            request_timeout,
            patience_percent: _,
        } = self;
        let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
        let valued = [
            ("context", context.clone()),
            ("kubeconfig", path(kubeconfig)),
            ("namespace", namespace.clone()),
            ("cluster", cluster.clone()),
            ("user", user.clone()),
            ("server", server.clone()),
            ("token", token.clone()),
            ("as", as_user.clone()),
            ("as-uid", as_uid.clone()),
            ("certificate-authority", path(certificate_authority)),
            ("client-certificate", path(client_certificate)),
            ("client-key", path(client_key)),
            ("tls-server-name", tls_server_name.clone()),
            ("request-timeout", request_timeout.map(|timeout| format!("{}s", timeout.as_secs()))),
        ];
        let mut words: Vec<String> = valued.into_iter().filter_map(|(flag, value)| Some(format!("--{flag}={}", value?))).collect();
        words.extend(as_group.iter().map(|group| format!("--as-group={group}")));
        words.extend(insecure_skip_tls_verify.then(|| "--insecure-skip-tls-verify".to_owned()));
        words
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches};

    use super::*;

    #[test]
    fn the_flags_of_a_cluster_as_words_are_the_same_flags() {
        let given = [
            "--context=a b",
            "--kubeconfig=/k/c",
            "--namespace=n",
            "--cluster=c",
            "--user=u",
            "--server=https://s",
            "--token=t",
            "--as=x",
            "--as-uid=1",
            "--certificate-authority=/ca",
            "--client-certificate=/cc",
            "--client-key=/ck",
            "--tls-server-name=tn",
            "--request-timeout=5s",
            "--as-group=g",
            "--as-group=h",
            "--insecure-skip-tls-verify",
        ];
        let command = || ClusterOptions::augment_args(clap::Command::new("words")).no_binary_name(true);
        let parse = |words: &[String]| ClusterOptions::from_arg_matches(&command().get_matches_from(words)).unwrap();
        let given = given.map(str::to_owned);
        assert_eq!(parse(&given).words(), given);
        // A new flag must be added to `given`, in which --as-group stands twice.
        let flags = command().get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_long().is_some()).count();
        assert_eq!(flags, given.len() - 1);
    }
}
