"""What the runs of each version come to, whatever they are."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from stagewright.kernel.rules.versions import summarise_versions
from stagewright.records import VersionCounts
from stagewright.status import TERMINAL_RUN_STATUSES, Status

EPOCH = datetime(2025, 1, 1, tzinfo=UTC)

buckets = st.lists(
    st.builds(
        VersionCounts,
        workflow_id=st.sampled_from("abc"),
        definition_version=st.sampled_from([None, "1", "2", "10"]),
        counts=st.dictionaries(st.sampled_from(list(Status)), st.integers(1, 9), min_size=1),
        oldest_created_at=st.integers(0, 3).map(lambda hours: EPOCH + timedelta(hours=hours)),
    ),
    unique_by=lambda one: (one.workflow_id, one.definition_version),
)


@given(buckets)
def test_every_run_is_counted_once_and_drained_is_nothing_active(counted: list[VersionCounts]) -> None:
    summaries = summarise_versions(counted, is_served=lambda _workflow, version: version == "1")
    assert len(summaries) == len(counted)
    assert sum(one.total for one in summaries) == sum(sum(one.counts.values()) for one in counted)
    for one in summaries:
        ended = sum(count for status, count in one.counts.items() if status in TERMINAL_RUN_STATUSES)
        assert one.active + ended == one.total
        assert one.drained is (one.active == 0)
        assert one.served_here is (one.definition_version in (None, "1"))


@given(buckets, st.randoms())
def test_the_newest_comes_first_and_no_version_last_in_whatever_order_they_were_counted(
    counted: list[VersionCounts], random: object
) -> None:
    shuffled = list(counted)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types its randoms as objects
    summaries = summarise_versions(shuffled, is_served=lambda *_: True)
    assert summaries == summarise_versions(counted, is_served=lambda *_: True)
    order = [
        (
            one.definition_version is None,
            -one.oldest_created_at.timestamp(),
            one.definition_version or "",
            one.workflow_id,
        )
        for one in summaries
    ]
    assert order == sorted(order)
