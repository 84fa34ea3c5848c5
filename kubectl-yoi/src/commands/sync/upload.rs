//! The bundle that is being sent. It is kept until all of it is there, so that one that was cut goes on with the same bytes.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use yoi_worktree::Captured;

/// In the folder of ours.
const FOLDER: &str = "upload";
const BUNDLE: &str = "bundle";
const ABOUT: &str = "about.json";

/// What a kept bundle is of. Only a state that is the same in all of it goes on with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    pub machine: String,
    /// Of the captured state.
    pub tree: String,
    pub base: Option<String>,
    /// What the project's server has: it is left out.
    pub have: Vec<String>,
}

impl About {
    pub fn new(machine: &str, captured: &Captured, have: &[String]) -> Self {
        About { machine: machine.to_owned(), tree: captured.tree.clone(), base: captured.base.clone(), have: have.to_vec() }
    }
}

#[derive(Serialize, Deserialize)]
struct Kept {
    about: About,
    commit: String,
    sha256: String,
}

/// A bundle, with the commit that it holds.
pub struct Upload {
    pub commit: String,
    pub sha256: String,
    pub bytes: Vec<u8>,
}

impl Upload {
    pub fn new(commit: &str, bytes: Vec<u8>) -> Self {
        Upload { commit: commit.to_owned(), sha256: yoi_plan::names::sha256(&bytes), bytes }
    }

    /// The one that is kept, if it is of this state and whole. Anything else that is kept is of an older state, and goes.
    pub fn kept(private: &Path, about: &About) -> Option<Self> {
        let folder = folder(private);
        let read = || {
            let kept: Kept = serde_json::from_slice(&std::fs::read(folder.join(ABOUT)).ok()?).ok()?;
            let upload = Upload::new(&kept.commit, std::fs::read(folder.join(BUNDLE)).ok()?);
            (kept.about == *about && kept.sha256 == upload.sha256 && yoi_worktree::is_hash(&upload.commit)).then_some(upload)
        };
        let found = read();
        if found.is_none() {
            Self::forget(private);
        }
        found
    }

    /// Keeps it. The file that says what it is comes last.
    pub fn keep(&self, private: &Path, about: &About) -> std::io::Result<()> {
        let folder = folder(private);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(BUNDLE), &self.bytes)?;
        let kept = Kept { about: about.clone(), commit: self.commit.clone(), sha256: self.sha256.clone() };
        std::fs::write(folder.join(ABOUT), serde_json::to_vec(&kept)?)
    }

    /// What is kept goes: it is there, or another state is sent in its place.
    pub fn forget(private: &Path) {
        let _ = std::fs::remove_dir_all(folder(private));
    }
}

fn folder(private: &Path) -> PathBuf {
    private.join(FOLDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_state_goes_on_with_a_bundle_and_one_that_is_cut_goes() {
        let private = tempfile::tempdir().unwrap();
        let captured = Captured { commit: "c".repeat(40), tree: "t".into(), base: Some("b".into()), repositories: Vec::new() };
        let about = About::new("laptop", &captured, &["h".to_owned()]);
        let keep = || Upload::new(&"0".repeat(40), b"bundle".to_vec()).keep(private.path(), &about).unwrap();
        let kept = |about: &About| Upload::kept(private.path(), about).map(|upload| (upload.commit, upload.bytes));
        assert_eq!(kept(&about), None);
        keep();
        assert_eq!(kept(&about), Some(("0".repeat(40), b"bundle".to_vec())));
        for other in [
            About { machine: "desk".into(), ..about.clone() },
            About { tree: "u".into(), ..about.clone() },
            About { base: None, ..about.clone() },
            About { have: Vec::new(), ..about.clone() },
        ] {
            keep();
            assert_eq!(kept(&other), None);
            assert_eq!(kept(&about), None, "what is of an older state goes");
        }
        keep();
        std::fs::write(private.path().join("upload/bundle"), b"bun").unwrap();
        assert_eq!(kept(&about), None);
    }
}
