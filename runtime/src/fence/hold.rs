//! By what one process could write where a path is covered.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, StatVfsMountFlags, statvfs};

use super::lent_paths::View;
use super::mounts::{identity, stat};
use super::{mappings, proc};

/// The name of a process, as the kernel has it.
pub(super) fn program(pid: u32) -> String {
    let name = std::fs::read(proc(pid).join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// By what the process holds something that counts, and its path; `None`: it holds nothing, or has ended.
pub(super) fn of_process(pid: u32, view: &View) -> Option<(&'static str, String)> {
    let tasks = match threads(pid) {
        Ok(tasks) => tasks,
        Err(error) => return unreadable(&error),
    };
    let mut is_first = true;
    for task in tasks {
        if has_ended(&task) {
            continue;
        }
        // Threads share their memory. Descriptors and folders a thread may have for itself.
        let held = of_thread(&task, view).or_else(|| if std::mem::take(&mut is_first) { of_memory(&task, view) } else { None });
        if held.is_some() {
            return held;
        }
    }
    None
}

fn threads(pid: u32) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(proc(pid).join("task"))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// Whether the thread is a zombie, or gone.
fn has_ended(task: &Path) -> bool {
    super::freeze::state(&task.join("stat")).is_none_or(|state| matches!(state, 'Z' | 'X' | 'x'))
}

/// One that has ended holds nothing. One that cannot be looked at may hold anything.
fn unreadable(error: &io::Error) -> Option<(&'static str, String)> {
    let is_gone = error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
    (!is_gone).then(|| ("state, which cannot be looked at", String::new()))
}

fn of_memory(task: &Path, view: &View) -> Option<(&'static str, String)> {
    if let Some(held) = of_object(&task.join("exe"), None, view) {
        return Some(("program file", held));
    }
    match mappings::held(task, view) {
        Ok(held) => held.map(|path| ("mapping", path)),
        Err(error) => unreadable(&error),
    }
}

fn of_thread(task: &Path, view: &View) -> Option<(&'static str, String)> {
    match std::fs::read_link(task.join("ns/mnt")) {
        Ok(namespace) if namespace != view.namespace => return Some(("mount namespace", String::new())),
        Ok(_) => {}
        Err(error) => return unreadable(&error),
    }
    for (link, by) in [("cwd", "working directory"), ("root", "root")] {
        if let Some(held) = of_object(&task.join(link), None, view) {
            return Some((by, held));
        }
    }
    let descriptors = match std::fs::read_dir(task.join("fd")) {
        Ok(descriptors) => descriptors,
        Err(error) => return unreadable(&error),
    };
    for descriptor in descriptors.flatten() {
        let info = task.join("fdinfo").join(descriptor.file_name());
        if let Some(held) = of_object(&descriptor.path(), Some(&info), view) {
            return Some(("descriptor", held));
        }
    }
    None
}

/// The path of what a link in `/proc` leads to, if it counts.
fn of_object(link: &Path, info: Option<&Path>, view: &View) -> Option<String> {
    let text = match std::fs::read_link(link) {
        Ok(text) => text,
        Err(error) => return unreadable(&error).map(|_| "that cannot be looked at".to_owned()),
    };
    if !text.as_os_str().as_bytes().starts_with(b"/") {
        return of_nameless(&text, info?);
    }
    let told = || Some(text.display().to_string());
    let Ok(found) = stat(link, true) else { return None };
    let kind = FileType::from_raw_mode(u32::from(found.stx_mode));
    let is_folder = kind == FileType::Directory;
    // A file without a name gets none where it cannot be written.
    let has_no_name = !is_folder && found.stx_nlink == 0;
    match view.mount_of(&found) {
        Some(mount) if !view.is_of_tree(mount) || mount.read_only || has_no_name => None,
        Some(_) => match stat(&text, false) {
            // Whoever opens the path now gets the same.
            Ok(now) if (now.stx_mnt_id, identity(&now)) == (found.stx_mnt_id, identity(&found)) => None,
            Ok(_) | Err(_) => told(),
        },
        // Of another namespace, or a mount that was taken off and is still in use.
        None if !is_folder && (kind != FileType::RegularFile || has_no_name || !view.may_be_lent(&found)) => None,
        None if is_folder && !view.may_be_of_tree(&found) => None,
        None => {
            let is_read_only = statvfs(link).is_ok_and(|of| of.f_flag.contains(StatVfsMountFlags::RDONLY));
            if is_read_only { None } else { told() }
        }
    }
}

/// What has no path, and may have descriptors in it.
fn of_nameless(text: &Path, info: &Path) -> Option<String> {
    let bytes = text.as_os_str().as_bytes();
    let counter = match bytes {
        _ if bytes.starts_with(b"socket:") => "scm_fds:",
        b"anon_inode:[io_uring]" => "UserFiles:",
        _ => return None,
    };
    let info = std::fs::read_to_string(info).ok()?;
    let count = info.lines().find_map(|line| line.strip_prefix(counter)?.trim().parse::<u64>().ok())?;
    (count > 0).then(|| format!("{}, with {count} descriptors in it", text.display()))
}
