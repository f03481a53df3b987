"""The signal that tells a body to stop: set once, from any thread, seen by everybody who waits."""

import asyncio
import threading

import pytest

from stagewright.errors import StageAbortedError
from stagewright.runtime.abort import AbortSource, NeverAborted


async def test_a_signal_is_set_once_and_keeps_its_first_reason() -> None:
    abort = AbortSource()
    assert (abort.is_set, abort.reason) == (False, None)
    abort.raise_if_set()
    abort.set("lease-lost")
    abort.set("cancelled")
    assert (abort.is_set, abort.reason) == (True, "lease-lost")
    await abort.wait()
    with pytest.raises(StageAbortedError) as caught:
        abort.raise_if_set()
    assert caught.value.reason == "lease-lost"


async def test_everybody_who_waits_is_woken() -> None:
    abort = AbortSource()
    waiting = [asyncio.create_task(abort.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    threading.Thread(target=abort.set, args=("shutdown",)).start()
    await asyncio.gather(*waiting)


def test_loops_of_several_threads_may_wait_for_one_signal() -> None:
    abort = AbortSource()
    ready = threading.Barrier(4)
    woken: list[int] = []

    def wait(number: int) -> None:
        async def main() -> None:
            task = asyncio.create_task(abort.wait())
            await asyncio.sleep(0)
            ready.wait(30)
            await task
            woken.append(number)

        asyncio.run(main())

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    ready.wait(30)
    abort.set("cancelled")
    for thread in threads:
        thread.join(30)
    assert sorted(woken) == [0, 1, 2]


async def test_who_gave_up_waiting_is_forgotten() -> None:
    abort = AbortSource()
    waiting = asyncio.create_task(abort.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    abort.set("cancelled")
    assert abort.is_set


def test_a_loop_that_has_ended_does_not_matter() -> None:
    abort = AbortSource()

    async def leave() -> None:
        task = asyncio.create_task(abort.wait())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    abort.set("shutdown")
    assert abort.reason == "shutdown"


async def test_the_signal_of_an_execution_that_nobody_can_stop_never_fires() -> None:
    abort = NeverAborted()
    abort.set("cancelled")
    abort.raise_if_set()
    assert (abort.is_set, abort.reason) == (False, None)
