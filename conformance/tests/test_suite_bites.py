"""The suite finds what is broken, by name, and lets pass what is sound.

Each double in `doubles` breaks exactly one clause of a port. One inner pytest runs the suite on all of them, without
this repository's configuration and in the strict mode of pytest-asyncio, as in somebody else's project.
"""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final, TypeAlias
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.thorough

DOUBLES: Final = Path(__file__).with_name("doubles")

SETTINGS: Final = """\
[pytest]
asyncio_mode = strict
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

Outcomes: TypeAlias = dict[str, dict[str, str]]
"""By module and class, then by test: passed, failed, error or skipped."""

CAUGHT_BY: Final = {
    "broken_transactions": {
        "KeepsWhatRaised": "test_a_write_is_undone_when_its_block_raises",
        "KeepsWhatWasCancelled": "test_writes_to_all_tables_are_undone_together_whatever_is_raised",
        "CommitsEachCall": "test_a_write_is_seen_by_others_only_once_committed",
        "HidesOwnWrites": "test_a_transaction_sees_its_own_writes",
        "ReadsDirty": "test_a_write_is_seen_by_others_only_once_committed",
        "ReadsASnapshot": "test_a_transaction_sees_what_others_commit_meanwhile",
        "KeepsWhatASavepointWrote": "test_a_write_is_undone_with_its_savepoint_and_the_transaction_goes_on",
        "CommitsASavepoint": "test_a_write_in_an_ended_savepoint_is_undone_with_the_transaction",
        "UndoesAllWithASavepoint": "test_a_write_is_undone_with_its_savepoint_and_the_transaction_goes_on",
        "LocksInAnyOrder": "test_opposite_orders_do_not_wait_for_each_other",
        "HoldsNothing": "test_a_second_writer_of_a_row_waits_and_then_sees_what_is_committed",
        "LocksNothing": "test_locking_waits_for_the_holder_and_reads_what_it_committed",
        "ReadsBeforeItLocks": "test_locking_waits_for_the_holder_and_reads_what_it_committed",
        "ExpectsVersionsOnly": "test_a_run_in_which_something_has_happened_since_is_left_alone",
        "ExpectsWithoutALock": "test_of_many_that_expect_one_run_the_same_one_is_kept",
    },
    "broken_ai_calls": {
        "TakesAPrefixForATopic": "test_a_topic_holds_itself_and_what_is_below_it",
        "TakesUnknownForNothing": "test_an_unknown_price_is_unknown",
        "AddsUpFloats": "test_totals_are_exact_and_by_model",
        "LogsABatchAgain": "test_a_request_of_a_batch_is_logged_once",
        "SumsUpWhatIsWritten": "test_totals_include_what_is_still_being_written",
        "DropsUnknownBatches": "test_a_request_of_a_batch_is_logged_once",
        "TurnsPagesRound": "test_calls_come_in_the_order_in_which_they_were_logged",
        "RoundsCosts": "test_a_call_comes_back_as_it_was",
    },
    "broken_borrowing": {
        "CommitsOnItsOwn": "test_the_callers_commit_decides_on_everything",
        "KeepsWhatABlockWrote": "test_a_block_that_raises_leaves_the_rest_of_the_callers_transaction",
        "TakesAnything": "test_what_is_no_session_is_refused",
    },
    "broken_wake_ups": {
        "NotifiesBeforeTheCommit": "test_a_waiter_is_woken_once_the_transaction_has_committed",
        "ListensFromItsFirstWaitOn": (
            "test_what_came_between_the_first_look_and_the_first_wait_is_not_slept_through"
        ),
        "ListensWhileItWaits": "test_a_notification_between_two_waits_is_not_lost",
        "ListensTooLate": "test_no_notification_of_many_is_slept_through",
        "CancelledWaitsTake": "test_a_wait_that_is_cancelled_takes_nothing_from_the_next",
    },
    "broken_rows": {
        "AppliesStaleVersions": "test_a_stale_version_writes_nothing",
        "ComparesVersionsTooEarly": "test_a_guard_is_checked_against_what_is_committed_last",
        "WritesBeforeItRefuses": "test_a_stale_version_writes_nothing",
        "KeepsTheVersion": "test_every_update_raises_the_version_by_one",
        "ClearsWhatIsNotSet": "test_a_field_that_is_not_set_keeps_its_value",
        "LeaksRecords": "test_what_a_caller_changes_later_does_not_reach_the_store",
        "TurnsWholeFloatsIntoIntegers": "test_json_comes_back_exactly",
        "RoundsTimes": "test_a_run_comes_back_as_it_was_created",
        "IgnoresCaseInIds": "test_ids_are_compared_letter_by_letter",
        "ForeseesNoHeldJobs": "test_a_held_job_is_foreseen_whatever_became_of_its_run",
        "ForeseesNoPolls": "test_the_first_suspended_stage_is_foreseen",
    },
    "broken_stores": {
        "ClaimsOneRunTwice": "test_under_contention_each_run_is_claimed_once_and_in_order",
        "IgnoresPriority": "test_runs_are_claimed_by_priority_then_age_then_id",
        "WaitsForHeldRuns": "test_a_run_that_another_claimer_holds_is_skipped",
        "TakesNothingForEverything": "test_only_what_is_served_is_claimed",
        "RestartsStartedRuns": "test_a_run_that_was_started_before_keeps_its_start",
        "LetsManyTakeAStaleKey": "test_of_many_callers_one_gets_the_key",
        "ForgetsANullResult": "test_a_completed_key_answers_its_result",
        "AnswersWithoutWaiting": "test_who_asks_for_a_key_of_an_open_transaction_waits_for_its_end",
        "ForgetsTheCommandType": "test_key_and_command_type_are_compared_together_and_letter_by_letter",
        "TakesAPrefixForAPattern": "test_a_query_finds_what_fits_all_its_filters",
        "NamesSkippedAnnotations": "test_a_repeated_idempotency_key_keeps_the_first_row",
        "ReleasesAnothersKey": "test_who_has_lost_a_key_neither_gives_it_up_nor_completes_it",
        "HasNoVersions": "test_runs_keep_their_versions_and_it_is_said_so_at_any_moment",
        "AnswersItsOwnDefinition": "test_the_first_row_of_a_version_stays",
        "MixesWorkflows": "test_runs_are_counted_by_workflow_version_and_status",
        "CountsWhatHasEnded": "test_runs_are_counted_by_workflow_version_and_status",
        "SortsStagesAsText": "test_stages_are_listed_by_group_then_number",
        "IgnoresNone": "test_a_field_that_is_set_to_none_is_cleared",
        "SkipsTheWholeBatch": "test_a_line_whose_id_exists_is_skipped",
        "WaitsToRead": "test_reading_does_not_wait_for_a_writer",
    },
    "broken_loads": {
        "LoadsInAnyOrder": "test_runs_come_with_their_stages_in_order",
        "LoadsBesideItsTransaction": "test_own_writes_are_seen",
        "LoadsStagesBeforeItLocks": "test_who_waited_reads_run_and_stages_as_they_are_once_locked",
        "LocksToLoad": "test_without_lock_nobody_waits",
    },
    "broken_singles": {
        "TakesTheLastOne": "test_the_next_run_is_claimed_as_the_first_of_a_batch_is",
        "TakesWhateverIsNext": "test_the_next_run_is_one_that_is_served",
        "RefusesAKnownLine": "test_one_line_is_appended_as_one_of_many",
        "LogsOutside": "test_one_line_is_undone_with_its_transaction",
        "MakesStagesAnew": "test_an_upsert_writes_over_the_stage_that_is_there",
        "LooksBeforeItWrites": "test_of_many_upserts_at_once_one_inserts",
        "WritesSomeFieldsOver": "test_an_upsert_writes_over_the_stage_that_is_there",
        "KeepsTheVersionItIsGiven": "test_an_upsert_writes_over_the_stage_that_is_there",
    },
    "broken_pages": {
        "GoesOnByTheMoment": "test_runs_that_stay_are_shown_once_while_others_come_and_go",
        "CountsRuns": "test_runs_that_stay_are_shown_once_while_others_come_and_go",
        "FiltersPages": "test_runs_that_stay_are_shown_once_while_others_come_and_go",
        "AlwaysHasMore": "test_a_page_that_ends_with_the_last_run_is_the_last",
        "BelievesCursors": "test_a_tampered_cursor_is_refused",
        "SortsStepsBySeq": "test_steps_are_listed_by_stage_then_seq",
        "CountsSteps": "test_steps_that_stay_are_shown_once_while_others_come_and_go",
    },
    "broken_purges": {
        "PurgesInAnyOrder": "test_runs_come_the_first_to_end_first",
        "PurgesBeforeTheTime": "test_only_what_ended_by_then_comes",
        "LetsUntoldRunsTakePlaces": "test_a_run_with_a_pending_event_is_left_out",
        "LeavesEvents": "test_a_run_is_deleted_with_all_that_is_its_own",
        "ForgetsWhichRun": "test_keys_that_name_a_run_go_with_it",
        "KeepsTheFirstTombstone": "test_a_tombstone_comes_back_as_it_was_put",
        "TellsEverybody": "test_a_tombstone_is_removed_by_one",
        "TakesAnnotationsAlong": "test_annotations_outlive_their_stage",
    },
    "broken_outboxes": {
        "LeavesGaps": "test_sequences_have_no_gap_under_concurrent_writers_and_rollbacks",
        "GivesOneSequenceTwice": "test_sequences_have_no_gap_under_concurrent_writers_and_rollbacks",
        "RaisesTheRunsVersion": "test_the_version_of_the_run_stays",
        "LetsTwoFlushersIn": "test_a_claimed_run_is_left_out_until_the_claim_expires",
        "OffersAFailedEventAtOnce": "test_a_run_whose_first_event_is_backed_off_is_hidden",
        "PublishesForAnybody": "test_only_the_holder_of_a_claim_marks_events_published",
        "ReplaysAll": "test_dead_letters_are_offered_again_those_first_given_up_first",
        "ReplaysIntoAClaim": "test_a_replayed_event_waits_for_the_end_of_a_claim_on_its_run",
        "GivesUpTheClaimToCount": "test_a_retry_is_counted_and_nothing_else_is_changed",
        "LosesCounts": "test_of_many_retries_at_once_each_is_counted",
        "CountsForNobody": "test_a_retry_of_no_event_is_refused",
        "ShowsOnlyWhatIsFree": "test_what_waits_is_seen_claimed_or_not",
        "SortsEventsByTime": "test_what_waits_is_seen_by_the_age_of_its_run_then_in_sequence",
        "ClaimsToLook": "test_looking_at_what_waits_takes_nothing",
    },
    "broken_transports": {
        "EnqueuesDuplicates": "test_enqueueing_again_replaces_the_job_of_the_stage",
        "KeepsCounters": "test_enqueueing_again_replaces_the_job_of_the_stage",
        "DeliversTwice": "test_under_contention_each_job_is_delivered_once",
        "DeliversOldestFirst": "test_jobs_are_delivered_by_priority_then_age",
        "DeliversEarly": "test_a_job_is_not_delivered_before_it_is_due",
        "DeliversWhatIsNotServed": "test_only_what_is_served_is_delivered",
        "StaysOutside": "test_a_job_is_undone_with_the_run_it_belongs_to",
        "EnlistsAnywhere": "test_a_transport_of_another_database_does_not_enlist",
        "RecordsOutside": "test_steps_share_the_fate_of_the_transaction",
        "ClearsOutside": "test_steps_share_the_fate_of_the_transaction",
        "ChangesAStepTwice": "test_of_many_with_one_expectation_one_succeeds",
        "ForgetsOwners": "test_a_field_that_is_set_to_a_value_gets_it",
        "ReclaimsSteps": "test_a_step_is_claimed_once",
    },
    "broken_acknowledgements": {
        "IgnoresFences": "test_a_superseded_worker_writes_nothing",
        "WritesWhenSuperseded": "test_a_superseded_worker_writes_nothing",
        "ComparesHalfTheFence": "test_a_fence_has_to_match_in_both_its_parts",
        "DeferSpendsAnAttempt": "test_a_deferred_job_spends_no_budget",
        "RetriesAtOnce": "test_a_failed_job_is_due_after_its_delay",
        "ReleasesRenewedLeases": "test_a_lease_that_was_not_renewed_ends",
        "RenewsForAnybody": "test_a_job_that_is_not_owned_cannot_be_touched",
        "RevivesForEver": "test_a_job_that_lost_one_worker_too_many_is_failed",
        "DeletesOtherRuns": "test_deleting_takes_these_stages_whatever_their_state",
    },
    "broken_fairness": {
        "IgnoresTheCap": "test_a_group_at_its_cap_is_passed_over",
        "ForgetsTheBatch": "test_a_batch_counts_what_is_running_already",
        "CountsWhoSleeps": "test_a_job_that_leaves_running_frees_its_place",
        "CountsOneDefinition": "test_what_is_not_served_is_passed_over_and_yet_counts",
        "SeesCommittedClaimsAlone": "test_a_claim_that_is_open_counts",
        "CountsBeforeItsTurn": "test_claims_at_once_never_exceed_the_cap",
        "GivesTurns": "test_the_order_among_groups_with_room_is_the_same_as_ever",
        "TellsNobody": "test_who_waits_is_woken_when_a_place_is_free",
        "KnowsTextsOnly": "test_different_values_are_different_groups",
        "LetsTheNamelessThrough": "test_jobs_without_a_value_are_one_group",
        "TakesPayloadsFirst": "test_a_key_counts_for_more_than_the_payload",
        "CutsKeys": "test_different_values_are_different_groups",
        "ShowsTheGroup": "test_the_group_is_not_shown",
        "ForgetsWhoSleeps": "test_a_job_stays_in_its_group",
    },
    "broken_deliveries": {
        "KeepsDueTimes": "test_a_due_time_is_of_no_account",
        "KeepsFailures": "test_it_replaces_the_job_of_its_stage",
        "DeliversToNobody": "test_a_job_is_running_under_its_worker_from_the_start",
        "CountsNoDelivery": "test_a_job_is_running_under_its_worker_from_the_start",
        "BeginsLeasesEarly": "test_its_lease_begins_with_it",
        "HasNoLease": "test_its_lease_begins_with_it",
        "NeverRunsAway": "test_it_fails_when_it_runs_too_long",
        "ShowsThemFirst": "test_under_contention_it_is_nobody_elses",
        "PutsThemIntoTheQueue": "test_it_is_nobody_elses",
        "AnswersByStage": "test_jobs_are_answered_in_the_order_given",
        "GivesAnotherFence": "test_its_fence_acknowledges_once",
        "AsksNoFirstDelivery": "test_its_fence_acknowledges_once",
        "RenewsClaimsAlone": "test_its_lease_is_renewed_like_any_other",
        "BeatsForClaimsAlone": "test_its_lease_is_renewed_from_a_thread",
        "CancelsThem": "test_a_cancelled_run_leaves_it_to_its_worker",
        "SharesPayloads": "test_a_payload_is_the_callers_own",
        "SaysLess": "test_a_delivery_is_answered_as_a_claim_answers_it",
        "DeliversOutside": "test_a_job_is_undone_with_its_transaction",
        "LeavesWhatIsSettled": "test_a_job_is_settled_and_replaced_together",
        "DropsWhatWaits": "test_what_ends_what_waits_and_what_begins_commit_together",
        "GoesToTheFront": "test_jobs_are_in_the_order_in_which_they_came",
        "StandsBack": "test_the_last_of_several_jobs_for_a_stage_stays",
        "DeliversAtTheCommit": "test_it_can_be_settled_in_the_transaction_that_made_it",
        "SettlesForAnybody": "test_nothing_is_kept_of_who_lost_the_job_before",
    },
    "broken_listings": {
        "TurnsPagesRound": "test_jobs_are_listed_page_by_page_the_newest_first",
        "CountsItsWay": "test_following_the_cursor_shows_each_job_once_whatever_becomes_of_it",
        "TakesAnyOfTheFilters": "test_a_query_finds_jobs_that_fit_all_its_filters",
        "ListsNothingAsEverything": "test_a_query_finds_jobs_that_fit_all_its_filters",
        "BeginsAnewOnNonsense": "test_a_cursor_that_was_never_given_is_refused",
    },
    "broken_heartbeats": {
        "NeedsTheLoop": "test_leases_are_renewed_while_the_event_loop_is_blocked",
        "AnswersAsItLikes": "test_answers_come_in_the_order_given",
        "BeatsForAnybody": "test_a_delivery_that_lost_its_job_renews_nothing",
        "BeatsForWaitingJobs": "test_a_job_given_back_is_not_renewed",
        "EndsLeasesWhenItCloses": "test_closing_ends_the_channel_and_no_lease",
        "UsesOneConnectionAtOnce": "test_several_threads_may_use_one_channel",
    },
    "broken_waits": {
        "StartsCountersAnew": "test_a_suspended_job_is_due_at_once_with_its_id_and_counters",
        "TakesJobsFromTheirWorkers": "test_what_is_claimable_or_claimed_is_left_alone",
        "WakesOnlyWhatSleeps": "test_a_job_that_has_ended_is_enqueued_anew",
        "AnswersByStage": "test_several_jobs_are_answered_in_the_order_given",
        "FiltersAfterTheLimit": "test_only_what_is_served_takes_a_place",
        "HoldsNoRun": "test_whoever_finds_a_stage_holds_its_run",
        "PollsInAnyOrder": "test_due_stages_come_the_earliest_first",
        "WaitsForHeldRuns": "test_a_run_that_somebody_holds_is_skipped",
        "ReapsSleepers": "test_a_run_that_waits_for_a_time_is_not_stuck",
        "LooksAtRunsAlone": "test_what_has_changed_since_is_no_standstill",
        "KnowsOnePage": "test_they_come_page_by_page_in_the_order_of_their_ids",
        "ForgetsResumedStages": "test_owed_stages_come_the_earliest_changed_first",
    },
    "broken_signals": {
        "KeepsTheLastSignal": "test_a_step_has_one_signal",
        "KeepsSignalsByStepAlone": "test_a_step_has_one_signal",
        "TellsBothThatTheyWon": "test_of_many_signals_at_once_one_is_kept",
        "KeepsSignalsOutside": "test_signals_are_part_of_their_transaction",
        "ListsSignalsAsTheyCame": "test_signals_are_listed_by_time_then_id",
        "NeverForgetsASignal": "test_a_signal_that_was_taken_is_gone",
        "RaisesTheVersion": "test_a_nudged_stage_waits_no_longer_than_until_then",
        "PutsPollsOff": "test_a_nudged_stage_waits_no_longer_than_until_then",
    },
    "broken_engines": {
        "KeepsHalf": "test_processes_lost_at_any_call_are_made_up_for",
        "ForgetsKeys": "test_of_many_starts_under_one_key_one_makes_a_run",
        "LosesEarlySignals": "test_a_signal_comes_before_its_step_or_while_it_waits",
        "SkipsLateEvents": "test_events_that_are_dated_before_delivered_ones_are_delivered_too",
        "PublishesWhatItOffers": "test_processes_lost_at_any_call_are_made_up_for",
        "OffersRefusedEventsLast": "test_events_come_in_order_though_the_sink_refuses_some",
        "DeliversTwice": "test_many_workers_execute_each_body_once",
        "ForgetsLostWorkers": "test_processes_lost_at_any_call_are_made_up_for",
        "ForgetsOwedJobs": "test_steps_are_executed_once_however_often_their_stage_is",
        "KeepsJobsOfPurgedRuns": "test_a_purge_leaves_nothing_of_a_run_and_all_of_others",
        "AppliesAnything": "test_what_a_worker_does_after_it_lost_its_lease_changes_nothing",
        "RemembersNoStep": "test_steps_are_executed_once_however_often_their_stage_is",
        "LosesWhatItHasPromised": "test_processes_lost_at_any_call_are_made_up_for",
        "CutsValues": "test_large_values_come_back_exact",
        "KeepsBlobsOfPurgedRuns": "test_a_purge_leaves_nothing_of_a_run_and_all_of_others",
    },
    "broken_event_sinks": {
        "KeepsSilent": "test_what_is_refused_raises_and_is_accepted_later",
        "RefusesByCancellation": "test_what_is_refused_raises_and_is_accepted_later",
        "RefusesRepetitions": "test_an_event_may_come_again",
        "WaitsForTheNext": "test_events_of_a_run_arrive_in_the_order_given",
        "IgnoresOneType": "test_what_was_accepted_has_arrived",
        "TellsEverybodyAgain": "test_who_has_an_event_is_named_and_is_not_given_it_again",
        "NamesNobody": "test_who_has_an_event_is_named_and_is_not_given_it_again",
        "HasNoBudget": "test_its_limits_are_some",
        "SwallowsItsCancellation": "test_a_delivery_that_is_cancelled_ends",
        "LosesCrowds": "test_many_deliveries_at_once_arrive",
    },
    "broken_presigners": {
        "SignsForAnyMethod": "test_a_url_is_for_one_way_alone",
        "SignsForAnyBlob": "test_a_url_is_for_one_blob_alone",
        "NeverExpires": "test_a_url_expires",
        "SpellsKeysAnew": "test_a_url_accepts_the_blob",
        "AnswersNothingForNothing": "test_a_blob_that_is_not_there_is_not_found",
        "SignsForAnyType": "test_a_content_type_is_part_of_a_url",
        "PromisesTooMuch": "test_a_url_says_when_it_ends",
        "SignsForYears": "test_no_url_is_signed_for_no_time_or_for_too_much",
        "SignsAnyKey": "test_no_url_is_signed_for_what_is_no_key",
    },
    "broken_blob_stores": {
        "TruncatesAtZeros": "test_bytes_come_back_exactly",
        "WritesOnAfterACancellation": "test_a_cancelled_write_is_decided_when_it_ends",
        "CutsAtTwoMegabytes": "test_a_large_blob_comes_back_exactly",
        "CutsAtSixteenMebibytes": "test_a_huge_stream_comes_back_whole",
        "KeepsTheCallersBuffer": "test_what_a_caller_changes_later_does_not_reach_the_store",
        "KeepsTheBufferOfAPiece": "test_a_buffer_may_be_used_again_for_the_next_piece",
        "TakesAnyKey": "test_what_is_no_key_is_refused",
        "FindsOutTooLate": "test_no_stream_is_opened_for_what_is_no_key",
        "DatesInLocalTime": "test_a_blob_says_when_it_was_written",
        "RemembersTheFirst": "test_only_what_is_there_has_a_date",
        "DecodesText": "test_bytes_come_back_exactly",
        "LetsTwoWin": "test_of_several_first_writers_one_wins",
        "TidiesKeys": "test_an_odd_key_is_a_key",
        "MissesTheMissing": "test_a_deleted_blob_is_gone",
        "TakesAPrefixForAWildcard": "test_a_prefix_is_taken_letter_by_letter",
        "TakesAPrefixForAnExpression": "test_a_prefix_is_taken_letter_by_letter",
        "ListsOnePage": "test_a_listing_goes_beyond_a_page",
        "ListsAsWritten": "test_keys_are_listed_in_ascending_order",
        "KeepsHalfABlob": "test_a_block_that_raises_leaves_nothing",
    },
}
"""By module, each double and the test that names what is wrong with it."""

ROWS: Final = [
    (f"{module}.Test{double}", test)
    for module, doubles in CAUGHT_BY.items()
    for double, test in doubles.items()
]


def run_inner(report: Path, *modules: str) -> tuple[Outcomes, "subprocess.CompletedProcess[str]"]:
    """Run modules of doubles in a pytest of their own."""
    settings = report.with_suffix(".ini")
    settings.write_text(SETTINGS, encoding="utf-8")
    options = ["--import-mode=importlib", "--strict-markers", "--tb=line", "-q", "-p", "no:cacheprovider"]
    files = [str(DOUBLES / f"{module}.py") for module in modules]
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"--rootdir={DOUBLES}",
        "-c",
        str(settings),
        f"--junitxml={report}",
    ]
    done = subprocess.run(
        [*command, *options, *files], capture_output=True, text=True, timeout=300, check=False
    )
    outcomes: Outcomes = defaultdict(dict)
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            said = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            outcomes[case.get("classname", "")][case.get("name", "")] = said[0] if said else "passed"
    return outcomes, done


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    outcomes, done = run_inner(tmp_path_factory.mktemp("broken") / "report.xml", *CAUGHT_BY)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    return outcomes


def failures(outcomes: dict[str, str]) -> set[str]:
    return {name.partition("[")[0] for name, outcome in outcomes.items() if outcome == "failure"}


@pytest.mark.guarantee("stores.suite-bites")
@pytest.mark.parametrize(("double", "test"), ROWS, ids=[double for double, _ in ROWS])
def test_a_broken_double_is_caught_by_name(broken: Outcomes, double: str, test: str) -> None:
    assert test in failures(broken[double])


def test_every_double_has_its_row_and_is_otherwise_whole(broken: Outcomes) -> None:
    assert set(broken) == {double for double, _ in ROWS}
    for double, outcomes in broken.items():
        assert "passed" in outcomes.values(), f"{double} breaks everything"
        assert "error" not in outcomes.values(), f"{double} breaks a fixture"


def test_sound_variants_pass(tmp_path: Path) -> None:
    outcomes, done = run_inner(tmp_path / "report.xml", "sound_variants")
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    waived = {
        test.partition("[")[0] for tests in outcomes.values() for test in tests if tests[test] == "skipped"
    }
    assert waived == {
        "test_a_transaction_sees_what_others_commit_meanwhile",
        "test_different_rows_do_not_wait_for_each_other",
        "test_two_that_wait_for_each_other_are_told",
        "test_a_run_that_another_claimer_holds_is_skipped",
        "test_a_run_that_is_locked_is_skipped",
        "test_a_run_that_somebody_holds_is_skipped",
        "test_a_job_that_an_open_transaction_took_is_skipped",
    }


def test_a_declared_gap_has_to_be_one(tmp_path: Path) -> None:
    outcomes, _ = run_inner(tmp_path / "report.xml", "declared_gaps")
    assert failures(outcomes["declared_gaps.TestAGapThatIsThere"]) == set()
    assert (
        outcomes["declared_gaps.TestAGapThatIsThere"]["test_of_several_first_writers_one_wins"] == "skipped"
    )
    assert failures(outcomes["declared_gaps.TestAGapThatIsNone"]) == {
        "test_of_several_first_writers_one_wins"
    }
    assert failures(outcomes["declared_gaps.TestAnotherGapThatIsNone"]) == {
        "test_a_run_that_another_claimer_holds_is_skipped",
        "test_a_run_that_is_locked_is_skipped",
    }


def test_an_unknown_capability_is_refused(tmp_path: Path) -> None:
    _, done = run_inner(tmp_path / "report.xml", "unknown_capability")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "telepathy" in done.stderr


def test_a_missing_store_is_told_with_the_fix(tmp_path: Path) -> None:
    outcomes, done = run_inner(tmp_path / "report.xml", "unfinished_adapter")
    assert set(outcomes["unfinished_adapter.TestNothingGiven"].values()) == {"error"}
    assert "override the fixture `blob_store`" in done.stdout
