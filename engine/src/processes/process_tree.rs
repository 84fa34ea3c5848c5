//! All processes of one call, and how they are killed.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::AWAITED_CHILDREN;
use super::procfs::{Process, belongs_to_other_call, has_call_id, list_processes, to_pid};

/// About a second: a round takes the pause and the time to look through all processes.
const MAX_KILL_ROUNDS: usize = 400;
const PAUSE: Duration = Duration::from_millis(2);

/// The processes of one call.
#[derive(Debug)]
pub(super) struct ProcessTree {
    /// Pid of the program that was started. It leads its session and its group.
    pub leader: u32,
    /// When the leader started, in clock ticks since the start of the machine.
    pub start_ticks: u64,
    /// The value of [`super::CALL_ID_ENV`] in its environment.
    pub call_id: String,
}

/// What became of a [`ProcessTree`].
#[derive(Clone, Copy, Debug)]
pub struct Killed {
    /// How many processes lived when it was looked at first.
    pub found: usize,
    /// All have ended.
    pub all_ended: bool,
}

impl ProcessTree {
    /// Kills the leader, its session, its group, all their descendants, every process with the call's id, and every orphan that was started
    /// since the call began: one that left session, parents and environment behind. An orphan is a child of this process, which it becomes
    /// only when the leader of its own call has ended, so it is never one that should go on.
    pub fn kill_all(&self) -> Killed {
        let Self { leader, start_ticks, call_id } = self;
        let (leader, start_ticks, own_pid) = (*leader, *start_ticks, std::process::id());
        // A process may fork faster than it is found, so each round kills what the last one left.
        let mut found = None;
        for _ in 0..MAX_KILL_ROUNDS {
            let all = list_processes();
            // After the list, so that a child in it is also among these.
            let awaited = AWAITED_CHILDREN.pids();
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
                let descendants: Vec<u32> =
                    all.iter().filter(|process| targets.contains(&process.parent)).map(|process| process.pid).collect();
                targets.extend(descendants);
                if targets.len() == before {
                    break;
                }
            }
            targets.remove(&own_pid);
            let living: Vec<u32> =
                all.iter().filter(|process| !process.ended && targets.contains(&process.pid)).map(|process| process.pid).collect();
            let found = *found.get_or_insert(living.len());
            if living.is_empty() {
                return Killed { found, all_ended: true };
            }
            for pid in living.into_iter().filter_map(to_pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(PAUSE);
        }
        Killed { found: found.unwrap_or_default(), all_ended: false }
    }
}
