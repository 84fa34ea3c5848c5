//! Whatever operation fails, and whether the power goes with it: what was acknowledged is there, once.
#![expect(clippy::disallowed_macros, reason = "figures are shown with `--nocapture`")]

use yoi_session::{
    Preallocate,
    disk::{DiskFault, Survive},
};

use crate::{
    bed::SMALL,
    planted::Lie,
    sweep::{Trouble, VERBS, story, sweep},
};

const FAULTS: [DiskFault; 5] = [DiskFault::Eio, DiskFault::Enospc, DiskFault::Edquot, DiskFault::Erofs, DiskFault::Short];

const PLAIN: Trouble = Trouble {
    fault: DiskFault::Eio,
    lasting: false,
    power: None,
    again: None,
    end: Survive::Synced,
    fill: SMALL,
    lie: Lie::None,
    forgetful: false,
};

/// One trouble at every operation in turn: how many there were. Every verb has to have its turn.
fn swept(trouble: &Trouble) -> usize {
    let struck = sweep(trouble).unwrap_or_else(|error| panic!("{error}"));
    for verb in VERBS {
        assert!(struck.keys().any(|(struck, _)| *struck == verb), "nothing failed under {verb}: {trouble:?}");
    }
    struck.values().sum()
}

fn said(what: &str, stories: usize, at_least: usize) {
    println!("disk faults: {what}: {stories} stories, one operation failed in each");
    assert!(stories >= at_least, "{what}: {stories} stories, of at least {at_least}");
}

/// The faults of all kinds under one power cut, once and lasting, with zeros ahead and without.
fn all(power: Option<Survive>) -> usize {
    let ways = FAULTS.into_iter().flat_map(|fault| [(fault, false, SMALL), (fault, true, Preallocate::Off)]);
    ways.map(|(fault, lasting, fill)| swept(&Trouble { fault, lasting, power, fill, ..PLAIN })).sum()
}

#[test]
fn every_verb_is_struck_in_everything_that_it_asks_of_the_disk() {
    let mut lines = Vec::new();
    for ((verb, deed), times) in sweep(&PLAIN).unwrap() {
        lines.push(format!("{verb}: {deed} {times}"));
    }
    println!("disk faults, for each kind:\n  {}", lines.join("\n  "));
    // Fewer verbs or fewer operations in one than today is a smaller sweep, unless somebody says that it is meant.
    assert!(lines.len() >= 50, "{} pairs of verb and operation", lines.len());
}

#[test]
fn a_failed_operation_loses_nothing_that_was_acknowledged() {
    said("the process dies, the power stays", all(None), 1700);
}

#[test]
fn nor_does_one_with_a_power_cut() {
    said("the power goes, what was synced is there", all(Some(Survive::Synced)), 1700);
}

#[test]
fn nor_one_after_which_all_is_on_the_platter() {
    let written = |lasting| swept(&Trouble { lasting, power: Some(Survive::Written), ..PLAIN });
    said("the power goes, all that was written is there", written(false) + written(true), 340);
}

#[test]
fn nor_one_that_tears_sectors_and_takes_them_out_of_order() {
    let mut stories = 0;
    for seed in 0..6 {
        let power = Some(Survive::Some { seed });
        stories += swept(&Trouble { lasting: true, power, ..PLAIN });
        stories += swept(&Trouble { lasting: true, power, fill: Preallocate::Off, ..PLAIN });
    }
    for seed in 10..150 {
        story(&Trouble { lasting: true, power: Some(Survive::Some { seed }), ..PLAIN }, 40 + usize::try_from(seed).unwrap() % 160).unwrap();
        stories += 1;
    }
    said("the power goes, some sectors, lengths and names are there", stories, 2200);
}

#[test]
fn nor_a_second_one_while_it_recovers() {
    let mut stories = 0;
    for again in [3, 9, 21] {
        for power in [None, Some(Survive::Some { seed: 5 })] {
            stories += swept(&Trouble { lasting: true, power, again: Some(again), ..PLAIN });
        }
    }
    said("and one more while it comes back", stories, 1000);
}

/// The harness has to see a fault that is there.
fn found(trouble: &Trouble, word: &str) {
    let error = sweep(trouble).expect_err("a planted fault went unnoticed");
    println!("seen: {error}");
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
    found(&Trouble { lie: Lie::SameAgain, lasting: true, ..PLAIN }, "failed to read");
}

#[test]
fn planted_an_inbox_that_is_not_told_what_was_delivered_is_found() {
    found(&Trouble { forgetful: true, ..PLAIN }, "2 times");
}

#[test]
fn planted_a_write_that_is_tried_again_without_a_cut_is_found() {
    found(
        &Trouble { lie: Lie::RetriedWrite, fault: DiskFault::Enospc, fill: Preallocate::Off, ..PLAIN },
        "sees another log than the replay",
    );
}

#[test]
fn planted_a_sync_that_is_tried_again_is_found() {
    found(&Trouble { lie: Lie::RetriedSync, ..PLAIN }, "line 1");
}

#[test]
fn planted_an_acceptance_before_the_inboxs_folder_is_synced_is_found() {
    found(&Trouble { lie: Lie::NoInboxSync, ..PLAIN }, "was accepted and is there 0 times");
}
