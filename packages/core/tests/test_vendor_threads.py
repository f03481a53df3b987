import asyncio
import contextvars
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from threading import Barrier, Event, Thread, current_thread

import pytest

from stagewright.errors import ForkedProcessError
from stagewright.vendor_threads import VendorThreads

PLACE = contextvars.ContextVar("PLACE", default="nowhere")


class _Client:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def threads_of(made: list[_Client], size: int = 3) -> VendorThreads[_Client]:
    def connect() -> _Client:
        made.append(_Client())
        return made[-1]

    return VendorThreads("the client", size=size, connect=connect, disconnect=_Client.close)


async def test_there_is_one_client_made_at_its_first_use_in_a_thread_of_its_own() -> None:
    made: list[_Client] = []
    threads = threads_of(made)
    assert made == []
    meeting = Barrier(3, timeout=30)
    PLACE.set("here")

    def work(client: _Client) -> tuple[int, str, str]:
        meeting.wait()
        return id(client), current_thread().name, PLACE.get()

    told = await asyncio.gather(*[threads.call(work) for _ in range(3)])
    assert {client for client, _, _ in told} == {id(made[0])}
    assert len({name for _, name, _ in told}) == 3
    assert {place for _, _, place in told} == {"here"}
    await threads.close()
    await threads.close()
    assert [client.is_closed for client in made] == [True]


async def test_a_client_that_could_not_be_made_is_made_by_the_next_call() -> None:
    failures = [OSError("not yet")]

    def connect() -> str:
        if failures:
            raise failures.pop()
        return "client"

    threads = VendorThreads("it", size=1, connect=connect, disconnect=lambda _: None)
    with pytest.raises(OSError, match="not yet"):
        await threads.call(str.upper)
    assert await threads.call(str.upper) == "CLIENT"
    await threads.close()


def test_several_event_loops_share_it() -> None:
    made: list[_Client] = []
    threads = threads_of(made)
    for _ in range(3):
        assert asyncio.run(threads.call(lambda client: client is made[0]))
    asyncio.run(threads.close())
    assert len(made) == 1


async def test_who_is_cancelled_waits_for_a_write_that_is_on_its_way() -> None:
    threads = threads_of([])
    begun, goes_on, done = Event(), Event(), Event()

    def work(client: _Client) -> None:
        begun.set()
        assert goes_on.wait(30)
        done.set()

    writing = asyncio.create_task(threads.finish(work))
    assert await asyncio.to_thread(begun.wait, 30)
    writing.cancel()
    await asyncio.sleep(0)
    assert not writing.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert done.is_set()
    await threads.close()


@pytest.mark.parametrize("way", ["call", "finish"])
async def test_a_call_that_has_not_begun_when_it_is_cancelled_never_begins(way: str) -> None:
    made: list[_Client] = []
    threads = threads_of(made, size=1)
    begun, goes_on = Event(), Event()

    def hold(client: _Client) -> bool:
        begun.set()
        return goes_on.wait(30)

    holding = asyncio.create_task(threads.call(hold))
    assert await asyncio.to_thread(begun.wait, 30)
    start: Callable[..., object] = getattr(threads, way)
    waiting = asyncio.ensure_future(start(lambda client: client.calls.append("never")))  # type: ignore[call-overload]
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    goes_on.set()
    await holding
    await threads.close()
    assert made[0].calls == []


def test_a_call_that_hangs_keeps_no_process_from_leaving() -> None:
    program = """
import asyncio
from threading import Event
from stagewright.vendor_threads import VendorThreads

begun = Event()

def hang(client):
    begun.set()
    Event().wait()

async def main():
    threads = VendorThreads("it", size=1, connect=str, disconnect=str.upper)
    hanging = asyncio.create_task(threads.call(hang))
    await asyncio.to_thread(begun.wait)
    hanging.cancel()
    closing = asyncio.create_task(threads.close())
    await asyncio.sleep(0)
    closing.cancel()

asyncio.run(main())
print("left")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr


async def test_a_client_is_closed_behind_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stagewright.vendor_threads._SECONDS_OF_GRACE", 0.01)
    made: list[_Client] = []
    threads = threads_of(made, size=1)
    begun, goes_on = Event(), Event()

    def hold(client: _Client) -> bool:
        begun.set()
        return goes_on.wait(30) and not client.is_closed

    holding = asyncio.create_task(threads.call(hold))
    assert await asyncio.to_thread(begun.wait, 30)
    await threads.close()
    assert not made[0].is_closed
    goes_on.set()
    assert await holding
    monkeypatch.setattr("stagewright.vendor_threads._SECONDS_OF_GRACE", 30.0)
    await threads.close()
    assert made[0].is_closed


async def test_threads_go_with_what_they_are_for() -> None:
    threads = threads_of([])

    def here(client: _Client) -> Thread:
        return current_thread()

    worker = await threads.call(here)
    assert worker.is_alive()
    del threads
    gc.collect()
    await asyncio.to_thread(worker.join, 30)
    assert not worker.is_alive()


async def test_after_its_end_it_is_refused() -> None:
    threads = threads_of([])
    await threads.close()
    with pytest.raises(RuntimeError, match="the client is closed; open another"):
        await threads.call(id)


async def test_in_a_forked_child_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = threads_of([])
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ForkedProcessError, match="the client was made before the process forked"):
            await threads.call(id)
        await threads.close()
    assert await threads.call(lambda client: client.is_closed) is False
    await threads.close()
