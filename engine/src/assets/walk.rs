//! Finds the files beneath the root that may be assets. No link leads out of the tree, and the walk is bounded.

use std::collections::HashSet;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, openat, statat};
use yoi_assets::{
    AssetFile, FOLDERS, Folder, Kind, MAX_DEPTH, MAX_FILE_BYTES, MAX_FOLDERS, SameFile, TEAM_FOLDERS, TEAM_INSTRUCTIONS, is_asset,
};
use yoi_wire::assets::{AssetSet, AssetSettings};

use super::sets::{Roots, fetched_set};
use crate::error_text::without_os_error_number;
use crate::tools::tree::{PathError, Tree};

/// The most names that one walk looks at.
const MAX_NAMES: usize = 50_000;
/// The most bytes that one walk's files may have together.
const MAX_BYTES: u64 = 64 << 20;
/// The files that make their folder a skill. What lies below it is read by the model, and holds no further skills.
const SKILL_FILES: [&str; 2] = ["SKILL.md", "skill.md"];
/// Bytes of a list of names that the kernel gives at once.
const LIST_BYTES: usize = 8 << 10;
/// Longer than a step of the clock by which the kernel tells when files changed.
const CLOCK_STEP: Duration = Duration::from_millis(100);
/// The keys of a ConfigMap that are read.
const KEYS: &str = "skills.NAME.md, commands.NAME.md, workflows.NAME.md, skill_graph.NAME.md and AGENTS.md";
/// Never holds assets of the team's own.
const FOREIGN: &str = "node_modules";

/// What changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Whether a change from this moment on has another stamp. The kernel's clock for files goes on in steps, and two changes in one step have one time.
    fn is_older_than(&self, moment: SystemTime) -> bool {
        let (seconds, nanos) = self.changed;
        let since = u64::try_from(seconds).ok().zip(u32::try_from(nanos).ok()).map(|(seconds, nanos)| Duration::new(seconds, nanos));
        since.is_some_and(|since| UNIX_EPOCH + since + CLOCK_STEP < moment)
    }
}

impl From<&Stat> for Stamp {
    fn from(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        }
    }
}

/// A file that may be an asset, or a name that was not followed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FoundFile {
    path: String,
    /// The set that it is of; `None`: it is of the tree.
    set: Option<u16>,
    /// Where it is below its root, without links, and what it was.
    at: Result<(PathBuf, Stamp), String>,
}

/// All files that may be assets, in the order in which the first of a name wins.
pub(super) fn walk(roots: &Roots<'_>, settings: &AssetSettings) -> Vec<FoundFile> {
    let mut walk = walk_tree(roots.tree, settings);
    for (set, place) in settings.sets.iter().zip(0..) {
        walk.found.extend(if set.fetched { files_of_fetched(roots, set, place) } else { files_of_set(roots, set, place) });
    }
    walk.found
}

/// The folders of the tree that may hold assets, without links.
pub(super) fn folders(tree: &Tree, settings: &AssetSettings) -> HashSet<PathBuf> {
    walk_tree(tree, settings).visited
}

/// The files of a set that was fetched, which is in folders as a tree is, and bounded as one.
fn files_of_fetched(roots: &Roots<'_>, set: &AssetSet, place: u16) -> Vec<FoundFile> {
    let refused = |why: String| vec![FoundFile { path: set.name.clone(), set: Some(place), at: Err(why) }];
    if set.folder.is_empty() {
        return Vec::new();
    }
    if let Some(why) = fetched_set(set).missing {
        return if set.optional { Vec::new() } else { refused(why) };
    }
    let root = match roots.root(Some(place)) {
        Ok(root) => root,
        Err(error) => return refused(sentence(&error)),
    };
    let mut walk = Walk::new(root);
    for folder in TEAM_FOLDERS {
        walk.enter_by_path(folder, folder.path, "", 0, &mut Vec::new());
    }
    let of_set = |file: FoundFile| FoundFile { path: format!("{}/{}", set.name, file.path), set: Some(place), ..file };
    walk.found.into_iter().map(of_set).collect()
}

fn walk_tree<'a>(tree: &'a Tree, settings: &AssetSettings) -> Walk<'a> {
    let mut walk = Walk::new(tree);
    let is_read = |folder: &&Folder| settings.dirs.as_ref().is_none_or(|dirs| dirs.iter().any(|dir| dir == folder.source.as_str()));
    for folder in FOLDERS.iter().filter(is_read) {
        walk.enter_by_path(folder, folder.path, "", 0, &mut Vec::new());
    }
    walk
}

/// The files of a set. Its root has one file for each asset, as a ConfigMap has a key.
fn files_of_set(roots: &Roots<'_>, set: &AssetSet, place: u16) -> Vec<FoundFile> {
    let refused = |path: &str, why: String| FoundFile { path: path.to_owned(), set: Some(place), at: Err(why) };
    let missing = || {
        let next = format!("give it keys such as {KEYS}");
        vec![refused(&set.name, format!("it is not in the agent's namespace, or holds nothing: make it there, and {next}"))]
    };
    let root = match roots.root(Some(place)) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return if set.optional { Vec::new() } else { missing() },
        Err(error) => return vec![refused(&set.name, sentence(&error))],
    };
    let names =
        match root.open_folder(".").map_err(|error| path_sentence(&error)).and_then(|fd| names(&fd).map_err(|error| sentence(&error))) {
            Ok(names) => names,
            Err(why) => return vec![refused(&set.name, why)],
        };
    // The kubelet's own begin with two dots.
    let names: Vec<String> = names.into_iter().map(|(name, _)| name).filter(|name| !name.starts_with('.')).collect();
    if names.is_empty() && !set.optional {
        return missing();
    }
    // The model is told of its instructions as they are.
    let names = names.into_iter().filter(|name| name != TEAM_INSTRUCTIONS);
    let found = |name: String| {
        let Some(below) = path_of_key(&name) else {
            return refused(&format!("{}/{name}", set.name), format!("its name is none of {KEYS}, so it is not read"));
        };
        FoundFile { path: format!("{}/{below}", set.name), set: Some(place), at: locate_file(root, &name) }
    };
    names.map(found).collect()
}

/// The path within its set of what has this key.
fn path_of_key(key: &str) -> Option<String> {
    let (kind, name) = key.split_once('.')?;
    let name = name.strip_suffix(".md").filter(|name| !name.is_empty())?;
    match kind {
        "skills" => Some(format!("skills/{name}/SKILL.md")),
        "commands" | "workflows" | "skill_graph" => Some(format!("{kind}/{name}.md")),
        _ => None,
    }
}

/// What was read of what was found.
#[derive(Default)]
pub(super) struct ReadFiles {
    pub(super) files: Vec<AssetFile>,
    /// Those that are as they were when they were read.
    pub(super) same: Vec<SameFile>,
    /// Those that need not be read again as long as their stamp is the same.
    pub(super) rested: HashSet<FoundFile>,
}

/// Reads what was found, but for the files that are as they were `before` and of which `knows` what they say. A file that has gone meanwhile is told with the
/// reason, as one that cannot be read.
pub(super) fn read(roots: &Roots<'_>, found: &[FoundFile], before: &HashSet<FoundFile>, knows: &dyn Fn(&SameFile) -> bool) -> ReadFiles {
    let (mut read, mut left, begun) = (ReadFiles::default(), MAX_BYTES, SystemTime::now());
    for file in found {
        let FoundFile { path, set, at } = file;
        let checked = at.as_ref().map_err(Clone::clone).and_then(|(at, stamp)| {
            if stamp.bytes > MAX_FILE_BYTES {
                return Err(format!("it has {} bytes, and an asset has at most {MAX_FILE_BYTES}", stamp.bytes));
            }
            left = left.checked_sub(stamp.bytes).ok_or_else(|| format!("the assets have more than {MAX_BYTES} bytes together"))?;
            Ok((at, stamp))
        });
        let same = (*set, path.clone());
        if checked.is_ok() && before.contains(file) && knows(&same) {
            read.same.push(same);
            read.rested.insert(file.clone());
            continue;
        }
        let content = checked.and_then(|(at, stamp)| {
            let content = roots.root(*set).and_then(|root| read_file(root, at, stamp.bytes)).map_err(|error| sentence(&error))?;
            if stamp.is_older_than(begun) {
                read.rested.insert(file.clone());
            }
            Ok(content)
        });
        read.files.push(AssetFile { path: same.1, set: *set, content });
    }
    read
}

/// Where a regular file is whose path may hold links, and what it is.
fn locate_file(tree: &Tree, path: &str) -> Result<(PathBuf, Stamp), String> {
    let located = tree.locate(path).map_err(|error| path_sentence(&error))?;
    let file = tree.open_located(&located).map_err(|error| sentence(&error))?;
    let stat = rustix::fs::fstat(&file).map_err(|error| sentence(&error.into()))?;
    Ok((located, Stamp::from(&stat)))
}

fn read_file(tree: &Tree, at: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default() + 1);
    tree.open_located(at)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_FILE_BYTES { Err(io::Error::other("it grew while it was read")) } else { Ok(content) }
}

struct Walk<'a> {
    tree: &'a Tree,
    found: Vec<FoundFile>,
    /// Folders that were looked at, without links. One that two names lead to is looked at once.
    visited: HashSet<PathBuf>,
    names: usize,
    is_full: bool,
}

/// A folder that is open, and how it was reached.
struct OpenFolder {
    fd: OwnedFd,
    /// As people write it.
    path: String,
    /// Below the folder of [`FOLDERS`]; empty: that one.
    below: String,
    /// Without links.
    located: PathBuf,
    depth: usize,
}

impl<'a> Walk<'a> {
    fn new(tree: &'a Tree) -> Self {
        Walk { tree, found: Vec::new(), visited: HashSet::new(), names: 0, is_full: false }
    }

    fn refuse(&mut self, path: &str, why: impl Into<String>) {
        self.push(path.to_owned(), Err(why.into()));
    }

    fn push(&mut self, path: String, at: Result<(PathBuf, Stamp), String>) {
        self.found.push(FoundFile { path, set: None, at });
    }

    /// Enters a folder whose path may hold links. One that is not there holds nothing.
    fn enter_by_path(&mut self, of: &Folder, path: &str, below: &str, depth: usize, above: &mut Vec<PathBuf>) {
        let opened = self.tree.locate(path).and_then(|located| Ok((located, self.tree.open_folder(path)?)));
        match opened {
            Ok((located, fd)) => self.enter(of, OpenFolder { fd, path: path.to_owned(), below: below.to_owned(), located, depth }, above),
            Err(PathError::Io { source, .. }) if depth == 0 && source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.refuse(path, path_sentence(&error)),
        }
    }

    fn enter(&mut self, of: &Folder, folder: OpenFolder, above: &mut Vec<PathBuf>) {
        if above.contains(&folder.located) {
            return self.refuse(&folder.path, "it is a link to a folder that it lies in, so it is a loop");
        }
        if self.is_full || !self.visited.insert(folder.located.clone()) {
            return;
        }
        if self.visited.len() > MAX_FOLDERS {
            self.is_full = true;
            return self.refuse(&folder.path, format!("there are more than {MAX_FOLDERS} folders; it, and what follows it, is not read"));
        }
        if folder.depth > MAX_DEPTH {
            return self.refuse(&folder.path, format!("it lies deeper than {MAX_DEPTH} folders, so nothing in it is read"));
        }
        let names = match names(&folder.fd) {
            Ok(names) => names,
            Err(error) => return self.refuse(&folder.path, sentence(&error)),
        };
        self.names += names.len();
        if self.names > MAX_NAMES {
            self.is_full = true;
            return self.refuse(&folder.path, format!("there are more than {MAX_NAMES} names; it, and what follows it, is not read"));
        }
        let is_skill = of.kind == Kind::Skills && folder.depth > 0 && names.iter().any(|(name, _)| SKILL_FILES.contains(&name.as_str()));
        above.push(folder.located.clone());
        for (name, kind) in names {
            self.look_at(of, &folder, &name, kind, is_skill, above);
        }
        above.pop();
    }

    fn look_at(&mut self, of: &Folder, folder: &OpenFolder, name: &str, kind: FileType, is_skill: bool, above: &mut Vec<PathBuf>) {
        let path = format!("{}/{name}", folder.path);
        let below = if folder.below.is_empty() { name.to_owned() } else { format!("{}/{name}", folder.below) };
        let is_asset = is_asset(of, &below);
        let enters = !is_skill && !name.starts_with('.') && name != FOREIGN;
        let stat = || statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        // Some file systems do not say what it is.
        let kind = if kind == FileType::Unknown { stat().map(|stat| FileType::from_raw_mode(stat.st_mode)) } else { Some(kind) };
        let Some(kind) = kind else { return };
        match kind {
            FileType::RegularFile if is_asset => {
                // What has become another thing meanwhile is seen by the next look.
                if let Some(stat) = stat().filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
                    self.push(path, Ok((folder.located.join(name), Stamp::from(&stat))));
                }
            }
            FileType::Directory if enters => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match openat(&folder.fd, name, flags, Mode::empty()) {
                    Ok(fd) => {
                        let located = folder.located.join(name);
                        self.enter(of, OpenFolder { fd, path, below, located, depth: folder.depth + 1 }, above);
                    }
                    Err(error) => self.refuse(&path, sentence(&error.into())),
                }
            }
            FileType::Symlink => self.follow(of, folder, path, &below, is_asset, enters, above),
            FileType::RegularFile | FileType::Directory => {}
            _ if is_asset => self.refuse(&path, "it is no regular file"),
            _ => {}
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what the walk knows of one name")]
    fn follow(
        &mut self,
        of: &Folder,
        folder: &OpenFolder,
        path: String,
        below: &str,
        is_asset: bool,
        enters: bool,
        above: &mut Vec<PathBuf>,
    ) {
        match self.tree.kind(&path) {
            Ok(FileType::Directory) if enters => self.enter_by_path(of, &path, below, folder.depth + 1, above),
            Ok(FileType::Directory) => {}
            Ok(_) if !is_asset => {}
            Ok(FileType::RegularFile) => {
                let at = locate_file(self.tree, &path);
                self.push(path, at);
            }
            Ok(_) => self.refuse(&path, "it is no regular file"),
            // What it leads to may have been a folder of skills, so it is told whatever its name.
            Err(error) => self.refuse(&path, path_sentence(&error)),
        }
    }
}

/// The names in a folder that was not listed yet, in their order, and what each is as far as the file system says. A name that is not UTF-8 is none of an asset.
fn names(folder: &OwnedFd) -> io::Result<Vec<(String, FileType)>> {
    let (mut names, mut buffer) = (Vec::new(), Vec::with_capacity(LIST_BYTES));
    let mut list = RawDir::new(folder, buffer.spare_capacity_mut());
    while let Some(entry) = list.next() {
        let entry = entry?;
        if let Ok(name) = entry.file_name().to_str()
            && name != "."
            && name != ".."
        {
            names.push((name.to_owned(), entry.file_type()));
        }
        if names.len() > MAX_NAMES {
            break;
        }
    }
    names.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(names)
}

fn path_sentence(error: &PathError) -> String {
    match error {
        PathError::Outside { .. } => "it is a link that leads out of the tree".to_owned(),
        PathError::Loop { .. } => "it is a loop of links".to_owned(),
        PathError::Io { source, .. } => sentence(source),
        PathError::NotAPath { .. } | PathError::Changed { .. } => error.to_string(),
    }
}

fn sentence(error: &io::Error) -> String {
    without_os_error_number(&error.to_string())
}
