//! The clone whose working tree is sent, or the folder without git. Nothing of it is written but a folder of ours.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use yoi_crds::sync::is_machine_name;
use yoi_worktree::{Captured, Source};

use crate::folder_tree::FolderTree;
use crate::git::{self, CloneRefusal, no_repository, refusal};
use crate::local_clone::{SYNC_FOLDER, quoted};
use crate::show::one_line;

/// The file with the bytes of untracked files that the person has agreed to send.
const AGREED: &str = "agreed";
/// How long another sync of the clone is waited for: it reads the tree, and sends it.
const LOCK_PATIENCE: Duration = Duration::from_secs(120);

/// Folders of the clone at hand.
pub struct Folders {
    /// The top of its working tree.
    pub root: PathBuf,
    /// git's folder of this work tree.
    pub git: PathBuf,
    /// git's folder of all work trees of the clone.
    pub common: PathBuf,
    /// It is no clone: git's folders are ours.
    pub is_ours: bool,
}

impl Folders {
    /// Those of the clone of the working directory.
    pub async fn find() -> Result<Self, CloneRefusal> {
        let words = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir"];
        let answer = git::answer(git::command(&words)).await?;
        if !answer.success {
            return Err(no_repository(&answer));
        }
        match &answer.out.lines().map(PathBuf::from).collect::<Vec<_>>()[..] {
            [root, git, common] => {
                let is_ours = FolderTree::find().is_some();
                Ok(Folders { root: root.clone(), git: git.clone(), common: common.clone(), is_ours })
            }
            _ => Err(refusal("git names no folder of this repository", "look at it: git rev-parse --show-toplevel --git-common-dir")),
        }
    }

    /// What only one `sync --watch` of a clone has open.
    pub fn lock_watch(&self) -> Result<File, CloneRefusal> {
        let (file, is_locked) = open_lock(&self.common.join(SYNC_FOLDER), "watch.lock")?;
        if is_locked {
            Ok(file)
        } else {
            Err(refusal("another `sync --watch` of this clone is under way", "end that one, or leave it to it"))
        }
    }
}

/// Lets a repository of ours stand for the folder at hand where there is none, and the project, which is cloned from `url`, has none either.
///
/// # Errors
/// The project is cloned from a server, and this folder is no clone.
pub async fn prepare(url: Option<&str>) -> Result<(), CloneRefusal> {
    match (FolderTree::find(), url) {
        (Some(tree), Some(_)) => Err(refusal(
            format!("{} is in no git repository, and the project is one of a server", tree.root.display()),
            "run it in a clone of the project's repository",
        )),
        (None, None) => {
            // One that git does not open says so later.
            let has_git = std::env::current_dir().is_ok_and(|here| here.ancestors().any(|folder| folder.join(".git").exists()));
            let answer = git::answer(git::command(&["rev-parse", "--git-dir"])).await?;
            if answer.success || has_git { Ok(()) } else { FolderTree::of_here()?.make() }
        }
        (Some(_), None) | (None, Some(_)) => Ok(()),
    }
}

/// A clone of the project's repository, or a folder of a project that has none.
pub struct SyncedClone {
    source: Source,
    private: PathBuf,
    /// The remote that the project is cloned from; `None` where no remote can be.
    remote: Option<String>,
    /// What git is in the middle of, if anything.
    under_way: Option<String>,
    /// While it is open, no other sync works in the private folder.
    _lock: File,
}

impl SyncedClone {
    /// That of the working directory, for a project that is cloned from `url`, or has no repository.
    pub async fn open(url: Option<&str>) -> Result<Self, CloneRefusal> {
        prepare(url).await?;
        let Folders { root, git: _, common, is_ours: _ } = Folders::find().await?;
        let source = FolderTree::find().map_or(Source::WorkTree(root), |tree| tree.source());
        let private = common.join(SYNC_FOLDER);
        let lock = lock(&private).await?;
        let under_way = yoi_worktree::check_free(&source).err().map(|under_way| one_line(&under_way.to_string()));
        let remote = match url {
            Some(url) => remote_of(url).await?,
            None => None,
        };
        Ok(SyncedClone { source, private, remote, under_way, _lock: lock })
    }

    /// The working tree.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What git is in the middle of, in a sentence: its tree is taken as it is.
    pub fn under_way(&self) -> Option<&str> {
        self.under_way.as_deref()
    }

    /// Where captures keep their index and their objects.
    pub fn private(&self) -> &Path {
        &self.private
    }

    /// Bytes of untracked files that the person has agreed to send from this clone.
    pub fn agreed(&self) -> u64 {
        let text = std::fs::read_to_string(self.private.join(AGREED)).unwrap_or_default();
        text.trim().parse().unwrap_or_default()
    }

    /// Remembers what the person has agreed to.
    pub fn agree(&self, bytes: u64) -> Result<(), CloneRefusal> {
        std::fs::write(self.private.join(AGREED), format!("{bytes}\n")).map_err(|error| unwritable(&self.private, &error))
    }

    /// The commits below `captured` that the project's server has, as far as the last fetch has told: those that what it lacks begins on.
    pub async fn on_server(&self, captured: &Captured) -> Result<Vec<String>, CloneRefusal> {
        let (Some(base), Some(remote)) = (&captured.base, &self.remote) else { return Ok(Vec::new()) };
        let remotes = format!("--remotes={remote}");
        let lacking = run(&["rev-list", "--boundary", base, "--not", &remotes]).await?;
        if lacking.lines().all(|line| line.starts_with('-')) {
            return Ok(vec![base.clone()]);
        }
        Ok(lacking.lines().filter_map(|line| line.strip_prefix('-')).map(str::to_owned).collect())
    }

    /// Whether `commit`, which this clone has sent, holds the same tree on top of the same commit.
    pub async fn is_same(&self, commit: &str, captured: &Captured) -> Result<bool, CloneRefusal> {
        let mut command = git::command(&["rev-list", "--no-walk", "--parents", "--format=%T", commit]);
        command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.private.join("objects")));
        let answer = git::answer(command).await?;
        // `commit HASH PARENT`, and the tree. Of another clone of this machine it is not known.
        let wanted = match &captured.base {
            Some(base) => format!("commit {commit} {base}\n{}", captured.tree),
            None => format!("commit {commit}\n{}", captured.tree),
        };
        Ok(answer.success && answer.out.trim_end() == wanted)
    }
}

/// Opens a file of the folder of ours, and says whether it could be locked.
fn open_lock(private: &Path, name: &str) -> Result<(File, bool), CloneRefusal> {
    let failed = |error| unwritable(private, &error);
    std::fs::create_dir_all(private).map_err(failed)?;
    let file = File::create(private.join(name)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok((file, true)),
        Err(std::fs::TryLockError::WouldBlock) => Ok((file, false)),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Waits for another sync, as `run` meets one that watches.
async fn lock(private: &Path) -> Result<File, CloneRefusal> {
    let (file, is_locked) = open_lock(private, "lock")?;
    if is_locked {
        return Ok(file);
    }
    // A thread that nobody waits for ends with the process.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || sender.send(file.lock().map(|()| file)));
    match tokio::time::timeout(LOCK_PATIENCE, receiver).await {
        Ok(Ok(locked)) => locked.map_err(|error| unwritable(private, &error)),
        Ok(Err(_)) | Err(_) => Err(refusal("another sync of this clone is under way", "wait for it, and say it again")),
    }
}

fn unwritable(private: &Path, error: &std::io::Error) -> CloneRefusal {
    refusal(format!("{} cannot be written: {error}", private.display()), "look at the folder's owner and room, and say it again")
}

/// The remote of this address, or else the only one.
async fn remote_of(url: &str) -> Result<Option<String>, CloneRefusal> {
    let remotes = run(&["remote"]).await?;
    for remote in remotes.lines() {
        if run(&["remote", "get-url", remote]).await?.lines().any(|found| plain(found) == plain(url)) {
            return Ok(Some(remote.to_owned()));
        }
    }
    let mut names = remotes.lines();
    Ok(names.next().filter(|_| names.next().is_none()).map(str::to_owned))
}

/// What people write in two ways.
fn plain(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    url.strip_suffix(".git").unwrap_or(url)
}

async fn run(args: &[&str]) -> Result<String, CloneRefusal> {
    let answer = git::answer(git::command(args)).await?;
    if answer.success {
        return Ok(answer.out);
    }
    let verb = args.first().copied().unwrap_or_default();
    Err(refusal(format!("git {verb} failed: {}", one_line(answer.err.trim())), "do what git says, and say it again"))
}

/// The host name as the name of a machine.
pub async fn machine_name() -> Result<String, CloneRefusal> {
    let printed = tokio::process::Command::new("hostname").output().await.ok().filter(|output| output.status.success());
    let printed = printed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let file = || std::fs::read_to_string("/etc/hostname").ok();
    machine_of(&printed.or_else(file).unwrap_or_default())
        .ok_or_else(|| refusal("this machine has no name that is known", "name it: add --machine NAME"))
}

fn machine_of(host: &str) -> Option<String> {
    let first = host.trim().split('.').next().unwrap_or_default();
    let plain: String = first.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(63).collect();
    Some(plain.trim_matches('-').to_owned()).filter(|name| is_machine_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_called_as_its_host_is_without_its_domain() {
        for (host, name) in [("Laptop-7.example.org\n", Some("laptop-7")), ("a_b", Some("a-b")), ("", None), ("...", None), ("--", None)] {
            assert_eq!(machine_of(host).as_deref(), name, "{host}");
        }
        assert_eq!(plain("https://h/p.git/"), plain("https://h/p"));
    }
}
