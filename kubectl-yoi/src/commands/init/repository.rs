//! What git says of the clone at hand. It is only read.

use std::path::PathBuf;

use super::remote;
use crate::args::InitOptions;
use crate::git::{self, CloneRefusal, GitAnswer, no_repository, refusal};
use crate::show::{count, one_line};

/// The clone that a project is made of.
pub struct Repository {
    /// The root of the work tree.
    pub root: PathBuf,
    pub url: String,
    pub branch: String,
    /// What is here and not on the server, so that no agent gets it.
    pub notes: Vec<String>,
}

/// Reads the clone of the working directory.
///
/// # Errors
/// There is no git, no repository, no branch, no remote, or an address that cannot be a project's.
pub async fn read(args: &InitOptions) -> Result<Repository, CloneRefusal> {
    let top = try_git(&["rev-parse", "--show-toplevel"]).await?;
    if !top.success || top.line().is_empty() {
        return Err(no_repository(&top));
    }
    let root = PathBuf::from(top.line());
    let local = try_git(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await?;
    let local = Some(local.line().to_owned()).filter(|branch| local.success && !branch.is_empty());
    let Some(branch) = args.branch.clone().or_else(|| local.clone()) else {
        return Err(refusal(
            "no branch is checked out here (detached HEAD), and agents work on what a branch of the server holds",
            "check out a branch, or name one of the server's: --branch BRANCH",
        ));
    };
    let of_branch = config(&format!("branch.{branch}.remote")).await?.filter(|remote| remote != ".");
    let remote = match &args.url {
        Some(_) => args.remote.clone().or(of_branch.clone()),
        None => Some(chosen_remote(args, of_branch.clone()).await?),
    };
    let url = match (&args.url, &remote) {
        (Some(url), _) => remote::reachable(&format!("--url {url}"), url)?,
        (None, Some(remote)) => address(remote).await?,
        (None, None) => return Err(no_remote()),
    };
    // On the server it may have another name.
    let merge = if args.branch.is_none() && of_branch == remote { config(&format!("branch.{branch}.merge")).await? } else { None };
    let on_server = merge.as_deref().and_then(|name| name.strip_prefix("refs/heads/")).unwrap_or(&branch).to_owned();
    check_ref(&on_server)?;
    let mut notes = Vec::new();
    // What is sent need not be there.
    if local.as_ref() == Some(&branch) && !args.sync {
        notes = not_on_server(remote.as_deref(), &branch, &on_server).await?;
    }
    Ok(Repository { root, url, branch: on_server, notes })
}

/// The remote that is named, the branch's, `origin`, or the only one.
async fn chosen_remote(args: &InitOptions, of_branch: Option<String>) -> Result<String, CloneRefusal> {
    let answer = try_git(&["remote"]).await?;
    let remotes: Vec<&str> = answer.out.lines().collect();
    if let Some(name) = &args.remote {
        let known = remotes.contains(&name.as_str());
        let next = format!("name one of these: {}", if remotes.is_empty() { "there is none".to_owned() } else { remotes.join(", ") });
        return if known { Ok(name.clone()) } else { Err(refusal(format!("this clone has no remote `{}`", one_line(name)), next)) };
    }
    let named = of_branch.filter(|name| remotes.contains(&name.as_str()));
    match (named, remotes.as_slice()) {
        (Some(name), _) => Ok(name),
        (None, all) if all.contains(&"origin") => Ok("origin".to_owned()),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(no_remote()),
        (None, all) => Err(refusal(
            format!("this clone has {} remotes, and its branch names none of them", all.len()),
            format!("name the one that agents clone: --remote REMOTE, one of {}", one_line(&all.join(", "))),
        )),
    }
}

fn no_remote() -> CloneRefusal {
    refusal(
        "this clone has no remote, and agents get their tree from a server",
        "add the server's repository: git remote add origin URL; or give its address: --url URL",
    )
}

/// The address as it is written, or, where that is a short form of the person's own configuration, as git makes it.
async fn address(remote: &str) -> Result<String, CloneRefusal> {
    let written = config(&format!("remote.{remote}.url")).await?;
    let refused = match written.map(|url| remote::checked(remote, &url)) {
        Some(Ok(url)) => return Ok(url),
        Some(Err(refused)) => refused,
        None => refusal(format!("remote `{}` has no address", one_line(remote)), "give it: --url URL"),
    };
    let made = try_git(&["remote", "get-url", "--", remote]).await?;
    let Some(url) = made.out.lines().next().filter(|_| made.success) else { return Err(refused) };
    remote::checked(remote, url).map_err(|_| refused)
}

/// A ref of git that the schema of projects takes.
fn check_ref(name: &str) -> Result<(), CloneRefusal> {
    let fits = name.len() <= 250
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._/+-".contains(c));
    if fits {
        return Ok(());
    }
    let message = format!("a project cannot name the branch `{}`", one_line(name));
    Err(refusal(message, "name one of letters, digits and `._/+-`, of at most 250: --branch BRANCH"))
}

/// What is only on this machine.
async fn not_on_server(remote: Option<&str>, branch: &str, on_server: &str) -> Result<Vec<String>, CloneRefusal> {
    let mut notes = Vec::new();
    if let Some(remote) = remote {
        let tracking = format!("refs/remotes/{remote}/{on_server}");
        if try_git(&["rev-parse", "--verify", "--quiet", &format!("{tracking}^{{commit}}")]).await?.success {
            let ahead = try_git(&["rev-list", "--count", &format!("{tracking}..HEAD"), "--"]).await?;
            match ahead.line() {
                _ if !ahead.success => {}
                "0" => {}
                commits => notes.push(format!("branch {branch} is {commits} ahead of {remote}, and agents get what is pushed: git push")),
            }
        } else {
            notes.push(format!(
                "as far as this clone knows, {remote} has no branch {on_server}, which agents clone: git push -u {remote} {branch}"
            ));
        }
    }
    let status = try_git(&["status", "--porcelain=v1", "-z", "--no-renames"]).await?;
    let paths = status.out.split('\0').filter(|entry| !entry.is_empty()).count();
    if status.success && paths > 0 {
        let paths = if paths == 1 { "1 changed path is".to_owned() } else { format!("{} changed paths are", count(paths as u64)) };
        notes.push(format!("{paths} not committed, and agents get what is pushed, or with --sync the tree as it is"));
    }
    Ok(notes)
}

/// The first value of a setting.
async fn config(name: &str) -> Result<Option<String>, CloneRefusal> {
    let answer = try_git(&["config", "--get-all", name]).await?;
    Ok(answer.out.lines().next().filter(|value| answer.success && !value.is_empty()).map(str::to_owned))
}

async fn try_git(args: &[&str]) -> Result<GitAnswer, CloneRefusal> {
    git::answer(git::command(args)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_that_no_project_can_name_is_refused() {
        for name in ["main", "feat/x_1.2+3-4", "_x"] {
            assert_eq!(check_ref(name), Ok(()), "{name}");
        }
        for name in ["", "-x", "f\u{fc}r", "a#1", "a b", &"a".repeat(251)] {
            assert!(check_ref(name).is_err_and(|refused| refused.next.contains("--branch")), "{name}");
        }
    }
}
