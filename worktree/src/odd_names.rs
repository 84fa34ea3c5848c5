//! Names in a captured tree that other machines cannot hold or tell apart.

use std::collections::BTreeMap;
use std::path::Path;

use crate::capture::{Captured, Source, records};
use crate::git::{GitError, quoted};
use crate::names;

/// What of the names in a captured tree a person should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OddNames {
    /// Paths that HEAD does not have and Windows cannot hold, each with the reason. Whoever takes the tree refuses them.
    pub reserved: Vec<(String, &'static str)>,
    /// Two paths each that differ in case only, where git's settings say that this disk does not tell them apart.
    pub alike: Vec<(String, String)>,
}

/// Looks at the names of a captured tree.
///
/// # Errors
/// git fails.
pub fn odd_names(source: &Source, private: &Path, captured: &Captured) -> Result<OddNames, GitError> {
    let git = source.git().with("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&private.join("objects")));
    let all = || git.run(&["ls-tree", "-r", "-z", "--full-tree", "--name-only", &captured.tree], &[]);
    let new = match &captured.base {
        Some(base) => {
            let words = ["diff-tree", "-r", "-z", "--no-renames", "--name-only", "--diff-filter=A", base, &captured.tree];
            git.run(&words, &[])?
        }
        None => all()?,
    };
    let why = |path: &[u8]| Some((text(path), names::refused(path, true)?));
    let reserved = records(&new).filter_map(why).collect();
    let alike = if git.bool_setting("core.ignoreCase", false)? { alike(&all()?) } else { Vec::new() };
    Ok(OddNames { reserved, alike })
}

/// Pairs of names that differ in case only, of files and of the folders above them.
fn alike(paths: &[u8]) -> Vec<(String, String)> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for path in records(paths).map(text) {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for name in ends.filter_map(|end| path.get(..end)) {
            let first = known.entry(name.to_lowercase()).or_insert_with(|| name.to_owned());
            if first != name {
                found.push((first.clone(), name.to_owned()));
                // What is below them is alike for that reason.
                break;
            }
        }
    }
    found.dedup();
    found
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn files_and_folders_that_differ_in_case_only_are_found_once() {
        let found = alike(b"A.txt\0a.txt\0b\0dir/x\0Dir/y\0Dir/z\0other/a\0\xc4\0");
        let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
        assert_eq!(found, [pair("A.txt", "a.txt"), pair("dir", "Dir")]);
        assert_eq!(alike(b""), []);
    }
}
