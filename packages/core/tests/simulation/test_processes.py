"""What becomes of a transaction whose process is gone."""

import asyncio
import random
from collections.abc import Iterator
from contextvars import Context

import pytest

from stagewright.memory import InMemoryBlobStore
from stagewright_simulation.clocks import TrueClock
from stagewright_simulation.database import SimDatabase
from stagewright_simulation.loop import CURRENT, Actor, SimLoop


async def nothing_happens(store: str, moment: str) -> None:
    await asyncio.sleep(0)


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(random.Random("processes"), patience=10_000)
    yield made
    made.end()


def test_a_transaction_of_a_process_that_is_gone_is_rolled_back_and_its_locks_are_free(loop: SimLoop) -> None:
    database = SimDatabase("blobs", TrueClock(loop), nothing_happens)
    store = InMemoryBlobStore(database)

    async def writes_and_waits() -> None:
        async with store.transaction() as tx:
            await tx.put("key", b"of the dead")
            await asyncio.sleep(3600)

    async def watches() -> None:
        actor, context = Actor("mortal"), Context()
        context.run(CURRENT.set, actor)
        loop.begin(actor)
        loop.create_task(writes_and_waits(), context=context)
        await asyncio.sleep(1)
        assert not database.locks.is_idle
        loop.bury(actor)
        database.disconnect(actor)
        assert database.locks.is_idle
        assert not await store.has("key")
        await asyncio.wait_for(store.put("key", b"of the living"), 5)
        assert await store.get("key") == b"of the living"

    loop.run_until_complete(watches())


def test_who_waits_for_a_lock_gets_it_when_its_holder_is_gone(loop: SimLoop) -> None:
    database = SimDatabase("blobs", TrueClock(loop), nothing_happens)
    store = InMemoryBlobStore(database)

    async def holds() -> None:
        async with store.transaction() as tx:
            await tx.put("key", b"of the dead")
            await asyncio.sleep(3600)

    async def watches() -> None:
        actor, context = Actor("mortal"), Context()
        context.run(CURRENT.set, actor)
        loop.begin(actor)
        loop.create_task(holds(), context=context)
        await asyncio.sleep(1)
        waiting = loop.create_task(store.put("key", b"of the living"))
        await asyncio.sleep(1)
        assert not waiting.done()
        loop.bury(actor)
        database.disconnect(actor)
        await asyncio.wait_for(waiting, 5)
        assert await store.get("key") == b"of the living"

    loop.run_until_complete(watches())
