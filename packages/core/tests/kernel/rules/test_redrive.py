"""What a redrive keeps, opens again and removes, for any state of any workflow."""

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from stagewright.kernel.rules.redrive import (
    FromStage,
    LastFailure,
    RedriveOrigin,
    RedrivePlan,
    Refused,
    Start,
    plan_redrive,
)
from stagewright.kernel.rules.step_reset import abandoned_steps, plan_step_reset
from stagewright.records import StepRecord, StoredStage
from stagewright.status import Status

NOW = datetime(2031, 1, 1, tzinfo=UTC)
ENDED = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
GROUPS = st.lists(st.integers(1, 3), min_size=1, max_size=4)


def named(sizes: list[int]) -> list[list[str]]:
    return [[f"g{group}s{member}" for member in range(size)] for group, size in enumerate(sizes, start=1)]


def stage(stage_id: str, group: int, number: int, status: Status) -> StoredStage:
    return StoredStage(
        id=f"record of {stage_id}",
        run_id="r",
        stage_id=stage_id,
        stage_name=stage_id,
        stage_number=number,
        execution_group=group,
        status=status,
        created_at=NOW,
        updated_at=NOW,
    )


@st.composite
def ended_runs(draw: st.DrawFn) -> tuple[list[list[str]], list[StoredStage]]:
    """A workflow, and the stages of a run of it that has ended: all groups before the last begun one are done."""
    groups = named(draw(GROUPS))
    reached = draw(st.integers(0, len(groups)))
    stages: list[StoredStage] = []
    for number, group in enumerate(groups[:reached], start=1):
        for stage_id in group:
            status = Status.COMPLETED if number < reached else draw(st.sampled_from(ENDED))
            stages.append(stage(stage_id, number, len(stages) + 1, status))
    return groups, draw(st.permutations(stages))


@given(run=ended_runs(), data=st.data())
def test_every_stage_is_kept_opened_again_or_removed(
    run: tuple[list[list[str]], list[StoredStage]], data: st.DataObject
) -> None:
    groups, stages = run
    ids = [stage_id for group in groups for stage_id in group]
    origin: RedriveOrigin = data.draw(
        st.one_of(st.just(LastFailure()), st.just(Start()), st.sampled_from(ids).map(FromStage))
    )
    plan = plan_redrive(stages, groups, origin)
    if isinstance(plan, Refused):
        assert "Start()" in plan.needed
        return
    divided = [*plan.kept, *plan.reopened, *plan.removed]
    assert sorted(one.id for one in divided) == sorted(one.id for one in stages)
    assert plan.from_stage_id in groups[plan.group - 1]
    assert all(one.status is Status.COMPLETED for one in plan.kept)
    assert {one.execution_group for one in plan.reopened} <= {plan.group}
    if not isinstance(origin, Start):
        assert all(one.execution_group > plan.group for one in plan.removed)
    done = {one.stage_id for one in plan.kept}
    assert all(stage_id in done for group in groups[: plan.group - 1] for stage_id in group)
    places = [(one.execution_group, one.stage_number) for one in plan.superseded]
    assert places == sorted(places)


@given(run=ended_runs())
def test_a_failure_is_gone_on_with_where_it_was(run: tuple[list[list[str]], list[StoredStage]]) -> None:
    groups, stages = run
    plan = plan_redrive(stages, groups, LastFailure())
    if not stages:
        assert isinstance(plan, Refused)
        return
    assert isinstance(plan, RedrivePlan)
    broken = {one.stage_id for one in stages if one.status is not Status.COMPLETED}
    reopened = {one.stage_id for one in plan.reopened}
    last = max(stages, key=lambda one: one.stage_number)
    assert reopened == (broken or {last.stage_id})
    assert plan.removed == ()


@given(run=ended_runs())
def test_nothing_is_kept_from_the_start(run: tuple[list[list[str]], list[StoredStage]]) -> None:
    groups, stages = run
    plan = plan_redrive(stages, groups, Start())
    assert isinstance(plan, RedrivePlan)
    assert (plan.kept, plan.reopened, plan.group, plan.from_stage_id) == ((), (), 1, groups[0][0])
    assert len(plan.removed) == len(stages)


def test_a_stage_that_the_new_version_lacks_is_history_when_done_and_removed_when_not() -> None:
    gone, target = stage("gone", 1, 1, Status.COMPLETED), stage("t", 2, 2, Status.FAILED)
    plan = plan_redrive([gone, target], [["t"], ["u"]], LastFailure())
    assert isinstance(plan, RedrivePlan)
    assert (plan.group, plan.kept, plan.reopened, plan.removed) == (1, (), (target,), (gone,))
    plan = plan_redrive([gone, target], [["a"], ["t"]], LastFailure())
    assert isinstance(plan, Refused)
    kept = replace(gone, stage_id="a")
    plan = plan_redrive([kept, target], [["a"], ["t"]], LastFailure())
    assert isinstance(plan, RedrivePlan)
    assert (plan.kept, plan.reopened) == ((kept,), (target,))
    plan = plan_redrive([gone, replace(target, stage_id="x")], [["a"]], LastFailure())
    assert isinstance(plan, Refused)
    assert "stage 'x'" in plan.needed


STEPS = st.builds(
    StepRecord,
    id=st.uuids().map(str),
    stage_record_id=st.just("s"),
    step_id=st.uuids().map(str),
    seq=st.integers(0, 9),
    kind=st.sampled_from(["run", "wait", "signal", "sleep"]),
    status=st.sampled_from(["running", "pending", "completed", "failed"]),
    external_key=st.none() | st.just("key"),
    created_at=st.just(NOW),
    updated_at=st.just(NOW),
)


@given(steps=st.lists(STEPS, max_size=8))
def test_every_step_is_kept_opened_again_or_dropped(steps: list[StepRecord]) -> None:
    reset = plan_step_reset(steps)
    assert {one.id for one in (*reset.kept, *reset.reopened, *reset.dropped)} == {one.id for one in steps}
    assert len(reset.kept) + len(reset.reopened) + len(reset.dropped) == len(steps)
    assert all(one.status == "completed" for one in reset.kept)
    assert all(one.kind == "run" and one.external_key for one in reset.reopened)
    assert not any(one.status == "completed" for one in (*reset.reopened, *reset.dropped))
    assert len(abandoned_steps(steps)) == sum(one.external_key is not None for one in steps)
