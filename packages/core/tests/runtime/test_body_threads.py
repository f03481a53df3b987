"""A thread for each plain body: what it hands over, and what becomes of it when nobody waits any more."""

import asyncio
import threading

import pytest

from stagewright.runtime.blocking_portal import LoopPortal
from stagewright.runtime.body_threads import BodyThreads


async def test_results_and_errors_are_handed_over() -> None:
    assert await BodyThreads().run(lambda: 1 + 1, name="t") == 2

    def fail() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await BodyThreads().run(fail, name="t")


async def test_stop_iteration_comes_as_an_error_with_its_cause() -> None:
    def stop() -> None:
        raise StopIteration(5)

    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await BodyThreads().run(stop, name="t")
    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize("raises", [False, True])
async def test_what_comes_after_the_cancellation_is_dropped(raises: bool) -> None:
    inside, go, over = threading.Event(), threading.Event(), threading.Event()

    def body() -> int:
        inside.set()
        go.wait(30)
        over.set()
        if raises:
            raise ValueError("late")
        return 1

    running = asyncio.create_task(BodyThreads().run(body, name="t"))
    await asyncio.to_thread(inside.wait, 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    go.set()
    await asyncio.to_thread(over.wait, 30)
    await asyncio.sleep(0)


def test_what_comes_after_the_end_of_the_loop_is_dropped() -> None:
    inside, go = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def body() -> None:
        threads.append(threading.current_thread())
        inside.set()
        go.wait(30)

    async def leave() -> None:
        running = asyncio.create_task(BodyThreads().run(body, name="t"))
        await asyncio.to_thread(inside.wait, 30)
        running.cancel()

    asyncio.run(leave())
    go.set()
    threads[0].join(30)
    assert not threads[0].is_alive()


async def answer() -> int:
    return 42


async def test_a_thread_awaits_on_the_loop_through_the_portal() -> None:
    portal = LoopPortal(asyncio.get_running_loop())
    assert await BodyThreads().run(lambda: portal.call(answer()), name="t") == 42


def test_a_portal_to_a_loop_that_has_ended_says_so() -> None:
    async def make() -> LoopPortal:
        return LoopPortal(asyncio.get_running_loop())

    portal = asyncio.run(make())
    with pytest.raises(RuntimeError, match="has ended"):
        portal.call(answer())


async def test_a_portal_used_on_its_own_loop_says_so_instead_of_hanging() -> None:
    portal = LoopPortal(asyncio.get_running_loop())
    with pytest.raises(RuntimeError):  # noqa: PT011 - whatever it says
        portal.call(answer())
