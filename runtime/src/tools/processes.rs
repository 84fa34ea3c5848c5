//! The processes of tools: started here, ended with all that they left behind, reaped.
//!
//! In a Pod this is PID 1, and everywhere it is a subreaper: whoever loses its parent becomes a child of this process. A reaper must not
//! take the status of a child that somebody waits for, so those are known by their pid before anyone can look for them.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

/// Environment variable that every process of a call has: how one that has left session and parents is found.
pub const CALL_ID_ENV: &str = "YOI_CALL";

/// Two milliseconds each, and the time to look through all processes.
const MAX_KILL_ROUNDS: usize = 400;

/// Children that somebody waits for.
#[derive(Debug, Default)]
pub struct ChildProcesses {
    awaited: Mutex<HashSet<u32>>,
}

/// A child that is awaited; not any more once this is dropped.
#[derive(Debug)]
pub struct AwaitedChild {
    pub child: Child,
    pid: u32,
    /// In ticks after the machine's start.
    start_ticks: u64,
    children: Arc<ChildProcesses>,
}

impl Drop for AwaitedChild {
    fn drop(&mut self) {
        self.children.awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pid);
    }
}

impl AwaitedChild {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What is to end with this child: all of it that bears the mark, and more.
    #[must_use]
    pub fn tree(&self, call_id: String) -> ProcessTree {
        ProcessTree { children: self.children.clone(), leader: self.pid, start_ticks: self.start_ticks, call_id }
    }
}

impl ChildProcesses {
    /// Starts a process that the caller waits for.
    ///
    /// # Errors
    /// The system's.
    pub fn spawn(self: &Arc<Self>, command: &mut Command) -> io::Result<AwaitedChild> {
        // Held over the start: the orphans' reaper sees no child that is not yet known.
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        // Never 0, which as a session is everybody's who has none.
        let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
        awaited.insert(pid);
        drop(awaited);
        // Nobody has waited for it yet, so it is there even if it is dead.
        let start_ticks = read_process(pid).map_or(u64::MAX, |process| process.start_ticks);
        Ok(AwaitedChild { child, pid, start_ticks, children: self.clone() })
    }

    /// Reaps children that nobody waits for, for ever.
    ///
    /// # Errors
    /// SIGCHLD cannot be watched.
    pub async fn reap_orphans(self: Arc<Self>) -> io::Result<()> {
        let mut sigchld = signal(SignalKind::child())?;
        loop {
            sigchld.recv().await;
            self.reap_now();
        }
    }

    fn reap_now(&self) {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let own_pid = std::process::id();
        for process in list_processes().into_iter().filter(|process| process.parent == own_pid && process.is_zombie) {
            if !awaited.contains(&process.pid)
                && let Some(pid) = to_pid(process.pid)
            {
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    group: u32,
    session: u32,
    is_zombie: bool,
    /// Ticks after the machine's start.
    start_ticks: u64,
}

fn to_pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn read_process(number: u32) -> Option<Process> {
    parse_stat(number, &std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

fn list_processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter_map(read_process).collect()
}

/// `pid (name) state parent group session ... starttime ...`; the name may hold anything, also parentheses.
fn parse_stat(pid: u32, stat: &str) -> Option<Process> {
    let mut words = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = words.next()?;
    let mut number = || words.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    // The 22nd field of all, counted from 1.
    let start_ticks = words.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, group, session, is_zombie: matches!(state, "Z" | "X"), start_ticks })
}

/// All processes of a call; they end when this is dropped, also with a call that is given up.
#[derive(Debug)]
pub struct ProcessTree {
    children: Arc<ChildProcesses>,
    leader: u32,
    start_ticks: u64,
    call_id: String,
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        self.end();
    }
}

impl ProcessTree {
    pub fn end(&self) {
        if !self.kill_all() {
            tracing::error!(leader = self.leader, "processes of a tool could not be killed");
        }
    }

    /// Kills the leader's descendants, its session and group, whoever bears the call's mark, and whoever has lost its parent since the
    /// call began: a process that left session, parents and environment behind is this process's child by now. Says whether all are gone.
    fn kill_all(&self) -> bool {
        let Self { children, leader, start_ticks, call_id } = self;
        let (leader, start_ticks, own_pid) = (*leader, *start_ticks, std::process::id());
        // A process that forks faster than it is found is met again; each round kills what the last one left.
        for _ in 0..MAX_KILL_ROUNDS {
            let all = list_processes();
            let awaited = children.awaited.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let is_orphan =
                |process: &Process| process.parent == own_pid && process.start_ticks >= start_ticks && !awaited.contains(&process.pid);
            let mut targets: HashSet<u32> = all
                .iter()
                .filter(|process| process.pid == leader || process.session == leader || process.group == leader)
                .chain(all.iter().filter(|process| is_orphan(process) && !belongs_to_other_call(process.pid, call_id)))
                .chain(all.iter().filter(|process| has_call_id(process.pid, call_id)))
                .map(|process| process.pid)
                .collect();
            loop {
                let before = targets.len();
                let children: Vec<u32> =
                    all.iter().filter(|process| targets.contains(&process.parent)).map(|process| process.pid).collect();
                targets.extend(children);
                if targets.len() == before {
                    break;
                }
            }
            targets.remove(&own_pid);
            let living: Vec<u32> =
                all.iter().filter(|process| !process.is_zombie && targets.contains(&process.pid)).map(|process| process.pid).collect();
            if living.is_empty() {
                return true;
            }
            for number in living {
                if let Some(pid) = to_pid(number) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        false
    }
}

/// The values of the mark in a process's environment.
fn call_ids(pid: u32) -> Vec<Vec<u8>> {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return Vec::new() };
    let name = format!("{CALL_ID_ENV}=");
    environment.split(|byte| *byte == 0).filter_map(|variable| Some(variable.strip_prefix(name.as_bytes())?.to_owned())).collect()
}

fn has_call_id(pid: u32, call_id: &str) -> bool {
    call_ids(pid).iter().any(|found| found == call_id.as_bytes())
}

/// Of another call that is still under way, whose orphan it may be.
fn belongs_to_other_call(pid: u32, call_id: &str) -> bool {
    let call_ids = call_ids(pid);
    !call_ids.is_empty() && call_ids.iter().all(|found| found != call_id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_read() {
        let rest = "0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        let stat = format!("42 (a) b (c)) S 7 40 39 {rest}");
        assert_eq!(
            parse_stat(42, &stat),
            Some(Process { pid: 42, parent: 7, group: 40, session: 39, is_zombie: false, start_ticks: 4711 })
        );
        assert_eq!(parse_stat(42, &format!("42 (x) Z 7 40 39 {rest}")).map(|process| process.is_zombie), Some(true));
        let ours = std::process::id();
        assert!(read_process(ours).is_some_and(|process| process.start_ticks > 0 && !process.is_zombie));
        assert_eq!(parse_stat(42, "42 (x"), None);
    }
}
