//! What a client of SSH is told of one agent.

use std::path::PathBuf;

use yoi_wire::ssh::SshHost;

use super::folder::PersonFolder;
use crate::args::ClusterOptions;
use crate::cluster::{Cluster, context_name};
use crate::error::Error;

/// One agent as a host.
pub struct Client {
    /// Its name for clients.
    pub alias: String,
    /// The file that has its key.
    pub host_file: PathBuf,
    user: String,
    key_file: PathBuf,
    /// The command that carries a connection.
    proxy: String,
}

impl Client {
    pub fn new(cluster: &Cluster, options: &ClusterOptions, folder: &PersonFolder, name: &str, host: &SshHost) -> Result<Self, Error> {
        let alias = format!("{name}.{}.yoi", cluster.namespace);
        let context = context_name(options);
        let program = this_program()
            .map_err(|error| Error::local("find the path of this program", error, "call it by its path: /path/to/kubectl-yoi ssh NAME"))?;
        let mut words = vec![program, "ssh".to_owned(), "--stdio".to_owned()];
        words.push(format!("--ssh-folder={}", folder.path().display()));
        words.extend(options.pinned(context.clone(), &cluster.namespace).words());
        words.push(name.to_owned());
        // The same name in two contexts is two hosts.
        let place = context.or_else(|| options.server.clone()).unwrap_or_default();
        Ok(Client {
            host_file: folder.host_file(&format!("{alias}@{place}")),
            alias,
            user: host.user.clone(),
            key_file: folder.key_file(),
            proxy: words.iter().map(|word| proxy_word(word)).collect::<Vec<_>>().join(" "),
        })
    }

    /// As options of ssh.
    pub fn options(&self) -> [(&'static str, String); 13] {
        let file = |path: &PathBuf| format!("\"{}\"", path.display().to_string().replace('%', "%%"));
        [
            ("ProxyCommand", self.proxy.clone()),
            ("User", self.user.clone()),
            ("IdentityFile", file(&self.key_file)),
            ("IdentitiesOnly", "yes".to_owned()),
            ("PreferredAuthentications", "publickey".to_owned()),
            ("HostKeyAlias", self.alias.clone()),
            ("UserKnownHostsFile", file(&self.host_file)),
            ("GlobalKnownHostsFile", if cfg!(windows) { "NUL" } else { "/dev/null" }.to_owned()),
            ("StrictHostKeyChecking", "yes".to_owned()),
            ("UpdateHostKeys", "no".to_owned()),
            // What an agent does with a socket of the person's is the agent's.
            ("ForwardAgent", "no".to_owned()),
            ("ForwardX11", "no".to_owned()),
            ("LogLevel", "ERROR".to_owned()),
        ]
    }

    /// As a block of ssh's configuration.
    pub fn block(&self, name: &str, host: &SshHost) -> String {
        let lines = self.options().map(|(option, value)| format!("  {option} {value}\n")).concat();
        format!("# the agent {name}; its tree is at {}\nHost {}\n{lines}\n", host.path.escape_debug(), self.alias)
    }
}

/// The path of this program, for a line that calls it later. Where a newer one has replaced it meanwhile, Linux adds a word to the path, which goes.
pub fn this_program() -> std::io::Result<String> {
    let path = std::env::current_exe()?.display().to_string();
    Ok(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned())
}

/// A word of a command that ssh has a shell run; a percent sign begins a placeholder there.
fn proxy_word(word: &str) -> String {
    let word = word.replace('%', "%%");
    // The shell of Windows knows these quotes only.
    if cfg!(windows) { format!("\"{word}\"") } else { quoted(&word) }
}

/// One word for a shell.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word_whatever_is_in_it() {
        for (word, wanted) in
            [("a-b_c/d.e", "a-b_c/d.e"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("$(x)", "'$(x)'"), ("a;b", "'a;b'")]
        {
            assert_eq!(quoted(word), wanted);
        }
        if cfg!(unix) {
            assert_eq!(proxy_word("--context=50%h"), "--context=50%%h");
        }
    }
}
