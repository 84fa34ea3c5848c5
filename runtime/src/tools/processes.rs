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

/// Environment variable that every process of a call bears: how one that has left session and parents is found.
pub const CALL: &str = "YOI_CALL";

/// Children that somebody waits for.
#[derive(Debug, Default)]
pub struct Children {
    awaited: Mutex<HashSet<u32>>,
}

/// A child that is awaited; not any more once this is dropped.
#[derive(Debug)]
pub struct Awaited {
    pub child: Child,
    pid: u32,
    children: Arc<Children>,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.children.awaited.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pid);
    }
}

impl Awaited {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Children {
    /// Starts a process that the caller waits for.
    ///
    /// # Errors
    /// The system's.
    pub fn spawn(self: &Arc<Self>, command: &mut Command) -> io::Result<Awaited> {
        // Held over the start: the orphans' reaper sees no child that is not yet known.
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        // Never 0, which as a session is everybody's who has none.
        let pid = child.id().ok_or(io::ErrorKind::NotFound)?;
        awaited.insert(pid);
        drop(awaited);
        Ok(Awaited { child, pid, children: self.clone() })
    }

    /// Reaps children that nobody waits for, for ever.
    ///
    /// # Errors
    /// SIGCHLD cannot be watched.
    pub async fn reap_orphans(self: Arc<Self>) -> io::Result<()> {
        let mut died = signal(SignalKind::child())?;
        loop {
            died.recv().await;
            self.reap_once();
        }
    }

    fn reap_once(&self) {
        let awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let us = std::process::id();
        for process in processes().into_iter().filter(|process| process.parent == us && process.dead) {
            if !awaited.contains(&process.pid)
                && let Some(pid) = pid(process.pid)
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
    dead: bool,
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter_map(|number| parse(number, &std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?)).collect()
}

/// `pid (name) state parent group session ...`; the name may hold anything, also parentheses.
fn parse(pid: u32, stat: &str) -> Option<Process> {
    let mut words = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = words.next()?;
    let mut number = || words.next()?.parse().ok();
    Some(Process { pid, parent: number()?, group: number()?, session: number()?, dead: matches!(state, "Z" | "X") })
}

/// Kills a call's processes: the leader's descendants, its session and group, and whoever bears the call's mark. Says whether all are gone.
pub fn end_tree(leader: u32, mark: &str) -> bool {
    let us = std::process::id();
    // A process that forks faster than it is found is met again; each round kills what the last one left.
    for _ in 0..200 {
        let all = processes();
        let mut doomed: HashSet<u32> = all
            .iter()
            .filter(|process| process.pid == leader || process.session == leader || process.group == leader || bears(process.pid, mark))
            .map(|process| process.pid)
            .collect();
        loop {
            let before = doomed.len();
            let children: Vec<u32> = all.iter().filter(|process| doomed.contains(&process.parent)).map(|process| process.pid).collect();
            doomed.extend(children);
            if doomed.len() == before {
                break;
            }
        }
        doomed.remove(&us);
        let living: Vec<u32> =
            all.iter().filter(|process| !process.dead && doomed.contains(&process.pid)).map(|process| process.pid).collect();
        if living.is_empty() {
            return true;
        }
        for number in living {
            if let Some(pid) = pid(number) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    false
}

fn bears(pid: u32, mark: &str) -> bool {
    let wanted = format!("{CALL}={mark}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_read() {
        let stat = "42 (a) b (c)) S 7 40 39 0 -1 4194560";
        assert_eq!(parse(42, stat), Some(Process { pid: 42, parent: 7, group: 40, session: 39, dead: false }));
        assert_eq!(parse(42, "42 (x) Z 7 40 39").map(|process| process.dead), Some(true));
        assert_eq!(parse(42, "42 (x"), None);
    }
}
