"""Runs with their stages, as of one moment."""

from datetime import timedelta

import pytest

from stagewright.ports import Persistence
from stagewright.records import LoadedRun, RunPatch, StagePatch
from stagewright.status import Status
from stagewright_conformance.samples import MOMENT, a_run, a_stage
from stagewright_conformance.suite import Background, PersistenceSuite, Scale

__all__ = ["LoadedRunSuite"]

_LATER = MOMENT + timedelta(minutes=1)


class LoadedRunSuite(PersistenceSuite):
    """`RunStore.load_runs`.

    Fixtures: `persistence`, and `competitor`, another adapter over the same database.
    """

    async def test_runs_come_with_their_stages_in_order(self, persistence: Persistence) -> None:
        """`load_runs`: those that exist, in the order of their ids, with all of their stages."""
        first, second = sorted((a_run(), a_run()), key=lambda run: run.id)
        stages = [
            a_stage(first.id, stage_id=f"s{number}", stage_number=number, execution_group=group)
            for number, group in ((1, 1), (3, 2), (2, 2))
        ]
        async with persistence.transaction() as tx:
            for run in (first, second):
                await tx.create_run(run)
            for stage in stages:
                await tx.create_stage(stage)
        ordered = tuple(sorted(stages, key=lambda stage: (stage.execution_group, stage.stage_number)))
        expected = [LoadedRun(first, ordered), LoadedRun(second, ())]
        assert await persistence.load_runs([second.id, first.id, "no such run"]) == expected
        async with persistence.transaction() as tx:
            assert await tx.load_runs([second.id, first.id, "no such run"], lock=True) == expected
            assert await tx.load_runs([], lock=True) == []

    async def test_own_writes_are_seen(self, persistence: Persistence) -> None:
        """`load_runs`: inside a transaction its own writes are read."""
        run = a_run()
        stage = a_stage(run.id)
        async with persistence.transaction() as tx:
            await tx.create_run(run)
            await tx.create_stage(stage)
            await tx.update_stage(stage.id, StagePatch(updated_at=_LATER, status=Status.RUNNING))
            [loaded] = await tx.load_runs([run.id], lock=True)
        assert [(one.status, one.version) for one in loaded.stages] == [(Status.RUNNING, 2)]

    @pytest.mark.guarantee("stores.loaded-as-locked")
    async def test_who_waited_reads_run_and_stages_as_they_are_once_locked(
        self, persistence: Persistence, competitor: Persistence, background: Background, scale: Scale
    ) -> None:
        """`load_runs`: with `lock`, runs and stages are read as they are once locked."""
        run = a_run()
        old = a_stage(run.id, stage_id="old")
        new = a_stage(run.id, stage_id="new", stage_number=2, execution_group=2)
        async with persistence.transaction() as tx:
            await tx.create_run(run)
            await tx.create_stage(old)

        async def load() -> list[LoadedRun]:
            async with competitor.transaction() as tx:
                return await tx.load_runs([run.id], lock=True)

        async with persistence.transaction() as tx:
            await tx.load_runs([run.id], lock=True)
            waiting = background.start(load())
            assert await scale.still_waits(waiting)
            await tx.update_stage(old.id, StagePatch(updated_at=_LATER, status=Status.COMPLETED, output=1))
            await tx.create_stage(new)
            await tx.update_run(run.id, RunPatch(updated_at=_LATER, total_tokens=5))
        [loaded] = await scale.soon(waiting)
        assert (loaded.run.version, loaded.run.total_tokens) == (2, 5)
        assert [(one.stage_id, one.status, one.output) for one in loaded.stages] == [
            ("old", Status.COMPLETED, 1),
            ("new", Status.PENDING, None),
        ]

    async def test_without_lock_nobody_waits(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`load_runs`: without `lock` it reads what is committed, and doesn't wait for a holder."""
        run = a_run()
        await persistence.create_run(run)
        async with persistence.transaction() as tx:
            await tx.load_runs([run.id], lock=True)
            assert await scale.soon(competitor.load_runs([run.id])) == [LoadedRun(run, ())]
