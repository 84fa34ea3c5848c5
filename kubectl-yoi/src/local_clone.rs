//! The clone at hand, of which only one branch is ever written. Work tree, index and what is checked out stay as they are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use yoi_wire::bundle::BRANCHES;
use yoi_worktree::{BundleHeader, is_hash};

use crate::bundle_file::BundleFile;
use crate::folder_tree::FolderTree;
use crate::git::{self, CloneRefusal, GitAnswer, no_repository, refusal};
use crate::show::one_line;

/// The folder of a repository in which `sync` keeps what it has captured.
pub const SYNC_FOLDER: &str = "yoi/sync";

/// What a person reads of a hash.
pub fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

pub struct LocalClone {
    objects: PathBuf,
}

/// Where git finds objects: in the clone, or also among those that are only looked at.
#[derive(Clone, Copy)]
enum Objects<'a> {
    OfClone,
    WithBundle(&'a BundleFile),
}

impl LocalClone {
    /// The repository of the working directory.
    pub async fn open() -> Result<Self, CloneRefusal> {
        let clone = LocalClone { objects: PathBuf::new() };
        let answer = clone.try_git(Objects::OfClone, &["rev-parse", "--path-format=absolute", "--git-path", "objects"], None).await?;
        if !answer.success {
            return Err(no_repository(&answer));
        }
        Ok(LocalClone { objects: PathBuf::from(answer.line()) })
    }

    /// The commit of a branch.
    pub async fn branch(&self, branch: &str) -> Result<Option<String>, CloneRefusal> {
        let name = format!("{BRANCHES}{branch}^{{commit}}");
        let answer = self.try_git(Objects::OfClone, &["rev-parse", "--verify", "--quiet", &name], None).await?;
        Ok(Some(answer.out.trim().to_owned()).filter(|hash| answer.success && is_hash(hash)))
    }

    /// Refuses a branch that a work tree of the clone has checked out.
    pub async fn check_not_checked_out(&self, branch: &str) -> Result<(), CloneRefusal> {
        let list = self.git(Objects::OfClone, &["worktree", "list", "--porcelain"]).await?;
        let mut tree = "";
        for line in list.lines() {
            if let Some(path) = line.strip_prefix("worktree ") {
                tree = path;
            } else if line.strip_prefix("branch ").and_then(|name| name.strip_prefix(BRANCHES)) == Some(branch) {
                return Err(refusal(
                    format!("branch {branch} is checked out in {tree}, and what is checked out is left alone"),
                    "check out another branch there, or take another one for the agent's commits: add `--branch BRANCH`",
                ));
            }
        }
        Ok(())
    }

    async fn has(&self, commit: &str) -> Result<bool, CloneRefusal> {
        let name = format!("{commit}^{{commit}}");
        Ok(self.try_git(Objects::OfClone, &["cat-file", "-e", &name], None).await?.success)
    }

    /// Packs into the folder of objects `into` what `commit`, a working tree that this clone has synced, has more than its branches. Returns whether it is
    /// such a commit.
    async fn pack_synced(&self, bundle: &BundleFile, commit: &str, into: &Path) -> Result<bool, CloneRefusal> {
        let failed =
            |error: std::io::Error| refusal(format!("{} cannot be written: {error}", into.display()), "look at its room, and pull again");
        let synced = git::command(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        let synced = Path::new(git::answer(synced).await?.line()).join(SYNC_FOLDER).join("objects");
        let with_synced = |args: &[&str]| {
            let mut command = git::command(args);
            command.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&synced));
            command
        };
        if !git::answer(with_synced(&["cat-file", "-e", &format!("{commit}^{{commit}}")])).await?.success {
            return Ok(false);
        }
        let wanted = bundle.folder().join("synced");
        let without = self.git(Objects::OfClone, &["rev-parse", "--not", "--all"]).await?;
        std::fs::write(&wanted, format!("{commit}\n{without}")).map_err(failed)?;
        std::fs::create_dir_all(into.join("pack")).map_err(failed)?;
        let pack = into.join("pack/pack");
        let args = ["pack-objects", "--revs", "--quiet", "--delta-base-offset", &pack.to_string_lossy()];
        let mut command = with_synced(&args);
        command.stdin(Stdio::from(File::open(&wanted).map_err(failed)?));
        let answer = git::answer(command).await?;
        if answer.success { Ok(true) } else { Err(failed_git(&args, &answer)) }
    }

    /// Whether the clone has this commit, or has synced it: then its objects are where those of the bundle are looked at.
    async fn check_has(&self, bundle: &BundleFile, commit: &str) -> Result<(), CloneRefusal> {
        if self.has(commit).await? || self.pack_synced(bundle, commit, &bundle.objects()).await? {
            return Ok(());
        }
        if let Some(tree) = FolderTree::find() {
            let message = format!(
                "what was sent as commit {commit}, which the agent's work is made on top of, is not in {} any more",
                tree.repository.display()
            );
            return Err(refusal(message, "see what the agent has done, and take what you want: kubectl yoi diff, kubectl yoi patch"));
        }
        Err(refusal(
            format!("this clone does not have commit {commit}, which the agent's work is made on top of"),
            "fetch it with `git fetch`, and pull again; is this a clone of the project's repository?",
        ))
    }

    /// Looks at the bundle's objects in a folder of their own. The clone is only read.
    ///
    /// # Errors
    /// The bundle needs commits that the clone does not have, an object is broken or missing, or a commit does not descend from `base`.
    pub async fn check_bundle(
        &self,
        bundle: &BundleFile,
        header: &BundleHeader,
        commit: &str,
        base: Option<&str>,
    ) -> Result<(), CloneRefusal> {
        for needed in header.prerequisites.iter().map(String::as_str).chain(base) {
            self.check_has(bundle, needed).await?;
        }
        let path = bundle.path();
        self.git(Objects::WithBundle(bundle), &["bundle", "verify", "--quiet", &path.to_string_lossy()]).await.map_err(broken)?;
        let pack = bundle.pack(header).map_err(|error| refusal(format!("its bundle cannot be read: {error}"), "pull again"))?;
        let looked_at = Objects::WithBundle(bundle);
        let unpacked = self.try_git(looked_at, &["index-pack", "--strict", "--fix-thin", "--stdin"], Some(pack)).await?;
        if !unpacked.success {
            return Err(broken(refusal(one_line(unpacked.err.trim()), "")));
        }
        if self.try_git(looked_at, &["cat-file", "-e", &format!("{commit}^{{commit}}")], None).await?.success {
            let Some(base) = base else { return Ok(()) };
            return self.check_history(looked_at, commit, base).await;
        }
        Err(broken(refusal(format!("it does not hold commit {commit}"), "")))
    }

    async fn check_history(&self, objects: Objects<'_>, commit: &str, base: &str) -> Result<(), CloneRefusal> {
        const NEXT: &str = "have a look at what the agent did: kubectl yoi log and kubectl yoi diff";
        if !self.is_ancestor(objects, base, commit).await? {
            let message = format!("its commit {commit} is not made on top of {base}, the commit that its tree was made from");
            return Err(refusal(message, NEXT));
        }
        let roots = self.git(objects, &["rev-list", "--count", "--max-parents=0", commit, &format!("^{base}"), "--"]).await?;
        if roots.trim() != "0" {
            return Err(refusal(format!("a foreign history was merged into its commit {commit}"), NEXT));
        }
        Ok(())
    }

    /// Whether `branch`, which is at `old`, can go on to `commit` of the bundle. `None`: it is there already.
    pub async fn check_goes_on(&self, bundle: &BundleFile, branch: &str, old: &str, commit: &str) -> Result<Option<()>, CloneRefusal> {
        let objects = Objects::WithBundle(bundle);
        if self.is_ancestor(objects, old, commit).await? {
            return Ok((old != commit).then_some(()));
        }
        Err(refusal(
            format!("branch {branch} is at {old}, which is no ancestor of the agent's commit {commit}, and nothing is thrown away"),
            "take another branch: add `--branch BRANCH`; or delete this one, if nobody needs it",
        ))
    }

    async fn is_ancestor(&self, objects: Objects<'_>, old: &str, new: &str) -> Result<bool, CloneRefusal> {
        let args = ["merge-base", "--is-ancestor", old, new];
        let answer = self.try_git(objects, &args, None).await?;
        match answer.code {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failed_git(&args, &answer)),
        }
    }

    /// Fetches `name` of the bundle to the branch. git refuses what is no fast-forward, and a branch that was checked out meanwhile.
    pub async fn fetch(&self, bundle: &BundleFile, name: &str, branch: &str) -> Result<(), CloneRefusal> {
        let header = bundle.header().map_err(|error| refusal(format!("its bundle cannot be read: {error}"), "pull again"))?;
        for needed in &header.prerequisites {
            if !self.has(needed).await? {
                // A branch is to lead to it from now on.
                self.pack_synced(bundle, needed, &self.objects).await?;
            }
        }
        let refspec = format!("{name}:{BRANCHES}{branch}");
        let path = bundle.path();
        let path = path.to_string_lossy();
        // Whatever the user's own configuration says about fetches: one ref, and nothing else.
        let strict = ["-c", "transfer.fsckObjects=true", "-c", "fetch.fsckObjects=true", "-c", "protocol.file.allow=always"];
        let only =
            ["fetch", "--quiet", "--no-tags", "--no-prune", "--no-recurse-submodules", "--no-write-fetch-head", "--no-auto-maintenance"];
        let args = [&strict[..], &only[..], &[&*path, &*refspec]].concat();
        self.git(Objects::OfClone, &args).await.map(drop)
    }

    async fn git(&self, objects: Objects<'_>, args: &[&str]) -> Result<String, CloneRefusal> {
        let answer = self.try_git(objects, args, None).await?;
        if answer.success { Ok(answer.out) } else { Err(failed_git(args, &answer)) }
    }

    async fn try_git(&self, objects: Objects<'_>, args: &[&str], stdin: Option<File>) -> Result<GitAnswer, CloneRefusal> {
        let mut command = git::command(args);
        if let Some(file) = stdin {
            command.stdin(Stdio::from(file));
        }
        if let Objects::WithBundle(bundle) = objects {
            command.env("GIT_OBJECT_DIRECTORY", bundle.objects()).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&self.objects));
        }
        git::answer(command).await
    }
}

/// A path in a list, as git reads one: a name may hold the character that parts names.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn failed_git(args: &[&str], answer: &GitAnswer) -> CloneRefusal {
    let verb = args.iter().find(|arg| !arg.starts_with('-') && !arg.contains('=')).unwrap_or(&"");
    refusal(format!("git {verb} failed: {}", one_line(answer.err.trim())), "do what git says, and pull again")
}

fn broken(why: CloneRefusal) -> CloneRefusal {
    refusal(
        format!("its bundle is broken, and nothing of it was taken: {}", why.message),
        "pull again; see what the agent did: kubectl yoi diff",
    )
}
