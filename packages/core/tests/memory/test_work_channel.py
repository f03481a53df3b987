import asyncio
import threading
from contextlib import suppress
from datetime import timedelta

import pytest

from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence


class ExpectedError(Exception):
    pass


LONG = timedelta(seconds=10)
NOW = timedelta(0)


async def test_a_waiting_host_is_woken_by_a_commit(
    database: InMemoryDatabase, store: InMemoryPersistence
) -> None:
    host = InMemoryPersistence(database)
    waiting = asyncio.create_task(host.wait_for_work(LONG))
    async with store.transaction() as tx:
        await tx.notify("runs")
        await asyncio.sleep(0.01)
        assert not waiting.done()
    assert await asyncio.wait_for(waiting, 1)


async def test_a_rollback_wakes_nobody(store: InMemoryPersistence) -> None:
    with suppress(ExpectedError):
        async with store.transaction() as tx:
            await tx.notify("runs")
            raise ExpectedError
    async with store.transaction() as tx:
        with suppress(ExpectedError):
            async with tx.transaction() as savepoint:
                await savepoint.notify("runs")
                raise ExpectedError
    assert not await store.wait_for_work(timedelta(milliseconds=5))


async def test_what_came_since_the_last_wait_is_remembered_once(store: InMemoryPersistence) -> None:
    await store.notify("runs")
    await store.notify("runs")
    assert await store.wait_for_work(NOW)
    assert not await store.wait_for_work(NOW)
    await store.notify("runs")
    assert await store.wait_for_work(LONG)


async def test_every_adapter_over_the_database_has_its_own_memory(
    database: InMemoryDatabase, store: InMemoryPersistence
) -> None:
    transport = InMemoryJobTransport(database)
    await store.notify("runs")
    assert await store.wait_for_work(NOW)
    assert await transport.wait_for_work(NOW)
    assert not await InMemoryJobTransport().wait_for_work(NOW)


async def test_all_waiters_on_one_adapter_are_woken(store: InMemoryPersistence) -> None:
    waiting = [asyncio.create_task(store.wait_for_work(LONG)) for _ in range(3)]
    await asyncio.sleep(0.01)
    await store.notify("runs")
    assert await asyncio.wait_for(asyncio.gather(*waiting), 1) == [True, True, True]


async def test_a_cancelled_waiter_and_one_whose_time_is_over_leave_nothing_behind(
    database: InMemoryDatabase, store: InMemoryPersistence
) -> None:
    waiting = asyncio.create_task(store.wait_for_work(LONG))
    await asyncio.sleep(0.01)
    assert database.work.waiting == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not await store.wait_for_work(timedelta(milliseconds=1))
    assert database.work.waiting == 0


async def test_a_host_in_another_thread_is_woken(
    database: InMemoryDatabase, store: InMemoryPersistence
) -> None:
    woken: list[bool] = []

    def host() -> None:
        woken.append(asyncio.run(InMemoryPersistence(database).wait_for_work(LONG)))

    thread = threading.Thread(target=host, daemon=True)
    thread.start()
    async with asyncio.timeout(5):
        while database.work.waiting == 0:  # noqa: ASYNC110  the other thread has no event for this loop
            await asyncio.sleep(0.001)
    await store.notify("runs")
    await asyncio.to_thread(thread.join, 5)
    assert woken == [True]


async def test_a_waiter_whose_loop_was_closed_disturbs_nobody(
    database: InMemoryDatabase, store: InMemoryPersistence
) -> None:
    loop = asyncio.new_event_loop()
    abandoned = database.work.wait_beyond(0, LONG)

    def begin_waiting() -> None:
        async def begin() -> None:
            abandoned.send(None)

        loop.run_until_complete(begin())
        loop.close()

    await asyncio.to_thread(begin_waiting)
    waiting = asyncio.create_task(store.wait_for_work(LONG))
    await asyncio.sleep(0.01)
    await store.notify("runs")
    assert await asyncio.wait_for(waiting, 1)
    abandoned.close()
