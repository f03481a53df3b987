"""Celery on Redis: a process for each core, and results ignored.

It fetches as many tasks ahead as its manual advises for short ones.
"""

import importlib
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Figures, Pace, Request, Stopwatch

__all__ = ["backlog", "three_tasks"]

_PREFETCH = 64
_LOOK_AGAIN = 0.002
_WARM_UP = 50


class _Celery:
    """An application with a worker in a process of its own, whose children count what they did."""

    def __init__(self, request: Request, last: int) -> None:
        celery: Any = importlib.import_module("celery")
        self.app: Any = celery.Celery("bench", broker=request.url)
        self.app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=_PREFETCH,
            worker_hijack_root_logger=False,
            broker_connection_retry_on_startup=True,
        )
        ended: Any = multiprocessing.Value("i", 0)
        self._ended = ended

        def add_one(amount: int) -> int:
            if amount % 3 == last:
                with ended.get_lock():
                    ended.value += 1
            return amount + 1

        self.task: Any = self.app.task(name="add_one")(add_one)

    def measure(self, put: Callable[[int], None], request: Request, *, ahead: bool) -> Figures:
        """Put tasks and have them done, after a few that warm up.

        Args:
            put: Puts so many.
            request: How many, in which time.
            ahead: Whether they all wait before the first one is taken.
        """
        worker = multiprocessing.get_context("fork").Process(target=self._work)
        worker.start()
        # The worker takes a while to be there, which is no part of its pace.
        self._take(put, 1, ahead=False)
        pace = Pace(request, _WARM_UP)
        while not pace.is_found:
            pace.note(self._take(put, pace.size, ahead=ahead))
        worker.terminate()
        worker.join()
        return pace.figures

    def _work(self) -> None:
        self.app.Worker(pool="prefork", concurrency=multiprocessing.cpu_count(), loglevel="ERROR").start()

    def _take(self, put: Callable[[int], None], count: int, *, ahead: bool) -> Figures:
        self._ended.value = 0
        if ahead:
            self.app.control.cancel_consumer("celery", reply=True)
            put(count)
            watch = Stopwatch()
            self.app.control.add_consumer("celery")
        else:
            watch = Stopwatch()
            put(count)
        while self._ended.value < count:
            time.sleep(_LOOK_AGAIN)
        return watch.stop(count)


def backlog(request: Request) -> Figures:
    """Tasks that wait when the worker begins to consume."""
    bench = _Celery(request, last=0)

    def put(count: int) -> None:
        with bench.app.producer_pool.acquire(block=True) as producer:
            for _ in range(count):
                bench.task.apply_async((0,), producer=producer)

    return bench.measure(put, request, ahead=True)


def three_tasks(request: Request) -> Figures:
    """Chains of three tasks, put while others are done."""
    bench = _Celery(request, last=2)
    celery: Any = importlib.import_module("celery")
    chain: Any = celery.chain(bench.task.s(0), bench.task.s(), bench.task.s())

    def put(count: int) -> None:
        for _ in range(count):
            chain.apply_async()

    return bench.measure(put, request, ahead=False)
