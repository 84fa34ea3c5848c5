//! The person's key for agents, and what is known of the keys of agents.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use yoi_wire::ssh::is_public_key;

use crate::args::SshFolder;
use crate::commands::pull::LOOK_AT_DISK;
use crate::error::{Error, RefusalKind};

const KEY: &str = "key";
const KEY_FILE: &str = "id_ed25519";
const KNOWN: &str = "known";

/// The folder, which has a key.
pub struct PersonFolder(PathBuf);

impl PersonFolder {
    /// Opens it. A key is made where there is none: it opens nothing by itself, as whoever comes needs a right on the cluster.
    pub fn open(folder: &SshFolder) -> Result<Self, Error> {
        let path = folder.path().ok_or_else(|| Error::Usage {
            message: "nobody says which folder your key for agents is in".to_owned(),
            next: "give one: --ssh-folder FOLDER".to_owned(),
        })?;
        let path = std::path::absolute(&path).map_err(|error| disk(&path, error))?;
        let folder = PersonFolder(path);
        if !folder.key_file().is_file() {
            folder.make_key()?;
        }
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn key_file(&self) -> PathBuf {
        self.0.join(KEY).join(KEY_FILE)
    }

    /// Without its comment.
    pub fn public_key(&self) -> Result<String, Error> {
        let file = self.key_file().with_extension("pub");
        let text = fs::read_to_string(&file).map_err(|error| Error::local(format!("read {}", file.display()), error, LOOK_AT_DISK))?;
        let key = text.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        if is_public_key(&key) {
            return Ok(key);
        }
        let next = format!("remove the folder {}, and a key is made anew", self.0.join(KEY).display());
        Err(Error::refused_error(format!("read {}", file.display()), "it has no public key of OpenSSH", next, RefusalKind::Other))
    }

    /// The file for the key of an agent.
    pub fn host_file(&self, host: &str) -> PathBuf {
        let escaped = |byte: u8| match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => char::from(byte).to_string(),
            _ => format!("_{byte:02x}"),
        };
        let name: String = host.bytes().map(escaped).collect();
        // A context may have any name, and a file may not.
        self.0.join(KNOWN).join(name.chars().take(200).collect::<String>())
    }

    /// Remembers the key that the gateway has said. In one step: another connection may read it now.
    pub fn know(&self, file: &Path, alias: &str, key: &str) -> Result<(), Error> {
        if !is_public_key(key) {
            let next = "bring gateway, runtime and plugin to one version: kubectl yoi version".to_owned();
            return Err(Error::refused_error(
                format!("come by SSH into {alias}"),
                "the agent's host key is none",
                next,
                RefusalKind::Other,
            ));
        }
        let line = format!("{alias} {key}\n");
        if fs::read_to_string(file).is_ok_and(|known| known == line) {
            return Ok(());
        }
        let beside = self.0.join(KNOWN).join(format!(".{}", uuid::Uuid::new_v4().simple()));
        let write = || {
            fs::create_dir_all(self.0.join(KNOWN))?;
            fs::write(&beside, &line)?;
            fs::rename(&beside, file)
        };
        write().map_err(|error| disk(file, error))
    }

    fn make_key(&self) -> Result<(), Error> {
        let beside = self.0.join(format!(".{}", uuid::Uuid::new_v4().simple()));
        private_folder(&self.0).and_then(|()| private_folder(&beside)).map_err(|error| disk(&beside, error))?;
        let file = beside.join(KEY_FILE);
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "kubectl-yoi", "-f"]).arg(&file).stdin(Stdio::null());
        let made = keygen.output().map_err(|error| not_started("ssh-keygen", &error))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            let next = format!("make one by hand: ssh-keygen -t ed25519 -N '' -f {}", self.key_file().display());
            return Err(Error::refused_error("make a key for agents", said, next, RefusalKind::Other));
        }
        match fs::rename(&beside, self.0.join(KEY)) {
            Ok(()) => Ok(()),
            // Another process has made one meanwhile.
            Err(_) if self.key_file().is_file() => fs::remove_dir_all(&beside).map_err(|error| disk(&beside, error)),
            Err(error) => Err(disk(&self.0.join(KEY), error)),
        }
    }
}

/// Makes a folder, and those above it, that only its owner enters.
pub fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

fn disk(path: &Path, error: io::Error) -> Error {
    Error::local(format!("write {}", path.display()), error, LOOK_AT_DISK)
}

/// A program of OpenSSH that cannot be started.
pub fn not_started(program: &str, error: &io::Error) -> Error {
    let next = match error.kind() {
        io::ErrorKind::NotFound => "install OpenSSH's client: the package openssh-client on Debian, openssh-clients on Fedora",
        _ => "try again",
    };
    Error::refused_error(format!("start {program}"), error.to_string(), next, RefusalKind::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_of_each_context_has_a_file_of_its_own_below_the_folder() {
        let folder = PersonFolder("/f".into());
        let names = ["a.n.yoi@c", "a.n.yoi@C", "a.n.yoi@c/d", "a.n.yoi@c_2fd", "a.n.yoi@../../x", "a.n.yoi@"];
        let files: std::collections::BTreeSet<PathBuf> = names.iter().map(|name| folder.host_file(name)).collect();
        assert!(files.len() == names.len() && files.iter().all(|file| file.parent() == Some(Path::new("/f/known"))), "{files:?}");
    }
}
