//! Ends every process of the agent that could still write below paths which the node has covered, because they are lent.
//!
//! A cover closes a path to whoever opens it from then on. Who holds something that was opened before goes on as before: a descriptor, also one for reading or of a
//! folder (`O_PATH`), for it can be opened again through `/proc`; a shared mapping; a working directory, a root, a program file. What they hold may also lie *above*
//! the path: the node covers the folders on the way, too, and who stands in one from before goes down past the cover.
//!
//! So what counts is not where something lies but whether its holder could have it now: something of the tree that can be written counts, unless its path, opened
//! anew, leads to the same mount. In addition counts who is in another mount namespace, cannot be looked at, or may have descriptors that nobody sees: under way in
//! a socket, or in an io_uring.
//!
//! # Guarantees
//! When the answer is fenced, there was a moment, after the covers were laid, at which no process ran and none held anything that counts; and no file below the paths
//! has a name elsewhere.
//!
//! # Assumptions
//! The agent's processes are those of this pid namespace, if this process is its first, and else the descendants of this process. They have no capability over their
//! mount namespace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use yoi_wire::fence::{FenceRequest, FenceResponse, HoldingProcess, MAX_NAMED};

mod freeze;
mod hold;
mod lent_paths;
mod mappings;
mod mounts;

use freeze::Frozen;
use lent_paths::LentPaths;

/// How long holders are looked for and ended.
const WITHIN: Duration = Duration::from_secs(8);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// One at a time: all of them stop processes and let them go on.
static LOOKING: Mutex<()> = Mutex::new(());

/// Looks for holders, ends them, and looks again until there are none or some seconds have passed. Blocks. `tree` is the root of the tree.
#[must_use]
pub fn fence(tree: &Path, request: &FenceRequest) -> FenceResponse {
    fence_within(tree, request, WITHIN)
}

/// The same, and looks for so long.
#[must_use]
pub fn fence_within(tree: &Path, request: &FenceRequest, within: Duration) -> FenceResponse {
    let _looking = LOOKING.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::process::id();
    let lent = match LentPaths::read(tree, &request.paths) {
        Ok(lent) => lent,
        Err(why) => return refused(BTreeMap::new(), why),
    };
    let (ends, mut ended) = (Instant::now() + within, BTreeMap::new());
    loop {
        let Look { holders, others } = look(&lent, own);
        if holders.is_empty() && others.is_empty() {
            // Not before: until now somebody could give a file another name.
            return match lent.check_names() {
                Ok(()) => FenceResponse { fenced: true, ended: named(ended), ..FenceResponse::default() },
                Err(why) => refused(ended, why),
            };
        }
        if Instant::now() >= ends {
            let left = holders.into_iter().chain(others).take(MAX_NAMED).collect();
            return FenceResponse { ended: named(ended), left, ..FenceResponse::default() };
        }
        for holder in holders {
            if let Some(pid) = i32::try_from(holder.pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
            ended.entry(holder.pid).or_insert(holder);
        }
        sleep(PAUSE);
    }
}

/// What was seen at a moment.
#[derive(Default)]
struct Look {
    /// They hold something that counts.
    holders: Vec<HoldingProcess>,
    /// Of these it is not known, or it is this process: they are not ended.
    others: Vec<HoldingProcess>,
}

/// Looks at all processes, this one among them, while none of the others runs.
fn look(lent: &LentPaths, own: u32) -> Look {
    let frozen = Frozen::stop_all(own);
    let view = match lent.view() {
        Ok(view) => view,
        // Without the mount table nobody can be let off.
        Err(why) => return Look { others: vec![of(own, "mount table", why)], ..Look::default() },
    };
    let held = |pid: u32| hold::of_process(pid, &view).map(|(by, path)| of(pid, by, path));
    let holders: Vec<HoldingProcess> = frozen.pids().filter_map(held).collect();
    let mut others: Vec<HoldingProcess> = held(own).into_iter().collect();
    others.extend(frozen.left_running().map(|pid| of(pid, "next step, before which it does not stop", String::new())));
    // Those that hold are to end, and not to go on first.
    frozen.release(|pid| holders.iter().all(|holder| holder.pid != pid));
    Look { holders, others }
}

fn of(pid: u32, by: &str, path: String) -> HoldingProcess {
    HoldingProcess { pid, program: hold::program(pid), by: by.to_owned(), path }
}

fn named(ended: BTreeMap<u32, HoldingProcess>) -> Vec<HoldingProcess> {
    ended.into_values().take(MAX_NAMED).collect()
}

fn refused(ended: BTreeMap<u32, HoldingProcess>, why: String) -> FenceResponse {
    FenceResponse { ended: named(ended), refused: Some(why), ..FenceResponse::default() }
}

/// A sentence for the log about processes that were ended.
#[must_use]
pub fn sentence(request: &FenceRequest, ended: &[HoldingProcess]) -> String {
    let names: Vec<String> =
        ended.iter().map(|held| format!("{} (process {}, by its {} {})", held.program, held.pid, held.by, held.path)).collect();
    format!(
        "{} is lent (loan {}), and these processes could have written there all the same, so they were ended: {}",
        request.paths.join(", "),
        request.loan,
        names.join("; ")
    )
}

/// Where `/proc` has a process.
fn proc(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}
