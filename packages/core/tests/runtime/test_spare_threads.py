"""Threads of plain functions, which are used again by the next ones."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from functools import partial

import pytest

from stagewright.runtime import spare_threads
from stagewright.runtime.body_threads import BodyThreads

FORKING = """
import asyncio, os, warnings
from stagewright.runtime.body_threads import BodyThreads

warnings.simplefilter("ignore")
threads = BodyThreads()

async def run():
    return await asyncio.wait_for(threads.run(lambda: 7, name="t"), 20)

asyncio.run(run())
child = os.fork()
if child == 0:
    os._exit(asyncio.run(run()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), asyncio.run(run()))
"""


async def test_functions_one_after_the_other_share_a_thread() -> None:
    threads = BodyThreads()
    first, *others = [await threads.run(threading.current_thread, name=f"t{number}") for number in range(20)]
    assert set(others) == {first}
    assert first.name == "t19"


async def test_functions_at_the_same_time_have_threads_of_their_own() -> None:
    threads = BodyThreads()
    everybody = threading.Barrier(6)

    def body() -> threading.Thread:
        everybody.wait(30)
        return threading.current_thread()

    for _ in range(3):
        used = await asyncio.gather(*(threads.run(body, name="t") for _ in range(6)))
        assert len(set(used)) == 6


async def test_an_abandoned_function_keeps_its_thread_until_it_returns() -> None:
    threads = BodyThreads()
    inside, go = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        go.wait(30)

    hanging = asyncio.create_task(threads.run(hang, name="hanging"))
    await asyncio.to_thread(inside.wait, 30)
    hanging.cancel()
    await asyncio.wait({hanging})
    async with asyncio.timeout(20):
        assert await threads.run(lambda: threading.current_thread().name, name="next") == "next"
    assert threads.abandoned == 1
    go.set()


async def test_a_thread_that_fails_serves_the_next_one() -> None:
    threads = BodyThreads()
    seen: list[threading.Thread] = []

    def leave() -> None:
        seen.append(threading.current_thread())
        raise SystemExit(3)

    with pytest.raises(RuntimeError, match="SystemExit"):
        await threads.run(leave, name="t")
    assert await threads.run(threading.current_thread, name="t") is seen[0]


async def test_a_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_threads, "_SPARE_FOR", 0.01)
    threads = BodyThreads()
    used = await threads.run(threading.current_thread, name="t")
    await asyncio.to_thread(used.join, 30)
    assert not used.is_alive()
    assert await threads.run(lambda: 5, name="t") == 5


async def test_work_that_comes_when_a_thread_is_about_to_end_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_threads, "_SPARE_FOR", 0.0)
    threads = BodyThreads()
    async with asyncio.timeout(60):
        for number in range(300):
            done = await asyncio.gather(*(threads.run(lambda: number, name="t") for _ in range(4)))  # noqa: B023
            assert done == [number] * 4


async def test_a_thread_that_waits_keeps_nothing_of_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    class Large:
        pass

    monkeypatch.setattr(spare_threads, "_SPARE_FOR", 3_600.0)
    threads = BodyThreads()
    large = Large()
    gone = threading.Event()
    weakref.finalize(large, gone.set)
    assert await threads.run(partial(isinstance, large, Large), name="t")
    del large
    gc.collect()
    assert await asyncio.to_thread(gone.wait, 30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_begins_threads_of_its_own() -> None:
    told = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (told.stdout.split(), told.stderr) == (["7", "7"], "")
