//! Each system call that an operation makes on the disk fails once with each error that a disk can give. The process also dies before each
//! of them.

mod operations;
mod setup;

use std::fs;

use yoi_test_support::Share;
use yoi_workspace::plan::{self, DiskStep, RecoveryStep};
use yoi_workspace::{KernelFacts, ProviderKind, ProviderRequest, RecordState, TreeOrigin, Uid};

use self::operations::{
    CORRECT, Operation, Operations, Outcome, Process, described, destroy_as_the_shim, make_without_journal, recover_as_the_shim,
};
use self::setup::{Failing, Setup};
use crate::failing_commands::{FAILURES, Failure};
use crate::fixture::{Fixture, current_owner, is_root};
use crate::lanes::Lane;
use crate::not_run::BETWEEN_COMMANDS;
use crate::syscall_faults::{Counted, Fault, run_with_fault};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w32_whatever_disk_operation_fails_a_tree_is_made_or_not", make),
    ("w32_whatever_disk_operation_fails_a_fork_is_made_or_not", fork),
    ("w32_whatever_disk_operation_fails_a_fork_of_a_fork_is_made_or_not", fork_of_fork),
    ("w32_whatever_disk_operation_fails_a_host_folder_is_captured_or_not", capture),
    ("w32_whatever_disk_operation_fails_a_tree_is_sealed_or_not", seal),
    ("w32_whatever_disk_operation_fails_a_tree_is_mounted_or_not", publish),
    ("w32_whatever_disk_operation_fails_a_tree_is_destroyed_or_not", destroy),
    ("w32_whatever_disk_operation_fails_a_recovery_goes_on_where_it_stopped", recover),
    ("a_kernel_without_a_system_call_that_mounts_need_is_named", old_kernel),
    ("a_btrfs_that_fails_a_probe_is_still_offered_so_that_no_base_is_a_copy_for_good", failing_probe),
    ("planted_an_intent_written_too_late_is_found", late_intent),
    ("planted_a_name_given_before_the_marker_is_found", late_marker),
    ("planted_a_destruction_by_name_alone_is_found", by_name),
    ("planted_a_trash_that_is_never_emptied_is_found", full_trash),
    ("planted_a_recovery_that_makes_a_tree_anew_is_found", anew),
];

/// To die before a call that only reads is the same as to die before the next call that changes something.
const ERRORS: [(Counted, Fault); 5] = [
    (Counted::Changes, Fault::Death),
    (Counted::All, Fault::Once(libc::EIO)),
    (Counted::Changes, Fault::Once(libc::ENOSPC)),
    (Counted::Changes, Fault::Once(libc::EDQUOT)),
    (Counted::Changes, Fault::Once(libc::EROFS)),
];

fn all(fixture: &Fixture, operation: Operation, at_least: usize) -> Verdict {
    if let Some(verdict) = not_here(fixture) {
        return verdict;
    }
    let setup = Setup::new(fixture, CORRECT);
    if fixture.kind() == ProviderKind::Zfs {
        return all_commands(&setup, operation);
    }
    let (mut cases, mut tried, mut each) = (0, 0, Vec::new());
    for (mut counted, fault) in ERRORS {
        // The calls with which a recovery reads do not depend on the provider, so one lane is enough for them.
        if operation == Operation::Recover && fixture.lane != Lane::Btrfs {
            counted = Counted::Changes;
        }
        // Each errno at each call takes minutes, so a landing tries a quarter, and others on the next day.
        let mut share = Share::one_in(4);
        let n = setup
            .run_all(operation, Failing::Syscall(counted, fault), &mut share)
            .unwrap_or_else(|complaint| panic!("{complaint} ({share})"));
        each.push(n);
        cases += n;
        tried += share.tried();
    }
    println!(
        "    {tried} of {cases} cases: dies before each of {}, EIO at each of {}, ENOSPC, EDQUOT and EROFS at each of {}",
        each[0], each[1], each[2]
    );
    assert!(cases >= at_least, "only {cases} cases");
    Verdict::Ran
}

/// Each command of `zfs` fails.
fn all_commands(setup: &Setup, operation: Operation) -> Verdict {
    let each = FAILURES.map(|failure| {
        setup.run_all(operation, Failing::Command(failure), &mut Share::all()).unwrap_or_else(|complaint| panic!("{complaint}"))
    });
    println!("    dies before each of {} commands, each of {} fails, the answer of each of {} is lost", each[0], each[1], each[2]);
    // Mounting a tree takes one, or none where the kernel has ZFS.
    assert!(operation == Operation::Publish || each.iter().all(|n| *n >= 2), "only {each:?} cases");
    Verdict::Ran
}

fn not_here(fixture: &Fixture) -> Option<Verdict> {
    if !matches!(fixture.lane, Lane::Copy | Lane::Btrfs | Lane::OverlayOnExt4 | Lane::ReflinkOnXfs | Lane::Zfs) {
        return Some(Verdict::NotRun("one lane of each provider is enough"));
    }
    (!is_root()).then_some(Verdict::Lacks("needs root to mount, and to own files of others"))
}

/// As on Linux 5.11, by a filter that answers ENOSYS.
fn old_kernel(_: &Fixture) -> Verdict {
    assert_eq!(KernelFacts::read().unwrap().shortfall(), None, "this machine's kernel");
    let mut found = Vec::new();
    for nth in 1.. {
        let run = match run_with_fault(Counted::All, nth, Fault::Once(libc::ENOSYS), KernelFacts::read) {
            Ok(run) => run,
            Err(_) => return Verdict::Lacks("needs seccomp"),
        };
        let Some(call) = run.failed_call else { break };
        if let Some(Ok(facts)) = run.answer
            && let Some(why) = facts.shortfall()
        {
            assert!(why.contains(&facts.release) && why.contains(call) && why.contains("Linux 5.12 or later"), "{why}");
            found.push(call);
        }
    }
    assert_eq!(found, ["openat2", "open_tree", "move_mount", "fsopen", "mount_setattr"]);
    Verdict::Ran
}

fn failing_probe(fixture: &Fixture) -> Verdict {
    if fixture.lane != Lane::Btrfs {
        return Verdict::NotRun("about Btrfs");
    }
    let mut failures = 0;
    for (nth, errno) in (1..30).flat_map(|nth| [libc::EIO, libc::ENOMEM, libc::EROFS].map(|errno| (nth, errno))) {
        let Ok(run) = run_with_fault(Counted::All, nth, Fault::Once(errno), || fixture.root.probe()) else {
            return Verdict::Lacks("needs seccomp");
        };
        let Some(call) = run.failed_call else { break };
        if let Some(Ok(probe)) = run.answer {
            let chosen = plan::select(ProviderRequest::Auto, &probe.offers).unwrap();
            assert_eq!(chosen.provider, ProviderKind::Btrfs, "{call} failed: {probe:?}");
            failures += usize::from(probe.failure.is_some());
        }
    }
    assert!(failures >= 6, "the harness detects nothing: {failures}");
    assert_eq!(fixture.root.probe().unwrap().failure, None);
    Verdict::Ran
}

fn make(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Make, 80)
}

fn fork(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Fork, 80)
}

fn fork_of_fork(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::ForkOfFork, 80)
}

fn capture(fixture: &Fixture) -> Verdict {
    all(fixture, Operation::Capture, 100)
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
    let failing = match fixture.lane {
        Lane::Zfs => Failing::Command(Failure::Death),
        _ => Failing::Syscall(Counted::Changes, Fault::Death),
    };
    let complaint =
        Setup::new(fixture, operations).run_all(operation, failing, &mut Share::all()).expect_err("the harness detects nothing");
    println!("    found: {complaint}");
    Verdict::Ran
}

/// The same for a fault that no command of `zfs` that fails can show.
fn must_find_between_commands(fixture: &Fixture, operations: Operations, operation: Operation) -> Verdict {
    match fixture.kind() {
        ProviderKind::Zfs => Verdict::NotRun(BETWEEN_COMMANDS),
        ProviderKind::Btrfs | ProviderKind::Overlay | ProviderKind::Reflink | ProviderKind::Copy => {
            must_find(fixture, operations, operation)
        }
    }
}

fn late_intent(fixture: &Fixture) -> Verdict {
    fn make(process: &Process, uid: Uid, origin: TreeOrigin) -> Outcome {
        make_without_journal(process, uid, origin)?;
        described(process.journal.begin_create(uid, process.kind, origin))?;
        described(process.journal.record_created(uid))
    }
    must_find_between_commands(fixture, Operations { make, ..CORRECT }, Operation::Fork)
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
    must_find_between_commands(fixture, Operations { make, ..CORRECT }, Operation::Fork)
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
