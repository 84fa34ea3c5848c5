//! Which part of the suite is the short one: two providers whole, and of the two that copy what they alone do. Every case that runs on this machine at all runs
//! in one lane of it, but for those that are about time.

use crate::Case;
use crate::lanes::Lane;
use crate::not_run;

/// What the short run has of a lane.
enum Part {
    Whole,
    Cases(&'static [&'static str]),
}

const SHORT: &[(Lane, Part)] = &[
    (Lane::Btrfs, Part::Whole),
    (Lane::OverlayOnExt4, Part::Whole),
    (Lane::Copy, Part::Cases(COPY)),
    (Lane::ReflinkOnXfs, Part::Cases(REFLINK)),
];

/// What a copy of every file makes different, and what one lane is enough for.
const COPY: &[&str] = &[
    "w1_w12_a_clone_is_whole_and_light",
    "w21_strange_names_are_cloned_compared_and_destroyed",
    "w42_owners_modes_times_links_and_attributes_are_kept",
    "w42_an_acl_of_a_file_is_kept_in_its_clone",
    "equal_trees_have_equal_digests_under_every_provider",
    "what_is_offered_is_what_the_file_system_can",
    "an_existing_image_is_never_formatted",
    "an_image_keeps_its_room_on_the_disk_or_is_refused_with_figures",
    "an_image_that_is_full_of_data_still_takes_what_trees_need_of_metadata",
    "w27_w29_a_live_tree_is_forked_at_one_moment_or_refused",
    "w25_a_fork_outlives_its_parent",
    "w32_a_crash_after_any_step_is_done_or_undone",
    "w32_whatever_disk_operation_fails_a_tree_is_made_or_not",
    "w12_reflink_shares_every_block_or_refuses_and_leaves_nothing",
    "planted_a_reflink_that_falls_back_to_a_copy_is_found",
    "what_is_written_to_a_clone_is_its_own_and_nothing_else",
    "w37_a_quota_is_enforced_or_its_state_says_why_not",
    "w10_a_plain_folder_is_seeded_by_reflink_or_copied_and_the_marker_says_which",
    "a_tree_with_marks_of_an_overlay_is_cloned_as_it_is_or_refused",
    "a_tree_of_300_levels_is_cloned_or_refused_with_the_reason",
    "whatever_is_done_with_a_wide_folder_takes_little_memory",
    "a_power_cut_takes_no_tree_that_was_made_and_brings_none_back",
    "a_full_disk_refuses_new_trees_says_so_and_lets_old_ones_go",
];

/// What shared blocks make different.
const REFLINK: &[&str] = &[
    "w1_w12_a_clone_is_whole_and_light",
    "w21_strange_names_are_cloned_compared_and_destroyed",
    "w42_owners_modes_times_links_and_attributes_are_kept",
    "w42_an_acl_of_a_file_is_kept_in_its_clone",
    "equal_trees_have_equal_digests_under_every_provider",
    "what_is_offered_is_what_the_file_system_can",
    "w27_w29_a_live_tree_is_forked_at_one_moment_or_refused",
    "w25_a_fork_outlives_its_parent",
    "w32_a_crash_after_any_step_is_done_or_undone",
    "w32_whatever_disk_operation_fails_a_fork_is_made_or_not",
    "w32_whatever_disk_operation_fails_a_host_folder_is_captured_or_not",
    "what_is_written_to_a_clone_is_its_own_and_nothing_else",
    "planted_shared_blocks_that_count_as_exclusive_are_found",
    "w37_a_quota_is_enforced_or_its_state_says_why_not",
    "the_usage_that_is_counted_is_the_usage_that_a_visit_finds",
    "w10_a_plain_folder_is_seeded_by_reflink_or_copied_and_the_marker_says_which",
    "planted_a_host_file_torn_in_the_copy_is_found",
    "a_host_folder_of_strange_files_is_captured_whole",
    "a_tree_with_marks_of_an_overlay_is_cloned_as_it_is_or_refused",
];

/// Cases that compare a clock with a number, which other work beside them may spoil.
const TIMING: &[&str] = &["w1_a_clone_is_ready_soon"];

pub fn is_about_time(case: &str) -> bool {
    TIMING.contains(&case)
}

/// Whether the short run has a case of a lane.
pub fn has(lane: Lane, case: &str) -> bool {
    let part = SHORT.iter().find(|(of, _)| *of == lane).map(|(_, part)| part);
    let listed = match part {
        Some(Part::Whole) => true,
        Some(Part::Cases(cases)) => cases.contains(&case),
        None => false,
    };
    listed && !is_about_time(case)
}

/// What is wrong with the tables: a name that no case bears, or a case that runs here and in no lane of the short run.
pub fn mistake(cases: &[&Case]) -> Option<String> {
    let lists = SHORT.iter().map(|(_, part)| match part {
        Part::Whole => &[][..],
        Part::Cases(cases) => cases,
    });
    let mut named = lists.chain([TIMING]).flatten();
    if let Some(name) = named.find(|name| cases.iter().all(|(case, _)| case != *name)) {
        return Some(format!("short.rs names {name}, and there is no such case"));
    }
    let runs = |lane: Lane, case: &str| not_run::reason(lane, lane == Lane::Btrfs, case).is_none();
    let forgotten = |case: &&&Case| {
        let is_here = Lane::HERE.iter().any(|lane| runs(*lane, case.0));
        is_here && !is_about_time(case.0) && !Lane::HERE.iter().any(|lane| has(*lane, case.0) && runs(*lane, case.0))
    };
    cases.iter().find(forgotten).map(|(case, _)| format!("{case} is in no lane of the short run"))
}
