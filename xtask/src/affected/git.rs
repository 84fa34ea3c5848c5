//! Which files changed, as git says it.

use crate::command::{capture, command};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// Paths below the root, each once and in order: what commits changed since the last common one with `rev`, and what is not committed, also if git does not
/// know it yet. A file that was renamed is two, one of them gone.
pub fn changed_since(root: &Path, rev: &str) -> Result<Vec<String>> {
    let git = |words: &[&str]| capture(command("git", words).current_dir(root));
    let commit = format!("{rev}^{{commit}}");
    // Else it would be an option of git's.
    let is_name = !rev.starts_with('-') && !rev.is_empty();
    let Some(found) = is_name.then(|| git(&["rev-parse", "--verify", "--quiet", &commit])).and_then(Result::ok) else {
        // A repository that git refuses altogether is not the name's fault.
        git(&["rev-parse", "--git-dir"])?;
        bail!("git knows no commit {rev:?} here: name a branch, a tag or a commit of `git log`");
    };
    let base = git(&["merge-base", found.trim(), "HEAD"]).with_context(|| format!("{rev} has no commit in common with HEAD"))?;
    let diff = ["diff", "--name-only", "--no-renames", "-z", base.trim()];
    // Against the files as they are, so commits, the index and what is in neither are all in it.
    let texts = [git(&diff)?, git(&["ls-files", "--others", "--exclude-standard", "-z"])?];
    let mut paths: Vec<String> = texts.iter().flat_map(|text| text.split_terminator('\0')).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for file in ["kept", "committed", "staged", "edited", "removed", "old name", "ä"] {
            fs::write(folder.path().join(file), file).expect("a file");
        }
        fs::write(folder.path().join(".gitignore"), "target\n").expect("a file");
        git(&folder, "init -q -b main");
        git(&folder, "add .");
        git(&folder, "commit -qm first");
        git(&folder, "tag start");
        folder
    }

    fn git(folder: &tempfile::TempDir, words: &str) {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"];
        capture(command("git", identity).args(words.split(' ')).current_dir(folder.path())).expect("git does it");
    }

    fn write(folder: &tempfile::TempDir, file: &str) {
        fs::write(folder.path().join(file), "changed").expect("a file");
    }

    #[test]
    fn what_commits_the_index_and_the_tree_changed_is_found_and_what_others_committed_is_not() {
        let folder = repository();
        git(&folder, "checkout -qb other");
        write(&folder, "of-others");
        git(&folder, "add of-others");
        git(&folder, "commit -qm other");
        git(&folder, "checkout -q main");
        write(&folder, "committed");
        git(&folder, "commit -qam second");
        write(&folder, "staged");
        git(&folder, "add staged");
        write(&folder, "edited");
        write(&folder, "ä");
        write(&folder, "untracked");
        write(&folder, "target");
        fs::remove_file(folder.path().join("removed")).expect("it was there");
        fs::rename(folder.path().join("old name"), folder.path().join("new name")).expect("it was there");
        git(&folder, "add -A -- .gitignore");
        let expected = ["committed", "edited", "new name", "old name", "removed", "staged", "untracked", "ä"];
        for rev in ["start", "other", "HEAD~1"] {
            assert_eq!(changed_since(folder.path(), rev).expect("git knows it"), expected, "{rev}");
        }
        assert!(!changed_since(folder.path(), "HEAD").expect("git knows it").contains(&"committed".to_owned()));
    }

    #[test]
    fn a_name_that_git_does_not_know_is_an_error_that_says_so() {
        let folder = repository();
        for rev in ["mian", "", "--output=file", "0123456789", "start:kept"] {
            let error = changed_since(folder.path(), rev).expect_err("no such commit").to_string();
            assert!(error.contains("git knows no commit") && error.contains(rev), "{error}");
        }
        assert!(!folder.path().join("file").exists());
        let none = tempfile::tempdir().expect("a folder");
        assert!(changed_since(none.path(), "main").is_err_and(|error| error.to_string().contains("not a git repository")));
    }
}
