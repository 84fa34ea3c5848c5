//! Each system call that an operation makes on the disk fails once with each error that a disk can give. The process also dies before each of them.

use std::fs;
use std::path::{Path, PathBuf};

use yoi_workspace::mount::{BindOutcome, TargetRoot, unbind};
use yoi_workspace::plan::{self, DiskStep, RecoveryStep};
use yoi_workspace::{CloneAccess, DataRoot, EntryLocation, Journal, ProviderKind, RecordState, TreeOrigin, Uid, mountinfo};

use crate::fixture::{Fixture, Lane, content, current_owner, is_root, nothing_to_do, nth_uid};
use crate::tripwire::{Counted, Strike, walk};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w32_whatever_disk_operation_fails_a_tree_is_made_or_not", make),
    ("w32_whatever_disk_operation_fails_a_fork_is_made_or_not", fork),
    ("w32_whatever_disk_operation_fails_a_tree_is_sealed_or_not", seal),
    ("w32_whatever_disk_operation_fails_a_tree_is_mounted_or_not", publish),
    ("w32_whatever_disk_operation_fails_a_tree_is_destroyed_or_not", destroy),
    ("w32_whatever_disk_operation_fails_a_recovery_goes_on_where_it_stopped", recover),
    ("planted_an_intent_written_too_late_is_found", late_intent),
    ("planted_a_name_given_before_the_marker_is_found", late_marker),
    ("planted_a_destruction_by_name_alone_is_found", by_name),
    ("planted_a_trash_that_is_never_emptied_is_found", full_trash),
    ("planted_a_recovery_that_makes_a_tree_anew_is_found", anew),
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Operation {
    Make,
    Fork,
    Seal,
    Publish,
    Destroy,
    Recover,
}

type Outcome = Result<(), String>;

/// The steps around the provider: as the shim does them, or with a planted fault.
#[derive(Clone, Copy)]
struct Operations {
    make: fn(&Process, Uid, TreeOrigin) -> Outcome,
    destroy: fn(&Process, Uid) -> Outcome,
    recover: fn(&Process) -> Outcome,
}

const CORRECT: Operations = Operations { make: make_as_the_shim, destroy: destroy_as_the_shim, recover: recover_as_the_shim };

/// A process that has just started.
struct Process {
    root: DataRoot,
    journal: Journal,
    kind: ProviderKind,
    dir: PathBuf,
}

fn described<T, E: std::error::Error>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|e| format!("{e}: {}", e.source().map(ToString::to_string).unwrap_or_default()))
}

fn make_without_journal(process: &Process, uid: Uid, origin: TreeOrigin) -> Outcome {
    let provider = described(process.root.provider(process.kind))?;
    match origin {
        TreeOrigin::Empty { owner } => described(provider.create_empty(uid, owner))?,
        TreeOrigin::Clone { from, access } => described(provider.clone_tree(uid, from, access))?,
    };
    Ok(())
}

fn make_as_the_shim(process: &Process, uid: Uid, origin: TreeOrigin) -> Outcome {
    described(process.journal.begin_create(uid, process.kind, origin))?;
    if let Err(error) = make_without_journal(process, uid, origin) {
        described(process.journal.begin_destroy(uid).and_then(|()| process.journal.record_destroyed(uid)))?;
        return Err(error);
    }
    described(process.journal.record_created(uid))
}

fn destroy_as_the_shim(process: &Process, uid: Uid) -> Outcome {
    described(process.journal.begin_destroy(uid))?;
    described(process.root.provider(process.kind).and_then(|provider| provider.destroy(uid)))?;
    described(process.journal.record_destroyed(uid))
}

/// A tree that cannot be recovered does not stop the recovery of others.
fn recover_as_the_shim(process: &Process) -> Outcome {
    let mut stuck: Vec<Uid> = Vec::new();
    let plan = plan::recover(&described(process.journal.read_and_clean())?, &described(process.root.inventory())?);
    for step in &plan.steps {
        let uid = step.uid();
        match step {
            _ if stuck.contains(&uid) => {}
            RecoveryStep::Disk(step) => match process.root.perform(step) {
                Err(yoi_workspace::Error::Foreign { .. }) => stuck.push(uid),
                done => described(done)?,
            },
            RecoveryStep::Journal(step) => described(process.journal.apply(step))?,
        }
    }
    // Trees of which nothing is known stay as they are. The shim reports them.
    if plan.unknown.is_empty() { Ok(()) } else { Err(format!("left alone: {:?}", plan.unknown)) }
}

fn seal_as_the_shim(process: &Process, uid: Uid) -> Outcome {
    described(process.journal.begin_seal(uid))?;
    described(process.root.provider(process.kind).and_then(|provider| provider.seal(uid)))?;
    described(process.journal.record_sealed(uid))
}

/// A data root with a base, and with files that are not ours.
struct Setup<'a> {
    fixture: &'a Fixture,
    operations: Operations,
    base: Uid,
    foreign_files: Vec<PathBuf>,
    foreign_uid: Uid,
    targets: PathBuf,
}

impl<'a> Setup<'a> {
    fn new(fixture: &'a Fixture, operations: Operations) -> Self {
        let process = Self::start(fixture);
        let base = fixture.uid();
        make_as_the_shim(&process, base, TreeOrigin::Empty { owner: current_owner() }).unwrap();
        let path = fixture.path(base);
        fs::create_dir(path.join("dir")).unwrap();
        fs::write(path.join("dir/file"), "precious").unwrap();
        fs::hard_link(path.join("dir/file"), path.join("twin")).unwrap();
        std::os::unix::fs::symlink("dir/file", path.join("link")).unwrap();
        seal_as_the_shim(&process, base).unwrap();
        let foreign_uid = fixture.uid();
        let foreign_files = [
            fixture.dir.join("trees").join(foreign_uid.shard()).join(foreign_uid.to_string()).join("tree/file"),
            fixture.dir.join("trash").join(fixture.uid().to_string()).join("tree/file"),
            fixture.dir.join("trees/00/notes/file"),
        ];
        for file in &foreign_files {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "precious").unwrap();
        }
        let targets = fixture.dir.join("targets");
        fs::create_dir_all(&targets).unwrap();
        Self { fixture, operations, base, foreign_files: foreign_files.to_vec(), foreign_uid, targets }
    }

    fn start(fixture: &Fixture) -> Process {
        let journal = Journal::open(&fixture.dir.join("journal")).unwrap();
        Process { root: DataRoot::open(&fixture.dir).unwrap(), journal, kind: fixture.kind(), dir: fixture.dir.clone() }
    }

    fn clone_of_base(&self) -> TreeOrigin {
        TreeOrigin::Clone { from: self.base, access: CloneAccess::ReadWrite }
    }

    fn origin(&self, operation: Operation) -> TreeOrigin {
        if operation == Operation::Make { TreeOrigin::Empty { owner: current_owner() } } else { self.clone_of_base() }
    }

    fn entry(&self, uid: Uid) -> PathBuf {
        self.fixture.dir.join("trees").join(uid.shard()).join(uid.to_string())
    }

    /// Makes what the operation needs. Returns the UIDs that the operation works on.
    fn prepare(&self, process: &Process, operation: Operation) -> Vec<Uid> {
        let make = |uid| make_as_the_shim(process, uid, self.clone_of_base()).unwrap();
        // Always the same UIDs, so that the n-th system call is always the same.
        let uids: Vec<_> = (1001..if operation == Operation::Recover { 1006 } else { 1002 }).map(nth_uid).collect();
        match operation {
            Operation::Make | Operation::Fork => {}
            Operation::Seal | Operation::Publish | Operation::Destroy => make(uids[0]),
            Operation::Recover => {
                let [half, unnamed, trashed, sealing, doomed] = uids[..] else { unreachable!() };
                let temporary = |uid: Uid| self.entry(uid).with_extension("tmp");
                process.journal.begin_create(half, process.kind, self.clone_of_base()).unwrap();
                make_without_journal(process, half, self.clone_of_base()).unwrap();
                fs::rename(self.entry(half), temporary(half)).unwrap();
                make(unnamed);
                fs::rename(self.entry(unnamed), temporary(unnamed)).unwrap();
                make(trashed);
                process.journal.begin_destroy(trashed).unwrap();
                fs::rename(self.entry(trashed), self.fixture.dir.join("trash").join(trashed.to_string())).unwrap();
                make(sealing);
                process.journal.begin_seal(sealing).unwrap();
                make(doomed);
                process.journal.begin_destroy(doomed).unwrap();
            }
        }
        uids
    }

    fn run(&self, process: &Process, operation: Operation, uids: &[Uid]) -> Outcome {
        match operation {
            Operation::Make | Operation::Fork => (self.operations.make)(process, uids[0], self.origin(operation)),
            Operation::Seal => seal_as_the_shim(process, uids[0]),
            Operation::Destroy => (self.operations.destroy)(process, uids[0]),
            Operation::Recover => (self.operations.recover)(process),
            Operation::Publish => {
                let targets = described(TargetRoot::open(&self.targets))?;
                match process.root.publish(uids[0], &targets, Path::new("mount"), false) {
                    Ok(BindOutcome::Mounted | BindOutcome::AlreadyMounted) => Ok(()),
                    Err(error) => {
                        described(unbind(&targets, Path::new("mount")))?;
                        Err(error.to_string())
                    }
                }
            }
        }
    }

    /// Checks what an operation that returned Ok promises.
    fn check_promise(&self, process: &Process, operation: Operation, uids: &[Uid]) -> Outcome {
        let sealed = |uid| described(process.root.marker(uid)).map(|m| m.sealed.is_some());
        match operation {
            Operation::Make | Operation::Fork => drop(described(process.root.marker(uids[0]))?),
            Operation::Seal if !sealed(uids[0])? => return Err("seal returned Ok, and the tree is not sealed".into()),
            Operation::Destroy if self.entry(uids[0]).exists() => return Err("destroy returned Ok, and the tree is there".into()),
            Operation::Publish if self.mount_count() != 1 => {
                return Err(format!("publish returned Ok, and there are {} mounts", self.mount_count()));
            }
            Operation::Seal | Operation::Destroy | Operation::Publish => {}
            Operation::Recover => {
                let [half, unnamed, trashed, sealing, doomed] = uids[..] else { unreachable!() };
                if !self.entry(unnamed).exists() || !sealed(sealing)? {
                    return Err("a tree that was promised is not there after the recovery".into());
                }
                if [half, trashed, doomed].iter().any(|uid| self.entry(*uid).exists()) {
                    return Err("a tree that was to go is there after the recovery".into());
                }
            }
        }
        Ok(())
    }

    fn mount_count(&self) -> usize {
        let at = self.targets.join("mount");
        mountinfo::read().unwrap().iter().filter(|m| m.mount_point == at).count()
    }

    /// Checks that every tree with a final name is complete, and that no foreign file is gone.
    fn check_nothing_damaged(&self, process: &Process, operation: Operation, uids: &[Uid]) -> Outcome {
        let wanted = content(&self.fixture.path(self.base));
        if wanted.len() != 4 {
            return Err(format!("the base changed: {wanted:?}"));
        }
        for uid in uids {
            match described(process.root.inventory())?.entries.iter().find(|e| e.uid == *uid && e.location == EntryLocation::Live) {
                None => continue,
                Some(entry) if entry.marker.is_none() => return Err(format!("{uid} stands under its name without a marker")),
                Some(_) => {}
            }
            let found = content(&self.fixture.path(*uid));
            let right = if operation == Operation::Make { found.is_empty() } else { found == wanted };
            if !right {
                return Err(format!("{uid} stands under its name and holds {:?}", found.iter().map(|(p, ..)| p).collect::<Vec<_>>()));
            }
        }
        match self.foreign_files.iter().find(|s| fs::read_to_string(s).ok().as_deref() != Some("precious")) {
            Some(gone) => Err(format!("{} was not ours, and is gone", gone.display())),
            None => Ok(()),
        }
    }

    /// Checks that journal and disk agree about every tree after a restart.
    fn check_consistent(&self, process: &Process) -> Outcome {
        let (records, found) = (described(process.journal.read_and_clean())?, described(process.root.inventory())?);
        let mut rest = plan::recover(&records, &found);
        let strange = |name: &String| {
            self.foreign_files.iter().any(|s| s.to_string_lossy().contains(&name[name.rfind('/').map_or(0, |at| at + 1)..]))
        };
        rest.foreign.retain(|name| !strange(name));
        rest.steps.retain(|step| !matches!(step, RecoveryStep::Disk(DiskStep::Purge { uid }) if strange(&uid.to_string())));
        match records.records.iter().find(|r| !matches!(r.state, RecordState::Ready | RecordState::Sealed)) {
            Some(record) => Err(format!("after the recovery {} is {:?}", record.uid, record.state)),
            None if !nothing_to_do(&rest) => Err(format!("after the recovery there is left {rest:?}")),
            None => Ok(()),
        }
    }

    /// Destroys the trees of the case, and checks that nothing is left.
    fn clean_up(&self, process: &Process, uids: &[Uid]) -> Outcome {
        described(unbind(&described(TargetRoot::open(&self.targets))?, Path::new("mount")))?;
        for uid in uids {
            destroy_as_the_shim(process, *uid)?;
        }
        if (self.operations.destroy)(process, self.foreign_uid).is_ok() {
            return Err("a directory that carries no marker of ours was destroyed".into());
        }
        let left: Vec<_> = described(process.root.inventory())?.entries.into_iter().filter(|e| uids.contains(&e.uid)).collect();
        let records: Vec<_> = described(process.journal.read_and_clean())?.records.into_iter().filter(|r| uids.contains(&r.uid)).collect();
        let shown = fs::read_dir(&self.targets).map_err(|e| e.to_string())?.count();
        let files = fs::read_dir(self.fixture.dir.join("journal")).map_err(|e| e.to_string())?.count();
        if !left.is_empty() || !records.is_empty() || shown + self.mount_count() != 0 || files != 1 {
            return Err(format!("left behind: {left:?} {records:?}, {shown} targets, {files} records"));
        }
        Ok(())
    }

    fn run_case(
        &self,
        operation: Operation,
        counted: Counted,
        nth: usize,
        strike: Strike,
        reusable: &mut Option<Vec<Uid>>,
    ) -> Result<bool, String> {
        let mut process = Self::start(self.fixture);
        let uids = reusable.take().unwrap_or_else(|| self.prepare(&process, operation));
        let walked = walk(counted, nth, strike, || self.run(&process, operation, &uids)).unwrap();
        let Some(answer) = walked.answer else { return Err("it panicked".into()) };
        let Some(struck) = walked.struck else {
            answer?;
            self.check_promise(&process, operation, &uids)?;
            self.check_nothing_damaged(&process, operation, &uids)?;
            self.clean_up(&process, &uids)?;
            return Ok(false);
        };
        if answer.is_err() && walked.changed == 0 {
            // The operation failed and changed nothing, so the next case can use what was prepared.
            self.check_nothing_damaged(&process, operation, &[])
                .map_err(|e| format!("{e} [{operation:?}, {strike:?} at operation {nth}, {struck}]"))?;
            *reusable = Some(uids);
            return Ok(true);
        }
        let judge = |process: &Process| -> Outcome {
            self.check_nothing_damaged(process, operation, &uids)?;
            if answer.is_ok() {
                self.check_promise(process, operation, &uids)?;
            }
            Ok(())
        };
        let mut whole = || -> Outcome {
            if strike == Strike::Death {
                process = Self::start(self.fixture);
                // Foreign entries under a temporary name or in the trash do not stop the recovery of ours.
                self.recovered(&process)?;
                self.check_consistent(&process)?;
            }
            judge(&process)?;
            self.run(&process, operation, &uids)?;
            self.check_promise(&process, operation, &uids)?;
            self.check_nothing_damaged(&process, operation, &uids)?;
            process = Self::start(self.fixture);
            self.recovered(&process)?;
            self.check_consistent(&process)?;
            self.clean_up(&process, &uids)
        };
        whole().map_err(|e| format!("{e} [{operation:?}, {strike:?} at operation {nth}, {struck}]"))?;
        Ok(true)
    }

    fn recovered(&self, process: &Process) -> Outcome {
        (self.operations.recover)(process)
    }

    /// All n for one operation and one failure. Returns the number of cases, or what the first failed check says.
    fn run_all(&self, operation: Operation, counted: Counted, strike: Strike) -> Result<usize, String> {
        let mut reusable = None;
        for nth in 1.. {
            if !self.run_case(operation, counted, nth, strike, &mut reusable)? {
                return Ok(nth - 1);
            }
        }
        Ok(0)
    }
}

/// To die before a call that only reads is the same as to die before the next call that changes something.
const ERRORS: [(Counted, Strike); 5] = [
    (Counted::Changes, Strike::Death),
    (Counted::All, Strike::Once(libc::EIO)),
    (Counted::Changes, Strike::Once(libc::ENOSPC)),
    (Counted::Changes, Strike::Once(libc::EDQUOT)),
    (Counted::Changes, Strike::Once(libc::EROFS)),
];

fn all(fixture: &Fixture, operation: Operation, at_least: usize) -> Verdict {
    if let Some(verdict) = not_here(fixture) {
        return verdict;
    }
    let setup = Setup::new(fixture, CORRECT);
    let (mut cases, mut each) = (0, Vec::new());
    for (mut counted, strike) in ERRORS {
        // The calls with which a recovery reads do not depend on the provider, so one lane is enough for them.
        if operation == Operation::Recover && fixture.lane == Lane::Copy {
            counted = Counted::Changes;
        }
        let n = setup.run_all(operation, counted, strike).unwrap_or_else(|complaint| panic!("{complaint}"));
        each.push(n);
        cases += n;
    }
    println!(
        "    {cases} cases: dies before each of {}, EIO at each of {}, ENOSPC, EDQUOT and EROFS at each of {}",
        each[0], each[1], each[2]
    );
    assert!(cases >= at_least, "only {cases} cases");
    Verdict::Ran
}

fn not_here(fixture: &Fixture) -> Option<Verdict> {
    if fixture.lane == Lane::CopyOnBtrfs {
        return Some(Verdict::NotRun("the lanes Copy and Btrfs are enough"));
    }
    (!is_root()).then_some(Verdict::Lacks("needs root to mount, and to own files of others"))
}

fn make(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Make, 80)
}

fn fork(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Fork, 80)
}

fn seal(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Seal, 100)
}

fn publish(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Publish, 30)
}

fn destroy(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Destroy, 100)
}

fn recover(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Recover, 150)
}

/// The harness must find the fault in these operations.
fn must_find(fixture: &Fixture, operations: Operations, operation: Operation) -> Verdict {
    if let Some(verdict) = not_here(fixture) {
        return verdict;
    }
    let complaint = Setup::new(fixture, operations).run_all(operation, Counted::Changes, Strike::Death).expect_err("the harness is blind");
    println!("    found: {complaint}");
    Verdict::Ran
}

fn late_intent(fixture: &Fixture) -> Verdict {
    fn make(process: &Process, uid: Uid, origin: TreeOrigin) -> Outcome {
        make_without_journal(process, uid, origin)?;
        described(process.journal.begin_create(uid, process.kind, origin))?;
        described(process.journal.record_created(uid))
    }
    must_find(fixture, Operations { make, ..CORRECT }, Operation::Fork)
}

fn late_marker(fixture: &Fixture) -> Verdict {
    /// Gives the entry its final name before its marker.
    fn make(process: &Process, uid: Uid, origin: TreeOrigin) -> Outcome {
        described(process.journal.begin_create(uid, process.kind, origin))?;
        let live = process.dir.join("trees").join(uid.shard()).join(uid.to_string());
        if !live.exists() {
            make_without_journal(process, uid, origin)?;
            let marker = described(fs::read_link(live.join("marker")))?;
            described(fs::remove_file(live.join("marker")))?;
            described(std::os::unix::fs::symlink(marker, live.join("marker")))?;
        }
        described(process.journal.record_created(uid))
    }
    must_find(fixture, Operations { make, ..CORRECT }, Operation::Fork)
}

fn by_name(fixture: &Fixture) -> Verdict {
    fn destroy(process: &Process, uid: Uid) -> Outcome {
        match destroy_as_the_shim(process, uid) {
            Ok(()) => Ok(()),
            Err(_) => described(fs::remove_dir_all(process.dir.join("trees").join(uid.shard()).join(uid.to_string()))),
        }
    }
    must_find(fixture, Operations { destroy, ..CORRECT }, Operation::Destroy)
}

fn full_trash(fixture: &Fixture) -> Verdict {
    fn recover(process: &Process) -> Outcome {
        for step in &plan::recover(&described(process.journal.read_and_clean())?, &described(process.root.inventory())?).steps {
            match step {
                RecoveryStep::Disk(DiskStep::Purge { .. }) => {}
                RecoveryStep::Disk(step) => described(process.root.perform(step))?,
                RecoveryStep::Journal(step) => described(process.journal.apply(step))?,
            }
        }
        Ok(())
    }
    must_find(fixture, Operations { recover, ..CORRECT }, Operation::Destroy)
}

fn anew(fixture: &Fixture) -> Verdict {
    /// Makes every tree again that has a record of its creation, instead of looking for it on disk.
    fn recover(process: &Process) -> Outcome {
        for record in described(process.journal.read_and_clean())?.records.iter().filter(|r| r.state == RecordState::Creating) {
            let provider = described(process.root.provider(process.kind))?;
            described(provider.destroy(record.uid))?;
            described(provider.create_empty(record.uid, current_owner()))?;
        }
        recover_as_the_shim(process)
    }
    must_find(fixture, Operations { recover, ..CORRECT }, Operation::Fork)
}
