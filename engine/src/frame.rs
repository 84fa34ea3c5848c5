//! The frame: what processes of the agent may reach of the Pod, by Landlock.
//!
//! A thread enters the frame, and every process that the thread starts is in it for good. All of them share one domain, so they may signal and
//! trace each other, and nothing outside.
//!
//! | May | What |
//! |---|---|
//! | write | the tree, `/tmp`, HOME, `/dev`, and in a Pod the volumes that its owner mounted |
//! | read and run | the image: everything else that is not closed |
//! | neither | the closed folders: session volume, token, manifest, preset and credentials |
//!
//! # Caveats
//! Landlock cannot close a folder below an open one, so each folder above a closed one is opened child by child: its list cannot be read, and
//! what is made there later stays closed. Sockets with a name in the file system are not governed.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, Scope,
};

/// The newest version whose rights are asked for.
const NEWEST: ABI = ABI::V7;
/// The first that scopes signals and abstract sockets.
const SCOPES: i64 = 6;
/// The first that governs ioctls of devices; and before it, truncation and moves between folders.
const DEVICES: i64 = 5;

/// What the kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSupport {
    /// Version of Landlock, or the negated error number of the call that asks for it.
    abi: i64,
}

impl FrameSupport {
    /// Asks the kernel.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        // SAFETY: with this flag the call reads no memory.
        let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0_usize, 1_u32) };
        let error = || i64::from(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOSYS));
        Self { abi: if abi < 0 { -error() } else { abi } }
    }

    /// What it lacks, in a sentence for people; `None` when it has all.
    #[must_use]
    pub fn lacks(self) -> Option<String> {
        match self.abi {
            abi if abi <= 0 => Some(
                "the node's kernel has no Landlock, or it is not enabled: the agent's processes can read the session volume, the gateway's \
                 token and the manifest, and signal the runtime"
                    .to_owned(),
            ),
            abi if abi < DEVICES => Some(format!(
                "the node's kernel has Landlock {abi}, which governs neither signals and abstract sockets nor all ways to change a file: the \
                 agent's processes can signal the runtime"
            )),
            abi if abi < SCOPES => {
                Some(format!("the node's kernel has Landlock {abi}, which governs no signals and no abstract sockets: the agent's processes can signal the runtime"))
            }
            _ => None,
        }
    }

    /// Whether it keeps files closed at all.
    #[must_use]
    pub fn governs_files(self) -> bool {
        self.abi > 0
    }
}

/// What processes of the agent may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Open to write, also below a closed folder.
    pub write: Vec<PathBuf>,
    /// Closed, with all beneath.
    pub closed: Vec<PathBuf>,
    /// Open to write is also what is mounted to be written, as the owner of a Pod mounts volumes.
    pub volumes: bool,
}

/// The frame cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("failed to set up Landlock")]
    Landlock(#[from] RulesetError),
    #[error("failed to start the thread that starts programs")]
    Thread(#[source] std::io::Error),
}

/// A folder or file, and what may be done there.
type Rule = (PathBuf, BitFlags<AccessFs>);

impl Frame {
    /// Puts the calling thread into the frame, and with it all processes that it starts from now on. This cannot be undone.
    ///
    /// # Errors
    /// The kernel has Landlock and refuses.
    pub fn enter(&self) -> Result<RestrictionStatus, FrameError> {
        let mut ruleset = Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?.scope(Scope::from_all(NEWEST))?.create()?;
        let volumes = if self.volumes { mounted_volumes() } else { Vec::new() };
        for (path, access) in self.rules(Path::new("/"), &volumes) {
            // What is gone by now needs no rule.
            let Ok(opened) = fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(&path) else { continue };
            let is_directory = opened.metadata().is_ok_and(|metadata| metadata.is_dir());
            let access = if is_directory { access } else { access & AccessFs::from_file(NEWEST) };
            ruleset = ruleset.add_rule(PathBeneath::new(opened, access))?;
        }
        Ok(ruleset.restrict_self()?)
    }

    fn rules(&self, root: &Path, volumes: &[PathBuf]) -> Vec<Rule> {
        let closed: Vec<PathBuf> = self.closed.iter().map(|path| canonical(path)).collect();
        let (all, read) = (AccessFs::from_all(NEWEST), AccessFs::from_read(NEWEST));
        let mut rules = Vec::new();
        open_except(root, &closed, read, &mut rules);
        for path in self.write.iter().chain(volumes.iter().filter(|volume| !closed.iter().any(|closed| volume.starts_with(closed)))) {
            open_except(&canonical(path), &closed, all, &mut rules);
        }
        rules.push((root.join("dev"), read | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate));
        rules.extend(["dev/shm", "dev/mqueue"].map(|path| (root.join(path), all)));
        rules
    }
}

fn canonical(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Opens `path`, and where closed folders are beneath it, everything around them. Symbolic links are left out: what they lead to is opened where it is.
fn open_except(path: &Path, closed: &[PathBuf], access: BitFlags<AccessFs>, rules: &mut Vec<Rule>) {
    if closed.iter().any(|closed| closed == path) {
        return;
    }
    if !closed.iter().any(|closed| closed.starts_with(path)) {
        rules.push((path.to_owned(), access));
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            open_except(&entry.path(), closed, access, rules);
        }
    }
}

/// Mount points of volumes that can be written, other than those of the system.
fn mounted_volumes() -> Vec<PathBuf> {
    parse_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// `id parent device root mount-point options ...`; blanks in a path are octal escapes.
fn parse_mounts(mountinfo: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (point, options) = (fields.get(4)?, fields.get(5)?);
        let of_system = *point == "/" || ["/proc", "/sys", "/dev", "/etc"].iter().any(|system| Path::new(point).starts_with(system));
        let writable = options.split(',').any(|option| option == "rw");
        (writable && !of_system).then(|| PathBuf::from(point.replace("\\040", " ")))
    };
    mountinfo.lines().filter_map(of_line).collect()
}

#[cfg(test)]
mod tests;
