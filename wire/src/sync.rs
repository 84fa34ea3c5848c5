//! `yoiprojects/sync`: a working tree of a person's machine, as one commit in a git bundle of what the project's repository lacks of it.
//!
//! The body of the request is the bundle, as `git bundle` writes it, with one name. The query says what it is.

use serde::{Deserialize, Serialize};

use crate::push::is_hash;

/// Query of `POST yoiprojects/sync`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SyncQuery {
    /// Name of the machine. Each has a ref of its own.
    pub machine: String,
    /// The commit that the bundle holds.
    pub commit: String,
    /// The commit of this machine that came last when this one was captured; absent when none had come. Another one in its place means that a newer state
    /// is there, and this one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// When the tree was captured, RFC 3339.
    pub captured_at: String,
    /// Of the bundle, in lower-case hex.
    pub sha256: String,
}

/// Answer of `POST yoiprojects/sync`. The commit counts; the same request again gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncResponse {
    /// The commit.
    pub commit: String,
    /// When it came, RFC 3339.
    pub received_at: String,
}

/// Checks what stands before the pack of a bundle: one name, of this commit, and nothing left out. Whether its objects are sound is for git to say.
///
/// # Errors
/// A sentence for people.
pub fn check_bundle(bundle: &[u8], name: &str, commit: &str) -> Result<(), String> {
    const NONE: &str = "the body is no git bundle";
    let end = bundle.windows(2).position(|pair| pair == b"\n\n").ok_or(NONE)?;
    let (header, pack) = bundle.split_at_checked(end).ok_or(NONE)?;
    let header = str::from_utf8(header).map_err(|_| NONE)?;
    let mut lines = header.split('\n');
    if !lines.next().is_some_and(|first| first == "# v2 git bundle" || first == "# v3 git bundle") || !pack.starts_with(b"\n\nPACK") {
        return Err(NONE.to_owned());
    }
    let mut names = 0;
    for line in lines {
        if let Some(capability) = line.strip_prefix('@') {
            if !capability.starts_with("object-format=") {
                return Err(format!("the bundle needs `{}`, which is not known here", capability.escape_debug()));
            }
            continue;
        }
        let (line, is_needed) = line.strip_prefix('-').map_or((line, false), |rest| (rest, true));
        let (hash, found) = line.split_once(' ').unwrap_or((line, ""));
        if !is_hash(hash) {
            return Err(NONE.to_owned());
        }
        if is_needed {
            continue;
        }
        names += 1;
        if (hash, found) != (commit, name) {
            return Err(format!("the bundle holds `{}` at {hash}, and only `{name}` at {commit} is taken", found.escape_debug()));
        }
    }
    if names == 1 { Ok(()) } else { Err(format!("the bundle holds {names} names, and only `{name}` is taken")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "refs/yoi/sync/laptop";

    fn check(header: &str) -> Result<(), String> {
        check_bundle(format!("{header}\n\nPACK and more").as_bytes(), NAME, &"c0".repeat(20))
    }

    #[test]
    fn a_bundle_holds_one_name_at_the_commit_that_was_said() {
        let (commit, base) = ("c0".repeat(20), "ba".repeat(20));
        let with = |lines: &str| check(&format!("# v2 git bundle\n{lines}"));
        assert_eq!(with(&format!("{commit} {NAME}")), Ok(()));
        assert_eq!(with(&format!("-{base} a subject with = and {NAME}\n{commit} {NAME}")), Ok(()));
        for (lines, words) in [
            (String::new(), "no git bundle"),
            (format!("-{base}"), "holds 0 names"),
            (format!("{commit} refs/heads/main"), "holds `refs/heads/main`"),
            (format!("{base} {NAME}"), "only `refs/yoi/sync/laptop` at c0c0"),
            (format!("{commit} {NAME}\n{commit} {NAME}"), "holds 2 names"),
            (format!("@filter=blob:none\n{commit} {NAME}"), "the bundle needs `filter=blob:none`"),
            (format!("main {NAME}"), "no git bundle"),
        ] {
            let said = with(&lines).expect_err(&lines);
            assert!(said.contains(words), "{lines}: {said}");
        }
        assert!(check("# v4 git bundle").is_err());
        assert!(check_bundle(b"# v2 git bundle\n\nPAC", NAME, &commit).is_err(), "it was cut");
    }
}
