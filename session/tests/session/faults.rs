//! Fails every disk operation once, with and without a power cut. What was acknowledged is there afterwards, once.
#![expect(clippy::disallowed_macros, reason = "figures are shown with `--nocapture`")]

use yoi_session::{
    Preallocate,
    disk::{DiskFault, Retained},
};
use yoi_test_support::Share;

use crate::{
    fault_harness::{CALLS, Scenario, run_scenario, sweep},
    fixture::SMALL,
    planted_disks::PlantedFault,
};

const FAULTS: [DiskFault; 5] = [DiskFault::Eio, DiskFault::Enospc, DiskFault::Edquot, DiskFault::Erofs, DiskFault::Short];

const PLAIN: Scenario = Scenario {
    fault: DiskFault::Eio,
    lasting: false,
    power: None,
    again: None,
    end: Retained::Synced,
    preallocate: SMALL,
    planted: PlantedFault::None,
    inbox_not_told: false,
    forgets_ids: false,
};

/// Runs one scenario for every operation that is tried. When that is every operation, each call has to fail at least once.
fn sweep_all_calls(scenario: &Scenario, share: &mut Share) {
    let failed = sweep(scenario, share).unwrap_or_else(|error| panic!("{error}\n{share}"));
    for call in CALLS.into_iter().filter(|_| share.is_all()) {
        assert!(failed.keys().any(|(name, _)| *name == call), "nothing failed under {call}: {scenario:?}");
    }
}

/// Every eighth operation fails at each landing.
fn assert_nothing_lost(what: &str, at_least: u64, scenarios: impl FnOnce(&mut Share)) {
    let mut share = Share::one_in(8);
    scenarios(&mut share);
    println!("disk faults: {what}: {share}, one operation failed in each");
    assert!(share.seen() >= at_least, "{what}: {share}, of at least {at_least}");
}

/// Runs all kinds of faults with one kind of power cut, once with zeros ahead and lasting without.
fn all(power: Option<Retained>, share: &mut Share) {
    for fault in FAULTS {
        for (lasting, preallocate) in [(false, SMALL), (true, Preallocate::Off)] {
            sweep_all_calls(&Scenario { fault, lasting, power, preallocate, ..PLAIN }, share);
        }
    }
}

#[test]
fn every_call_fails_in_each_of_its_disk_operations() {
    let mut lines = Vec::new();
    for ((call, operation), times) in sweep(&PLAIN, &mut Share::all()).unwrap() {
        lines.push(format!("{call}: {operation} {times}"));
    }
    println!("disk faults, for each kind:\n  {}", lines.join("\n  "));
    for call in CALLS {
        assert!(lines.iter().any(|line| line.starts_with(&format!("{call}: "))), "nothing failed under {call}");
    }
    // Fewer pairs than today are a smaller sweep. Whoever means that changes the number.
    assert!(lines.len() >= 50, "{} pairs of call and operation", lines.len());
}

#[test]
fn a_failed_operation_loses_nothing_that_was_acknowledged() {
    assert_nothing_lost("the process dies, the power stays", 1700, |share| all(None, share));
}

#[test]
fn a_failed_operation_with_a_power_cut_loses_nothing_that_was_acknowledged() {
    assert_nothing_lost("the power goes, what was synced is there", 1700, |share| all(Some(Retained::Synced), share));
}

#[test]
fn a_power_cut_that_leaves_all_that_was_written_loses_nothing_that_was_acknowledged() {
    assert_nothing_lost("the power goes, all that was written is there", 340, |share| {
        for lasting in [false, true] {
            sweep_all_calls(&Scenario { lasting, power: Some(Retained::Written), ..PLAIN }, share);
        }
    });
}

#[test]
fn a_power_cut_that_leaves_some_sectors_loses_nothing_that_was_acknowledged() {
    assert_nothing_lost("the power goes, some sectors, lengths and names are there", 2200, |share| {
        for seed in 0..6 {
            let power = Some(Retained::Random { seed });
            for preallocate in [SMALL, Preallocate::Off] {
                sweep_all_calls(&Scenario { lasting: true, power, preallocate, ..PLAIN }, share);
            }
        }
        for seed in 10..150 {
            if share.takes_next() {
                let scenario = Scenario { lasting: true, power: Some(Retained::Random { seed }), ..PLAIN };
                run_scenario(&scenario, 40 + usize::try_from(seed).unwrap() % 160).unwrap();
            }
        }
    });
}

#[test]
fn a_second_failure_during_recovery_loses_nothing_that_was_acknowledged() {
    assert_nothing_lost("and one more while it comes back", 1000, |share| {
        for again in [3, 9, 21] {
            for power in [None, Some(Retained::Random { seed: 5 })] {
                sweep_all_calls(&Scenario { lasting: true, power, again: Some(again), ..PLAIN }, share);
            }
        }
    });
}

/// Checks that the harness finds a planted fault.
fn assert_found(scenario: &Scenario, word: &str) {
    let error = sweep(scenario, &mut Share::all()).expect_err("a planted fault went unnoticed");
    println!("seen: {error}");
    assert!(error.contains(word), "{error}");
}

#[test]
fn planted_an_acknowledgement_before_the_sync_is_found() {
    assert_found(&Scenario { planted: PlantedFault::NoSync, ..PLAIN }, "lost");
}

#[test]
fn planted_a_failed_sync_taken_for_a_good_one_is_found() {
    // A whole append is missing between two others, so the log does not open at all.
    assert_found(&Scenario { planted: PlantedFault::SwallowedSync, ..PLAIN }, "it does not begin with its checksum");
}

#[test]
fn planted_names_that_were_never_synced_are_found() {
    assert_found(&Scenario { planted: PlantedFault::NoDirSync, ..PLAIN }, "lost");
}

#[test]
fn planted_an_append_shown_by_replay_and_not_on_the_disk_is_found() {
    assert_found(&Scenario { planted: PlantedFault::SameAgain, lasting: true, ..PLAIN }, "sees another log");
}

#[test]
fn planted_an_inbox_that_is_not_told_what_was_delivered_is_found() {
    assert_found(&Scenario { inbox_not_told: true, ..PLAIN }, "2 times");
}

#[test]
fn planted_a_pointer_that_moves_before_its_segment_is_durable_is_found() {
    assert_found(&Scenario { planted: PlantedFault::PointerFirst, power: Some(Retained::Synced), ..PLAIN }, "the second is missing");
}

#[test]
fn planted_segments_in_the_order_of_their_names_are_found() {
    assert_found(&Scenario { planted: PlantedFault::OrderByName, ..PLAIN }, "sees another log");
}

#[test]
fn planted_a_segment_that_forgets_ids_is_found() {
    assert_found(&Scenario { forgets_ids: true, ..PLAIN }, "would be taken again");
}

#[test]
fn planted_a_write_that_is_tried_again_without_a_cut_is_found() {
    assert_found(
        &Scenario { planted: PlantedFault::RetriedWrite, fault: DiskFault::Enospc, preallocate: Preallocate::Off, ..PLAIN },
        "sees another log than the replay",
    );
}

#[test]
fn planted_a_sync_that_is_tried_again_is_found() {
    assert_found(&Scenario { planted: PlantedFault::RetriedSync, ..PLAIN }, "it does not begin with its checksum");
}

#[test]
fn planted_an_acceptance_before_the_inboxs_folder_is_synced_is_found() {
    assert_found(&Scenario { planted: PlantedFault::NoInboxSync, ..PLAIN }, "was accepted and is there 0 times");
}
