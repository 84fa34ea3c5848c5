//! Runs other programs to their end; the error of a failed one contains the end of its output. [`wait`] is the only function here that polls.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub fn command<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    if let Some(home) = HOME_OF_CHILDREN.get() {
        command.env("HOME", home);
        // SAFETY: between fork and exec this makes one system call, which allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?));
        }
    }
    command
}

static HOME_OF_CHILDREN: OnceLock<PathBuf> = OnceLock::new();

/// From now on what [`command`] makes ends when this program is killed, or when the thread that has started it ends, and has this folder for what it keeps
/// in somebody's home.
pub fn contain_children(home: PathBuf) {
    let _ = HOME_OF_CHILDREN.set(home);
}

/// Path of this program. Where a build has replaced it meanwhile, that of the new one: Linux then adds a word to the path of the one that runs.
pub fn this_program() -> Result<PathBuf> {
    let path = std::env::current_exe()?;
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(replaced.map_or_else(|| path.clone(), PathBuf::from))
}

/// Runs quietly; the error carries the end of what it printed.
pub fn run(command: &mut Command) -> Result<()> {
    capture(command).map(drop)
}

/// Runs and returns standard output.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("failed to start {}", command_line(command)))?;
    if !output.status.success() {
        let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
        bail!("failed to run {} ({}):\n{}", command_line(command), output.status, tail(&String::from_utf8_lossy(&text), 40));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs with `input` on standard input. The input comes from a temporary file: writing to a pipe could block for ever, because nothing reads
/// the program's output meanwhile.
pub fn run_with_input(command: &mut Command, input: &str) -> Result<()> {
    let mut file = tempfile::tempfile()?;
    std::io::Write::write_all(&mut file, input.as_bytes())?;
    std::io::Seek::rewind(&mut file)?;
    run(command.stdin(file))
}

/// Runs with its output on the terminal; says whether it succeeded.
pub fn run_in_terminal(command: &mut Command) -> Result<bool> {
    Ok(command.status().with_context(|| format!("failed to start {}", command_line(command)))?.success())
}

pub fn command_line(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// The program's path, when PATH or the directories of administrators contain it.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from));
    places.map(|place| place.join(program)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

/// Calls `look` until it returns `Some`. After `limit` the error contains the last one that `look` returned.
pub fn wait<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        let outcome = look();
        if let Ok(Some(found)) = outcome {
            return Ok(found);
        }
        if began.elapsed() > limit {
            outcome.with_context(|| format!("failed to see {what} within {} s", limit.as_secs()))?;
            bail!("failed to see {what} within {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
