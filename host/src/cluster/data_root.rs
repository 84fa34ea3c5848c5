//! The file system of a node's data root.

use crate::command::{command, run};
use crate::instance::Node;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// What the data root is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum DataRoot {
    /// A folder of the machine's disk. Where every node has one, the chart is told to make a Btrfs in a file there
    #[default]
    Folder,
    /// A Btrfs of the node's own
    Btrfs,
    /// An ext4 of the node's own: trees are overlays
    Ext4,
    /// An XFS of the node's own: trees are overlays
    Xfs,
}

/// Size of a file system of the node's own, and of the chart's Btrfs in a file where there are several nodes. Large enough for the trees of the
/// tests, small enough for several nodes.
const GIBIBYTES: u64 = 2;
/// Size of the chart's Btrfs in a file on a cluster of one node. The test that fills it needs this much: a small Btrfs has promised more metadata than it
/// has, and gives up when data takes the rest at once.
const GIBIBYTES_OF_ONE_NODE: u64 = 8;

/// Size of the chart's Btrfs in a file, in GiB.
pub fn gibibytes(nodes: usize) -> u64 {
    if nodes > 1 { GIBIBYTES } else { GIBIBYTES_OF_ONE_NODE }
}

impl DataRoot {
    fn name(self) -> &'static str {
        match self {
            DataRoot::Folder => "folder",
            DataRoot::Btrfs => "btrfs",
            DataRoot::Ext4 => "ext4",
            DataRoot::Xfs => "xfs",
        }
    }

    /// The node's, once it was made.
    pub fn of(node: Node) -> Self {
        let name = fs::read_to_string(node.path("data-root")).unwrap_or_default();
        [Self::Btrfs, Self::Ext4, Self::Xfs].into_iter().find(|kind| kind.name() == name.trim()).unwrap_or_default()
    }

    /// Arguments of mkfs that leave the reserved blocks reserved.
    fn mkfs(self) -> Option<(&'static str, &'static [&'static str])> {
        match self {
            DataRoot::Folder => None,
            DataRoot::Btrfs => Some(("mkfs.btrfs", &["-q", "-K", "-m", "single", "-d", "single"])),
            DataRoot::Ext4 => Some(("mkfs.ext4", &["-q", "-F", "-E", "nodiscard"])),
            DataRoot::Xfs => Some(("mkfs.xfs", &["-q", "-K", "-m", "reflink=1"])),
        }
    }

    fn mount_options(self) -> &'static str {
        match self {
            DataRoot::Folder | DataRoot::Ext4 | DataRoot::Xfs => "loop,noatime,nodiscard",
            DataRoot::Btrfs => "loop,noatime,nodiscard,user_subvol_rm_allowed",
        }
    }
}

/// Checks that the nodes' data roots go together, before any is made.
///
/// # Errors
/// When a new node would have a file system of its own beside nodes with a folder. The chart would make no Btrfs there any more, and their trees lie in it.
pub fn check(nodes: &[Node], wanted: Option<DataRoot>) -> Result<()> {
    let (new, old): (Vec<Node>, Vec<Node>) = nodes.iter().partition(|node| is_unset(**node));
    let in_folders: Vec<_> = old.into_iter().filter(|node| DataRoot::of(*node) == DataRoot::Folder).map(|node| node.name()).collect();
    let wanted = wanted.unwrap_or_default();
    if wanted != DataRoot::Folder && !new.is_empty() && !in_folders.is_empty() {
        bail!(
            "failed to add {} on {}: the trees of {} lie in a Btrfs that the chart has only where every node has a folder. Leave --data-root out, or \
             remove the cluster with `cargo xtask down` and say --data-root when it is made",
            new.iter().map(Node::to_string).collect::<Vec<_>>().join(", "),
            wanted.name(),
            in_folders.join(", "),
        );
    }
    Ok(())
}

/// Makes the node's data root when it is not there. `wanted`: None takes what is there. A node keeps the file system that it was made with.
pub fn prepare(node: Node, wanted: Option<DataRoot>) -> Result<()> {
    let kind = if is_unset(node) { wanted.unwrap_or_default() } else { DataRoot::of(node) };
    if wanted.is_some_and(|wanted| wanted != kind) {
        bail!("failed to give {node} another data root: it has {} already", kind.name());
    }
    if let Some((program, words)) = kind.mkfs()
        && !image(node).exists()
    {
        let fresh = image(node).with_extension("new");
        reserve(&fresh, GIBIBYTES << 30)?;
        run(command(program, words).arg(&fresh))?;
        fs::rename(&fresh, image(node))?;
    }
    fs::write(node.path("data-root"), kind.name()).with_context(|| format!("failed to write the choice of {node}"))
}

/// Whether the node's data root was never made.
pub fn is_unset(node: Node) -> bool {
    !Path::new(&node.path("data-root")).exists()
}

/// What the node runs before its parts start, with the data root at `at`.
pub fn node_setup(node: Node, at: &str) -> Option<Vec<String>> {
    let kind = DataRoot::of(node);
    kind.mkfs()?;
    let image = image(node).display().to_string();
    Some(["mount", "-t", kind.name(), "-o", kind.mount_options(), &image, at].map(str::to_owned).to_vec())
}

fn image(node: Node) -> PathBuf {
    node.folder().join("data-root.img")
}

/// Makes a file whose blocks are all allocated, so that the machine's disk cannot be too full for it later.
fn reserve(file: &Path, bytes: u64) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let disk = rustix::fs::statvfs(folder).with_context(|| format!("failed to look at the disk of {}", folder.display()))?;
    let free = disk.f_bavail * disk.f_frsize;
    if free < bytes {
        bail!("failed to reserve {} MiB for {}: its disk has {} MiB free", bytes >> 20, file.display(), free >> 20);
    }
    let made = fs::File::create(file).with_context(|| format!("failed to make {}", file.display()))?;
    let reserved = rustix::fs::fallocate(&made, rustix::fs::FallocateFlags::empty(), 0, bytes);
    if reserved.is_err() {
        let _ = fs::remove_file(file);
    }
    reserved.with_context(|| format!("failed to reserve {} MiB for {}", bytes >> 20, file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_reserved_file_has_all_its_blocks_and_one_that_finds_no_room_says_how_much_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("image");
        reserve(&file, 8 << 20).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 >= 8 << 20);
        let refused = reserve(&folder.path().join("large"), 1 << 60).unwrap_err().to_string();
        assert!(refused.contains("1099511627776 MiB") && refused.contains("MiB free"), "{refused}");
        assert!(!folder.path().join("large").exists());
    }
}
