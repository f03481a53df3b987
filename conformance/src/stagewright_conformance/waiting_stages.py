"""Stages that wait for their time or for a job, and runs that stand still: who finds them, in which order."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from stagewright.ports import Persistence
from stagewright.records import RunPatch, ServedDefinition, StagePatch, StoredStage
from stagewright.status import Status
from stagewright_conformance.samples import LATER, MOMENT, a_run, a_stage
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["StuckRunSuite", "WaitingStageSuite"]

_SECOND = timedelta(seconds=1)


async def _stage(
    persistence: Persistence,
    *,
    status: Status = Status.SUSPENDED,
    next_poll_at: datetime | None = MOMENT,
    updated_at: datetime = MOMENT,
    job_enqueued_at: datetime | None = MOMENT,
    run_status: Status = Status.RUNNING,
    workflow_id: str = "orders",
    version: str | None = None,
    id: str | None = None,
    beside: StoredStage | None = None,
) -> StoredStage:
    """A stage of a run of its own, or of the run of another stage."""
    run_id = None if beside is None else beside.run_id
    if run_id is None:
        run = a_run(status=run_status, workflow_id=workflow_id, definition_version=version)
        await persistence.create_run(run)
        run_id = run.id
    stage = replace(
        a_stage(run_id, id=id, status=status, stage_id="price" if beside is None else "ship"),
        next_poll_at=next_poll_at,
        updated_at=updated_at,
        job_enqueued_at=job_enqueued_at,
    )
    await persistence.create_stage(stage)
    return stage


async def _owed(
    persistence: Persistence, status: Status = Status.PENDING, at: datetime = MOMENT
) -> StoredStage:
    return await _stage(persistence, status=status, next_poll_at=None, job_enqueued_at=None, updated_at=at)


class WaitingStageSuite(PersistenceSuite):
    """`WaitingStageStore`.

    Fixtures: those of `PersistenceSuite`.
    """

    async def test_due_stages_come_the_earliest_first(self, persistence: Persistence) -> None:
        """`get_suspended_stages`: those due at that moment or before, by time, then by id, up to the limit."""
        late = await _stage(persistence, next_poll_at=MOMENT + _SECOND)
        early = await _stage(persistence, next_poll_at=MOMENT - _SECOND)
        second = await _stage(persistence, id="stage-b")
        first = await _stage(persistence, id="stage-a")
        ordered = [early, first, second, late]
        assert await persistence.get_suspended_stages(MOMENT + _SECOND, limit=9) == ordered
        assert await persistence.get_suspended_stages(MOMENT, limit=9) == ordered[:3]
        assert await persistence.get_suspended_stages(MOMENT + _SECOND, limit=2) == ordered[:2]
        assert await persistence.get_suspended_stages(MOMENT + _SECOND, limit=0) == []
        assert await persistence.get_suspended_stages(MOMENT - 2 * _SECOND, limit=9) == []

    async def test_only_suspended_stages_of_running_runs_are_due(self, persistence: Persistence) -> None:
        """`get_suspended_stages`: SUSPENDED stages of RUNNING runs; one without a `next_poll_at` is never due."""
        for status in (Status.PENDING, Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            await _stage(persistence, status=status)
        for run_status in (Status.PENDING, Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            await _stage(persistence, run_status=run_status)
        await _stage(persistence, next_poll_at=None)
        due = await _stage(persistence)
        assert await persistence.get_suspended_stages(LATER, limit=99) == [due]

    async def test_owed_stages_come_the_earliest_changed_first(self, persistence: Persistence) -> None:
        """`get_owed_stages`: PENDING, and SUSPENDED without a `next_poll_at`, by `updated_at`, up to the limit."""
        late = await _owed(persistence, at=MOMENT + _SECOND)
        resumed = await _owed(persistence, Status.SUSPENDED, at=MOMENT - _SECOND)
        opened = await _owed(persistence)
        assert await persistence.get_owed_stages(MOMENT + _SECOND, limit=9) == [resumed, opened, late]
        assert await persistence.get_owed_stages(MOMENT, limit=9) == [resumed, opened]
        assert await persistence.get_owed_stages(MOMENT + _SECOND, limit=1) == [resumed]
        assert await persistence.get_owed_stages(MOMENT + _SECOND, limit=0) == []

    async def test_a_stage_that_has_its_job_or_waits_is_owed_none(self, persistence: Persistence) -> None:
        """`get_owed_stages`: whose `job_enqueued_at` is None, of RUNNING runs."""
        await _stage(persistence, status=Status.PENDING, next_poll_at=None)
        await _stage(persistence, next_poll_at=None)
        await _stage(persistence, job_enqueued_at=None)
        for status in (Status.RUNNING, Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            await _stage(persistence, status=status, next_poll_at=None, job_enqueued_at=None)
        for run_status in (Status.PENDING, Status.CANCELLED):
            await _stage(
                persistence,
                status=Status.PENDING,
                next_poll_at=None,
                job_enqueued_at=None,
                run_status=run_status,
            )
        owed = await _owed(persistence)
        assert await persistence.get_owed_stages(LATER, limit=99) == [owed]

    async def test_only_what_is_served_takes_a_place(self, persistence: Persistence) -> None:
        """`get_suspended_stages`, `get_owed_stages`: of runs that are served, so that others don't use up the limit."""
        foreign = await _stage(persistence, workflow_id="other", version="v1")
        older = await _stage(persistence, version="v1")
        await persistence.update_stage(older.id, StagePatch(updated_at=MOMENT, next_poll_at=MOMENT + _SECOND))
        newer = await _stage(persistence, version="v2", next_poll_at=MOMENT + 2 * _SECOND)
        unpinned = await _stage(persistence, next_poll_at=MOMENT + 3 * _SECOND)

        async def due(*serves: ServedDefinition, limit: int = 9) -> list[str]:
            found = await persistence.get_suspended_stages(LATER, limit=limit, serves=serves)
            return [stage.id for stage in found]

        assert await due(ServedDefinition("orders", "v2"), limit=1) == [newer.id]
        assert await due(ServedDefinition("orders", "v1")) == [older.id, unpinned.id]
        assert await due(ServedDefinition("other", "v1"), ServedDefinition("orders", "v2")) == [
            foreign.id,
            newer.id,
            unpinned.id,
        ]
        assert await due() == []
        owed = await _owed(persistence)
        served = [ServedDefinition("orders", "v9")]
        assert await persistence.get_owed_stages(LATER, limit=9, serves=served) == [owed]
        assert await persistence.get_owed_stages(LATER, limit=9, serves=[]) == []

    async def test_whoever_finds_a_stage_holds_its_run(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`get_suspended_stages`, `get_owed_stages`: inside a transaction their runs are locked until it ends."""
        due, owed = await _stage(persistence), await _owed(persistence)

        async def change(run_id: str) -> None:
            await competitor.update_run(run_id, RunPatch(updated_at=LATER))

        async with persistence.transaction() as tx:
            assert await tx.get_suspended_stages(LATER, limit=1) == [due]
            assert await tx.get_owed_stages(LATER, limit=1) == [owed]
            changes = [background.start(change(run_id)) for run_id in (due.run_id, owed.run_id)]
            for changing in changes:
                assert await scale.still_waits(changing)
        for changing in changes:
            await scale.soon(changing)

    @pytest.mark.needs("concurrent_writers")
    async def test_a_run_that_somebody_holds_is_skipped(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`get_suspended_stages`, `get_owed_stages`: a run that another transaction holds is skipped."""
        held, free = await _stage(persistence), await _stage(persistence, next_poll_at=LATER)
        held_owed, free_owed = await _owed(persistence), await _owed(persistence, at=LATER)

        async def find() -> tuple[list[StoredStage], list[StoredStage]]:
            async with competitor.transaction() as other:
                due = await other.get_suspended_stages(LATER, limit=1)
                return due, await other.get_owed_stages(LATER, limit=1)

        async with persistence.transaction() as tx:
            await tx.lock_runs([held.run_id, held_owed.run_id])
            assert await scale.soon(find()) == ([free], [free_owed])
            assert await scale.soon(competitor.get_suspended_stages(LATER, limit=1)) == [held]

    async def test_a_stage_is_read_as_it_is_once_its_run_is_locked(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`get_suspended_stages`: of many finders one gets a stage that the others see taken."""
        stages = [await _stage(persistence) for _ in range(scale.contenders)]
        stores = (persistence, competitor)

        async def take(number: int) -> list[str]:
            async with stores[number % 2].transaction() as tx:
                found = await tx.get_suspended_stages(LATER, limit=2)
                for stage in found:
                    await asyncio.sleep(0)
                    taken = StagePatch(updated_at=LATER, next_poll_at=None)
                    await tx.update_stage(stage.id, taken, expected_version=stage.version)
                return [stage.id for stage in found]

        taken: list[str] = []
        while len(taken) < len(stages):
            for ids in await scale.soon(asyncio.gather(*map(take, range(scale.contenders)))):
                taken.extend(ids)
        assert sorted(taken) == sorted(stage.id for stage in stages)

    async def test_two_stages_of_one_run_are_found_together(self, persistence: Persistence) -> None:
        """`get_suspended_stages`: a run that this very transaction holds is its own."""
        first = await _stage(persistence, id="stage-a")
        second = await _stage(persistence, id="stage-b", beside=first)
        async with persistence.transaction() as tx:
            await tx.lock_runs([first.run_id])
            assert await tx.get_suspended_stages(LATER, limit=9) == [first, second]


class StuckRunSuite(PersistenceSuite):
    """`RunStore.get_stuck_runs`.

    Fixtures: those of `PersistenceSuite`.
    """

    async def _run(
        self,
        persistence: Persistence,
        status: Status = Status.RUNNING,
        *,
        workflow_id: str = "orders",
        definition_version: str | None = None,
    ) -> str:
        run = a_run(status=status, workflow_id=workflow_id, definition_version=definition_version)
        await persistence.create_run(run)
        return run.id

    async def test_what_has_changed_since_is_no_standstill(self, persistence: Persistence) -> None:
        """`get_stuck_runs`: neither the run's `updated_at` nor that of one of its stages is later than `before`."""
        without, with_stage = await self._run(persistence), await self._run(persistence)
        stage = a_stage(with_stage, status=Status.RUNNING)
        await persistence.create_stage(stage)
        await persistence.create_stage(a_stage(with_stage, stage_id="ship", status=Status.SUSPENDED))
        stuck = await persistence.get_stuck_runs(MOMENT, limit=9)
        assert [run.id for run in stuck] == sorted([without, with_stage])
        assert stuck[0] == await persistence.get_run(stuck[0].id)
        assert await persistence.get_stuck_runs(MOMENT - _SECOND, limit=9) == []
        await persistence.update_stage(stage.id, StagePatch(updated_at=LATER))
        assert [run.id for run in await persistence.get_stuck_runs(MOMENT, limit=9)] == [without]
        await persistence.update_run(without, RunPatch(updated_at=LATER))
        assert await persistence.get_stuck_runs(MOMENT, limit=9) == []
        assert len(await persistence.get_stuck_runs(LATER, limit=9)) == 2

    async def test_a_run_that_waits_for_a_time_is_not_stuck(self, persistence: Persistence) -> None:
        """`get_stuck_runs`: none of its stages is SUSPENDED with a `next_poll_at`, past or to come."""
        for due in (MOMENT - _SECOND, LATER):
            run_id = await self._run(persistence)
            stage = a_stage(run_id, status=Status.SUSPENDED)
            await persistence.create_stage(replace(stage, next_poll_at=due))
        kept = await self._run(persistence)
        await persistence.create_stage(replace(a_stage(kept, status=Status.COMPLETED), next_poll_at=LATER))
        assert [run.id for run in await persistence.get_stuck_runs(LATER, limit=9)] == [kept]

    async def test_they_come_page_by_page_in_the_order_of_their_ids(self, persistence: Persistence) -> None:
        """`get_stuck_runs`: up to `limit`, in the order of their ids; with `after`, only greater ids."""
        ids = sorted([await self._run(persistence) for _ in range(5)])
        for status in (Status.PENDING, Status.COMPLETED, Status.FAILED, Status.CANCELLED):
            await self._run(persistence, status)
        seen: list[str] = []
        while page := await persistence.get_stuck_runs(MOMENT, limit=2, after=seen[-1] if seen else None):
            assert len(page) <= 2
            seen += [run.id for run in page]
        assert seen == ids
        assert await persistence.get_stuck_runs(MOMENT, limit=0) == []

    async def test_only_what_is_served_is_stuck(self, persistence: Persistence) -> None:
        """`get_stuck_runs`: of definitions that are served."""
        mine = await self._run(persistence, definition_version="v1")
        await self._run(persistence, definition_version="v2")
        await self._run(persistence, workflow_id="other", definition_version="v1")
        served = [ServedDefinition("orders", "v1")]
        assert [run.id for run in await persistence.get_stuck_runs(MOMENT, limit=1, serves=served)] == [mine]
        assert await persistence.get_stuck_runs(MOMENT, limit=9, serves=[]) == []
