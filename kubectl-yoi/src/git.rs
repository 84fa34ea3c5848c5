//! The system's git, run in the folder of the person.

use std::io;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::folder_tree::FolderTree;
use crate::show::one_line;

/// Why a clone cannot be used, and what the user does then.
#[derive(Debug, PartialEq, Eq)]
pub struct CloneRefusal {
    pub message: String,
    pub next: String,
}

pub fn refusal(message: impl Into<String>, next: impl Into<String>) -> CloneRefusal {
    CloneRefusal { message: message.into(), next: next.into() }
}

/// How git ended.
pub struct GitAnswer {
    pub success: bool,
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl GitAnswer {
    /// The output of one line, without the line's end. A path may end in a space.
    pub fn line(&self) -> &str {
        self.out.trim_end_matches(['\n', '\r'])
    }
}

/// git with these arguments. It asks nobody, and takes no lock that it can do without. In a folder without git it sees the repository that stands for it.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new("git");
    if let Some(tree) = FolderTree::find() {
        command.env("GIT_DIR", tree.repository).env("GIT_WORK_TREE", tree.root);
    }
    command.args(args).env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0").env("GIT_NO_REPLACE_OBJECTS", "1");
    command.env("GIT_OPTIONAL_LOCKS", "0").kill_on_drop(true).stdin(Stdio::null());
    command
}

/// Runs git to its end.
///
/// # Errors
/// It cannot be started. That it failed is no error here.
pub async fn answer(mut command: Command) -> Result<GitAnswer, CloneRefusal> {
    let output = command.output().await.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => refusal("there is no git on this machine", "install git, and make sure that it is on PATH"),
        _ => refusal(format!("git cannot be started: {error}"), "try again"),
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(GitAnswer { success: output.status.success(), code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) })
}

/// Why git opens no repository here, in its words.
pub fn no_repository(answer: &GitAnswer) -> CloneRefusal {
    not_opened(&std::env::current_dir().unwrap_or_default(), answer.err.trim())
}

/// It leaves alone one that belongs to another user, for one.
fn not_opened(here: &Path, words: &str) -> CloneRefusal {
    let words = one_line(words);
    match here.ancestors().find(|folder| folder.join(".git").exists()) {
        Some(folder) => {
            let owner = owner_of(folder).map(|uid| format!(", as `sudo -u '#{uid}' kubectl yoi` does")).unwrap_or_default();
            refusal(
                format!("git does not open the repository in {}: {words}", folder.display()),
                format!("run it as the user whom {} belongs to{owner}", folder.display()),
            )
        }
        None => refusal(format!("{} is in no git repository: {words}", here.display()), "run it in a clone of the project's repository"),
    }
}

#[cfg(unix)]
fn owner_of(folder: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata(folder).ok()?.uid())
}

#[cfg(not(unix))]
fn owner_of(_folder: &Path) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_that_git_does_not_open_is_named_with_its_owner_and_a_folder_in_none_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().join("sub");
        std::fs::create_dir(&here).unwrap();
        let none = not_opened(&here, "fatal: not a git repository");
        assert_eq!(none.next, "run it in a clone of the project's repository");
        std::fs::create_dir(folder.path().join(".git")).unwrap();
        let other = not_opened(&here, "fatal: detected dubious ownership");
        assert!(other.message.contains("dubious ownership") && !other.message.contains("in no git repository"), "{other:?}");
        assert!(other.next.contains(&folder.path().display().to_string()), "{other:?}");
    }
}
