//! All that a machine gets to become a node: one folder with programs, images and charts, and a list of them with their digests.

use crate::cluster::Programs;
use crate::images::{Archive, References};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The list, within the bundle.
pub const CONTENTS: &str = "bundle.json";
/// Where the bundle's own program is in it.
pub const PROGRAM: &str = "bin/yoi-host";

/// The one program that is every part of Kubernetes. kubectl is a link to it, which [`Bundle::verify`] makes.
pub const CLUSTER: &str = "bin/yoi-cluster";
const KUBECTL: &str = "bin/kubectl";

/// What is in a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub version: String,
    /// The machine that its programs are for, as `uname -m` says it.
    pub machine: String,
    /// The digest of each image's manifest, with `sha256:`, by the image's short name.
    pub images: BTreeMap<String, String>,
    /// By their paths in the bundle.
    pub files: BTreeMap<String, BundledFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundledFile {
    pub bytes: u64,
    pub sha256: String,
}

/// What stands before the compressed tar, in a frame of zstd that its readers skip: what has to be known before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub version: String,
    pub machine: String,
    /// Of what comes after this frame.
    pub bytes: u64,
    pub sha256: String,
}

impl Head {
    /// The frame: <https://github.com/facebook/zstd/blob/dev/doc/zstd_compression_format.md#skippable-frames>.
    pub fn frame(&self) -> Result<Vec<u8>> {
        let text = serde_json::to_vec(self)?;
        let length = u32::try_from(text.len())?;
        Ok([&0x184D_2A50_u32.to_le_bytes(), &length.to_le_bytes(), text.as_slice()].concat())
    }
}

/// Bytes and SHA-256 of a file.
pub fn digest(path: &Path) -> Result<BundledFile> {
    let mut file = File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
    let mut hash = Sha256::new();
    let bytes = std::io::copy(&mut file, &mut hash).with_context(|| format!("failed to read {}", path.display()))?;
    Ok(BundledFile { bytes, sha256: hex::encode(hash.finalize()) })
}

/// Where an image's archive is in a bundle.
pub fn image_path(name: &str) -> String {
    format!("images/{name}.tar")
}

/// An unpacked bundle.
pub struct Bundle {
    folder: PathBuf,
    contents: Contents,
}

impl Bundle {
    /// The bundle that this program is in.
    pub fn of_this_program() -> Result<Self> {
        let program = crate::command::this_program()?;
        let folder = program.parent().and_then(Path::parent).filter(|folder| folder.join(PROGRAM) == program);
        Self::open(folder.with_context(|| format!("{} is in no bundle: unpack one, and run its {PROGRAM}", program.display()))?)
    }

    pub fn open(folder: &Path) -> Result<Self> {
        let list = folder.join(CONTENTS);
        let text = fs::read(&list).with_context(|| format!("failed to read {}", list.display()))?;
        let contents: Contents = serde_json::from_slice(&text).with_context(|| format!("failed to understand {}", list.display()))?;
        if contents.machine != std::env::consts::ARCH {
            bail!("the bundle is for {}, and this machine is {}", contents.machine, std::env::consts::ARCH);
        }
        Ok(Self { folder: folder.to_owned(), contents })
    }

    /// Reads all of it once, and remembers that it was whole.
    ///
    /// # Errors
    /// A file is missing, damaged or not in the list.
    pub fn verify(&self) -> Result<()> {
        let mark = self.folder.join("whole");
        if mark.exists() {
            return Ok(());
        }
        let found = files_below(&self.folder)?;
        let listed: BTreeSet<String> = self.contents.files.keys().cloned().collect();
        if let Some(strange) = found.difference(&listed).find(|path| ![CONTENTS, KUBECTL].contains(&path.as_str())) {
            bail!("the bundle in {} has {strange}, which its list has not: unpack it again", self.folder.display());
        }
        for (path, wanted) in &self.contents.files {
            let found = digest(&self.folder.join(path))?;
            if found != *wanted {
                bail!("the bundle in {} is damaged: {path} is not as its list has it; unpack it again", self.folder.display());
            }
        }
        let link = self.folder.join(KUBECTL);
        if self.contents.files.contains_key(CLUSTER) && !link.is_symlink() {
            std::os::unix::fs::symlink("yoi-cluster", &link).with_context(|| format!("failed to make {}", link.display()))?;
        }
        fs::write(&mark, "").with_context(|| format!("failed to write {}", mark.display()))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn version(&self) -> &str {
        &self.contents.version
    }

    pub fn programs(&self) -> Programs {
        let bin = self.folder.join("bin");
        Programs { netpol: bin.join("netpol"), helm: bin.join("helm"), kubernetes: bin }
    }

    pub fn archives(&self) -> Vec<Archive> {
        let archive = |(name, digest): (&String, &String)| Archive {
            name: name.clone(),
            digest: digest.clone(),
            file: self.folder.join(image_path(name)),
        };
        self.contents.images.iter().map(archive).collect()
    }

    pub fn references(&self) -> References {
        self.archives().iter().map(|archive| (archive.name.clone(), archive.reference())).collect()
    }
}

/// Paths of all files below a folder, from there.
pub fn files_below(folder: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("failed to list {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder)?.display().to_string());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(folder: &Path, machine: &str) -> Result<Bundle> {
        fs::create_dir_all(folder.join("charts/a"))?;
        fs::write(folder.join("charts/a/Chart.yaml"), "name: a\n")?;
        let files = BTreeMap::from([("charts/a/Chart.yaml".to_owned(), digest(&folder.join("charts/a/Chart.yaml"))?)]);
        let images = BTreeMap::from([("agent".to_owned(), format!("sha256:{}", "a".repeat(64)))]);
        let contents = Contents { version: "1".into(), machine: machine.into(), images, files };
        fs::write(folder.join(CONTENTS), serde_json::to_vec(&contents)?)?;
        Bundle::open(folder)
    }

    #[test]
    fn a_bundle_that_is_not_as_its_list_has_it_is_refused_by_the_files_name() {
        let folder = tempfile::tempdir().unwrap();
        let made = bundle(folder.path(), std::env::consts::ARCH).unwrap();
        assert_eq!(made.references()["agent"], "yoi.dev/agent:aaaaaaaaaaaa");
        let refused = || made.verify().map_err(|error| format!("{error:#}")).unwrap_err();
        fs::write(folder.path().join("more"), "x").unwrap();
        assert!(refused().contains("has more, which its list has not"), "{}", refused());
        fs::remove_file(folder.path().join("more")).unwrap();
        fs::write(folder.path().join("charts/a/Chart.yaml"), "name: b\n").unwrap();
        assert!(refused().contains("charts/a/Chart.yaml is not as its list has it"), "{}", refused());
        fs::remove_file(folder.path().join("charts/a/Chart.yaml")).unwrap();
        assert!(refused().contains("failed to open"), "{}", refused());
        fs::write(folder.path().join("charts/a/Chart.yaml"), "name: a\n").unwrap();
        made.verify().unwrap();
        made.verify().unwrap();
    }

    #[test]
    fn a_bundle_of_another_machine_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = bundle(folder.path(), "pdp11").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("is for pdp11, and this machine is "), "{refused}");
    }
}
