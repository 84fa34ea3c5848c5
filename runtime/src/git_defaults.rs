//! Git's configuration of an agent, when nobody says otherwise.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, mkdirat, openat2, statat};
use rustix::io::Errno;
use yoi_wire::manifest::AgentManifest;

/// Git takes a file whose size and modification time are those in its index for unchanged. By default it compares inode number and change time, too, which
/// are new in a copied tree: the first `git status` there would read every file.
const STAT: &str = "[core]\n\tcheckStat = minimal\n\ttrustctime = false";
/// HOME outlives the container, so the agent may have left links there. One that leads out of HOME is not followed.
const BENEATH_HOME: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Writes the name and address of the agent, and [`STAT`], to git's configuration of `home`, unless one is there. What the repository's own configuration
/// or the variables `GIT_AUTHOR_NAME` and others say comes before it. The address is of the domain `.invalid`, which nobody can own.
///
/// # Errors
/// The home directory cannot be written, or a link leads out of it.
pub fn write_default(home: &Path, manifest: &AgentManifest) -> io::Result<()> {
    std::fs::create_dir_all(home)?;
    let home = rustix::fs::open(home, FOLDER, Mode::empty())?;
    if statat(&home, ".gitconfig", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    let config = folder(&home, ".config")?;
    let git = folder(&config, "git")?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match openat2(&git, "config", flags, Mode::from_raw_mode(0o666), BENEATH_HOME) {
        Ok(file) => File::from(file),
        Err(Errno::EXIST) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let agent = &manifest.agent;
    let domain = match manifest.project.as_str() {
        "" => format!("{}.invalid", agent.namespace),
        project => format!("{project}.{}.invalid", agent.namespace),
    };
    writeln!(file, "[user]\n\tname = {name}\n\temail = {name}@{domain}\n{STAT}", name = agent.name)
}

/// Opens a folder, and makes it.
fn folder(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => Ok(openat2(parent, name, FOLDER, Mode::empty(), BENEATH_HOME)?),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    fn manifest() -> AgentManifest {
        let gateway = json!({"lines": "", "service": "", "serverName": "", "ca": ""});
        let agent = json!({"namespace": "ns", "name": "a", "uid": "u"});
        let limits = json!({"turnsPerRun": 1, "toolSeconds": 1, "toolOutputBytes": 1});
        let all = json!({"agent": agent, "project": "p", "path": "/t", "builtin": {}, "gateway": gateway, "limits": limits});
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_link_out_of_home_is_not_followed_and_one_within_it_is() {
        for (link, target, is_written) in [
            (".config", "../outside", false),
            (".config/git", "../../outside", false),
            (".config/git/config", "../../../outside/x", false),
            (".config", "dot", true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().join("home");
            for folder in ["outside", "home/dot"] {
                std::fs::create_dir_all(dir.path().join(folder)).unwrap();
            }
            std::fs::create_dir_all(home.join(link).parent().unwrap()).unwrap();
            symlink(target, home.join(link)).unwrap();
            let written = write_default(&home, &manifest());
            assert_eq!(std::fs::read_dir(dir.path().join("outside")).unwrap().count(), 0, "{link} -> {target}: {written:?}");
            let text = std::fs::read_to_string(home.join("dot/git/config")).unwrap_or_default();
            assert_eq!(text.contains("email = a@p.ns.invalid"), is_written, "{link} -> {target}: {written:?}");
        }
    }
}
