//! Makes the states of a disk that a power cut could have left, and looks at each of them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use yoi_workspace::{EntryLocation, ProviderKind, RecordState, plan};

use super::Setup;
use super::life::{Step, acknowledged, open, promised, steps, text, unflushed};
use super::log::{self, Entry};
use super::pool::Pool;
use crate::changes::Random;
use crate::fixture::{nothing_to_do, read_in, recover, run, unmount_below};

/// Which writes after the last flush are on the disk.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// All up to some moment, in their order.
    Prefix,
    /// None, up to the moment before the next flush is done.
    Flushed,
    /// Any half of them.
    Random,
}

/// What was found of one recorded disk.
#[derive(Default)]
pub struct Findings {
    pub writes: usize,
    pub flushes: usize,
    pub cuts: usize,
    /// Cuts that took what was reported and never flushed.
    pub unflushed_lost: usize,
    /// What is wrong after a cut.
    pub broken: Vec<String>,
}

/// The disk as it was before the first write, as it is with all that was flushed, and as a cut left it.
struct Replay {
    setup: Setup,
    flushed: PathBuf,
    cut: PathBuf,
    at: PathBuf,
    random: Random,
    findings: Findings,
}

/// Cuts the power between all flushes of a log, in each of the three ways. To import a pool takes seconds in the guest: there it is one of them in turn.
pub fn replay(setup: Setup, base: &Path, log: &Path, dir: &Path) -> Findings {
    let (flushed, cut, at) = (dir.join("flushed"), dir.join("cut"), dir.join("at"));
    fs::create_dir_all(&at).unwrap();
    copy(base, &flushed);
    let mut replay = Replay { setup, flushed, cut, at, random: Random(1), findings: Findings::default() };
    let mut reported = None;
    for writes in log::read(log).split(|entry| matches!(entry, Entry::Flush)) {
        let writes: Vec<(u64, &[u8])> = writes.iter().filter_map(as_write).collect();
        let to_trees = writes.iter().filter(|(at, data)| acknowledged(*at, data).is_none()).count();
        replay.findings.writes += to_trees;
        replay.findings.flushes += 1;
        let ways = [Kept::Flushed, Kept::Prefix, Kept::Random];
        let ways = if setup.provider == ProviderKind::Zfs { &ways[replay.findings.flushes % 3..][..1] } else { &ways[..] };
        for &way in ways {
            let changes_anything = if matches!(way, Kept::Flushed) { !writes.is_empty() } else { to_trees > 0 };
            if changes_anything {
                replay.cut(&writes, reported, way);
            }
        }
        reported = last_report(&writes).or(reported);
        apply(&replay.flushed, writes.into_iter());
    }
    for file in [&replay.flushed, &replay.cut] {
        fs::remove_file(file).unwrap();
    }
    assert_eq!(reported, Some(steps(setup.provider).len()), "the log ends before the life of the trees");
    replay.findings
}

fn as_write(entry: &Entry) -> Option<(u64, &[u8])> {
    match entry {
        Entry::Write { at, data } => Some((*at, data)),
        Entry::Flush => None,
    }
}

fn last_report(writes: &[(u64, &[u8])]) -> Option<usize> {
    writes.iter().rev().find_map(|(at, data)| acknowledged(*at, data))
}

fn copy(from: &Path, to: &Path) {
    run("cp", &["--sparse=always".as_ref(), from, to]);
}

fn apply<'a>(image: &Path, writes: impl Iterator<Item = (u64, &'a [u8])>) {
    let image = fs::File::options().write(true).open(image).unwrap();
    writes.for_each(|(at, data)| image.write_all_at(data, at).unwrap());
}

impl Replay {
    /// `reported` is the number of steps that were reported before these writes.
    fn cut(&mut self, writes: &[(u64, &[u8])], reported: Option<usize>, kept: Kept) {
        let until = match kept {
            Kept::Prefix => 1 + self.random.below(writes.len()),
            Kept::Flushed | Kept::Random => writes.len(),
        };
        // Before that, nobody was promised anything.
        let Some(reported) = last_report(&writes[..until]).or(reported) else { return };
        copy(&self.flushed, &self.cut);
        let random = &mut self.random;
        let is_kept = |_: &&(u64, &[u8])| match kept {
            Kept::Prefix => true,
            Kept::Flushed => false,
            Kept::Random => random.below(2) == 0,
        };
        apply(&self.cut, writes[..until].iter().filter(is_kept).copied());
        let found = catch_unwind(AssertUnwindSafe(|| {
            self.setup.disk.mount(&self.cut, &self.at);
            let _pool = (self.setup.provider == ProviderKind::Zfs).then(|| Pool::import(&self.cut));
            look(self.setup, &self.at, reported)
        }));
        unmount_below(&self.at);
        _ = unmount(&self.at, UnmountFlags::empty());
        let findings = &mut self.findings;
        findings.cuts += 1;
        let problem = match found {
            Ok(Ok(unflushed_lost)) => {
                findings.unflushed_lost += usize::from(unflushed_lost);
                return;
            }
            Ok(Err(problem)) => problem,
            Err(_) => "its panic is above".to_owned(),
        };
        let step = steps(self.setup.provider).get(reported).cloned();
        let at = format!("{reported} steps were reported, then {step:?}; {kept:?} after flush {}", findings.flushes - 1);
        println!("    {at}: {problem}");
        findings.broken.push(at);
    }
}

/// Recovers as a restarted shim does, and compares with what was promised. Returns whether something is gone that was reported and never flushed.
fn look(setup: Setup, at: &Path, reported: usize) -> Result<bool, String> {
    let steps = steps(setup.provider);
    let (root, journal) = open(setup.provider, at);
    let done = recover(&root, &journal);
    if !(done.lost.is_empty() && done.orphans.is_empty() && done.foreign.is_empty() && done.unknown.is_empty()) {
        return Err(format!("{done:?}"));
    }
    let (records, found) = (journal.read_and_clean().unwrap(), root.inventory().unwrap());
    let rest = plan::recover(&records, &found);
    if !nothing_to_do(&rest) {
        return Err(format!("a recovery is not enough: {rest:?}"));
    }
    if let Some(entry) = found.entries.iter().find(|entry| entry.location != EntryLocation::Live) {
        return Err(format!("{entry:?}"));
    }
    // The step that was under way is done or not.
    let (before, after) = (promised(&steps[..reported]), promised(&steps[..steps.len().min(reported + 1)]));
    let under_way = steps.get(reported);
    for (uid, promise) in &before {
        let record = records.records.iter().find(|record| record.uid == *uid);
        let Some(record) = record.filter(|_| found.entries.iter().any(|entry| entry.uid == *uid)) else {
            if under_way == Some(&Step::Destroy(*uid)) {
                continue;
            }
            return Err(format!("{uid} was promised, and is lost"));
        };
        if promise.is_sealed && record.state != RecordState::Sealed {
            return Err(format!("{uid} was sealed, and is {:?}", record.state));
        }
    }
    for entry in &found.entries {
        let Some(promise) = before.get(&entry.uid).or_else(|| after.get(&entry.uid)) else {
            return Err(format!("{} was destroyed or never made, and is there", entry.uid));
        };
        for name in &promise.files {
            if read_in(&root, entry.uid, name).as_deref() != Some(&*text(name)) {
                return Err(format!("{name:?} of {} is not as it was promised", entry.uid));
            }
        }
    }
    let is_lost = |step: &Step| matches!(step, Step::Unflushed(n) if !unflushed(at, *n).exists());
    Ok(steps[..reported].iter().any(is_lost))
}
