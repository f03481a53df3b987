"""The loop of a simulation: virtual time, turns in order, processes that stop at once or for a while."""

import asyncio
import random
from collections.abc import Iterator
from contextvars import Context

import pytest

from stagewright_simulation.loop import CURRENT, Actor, OutOfPatience, SimLoop


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(random.Random("loop"), patience=10_000)
    yield made
    made.end()


def actor_on(loop: SimLoop, name: str) -> tuple[Actor, Context]:
    actor, context = Actor(name), Context()
    context.run(CURRENT.set, actor)
    loop.begin(actor)
    return actor, context


def test_time_passes_only_when_nothing_is_to_be_done(loop: SimLoop) -> None:
    async def sleeps() -> tuple[float, float]:
        for _ in range(50):
            await asyncio.sleep(0)
        busy = loop.time()
        await asyncio.sleep(86_400)
        return busy, loop.time()

    assert loop.run_until_complete(sleeps()) == (0.0, 86_400.0)


def test_a_process_that_is_gone_says_no_last_words(loop: SimLoop) -> None:
    said: list[str] = []

    async def lives() -> None:
        try:
            said.append("alive")
            await asyncio.sleep(10)
        finally:
            said.append("last words")
            await asyncio.sleep(0)

    async def watches() -> None:
        actor, context = actor_on(loop, "mortal")
        loop.create_task(lives(), context=context)
        await asyncio.sleep(1)
        loop.bury(actor)
        await asyncio.sleep(60)
        assert said == ["alive"]

    loop.run_until_complete(watches())


def test_a_frozen_process_goes_on_where_it_was(loop: SimLoop) -> None:
    seen: list[float] = []

    async def ticks() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append(loop.time())

    async def watches() -> None:
        actor, context = actor_on(loop, "sleeper")
        loop.create_task(ticks(), context=context)
        await asyncio.sleep(2.5)
        actor.frozen_until = 20.0
        await asyncio.sleep(20)
        assert seen == [1.0, 2.0, 20.0, 21.0, 22.0]

    loop.run_until_complete(watches())


def test_what_one_process_sends_arrives_when_it_is_gone(loop: SimLoop) -> None:
    async def watches() -> None:
        arrived = loop.create_future()
        actor, context = actor_on(loop, "sender")
        context.run(loop.call_soon_threadsafe, arrived.set_result, None)
        loop.bury(actor)
        await asyncio.wait_for(arrived, 5)

    loop.run_until_complete(watches())


def test_processes_take_turns_by_chance_and_each_keeps_its_own_order(loop: SimLoop) -> None:
    order: list[tuple[str, int]] = []

    async def watches() -> None:
        for name in ("a", "b"):
            _, context = actor_on(loop, name)
            for number in range(20):
                loop.call_soon(order.append, (name, number), context=context)
        await asyncio.sleep(1)

    loop.run_until_complete(watches())
    for name in ("a", "b"):
        assert [number for who, number in order if who == name] == list(range(20))
    assert order != sorted(order)


def test_standing_still_is_noticed(loop: SimLoop) -> None:
    async def waits() -> None:
        await loop.create_future()

    with pytest.raises(OutOfPatience, match="nothing is left"):
        loop.run_until_complete(waits())
