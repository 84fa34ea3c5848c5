//! Who the agent is in its commits, when nobody says otherwise.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use yoi_wire::manifest::AgentManifest;

/// Writes the name and address of the agent to git's configuration of `home`, unless one is there. What the repository's own configuration or the
/// variables `GIT_AUTHOR_NAME` and others say comes before it. The address is of the domain `.invalid`, which nobody can own.
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
    writeln!(file, "[user]\n\tname = {name}\n\temail = {name}@{domain}", name = agent.name)
}
