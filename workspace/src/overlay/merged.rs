//! What an overlay shows, read from its layers, without a mount.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::fs::Stat;
use rustix::io::Errno;

use super::fork::INDEX;
use crate::compare::stat_opt;
use crate::error::StepContext;
use crate::layout::{UPPER, WORK};
use crate::tree_copy::is_whiteout;
use crate::{NodeKind, SysError, dir};

const OPAQUE: &CStr = c"trusted.overlay.opaque";
const REDIRECT: &CStr = c"trusted.overlay.redirect";
const ORIGIN: &CStr = c"trusted.overlay.origin";

/// The layers of an overlay.
pub(super) struct Layers {
    pub upper: Arc<OwnedFd>,
    pub lower: Arc<OwnedFd>,
    index: Option<OwnedFd>,
    /// By inode number in the lower layer, the name in the index: the file that shows under every name of that inode.
    indexed: HashMap<u64, CString>,
    /// A fault for a test to find.
    pub ignores_redirects: bool,
}

/// A directory of the overlay. It shows the names of the upper one and those of the lower one that the upper one does not hide.
pub(super) struct MergedDir {
    pub upper: Option<Arc<OwnedFd>>,
    pub lower: Option<Arc<OwnedFd>>,
}

/// What shows under a name.
pub(super) struct Shown {
    pub stat: Stat,
    /// The directory that holds the file, and its name there.
    pub at: Arc<OwnedFd>,
    pub name: CString,
}

impl Layers {
    /// None if more than `most` files that have several names in the base were written: the index of them is not read into memory then.
    pub fn open(entry: &OwnedFd, base: &OwnedFd, most: usize) -> Result<Option<Self>, SysError> {
        let upper = Arc::new(dir::open(entry, UPPER).step("open the upper layer")?);
        let lower = Arc::new(dir::open(base, ".").step("open the base")?);
        let index = dir::open_opt(entry, format!("{WORK}/{INDEX}")).step("open the index")?;
        let (mut indexed, mut all) = (HashMap::new(), 0usize);
        if let Some(index) = &index {
            dir::for_each_name(index, "read the index", |name| {
                all += 1;
                // Without an original in the base it is left over, and the next mount removes it.
                if all <= most
                    && let Some(inode) = original_of(index.as_fd(), name, &lower)?
                {
                    indexed.insert(inode, name.to_owned());
                }
                Ok(())
            })?;
        }
        Ok((all <= most).then_some(Self { upper, lower, index, indexed, ignores_redirects: false }))
    }

    pub fn root(&self) -> MergedDir {
        MergedDir { upper: Some(self.upper.clone()), lower: Some(self.lower.clone()) }
    }

    /// What shows under a name of `dir`.
    pub fn get(&self, dir: &MergedDir, name: &CStr) -> Result<Option<Shown>, SysError> {
        if let Some(upper) = &dir.upper
            && let Some(stat) = stat_opt(upper.as_fd(), name)?
        {
            let shown = Shown { stat, at: upper.clone(), name: name.to_owned() };
            return Ok((!is_whiteout(&shown.stat)).then_some(shown));
        }
        let Some(lower) = &dir.lower else { return Ok(None) };
        let Some(stat) = stat_opt(lower.as_fd(), name)? else { return Ok(None) };
        if stat.st_nlink > 1
            && let Some((stat, index, entry)) = self.indexed_entry(stat.st_ino)?
        {
            let at = Arc::new(dir::open(index, ".").step("open the index")?);
            return Ok(Some(Shown { stat, at, name: entry.clone() }));
        }
        Ok(Some(Shown { stat, at: lower.clone(), name: name.to_owned() }))
    }

    /// The file that shows under every name of an inode of the lower layer, if it was written under one of them.
    pub fn indexed_file(&self, inode: u64) -> Result<Option<Stat>, SysError> {
        Ok(self.indexed_entry(inode)?.map(|(stat, ..)| stat))
    }

    fn indexed_entry(&self, inode: u64) -> Result<Option<(Stat, &OwnedFd, &CString)>, SysError> {
        let (Some(index), Some(entry)) = (&self.index, self.indexed.get(&inode)) else { return Ok(None) };
        Ok(stat_opt(index.as_fd(), entry)?.map(|stat| (stat, index, entry)))
    }

    /// Opens a directory that shows under a name of `dir`.
    pub fn open_dir(&self, dir: &MergedDir, name: &CStr) -> Result<MergedDir, SysError> {
        let upper = match &dir.upper {
            Some(upper) => open_dir_opt(upper.as_fd(), name)?,
            None => None,
        };
        let Some(upper) = upper else {
            let lower = match &dir.lower {
                Some(lower) => open_dir_opt(lower.as_fd(), name)?.map(Arc::new),
                None => None,
            };
            return Ok(MergedDir { upper: None, lower });
        };
        let lower = self.lower_of(dir, &upper, name)?.map(Arc::new);
        Ok(MergedDir { upper: Some(Arc::new(upper)), lower })
    }

    /// The lower directory whose names show in an upper one.
    fn lower_of(&self, parent: &MergedDir, upper: &OwnedFd, name: &CStr) -> Result<Option<OwnedFd>, SysError> {
        if let Some(redirect) = attribute(upper.as_fd(), REDIRECT)?
            && !self.ignores_redirects
        {
            let path = Path::new(OsStr::from_bytes(&redirect));
            let (at, below) = match path.strip_prefix("/") {
                Ok(below) => (Some(&self.lower), below),
                Err(_) => (parent.lower.as_ref(), path),
            };
            let plain = below.components().all(|c| matches!(c, Component::Normal(_))) && !below.as_os_str().is_empty();
            return match at {
                Some(at) if plain => open_dir_opt(at.as_fd(), below),
                _ => Ok(None),
            };
        }
        if attribute(upper.as_fd(), OPAQUE)?.is_some_and(|value| value == b"y") {
            return Ok(None);
        }
        match &parent.lower {
            Some(lower) => open_dir_opt(lower.as_fd(), name),
            None => Ok(None),
        }
    }

    /// Calls `each` with the paths in the lower layer of all files with several names of which one was written through the overlay. `check` is
    /// called for every path of the lower layer.
    pub fn for_each_indexed_path(
        &self,
        check: &dyn Fn() -> Result<(), SysError>,
        mut each: impl FnMut(&[u8]) -> Result<(), SysError>,
    ) -> Result<(), SysError> {
        if self.indexed.is_empty() {
            return Ok(());
        }
        dir::walk(self.lower.as_fd(), &mut |entry| {
            check()?;
            if entry.stat.st_nlink > 1 && entry.kind != NodeKind::Dir && self.indexed.contains_key(&entry.stat.st_ino) {
                each(entry.path)?;
            }
            Ok(())
        })
    }
}

impl MergedDir {
    /// Calls `each` with every name, in no order.
    pub fn for_each_name(&self, layers: &Layers, mut each: impl FnMut(&CStr) -> Result<(), SysError>) -> Result<(), SysError> {
        if let Some(upper) = &self.upper {
            dir::for_each_name(&**upper, "read a directory", |name| match layers.get(self, name)? {
                Some(_) => each(name),
                None => Ok(()),
            })?;
        }
        let Some(lower) = &self.lower else { return Ok(()) };
        dir::for_each_name(&**lower, "read a directory", |name| {
            // What the upper directory names was visited, or hides the name.
            let hidden = match &self.upper {
                Some(upper) => stat_opt(upper.as_fd(), name)?.is_some(),
                None => false,
            };
            if hidden { Ok(()) } else { each(name) }
        })
    }
}

/// Opens a directory; `None` if there is none.
pub(super) fn open_dir_opt(at: BorrowedFd, path: impl rustix::path::Arg) -> Result<Option<OwnedFd>, SysError> {
    match dir::open(at, path) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(e) => Err(e).step("open a directory"),
    }
}

/// True if both are the same directory, or there is neither.
pub(super) fn is_same_dir(one: Option<&Arc<OwnedFd>>, other: Option<&Arc<OwnedFd>>) -> Result<bool, SysError> {
    let identity = |dir: &Arc<OwnedFd>| rustix::fs::fstat(&**dir).map(|s| (s.st_dev, s.st_ino)).step("stat a directory");
    match (one, other) {
        (Some(one), Some(other)) => Ok(identity(one)? == identity(other)?),
        (None, None) => Ok(false),
        (Some(_), None) | (None, Some(_)) => Ok(false),
    }
}

fn attribute(dir: BorrowedFd, name: &CStr) -> Result<Option<Vec<u8>>, SysError> {
    let mut value = vec![0; 4096];
    match rustix::fs::fgetxattr(dir, name, &mut value) {
        Ok(len) => Ok(Some(value[..len].to_vec())),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e).step("read an attribute of a layer"),
    }
}

/// The inode number in the lower layer of the file that an entry of the index was copied from.
fn original_of(index: BorrowedFd, name: &CStr, lower: &OwnedFd) -> Result<Option<u64>, SysError> {
    let mut value = vec![0; 256];
    let path = crate::tree_copy::path_through(index, name);
    match rustix::fs::lgetxattr(&path, ORIGIN, &mut value) {
        Ok(len) => crate::host::inode_of_overlay_handle(lower, &value[..len]),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(e) => Err(e).step("read an attribute of the index"),
    }
}
