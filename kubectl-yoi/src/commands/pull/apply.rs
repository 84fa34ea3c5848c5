//! `pull --apply`: what an agent has committed, laid on the working tree at hand.

use std::path::Path;

use serde::Serialize;
use yoi_crds::YoiPod;
use yoi_wire::bundle::{InnerRepository, Uncommitted};
use yoi_wire::error_chain;
use yoi_worktree::{Application, Applied, AppliedPath, ApplyError, CaptureError, Outcome, Source, Why, apply};

use super::{OPERATION, PullResult, tell_inner, tell_uncommitted};
use crate::args::{OutputFormat, PullOptions};
use crate::bundle_file::BundleFile;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::folder_tree::source_here;
use crate::git::{self, CloneRefusal, no_repository, refusal};
use crate::local_clone::short;
use crate::show;

const GO: &str = "go to a folder that is there";

/// What became of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ApplyResult {
    agent: String,
    commit: String,
    /// The commit that the agent's tree was made from.
    base: String,
    /// Nothing was written: the outcomes are what would be done.
    dry_run: bool,
    paths: Vec<PathResult>,
    /// How many of them were left alone.
    left_alone: usize,
    /// What an earlier application that was killed has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_behind: Option<String>,
    /// The commit that `--commit` made.
    #[serde(skip_serializing_if = "Option::is_none")]
    committed: Option<String>,
    uncommitted: Uncommitted,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inner_repositories: Vec<InnerRepository>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PathResult {
    /// Relative to the tree's root; bytes that are not UTF-8 are shown as U+FFFD.
    path: String,
    /// All bytes of a path that is not UTF-8, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    outcome: &'static str,
    /// Why it was left alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Where the agent's version is.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
}

/// Refuses a folder without a working tree, or where git is in the middle of something, before anything is asked of the cluster.
pub async fn check_free() -> Result<(), CloneRefusal> {
    let answer = git::answer(git::command(&["rev-parse", "--show-toplevel"])).await?;
    if answer.success {
        let source = source_here().map_err(|error| refusal(format!("the working directory cannot be found: {error}"), GO))?;
        return yoi_worktree::check_free(&source).map_err(|error| why_not(&error));
    }
    Err(match git::answer(git::command(&["rev-parse", "--git-dir"])).await? {
        repository if repository.success => {
            refusal("there is no working tree here, only a repository", "run it in a folder of the clone's working tree")
        }
        _ => no_repository(&answer),
    })
}

/// The refusal of an agent whose tree came from no commit.
pub fn no_base() -> CloneRefusal {
    refusal(
        "its tree was made from no commit, so that there is nothing to tell its changes from yours by",
        "pull onto a branch, without --apply, and look at it there",
    )
}

/// Lays it, and says of each path what happened.
pub fn lay(
    cluster: &Cluster,
    output: Option<OutputFormat>,
    args: &PullOptions,
    bundle: &BundleFile,
    pulled: PullResult,
    base: &str,
    commit: &str,
) -> Result<(), Error> {
    let name = &args.name;
    let refused = |why: CloneRefusal| cluster.refused_error::<YoiPod>(OPERATION, name, why.message, why.next);
    let lost = |error| Error::local("find the working directory", error, GO);
    let (here, source) = (std::env::current_dir().map_err(lost)?, source_here().map_err(lost)?);
    let private = bundle.folder().join("private");
    std::fs::create_dir(&private).map_err(|error| Error::local(format!("make {}", private.display()), error, super::LOOK_AT_DISK))?;
    let asked = Application {
        source: &source,
        here: &here,
        private: &private,
        objects: &bundle.objects(),
        base,
        theirs: commit,
        label: &format!("{name}-{}", short(commit)),
        windows_names: cfg!(windows),
        dry_run: args.dry_run,
    };
    let applied = apply(&asked, &mut || {}).map_err(|error| refused(why_not(&error)))?;
    let left: Vec<&AppliedPath> = applied.paths.iter().filter(|path| matches!(path.outcome, Outcome::LeftAlone(_))).collect();
    let next = match left.iter().find_map(|path| path.kept.as_deref()) {
        Some(kept) => {
            let kept = kept.ancestors().find(|folder| folder.file_name() == Some(asked.label.as_ref())).unwrap_or(kept);
            format!("compare yours with the agent's in {}, and copy what you want", kept.display())
        }
        None if matches!(source, Source::Folder { .. }) => {
            format!("see what the agent has done: {}", cluster.plugin_command(&format!("diff {name}")))
        }
        None => format!("have the agent's version on a branch: {}", cluster.plugin_command(&format!("pull {name}"))),
    };
    let outcome = Error::LeftAlone { what: cluster.display_name::<YoiPod>(name), count: paths(left.len()), dry_run: args.dry_run, next };
    let is_whole = left.is_empty();
    let result = ApplyResult {
        agent: name.clone(),
        commit: commit.to_owned(),
        base: base.to_owned(),
        dry_run: args.dry_run,
        left_alone: left.len(),
        paths: applied.paths.iter().map(path_result).collect(),
        left_behind: applied.left_behind.as_deref().map(text_of),
        committed: pulled.committed,
        uncommitted: pulled.uncommitted,
        inner_repositories: pulled.inner_repositories,
    };
    show::object(output, &result, &format!("yoipod.yoi.dev/{name}"), &table(&applied, args.dry_run, commit, base))?;
    if let Some(folder) = &result.left_behind {
        eprintln!("an earlier --apply was killed; what it had taken out of the way is in {folder}: delete it when you miss nothing");
    }
    tell_uncommitted(cluster, ("pull --apply", "laid on the working tree"), name, &result.uncommitted);
    tell_inner(&result.inner_repositories);
    if is_whole { Ok(()) } else { Err(outcome) }
}

fn paths(count: usize) -> String {
    if count == 1 { "1 path".to_owned() } else { format!("{count} paths") }
}

fn text_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn path_result(path: &AppliedPath) -> PathResult {
    let why = if let Outcome::LeftAlone(why) = &path.outcome { Some(why) } else { None };
    let is_text = std::str::from_utf8(&path.path).is_ok();
    PathResult {
        path: String::from_utf8_lossy(&path.path).into_owned(),
        path_hex: (!is_text).then(|| path.path.iter().map(|byte| format!("{byte:02x}")).collect()),
        outcome: path.outcome.name(),
        reason: why.map(reason),
        message: why.map(|why| show::one_line(&message(why))),
        kept: path.kept.as_deref().map(text_of),
    }
}

/// For people: a row for each path that is not as it was, and a sentence.
fn table(applied: &Applied, dry_run: bool, commit: &str, base: &str) -> String {
    let mut table = show::table(&["path", "what", "why"]);
    let (mut laid, mut same) = (0, 0);
    for path in &applied.paths {
        let (what, why) = match &path.outcome {
            Outcome::Added => ("added", String::new()),
            Outcome::Changed => ("changed", String::new()),
            Outcome::Deleted => ("deleted", String::new()),
            Outcome::Same => ("so already", String::new()),
            Outcome::LeftAlone(why) => ("left alone", message(why)),
        };
        match &path.outcome {
            Outcome::Added | Outcome::Changed | Outcome::Deleted => laid += 1,
            Outcome::Same => same += 1,
            Outcome::LeftAlone(_) => {}
        }
        table.add_row([show::cell(show::quoted_path_bytes(&path.path)), show::cell(what), show::cell(why)]);
    }
    let words = if dry_run { "would be laid on the working tree" } else { "laid on the working tree" };
    let so_already = if same == 0 { String::new() } else { format!(", {same} so already") };
    let rows = if applied.paths.is_empty() { String::new() } else { show::lines(&table) };
    format!("{rows}{} {words}{so_already}: {} since {}", paths(laid), short(commit), short(base))
}

/// For programs.
fn reason(why: &Why) -> &'static str {
    match why {
        Why::BothChanged => "BothChanged",
        Why::InTheWay => "InTheWay",
        Why::Folder => "Folder",
        Why::Below(_) => "BelowFile",
        Why::Repository(_) => "Repository",
        Why::LeftOut => "NotCheckedOut",
        Why::Name(_) => "Name",
        Why::Case(_) => "Case",
        Why::Links => "Links",
        Why::Changing => "Changing",
        Why::OtherDisk => "OtherDisk",
        Why::Failed(_) => "Failed",
    }
}

/// Why a path is left alone, for people.
pub fn message(why: &Why) -> String {
    match why {
        Why::BothChanged => "you have changed it, too".to_owned(),
        Why::InTheWay => "another file of yours is there, which the base does not have".to_owned(),
        Why::Folder => "a folder is there, with something in it that the agent does not have".to_owned(),
        Why::Below(file) => format!("{} is no folder in your tree", show::quoted_path(file)),
        Why::Repository(folder) => format!("{} is a repository of its own", show::quoted_path(folder)),
        Why::LeftOut => "it is not checked out here: git's skip-worktree, as of a sparse checkout".to_owned(),
        Why::Name(why) => (*why).to_owned(),
        Why::Case(other) => format!("this disk cannot tell it from {} (core.ignoreCase)", show::quoted_path(other)),
        Why::Links => "it is a link, and this disk holds none (core.symlinks)".to_owned(),
        Why::Changing => "it was written meanwhile".to_owned(),
        Why::OtherDisk => "it is on another disk than the repository, and cannot be replaced in one step".to_owned(),
        Why::Failed(why) => why.clone(),
    }
}

fn why_not(error: &ApplyError) -> CloneRefusal {
    match error {
        ApplyError::UnderWay(verb) => refusal(
            format!("a {verb} is under way in this working tree, and nothing is laid on it"),
            "finish it, or give it up, as `git status` says; then pull again",
        ),
        ApplyError::Busy => refusal("another --apply is at work on this working tree", "pull again when it has ended"),
        ApplyError::Tree(CaptureError::NoWorkTree { .. }) => {
            refusal(show::one_line(&error.to_string()), "run it in a folder of the clone's working tree")
        }
        ApplyError::Tree(_) => {
            refusal(format!("nothing was laid: {}", show::one_line(&error_chain(error))), "do what git or the disk says, and pull again")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_a_row_for_each_path_and_programs_every_byte_of_it() {
        let path = |path: &[u8], outcome| AppliedPath { path: path.to_vec(), outcome, kept: None };
        let applied = Applied {
            paths: vec![
                path(b"a\x1b[2J", Outcome::Changed),
                path(b"b\xff", Outcome::LeftAlone(Why::Case("B".into()))),
                path(b"c", Outcome::Same),
            ],
            left_behind: None,
        };
        let (commit, base) = ("1".repeat(40), "2".repeat(40));
        let text = table(&applied, false, &commit, &base);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["PATH", "WHAT", "WHY"]);
        assert!(lines[1].starts_with(r#""a\033[2J""#) && lines[1].contains("changed"), "{text}");
        assert!(
            lines[2].starts_with(r#""b\377""#) && lines[2].ends_with("left alone  this disk cannot tell it from B (core.ignoreCase)"),
            "{text}"
        );
        assert_eq!(lines[4], "1 path laid on the working tree, 1 so already: 111111111111 since 222222222222");
        assert_eq!(path_result(&applied.paths[1]).path_hex.as_deref(), Some("62ff"));
        assert_eq!((path_result(&applied.paths[1]).reason, path_result(&applied.paths[0]).path_hex), (Some("Case"), None));
    }
}
