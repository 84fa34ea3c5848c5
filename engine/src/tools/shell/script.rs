//! The shell program, and how it tells in which directory it ends.

use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// The descriptor at which the shell tells its last directory. A high number: scripts use low ones, and 200 for locks.
const REPORT_DESCRIPTOR: RawFd = 187;

/// A shell program and the arguments by which it runs a command.
#[derive(Debug)]
pub struct Script {
    program: PathBuf,
    /// Runs the command that is its first argument. The command sees no argument and no line number of this script.
    wrapper: String,
}

impl Script {
    /// By bash, or by `/bin/sh` where there is no bash.
    pub fn of_this_system() -> Self {
        let bash = ["/bin/bash", "/usr/bin/bash"].into_iter().map(PathBuf::from).find(|path| path.exists());
        match bash {
            Some(bash) => Self::new(bash, &format!(">&{REPORT_DESCRIPTOR}")),
            // Small shells take descriptors of one digit only.
            None => Self::new(PathBuf::from("/bin/sh"), &format!(">/proc/self/fd/{REPORT_DESCRIPTOR}")),
        }
    }

    fn new(program: PathBuf, redirection: &str) -> Self {
        let wrapper = format!("trap '{{ command pwd -P {redirection}; }} 2>/dev/null' EXIT; _command=$1; shift; eval \" $_command\"");
        Self { program, wrapper }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn args<'a>(&'a self, command: &'a str) -> [&'a Path; 4] {
        ["-c".as_ref(), self.wrapper.as_ref(), self.program(), command.as_ref()]
    }

    /// Makes `report` the descriptor that the shell knows. Called between fork and exec.
    pub fn pass_descriptor(report: RawFd) -> io::Result<()> {
        // SAFETY: one system call, on numbers. It fails where so high a number is not allowed; then the directory is not learnt.
        unsafe { libc::dup2(report, REPORT_DESCRIPTOR) };
        Ok(())
    }

    /// Reads what the shell wrote: an absolute path and a newline.
    pub fn parse_report(report: &[u8]) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(report.strip_suffix(b"\n")?));
        path.is_absolute().then(|| path.to_owned())
    }

    #[cfg(test)]
    pub fn of_sh() -> Self {
        Self::new(PathBuf::from("/bin/sh"), &format!(">/proc/self/fd/{REPORT_DESCRIPTOR}"))
    }
}
