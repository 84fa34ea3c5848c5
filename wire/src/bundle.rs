//! `yoipods/bundle`: what an agent has committed, as a git bundle, and the request to commit what is not.
//!
//! # Format of the answer
//! One line of JSON, [`BundleHead`], and then the bundle as `git bundle` writes it. Nothing follows the line when there are no commits. A bundle ends
//! with the checksum of its pack, so one that broke off is known by that.

use serde::{Deserialize, Serialize};

/// Bytes of the longest bundle.
pub const MAX_BUNDLE_BYTES: u64 = 256 << 20;
/// Bytes of the longest [`BundleHead`].
pub const MAX_BUNDLE_HEAD: usize = 64 << 10;
/// Paths that [`Uncommitted`] names.
pub const MAX_UNCOMMITTED_PATHS: usize = 20;
/// Repositories that [`BundleHead`] names.
pub const MAX_INNER_REPOSITORIES: usize = 20;
/// Letters of a path in a sentence.
pub const MAX_SENTENCE_PATH: usize = 200;
/// Bytes of the longest name of a branch.
pub const MAX_BRANCH_NAME: usize = 200;
/// Bytes of the longest message of a commit.
pub const MAX_COMMIT_MESSAGE: usize = 16 << 10;
/// What a branch's full name begins with.
pub const BRANCHES: &str = "refs/heads/";

/// Query of `GET yoipods/bundle`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleQuery {
    /// The branch of the agent's repository; what is checked out there when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// With what is not committed, as one commit more on what is checked out, which no branch leads to. The name in the bundle is
    /// [`crate::merge::WORK`] then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub work: bool,
    /// Also holds the commit of the base, and of the base each folder on the way to what the commits change, so that nothing else is needed to check them.
    /// A bundle of work leaves this out, and so does one whose commits have a parent that is neither the base nor one of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

/// The first line of the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleHead {
    /// The only name in the bundle: `HEAD`, `refs/heads/` and the branch that was asked for, or [`crate::merge::WORK`].
    pub name: String,
    /// Its commit; absent in a repository without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The commit of the base that the tree was made from. The bundle has what came after it; all commits when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Commits in the bundle. Without any, there is none.
    pub commits: u64,
    /// What is not committed. Only a bundle of work has it.
    pub uncommitted: Uncommitted,
    /// Repositories below the root of the agent's, of which the bundle does not have all; at most [`MAX_INNER_REPOSITORIES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner_repositories: Vec<InnerRepository>,
}

/// A git repository in a folder of the agent's tree, of which something does not come with the agent's own commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InnerRepository {
    /// Its folder, relative to the root of the tree. Bytes that are not UTF-8 are shown as U+FFFD.
    pub path: String,
    /// What it is.
    #[serde(flatten)]
    pub state: InnerState,
}

/// What an [`InnerRepository`] is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum InnerState {
    /// No submodule. None of its files is in the agent's repository.
    NoSubmodule,
    /// A submodule with changes that are not committed in it.
    Uncommitted,
    /// A submodule of which the agent's commits name a commit that none of its remotes has, as far as the agent's tree knows.
    Unpublished {
        /// That commit.
        commit: String,
    },
    /// It was not looked into.
    Unread {
        /// Why.
        why: String,
    },
    /// Of a later version.
    #[serde(other)]
    Other,
}

impl InnerRepository {
    /// What is left behind, and what to do.
    #[must_use]
    pub fn sentence(&self) -> String {
        let path = shortened_path(&self.path, MAX_SENTENCE_PATH).escape_debug().to_string();
        match &self.state {
            InnerState::NoSubmodule => format!(
                "{path} is a git repository of its own and no submodule, so none of its files is in the agent's: let the agent remove its .git, which makes \
                 them files of its tree, or make it a submodule with a remote"
            ),
            InnerState::Uncommitted => format!(
                "submodule {path} has changes that are not committed in it, and no commit of the agent's tree holds them: let the agent commit them there, \
                 and push that to the submodule's remote"
            ),
            InnerState::Unpublished { commit } => format!(
                "submodule {path} is to be at commit {}, which none of its remotes has as far as the agent's tree knows, so that no clone could check it \
                 out: let the agent push it to the submodule's remote",
                commit.escape_debug()
            ),
            InnerState::Unread { why } => {
                format!("the git repository {path} was not looked into: {}", shortened_path(why, 300).escape_debug())
            }
            InnerState::Other => format!("the git repository {path} is not whole in the agent's: this version does not know why"),
        }
    }
}

/// At most `most` letters of a path; of a longer one begin and end, with `...` between them.
#[must_use]
pub fn shortened_path(path: &str, most: usize) -> String {
    let letters = path.chars().count();
    if letters <= most {
        return path.to_owned();
    }
    let kept = most.saturating_sub(3);
    let (begin, end) = (kept - kept / 2, kept / 2);
    path.chars().take(begin).chain("...".chars()).chain(path.chars().skip(letters - end)).collect()
}

/// What is not committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Uncommitted {
    /// How many paths; those in a folder that is new count as one each.
    pub count: u64,
    /// There are more.
    #[serde(default)]
    pub cut: bool,
    /// The first of them. Bytes that are not UTF-8 are shown as U+FFFD.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// Body of `POST yoipods/bundle`: commits as the agent what is not committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommitRequest {
    /// The message of the commit.
    pub message: String,
}

impl CommitRequest {
    /// # Errors
    /// A sentence, if the message is empty, too long or not text.
    pub fn validate(&self) -> Result<(), String> {
        if self.message.trim().is_empty() {
            return Err("a commit has a message".to_owned());
        }
        if self.message.len() > MAX_COMMIT_MESSAGE {
            return Err(format!("the message has {} bytes, and {MAX_COMMIT_MESSAGE} are allowed", self.message.len()));
        }
        if self.message.contains('\0') {
            return Err("the message holds a zero byte, which git takes for its end".to_owned());
        }
        Ok(())
    }
}

/// Answer to a [`CommitRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitResponse {
    /// The new commit; absent when everything was committed already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// Checks the name of a branch: the rules of `git check-ref-format --branch`, and no `refs/` or `HEAD`, which name something else than they seem to.
///
/// # Errors
/// A sentence about the rule.
pub fn check_branch_name(name: &str) -> Result<(), String> {
    let broken = |rule: &str| Err(format!("`{}` is no name of a branch: {rule}", name.escape_debug()));
    let forbidden = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    let parts = || name.split('/');
    if name.is_empty() {
        broken("it is empty")
    } else if name.len() > MAX_BRANCH_NAME {
        broken(&format!("it is longer than {MAX_BRANCH_NAME} bytes"))
    } else if name.starts_with('-') {
        broken("it begins with `-`")
    } else if name == "HEAD" || name == "@" || parts().next() == Some("refs") {
        broken("give the name alone, as `main`, not `HEAD` or `refs/heads/main`")
    } else if name.contains("..") || name.contains("@{") {
        broken("it holds `..` or `@{`")
    } else if name.chars().any(forbidden) {
        broken("it holds a space, a control character or one of ~ ^ : ? * [ \\")
    } else if parts().any(|part| part.is_empty() || part.starts_with('.') || part.ends_with(".lock")) {
        broken("a part between `/` is empty, begins with `.` or ends with `.lock`")
    } else if name.ends_with('.') {
        broken("it ends with `.`")
    } else {
        Ok(())
    }
}

/// The value of a query's parameter, with all bytes percent-encoded that could be anything else there.
#[must_use]
pub fn query_value(value: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_name_that_could_be_a_path_an_option_or_another_ref_is_refused() {
        for name in
            ["main", "yoi/alice", "feature/a-b_c.d", "w\u{e4}g", "a@b", "refsx/a", "a/refs/b", "x&y=z", "a%2e%2e", "heads/main", "a-"]
        {
            assert_eq!(check_branch_name(name), Ok(()), "{name}");
        }
        let long = "x".repeat(MAX_BRANCH_NAME + 1);
        for name in [
            "",
            "../x",
            "a/../b",
            "a..b",
            "refs/heads/main",
            "refs",
            "HEAD",
            "@",
            "-f",
            "--upload-pack=x",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a.",
            "a b",
            "a\nb",
            "a\u{1b}[2J",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[b",
            "a\\b",
            "a@{1}",
            &long,
        ] {
            let error = check_branch_name(name).unwrap_err();
            assert!(error.contains("is no name of a branch") && !error.contains('\u{1b}') && !error.contains('\n'), "{name:?}: {error}");
        }
    }

    #[test]
    fn a_name_in_a_query_is_one_value() {
        assert_eq!(query_value("yoi/a-b"), "yoi/a-b");
        assert_eq!(query_value("x&y=z#+ %\u{e4}"), "x%26y%3Dz%23%2B%20%25%C3%A4");
    }

    #[test]
    fn an_inner_repository_is_told_in_one_line_however_long_its_path_is() {
        let path = format!("a\n{}z", "b/".repeat(10_000));
        for (json, words) in [
            (r#"{"path":"s","state":"noSubmodule"}"#, "s is a git repository of its own and no submodule"),
            (r#"{"path":"s","state":"unpublished","commit":"abc"}"#, "submodule s is to be at commit abc"),
            (r#"{"path":"s","state":"ofTomorrow"}"#, "the git repository s is not whole"),
        ] {
            let inner: InnerRepository = serde_json::from_str(json).unwrap();
            assert!(inner.sentence().starts_with(words), "{}", inner.sentence());
        }
        let sentence = InnerRepository { path, state: InnerState::Uncommitted }.sentence();
        assert!(sentence.len() < 500 && !sentence.contains('\n') && sentence.starts_with("submodule a\\nb/b/"), "{sentence}");
    }

    #[test]
    fn a_commit_has_a_message_of_text() {
        for (message, sound) in [("fix", true), ("a\n\nb", true), ("", false), (" \n", false), ("a\0b", false)] {
            assert_eq!(CommitRequest { message: message.to_owned() }.validate().is_ok(), sound, "{message:?}");
        }
        assert!(CommitRequest { message: "x".repeat(MAX_COMMIT_MESSAGE + 1) }.validate().is_err());
    }
}
