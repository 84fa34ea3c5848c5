//! What the model is told of the tree: its instructions, the date, the platform and the state of git.

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use yoi_assets::TEAM_INSTRUCTIONS;

use crate::processes::ProcessSupervisor;
use crate::tools::output_limit::truncate;
use crate::tools::tree::Tree;

/// Files with instructions for agents, in this order within one folder.
const INSTRUCTION_FILES: [&str; 4] = ["AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md"];
/// Bytes of the whole text.
const MAX_BYTES: usize = 32 << 10;
/// Bytes of one file of instructions.
const MAX_FILE_BYTES: u64 = 16 << 10;
/// How long git may take. In a tree of any size it either has an index that answers at once, or is left out.
const GIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of git's list of changes.
const MAX_STATUS_BYTES: usize = 1 << 20;

/// What the text is formed from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TreeFacts {
    root: PathBuf,
    /// Where commands start, relative to the root, if not in it.
    directory: Option<PathBuf>,
    date: String,
    platform: String,
    git: Option<GitState>,
    instructions: Vec<Instructions>,
}

/// State of the repository at the root of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct GitState {
    /// `None` when no branch is checked out.
    branch: Option<String>,
    /// `None` before the first commit.
    commit: Option<String>,
    /// Files that differ from the commit, new ones included.
    changed: usize,
    /// There are more than were counted.
    more: bool,
}

/// A file of instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Instructions {
    path: String,
    text: String,
    /// The file is longer.
    cut: bool,
    /// It is of a team's set, and not of the tree.
    of_set: bool,
}

impl Instructions {
    /// As the model reads them.
    fn to_text(&self) -> String {
        let cut = match (self.cut, self.of_set) {
            (true, false) => "\n[cut here; Read has the rest]\n",
            (true, true) => "\n[cut here: it is longer than 16 KiB]\n",
            (false, _) => "",
        };
        format!("Instructions of {}:\n{}\n{cut}", self.path, self.text.trim_end())
    }
}

/// The files of instructions that hold for work in a folder, those of the outermost first, without the root's, which the prompt has: the path of each, and
/// what the model is told of it. A copy or a link of another one is told once. `given` is a path of the tree; where it leads elsewhere or nowhere, there are none.
pub(crate) fn folder_instructions(tree: &Tree, given: &str) -> Vec<(String, String)> {
    let Ok(folder) = tree.locate(given) else { return Vec::new() };
    let folders: Vec<&Path> = folder.ancestors().filter(|folder| !matches!(folder.to_str(), None | Some("" | "."))).collect();
    let mut found: Vec<Instructions> = Vec::new();
    for folder in folders.into_iter().rev() {
        for path in INSTRUCTION_FILES.map(|name| folder.join(name)) {
            if let Some(one) = path.to_str().and_then(|path| read(tree, path))
                && found.iter().all(|other| other.text != one.text)
            {
                found.push(one);
            }
        }
    }
    found.into_iter().map(|one| (one.path.clone(), one.to_text())).collect()
}

/// Returns what the model is told of the tree, in at most 32 KiB. `directory`, relative to the root, is where the agent works: instructions
/// of the folders between it and the root count too, the nearest first, and those of the team's `sets` after them. `platform` is told as it is. What cannot be
/// found out is left out.
pub async fn tree_context(
    processes: &ProcessSupervisor,
    tree: &Tree,
    sets: &[(String, Tree)],
    directory: Option<&Path>,
    now: SystemTime,
    platform: &str,
) -> String {
    let facts = TreeFacts {
        directory: directory.map(Path::to_owned),
        root: processes.root().to_owned(),
        date: date(now),
        platform: platform.to_owned(),
        git: git_state(processes).await,
        instructions: instructions(tree, sets, directory),
    };
    render(&facts)
}

/// The day in UTC, with the day of the week.
fn date(now: SystemTime) -> String {
    match jiff::Timestamp::try_from(now) {
        Ok(now) => now.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%d (%A), UTC").to_string(),
        Err(_) => "unknown".to_owned(),
    }
}

fn render(facts: &TreeFacts) -> String {
    let TreeFacts { root, directory, date, platform, git, instructions } = facts;
    let mut text = format!("Tree: {}\n", root.display());
    if let Some(directory) = directory {
        text.push_str(&format!("Commands start in: {}. Paths of other tools are relative to the tree.\n", root.join(directory).display()));
    }
    text.push_str(&format!("Date: {date}\nPlatform: {platform}\n"));
    match git {
        Some(GitState { branch, commit, changed, more }) => {
            let branch = branch.as_deref().map_or("no branch".to_owned(), |branch| format!("branch {branch}"));
            let commit = commit.as_deref().map_or("no commit yet".to_owned(), |commit| format!("commit {commit}"));
            let changed = match (changed, more) {
                (0, _) => "no changes".to_owned(),
                (1, false) => "1 changed file".to_owned(),
                (changed, false) => format!("{changed} changed files"),
                (changed, true) => format!("more than {changed} changed files"),
            };
            text.push_str(&format!("Git: {branch}, {commit}, {changed}\n"));
        }
        None => text.push_str("Git: no repository\n"),
    }
    for one in instructions {
        text.push_str(&format!("\n{}", one.to_text()));
    }
    truncate(text, MAX_BYTES)
}

/// The files of instructions, those of the nearest folder first, and those of the sets last. Without a directory only the root is looked at.
fn instructions(tree: &Tree, sets: &[(String, Tree)], directory: Option<&Path>) -> Vec<Instructions> {
    let mut found: Vec<Instructions> = Vec::new();
    for folder in directory.unwrap_or(Path::new("")).ancestors() {
        for name in INSTRUCTION_FILES {
            let path = folder.join(name);
            let Some(path) = path.to_str() else { continue };
            // A link counts if it stays in the tree. A file that is a link to another, or a copy of it, is told once.
            if let Some(one) = read(tree, path)
                && found.iter().all(|other| other.text != one.text)
            {
                found.push(one);
            }
        }
    }
    for (set, root) in sets {
        if let Some(one) = read(root, TEAM_INSTRUCTIONS)
            && found.iter().all(|other| other.text != one.text)
        {
            // No tool reads there.
            found.push(Instructions { path: format!("{set}/{}", one.path), of_set: true, ..one });
        }
    }
    found
}

fn read(tree: &Tree, path: &str) -> Option<Instructions> {
    let mut content = Vec::new();
    tree.read(path).ok()?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).ok()?;
    let cut = content.len() as u64 > MAX_FILE_BYTES;
    let text = String::from_utf8_lossy(&content);
    let text = text[..text.floor_char_boundary(MAX_FILE_BYTES as usize)].to_owned();
    (!text.trim().is_empty()).then(|| Instructions { path: path.to_owned(), text, cut, of_set: false })
}

/// `None` when the root of the tree is in no repository, git is not installed, or it takes too long.
async fn git_state(processes: &ProcessSupervisor) -> Option<GitState> {
    let mut env: Vec<(&str, &OsStr)> = crate::tree_git::ENV.map(|(name, value)| (name, OsStr::new(value))).to_vec();
    // Nothing is written to the repository.
    env.extend([("GIT_OPTIONAL_LOCKS", OsStr::new("0")), ("LC_ALL", OsStr::new("C"))]);
    let without_filters = crate::tree_git::without_filters(processes, "", &env, GIT_TIMEOUT).await.ok()?;
    env.extend(without_filters.iter().map(|(name, value)| (name.as_str(), value.as_os_str())));
    let status = ["status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=all"];
    let args = [&crate::tree_git::ARGS[..], &status].concat();
    let output = processes.capture("git", &args, &env, GIT_TIMEOUT, MAX_STATUS_BYTES).await.ok()?;
    output.success.then(|| parse_status(&output.stdout, output.truncated))
}

/// Reads `git status --porcelain=v2 --branch -z`.
fn parse_status(status: &[u8], truncated: bool) -> GitState {
    let mut state = GitState { more: truncated, ..GitState::default() };
    let mut records = status.split(|byte| *byte == 0).filter(|record| !record.is_empty());
    while let Some(record) = records.next() {
        let record = String::from_utf8_lossy(record);
        if let Some(commit) = record.strip_prefix("# branch.oid ") {
            state.commit = (commit != "(initial)").then(|| commit[..commit.floor_char_boundary(12)].to_owned());
        } else if let Some(branch) = record.strip_prefix("# branch.head ") {
            state.branch = (branch != "(detached)").then(|| branch.to_owned());
        } else if !record.starts_with('#') {
            state.changed += 1;
            if record.starts_with("2 ") {
                // A rename is followed by the name of before.
                records.next();
            }
        }
    }
    state
}

#[cfg(test)]
mod tests;
