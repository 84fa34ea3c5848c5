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

/// Two milliseconds each, and the time to look through all processes.
const ROUNDS: usize = 400;

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
    /// In ticks after the machine's start.
    began: u64,
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

    /// What is to end with this child: all of it that bears the mark, and more.
    #[must_use]
    pub fn tree(&self, mark: String) -> Tree {
        Tree { children: self.children.clone(), leader: self.pid, began: self.began, mark }
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
        // Nobody has waited for it yet, so it is there even if it is dead.
        let began = one(pid).map_or(u64::MAX, |process| process.began);
        Ok(Awaited { child, pid, began, children: self.clone() })
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
    /// Ticks after the machine's start.
    began: u64,
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

fn one(number: u32) -> Option<Process> {
    parse(number, &std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter_map(one).collect()
}

/// `pid (name) state parent group session ... starttime ...`; the name may hold anything, also parentheses.
fn parse(pid: u32, stat: &str) -> Option<Process> {
    let mut words = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    let state = words.next()?;
    let mut number = || words.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    // The 22nd field of all, counted from 1.
    let began = words.nth(15)?.parse().ok()?;
    Some(Process { pid, parent, group, session, dead: matches!(state, "Z" | "X"), began })
}

/// All processes of a call; they end when this is dropped, also with a call that is given up.
#[derive(Debug)]
pub struct Tree {
    children: Arc<Children>,
    leader: u32,
    began: u64,
    mark: String,
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.end();
    }
}

impl Tree {
    pub fn end(&self) {
        if !self.ended() {
            tracing::error!(leader = self.leader, "processes of a tool could not be killed");
        }
    }

    /// Kills the leader's descendants, its session and group, whoever bears the call's mark, and whoever has lost its parent since the
    /// call began: a process that left session, parents and environment behind is this process's child by now. Says whether all are gone.
    fn ended(&self) -> bool {
        let Self { children, leader, began, mark } = self;
        let (leader, began, us) = (*leader, *began, std::process::id());
        // A process that forks faster than it is found is met again; each round kills what the last one left.
        for _ in 0..ROUNDS {
            let all = processes();
            let awaited = children.awaited.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let lost = |process: &Process| process.parent == us && process.began >= began && !awaited.contains(&process.pid);
            let mut doomed: HashSet<u32> = all
                .iter()
                .filter(|process| process.pid == leader || process.session == leader || process.group == leader)
                .chain(all.iter().filter(|process| lost(process) && !bears_another(process.pid, mark)))
                .chain(all.iter().filter(|process| bears(process.pid, mark)))
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
}

/// The values of the mark in a process's environment.
fn marks(pid: u32) -> Vec<Vec<u8>> {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return Vec::new() };
    let name = format!("{CALL}=");
    environment.split(|byte| *byte == 0).filter_map(|variable| Some(variable.strip_prefix(name.as_bytes())?.to_owned())).collect()
}

fn bears(pid: u32, mark: &str) -> bool {
    marks(pid).iter().any(|found| found == mark.as_bytes())
}

/// Of another call that is still under way, whose orphan it may be.
fn bears_another(pid: u32, mark: &str) -> bool {
    let marks = marks(pid);
    !marks.is_empty() && marks.iter().all(|found| found != mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_read() {
        let rest = "0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        let stat = format!("42 (a) b (c)) S 7 40 39 {rest}");
        assert_eq!(parse(42, &stat), Some(Process { pid: 42, parent: 7, group: 40, session: 39, dead: false, began: 4711 }));
        assert_eq!(parse(42, &format!("42 (x) Z 7 40 39 {rest}")).map(|process| process.dead), Some(true));
        let ours = std::process::id();
        assert!(one(ours).is_some_and(|process| process.began > 0 && !process.dead));
        assert_eq!(parse(42, "42 (x"), None);
    }
}
