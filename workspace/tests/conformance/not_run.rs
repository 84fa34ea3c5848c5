//! Which case does not run in which lane, and why. The suite fails on any difference, either way.

use crate::lanes::Lane::{self, Btrfs, Copy, CopyOnBtrfs, OverlayOnBtrfs, OverlayOnExt4, OverlayOnXfs, ReflinkOnBtrfs, ReflinkOnXfs, Zfs};

/// Lanes, a reason, and the cases that do not run in these lanes for this reason.
type Row = (&'static [Lane], &'static str, &'static [&'static str]);

/// The reason that only stands where the file system of the lane counts nothing by project.
pub const NO_PROJECT_QUOTAS: &str = "this kernel has no project quotas";

/// The reason that only stands where the kernel is older than simple quotas of Btrfs.
pub const NO_SIMPLE_QUOTAS: &str = "this kernel has no simple quotas of Btrfs";

const QUOTAS: &[&str] = &[
    "w37_a_quota_goes_up_and_down_and_below_what_is_used",
    "w37_a_fork_has_a_quota_of_its_own",
    "w37_quotas_that_are_turned_off_later_are_known",
    "planted_a_quota_not_set_on_a_clone_is_found",
];

/// The reason of the lane whose quotas are of another kind.
pub const OWN_QUOTAS: &str = "a dataset's quota counts what it shares, too, and has a case of its own";

/// The reason of the lane where commands fail, not system calls.
pub const BETWEEN_COMMANDS: &str = "its fault is between two system calls on the entry, and in this lane commands of zfs fail";

/// The reason of the lane of provider Zfs.
pub const DESTROYED_WHOLE: &str = "a dataset is destroyed by its name, and no folder of it is visited";

const TABLE: &[Row] = &[
    (&[Zfs], DESTROYED_WHOLE, &["a_tree_is_destroyed_while_its_folders_become_links"]),
    (&[Zfs], BETWEEN_COMMANDS, &["planted_an_intent_written_too_late_is_found", "planted_a_name_given_before_the_marker_is_found"]),
    (&[Zfs], OWN_QUOTAS, QUOTAS),
    (&[Zfs], OWN_QUOTAS, &["w37_a_quota_is_enforced_or_its_state_says_why_not"]),
    (&[CopyOnBtrfs, OverlayOnBtrfs, ReflinkOnBtrfs], "plain folders on Btrfs have no quota", QUOTAS),
    (&[Copy, OverlayOnExt4, OverlayOnXfs, ReflinkOnXfs], NO_PROJECT_QUOTAS, QUOTAS),
    (&[Btrfs], NO_SIMPLE_QUOTAS, QUOTAS),
    (
        &[Btrfs],
        NO_SIMPLE_QUOTAS,
        &["w37_a_nested_subvolume_is_no_way_around_a_quota", "w44_nothing_is_left_of_the_quotas_of_trees_that_are_gone"],
    ),
    (
        &[CopyOnBtrfs, Btrfs, OverlayOnExt4, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs, Zfs],
        "one lane is enough",
        &[
            "an_existing_image_is_never_formatted",
            "an_image_keeps_its_room_on_the_disk_or_is_refused_with_figures",
            "an_image_that_is_full_of_data_still_takes_what_trees_need_of_metadata",
        ],
    ),
    (
        &[CopyOnBtrfs, Btrfs, OverlayOnExt4, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs, Zfs],
        "brings disks of its own; one lane is enough",
        &["a_power_cut_takes_no_tree_that_was_made_and_brings_none_back", "a_full_disk_refuses_new_trees_says_so_and_lets_old_ones_go"],
    ),
    (
        &[Copy, OverlayOnExt4, OverlayOnXfs, ReflinkOnXfs, Zfs],
        "no nested volumes on this file system",
        &["w9_a_nested_volume_is_refused_and_nothing_is_left"],
    ),
    (
        &[Copy, CopyOnBtrfs, OverlayOnExt4, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs, Zfs],
        "makes no snapshots of host folders",
        &[
            "w6_a_folder_inside_a_subvolume_is_a_folder_of_its_snapshot",
            "w7_of_two_subvolumes_whose_names_begin_alike_the_right_one_is_captured",
        ],
    ),
    (
        &[Copy, CopyOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs],
        "forks sealed trees only",
        &["w24_a_fork_has_what_was_before_the_checkpoint", "a_fork_whose_parent_is_gone_is_compared_with_their_base"],
    ),
    (
        &[Copy, CopyOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs, Zfs],
        "its change list visits every file",
        &["on_btrfs_and_overlay_a_change_list_visits_only_what_changed"],
    ),
    (
        &[Copy, CopyOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs, Zfs],
        "its usage is that of a visit",
        &[
            "the_usage_of_a_tree_follows_every_kind_of_edit",
            "the_usage_of_a_tree_after_any_run_of_edits_is_that_of_a_visit",
            "the_usage_of_a_fork_and_of_a_tree_without_a_base_is_that_of_a_visit",
        ],
    ),
    (
        &[CopyOnBtrfs, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnBtrfs],
        "one lane of each provider is enough",
        &[
            "w32_whatever_disk_operation_fails_a_tree_is_made_or_not",
            "w32_whatever_disk_operation_fails_a_fork_is_made_or_not",
            "w32_whatever_disk_operation_fails_a_fork_of_a_fork_is_made_or_not",
            "w32_whatever_disk_operation_fails_a_host_folder_is_captured_or_not",
            "w32_whatever_disk_operation_fails_a_tree_is_sealed_or_not",
            "w32_whatever_disk_operation_fails_a_tree_is_mounted_or_not",
            "w32_whatever_disk_operation_fails_a_tree_is_destroyed_or_not",
            "w32_whatever_disk_operation_fails_a_recovery_goes_on_where_it_stopped",
            "planted_an_intent_written_too_late_is_found",
            "planted_a_name_given_before_the_marker_is_found",
            "planted_a_destruction_by_name_alone_is_found",
            "planted_a_trash_that_is_never_emptied_is_found",
            "planted_a_recovery_that_makes_a_tree_anew_is_found",
        ],
    ),
    (
        &[Copy, CopyOnBtrfs, OverlayOnExt4, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs, Zfs],
        "about Btrfs",
        &[
            "a_btrfs_that_fails_a_probe_is_still_offered_so_that_no_base_is_a_copy_for_good",
            "w37_a_nested_subvolume_is_no_way_around_a_quota",
            "w44_nothing_is_left_of_the_quotas_of_trees_that_are_gone",
            "where_classic_quota_groups_are_on_nothing_is_changed",
        ],
    ),
    (
        &[Copy, CopyOnBtrfs, Btrfs, ReflinkOnXfs, ReflinkOnBtrfs, Zfs],
        "about overlays",
        &[
            "w11_a_data_root_that_can_hold_no_upper_layer_says_so_and_auto_passes_it_over",
            "w19_an_upper_layer_is_mounted_once_whoever_asks",
            "an_older_kernel_that_takes_layers_by_path_makes_the_same_overlays",
            "planted_an_upper_layer_that_is_mounted_twice_is_found",
            "w19_an_overlay_that_is_mounted_out_of_sight_is_busy",
            "an_overlay_at_rest_stands_in_no_mount_table_and_takes_64_kib",
            "w18_an_overlay_keeps_its_writes_and_a_renamed_folder_over_a_restart",
            "w27_a_fork_of_an_overlay_at_rest_is_whole",
            "planted_a_whiteout_forgotten_in_a_fork_is_found",
            "planted_an_index_tied_to_the_source_of_a_fork_is_found",
            "planted_a_redirect_that_a_change_list_ignores_is_found",
            "planted_a_base_that_can_be_written_is_found",
            "an_overlay_whose_base_is_gone_or_another_one_is_lost_and_never_mounted",
        ],
    ),
    (
        &[Copy, CopyOnBtrfs, Btrfs, OverlayOnExt4, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs],
        "about datasets",
        &[
            "w2_a_clone_of_a_dataset_is_whole_and_light",
            "w6_a_folder_in_a_dataset_is_found_with_its_path_there",
            "w7_of_two_mount_points_with_one_beginning_the_right_dataset_is_found",
            "w8_a_folder_of_a_pools_root_dataset_is_found",
            "w6_a_folder_in_a_dataset_is_a_folder_of_its_clone",
            "w8_a_pools_root_dataset_is_cloned_below_the_parent_of_trees",
            "w9_a_child_dataset_in_a_host_folder_is_refused_by_its_path",
            "w32_a_capture_of_a_dataset_that_dies_at_any_command_leaves_nothing",
            "a_folder_of_another_pool_is_copied_and_the_marker_says_why",
            "a_change_list_of_a_clone_comes_from_zfs_diff",
            "w37_a_quota_below_what_is_used_follows_a_tree_that_becomes_smaller",
            "w9_a_child_dataset_is_refused_and_nothing_is_left",
            "w11_auto_takes_zfs_first_and_says_so",
            "w15_the_mount_table_decides_what_is_a_dataset",
            "w25_forks_of_a_tree_that_goes_keep_what_they_need_and_no_more",
            "w26_a_base_goes_before_a_sealed_fork_of_it",
            "a_change_in_one_second_with_a_snapshot_is_listed",
            "w34_a_dataset_that_is_not_ours_is_refused_and_untouched",
            "w34_what_others_made_of_a_tree_keeps_it",
            "w32_what_an_earlier_attempt_left_of_a_dataset_is_no_part_of_the_next",
            "planted_a_dataset_destroyed_with_its_forks_is_found",
            "planted_a_foreign_dataset_destroyed_is_found",
            "w36_a_dataset_that_is_mounted_out_of_sight_is_busy",
            "w37_a_dataset_with_a_refquota_holds_it",
            "a_zfs_that_is_missing_hangs_or_speaks_another_language_is_not_offered",
            "a_zfs_below_a_view_of_the_hosts_root_is_the_one_that_is_used",
            "a_dataset_that_is_not_there_is_not_offered_and_nothing_is_forgotten",
            "a_pool_that_is_not_imported_loses_no_tree",
            "a_tree_in_a_dataset_is_left_alone_where_no_dataset_is_named",
        ],
    ),
    (
        &[CopyOnBtrfs, Btrfs, OverlayOnExt4, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnXfs, Zfs],
        "every file can share its blocks, or it is not about Reflink",
        &["w12_reflink_shares_every_block_or_refuses_and_leaves_nothing", "planted_a_reflink_that_falls_back_to_a_copy_is_found"],
    ),
    (
        &[Copy, Btrfs, OverlayOnExt4, Zfs],
        "shares no blocks, or has one way to count them",
        &["planted_shared_blocks_that_count_as_exclusive_are_found"],
    ),
];

const EVERY_LANE: &[Lane] = &[Copy, CopyOnBtrfs, Btrfs, OverlayOnExt4, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs, Zfs];

/// What is not even begun in the guest.
const IN_GUEST: &[Row] = &[
    (
        &[Btrfs],
        "before Linux 6.7 a folder inside a subvolume is seeded",
        &[
            "w6_a_folder_inside_a_subvolume_is_a_folder_of_its_snapshot",
            "w7_of_two_subvolumes_whose_names_begin_alike_the_right_one_is_captured",
        ],
    ),
    (
        EVERY_LANE,
        "thousands of rounds, which take hours where a flush takes 25 to 40 times as long",
        &[
            "w32_whatever_disk_operation_fails_a_tree_is_made_or_not",
            "w32_whatever_disk_operation_fails_a_fork_is_made_or_not",
            "w32_whatever_disk_operation_fails_a_fork_of_a_fork_is_made_or_not",
            "w32_whatever_disk_operation_fails_a_host_folder_is_captured_or_not",
            "w32_whatever_disk_operation_fails_a_tree_is_sealed_or_not",
            "w32_whatever_disk_operation_fails_a_tree_is_mounted_or_not",
            "w32_whatever_disk_operation_fails_a_tree_is_destroyed_or_not",
            "w32_whatever_disk_operation_fails_a_recovery_goes_on_where_it_stopped",
            "w32_a_crash_after_any_step_is_done_or_undone",
            "w32_a_crash_during_recovery_is_done_or_undone",
            "a_tree_of_100000_names_10000_links_holes_and_devices_is_cloned_compared_and_destroyed",
        ],
    ),
    (
        &[Copy, CopyOnBtrfs, Btrfs, OverlayOnExt4, OverlayOnXfs, OverlayOnBtrfs, ReflinkOnXfs, ReflinkOnBtrfs],
        "minutes of compiling there, and their own lanes build on the machine itself",
        &["what_was_built_in_a_base_is_built_in_each_tree_of_it", "a_folder_that_was_prepared_before_it_was_sealed_stays_as_it_was"],
    ),
    (
        EVERY_LANE,
        "about time, which an emulator does not show",
        &[
            "w1_a_clone_is_ready_soon",
            "w35_trees_destroyed_at_once_do_not_wait_for_each_other",
            "a_zfs_that_is_missing_hangs_or_speaks_another_language_is_not_offered",
        ],
    ),
];

/// Why a case does not run in a lane; None if it runs.
pub fn reason(lane: Lane, enforces_quotas: bool, case: &str) -> Option<&'static str> {
    let stands = |reason| !enforces_quotas || ![NO_PROJECT_QUOTAS, NO_SIMPLE_QUOTAS].contains(&reason);
    let holds = |row: &&Row| row.0.contains(&lane) && row.2.contains(&case) && stands(row.1);
    TABLE.iter().find(holds).map(|(_, reason, _)| *reason)
}

/// Why a case is not even begun in the guest.
pub fn reason_in_guest(lane: Lane, case: &str) -> Option<&'static str> {
    IN_GUEST.iter().find(|row| row.0.contains(&lane) && row.2.contains(&case)).map(|(_, reason, _)| *reason)
}

/// The first name in the tables that no case bears.
pub fn stranger(cases: &[&str]) -> Option<&'static str> {
    TABLE.iter().chain(IN_GUEST).flat_map(|(_, _, named)| *named).find(|name| !cases.contains(name)).copied()
}

/// What is wrong with the verdict of a case, by the table. A case that lacks something is judged by the harness.
pub fn difference(expected: Option<&str>, found: Option<&str>) -> Option<String> {
    match (expected, found) {
        (None, None) => None,
        (Some(expected), Some(found)) if expected == found => None,
        (Some(expected), Some(found)) => Some(format!("it does not run because {found:?}, and not_run.rs says {expected:?}")),
        (None, Some(found)) => Some(format!("it does not run because {found:?}, and not_run.rs says that it runs")),
        (Some(expected), None) => Some(format!("it ran, and not_run.rs says that it does not because {expected:?}")),
    }
}
