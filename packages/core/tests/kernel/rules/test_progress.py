"""What follows for a run from the state of its stages, for any states at all."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagewright.kernel.rules.progress import Complete, Fail, OpenGroup, Wait, what_follows
from stagewright.records import StageRecord
from stagewright.status import ACTIVE_STAGE_STATUSES, Status


def record(stage_id: str, group: int, number: int, status: Status) -> StageRecord:
    return StageRecord(
        id=f"id-{stage_id}",
        run_id="r",
        stage_id=stage_id,
        stage_name=stage_id,
        stage_number=number,
        execution_group=group,
        status=status,
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[list[str]], list[StageRecord]]:
    """The groups of a workflow, and records of any states for the stages up to some group."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    groups = [[f"g{group}s{stage}" for stage in range(size)] for group, size in enumerate(sizes, start=1)]
    reached = draw(st.integers(0, len(groups)))
    records: list[StageRecord] = []
    number = 0
    for group, stage_ids in enumerate(groups[:reached], start=1):
        for stage_id in stage_ids:
            number += 1
            if group < reached or draw(st.booleans()):
                records.append(record(stage_id, group, number, draw(st.sampled_from(list(Status)))))
    return groups, draw(st.permutations(records))


@given(runs())
def test_an_open_stage_always_waits_and_nothing_else_does(
    run: tuple[list[list[str]], list[StageRecord]],
) -> None:
    groups, stages = run
    is_open = any(stage.status in ACTIVE_STAGE_STATUSES for stage in stages)
    assert (what_follows(stages, groups) == Wait()) is is_open


@given(runs())
def test_a_run_fails_by_its_first_stage_that_did_not_complete(
    run: tuple[list[list[str]], list[StageRecord]],
) -> None:
    groups, stages = run
    bad = [stage for stage in stages if stage.status in (Status.FAILED, Status.CANCELLED)]
    match what_follows(stages, groups):
        case Fail(stage):
            assert stage == min(bad, key=lambda one: one.stage_number)
        case Wait():
            assert any(stage.status in ACTIVE_STAGE_STATUSES for stage in stages)
        case OpenGroup() | Complete():
            assert not bad


@given(runs())
def test_a_group_is_opened_only_when_all_before_it_is_done(
    run: tuple[list[list[str]], list[StageRecord]],
) -> None:
    groups, stages = run
    match what_follows(stages, groups):
        case OpenGroup(group):
            assert 1 <= group <= len(groups)
            there = {stage.stage_id for stage in stages}
            assert not there.issuperset(groups[group - 1])
            assert all(stage.execution_group <= group for stage in stages)
        case Complete():
            assert {stage.stage_id for stage in stages} == {stage for group in groups for stage in group}
        case Wait() | Fail():
            pass


@given(runs(), st.randoms())
def test_the_order_of_the_records_does_not_matter(
    run: tuple[list[list[str]], list[StageRecord]], random: Random
) -> None:
    groups, stages = run
    shuffled = list(stages)
    random.shuffle(shuffled)
    assert what_follows(shuffled, groups) == what_follows(stages, groups)


GROUPS = [["a"], ["b", "c"], ["d"]]
A, B, C, D = (
    record(name, group, number, Status.COMPLETED)
    for name, group, number in [("a", 1, 1), ("b", 2, 2), ("c", 2, 3), ("d", 3, 4)]
)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([], OpenGroup(1)),
        ([A], OpenGroup(2)),
        ([A, B], OpenGroup(2)),
        ([A, B, C], OpenGroup(3)),
        ([A, B, C, D], Complete()),
        ([A, record("b", 2, 2, Status.SKIPPED), C], OpenGroup(3)),
        ([A, record("b", 2, 2, Status.FAILED), record("c", 2, 3, Status.PENDING)], Wait()),
    ],
)
def test_a_workflow_of_three_groups(stages: Sequence[StageRecord], expected: object) -> None:
    assert what_follows(stages, GROUPS) == expected
