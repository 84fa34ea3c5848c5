//! Whatever operation fails, and whether the power goes with it: what was acknowledged is there, once.

use yoi_session::{
    Fill,
    disk::{Fault, Survive},
};

use crate::{
    bed::SMALL,
    planted::Lie,
    sweep::{Trouble, story, sweep},
};

const FAULTS: [Fault; 5] = [Fault::Eio, Fault::Enospc, Fault::Edquot, Fault::Erofs, Fault::Short];

const PLAIN: Trouble = Trouble {
    fault: Fault::Eio,
    lasting: false,
    power: None,
    again: None,
    end: Survive::Synced,
    fill: SMALL,
    lie: Lie::None,
    forgetful: false,
};

/// The faults of all kinds under one power cut, swept.
fn all(power: Option<Survive>) {
    for fault in FAULTS {
        for (lasting, fill) in [(false, SMALL), (true, Fill::Off)] {
            // Those that only differ in their number differ in nothing here but one turn each.
            if matches!(fault, Fault::Edquot | Fault::Erofs) && lasting == power.is_some() {
                continue;
            }
            let swept = sweep(&Trouble { fault, lasting, power, fill, ..PLAIN }).unwrap();
            assert!(swept > 100, "{swept} operations is not the whole story");
        }
    }
}

#[test]
fn a_failed_operation_loses_nothing_that_was_acknowledged() {
    all(None);
}

#[test]
fn nor_does_one_with_a_power_cut() {
    all(Some(Survive::Synced));
}

#[test]
fn nor_one_after_which_all_is_on_the_platter() {
    for lasting in [false, true] {
        sweep(&Trouble { lasting, power: Some(Survive::Written), ..PLAIN }).unwrap();
    }
}

#[test]
fn nor_one_that_tears_sectors() {
    for seed in 0..2 {
        let power = Some(Survive::Some { seed });
        sweep(&Trouble { lasting: true, power, ..PLAIN }).unwrap();
        sweep(&Trouble { power, fill: Fill::Off, ..PLAIN }).unwrap();
    }
    for seed in 10..150 {
        story(&Trouble { lasting: true, power: Some(Survive::Some { seed }), ..PLAIN }, 40 + usize::try_from(seed).unwrap() % 80).unwrap();
    }
}

#[test]
fn nor_a_second_one_while_it_recovers() {
    for again in [3, 9, 21] {
        for power in [None, Some(Survive::Some { seed: 5 })] {
            sweep(&Trouble { lasting: true, power, again: Some(again), ..PLAIN }).unwrap();
        }
    }
}

/// The harness has to see a fault that is there.
fn found(trouble: &Trouble, word: &str) {
    let error = sweep(trouble).expect_err("a planted fault went unnoticed");
    assert!(error.contains(word), "{error}");
}

#[test]
fn planted_an_acknowledgement_before_the_sync_is_found() {
    found(&Trouble { lie: Lie::NoSync, ..PLAIN }, "lost");
}

#[test]
fn planted_a_failed_sync_taken_for_a_good_one_is_found() {
    // A whole append is missing between two others: what opens is not a shorter log but none.
    found(&Trouble { lie: Lie::SwallowedSync, ..PLAIN }, "line 1");
}

#[test]
fn planted_names_that_were_never_synced_are_found() {
    found(&Trouble { lie: Lie::NoDirSync, ..PLAIN }, "lost");
}

#[test]
fn planted_an_append_shown_by_replay_and_not_on_the_platter_is_found() {
    found(&Trouble { lie: Lie::SameAgain, lasting: true, ..PLAIN }, "never came back: failed to read");
}

#[test]
fn planted_an_inbox_that_is_not_told_what_was_delivered_is_found() {
    found(&Trouble { forgetful: true, ..PLAIN }, "2 times");
}
