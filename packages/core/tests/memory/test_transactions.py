import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from stagewright.errors import (
    DuplicateRecordError,
    RecordNotFoundError,
    StaleVersionError,
    TransientError,
)
from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.records import NewEvent, NewJob, RunPatch, RunRecord, StoredStage


class ExpectedError(Exception):
    pass


async def test_a_transaction_is_visible_to_others_as_a_whole_and_only_after_its_commit(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], new_stage: Callable[..., StoredStage]
) -> None:
    async with store.transaction() as tx:
        await tx.create_run(new_run("r1"))
        await tx.create_stage(new_stage("r1", "price"))
        assert await tx.get_run("r1") is not None
        assert len(await tx.get_stages_by_run("r1")) == 1
        assert await store.get_run("r1") is None
        assert await store.get_stages_by_run("r1") == []
    assert await store.get_run("r1") is not None
    assert await store.get_stage("r1", "price") is not None


async def test_a_rollback_leaves_nothing_on_any_adapter(
    database: InMemoryDatabase,
    store: InMemoryPersistence,
    new_run: Callable[..., RunRecord],
    new_event: Callable[[str, str], NewEvent],
    new_job: Callable[..., NewJob],
) -> None:
    transport = InMemoryJobTransport(database)
    with suppress(ExpectedError):
        async with store.transaction() as tx:
            await tx.create_run(new_run("r1"))
            await tx.append_outbox_events([new_event("e1", "r1")])
            enlisted = transport.enlist(tx)
            assert enlisted is not None
            await enlisted.enqueue_parallel([new_job("j1")])
            raise ExpectedError
    assert await store.get_run("r1") is None
    assert await store.list_events("r1", after=0, limit=10) == []
    assert await transport.depth() == 0
    assert database.locks.is_idle


async def test_a_transaction_reads_what_others_commit_meanwhile(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    await store.create_run(new_run("r1"))
    async with store.transaction() as tx:
        before = await tx.get_run("r1")
        await store.update_run("r1", RunPatch(updated_at=start, total_tokens=7))
        after = await tx.get_run("r1")
    assert before is not None
    assert after is not None
    assert (before.total_tokens, after.total_tokens) == (0, 7)


async def test_a_savepoint_that_fails_undoes_its_own_writes_alone(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], new_event: Callable[[str, str], NewEvent]
) -> None:
    async with store.transaction() as tx:
        await tx.create_run(new_run("r1"))
        with suppress(ExpectedError):
            async with tx.transaction() as savepoint:
                await savepoint.append_outbox_events([new_event("e1", "r1")])
                async with savepoint.transaction() as inner:
                    await inner.create_run(new_run("r2"))
                assert await savepoint.get_run("r2") is not None
                raise ExpectedError
        assert await tx.get_run("r2") is None
        await tx.append_outbox_events([new_event("e2", "r1")])
    events = await store.list_events("r1", after=0, limit=10)
    assert [(event.id, event.sequence) for event in events] == [("e2", 1)]


async def test_a_savepoint_that_fails_gives_back_the_locks_taken_in_it(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    for id in ("r1", "r2"):
        await store.create_run(new_run(id))
    async with store.transaction() as tx:
        await tx.lock_runs(["r1"])
        with suppress(ExpectedError):
            async with tx.transaction() as savepoint:
                await savepoint.lock_runs(["r1", "r2"])
                raise ExpectedError
        claimed = await asyncio.create_task(store.claim_pending_runs(2, now=start, serves=None))
    assert [run.id for run in claimed] == ["r2"]


async def test_a_deleted_row_comes_back_with_a_rollback(
    database: InMemoryDatabase, store: InMemoryPersistence, new_job: Callable[..., NewJob]
) -> None:
    transport = InMemoryJobTransport(database)
    await transport.enqueue_parallel([new_job("j1", run_id="r1")])
    with suppress(ExpectedError):
        async with store.transaction() as tx:
            enlisted = transport.enlist(tx)
            assert enlisted is not None
            assert await enlisted.delete_by_run_and_stages("r1", ["stage"]) == 1
            assert await enlisted.get_jobs_by_run("r1") == []
            raise ExpectedError
    assert [job.id for job in await transport.get_jobs_by_run("r1")] == ["j1"]


async def test_an_error_of_a_write_that_is_swallowed_comes_back_at_the_commit_and_nothing_is_kept(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    await store.create_run(new_run("r1"))

    async def swallow_and_go_on() -> None:
        async with store.transaction() as tx:
            await tx.create_run(new_run("r2"))
            with pytest.raises(StaleVersionError):
                await tx.update_run("r1", RunPatch(updated_at=start), expected_version=9)
            await tx.create_run(new_run("r3"))

    with pytest.raises(StaleVersionError) as caught:
        await swallow_and_go_on()
    assert (caught.value.entity, caught.value.expected, caught.value.actual) == ("run", 9, 1)
    assert await store.get_run("r2") is None
    assert await store.get_run("r3") is None


async def test_an_error_of_a_write_spoils_only_its_savepoint(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord]
) -> None:
    async def create_both(tx: InMemoryPersistence) -> None:
        async with tx.transaction() as savepoint:
            await savepoint.create_run(new_run("r2"))
            await savepoint.create_run(new_run("r1"))

    async with store.transaction() as tx:
        await tx.create_run(new_run("r1"))
        with pytest.raises(DuplicateRecordError):
            await create_both(tx)
    assert await store.get_run("r1") is not None
    assert await store.get_run("r2") is None


async def test_a_savepoint_that_works_does_not_heal_its_transaction(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord], start: datetime
) -> None:
    async def go_on_after_an_error() -> None:
        async with store.transaction() as tx:
            with pytest.raises(RecordNotFoundError):
                await tx.update_run("none", RunPatch(updated_at=start))
            async with tx.transaction() as savepoint:
                await savepoint.create_run(new_run("r1"))
            with pytest.raises(ExpectedError):
                async with tx.transaction():
                    raise ExpectedError

    with pytest.raises(RecordNotFoundError):
        await go_on_after_an_error()
    assert await store.get_run("r1") is None


async def test_a_call_cancelled_inside_a_transaction_leaves_nothing_to_commit(
    database: InMemoryDatabase, store: InMemoryPersistence, new_run: Callable[..., RunRecord]
) -> None:
    await store.create_run(new_run("r1"))

    async def give_up_waiting() -> None:
        async with store.transaction() as tx:
            await tx.create_run(new_run("r2"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await tx.lock_runs(["r1"])

    async with store.transaction() as holder:
        await holder.lock_runs(["r1"])
        with pytest.raises(TransientError):
            await asyncio.create_task(give_up_waiting())
    assert await store.get_run("r2") is None
    assert database.locks.is_idle


async def test_nothing_is_written_through_a_transaction_that_has_ended(
    store: InMemoryPersistence, new_run: Callable[..., RunRecord]
) -> None:
    async with store.transaction() as tx:
        pass
    with pytest.raises(RuntimeError, match="has ended"):
        await tx.create_run(new_run("r1"))
    with pytest.raises(RuntimeError, match="has ended"):
        async with tx.transaction():
            pass


async def test_a_cancellation_before_the_commit_rolls_back(new_run: Callable[..., RunRecord]) -> None:
    class StuckBeforeCommit(InMemoryDatabase):
        async def pause(self, moment: str) -> None:
            if moment == "commit":
                await asyncio.Event().wait()

    database = StuckBeforeCommit()
    store = InMemoryPersistence(database)

    async def write() -> None:
        async with store.transaction() as tx:
            await tx.create_run(new_run("r1"))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(write(), 0.01)
    assert await store.get_run("r1") is None
    assert database.locks.is_idle


async def test_a_transaction_whose_task_vanishes_is_rolled_back(
    database: InMemoryDatabase, store: InMemoryPersistence, new_run: Callable[..., RunRecord]
) -> None:
    async def write() -> None:
        async with store.transaction() as tx:
            await tx.create_run(new_run("r1"))
            await asyncio.Event().wait()

    abandoned = write()
    for _turn in range(3):
        abandoned.send(None)
    assert not database.locks.is_idle
    abandoned.close()
    assert database.locks.is_idle
    assert await store.get_run("r1") is None


async def test_every_call_passes_the_hook_by_its_name(new_run: Callable[..., RunRecord]) -> None:
    moments: list[str] = []

    class Watched(InMemoryDatabase):
        async def pause(self, moment: str) -> None:
            moments.append(moment)

    store = InMemoryPersistence(Watched())
    async with store.transaction() as tx:
        await tx.create_run(new_run("r1"))
        async with tx.transaction() as savepoint:
            await savepoint.get_run("r1")
    await store.get_run("r1")
    await store.append_logs([])
    await store.notify("jobs")
    await store.wait_for_work(timedelta(0))
    assert moments == [
        *("begin", "create_run", "savepoint", "get_run", "commit", "committed"),
        *("get_run", "append_logs", "notify:jobs", "committed", "wait_for_work"),
    ]
