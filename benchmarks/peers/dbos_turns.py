"""DBOS, in its own process, on a system database of its own.

Workflows are called directly where it isn't said that they go through its queue: that is what is quickest with it. Its
pool holds a connection for each caller, and it logs errors only. Its queue is looked at every 50 ms, not every second,
and takes whatever waits. Everything else is as it is shipped, notifications included.
"""

import asyncio
import importlib
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.contender import FAN
from benchmarks.figures import Figures, Pace, Request, Stopwatch

__all__ = ["backlog", "fan_out", "steps", "three_steps_async", "three_steps_queued", "three_steps_sync"]

_POOL = 20  # its own default; more where more call
_PRODUCERS = 4
_STEPS_FIRST = 20
_WAITING_FIRST = 50
_LOOK_AGAIN = 0.02
_POLLING = 0.05  # of its queue, whose default is a second


@contextmanager
def _launched(request: Request) -> Iterator[tuple[Any, Any]]:
    dbos: Any = importlib.import_module("dbos")
    config = {
        "name": "bench",
        "system_database_url": request.url,
        "sys_db_pool_size": max(_POOL, request.slots + 4),
        "log_level": "ERROR",
    }
    dbos.DBOS(config=config)
    yield dbos.DBOS, dbos
    dbos.DBOS.destroy()


def three_steps_async(request: Request) -> Figures:
    """Workflows of three steps by coroutines."""
    with _launched(request) as (dbos, _):
        step = _async_step(dbos)

        async def three(amount: int) -> int:
            for _ in range(3):
                amount = await step(amount)
            return amount

        workflow = dbos.workflow(name="three")(three)
        dbos.launch()
        return asyncio.run(_by_callers(workflow, request))


def three_steps_sync(request: Request) -> Figures:
    """Workflows of three steps by threads."""
    with _launched(request) as (dbos, _), ThreadPoolExecutor(request.slots) as threads:
        step = _sync_step(dbos)

        def three(amount: int) -> int:
            for _ in range(3):
                amount = step(amount)
            return amount

        workflow = dbos.workflow(name="three")(three)
        dbos.launch()

        def measure(count: int) -> Figures:
            watch = Stopwatch()
            ended = list(threads.map(workflow, range(count)))
            figures = watch.stop(count)
            assert ended == [number + 3 for number in range(count)]
            return figures

        return _paced(measure, request, 2 * request.slots)


def steps(request: Request) -> Figures:
    """One workflow of so many steps; `way` is `async` or `sync`."""
    with _launched(request) as (dbos, _):
        if request.options["way"] == "async":
            return _steps_async(dbos, request)
        step = _sync_step(dbos)

        def many(count: int) -> int:
            return sum(step(number) for number in range(count))

        workflow = dbos.workflow(name="many")(many)
        dbos.launch()

        def measure(count: int) -> Figures:
            watch = Stopwatch()
            assert workflow(count) == sum(range(count + 1))
            return watch.stop(count)

        return _paced(measure, request, _STEPS_FIRST)


def _steps_async(dbos: Any, request: Request) -> Figures:
    step = _async_step(dbos)

    async def many(count: int) -> int:
        total = 0
        for number in range(count):
            total += await step(number)
        return total

    workflow = dbos.workflow(name="many")(many)

    async def measure(count: int) -> Figures:
        watch = Stopwatch()
        assert await workflow(count) == sum(range(count + 1))
        return watch.stop(count)

    dbos.launch()
    return asyncio.run(_paced_async(measure, request, _STEPS_FIRST))


def fan_out(request: Request) -> Figures:
    """Workflows of steps side by side, by coroutines; counted are the steps."""
    with _launched(request) as (dbos, _):
        step = _async_step(dbos)

        async def fan(amount: int) -> int:
            return sum(await asyncio.gather(*(step(amount) for _ in range(FAN))))

        workflow = dbos.workflow(name="fan")(fan)
        dbos.launch()

        async def call(numbers: range) -> None:
            for number in numbers:
                assert await workflow(number) == FAN * (number + 1)

        async def measure(count: int) -> Figures:
            watch = Stopwatch()
            async with asyncio.TaskGroup() as callers:
                for first in range(request.slots):
                    callers.create_task(call(range(first, count, request.slots)))
            return watch.stop(count * FAN)

        return asyncio.run(_paced_async(measure, request, 4))


def backlog(request: Request) -> Figures:
    """Workflows without a step that wait in its queue when the queue is registered, and so begun to be worked on."""
    return _queued(request, steps=0, ahead=True)


def three_steps_queued(request: Request) -> Figures:
    """Workflows of three steps that go through its queue, and are enqueued meanwhile."""
    return _queued(request, steps=3, ahead=False)


def _queued(request: Request, *, steps: int, ahead: bool) -> Figures:
    with _launched(request) as (dbos, module):
        step, count = _sync_step(dbos), _Countdown()

        def add(amount: int) -> int:
            for _ in range(steps):
                amount = step(amount)
            count.one()
            return amount

        dbos.workflow(name="add")(add)
        dbos.launch()
        client = module.DBOSClient(system_database_url=request.url)

        numbers = itertools.count()

        def measure(size: int) -> Figures:
            # It is worked on as soon as it is registered, so that each backlog has a queue of its own.
            queue = f"bench-{next(numbers)}"
            put = partial(client.enqueue, {"queue_name": queue, "workflow_name": "add"})
            count.expect(size)
            if ahead:
                _enqueue(put, size)
            watch = Stopwatch()
            dbos.register_queue(queue, polling_interval_sec=_POLLING)
            if not ahead:
                _enqueue(put, size)
            count.wait()
            _wait_for_ends(client, queue, size)
            return watch.stop(size)

        figures = _paced(measure, request, _WAITING_FIRST)
        client.destroy()
        return figures


def _enqueue(put: Callable[[int], object], size: int) -> None:
    with ThreadPoolExecutor(_PRODUCERS) as threads:
        list(threads.map(put, range(size)))


def _wait_for_ends(client: Any, queue: str, size: int) -> None:
    asked = {"queue_name": queue, "status": "SUCCESS", "load_input": False, "load_output": False}
    while len(client.list_workflows(**asked)) < size:
        time.sleep(_LOOK_AGAIN)


class _Countdown:
    def __init__(self) -> None:
        self._left = 0
        self._lock = threading.Lock()
        self._reached = threading.Event()

    def expect(self, bodies: int) -> None:
        self._left = bodies
        self._reached.clear()

    def one(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._reached.set()

    def wait(self) -> None:
        self._reached.wait()


def _async_step(dbos: Any) -> Callable[[int], Any]:
    async def add_one(amount: int) -> int:
        return amount + 1

    step: Callable[[int], Any] = dbos.step()(add_one)
    return step


def _sync_step(dbos: Any) -> Callable[[int], int]:
    def add_one(amount: int) -> int:
        return amount + 1

    step: Callable[[int], int] = dbos.step()(add_one)
    return step


async def _by_callers(workflow: Callable[[int], Any], request: Request) -> Figures:
    async def call(numbers: range) -> None:
        for number in numbers:
            assert await workflow(number) == number + 3

    async def all_of(count: int) -> None:
        async with asyncio.TaskGroup() as callers:
            for first in range(request.slots):
                callers.create_task(call(range(first, count, request.slots)))

    async def measure(count: int) -> Figures:
        watch = Stopwatch()
        await all_of(count)
        return watch.stop(count)

    return await _paced_async(measure, request, 2 * request.slots)


def _paced(measure: Callable[[int], Figures], request: Request, first: int) -> Figures:
    pace = Pace(request, first)
    while not pace.is_found:
        pace.note(measure(pace.size))
    return pace.figures


async def _paced_async(measure: Callable[[int], Awaitable[Figures]], request: Request, first: int) -> Figures:
    pace = Pace(request, first)
    while not pace.is_found:
        pace.note(await measure(pace.size))
    return pace.figures
