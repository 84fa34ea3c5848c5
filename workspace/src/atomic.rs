//! Replacing a file or a symbolic link so that a crash leaves the old one or the new one, never a part of one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::SysError;
use crate::error::StepContext;
use crate::faults::{FaultPoint, Faults, NoFaults};

/// Writes `bytes` to the file `name` in the directory `dir`. `mode` is the mode of a new file before the umask.
///
/// # Guarantees
/// - When it returns Ok, content and name are on the device.
/// - Whenever it fails or the machine stops, `name` is the former file or the new one.
///
/// # Assumptions
/// - `name` is one component. `<name>.tmp` in the same directory belongs to this function: it is overwritten, and a crash may leave it
///   behind. Whoever lists the directory skips or removes such files.
/// - One caller at a time writes a given name.
pub fn write_atomically(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32, bytes: &[u8]) -> Result<(), SysError> {
    write_atomically_with(dir, name, mode, |file| file.write_all(bytes).step("write the temporary file"))
}

/// Like [`write_atomically`], for content that `fill` writes to the empty temporary file. An error of `fill` is returned as it is.
pub fn write_atomically_with(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    mode: u32,
    fill: impl FnOnce(&mut File) -> Result<(), SysError>,
) -> Result<(), SysError> {
    write_with_faults(dir.as_fd(), name.as_ref(), mode, &NoFaults, fill)
}

/// Like [`write_atomically_with`], and tells `faults` when the file is flushed and when it is renamed.
pub(crate) fn write_with_faults(
    dir: BorrowedFd,
    name: &OsStr,
    mode: u32,
    faults: &dyn Faults,
    fill: impl FnOnce(&mut File) -> Result<(), SysError>,
) -> Result<(), SysError> {
    let temporary = temporary_name(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, &*temporary, flags, Mode::from_raw_mode(mode)).step("open a temporary file")?;
    let mut file = File::from(fd);
    fill(&mut file)?;
    file.sync_all().step("flush the temporary file")?;
    drop(file);
    faults.on_point(FaultPoint::FileFlushed);
    rename_and_flush(dir, &temporary, name, || faults.on_point(FaultPoint::FileRenamed))
}

/// Replaces the symbolic link `name` in `dir` by one with this text. A link is metadata: it appears whole, with no flush of its own.
pub(crate) fn replace_link(dir: BorrowedFd, name: &OsStr, temporary: &OsStr, text: &str) -> Result<(), SysError> {
    replace_link_later(dir, name, temporary, text)?;
    rustix::fs::fsync(dir).step("flush the directory")
}

/// Like [`replace_link`], but the link reaches the device with the next commit of the file system, after everything that was done before.
pub(crate) fn replace_link_later(dir: BorrowedFd, name: &OsStr, temporary: &OsStr, text: &str) -> Result<(), SysError> {
    match rustix::fs::unlinkat(dir, temporary, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e).step("remove the temporary link"),
    }
    rustix::fs::symlinkat(text, dir, temporary).step("make a temporary link")?;
    rustix::fs::renameat(dir, temporary, dir, name).step("rename the temporary link")
}

/// The name under which a file is written before it is renamed to `name`.
pub(crate) fn temporary_name(name: &OsStr) -> OsString {
    let mut temporary = name.to_owned();
    temporary.push(".tmp");
    temporary
}

fn rename_and_flush(dir: BorrowedFd, temporary: &OsStr, name: &OsStr, renamed: impl FnOnce()) -> Result<(), SysError> {
    rustix::fs::renameat(dir, temporary, dir, name).step("rename the temporary file")?;
    renamed();
    rustix::fs::fsync(dir).step("flush the directory")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn directory() -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        (dir, handle)
    }

    fn names(dir: &tempfile::TempDir) -> Vec<OsString> {
        std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_is_replaced_and_no_temporary_file_stays() {
        let (dir, handle) = directory();
        std::fs::write(dir.path().join("file.tmp"), "left by a crash, and longer").unwrap();
        for text in ["first", "2"] {
            write_atomically(&handle, "file", 0o600, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), text);
        }
        assert_eq!(names(&dir), ["file"]);
        let (other, handle) = directory();
        write_atomically(&handle, "file", 0o600, b"").unwrap();
        assert_eq!(other.path().join("file").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_whose_new_content_fails_stays_as_it_was() {
        let (dir, handle) = directory();
        write_atomically(&handle, "file", 0o600, b"old").unwrap();
        let fill = |file: &mut File| {
            file.write_all(b"ne").step("write")?;
            Err(io::Error::other("no more")).step("write")
        };
        assert_eq!(write_atomically_with(&handle, "file", 0o600, fill).unwrap_err().step, "write");
        assert_eq!(std::fs::read_to_string(dir.path().join("file")).unwrap(), "old");
    }

    #[test]
    fn a_temporary_name_that_is_a_link_is_not_followed() {
        let (dir, handle) = directory();
        std::fs::write(dir.path().join("other"), "kept").unwrap();
        std::os::unix::fs::symlink("other", dir.path().join("file.tmp")).unwrap();
        assert_eq!(write_atomically(&handle, "file", 0o600, b"new").unwrap_err().source.raw_os_error(), Some(libc::ELOOP));
        assert_eq!(std::fs::read_to_string(dir.path().join("other")).unwrap(), "kept");
    }

    #[test]
    fn a_link_is_replaced() {
        let (dir, handle) = directory();
        for text in ["first", "second"] {
            replace_link(handle.as_fd(), "link".as_ref(), "link.new".as_ref(), text).unwrap();
            assert_eq!(std::fs::read_link(dir.path().join("link")).unwrap(), std::path::Path::new(text));
        }
        assert_eq!(names(&dir), ["link"]);
    }
}
