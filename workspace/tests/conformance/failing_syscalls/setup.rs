//! Runs one operation again and again, each time with another system call that fails, and checks what it leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use yoi_test_support::Share;
use yoi_workspace::mount::{BindOutcome, TargetRoot, unbind};
use yoi_workspace::plan::{self, DiskStep, RecoveryStep};
use yoi_workspace::{CloneAccess, EntryLocation, Journal, ProviderKind, Quota, RecordState, TreeOrigin, Uid, mountinfo};

use super::operations::{
    Operation, Operations, Outcome, Process, described, destroy_as_the_shim, make_as_the_shim, make_without_journal, seal_as_the_shim,
};
use crate::failing_commands::{FailingCommands, Failure};
use crate::fixture::{Fixture, content, current_owner, make_subvolume, nothing_to_do, nth_uid, open_root, write_in};
use crate::host;
use crate::syscall_faults::{Counted, Fault, run_with_fault};

/// A data root with a base, and with files that are not ours.
pub(super) struct Setup<'a> {
    fixture: &'a Fixture,
    operations: Operations,
    base: Uid,
    /// A sealed clone of the base, changed.
    fork: Uid,
    foreign_files: Vec<PathBuf>,
    foreign_uid: Uid,
    targets: PathBuf,
    /// Of every process that this starts.
    commands: Arc<FailingCommands>,
}

/// What fails in a run of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Failing {
    Syscall(Counted, Fault),
    Command(Failure),
}

impl<'a> Setup<'a> {
    pub(super) fn new(fixture: &'a Fixture, operations: Operations) -> Self {
        let commands = Arc::new(FailingCommands::default());
        let process = Self::start(fixture, &commands);
        let base = fixture.uid();
        make_as_the_shim(&process, base, TreeOrigin::Empty { owner: current_owner() }).unwrap();
        let path = fixture.path(base);
        fs::create_dir(path.join("dir")).unwrap();
        fs::write(path.join("dir/file"), "precious").unwrap();
        fs::hard_link(path.join("dir/file"), path.join("twin")).unwrap();
        std::os::unix::fs::symlink("dir/file", path.join("link")).unwrap();
        seal_as_the_shim(&process, base).unwrap();
        let fork = fixture.uid();
        make_as_the_shim(&process, fork, TreeOrigin::Clone { from: base, access: CloneAccess::ReadWrite }).unwrap();
        write_in(&fixture.root, fork, "dir/file", b"changed under both names");
        write_in(&fixture.root, fork, "new", b"x");
        let tree = fixture.root.open_tree(fork).unwrap();
        rustix::fs::unlinkat(&tree, "link", rustix::fs::AtFlags::empty()).unwrap();
        drop(tree);
        seal_as_the_shim(&process, fork).unwrap();
        let source = host::beside(fixture);
        match fixture.kind() {
            ProviderKind::Btrfs => make_subvolume(&source),
            ProviderKind::Zfs | ProviderKind::Overlay | ProviderKind::Reflink | ProviderKind::Copy => fs::create_dir(&source).unwrap(),
        }
        fs::create_dir(source.join("dir")).unwrap();
        fs::write(source.join("dir/file"), "not committed").unwrap();
        fs::hard_link(source.join("dir/file"), source.join("twin")).unwrap();
        host::give_away(&source);
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
        Self { fixture, operations, base, fork, foreign_files: foreign_files.to_vec(), foreign_uid, targets, commands }
    }

    fn start(fixture: &Fixture, commands: &Arc<FailingCommands>) -> Process {
        let journal = Journal::open(&fixture.dir.join("journal")).unwrap();
        let (root, dir) = (open_root(fixture.lane, &fixture.dir, commands.clone()), fixture.dir.clone());
        Process { root, journal, kind: fixture.kind(), dir, quota: fixture.enforces_quotas.then(|| Quota::new(10 << 20).unwrap()) }
    }

    fn clone_of_base(&self) -> TreeOrigin {
        TreeOrigin::Clone { from: self.base, access: CloneAccess::ReadWrite }
    }

    fn origin(&self, operation: Operation) -> TreeOrigin {
        match operation {
            Operation::Make => TreeOrigin::Empty { owner: current_owner() },
            Operation::Capture => TreeOrigin::Host { owner: host::USER },
            Operation::ForkOfFork => TreeOrigin::Clone { from: self.fork, access: CloneAccess::ReadWrite },
            Operation::Fork | Operation::Seal | Operation::Publish | Operation::Destroy | Operation::Recover => self.clone_of_base(),
        }
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
            Operation::Make | Operation::Fork | Operation::ForkOfFork | Operation::Capture => {}
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
            Operation::Make | Operation::Fork | Operation::ForkOfFork | Operation::Capture => {
                (self.operations.make)(process, uids[0], self.origin(operation))
            }
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
            Operation::Make | Operation::Fork | Operation::ForkOfFork => {
                let recorded = described(process.journal.get(uids[0]))?.and_then(|record| record.quota);
                if described(process.root.marker(uids[0]))?.quota != recorded {
                    return Err("a tree was made, and its quota is another one".into());
                }
            }
            Operation::Capture if !sealed(uids[0])? => return Err("capture returned Ok, and the tree is not sealed".into()),
            Operation::Seal if !sealed(uids[0])? => return Err("seal returned Ok, and the tree is not sealed".into()),
            Operation::Destroy if self.entry(uids[0]).exists() => return Err("destroy returned Ok, and the tree is there".into()),
            Operation::Publish if self.mount_count() != 1 => {
                return Err(format!("publish returned Ok, and there are {} mounts", self.mount_count()));
            }
            Operation::Capture | Operation::Seal | Operation::Destroy | Operation::Publish => {}
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
            let right = match operation {
                Operation::Make => found.is_empty(),
                Operation::ForkOfFork => found == content(&self.fixture.path(self.fork)),
                Operation::Capture => found == content(&host::beside(self.fixture)),
                _ => found == wanted,
            };
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
        if !left.is_empty() || !records.is_empty() || shown + self.mount_count() != 0 || files != 2 {
            return Err(format!("left behind: {left:?} {records:?}, {shown} targets, {files} records"));
        }
        Ok(())
    }

    fn run_case(&self, operation: Operation, nth: usize, failing: Failing, reusable: &mut Option<Vec<Uid>>) -> Result<bool, String> {
        let mut process = self.restarted();
        let uids = reusable.take().unwrap_or_else(|| self.prepare(&process, operation));
        let (answer, failed_call, has_changed) = match failing {
            Failing::Syscall(counted, fault) => {
                let run = run_with_fault(counted, nth, fault, || self.run(&process, operation, &uids)).unwrap();
                let Some(answer) = run.answer else { return Err("it panicked".into()) };
                (answer, run.failed_call.map(str::to_owned), run.changed > 0)
            }
            Failing::Command(failure) => {
                let (answer, failed) = self.commands.run(nth, failure, || self.run(&process, operation, &uids));
                (answer.unwrap_or_else(|| Err("it died".into())), failed, true)
            }
        };
        let Some(failed_call) = failed_call else {
            answer?;
            self.check_promise(&process, operation, &uids)?;
            self.check_nothing_damaged(&process, operation, &uids)?;
            self.clean_up(&process, &uids)?;
            return Ok(false);
        };
        if answer.is_err() && !has_changed {
            // The operation failed and changed nothing, so the next case can use what was prepared.
            self.check_nothing_damaged(&process, operation, &[])
                .map_err(|e| format!("{e} [{operation:?}, {failing:?} at operation {nth}, {failed_call}]"))?;
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
            if matches!(failing, Failing::Syscall(_, Fault::Death) | Failing::Command(Failure::Death)) {
                process = self.restarted();
                // Foreign entries under a temporary name or in the trash do not stop the recovery of ours.
                self.recovered(&process)?;
                self.check_consistent(&process)?;
            }
            judge(&process)?;
            self.run(&process, operation, &uids)?;
            self.check_promise(&process, operation, &uids)?;
            self.check_nothing_damaged(&process, operation, &uids)?;
            process = self.restarted();
            self.recovered(&process)?;
            self.check_consistent(&process)?;
            self.clean_up(&process, &uids)
        };
        whole().map_err(|e| format!("{e} [{operation:?}, {failing:?} at operation {nth}, {failed_call}]"))?;
        Ok(true)
    }

    fn restarted(&self) -> Process {
        Self::start(self.fixture, &self.commands)
    }

    fn recovered(&self, process: &Process) -> Outcome {
        (self.operations.recover)(process)
    }

    /// All n for one operation and one failure, or a share of them. Returns how many cases there are, or what the first failed check says.
    pub(super) fn run_all(&self, operation: Operation, failing: Failing, share: &mut Share) -> Result<usize, String> {
        let mut reusable = None;
        for nth in (1..).filter(|_| share.takes_next()) {
            if !self.run_case(operation, nth, failing, &mut reusable)? {
                return Ok(nth - 1);
            }
        }
        Ok(0)
    }
}
