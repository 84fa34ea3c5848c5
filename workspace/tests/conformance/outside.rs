//! A directory beside the trees of a case that notices every change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use yoi_workspace::mountinfo;

use crate::fixture::Fixture;

/// A directory that nobody may change. It notices every change.
pub struct Outside {
    pub dir: PathBuf,
    before: Vec<(PathBuf, u32, u32, i64, u64)>,
}

impl Outside {
    pub fn new(fixture: &Fixture, name: &str) -> Self {
        let dir = fixture.dir.join(name);
        for n in 0..4 {
            fs::create_dir_all(dir.join(format!("sub{n}"))).unwrap();
            for m in 0..4 {
                fs::write(dir.join(format!("f{m}")), "precious").unwrap();
                fs::write(dir.join(format!("sub{n}/f{m}")), "precious").unwrap();
            }
        }
        // A file that is visible in every sum and every list.
        fs::File::create(dir.join("canary")).unwrap().set_len(1 << 40).unwrap();
        let before = Self::look(&dir);
        Self { dir, before }
    }

    fn look(dir: &Path) -> Vec<(PathBuf, u32, u32, i64, u64)> {
        let mut all = vec![];
        let mut rest = vec![dir.to_owned()];
        while let Some(at) = rest.pop() {
            for entry in fs::read_dir(&at).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    rest.push(path.clone());
                }
                all.push((path, meta.mode(), meta.uid(), meta.mtime(), meta.len()));
            }
        }
        all.sort();
        all
    }

    /// Returns what changed, if anything did.
    pub fn harm(&self) -> Option<String> {
        if let Some(mount) = mountinfo::read().unwrap().iter().find(|m| m.mount_point.starts_with(&self.dir)) {
            _ = rustix::mount::unmount(&mount.mount_point, rustix::mount::UnmountFlags::DETACH);
            return Some(format!("something was mounted at {}", mount.mount_point.display()));
        }
        let (now, before) = (Self::look(&self.dir), &self.before);
        let gone = before.iter().find(|b| !now.contains(b)).map(|b| format!("{} was changed or removed", b.0.display()));
        gone.or_else(|| now.iter().find(|n| !before.contains(n)).map(|n| format!("{} was made", n.0.display())))
    }
}
