"""Transactions that are kept only if a run is as it was loaded."""

import asyncio
from datetime import timedelta

import pytest

from stagewright.errors import StaleVersionError
from stagewright.ports import Persistence
from stagewright.records import LoadedRun, RunPatch, StagePatch
from stagewright.status import Status
from stagewright_conformance.samples import MOMENT, a_run, a_stage, an_event
from stagewright_conformance.suite import PersistenceSuite, Scale

__all__ = ["ExpectedRunSuite"]

_LATER = MOMENT + timedelta(minutes=1)


class ExpectedRunSuite(PersistenceSuite):
    """`RunStore.expect_run`.

    Fixtures: `persistence`, and `competitor`, another adapter over the same database.
    """

    async def test_a_run_that_is_as_it_was_loaded_is_written_to(self, persistence: Persistence) -> None:
        """`expect_run`: what this transaction writes is kept, and its events follow the last one."""
        loaded = await _a_loaded_run(persistence, events=2)
        await _expect_and_write(persistence, loaded)
        [after] = await persistence.load_runs([loaded.run.id])
        assert (after.run.version, after.run.total_tokens) == (loaded.run.version + 1, 5)
        assert after.stages[0].status is Status.RUNNING
        assert after.last_sequence == loaded.last_sequence + 2 == 4

    @pytest.mark.guarantee("stores.expected-runs-are-as-loaded")
    @pytest.mark.parametrize("change", ["run", "event"])
    async def test_a_run_in_which_something_has_happened_since_is_left_alone(
        self, persistence: Persistence, competitor: Persistence, change: str
    ) -> None:
        """`expect_run`: a new version or a new event refuses the whole transaction."""
        loaded = await _a_loaded_run(persistence, events=1)
        if change == "run":
            await competitor.update_run(loaded.run.id, RunPatch(updated_at=_LATER, total_tokens=1))
        else:
            await competitor.append_outbox_events([an_event(loaded.run.id)])
        before = await persistence.load_runs([loaded.run.id])
        with pytest.raises(StaleVersionError):
            await _expect_and_write(persistence, loaded)
        assert await persistence.load_runs([loaded.run.id]) == before

    async def test_a_run_that_is_gone_is_not_expected(self, persistence: Persistence) -> None:
        """`expect_run`: a run that isn't there is not as it was loaded."""
        run = a_run()
        with pytest.raises(StaleVersionError):
            await _expect(persistence, LoadedRun(run, ()))
        assert await persistence.get_run(run.id) is None

    async def test_a_transaction_that_writes_nothing_else_is_refused_too(
        self, persistence: Persistence, competitor: Persistence
    ) -> None:
        """`expect_run`: it is asked whether or not the transaction writes to the run."""
        loaded = await _a_loaded_run(persistence, events=0)
        await competitor.update_run(loaded.run.id, RunPatch(updated_at=_LATER, total_tokens=1))
        with pytest.raises(StaleVersionError):
            await _expect(persistence, loaded)

    async def test_what_a_guarded_stage_refuses_undoes_the_rest(
        self, persistence: Persistence, competitor: Persistence
    ) -> None:
        """`update_stage`: a stale version refuses all that is sent together with it, the run's part too."""
        loaded = await _a_loaded_run(persistence, events=1)
        [stage] = loaded.stages
        await competitor.update_stage(stage.id, StagePatch(updated_at=_LATER, status=Status.SUSPENDED))
        before = await persistence.load_runs([loaded.run.id])
        with pytest.raises(StaleVersionError):
            await _expect_and_write(persistence, loaded)
        assert await persistence.load_runs([loaded.run.id]) == before

    @pytest.mark.guarantee("stores.expected-runs-are-as-loaded")
    async def test_of_many_that_expect_one_run_the_same_one_is_kept(
        self, persistence: Persistence, competitor: Persistence, scale: Scale
    ) -> None:
        """`expect_run`: of several transactions at once one is kept, and the others are refused."""
        for _ in range(5):
            loaded = await _a_loaded_run(persistence, events=1)
            writers = (_expect_and_tell(store, loaded) for store in (persistence, competitor) * 4)
            outcomes = await scale.soon(asyncio.gather(*writers, return_exceptions=True))
            assert outcomes.count(None) == 1
            assert {type(one) for one in outcomes if one is not None} == {StaleVersionError}
            [after] = await persistence.load_runs([loaded.run.id])
            assert (after.run.version, after.last_sequence) == (
                loaded.run.version + 1,
                loaded.last_sequence + 2,
            )


async def _a_loaded_run(persistence: Persistence, *, events: int) -> LoadedRun:
    run = a_run()
    async with persistence.transaction() as tx:
        await tx.create_run(run)
        await tx.create_stage(a_stage(run.id))
        await tx.append_outbox_events([an_event(run.id) for _ in range(events)])
    [loaded] = await persistence.load_runs([run.id])
    assert loaded.last_sequence == events
    return loaded


async def _expect(persistence: Persistence, loaded: LoadedRun) -> None:
    async with persistence.transaction() as tx:
        await tx.expect_run(loaded)


async def _expect_and_write(persistence: Persistence, loaded: LoadedRun) -> None:
    run, [stage] = loaded.run, loaded.stages
    started = StagePatch(updated_at=_LATER, status=Status.RUNNING)
    async with persistence.transaction() as tx:
        await tx.expect_run(loaded)
        await tx.update_stage(stage.id, started, expected_version=stage.version)
        await tx.update_run(run.id, RunPatch(updated_at=_LATER, total_tokens=5))
        await tx.append_outbox_events([an_event(run.id), an_event(run.id)])


async def _expect_and_tell(persistence: Persistence, loaded: LoadedRun) -> None:
    async with persistence.transaction() as tx:
        await tx.expect_run(loaded)
        # Others get as far as this, unless they wait for a lock.
        for _ in range(10):
            await asyncio.sleep(0)
        await tx.update_run(loaded.run.id, RunPatch(updated_at=_LATER, total_tokens=5))
        await tx.append_outbox_events([an_event(loaded.run.id), an_event(loaded.run.id)])
