//! The agent's processes, stopped for a moment, so that none hands what it holds to another one while they are looked at one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::proc;

/// How long processes are waited for until they have stopped.
const WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(1);

/// Stopped processes. Those that this stopped go on when it is dropped.
pub(super) struct Frozen {
    pids: BTreeSet<u32>,
    /// Those that ran before.
    stopped: BTreeSet<u32>,
    /// Those that run still.
    running: BTreeSet<u32>,
}

impl Frozen {
    /// Stops all processes of the agent but this one, whose pid is `own`.
    pub fn stop_all(own: u32) -> Self {
        let ends = Instant::now() + WITHIN;
        let mut frozen = Self { pids: BTreeSet::new(), stopped: BTreeSet::new(), running: BTreeSet::new() };
        loop {
            frozen.pids = processes(own);
            frozen.running.clear();
            for pid in frozen.pids.clone() {
                let was_told = frozen.stopped.contains(&pid);
                let has_stopped = |state: char| match state {
                    // A person or a shell has stopped it, or a tracer, which is stopped itself.
                    'T' | 't' | 'Z' | 'X' | 'x' => true,
                    // It sleeps in the kernel: before it runs again it stops.
                    'D' => was_told,
                    _ => false,
                };
                // Its threads stop one by one.
                if !states(pid).all(has_stopped) {
                    frozen.running.insert(pid);
                    frozen.stopped.insert(pid);
                    signal(pid, Signal::STOP);
                }
            }
            if frozen.running.is_empty() || Instant::now() >= ends {
                return frozen;
            }
            sleep(PAUSE);
        }
    }

    pub fn pids(&self) -> impl Iterator<Item = u32> {
        self.pids.iter().copied()
    }

    /// Those that have not stopped.
    pub fn left_running(&self) -> impl Iterator<Item = u32> {
        self.running.iter().copied()
    }

    /// Lets those go on for which `goes_on` says so.
    pub fn release(mut self, goes_on: impl Fn(u32) -> bool) {
        self.stopped.retain(|pid| goes_on(*pid));
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.stopped.iter().for_each(|pid| signal(*pid, Signal::CONT));
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended.
        let _ = kill_process(pid, signal);
    }
}

/// The states of the threads of a process.
fn states(pid: u32) -> impl Iterator<Item = char> {
    let threads = std::fs::read_dir(proc(pid).join("task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| state(&thread.path().join("stat")))
}

/// The agent's processes: all others of this pid namespace, if this process is its first, and else its descendants.
fn processes(own: u32) -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let all: BTreeMap<u32, u32> = pids.filter_map(|pid| Some((pid, read_stat(&proc(pid).join("stat"))?.0))).collect();
    let is_own = |pid: u32| {
        let mut at = pid;
        // A parent that ends meanwhile may leave a circle, if its pid is used again.
        for _ in 0..all.len() {
            match all.get(&at) {
                Some(parent) if *parent == own => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    all.keys().copied().filter(|pid| *pid != own && (own == 1 || is_own(*pid))).collect()
}

/// The state in a file `stat` of `/proc`.
pub(super) fn state(stat: &Path) -> Option<char> {
    read_stat(stat).map(|(_, state)| state)
}

/// `pid (name) state parent ...`; the name may hold anything, also parentheses.
fn read_stat(path: &Path) -> Option<(u32, char)> {
    let text = std::fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text);
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}
