"""Leases renewed from threads over the store in memory."""

import asyncio
from datetime import timedelta

import pytest

from stagewright.memory import InMemoryDatabase, InMemoryJobTransport, InMemoryPersistence
from stagewright.records import HeldLease, NewJob
from stagewright.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def transport(clock: FakeClock) -> InMemoryJobTransport:
    return InMemoryJobTransport(InMemoryDatabase(clock))


async def a_lease(transport: InMemoryJobTransport, name: str) -> HeldLease:
    await transport.enqueue_parallel([NewJob(id=name, run_id=name, workflow_id="w", stage_id="s")])
    [taken] = await transport.dequeue(worker_id="worker")
    return HeldLease(taken.job_id, taken.fence)


async def test_a_job_that_somebody_holds_keeps_nobody_waiting(
    transport: InMemoryJobTransport, clock: FakeClock
) -> None:
    settled, free = await a_lease(transport, "settled"), await a_lease(transport, "free")
    channel = transport.open_heartbeats()
    assert channel is not None
    clock.advance("40s")
    async with InMemoryPersistence(transport.database).transaction() as tx:
        enlisted = transport.enlist(tx)
        assert enlisted is not None
        assert enlisted.open_heartbeats() is None
        await enlisted.complete(settled.job_id, settled.fence)
        async with asyncio.timeout(5):
            assert await asyncio.to_thread(channel.renew_many, [settled, free]) == [True, True]
    clock.advance("40s")
    assert (await transport.release_stale(timedelta(seconds=45))).released == ()
    assert await asyncio.to_thread(channel.renew_many, [settled, free]) == [False, True]
    assert transport.database.locks.is_idle
