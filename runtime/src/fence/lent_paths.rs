//! The paths that are lent, as this container sees them.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Statx};
use rustix::io::Errno;

use super::mounts::{Mount, Mounts, identity, stat};

/// So many files with several names are compared.
const MOST_LINKED: usize = 100_000;
/// So many files below the paths are remembered, in some 25 MB, if anything is held of which only the inode tells what it is.
const MOST_FILES: usize = 1_000_000;
/// The deepest folder that is looked into.
const MAX_DEPTH: usize = 256;

/// Paths of the tree that are closed to this container.
pub(super) struct LentPaths {
    tree: PathBuf,
    /// Relative to the tree.
    paths: Vec<String>,
}

/// What is seen at a moment.
pub(super) struct View {
    pub mounts: Mounts,
    /// The file system and the folder in it that is the tree.
    device: String,
    root: PathBuf,
    /// Device of the tree's root, as files have it.
    tree_device: (u32, u32),
    /// Device of memory that processes share, which looks like a mapped file.
    pub memory_device: Option<(u32, u32)>,
    /// The mount namespace of this process.
    pub namespace: PathBuf,
    lent: Vec<PathBuf>,
    /// The files below the paths; `None`: they cannot all be known.
    files: OnceCell<Option<HashSet<(u32, u32, u64)>>>,
}

impl LentPaths {
    /// Fails with a sentence if one is no path of the tree, or is not closed here.
    pub fn read(tree: &Path, paths: &[String]) -> Result<Self, String> {
        if paths.is_empty() {
            return Err("no path is named".to_owned());
        }
        // As the kernel tells paths.
        let tree = tree.canonicalize().map_err(|error| format!("failed to find the tree: {error}"))?;
        let lent = Self { tree, paths: paths.to_vec() };
        let view = lent.view()?;
        for path in paths {
            let is_plain = !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
            if !is_plain {
                return Err(format!("{path:?} is no path of plain names below the tree"));
            }
            let found = stat(&lent.tree.join(path), false).map_err(|error| format!("failed to look at {path}: {error}"))?;
            if !view.mount_of(&found).is_some_and(|mount| mount.read_only) {
                return Err(format!(
                    "{path} is not closed to this Pod, though its node says so: the Pod was started before its agent might lend; start the agent anew"
                ));
            }
        }
        Ok(lent)
    }

    pub fn view(&self) -> Result<View, String> {
        let failed = |error: &dyn std::fmt::Display| format!("failed to look at the tree: {error}");
        let mounts = Mounts::read().map_err(|error| failed(&error))?;
        let found = stat(&self.tree, false).map_err(|error| failed(&error))?;
        let mount = mounts.get(found.stx_mnt_id).ok_or_else(|| failed(&"its mount is not in the table"))?;
        let below = self.tree.strip_prefix(&mount.point).map_err(|error| failed(&error))?;
        let root = if below.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(below) };
        let namespace = std::fs::read_link("/proc/self/ns/mnt").map_err(|error| failed(&error))?;
        let memory = rustix::fs::memfd_create("yoi", rustix::fs::MemfdFlags::CLOEXEC).ok();
        let memory = memory.and_then(|memory| rustix::fs::fstat(memory).ok());
        Ok(View {
            device: mount.device.clone(),
            root,
            tree_device: (found.stx_dev_major, found.stx_dev_minor),
            memory_device: memory.map(|stat| (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev))),
            namespace,
            mounts,
            lent: self.paths.iter().map(|path| self.tree.join(path)).collect(),
            files: OnceCell::new(),
        })
    }

    /// Fails with a sentence if a file below the paths has a name outside of them, where it can be written.
    pub fn check_names(&self) -> Result<(), String> {
        let view = self.view()?;
        let mut linked: HashMap<(u32, u32, u64), (u32, u32, PathBuf)> = HashMap::new();
        for path in &self.paths {
            self.walk(&self.tree.join(path), 0, &view, &mut linked)?;
        }
        match linked.into_values().find(|(seen, links, _)| seen < links) {
            Some((_, _, path)) => Err(format!(
                "{} has another name outside of what is to be lent, and could be written by that; remove one of its names",
                path.display()
            )),
            None => Ok(()),
        }
    }

    fn walk(
        &self,
        path: &Path,
        depth: usize,
        view: &View,
        linked: &mut HashMap<(u32, u32, u64), (u32, u32, PathBuf)>,
    ) -> Result<(), String> {
        let told = || path.strip_prefix(&self.tree).unwrap_or(path).to_owned();
        let found = match stat(path, false) {
            Ok(found) => found,
            // Whoever holds it may remove it.
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(format!("failed to look at {}: {error}", told().display())),
        };
        // What the loan leaves open to its lender.
        if !view.mount_of(&found).is_some_and(|mount| mount.read_only) {
            return Ok(());
        }
        if FileType::from_raw_mode(u32::from(found.stx_mode)) != FileType::Directory {
            if found.stx_nlink > 1 {
                if linked.len() >= MOST_LINKED {
                    return Err(format!("more than {MOST_LINKED} files have several names, {} among them", told().display()));
                }
                linked.entry(identity(&found)).or_insert_with(|| (0, found.stx_nlink, told())).0 += 1;
            }
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(format!("{} lies deeper than {MAX_DEPTH} levels", told().display()));
        }
        let entries = std::fs::read_dir(path).map_err(|error| format!("failed to look into {}: {error}", told().display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| format!("failed to look into {}: {error}", told().display()))?;
            self.walk(&entry.path(), depth + 1, view, linked)?;
        }
        Ok(())
    }
}

impl View {
    pub fn mount_of(&self, found: &Statx) -> Option<&Mount> {
        self.mounts.get(found.stx_mnt_id)
    }

    /// Whether a mount shows the tree, or a part of it.
    pub fn is_of_tree(&self, mount: &Mount) -> bool {
        mount.device == self.device && mount.root.starts_with(&self.root)
    }

    /// Whether a folder may be of the tree, of which only the device is known: on some file systems others have it, too.
    pub fn may_be_of_tree(&self, found: &Statx) -> bool {
        (found.stx_dev_major, found.stx_dev_minor) == self.tree_device
    }

    /// Whether a file may be one of those that are lent, whatever the path is by which it was opened.
    pub fn may_be_lent(&self, found: &Statx) -> bool {
        self.may_be_of_tree(found) && self.files.get_or_init(|| self.list()).as_ref().is_none_or(|files| files.contains(&identity(found)))
    }

    fn list(&self) -> Option<HashSet<(u32, u32, u64)>> {
        let (mut files, mut left) = (HashSet::new(), self.lent.clone());
        while let Some(path) = left.pop() {
            let found = match stat(&path, false) {
                Ok(found) => found,
                Err(Errno::NOENT) => continue,
                Err(_) => return None,
            };
            if FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::Directory {
                for entry in std::fs::read_dir(&path).ok()? {
                    left.push(entry.ok()?.path());
                }
            } else {
                files.insert(identity(&found));
            }
            if files.len() + left.len() > MOST_FILES {
                return None;
            }
        }
        Some(files)
    }
}
