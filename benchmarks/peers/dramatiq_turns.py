"""Dramatiq on Redis, with its usual middleware and the eight threads of its own command."""

import importlib
import threading
from typing import Any

from benchmarks.dramatiq_jobs import DramatiqJobs
from benchmarks.figures import Figures, Pace, Request, Stopwatch

__all__ = ["backlog", "three_tasks"]

_THREADS = 8
_WARM_UP = 50


def backlog(request: Request) -> Figures:
    """Jobs that wait when the worker is started."""
    pace = Pace(request, _WARM_UP)
    while not pace.is_found:
        pace.note(_drain(request.url, pace.size))
    return pace.figures


def _drain(url: str, size: int) -> Figures:
    count = _Count(size)
    jobs = DramatiqJobs(url, lambda _number: None, lambda _number: count.one())
    for number in range(size):
        jobs.put(number)
    watch = Stopwatch()
    jobs.start(_THREADS)
    count.wait()
    figures = watch.stop(size)
    jobs.close()
    return figures


def three_tasks(request: Request) -> Figures:
    """Pipelines of three jobs, sent while others are done."""
    dramatiq: Any = importlib.import_module("dramatiq")
    brokers: Any = importlib.import_module("dramatiq.brokers.redis")
    broker = brokers.RedisBroker(url=request.url)
    counts: list[_Count] = []

    def add_one(amount: int, which: int) -> int:
        return amount + 1

    def add_last(amount: int, which: int) -> None:
        counts[which].one()

    first = dramatiq.actor(add_one, actor_name="first", broker=broker)
    last = dramatiq.actor(add_last, actor_name="last", broker=broker)
    worker = dramatiq.Worker(broker, worker_threads=_THREADS)
    worker.start()

    def measure(count: int) -> Figures:
        which = len(counts)
        counts.append(_Count(count))
        watch = Stopwatch()
        for _ in range(count):
            # A result is given to the next one as its last argument; the others are told the same again.
            parts = [first.message(0, which), _ignoring(first, which), _ignoring(last, which)]
            dramatiq.pipeline(parts, broker=broker).run()
        counts[which].wait()
        return watch.stop(count)

    pace = Pace(request, _WARM_UP)
    while not pace.is_found:
        pace.note(measure(pace.size))
    worker.stop()
    broker.close()
    return pace.figures


def _ignoring(actor: Any, which: int) -> Any:
    return actor.message_with_options(args=(0, which), pipe_ignore=True)


class _Count:
    def __init__(self, expected: int) -> None:
        self._left = expected
        self._lock = threading.Lock()
        self._reached = threading.Event()

    def one(self) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self._reached.set()

    def wait(self) -> None:
        self._reached.wait()
