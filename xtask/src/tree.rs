//! A file tree as a tar that comes out the same, byte for byte, from the same contents.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

enum Entry {
    Folder,
    File { contents: Vec<u8>, mode: u32 },
    Link { to: String },
}

/// Paths have no leading slash. Everything belongs to root.
pub struct ImageTree(BTreeMap<String, Entry>);

impl ImageTree {
    /// With a world-writable `tmp`, which most programs expect.
    pub fn new() -> Self {
        Self(BTreeMap::from([("tmp".to_owned(), Entry::Folder)]))
    }

    pub fn program(&mut self, path: &str, from: &Path) -> Result<()> {
        let contents = fs::read(from).with_context(|| format!("failed to read {}", from.display()))?;
        self.insert(path, Entry::File { contents, mode: 0o755 });
        Ok(())
    }

    /// Plain files and folders below `from`; anything else has no place in an image of ours.
    pub fn folder(&mut self, path: &str, from: &Path) -> Result<()> {
        self.insert(path, Entry::Folder);
        for entry in fs::read_dir(from).with_context(|| format!("failed to read {}", from.display()))? {
            let entry = entry?;
            let below = format!("{path}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                self.folder(&below, &entry.path())?;
            } else {
                self.insert(&below, Entry::File { contents: fs::read(entry.path())?, mode: 0o644 });
            }
        }
        Ok(())
    }

    pub fn link(&mut self, path: &str, to: &str) {
        self.insert(path, Entry::Link { to: to.to_owned() });
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        let mut above = Path::new(path).parent();
        while let Some(folder) = above.filter(|folder| !folder.as_os_str().is_empty()) {
            self.0.entry(folder.display().to_string()).or_insert(Entry::Folder);
            above = folder.parent();
        }
        self.0.insert(path.to_owned(), entry);
    }

    pub fn tar(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(vec![]);
        for (path, entry) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(0);
            match entry {
                Entry::Folder => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(if path == "tmp" { 0o1777 } else { 0o755 });
                    tar.append_data(&mut header, format!("{path}/"), std::io::empty())?;
                }
                Entry::File { contents, mode } => {
                    header.set_mode(*mode);
                    header.set_size(contents.len() as u64);
                    tar.append_data(&mut header, path, contents.as_slice())?;
                }
                Entry::Link { to } => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    tar.append_link(&mut header, path, to)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_give_the_same_bytes_in_any_order() {
        let make = |paths: [&str; 2]| {
            let mut tree = ImageTree::new();
            for path in paths {
                tree.link(path, "busybox");
            }
            tree.tar().expect("a tar in memory")
        };
        assert_eq!(make(["bin/ls", "sbin/mount"]), make(["sbin/mount", "bin/ls"]));
    }
}
