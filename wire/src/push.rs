//! `yoipods/push`: what an agent has committed goes to a branch of its project's repository.
//!
//! # Flow
//! A person posts a [`PushRequest`], and the gateway writes it into the YoiPod's status. The operator makes a Pod that has the project's credentials and
//! none of the agent's volumes. That Pod gets the commits from [`PUSH`](crate::hub::gateway_api::PUSH) and pushes them.
//!
//! # Format of the answer to the Pod
//! One line, [`head_line`], and then the bundle as `git bundle` writes it, with `HEAD` as its only name. Nothing follows the line when there are no
//! commits, nor when the branch is at the pushed commit already, as [`PushedQuery`] says.

use serde::{Deserialize, Serialize};

use crate::bundle::{BundleHead, InnerRepository, Uncommitted};

/// Body of `POST yoipods/push`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PushRequest {
    /// The branch of the project's repository; [`default_branch`] when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit that the branch must be at. It is then turned to the agent's commit, whatever it loses by that. When absent, the branch may only go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

/// Query of the Pod's request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedQuery {
    /// The commit that the branch is at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// Answer to a [`PushRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushResponse {
    /// Names the push in the YoiPod's status; absent when the agent has committed nothing since its base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Without `refs/heads/`.
    pub branch: String,
    /// What is pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The commit of the base that the tree was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Commits since the base.
    pub commits: u64,
    /// What no push can have.
    pub uncommitted: Uncommitted,
    /// Nor what of these is not in the agent's commits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inner_repositories: Vec<InnerRepository>,
}

/// The branch of an agent that nobody names one for.
#[must_use]
pub fn default_branch(agent: &str) -> String {
    format!("yoi/{agent}")
}

/// Whether this is the full hash of an object: SHA-1 or SHA-256, in small letters.
#[must_use]
pub fn is_hash(text: &str) -> bool {
    [40, 64].contains(&text.len()) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The first line of the answer to the Pod: commit, base, number of commits and of paths that are not committed, with `-` for what is absent. `None` when
/// `head` holds something else than hashes or another name than `HEAD`.
#[must_use]
pub fn head_line(head: &BundleHead) -> Option<String> {
    let BundleHead { name, commit, base, commits, uncommitted, inner_repositories: _ } = head;
    let sound = name == "HEAD" && [commit, base].into_iter().flatten().all(|hash| is_hash(hash));
    let or_dash = |hash: &Option<String>| hash.clone().unwrap_or_else(|| "-".to_owned());
    sound.then(|| format!("{} {} {commits} {}\n", or_dash(commit), or_dash(base), uncommitted.count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_before_a_bundle_holds_hashes_and_numbers_and_nothing_else() {
        let hash = "a1".repeat(20);
        let head = |name: &str, commit: Option<&str>| BundleHead {
            name: name.to_owned(),
            commit: commit.map(str::to_owned),
            base: None,
            commits: 2,
            uncommitted: Uncommitted { count: 3, ..Uncommitted::default() },
            inner_repositories: Vec::new(),
        };
        assert_eq!(head_line(&head("HEAD", Some(&hash))), Some(format!("{hash} - 2 3\n")));
        assert_eq!(head_line(&head("HEAD", None)).as_deref(), Some("- - 2 3\n"));
        for (name, commit) in [("refs/heads/x", &*hash), ("HEAD", "main"), ("HEAD", "a\nb"), ("HEAD", &*hash.to_uppercase()), ("HEAD", "")]
        {
            assert_eq!(head_line(&head(name, Some(commit))), None, "{name} {commit}");
        }
    }
}
