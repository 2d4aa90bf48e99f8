//! Which tests cover each public bug report our users would bring (`spec/bugs.md`), whole kinds and not the
//! row alone. A report that is covered in part says what is missing.

use std::{collections::BTreeSet, fs, path::Path};

/// Every report there is.
const ALL: &str = "S01 S02 S03 S07 S10 S11 S13 S14 S17 S20 S21 F01 T01 T02 T05 T07 T08 T12 P01 P04 N01 N02 N05 \
    N06 N08 R04 R05 R08 R09 R10 R11 I02 I03 I08 Z03 Z04 Z06 Z10 D02 D05 D06 U01 U04 U05 C01 X01 X03 X05 A03 A05 \
    A10 L02 E02 E03 E05 E08 J03 J04 V01 V02 V03 G01";

/// One report: where it is covered, and what is not.
struct Report {
    id: &'static str,
    tests: &'static [&'static str],
    owed: Option<&'static str>,
}

const fn covered(id: &'static str, tests: &'static [&'static str]) -> Report {
    Report {
        id,
        tests,
        owed: None,
    }
}

/// Every kind by every door.
const KINDS: &str =
    "tests/api/kinds.rs::every_kind_has_one_answer_by_every_door_and_keeps_the_outside_out";
const STORM: &str = "tests/api/kinds.rs::s01_s02_s03_names_that_are_swapped_all_the_time_let_nothing_out_by_any_door";
const STEPS: &str =
    "tests/race/deterministic.rs::s01_s02_s03_every_attack_at_every_step_has_exactly_one_outcome";
const TARGETS: &str = "tests/api/targets.rs::t01_t02_t07_t08_no_target_names_a_file";

#[rustfmt::skip]
const REPORTS: &[Report] = &[
    covered("S01", &[KINDS, STORM, STEPS]),
    covered("S02", &[KINDS, STORM, STEPS]),
    covered("S03", &[STORM, STEPS,
        "tests/api/directories.rs::nothing_from_outside_gets_into_an_archive_while_names_are_swapped"]),
    covered("S07", &[KINDS, "tests/api/directories.rs::a_directory_is_released_as_what_may_leave_of_it"]),
    covered("S10", &[KINDS, "tests/race/reports.rs::s10_what_is_missing_below_a_link_is_never_looked_for_elsewhere"]),
    covered("S11", &[KINDS, "tests/cli/download.rs::s11_a_link_at_the_output_is_refused_or_replaced_and_never_followed"]),
    covered("S13", &[KINDS, "tests/race/reports.rs::s13_a_hard_link_is_refused_by_its_own_name_and_can_be_allowed"]),
    covered("S14", &["tests/api/kinds.rs::s14_a_root_behind_a_link_is_served_by_every_door",
        "tests/race/reports.rs::s14_a_root_registered_through_a_link_is_served"]),
    covered("S17", &[KINDS, "tests/race/reports.rs::s17_a_link_to_the_outside_is_refused"]),
    covered("S20", &[KINDS, "tests/race/reports.rs::s20_a_link_inside_is_followed_where_the_root_allows_it"]),
    covered("S21", &["tests/api/kinds.rs::s21_a_mount_beneath_a_root_is_refused_by_its_own_name_by_every_door",
        "tests/race/reports.rs::s21_a_mount_below_a_link_is_crossed_only_where_the_root_allows_it"]),
    covered("F01", &[KINDS, "tests/api/kinds.rs::f01_special_files_hold_up_nobody_who_asks_beside_them",
        "tests/race/reports.rs::f01_a_fifo_is_refused_at_once_and_holds_nobody_up"]),
    covered("T01", &[KINDS, TARGETS]),
    covered("T02", &[KINDS, TARGETS, "tests/api/targets.rs::t02_without_a_token_present_and_absent_are_one"]),
    covered("T05", &["tests/api/page.rs::t05_no_file_of_the_page_leads_to_another"]),
    covered("T07", &[KINDS, TARGETS]),
    covered("T08", &[TARGETS]),
    covered("T12", &["tests/api/kinds.rs::i03_t12_a_receipt_leads_to_its_own_bytes_and_the_program_compares_them",
        "tests/api/tickets.rs::t12_a03_a_ticket_opens_one_thing"]),
    covered("P01", &[KINDS, "tests/api/asked.rs::fr_04_one_list_of_names_stands_behind_every_door",
        "src/policy/names.rs::p01_secrets_are_denied_wherever_they_lie"]),
    covered("P04", &[KINDS, "src/policy/names.rs::p04_an_ordinary_dot_file_asks"]),
    covered("N01", &["src/http/semantics/disposition.rs::n01_a_name_in_any_script_has_an_ascii_form_and_its_own",
        "tests/clients/names.rs::curl_saves_every_nasty_name_under_its_ascii_form"]),
    covered("N02", &["src/http/semantics/disposition.rs::n02_a_quote_in_a_name_adds_no_parameter"]),
    covered("N05", &["src/model/save_name.rs::n05_a_name_windows_would_write_elsewhere_is_adjusted"]),
    covered("N06", &["tests/api/downloads.rs::n06_head_has_the_fields_of_get_and_no_body",
        "tests/api/attachments.rs::n06_the_name_asked_for_is_the_name_suggested"]),
    covered("N08", &["tests/api/page.rs::n08_the_page_names_nothing_from_the_top_of_the_host"]),
    covered("R04", &["src/http/semantics/range.rs::r04_positions_beyond_64_bits_neither_overflow_nor_wrap"]),
    covered("R05", &["src/http/semantics/range.rs::r05_content_range_names_its_unit",
        "src/http/semantics/multipart.rs::r05_several_parts_are_framed_as_the_standard_says"]),
    covered("R08", &["tests/api/tickets.rs::r08_ten_ranges_in_a_row_are_one_use"]),
    covered("R09", &["tests/api/extremes.rs::r09_d05_five_gibibytes_are_released_and_downloaded_in_flat_memory",
        "tests/clients/resume.rs::r09_curl_goes_on_where_it_was_cut_and_a_whole_file_is_not_hurt"]),
    covered("R10", &["tests/api/directories.rs::a_directory_is_released_as_what_may_leave_of_it",
        "tests/api/asked.rs::fr_06_a_download_given_up_halfway_is_no_start"]),
    covered("R11", &["tests/http/wellbehaved.rs::r11_a_slow_reader_far_beyond_the_stall_time_gets_everything",
        "tests/api/tickets.rs::r11_a_slow_download_outlives_its_ticket"]),
    covered("I02", &["tests/api/writers.rs::i02_a_release_is_one_content_or_changed_and_succeeds_once_the_writer_rests",
        "tests/api/writers.rs::i02_a_file_of_an_archive_is_one_content_or_left_out_as_changed",
        "tests/api/releases.rs::i02_a_file_that_is_rewritten_is_never_torn",
        "tests/api/damage.rs::i02_an_object_rewritten_in_a_loop_is_right_or_refused"]),
    covered("I03", &["tests/api/kinds.rs::i03_t12_a_receipt_leads_to_its_own_bytes_and_the_program_compares_them",
        "tests/cli/download.rs::i03_a_cut_download_fails_loudly_and_the_next_run_goes_on_from_the_part",
        "tests/cli/download.rs::i03_a_download_with_one_wrong_bit_leaves_nothing_and_says_so"]),
    covered("I08", &["tests/api/snapshot.rs::i08_a_lost_object_is_marked_and_everything_else_works",
        "tests/api/archives.rs::everything_in_a_session_is_one_archive_of_what_may_leave"]),
    covered("Z03", &["tests/api/extremes.rs::z03_d05_what_is_too_large_is_refused_before_work_with_size_limit_and_setting",
        "tests/api/extremes.rs::z03_a_directory_of_too_many_files_is_refused_in_bounded_memory_beside_others"]),
    covered("Z04", &["src/bundle/zip.rs::z04_sixty_four_bits_only_where_they_are_needed"]),
    covered("Z06", &["tests/api/kinds.rs::z06_z10_an_archive_is_safe_for_the_most_careless_unpacker",
        "src/bundle/zip.rs::z06_the_executable_bit_is_kept_and_no_other"]),
    covered("Z10", &["tests/api/kinds.rs::z06_z10_an_archive_is_safe_for_the_most_careless_unpacker",
        "src/bundle/names.rs::z10_names_are_safe_and_never_meet"]),
    covered("D02", &["tests/api/left.rs::d02_a_caller_that_leaves_stops_the_copy_made_for_it",
        "tests/api/left.rs::d02_a_caller_that_leaves_while_it_waits_ends_the_tries",
        "tests/api/connections.rs::d02_a_reader_that_goes_ends_its_transfer"]),
    covered("D05", &["tests/api/extremes.rs::r09_d05_five_gibibytes_are_released_and_downloaded_in_flat_memory",
        "tests/api/connections.rs::d05_a_transfer_is_never_held_in_memory"]),
    covered("D06", &["tests/cli/download.rs::d06_a_planted_part_is_refused",
        "tests/crash/releases.rs::a_release_killed_at_any_change_is_whole_or_nothing_and_can_be_repeated"]),
    covered("U01", &["tests/api/uploads.rs::u01_an_upload_cut_at_any_64_kib_leaves_nothing"]),
    covered("U04", &["tests/api/uploads.rs::u04_two_files_of_one_name_are_two"]),
    covered("U05", &["tests/api/uploads.rs::u05_the_same_upload_again_gets_the_same_answer"]),
    covered("C01", &["tests/api/downloads.rs::c01_content_is_private_inert_and_labelled_on_every_status",
        "tests/api/attachments.rs::c01_lists_are_not_kept"]),
    covered("X01", &["tests/api/attachments.rs::x01_x03_a_page_or_drawing_with_script_stays_a_download",
        "tests/browser/active.rs::x01_x03_active_content_by_attachment_never_runs_in_chromium"]),
    covered("X03", &["tests/browser/active.rs::x01_x03_active_content_by_ticket_never_runs_in_chromium"]),
    covered("X05", &["tests/api/page.rs::x05_the_page_frames_nothing_and_is_framed_by_nobody"]),
    covered("A03", &["tests/api/tickets.rs::t12_a03_a_ticket_opens_one_thing"]),
    covered("A05", &["tests/cli/logs.rs::a05_tokens_codes_names_and_paths_never_reach_the_log"]),
    covered("A10", &["tests/api/tickets.rs::a10_every_link_has_an_end_and_needs_no_account"]),
    covered("L02", &["tests/api/audit.rs::l02_every_delivery_is_recorded_with_who_what_and_how_much",
        "tests/api/audit.rs::l02_a_transfer_that_is_cut_is_recorded_as_aborted",
        "tests/api/audit.rs::l02_refusals_are_recorded_and_secrets_are_not"]),
    covered("E02", &["tests/api/streams.rs::mx_01_what_waits_is_shown_the_same_each_time",
        "tests/api/told.rs::a_release_that_waits_is_told_and_so_is_its_end"]),
    covered("E03", &["tests/api/streams.rs::mx_02_between_baseline_and_live_nothing_is_lost_or_doubled",
        "src/approval/tests.rs::a_form_waits_for_whoever_comes_back"]),
    covered("E05", &["tests/api/streams.rs::e05_a_stream_on_which_nothing_happens_beats",
        "src/stream/hub.rs::a_reader_that_comes_back_goes_on_where_it_was",
        "tests/api/streams.rs::pr_03_pr_04_a_stream_nobody_acknowledges_is_nobody"]),
    covered("E08", &["tests/api/interactions.rs::ht_06_the_ways_to_be_late_are_told_apart",
        "tests/api/streams.rs::mx_03_an_end_is_told_once"]),
    covered("J03", &["tests/crash/journal.rs::j03_an_append_killed_at_any_change_is_whole_or_absent_and_the_journal_opens"]),
    covered("J04", &["tests/crash/journal.rs::j04_a_full_disk_refuses_whole_appends_and_spoils_nothing",
        "tests/api/room.rs::with_any_room_at_all_a_release_is_whole_or_leaves_nothing"]),
    covered("V01", &["tests/cli/download.rs::i03_an_answer_that_does_not_fit_is_refused_and_the_part_stays_as_it_was",
        "tests/api/audit.rs::l02_a_transfer_that_is_cut_is_recorded_as_aborted"]),
    covered("V02", &[KINDS, "tests/cli/download.rs::i03_a_cut_download_fails_loudly_and_the_next_run_goes_on_from_the_part"]),
    covered("V03", &["tests/api/releases.rs::a_declared_file_is_pinned_decided_on_and_downloaded",
        "tests/api/handoff.rs::ho_01_ho_02_without_an_executor_every_call_is_refused_before_anything_is_looked_at"]),
    Report {
        id: "G01",
        tests: &["tests/crash/releases.rs::the_end_of_a_release_killed_at_any_change_leaves_bytes_and_owners_together",
            "src/store/local.rs::opening_removes_its_own_leftovers_and_makes_lost_shards_again"],
        owed: Some("a session cannot be deleted"),
    },
];

/// Whether the file has a test of this name.
fn has_test(root: &Path, place: &str) -> bool {
    let (file, name) = place.split_once("::").unwrap();
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        return false;
    };
    let head = format!("fn {name}(");
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.contains(&head) {
            return is_test;
        }
        // Between the mark and the name stand other attributes alone.
        is_test = line.ends_with("test]") || (is_test && line.starts_with("#["));
    }
    false
}

/// Every report is in the list, and every test it names is there.
#[test]
fn every_report_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listed: Vec<_> = REPORTS.iter().map(|report| report.id).collect();
    assert_eq!(listed, ALL.split_whitespace().collect::<Vec<_>>());
    let mut missing = BTreeSet::<&str>::new();
    for report in REPORTS {
        assert!(!report.tests.is_empty(), "{}", report.id);
        missing.extend(
            report
                .tests
                .iter()
                .copied()
                .filter(|place| !has_test(root, place)),
        );
    }
    assert_eq!(missing, BTreeSet::new(), "no such tests");
    let owed = REPORTS.iter().filter_map(|report| report.owed);
    assert_eq!(owed.collect::<Vec<_>>(), ["a session cannot be deleted"]);
}

#[test]
fn a_name_that_is_no_test_is_none() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(has_test(
        root,
        "tests/api/reports.rs::a_name_that_is_no_test_is_none"
    ));
    assert!(!has_test(root, "tests/api/reports.rs::has_test"));
    assert!(!has_test(root, "tests/api/reports.rs::absent"));
    assert!(!has_test(root, "tests/api/absent.rs::absent"));
}
