//! Git's configuration of an agent, when nobody says otherwise.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use yoi_wire::manifest::AgentManifest;

/// Git takes a file whose size and modification time are those in its index for unchanged. By default it compares inode number and change time, too, which
/// are new in a copied tree: the first `git status` there would read every file.
const STAT: &str = "[core]\n\tcheckStat = minimal\n\ttrustctime = false";

/// Writes the name and address of the agent, and [`STAT`], to git's configuration of `home`, unless one is there. What the repository's own configuration
/// or the variables `GIT_AUTHOR_NAME` and others say comes before it. The address is of the domain `.invalid`, which nobody can own.
///
/// # Errors
/// The home directory cannot be written.
pub fn write_default(home: &Path, manifest: &AgentManifest) -> io::Result<()> {
    let (folder, agent) = (home.join(".config/git"), &manifest.agent);
    if home.join(".gitconfig").exists() {
        return Ok(());
    }
    fs::create_dir_all(&folder)?;
    let mut file = match File::create_new(folder.join("config")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    };
    let domain = match manifest.project.as_str() {
        "" => format!("{}.invalid", agent.namespace),
        project => format!("{project}.{}.invalid", agent.namespace),
    };
    writeln!(file, "[user]\n\tname = {name}\n\temail = {name}@{domain}\n{STAT}", name = agent.name)
}
