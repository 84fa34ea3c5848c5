//! All programs that this process starts: the commands of tools, and git.
//!
//! One [`ProcessSupervisor`] starts them, ends them together with everything that they left behind, and reaps orphans. Programs run side by
//! side, and each is the subreaper of its descendants: one that loses its parent becomes a child of the program. When the program ends, it
//! becomes a child of this process, which is PID 1 in a Pod and a subreaper everywhere.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{WaitOptions, waitpid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

mod capture;
mod framed_thread;
mod process_tree;
mod procfs;

pub use capture::CapturedOutput;

use framed_thread::FramedThread;
use process_tree::ProcessTree;

use crate::frame::{Frame, FrameError};

/// Environment variable of every process of a call. It finds processes that have left session and parents.
pub const CALL_ID_ENV: &str = "YOI_CALL";
/// Stack of the thread of a job.
const JOB_STACK_BYTES: usize = 1 << 20;

/// Starts programs in the root of the tree, each in a session of its own, with an environment built from nothing.
#[derive(Debug)]
pub struct ProcessSupervisor {
    root: PathBuf,
    /// Where commands of tools start, relative to the root.
    directory: PathBuf,
    env: Vec<(OsString, OsString)>,
    /// Starts all programs; absent: they are in no frame.
    framed: Option<FramedThread>,
}

impl ProcessSupervisor {
    /// `root` is the working directory of every program, `user_env` what the Pod's owner set for the container.
    #[must_use]
    pub fn new(root: PathBuf, agent: &str, user_env: &[(OsString, OsString)]) -> Self {
        Self { root, directory: PathBuf::new(), env: environment(agent, user_env), framed: None }
    }

    /// All programs that it starts from now on are in the frame.
    ///
    /// # Errors
    /// The kernel has Landlock and refuses. Nothing is in a frame then.
    pub fn enter_frame(&mut self, frame: Frame) -> Result<(), FrameError> {
        self.framed = Some(FramedThread::start(frame)?);
        Ok(())
    }

    /// The folder for temporary files of every program.
    #[must_use]
    pub fn temp(&self) -> &Path {
        self.env.iter().find(|(name, _)| name == "TMPDIR").map_or(Path::new("/tmp"), |(_, temp)| Path::new(temp))
    }

    /// The working directory of every program.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Commands of tools start in this folder, relative to the root; `.` is the root.
    #[must_use]
    pub fn with_directory(self, directory: PathBuf) -> Self {
        let directory = directory.strip_prefix(".").map_or_else(|_| directory.clone(), Path::to_owned);
        Self { directory, ..self }
    }

    /// Where commands of tools start, relative to the root; empty for the root.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The home directory of every program.
    #[must_use]
    pub fn home(&self) -> &Path {
        let home = self.env.iter().find(|(name, _)| name == "HOME");
        home.map_or(Path::new("/"), |(_, home)| Path::new(home))
    }

    /// The variables of every program.
    #[must_use]
    pub fn env(&self) -> &[(OsString, OsString)] {
        &self.env
    }

    /// Where programs are looked for.
    #[must_use]
    pub fn path(&self) -> &OsStr {
        self.env.iter().find(|(name, _)| name == "PATH").map_or(OsStr::new(""), |(_, path)| path)
    }

    /// Whether `program` can be found: by its path from the root of the tree, or by its name.
    #[must_use]
    pub fn has_program(&self, program: &str) -> bool {
        if program.contains('/') {
            return self.root.join(program).is_file();
        }
        std::env::split_paths(self.path()).any(|folder| self.root.join(folder).join(program).is_file())
    }

    /// Starts `program`. Its standard input is empty; `configure` adds arguments, variables and the other streams.
    ///
    /// # Errors
    /// The system's.
    pub fn start(&self, program: impl AsRef<OsStr>, configure: impl FnOnce(&mut Command)) -> io::Result<SupervisedProcess> {
        self.start_as(Uuid::new_v4().to_string(), program, configure)
    }

    /// As [`Self::start`], with this value of [`CALL_ID_ENV`]: for a program that gives what it starts another environment than its own.
    ///
    /// # Errors
    /// The system's.
    pub fn start_as(
        &self,
        call_id: String,
        program: impl AsRef<OsStr>,
        configure: impl FnOnce(&mut Command),
    ) -> io::Result<SupervisedProcess> {
        let mut command = Command::new(program);
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value))).current_dir(&self.root).stdin(Stdio::null());
        configure(&mut command);
        command.env(CALL_ID_ENV, &call_id);
        // SAFETY: each is one system call and allocates nothing.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                // What loses its parent stays a descendant of the program for as long as the program runs. So a process that becomes a
                // child of this one is of a program that has ended, never of a call or a background command that still runs.
                rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
                Ok(())
            });
        }
        // The command is dropped there with its ends of pipes: from now on only processes of the call can write to them.
        let mut spawn = move || AWAITED_CHILDREN.spawn(&mut command);
        let (child, pid) = match &self.framed {
            Some(thread) => thread.run(spawn)?,
            None => spawn()?,
        };
        // Nobody has waited for the child yet, so /proc has it even if it has already ended.
        let start_ticks = procfs::read_process(pid).map_or(u64::MAX, |process| process.start_ticks);
        let tree = ProcessTree { leader: pid, start_ticks, call_id };
        Ok(SupervisedProcess { child, tree })
    }

    /// Runs `job`, which may block, on a thread of its own. The thread is in the frame if there is one: so the job opens nothing that is closed to the
    /// programs, wherever their links lead it.
    ///
    /// # Errors
    /// The thread cannot be started, or the job panics.
    pub async fn run_in_frame<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (done, result) = tokio::sync::oneshot::channel();
        let start = move || {
            let run = move || drop(done.send(job()));
            std::thread::Builder::new().name("in-frame".to_owned()).stack_size(JOB_STACK_BYTES).spawn(run).map(drop)
        };
        match &self.framed {
            // A thread is in the frame of the one that starts it.
            Some(thread) => thread.run(start)?,
            None => start()?,
        }
        result.await.map_err(|_| io::Error::other("a job among the files of the agent has broken off"))
    }

    /// Whether the programs are in a frame.
    #[must_use]
    pub fn has_frame(&self) -> bool {
        self.framed.is_some()
    }

    /// Reaps children that nobody waits for, until the process ends.
    ///
    /// # Errors
    /// SIGCHLD cannot be watched.
    pub fn reap_orphans(&self) -> impl Future<Output = io::Result<()>> + Send + 'static {
        AWAITED_CHILDREN.reap_others_on_signal()
    }
}

/// A started program. Dropping it ends the program and every process that belongs to it.
#[derive(Debug)]
pub struct SupervisedProcess {
    child: Child,
    tree: ProcessTree,
}

impl SupervisedProcess {
    /// The pipes of standard input, output and error, as far as the program has some.
    pub fn take_pipes(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take())
    }

    /// Waits for the program itself; processes that it left behind may go on.
    ///
    /// # Errors
    /// The system's.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// The pipe from its standard output, once, if it was started with one.
    pub fn take_stdout(&mut self) -> Option<tokio::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Kills the program and every process that belongs to it. Returns when all of them have ended, or logs that some cannot be killed; and how many lived.
    pub fn kill_tree(&self) -> usize {
        let killed = self.tree.kill_all();
        if !killed.all_ended {
            tracing::error!(leader = self.tree.leader, "processes of a tool could not be killed");
        }
        killed.found
    }
}

impl Drop for SupervisedProcess {
    fn drop(&mut self) {
        self.kill_tree();
        AWAITED_CHILDREN.remove(self.tree.leader);
    }
}

/// One for the process, because its children are: a child that one supervisor starts is no orphan to another.
static AWAITED_CHILDREN: AwaitedChildren = AwaitedChildren(Mutex::new(BTreeSet::new()));

/// Pids of the children that somebody waits for. The reaper of orphans must not take their exit status.
#[derive(Debug)]
struct AwaitedChildren(Mutex<BTreeSet<u32>>);

impl AwaitedChildren {
    fn spawn(&self, command: &mut Command) -> io::Result<(Child, u32)> {
        // Locked over the start, so that the reaper sees no child that is not yet in the set.
        let mut awaited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        // Never 0: as a session, 0 would mean every process that has none.
        let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
        awaited.insert(pid);
        Ok((child, pid))
    }

    fn remove(&self, pid: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }

    fn pids(&self) -> BTreeSet<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn reap_others_on_signal(&self) -> io::Result<()> {
        let mut sigchld = signal(SignalKind::child())?;
        loop {
            sigchld.recv().await;
            self.reap_others();
        }
    }

    fn reap_others(&self) {
        let awaited = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own_pid = std::process::id();
        for process in procfs::list_processes().into_iter().filter(|process| process.parent == own_pid && process.ended) {
            if !awaited.contains(&process.pid)
                && let Some(pid) = procfs::to_pid(process.pid)
            {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }
}

/// The variables of every program: fixed ones, and what the Pod's owner set. None is inherited from this process.
fn environment(agent: &str, user_env: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let variable = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    let mut all = vec![
        variable("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        variable("HOME", "/home/agent"),
        variable("LANG", "C.UTF-8"),
        variable("TMPDIR", "/tmp"),
    ];
    all.retain(|(name, _)| user_env.iter().all(|(given, _)| given != name));
    all.extend(user_env.iter().filter(|(name, _)| name != "TERM").cloned());
    all.push(variable("TERM", "dumb"));
    all.push(variable("YOI_AGENT", agent));
    all
}

#[cfg(test)]
mod tests;
